//! What it costs to know that commits are in the table, and that nothing counts before.

use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use penstock_store::Incarnation;

use super::support::*;
use crate::lake::{Kind, LakeTable};

/// How many PUTs, GETs and LISTs the call takes.
async fn cost<T>(store: &Faulty, call: impl Future<Output = T>) -> (T, [usize; 3]) {
    let before = store.calls();
    let done = call.await;
    let after = store.calls();
    (done, [0, 1, 2].map(|i| after[i] - before[i]))
}

async fn known() -> (Arc<LakeTable>, Arc<Faulty>) {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    assert_eq!(table.confirm().await.expect("should confirm"), Some(1));
    (table, store)
}

#[tokio::test]
async fn many_commits_are_confirmed_by_one_list() {
    let (table, store) = known().await;
    let adds = write(&table, 20_000, 10).await;
    let commits = async {
        for sequence in 2..=50 {
            commit_as(&table, NOW, sequence..=sequence, &adds).await.expect("should commit");
        }
    };
    assert_eq!(cost(&store, commits).await.1, [49, 0, 0]);
    assert_eq!(table.published(), Some(1), "nothing counts before it is confirmed");
    let (confirmed, calls) = cost(&store, table.confirm()).await;
    assert_eq!((confirmed.expect("should confirm"), calls), (Some(50), [0, 0, 1]));
    let (confirmed, calls) = cost(&store, table.confirm()).await;
    assert_eq!((confirmed.expect("should know"), calls), (Some(50), [0, 0, 0]));
    let (resolved, calls) = cost(&store, table.resolve(&[NOW], NODE)).await;
    assert_eq!((resolved.expect("should know"), calls), (vec![Some(50)], [0, 0, 0]));
}

#[tokio::test]
async fn a_generation_is_two_puts_and_its_share_of_a_look() {
    let (table, store) = known().await;
    let generations = async {
        for sequence in 2..=9 {
            ten_rows(&table, sequence).await.expect("should commit");
        }
        table.confirm().await.expect("should confirm");
    };
    assert_eq!(cost(&store, generations).await.1, [16, 0, 1]);
}

#[tokio::test]
async fn who_asks_the_table_hears_of_confirmed_commits_only() {
    let (table, store) = known().await;
    ten_rows(&table, 2).await.expect("should commit");
    let (resolved, calls) = cost(&store, table.resolve(&[NOW], NODE)).await;
    assert_eq!((resolved.expect("should resolve"), calls), (vec![Some(2)], [0, 0, 1]));
    assert_eq!(table.published(), Some(2));
}

#[tokio::test]
async fn other_writers_entries_in_between_are_part_of_the_log() {
    let objects = Arc::new(InMemory::new());
    let (ours, store) = Faulty::lake_over(objects.clone(), []);
    let (theirs, _) = Faulty::lake_over(objects, []);
    let (ours, theirs) = (ours.table(TABLE, &name()), theirs.table(TABLE, &name()));
    for sequence in 1..=5 {
        ten_rows(&ours, sequence).await.expect("should commit");
        let adds = write(&theirs, 20_000, 1).await;
        commit_as(&theirs, Incarnation(9), sequence..=sequence, &adds).await.expect("should commit");
    }
    let (confirmed, calls) = cost(&store, ours.confirm()).await;
    assert_eq!((confirmed.expect("should confirm"), calls), (Some(9), [0, 0, 1]));
    assert_eq!(theirs.confirm().await.expect("should confirm"), Some(10));
    let snapshot = ours.snapshot(None).await.expect("should read").expect("should be there");
    assert_eq!(snapshot.rows(), Some(55));
}

#[tokio::test]
async fn a_look_that_fails_says_nothing_and_is_repeated() {
    let (table, store) = known().await;
    ten_rows(&table, 2).await.expect("should commit");
    store.fail_lists(1);
    let error = table.confirm().await.expect_err("should fail");
    assert_eq!((error.kind(), table.published()), (Kind::Unavailable, Some(1)), "{error}");
    ten_rows(&table, 3).await.expect("should go on");
    let (confirmed, calls) = cost(&store, table.confirm()).await;
    assert_eq!((confirmed.expect("should confirm"), calls), (Some(3), [0, 0, 1]));
}

#[tokio::test]
async fn a_head_that_was_not_seen_for_long_is_looked_at_before_the_next_put() {
    let (mut lake, store) = Faulty::lake([]);
    lake.head_ttl = Duration::ZERO;
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let adds = write(&table, 20_000, 10).await;
    let (done, calls) = cost(&store, commit_as(&table, NOW, 2..=2, &adds)).await;
    assert_eq!((done.expect("should commit"), calls), (landed(2), [1, 0, 1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_lake_is_confirmed_by_name() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let table = local(dir.path()).table(TABLE, &name());
    assert!(table.is_local());
    for sequence in 1..=3 {
        ten_rows(&table, sequence).await.expect("should commit");
        assert_eq!(table.published(), Some(sequence - 1));
        assert_eq!(table.confirm().await.expect("should confirm"), Some(sequence));
    }
    let log = dir.path().join("lake/metrics/cpu/_delta_log");
    ten_rows(&table, 4).await.expect("should commit");
    // The same bytes, but another file.
    let entry = log.join("00000000000000000003.json");
    let bytes = std::fs::read(&entry).expect("should read");
    std::fs::write(entry.with_extension("new"), bytes).expect("should write");
    std::fs::rename(entry.with_extension("new"), &entry).expect("should rename");
    assert_eq!(table.confirm().await.expect_err("should notice").kind(), Kind::Stale);
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(4)]);
}
