//! Lakes by URL, and the probe.

use std::collections::BTreeMap;
use std::path::Path;

use super::support::*;
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
        ("gs://bucket/lake", "none of file, s3"),
        ("s3:///lake", "names no bucket"),
        ("file://host/lake", "not a path on this machine"),
    ] {
        let error = Lake::open(&with(url, &[]), Path::new("/nowhere")).expect_err("should be refused");
        assert_eq!(error.kind(), Kind::Settings);
        assert!(error.to_string().contains(reason), "{error}");
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
    let (lake, _) = Faulty::lake_over(std::sync::Arc::new(Careless::default()), []);
    let error = lake.probe().await.expect_err("should be found out");
    assert!(matches!(error, Error::NoConditionalPut { .. }), "{error}");
}
