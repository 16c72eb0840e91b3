//! Snapshots: advanced behind commits, ours and others', and right about which sequences they hold.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use deltalake::delta_datafusion::DeltaScanNext;
use object_store::memory::InMemory;
use penstock_store::Incarnation;

use super::support::*;
use crate::lake::{Error, Snapshot, Stats};

async fn at(table: &crate::lake::LakeTable, at_least: Option<u64>) -> Arc<Snapshot> {
    table.snapshot(at_least).await.expect("should load").expect("should be a table")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_follows_the_commits_and_an_older_one_stays_as_it_is() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let table = local(dir.path()).table(TABLE, &name());
    assert!(table.snapshot(None).await.expect("should look").is_none());
    assert_eq!(table.stats().await.expect("should look"), Stats { version: None, files: 0, rows: Some(0) });

    ten_rows(&table, 1).await.expect("should commit");
    table.confirm().await.expect("should confirm");
    let first = at(&table, table.published()).await;
    assert_eq!((first.version(), first.files(), first.rows()), (1, 1, Some(10)));
    assert_eq!(first.committed(NODE, NOW).await.expect("should read"), Some(1));
    assert_eq!(first.committed(NODE, Incarnation(1)).await.expect("should read"), None);

    ten_rows(&table, 7).await.expect("should commit");
    table.confirm().await.expect("should confirm");
    let second = at(&table, table.published()).await;
    assert_eq!((second.version(), second.rows()), (2, Some(20)));
    assert_eq!(second.committed(NODE, NOW).await.expect("should read"), Some(7));
    assert_eq!(first.committed(NODE, NOW).await.expect("should read"), Some(1));
    assert_eq!(table.stats().await.expect("should look"), Stats { version: Some(2), files: 2, rows: Some(20) });

    let session = Arc::new(deltalake::datafusion::prelude::SessionContext::new().state());
    let scan = DeltaScanNext::builder()
        .with_log_store(Arc::clone(second.log_store()))
        .with_eager_snapshot(Arc::clone(second.eager()))
        .with_session(session);
    assert_eq!(count(scan.await.expect("should build")).await, 20);
}

#[tokio::test]
async fn a_kept_snapshot_costs_no_call_and_sequences_are_carried_on() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let first = at(&table, Some(1)).await;
    assert_eq!(first.committed(NODE, NOW).await.expect("should read"), Some(1));

    let gets = store.gets.load(Ordering::SeqCst);
    assert!(Arc::ptr_eq(&first, &at(&table, Some(1)).await));
    assert_eq!(store.gets.load(Ordering::SeqCst), gets);

    ten_rows(&table, 2).await.expect("should commit");
    let second = at(&table, Some(2)).await;
    let gets = store.gets.load(Ordering::SeqCst);
    assert_eq!(second.committed(NODE, NOW).await.expect("should know"), Some(2));
    assert_eq!(store.gets.load(Ordering::SeqCst), gets, "what our own commits say need not be read");
}

#[tokio::test]
async fn what_others_commit_is_seen_when_asked_for() {
    let objects = Arc::new(InMemory::new());
    let (ours, _) = Faulty::lake_over(objects.clone(), []);
    let (theirs, _) = Faulty::lake_over(objects, []);
    let (ours, theirs) = (ours.table(TABLE, &name()), theirs.table(TABLE, &name()));
    ten_rows(&ours, 1).await.expect("should commit");
    ours.confirm().await.expect("should confirm");
    assert_eq!(at(&ours, Some(1)).await.committed(NODE, Incarnation(9)).await.expect("should read"), None);

    let adds = write(&theirs, 20_000, 10).await;
    commit_as(&theirs, Incarnation(9), 1..=3, &adds).await.expect("should commit");
    assert_eq!(at(&ours, ours.published()).await.rows(), Some(10));
    let newest = at(&ours, None).await;
    assert_eq!(newest.rows(), Some(20));
    assert_eq!(newest.committed(NODE, Incarnation(9)).await.expect("should read"), Some(3));
    assert_eq!(newest.committed(NODE, NOW).await.expect("should read"), Some(1));
}

#[tokio::test]
async fn a_log_that_ends_before_what_it_held_is_an_error() {
    let (lake, _) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let error = table.snapshot(Some(2)).await.expect_err("should not be there");
    assert!(matches!(error, Error::LogEnds { reached: Some(1), wanted: 2, .. }), "{error}");
}

#[tokio::test]
async fn another_table_at_our_place_is_not_read() {
    let (lake, store) = Faulty::lake([]);
    ten_rows(&lake.table(TABLE, &name()), 1).await.expect("should commit");
    let other = penstock_store::TableId(uuid::Uuid::from_u128(43));
    // With the same name it would be another node's: the same table.
    let first = String::from_utf8_lossy(&store.entry(0).await.expect("should have version 0"))
        .replace("\"name\":\"metrics.cpu\"", "\"name\":\"metrics.memory\"");
    store.put_entry(0, &first).await;
    let (lake, _) = Faulty::lake_over(store, []);
    let error = lake.table(other, &name()).snapshot(None).await.expect_err("should be refused");
    assert!(matches!(error, Error::NotOurs { expected, .. } if expected == other), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_snapshot_outlives_the_entries_it_was_made_of() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let (ours, theirs) = (local(dir.path()).table(TABLE, &name()), local(dir.path()).table(TABLE, &name()));
    ten_rows(&ours, 1).await.expect("should commit");
    assert_eq!(at(&ours, Some(1)).await.rows(), Some(10));
    for sequence in 2..=5 {
        ten_rows(&theirs, sequence).await.expect("should commit");
    }
    let table = deltalake::open_table(theirs.location()).await.expect("should open");
    deltalake::checkpoints::create_checkpoint(&table, None).await.expect("should write a checkpoint");
    for version in 0..5 {
        let entry = format!("lake/metrics/cpu/_delta_log/{version:020}.json");
        std::fs::remove_file(dir.path().join(entry)).expect("should remove");
    }
    let newest = at(&ours, None).await;
    assert_eq!((newest.version(), newest.rows()), (5, Some(50)));
    assert_eq!(newest.committed(NODE, NOW).await.expect("should read"), Some(5));
    let restarted = local(dir.path()).table(TABLE, &name());
    assert_eq!(restarted.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(5)]);
}
