//! First contact reads what commits need and no file list, whatever shape the log has; it agrees with delta-rs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use penstock_store::Incarnation;

use super::support::*;
use crate::lake::{Error, Kind, LakeTable, app_id};

fn add(number: u32) -> String {
    let stats =
        r#"{\"numRecords\":1,\"minValues\":{\"load\":0.5},\"maxValues\":{\"load\":0.5},\"nullCount\":{\"load\":0}}"#;
    format!(
        r#"{{"add":{{"path":"date=2024-10-04/{number:032}.parquet","partitionValues":{{"date":"2024-10-04"}},"size":1000,"modificationTime":0,"dataChange":true,"stats":"{stats}"}}}}"#
    )
}

/// A table of ours with two commits and then so many files, all of it in a checkpoint only.
async fn table_of(files: u32) -> (Arc<LakeTable>, Arc<Faulty>) {
    let objects = Arc::new(InMemory::new());
    let (lake, store) = Faulty::lake_over(objects.clone(), []);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let adds = write(&table, 20_000, 1).await;
    commit_as(&table, Incarnation(9), 7..=7, &adds).await.expect("should commit");
    store.put_entry(3, &(0..files).map(add).collect::<Vec<_>>().join("\n")).await;
    delta_rs_checkpoint(&table).await;
    store.remove_entries(0..3).await;
    let (lake, store) = Faulty::lake_over(objects, []);
    (lake.table(TABLE, &name()), store)
}

#[tokio::test]
async fn it_does_not_depend_on_the_number_of_files() {
    let mut costs = Vec::new();
    for files in [10, 20_000] {
        let (table, store) = table_of(files).await;
        let resolved = table.resolve(&[NOW, Incarnation(9), Incarnation(1)], NODE).await.expect("should resolve");
        assert_eq!(resolved, [Some(1), Some(7), None]);
        costs.push((store.calls(), store.bytes.load(Ordering::SeqCst)));
        assert_eq!(table.published(), Some(3));
    }
    let [(few, few_bytes), (many, many_bytes)] = costs[..] else { panic!("two costs") };
    assert_eq!(few, many, "as many calls");
    assert_eq!(many[2], 1, "one LIST");
    assert!(many[1] <= 6, "{many:?}");
    assert!(many_bytes < few_bytes * 2, "{few_bytes} and {many_bytes} bytes");
}

#[tokio::test]
async fn a_log_without_a_checkpoint_is_one_list_and_its_entries() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    for sequence in 1..=20 {
        ten_rows(&table, sequence).await.expect("should commit");
    }
    let (again, counted) = Faulty::lake_over(store, []);
    assert_eq!(again.table(TABLE, &name()).resolve(&[NOW], NODE).await.expect("should resolve"), [Some(20)]);
    // And the hint that is not there.
    assert_eq!(counted.calls(), [0, 22, 1]);
}

#[tokio::test]
async fn a_checkpoint_that_the_hint_does_not_know_and_a_hint_of_one_that_is_gone() {
    for hint in [None, Some(r#"{"version":2,"size":3}"#), Some(r#"{"version":90,"size":3}"#), Some("damaged")] {
        let (table, store) = table_of(10).await;
        let path = object_store::path::Path::from("lake/metrics/cpu/_delta_log/_last_checkpoint");
        match hint {
            Some(text) => drop(store.put(&path, text.into()).await.expect("should put")),
            None => store.delete(&path).await.expect("should remove"),
        }
        assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(1)], "{hint:?}");
    }
}

#[tokio::test]
async fn a_checkpoint_in_parts_counts_once_all_are_there() {
    let (table, store) = table_of(10).await;
    let log = "lake/metrics/cpu/_delta_log";
    let whole = object_store::path::Path::from(format!("{log}/00000000000000000003.checkpoint.parquet"));
    let part = |number: u32| {
        object_store::path::Path::from(format!("{log}/00000000000000000003.checkpoint.{number:010}.0000000002.parquet"))
    };
    store.rename(&whole, &part(1)).await.expect("should rename");
    let error = table.resolve(&[NOW], NODE).await.expect_err("should miss version 0");
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    store.copy(&part(1), &part(2)).await.expect("should copy");
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(1)]);
}

#[tokio::test]
async fn a_damaged_checkpoint_is_said_to_be_one() {
    let (table, store) = table_of(10).await;
    let path = object_store::path::Path::from("lake/metrics/cpu/_delta_log/00000000000000000003.checkpoint.parquet");
    store.put(&path, "PAR1 and nothing of use".into()).await.expect("should put");
    let error = table.resolve(&[NOW], NODE).await.expect_err("should not be read");
    assert!(matches!(&error, Error::Corrupt { location, .. } if location.contains("checkpoint")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_ids_of_the_node_are_found() {
    let (table, _) = table_of(10).await;
    assert_eq!(table.standings(NODE).await, [], "nothing is known before first contact");
    table.resolve(&[], NODE).await.expect("should resolve");
    let mut standings = table.standings(NODE).await;
    standings.sort();
    assert_eq!(standings, [(app_id(NODE, Incarnation(9)), 7), (app_id(NODE, NOW), 1)]);
    assert_eq!(table.standings(penstock_store::NodeId(uuid::Uuid::from_u128(8))).await, []);
}

/// A checkpoint of the second kind: a name of its own, lines of JSON, its files elsewhere.
#[tokio::test]
async fn a_checkpoint_of_lines_is_read_as_well() {
    let (table, store) = table_of(10).await;
    let log = "lake/metrics/cpu/_delta_log";
    let first = store.entry(3).await.expect("should be there");
    let metadata = format!(
        r#"{{"metaData":{{"id":"{TABLE}","schemaString":"{{\"type\":\"struct\",\"fields\":[]}}","partitionColumns":[]}}}}"#
    );
    let lines = [
        r#"{"checkpointMetadata":{"version":3}}"#.to_owned(),
        r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["v2Checkpoint"],"writerFeatures":["v2Checkpoint"]}}"#.to_owned(),
        metadata,
        format!(r#"{{"txn":{{"appId":"{}","version":8}}}}"#, app_id(NODE, NOW)),
        r#"{"sidecar":{"path":"x.parquet","sizeInBytes":1,"modificationTime":0}}"#.to_owned(),
    ];
    store.drop_table().await;
    let path = format!("{log}/00000000000000000003.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json");
    store.put(&path.into(), lines.join("\n").into()).await.expect("should put");
    store.put_entry(3, &String::from_utf8_lossy(&first)).await;
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(8)]);
    assert_eq!(table.published(), Some(3));
}
