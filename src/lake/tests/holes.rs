//! PUTs that succeed into a hole, because somebody cleaned the log, or dropped the table, or made it anew. No row counts as
//! committed for such an entry, it does not stay where it could do harm, and the table goes on or says why it cannot.

use std::sync::Arc;

use object_store::memory::InMemory;
use penstock_store::Incarnation;
use serde_json::json;

use super::support::*;
use crate::lake::{Error, Kind, LakeTable, app_id};

const THEIRS: Incarnation = Incarnation(9);

/// A table of ours with `commits` commits of ten rows, confirmed.
async fn ours(commits: u64) -> (Arc<LakeTable>, Arc<Faulty>, Arc<InMemory>) {
    let objects = Arc::new(InMemory::new());
    let (lake, store) = Faulty::lake_over(objects.clone(), []);
    let table = lake.table(TABLE, &name());
    for sequence in 1..=commits {
        ten_rows(&table, sequence).await.expect("should commit");
    }
    table.confirm().await.expect("should confirm");
    (table, store, objects)
}

/// Another node's handle on the same objects.
fn another_node(objects: &Arc<InMemory>) -> Arc<LakeTable> {
    Faulty::lake_over(objects.clone(), []).0.table(TABLE, &name())
}

pub async fn append_as_another(table: &LakeTable, sequences: std::ops::RangeInclusive<u64>) {
    for sequence in sequences {
        let adds = write(table, 20_000, 1).await;
        commit_as(table, THEIRS, sequence..=sequence, &adds).await.expect("should commit");
    }
}

async fn rows(table: &LakeTable) -> Option<u64> {
    table.snapshot(None).await.expect("should read").and_then(|snapshot| snapshot.rows())
}

async fn changed(table: &LakeTable) -> String {
    let error = table.confirm().await.expect_err("should not be confirmed");
    assert!(matches!(error, Error::Changed { .. }) && error.kind() == Kind::Stale, "{error}");
    error.to_string()
}

#[tokio::test]
async fn into_a_log_that_was_cleaned_behind_a_checkpoint() {
    let (table, store, objects) = ours(1).await;
    let theirs = another_node(&objects);
    append_as_another(&theirs, 1..=10).await;
    delta_rs_checkpoint(&theirs).await;
    store.remove_entries(0..=10).await;

    assert_eq!(ten_rows(&table, 2).await.expect("should land"), landed(2), "the key is free");
    assert_eq!(table.published(), Some(1));
    changed(&table).await;
    assert_eq!(store.versions().await, [11], "the entry in the hole should be gone");
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(1)]);
    assert_eq!(ten_rows(&table, 2).await.expect("should commit"), landed(12));
    assert_eq!(table.confirm().await.expect("should confirm"), Some(12));
    assert_eq!(rows(&table).await, Some(10 + 10 + 10));
}

#[tokio::test]
async fn the_anchor_alone_is_cleaned_away_and_the_commit_is_where_it_belongs() {
    let (table, store, objects) = ours(3).await;
    let theirs = another_node(&objects);
    assert_eq!(ten_rows(&table, 4).await.expect("should commit"), landed(4));
    append_as_another(&theirs, 1..=1).await;
    delta_rs_checkpoint(&theirs).await;
    store.remove_entries(0..=4).await;
    changed(&table).await;
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(4)]);
    assert_eq!(table.published(), Some(5));
    assert_eq!(rows(&table).await, Some(41));
}

#[tokio::test]
async fn where_a_table_was_and_nothing_is() {
    let (table, store, _) = ours(3).await;
    store.drop_table().await;
    assert_eq!(ten_rows(&table, 4).await.expect("should land"), landed(4));
    assert!(changed(&table).await.contains("the table is gone"));
    assert_eq!((store.versions().await, table.published()), (vec![], None));
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [None]);
    assert!(table.snapshot(table.published()).await.expect("should look").is_none());
    assert_eq!(ten_rows(&table, 4).await.expect("should make it anew"), landed(1));
    assert_eq!(table.confirm().await.expect("should confirm"), Some(1));
    assert_eq!(rows(&table).await, Some(10));
}

/// The files were uploaded before the table was dropped, and are gone with it: the next commit MUST NOT refer to them.
#[tokio::test]
async fn a_table_that_is_gone_before_the_commit_makes_uploads_void() {
    let (mut lake, store) = Faulty::lake([]);
    lake.head_ttl = std::time::Duration::ZERO;
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let adds = write(&table, 20_000, 10).await;
    store.drop_table().await;
    let error = commit_as(&table, NOW, 2..=2, &adds).await.expect_err("should not be committed");
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert_eq!(store.versions().await, Vec::<u64>::new());
}

/// Another node has the same table in its catalog and makes it anew.
#[tokio::test]
async fn a_table_made_anew_with_fewer_as_many_and_more_versions() {
    for theirs in [1, 2, 3, 6] {
        let (table, store, objects) = ours(3).await;
        store.drop_table().await;
        // Version 0, and one for each.
        append_as_another(&another_node(&objects), 1..=theirs).await;
        let adds = write(&table, 20_000, 10).await;
        let done = commit_as(&table, NOW, 4..=4, &adds).await.expect("should land");
        assert_eq!(done, landed(theirs.max(3) + 1));
        changed(&table).await;
        let [held] = table.resolve(&[NOW], NODE).await.expect("should resolve")[..] else { panic!("one answer") };
        if theirs < 3 {
            // Behind a gap it was in nobody's table.
            assert_eq!((held, store.versions().await), (None, (0..=theirs).collect::<Vec<_>>()));
            ten_rows(&table, 4).await.expect("should commit");
        } else {
            // It went into the new table, as a part of it.
            assert_eq!(held, Some(4));
        }
        assert_eq!(
            table.confirm().await.expect("should confirm"),
            Some(if theirs < 3 { theirs + 1 } else { done.version })
        );
        assert_eq!(rows(&table).await, Some(theirs + 10), "{theirs} versions");
        assert_eq!(store.entries_with(&app_id(NODE, NOW), 4).await, 1);
    }
}

/// Somebody else's table, under our name.
pub fn their_version(version: u64) -> String {
    if version > 0 {
        return r#"{"commitInfo":{"operation":"WRITE"}}"#.to_owned();
    }
    let fields = json!([{ "name": "x", "type": "long", "nullable": true, "metadata": {} }]);
    let metadata = json!({
        "id": "1de1c4a0-5e5a-4c3e-9f63-2e8e1bb0a111",
        "format": { "provider": "parquet", "options": {} },
        "schemaString": json!({ "type": "struct", "fields": fields }).to_string(),
        "partitionColumns": [],
        "configuration": {},
    });
    let protocol = json!({ "minReaderVersion": 1, "minWriterVersion": 2 });
    format!("{}\n{}", json!({ "protocol": protocol }), json!({ "metaData": metadata }))
}

#[tokio::test]
async fn another_table_in_our_place_stalls_by_name_and_is_left_readable() {
    for theirs in [1, 3, 8] {
        let (table, store, _) = ours(3).await;
        store.drop_table().await;
        for version in 0..=theirs {
            store.put_entry(version, &their_version(version)).await;
        }
        ten_rows(&table, 4).await.expect("should land");
        for _ in 0..2 {
            let error = table.confirm().await.expect_err("should be refused");
            assert!(matches!(error, Error::NotOurs { .. }) && error.kind() == Kind::Refused, "{error}");
            table.resolve(&[NOW], NODE).await.expect_err("should be refused");
            ten_rows(&table, 4).await.expect_err("should be refused");
        }
        let gap = theirs < 3;
        let left = if gap { theirs } else { theirs.max(3) + 1 };
        assert_eq!(store.versions().await, (0..=left).collect::<Vec<_>>(), "no gap should be left");

        // Somebody moves it away: the table begins anew, and what was never released goes in.
        store.drop_table().await;
        let error = table.resolve(&[NOW], NODE).await.expect_err("should tell once that uploads are void");
        assert!(matches!(error, Error::Changed { .. }), "{error}");
        assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [None]);
        assert_eq!(ten_rows(&table, 4).await.expect("should commit"), landed(1));
        assert_eq!(table.confirm().await.expect("should confirm"), Some(1));
    }
}

#[tokio::test]
async fn an_entry_in_a_hole_is_removed_by_the_next_start() {
    let (table, store, objects) = ours(3).await;
    store.drop_table().await;
    append_as_another(&another_node(&objects), 1..=1).await;
    ten_rows(&table, 4).await.expect("should land");
    drop(table);
    assert_eq!(store.versions().await, [0, 1, 4]);

    // Killed before it was confirmed.
    let (lake, _) = Faulty::lake_over(objects, []);
    lake.identify(NODE, Incarnation(77));
    let table = lake.table(TABLE, &name());
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [None]);
    assert_eq!(store.versions().await, [0, 1]);
}

#[tokio::test]
async fn a_gap_that_somebody_else_left_stalls_the_table() {
    let (_, store, objects) = ours(3).await;
    store.remove_entries([2]).await;
    let (lake, _) = Faulty::lake_over(objects, []);
    lake.identify(penstock_store::NodeId(uuid::Uuid::from_u128(8)), Incarnation(77));
    let error = lake.table(TABLE, &name()).resolve(&[NOW], NODE).await.expect_err("should not be believed");
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("version 2 is missing, though version 3 is there"), "{error}");
    assert_eq!(store.versions().await, [0, 1, 3], "nothing of another's is removed");
}

/// The table is set back to an older version, by a restore of the bucket: queries go on with what is there.
#[tokio::test]
async fn a_query_behind_a_log_that_was_set_back_reads_what_is_there() {
    let (table, store, _) = ours(3).await;
    store.remove_entries([2, 3]).await;
    let snapshot = table.snapshot(table.published()).await.expect("should read").expect("should be there");
    assert_eq!((snapshot.version(), snapshot.rows(), table.published()), (1, Some(10), Some(1)));
    assert_eq!(ten_rows(&table, 4).await.expect("should land"), landed(4));
    changed(&table).await;
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(1)]);
    ten_rows(&table, 4).await.expect("should commit");
    assert_eq!((table.confirm().await.expect("should confirm"), rows(&table).await), (Some(2), Some(20)));
}

#[tokio::test]
async fn a_commit_whose_outcome_is_open_when_the_table_is_replaced() {
    let (table, store, objects) = ours(3).await;
    store.drop_table().await;
    append_as_another(&another_node(&objects), 1..=1).await;
    let adds = write(&table, 20_000, 10).await;
    store.then(Fault::LoseAnswer);
    store.fail_reads(4);
    let error = commit_as(&table, NOW, 4..=4, &adds).await.expect_err("should stay open");
    assert!(matches!(error, Error::Unsettled { .. }), "{error}");
    assert_eq!(store.versions().await, [0, 1, 4]);
    // Only its bytes say that it is ours.
    changed(&table).await;
    assert_eq!(store.versions().await, [0, 1]);
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [None]);
}

#[tokio::test]
async fn queries_read_what_is_before_a_gap_as_long_as_it_is_there() {
    let (table, store, objects) = ours(3).await;
    store.drop_table().await;
    append_as_another(&another_node(&objects), 1..=2).await;
    ten_rows(&table, 4).await.expect("should land");
    assert_eq!(store.versions().await, [0, 1, 2, 4]);
    let reader = another_node(&objects);
    assert_eq!(rows(&reader).await, Some(2));
    changed(&table).await;
    assert_eq!(rows(&reader).await, Some(2));
    assert_eq!(rows(&table).await, Some(2));
}

/// Uploaded, dropped, made anew by another node with as many versions, committed: the commit is a part of the new table, and its
/// file is gone.
#[tokio::test]
async fn a_commit_whose_file_went_with_the_old_table_is_taken_back() {
    let (table, store, objects) = ours(3).await;
    let adds = write(&table, 20_000, 10).await;
    store.drop_table().await;
    let theirs = another_node(&objects);
    append_as_another(&theirs, 1..=4).await;
    assert_eq!(commit_as(&table, NOW, 4..=4, &adds).await.expect("should land"), landed(5));
    assert_eq!(
        ten_rows(&table, 5).await.expect("should land"),
        landed(6),
        "one whose file is there, but behind the other"
    );
    append_as_another(&theirs, 5..=5).await;
    changed(&table).await;
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(3)], "where it stood");
    assert_eq!((table.published(), rows(&table).await), (Some(8), Some(5)));
    for sequence in 4..=5 {
        ten_rows(&table, sequence).await.expect("should commit");
    }
    assert_eq!(table.confirm().await.expect("should confirm"), Some(10));
    assert_eq!(rows(&table).await, Some(5 + 20));
    let again = another_node(&objects);
    assert_eq!(again.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(5)]);
}

/// Version 0 is free as well where somebody made the table, and cleaned its log, since we looked.
#[tokio::test]
async fn version_zero_of_a_table_that_was_made_and_cleaned_meanwhile() {
    let objects = Arc::new(InMemory::new());
    let (lake, store) = Faulty::lake_over(objects.clone(), []);
    let table = lake.table(TABLE, &name());
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [None]);
    let theirs = another_node(&objects);
    append_as_another(&theirs, 1..=3).await;
    delta_rs_checkpoint(&theirs).await;
    store.remove_entries(0..3).await;
    assert_eq!(ten_rows(&table, 1).await.expect("should commit"), landed(4));
    assert_eq!(store.versions().await, [3, 4], "ours should not stay below the checkpoint");
    assert_eq!(table.confirm().await.expect("should confirm"), Some(4));
    assert_eq!(rows(&table).await, Some(13));
}
