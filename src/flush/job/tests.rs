//! Generations that hold rows of several schema versions.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::Int64Type;
use deltalake::datafusion::prelude::SessionContext;
use penstock_store::{Bucket, Define, SliceInput, TableId};

use super::*;
use crate::flush::kit::{Kit, on_demand};
use crate::flush::permits::Memory;
use crate::schema::payload::{ENCODING_IPC, encode};
use crate::schema::spec::Earlier;
use crate::schema::{ColumnSpec, ColumnType};

const HOUR: i64 = 3_600_000_000;

/// Gives the table one more column.
async fn extend(kit: &Kit, table: TableId, name: &str) {
    let mut spec = kit.registry.by_id(table).expect("should be known").spec.clone();
    spec.history.push(Earlier::of(u32::try_from(spec.columns.len()).expect("should fit")));
    spec.schema_version += 1;
    spec.columns.push(ColumnSpec { name: name.into(), kind: ColumnType::Long, nullable: true });
    let body = serde_json::to_vec(&spec).expect("should be JSON").into();
    let define = Define { table, schema_version: spec.schema_version, body };
    kit.store.define(define).expect("should be a definition").wait().await.expect("should define");
    kit.registry.advance(Table { id: table, spec }).expect("should be known");
}

/// Appends one row under a schema version: its number in every column.
async fn append(kit: &Kit, table: TableId, version: u32, hour: i64, number: i64) {
    let spec = kit.registry.by_id(table).expect("should be known").spec.at(version).expect("should be a version");
    let time: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![hour * HOUR + number]).with_timezone("UTC"));
    let numbers = spec.columns[1..].iter().map(|_| Arc::new(Int64Array::from(vec![number])) as ArrayRef);
    let columns = std::iter::once(time).chain(numbers).collect();
    let batch = RecordBatch::try_new(arrow_schema(&spec), columns).expect("should be a batch");
    let slice = SliceInput {
        table,
        schema_version: version,
        encoding: ENCODING_IPC,
        bucket: Bucket { start: hour * HOUR, width: HOUR },
        rows: 1,
        min_time: 0,
        max_time: 0,
        payload: encode(&batch).expect("should encode"),
    };
    kit.store.append(vec![slice]).expect("should be a record").wait().await.expect("should append");
}

async fn ask(kit: &Kit, table: TableId, sql: &str) -> Vec<i64> {
    let known = kit.registry.by_id(table).expect("should be known");
    let location = kit.lake.table(table, &known.spec.name).location();
    let delta = deltalake::open_table(location).await.expect("should open the table");
    let session = SessionContext::new();
    session.register_table("t", delta.table_provider().await.expect("should be a provider")).expect("should register");
    let rows = session.sql(sql).await.expect("should plan").collect().await.expect("should read");
    rows[0].columns().iter().map(|column| column.as_primitive::<Int64Type>().value(0)).collect()
}

async fn flush(kit: &Kit, table: TableId) -> Vec<(u32, usize)> {
    let context = kit.context(on_demand());
    let mut written = Vec::new();
    for sealed in kit.seal(table).await {
        let mut room = Memory::new(Arc::default()).take(1, 1 << 30).expect("should have room");
        let files = upload(&context, &sealed, &mut room).await.expect("should upload");
        written.push((files.schema_version, files.adds.len()));
        let seal = sealed.seal;
        let (incarnation, sequence) = (seal.incarnation, seal.sequence);
        let ready = Ready { incarnation, first_sequence: sequence, sequence, files, dead: None };
        commit(&context, table, &ready).await.expect("should commit");
        let version = kit.lake.table(table, &kit.registry.by_id(table).expect("should be known").spec.name).published();
        let commit =
            penstock_store::Commit { table, incarnation, sequence, version: version.expect("should be published") };
        kit.store.commit(commit).wait().await.expect("should record");
    }
    written
}

#[tokio::test(flavor = "multi_thread")]
async fn two_schema_versions_a_thousand_times_in_turn_are_one_file() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    extend(&kit, table, "later").await;
    for number in 0..1_000 {
        append(&kit, table, if number % 2 == 0 { 1 } else { 2 }, 1, number).await;
    }
    assert_eq!(flush(&kit, table).await, [(2, 1)], "one generation, one file");
    let sums = ask(&kit, table, "select count(*), sum(n), count(later), sum(later) from t").await;
    assert_eq!(sums, [1_000, 499_500, 500, 250_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_gets_a_column_with_the_first_rows_that_have_it() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    append(&kit, table, 1, 1, 1).await;
    extend(&kit, table, "later").await;
    assert_eq!(flush(&kit, table).await, [(1, 1)], "written as it was acknowledged");
    let entries = || std::fs::read_dir(kit.log_dir(table)).expect("should list").count();
    let log = |version: usize| {
        let path = kit.log_dir(table).join(format!("{version:020}.json"));
        std::fs::read_to_string(path).expect("should have the entry")
    };
    assert_eq!(entries(), 2);
    assert!(!log(1).contains("metaData"));

    append(&kit, table, 2, 1, 2).await;
    append(&kit, table, 1, 2, 3).await;
    // Over a restart: what was acknowledged under the first version is still read with it.
    let kit = kit.restart();
    assert_eq!(flush(&kit, table).await, [(2, 1), (1, 1)]);
    let log = |version: usize| {
        let path = kit.log_dir(table).join(format!("{version:020}.json"));
        std::fs::read_to_string(path).expect("should have the entry")
    };
    assert!(log(2).contains("metaData") && !log(3).contains("metaData"));
    assert_eq!(ask(&kit, table, "select count(*), sum(n), count(later), sum(later) from t").await, [3, 6, 1, 2]);
}
