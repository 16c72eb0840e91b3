//! Commits into a directory, read back by delta-rs; each sequence once.

use penstock_store::{Incarnation, TableId};

use super::support::*;
use crate::lake::{Error, Kind};

#[tokio::test(flavor = "multi_thread")]
async fn a_first_commit_creates_the_table_and_delta_rs_reads_it() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let lake = local(dir.path());
    let table = lake.table(TABLE, &name());
    assert_eq!(table.published(), None);
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [None]);

    assert_eq!(ten_rows(&table, 1).await.expect("should commit"), landed(1));
    assert_eq!(table.confirm().await.expect("should confirm"), Some(1));
    assert_eq!(ten_rows(&table, 2).await.expect("should commit"), landed(2));

    assert_eq!(rows_by_delta_rs(table.location()).await, 20);
    let log = dir.path().join("lake/metrics/cpu/_delta_log");
    let first = std::fs::read(log.join("00000000000000000000.json")).expect("should have version 0");
    let metadata = &actions(&first, "metaData")[0];
    assert_eq!(metadata["id"], TABLE.to_string());
    assert_eq!(metadata["partitionColumns"], serde_json::json!(["date"]));
    let second = std::fs::read(log.join("00000000000000000001.json")).expect("should have version 1");
    let txn = &actions(&second, "txn")[0];
    assert_eq!(txn, &serde_json::json!({ "appId": crate::lake::app_id(NODE, NOW), "version": 1 }));
    let info = &actions(&second, "commitInfo")[0];
    assert_eq!((&info["operation"], &info["isBlindAppend"]), (&"WRITE".into(), &true.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_is_committed_once_by_the_same_process_and_by_the_next() {
    let dir = tempfile::tempdir().expect("should have a directory");
    {
        let table = local(dir.path()).table(TABLE, &name());
        assert_eq!(ten_rows(&table, 5).await.expect("should commit"), landed(1));
        assert_eq!(ten_rows(&table, 5).await.expect("should be adopted"), adopted(1));
        assert_eq!(ten_rows(&table, 4).await.expect("should be adopted"), adopted(1));
    }
    let table = local(dir.path()).table(TABLE, &name());
    assert_eq!(ten_rows(&table, 5).await.expect("should be adopted"), adopted(1));
    assert_eq!(table.published(), Some(1));

    // Another incarnation counts from 1 again.
    let next = Incarnation(1);
    assert_eq!(table.resolve(&[NOW, next], NODE).await.expect("should resolve"), [Some(5), None]);
    let adds = write(&table, 20_001, 3).await;
    assert_eq!(commit_as(&table, next, 1..=1, &adds).await.expect("should commit"), landed(2));
    assert_eq!(table.resolve(&[NOW, next], NODE).await.expect("should resolve"), [Some(5), Some(1)]);
    assert_eq!(rows_by_delta_rs(table.location()).await, 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_in_the_table_by_half_is_refused() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let table = local(dir.path()).table(TABLE, &name());
    ten_rows(&table, 2).await.expect("should commit");

    let adds = write(&table, 20_000, 10).await;
    let error = commit_as(&table, NOW, 2..=4, &adds).await.expect_err("should be refused");
    assert!(matches!(error, Error::PartlyCommitted { committed: 2, first: 2, last: 4, .. }), "{error}");
    assert_eq!(error.kind(), Kind::Stale);

    assert_eq!(commit_as(&table, NOW, 3..=4, &adds).await.expect("should commit"), landed(2));
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(4)]);
    assert_eq!(rows_by_delta_rs(table.location()).await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_of_many_tasks_take_turns() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let table = local(dir.path()).table(TABLE, &name());
    let tasks: Vec<_> = (1..=8)
        .map(|incarnation| {
            let table = table.clone();
            tokio::spawn(async move {
                let adds = write(&table, 20_000, 10).await;
                commit_as(&table, Incarnation(incarnation), 1..=1, &adds).await.expect("should commit").version
            })
        })
        .collect();
    let mut versions = Vec::new();
    for task in tasks {
        versions.push(task.await.expect("should not panic"));
    }
    versions.sort_unstable();
    assert_eq!(versions, (1..=8).collect::<Vec<_>>());
    assert_eq!(rows_by_delta_rs(table.location()).await, 80);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_share_a_table() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let (one, two) = (local(dir.path()).table(TABLE, &name()), local(dir.path()).table(TABLE, &name()));
    for sequence in 1..=3 {
        ten_rows(&one, sequence).await.expect("should commit");
        let adds = write(&two, 20_000, 5).await;
        commit_as(&two, Incarnation(1), sequence..=sequence, &adds).await.expect("should commit");
    }
    assert_eq!(rows_by_delta_rs(one.location()).await, 45);
    assert_eq!(two.confirm().await.expect("should confirm"), Some(6));
}

/// Nodes do not know each other: each has its own id for the table, and the lake says which one it has.
#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_another_node_is_adopted_by_its_name() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let one = local(dir.path()).table(TABLE, &name());
    let two = local(dir.path()).table(TableId(uuid::Uuid::from_u128(43)), &name());
    for sequence in 1..=3 {
        ten_rows(&one, sequence).await.expect("should commit");
        let adds = write(&two, 20_000, 5).await;
        commit_as(&two, Incarnation(1), sequence..=sequence, &adds).await.expect("should adopt the table");
    }
    assert_eq!(two.snapshot(None).await.expect("should be ours").expect("should be there").version(), 6);
    assert_eq!(two.stats().await.expect("should read").rows, Some(45));

    let stranger =
        local(dir.path()).table(TableId(uuid::Uuid::from_u128(44)), &"metrics.cpu2".parse().expect("a name"));
    std::fs::rename(dir.path().join("lake/metrics/cpu"), dir.path().join("lake/metrics/cpu2")).expect("should move");
    let error = ten_rows(&stranger, 1).await.expect_err("should be another table");
    assert!(matches!(error, Error::NotOurs { .. }), "{error}");
}

#[tokio::test]
async fn a_table_that_another_node_creates_at_the_same_moment_is_adopted() {
    let (lake, store) = Faulty::lake([]);
    ten_rows(&lake.table(TABLE, &name()), 1).await.expect("should commit");
    let theirs = store.entry(0).await.expect("should have version 0");
    // Nothing is there when the second node looks, and the first one's table when it creates its own.
    let (lake, store) = Faulty::lake([Fault::Rival(String::from_utf8_lossy(&theirs).into_owned())]);
    let table = lake.table(TableId(uuid::Uuid::from_u128(43)), &name());
    assert_eq!(ten_rows(&table, 1).await.expect("should adopt the table"), landed(1));
    assert_eq!(store.entry(0).await, Some(theirs));

    // From now on no other one: its versions would say nothing of ours.
    let again = String::from_utf8_lossy(&store.entry(0).await.expect("should have version 0"))
        .replace(&TABLE.to_string(), "00000000-0000-0000-0000-00000000002c");
    store.put_entry(2, &again).await;
    let error = ten_rows(&table, 2).await.expect_err("should be another table");
    assert!(matches!(error, Error::NotOurs { .. }), "{error}");
    let error = ten_rows(&table, 2).await.expect_err("should stay another table");
    assert!(matches!(error, Error::NotOurs { .. }), "{error}");
}
