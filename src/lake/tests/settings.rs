//! Lakes by URL, and the probe.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::support::*;
use crate::lake::examine::race;
use crate::lake::{Error, Kind, Lake, Options};

fn with(url: &str, storage: &[(&str, &str)]) -> Options {
    let storage =
        storage.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>();
    Options { url: Some(url.to_owned()), storage, ..Options::default() }
}

#[test]
fn options_do_not_show_their_secrets() {
    let options = with("s3://bucket", &[("secret_access_key", "hunter2"), ("region", "eu-north-1")]);
    let shown = format!("{options:?}");
    assert!(shown.contains("secret_access_key") && !shown.contains("hunter2"), "{shown}");
    let written = serde_json::to_string(&options).expect("should serialize");
    assert!(written.contains("secret_access_key") && !written.contains("hunter2"), "{written}");
    let default: Options = serde_json::from_str("{}").expect("all settings should have a default");
    assert_eq!(format!("{default:?}"), format!("{:?}", Options::default()));
}

#[test]
fn urls_that_name_no_lake_say_why() {
    for (url, reason) in [
        ("lake", "not a URL"),
        ("ftp://bucket/lake", "none of file, s3, az"),
        ("s3:///lake", "names no bucket"),
        ("az:///lake", "names no bucket"),
        ("file://host/lake", "not a path on this machine"),
        ("s3://id:hunter2@bucket/lake", "carries credentials"),
        ("gs://hunter2@bucket/lake", "carries credentials"),
        ("abfss://container:hunter2@account.dfs.core.windows.net/lake", "carries credentials"),
        ("az://container/lake?sig=hunter2", "has a query"),
        ("az://container/lake#hunter2", "has a query"),
    ] {
        let error = Lake::open(&with(url, &[]), Path::new("/nowhere")).expect_err("should be refused");
        assert_eq!(error.kind(), Kind::Settings);
        assert!(error.to_string().contains(reason) && !error.to_string().contains("hunter2"), "{error}");
    }
    let error =
        Lake::open(&with("s3://bucket", &[("regoin", "x")]), Path::new("/nowhere")).expect_err("should be refused");
    assert!(matches!(error, Error::Settings(_)) && error.to_string().contains("regoin"), "{error}");
}

#[test]
fn an_s3_lake_is_opened_without_a_call() {
    let storage = [
        ("endpoint", "http://127.0.0.1:1"),
        ("region", "us-east-1"),
        ("access_key_id", "test"),
        ("secret_access_key", "testtest"),
    ];
    let lake = Lake::open(&with("s3://bucket/some/lake", &storage), Path::new("/nowhere")).expect("should open");
    assert_eq!(lake.table(TABLE, &name()).location().as_str(), "s3://bucket/some/lake/metrics/cpu/");
}

#[test]
fn lakes_in_azure_and_google_are_opened_without_a_call() {
    let azure = [("account_name", "account"), ("account_key", "dGVzdHRlc3Q="), ("endpoint", "http://127.0.0.1:1")];
    let google = [("skip_signature", "true"), ("base_url", "http://127.0.0.1:1")];
    let emulator = [("use_emulator", "true")];
    for (url, storage, store) in [
        ("az://container/some/lake", &azure[..], "MicrosoftAzure"),
        ("az://container/some/lake", &emulator, "MicrosoftAzure"),
        ("abfss://container@account.dfs.core.windows.net/some/lake", &azure[1..2], "MicrosoftAzure"),
        ("gs://bucket/some/lake", &google, "GoogleCloudStorage"),
    ] {
        let lake = Lake::open(&with(url, storage), Path::new("/nowhere")).expect("should open");
        assert_eq!(lake.table(TABLE, &name()).location().as_str(), format!("{url}/metrics/cpu/"));
        assert!(lake.stores.store.to_string().contains(store), "{}", lake.stores.store);
        let wrong =
            Lake::open(&with(url, &[("acount_name", "x")]), Path::new("/nowhere")).expect_err("should be refused");
        assert!(matches!(wrong, Error::Settings(_)) && wrong.to_string().contains("acount_name"), "{wrong}");
    }
}

#[tokio::test]
async fn tables_lie_below_their_namespace_and_have_one_handle() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let odd = dir.path().join("a b+ü#");
    let lake = local(&odd);
    lake.probe().await.expect("should be writable");
    let table = lake.table(TABLE, &name());
    assert!(std::sync::Arc::ptr_eq(&table, &lake.table(TABLE, &name())));
    ten_rows(&table, 1).await.expect("should commit");
    assert!(odd.join("lake/metrics/cpu/_delta_log/00000000000000000001.json").exists());
    assert_eq!(rows_by_delta_rs(table.location()).await, 10);
    assert_eq!(std::fs::read_dir(odd.join("lake")).expect("should list").count(), 1, "the probe should leave nothing");
}

#[test]
fn a_directory_that_delta_rs_would_misread_is_refused() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let error = Lake::open(&Options::default(), &dir.path().join("a%20b")).expect_err("should be refused");
    assert!(error.to_string().contains("percent sign"), "{error}");
}

#[tokio::test]
async fn the_probe_finds_a_store_that_cannot_create() {
    let (lake, _) = Faulty::lake([]);
    lake.probe().await.expect("should be writable");
    let careless = on(Arc::new(Careless::default()));
    let error = careless.probe().await.expect_err("should be found out");
    assert!(matches!(&error, Error::Unproven(why) if matches!(**why, Error::NoConditionalPut { .. })), "{error}");
    assert_eq!(error.kind(), Kind::Settings);
    assert!(careless.problem().is_some_and(|problem| problem.contains("If-None-Match")));
}

#[tokio::test]
async fn a_race_for_one_key_has_one_winner_or_the_store_is_not_fit() {
    let (fair, _) = Faulty::lake([]);
    let said = race(&fair.stores).await.expect("should be fair");
    assert!(said.contains("1 of 8"), "{said}");
    let error = race(&on(Arc::new(Careless::default())).stores).await.expect_err("should be found out");
    assert!(matches!(error, Error::NotAtomic { winners: 8, .. }) && error.kind() == Kind::Settings, "{error}");
}

fn on(store: Arc<dyn object_store::ObjectStore>) -> Lake {
    Lake::on(url::Url::parse("memory:///lake").expect("should be a URL"), store, CALL_TIMEOUT)
        .expect("should be a lake")
}

#[tokio::test]
async fn nothing_is_committed_to_a_store_that_is_not_proven_fit() {
    let lake = on(Arc::new(Careless::default()));
    let table = lake.table(TABLE, &name());
    let adds = write(&table, 20_000, 10).await;
    for _ in 0..2 {
        let error = commit_as(&table, NOW, 1..=1, &adds).await.expect_err("should be held back");
        assert!(matches!(error, Error::Unproven(_)), "{error}");
        table.resolve(&[NOW], NODE).await.expect_err("should be held back");
    }
    assert!(table.snapshot(None).await.expect("should list").is_none(), "there should be no log");
}

#[tokio::test]
async fn the_proof_is_had_once_and_found_by_itself_after_an_outage() {
    let (_, store) = Faulty::lake([Fault::None]);
    let lake = on(Arc::clone(&store) as _);
    let table = lake.table(TABLE, &name());
    store.fail_probes(true);
    let error = table.resolve(&[NOW], NODE).await.expect_err("should be held back");
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    store.fail_probes(false);
    // Whoever asks at once is told the same: many tables ask together.
    table.resolve(&[NOW], NODE).await.expect_err("should be held back");
    tokio::time::sleep(std::time::Duration::from_millis(1_050)).await;
    assert_eq!(ten_rows(&table, 1).await.expect("should commit"), landed(1));
    assert_eq!(lake.problem(), None);
    // Never again, whatever the store does.
    store.fail_probes(true);
    assert_eq!(ten_rows(&table, 2).await.expect("should commit"), landed(2));
}
