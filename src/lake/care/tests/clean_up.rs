//! Clean-up: what goes, what stays readable, and what it costs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_store::Incarnation;
use serde_json::json;

use super::rig::*;
use crate::lake::care::{Care, LogCare};
use crate::lake::tests::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn transaction_ids_survive_checkpoints_and_clean_up() {
    let rig = Arc::new(Rig::default());
    rig.age(1_000);
    let early = Incarnation(1);
    {
        let table = rig.lake(10).table(TABLE, &name());
        commit_as(&table, early, 5..=5, &[some_file()]).await.expect("should commit");
        for sequence in 1..=40 {
            commit_one(&table, sequence).await;
        }
        let care = table.log_care();
        assert_eq!((care.checkpoint, &care.last_error), (Some(39), &None));
        assert!(care.removed > 0);
    }
    assert_eq!(rig.entries().await, [39, 40, 41], "all else is behind the checkpoint");
    let table = rig.lake(10).table(TABLE, &name());
    assert_eq!(table.resolve(&[NOW, early], NODE).await.expect("should resolve"), [Some(40), Some(5)]);
    assert_eq!(commit_as(&table, NOW, 40..=40, &[some_file()]).await.expect("should be adopted"), adopted(41));
    assert_eq!(commit_as(&table, early, 5..=5, &[some_file()]).await.expect("should be adopted"), adopted(41));
    assert_eq!(table.stats().await.expect("should open").files, 41);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_version_inside_the_retention_stays_readable() {
    let rig = Arc::new(Rig::default());
    let table = rig.lake(10).table(TABLE, &name());
    for sequence in 1..=34 {
        commit_one(&table, sequence).await;
    }
    // Version 24 was the newest when the retention began.
    rig.age(25);
    for name in ["crc", "00000000000000000003.compacted.json"] {
        rig.write(&format!("{:020}.{name}", 2), "of another writer".into()).await;
    }
    for sequence in 35..=40 {
        commit_one(&table, sequence).await;
    }
    let care = table.log_care();
    assert_eq!((care.checkpoint, care.last_error), (Some(39), None));
    let log = rig.log().await;
    assert_eq!(rig.entries().await, (19..=40).collect::<Vec<_>>());
    assert!(!log.contains(&checkpoint(9)) && log.contains(&checkpoint(19)), "{log:?}");
    assert!(!log.iter().any(|name| name.ends_with(".crc") || name.contains("compacted")), "{log:?}");

    let log_store = &table.parts.log_store;
    for version in 24..=40 {
        let state = deltalake::table::state::DeltaTableState::try_new(log_store.as_ref(), Some(version)).await;
        let state = state.unwrap_or_else(|error| panic!("version {version} should be readable: {error}"));
        assert_eq!((state.version(), state.log_data().num_files() as u64), (version, version));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_checkpoint_that_cannot_be_read_keeps_what_is_behind_it() {
    let rig = Arc::new(Rig::default());
    let table = rig.lake(10).table(TABLE, &name());
    for sequence in 1..=34 {
        commit_one(&table, sequence).await;
    }
    rig.age(25);
    rig.write(&checkpoint(19), "PAR1 of which nothing is left PAR1".into()).await;
    for sequence in 35..=40 {
        commit_one(&table, sequence).await;
    }
    let care = table.log_care();
    assert!(care.last_error.as_deref().is_some_and(|error| error.contains("at version 19")), "{care:?}");
    assert_eq!((care.checkpoint, care.removed), (Some(39), 0));
    assert_eq!(rig.entries().await, (0..=40).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_want_a_clean_up_gets_none() {
    let off_here = Arc::new(Rig::default());
    off_here.age(1_000);
    let table = off_here.lake_with(Care::new(10, false)).table(TABLE, &name());
    for sequence in 1..=25 {
        commit_one(&table, sequence).await;
    }
    assert_eq!(table.log_care(), LogCare { checkpoint: Some(19), removed: 0, last_error: None });
    assert_eq!(off_here.entries().await.len(), 26);

    let off_there = Arc::new(Rig::default());
    off_there.age(1_000);
    let table = off_there.lake(10).table(TABLE, &name());
    commit_one(&table, 1).await;
    let first = off_there.read(&format!("{:020}.json", 0)).await.expect("should have version 0");
    let mut metadata = actions(&first, "metaData").remove(0);
    metadata["configuration"] = json!({ "delta.enableExpiredLogCleanup": "false" });
    off_there.write(&format!("{:020}.json", 2), json!({ "metaData": metadata }).to_string().into()).await;
    for sequence in 2..=25 {
        commit_one(&table, sequence).await;
    }
    let care = table.log_care();
    assert_eq!((care.removed, care.last_error), (0, None));
    assert!(care.checkpoint >= Some(19));
    assert_eq!(off_there.entries().await.len(), 27);
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_one_thousand_costs_the_requests_of_commit_ten() {
    let rig = Arc::new(Rig::default());
    rig.age(100_000);
    let table = rig.lake(10).table(TABLE, &name());
    let requests = || rig.requests.load(Ordering::SeqCst);
    let lists = || rig.lists.load(Ordering::SeqCst);
    let mut windows = Vec::new();
    for hundred in 0..11 {
        let before = (requests(), lists());
        for sequence in hundred * 100 + 1..=hundred * 100 + 100 {
            commit_one(&table, sequence).await;
        }
        windows.push((requests() - before.0, lists() - before.1));
    }
    assert_eq!(table.log_care().last_error, None);
    let (first, last) = (windows[0], windows[10]);
    eprintln!("requests of a hundred commits with a checkpoint every ten, and the lists among them: {windows:?}");
    // The commit itself is one, and each is confirmed here by one more; the entry is read once for its checkpoint; the rest is
    // shared by the commits of a checkpoint.
    assert!(last.0 <= first.0 + first.0 / 5, "requests of a hundred commits: {windows:?}");
    assert!(last.0 <= 500, "requests of a hundred commits: {windows:?}");
    assert!(last.1 <= first.1, "lists of a hundred commits: {windows:?}");
    assert!(rig.entries().await.len() < 40, "the log should be short");

    // And so is what a start has to read.
    let before = requests();
    let next = rig.lake(0).table(TABLE, &name());
    assert_eq!(next.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(1_100)]);
    let opening = requests() - before;
    eprintln!("requests of an open behind 1,100 commits: {opening}");
    assert!(opening <= 60, "{opening} requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_small_and_old_is_listed_seldom() {
    // Nothing expires: the log grows, and a listing of it costs more and more.
    let rig = Arc::new(Rig::default());
    let table = rig.lake(10).table(TABLE, &name());
    for sequence in 1..=300 {
        commit_one(&table, sequence).await;
    }
    let listed = table.caretaker.state.lock().listed.expect("should have been listed");
    assert!(listed.files > 250, "{listed:?}");
    let before = rig.lists.load(Ordering::SeqCst);
    for sequence in 301..=320 {
        commit_one(&table, sequence).await;
    }
    // Each commit is confirmed by one. Opening the table for a checkpoint lists the names behind the last one, twice.
    let lists = rig.lists.load(Ordering::SeqCst) - before - 20;
    assert!(lists <= 5, "two checkpoints and at most one clean-up, not {lists} lists");
}
