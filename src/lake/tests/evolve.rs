//! A table gets the columns that it lacks in the commit of the first rows that have them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use deltalake::datafusion::prelude::SessionContext;
use penstock_store::{Bucket, Incarnation};
use serde_json::{Value, json};

use super::support::*;
use crate::lake::{Commit, Committed, Error, FileSettings, Kind, LakeTable};
use crate::schema::arrow::{arrow_schema, with_partition};
use crate::schema::spec::Earlier;
use crate::schema::{ColumnType, TableSpec};

/// The table of the other tests with one more column.
fn second() -> TableSpec {
    let mut spec = spec();
    spec.history = vec![Earlier::of(3)];
    spec.schema_version = 2;
    spec.columns.push(column("cores", ColumnType::Long, true));
    spec
}

/// Ten rows with that column, of the given day.
async fn write_second(table: &LakeTable, day: i64) -> Vec<deltalake::kernel::Add> {
    let spec = second();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from_iter_values((0..10).map(|i| day * DAY + i)).with_timezone("UTC")),
        Arc::new(StringArray::from_iter_values((0..10).map(|i| format!("host-{i}")))),
        Arc::new(Float64Array::from_iter_values((0..10).map(f64::from))),
        Arc::new(Int64Array::from_iter_values(1..=10)),
    ];
    let batch = RecordBatch::try_new(arrow_schema(&spec), columns).expect("should be a batch");
    let batch = with_partition(&spec, &batch, Bucket { start: day * DAY, width: 3_600_000_000 });
    table.write_data(&spec, vec![batch], &FileSettings::default()).await.expect("should write").adds
}

async fn commit_second(table: &LakeTable, sequence: u64) -> Result<Committed, Error> {
    let adds = write_second(table, 20_001).await;
    let (spec, first_sequence) = (second(), sequence);
    table.commit(Commit { node: NODE, incarnation: NOW, first_sequence, sequence, spec: &spec, adds: &adds }).await
}

fn metadata_of(entry: &[u8]) -> Option<Value> {
    actions(entry, "metaData").pop()
}

fn columns_of(metadata: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(metadata["schemaString"].as_str().expect("should be text")).expect("JSON");
    let fields = schema["fields"].as_array().expect("should have fields");
    fields.iter().map(|field| field["name"].as_str().expect("should have a name").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_rows_with_a_column_bring_it_also_on_a_partitioned_table() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let table = local(dir.path()).table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    assert_eq!(commit_second(&table, 2).await.expect("should commit"), landed(2));
    assert_eq!(commit_second(&table, 3).await.expect("should commit"), landed(3));
    // A generation that was written before the column came.
    assert_eq!(ten_rows(&table, 4).await.expect("should commit"), landed(4));

    let log = dir.path().join("lake/metrics/cpu/_delta_log");
    let entry = |version: u64| std::fs::read(log.join(format!("{version:020}.json"))).expect("should have the entry");
    let created = metadata_of(&entry(0)).expect("should have metadata");
    let changed = metadata_of(&entry(2)).expect("should change the table");
    assert_eq!(actions(&entry(2), "add").len(), 1, "together with the rows");
    for kept in ["id", "name", "format", "partitionColumns", "configuration", "createdTime"] {
        assert_eq!(changed[kept], created[kept], "{kept}");
    }
    assert_eq!(columns_of(&changed), ["ts", "host", "load", "date", "cores"]);
    assert_eq!((metadata_of(&entry(3)), metadata_of(&entry(4))), (None, None), "once is enough");

    let delta = deltalake::open_table(table.location()).await.expect("should open");
    let session = SessionContext::new();
    session.register_table("t", delta.table_provider().await.expect("should be a provider")).expect("should register");
    let sums = "select count(*), count(cores), sum(cores), count(distinct date) from t";
    let rows = session.sql(sums).await.expect("should plan").collect().await.expect("should run");
    let row: Vec<i64> = rows[0]
        .columns()
        .iter()
        .map(|c| arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(c).value(0))
        .collect();
    assert_eq!(row, [40, 20, 110, 2]);

    // The next process, of the newer definition and of the older one.
    let next = local(dir.path()).table(TABLE, &name());
    assert_eq!(commit_second(&next, 5).await.expect("should commit"), landed(5));
    let adds = write(&next, 20_000, 10).await;
    assert_eq!(commit_as(&next, Incarnation(1), 1..=1, &adds).await.expect("should commit"), landed(6));
    assert_eq!((metadata_of(&entry(5)), metadata_of(&entry(6))), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_was_opened_and_not_made_keeps_all_that_its_metadata_says() {
    let dir = tempfile::tempdir().expect("should have a directory");
    ten_rows(&local(dir.path()).table(TABLE, &name()), 1).await.expect("should commit");
    let next = local(dir.path()).table(TABLE, &name());
    assert_eq!(commit_second(&next, 2).await.expect("should commit"), landed(2));
    let log = dir.path().join("lake/metrics/cpu/_delta_log");
    let entry = |version: u64| std::fs::read(log.join(format!("{version:020}.json"))).expect("should have the entry");
    let mut created = metadata_of(&entry(0)).expect("should have metadata");
    let changed = metadata_of(&entry(2)).expect("should change the table");
    created["schemaString"] = changed["schemaString"].clone();
    assert_eq!(changed, created);
}

#[tokio::test]
async fn a_change_survives_every_answer_of_the_store_once() {
    for fault in [Fault::LoseAnswer, Fault::FailBefore, Fault::Conflict, Fault::Hang { applied: true }] {
        let shown = format!("{fault:?}");
        let (lake, store) = Faulty::lake([Fault::None, Fault::None, fault]);
        let table = lake.table(TABLE, &name());
        ten_rows(&table, 1).await.expect("should commit");
        assert_eq!(commit_second(&table, 2).await.expect("should commit"), landed(2), "{shown}");
        assert!(metadata_of(&store.entry(2).await.expect("should be there")).is_some(), "{shown}");
        commit_second(&table, 3).await.expect("should commit");
        assert!(metadata_of(&store.entry(3).await.expect("should be there")).is_none(), "{shown}");
    }
}

/// A metaData action of another writer: ours with this done to it.
async fn foreign(store: &Faulty, change: impl FnOnce(&mut Value, &mut Vec<Value>)) -> String {
    let mut metadata = metadata_of(&store.entry(0).await.expect("should be there")).expect("should have metadata");
    let schema: Value = serde_json::from_str(metadata["schemaString"].as_str().expect("should be text")).expect("JSON");
    let mut fields = schema["fields"].as_array().expect("should have fields").clone();
    change(&mut metadata, &mut fields);
    metadata["schemaString"] = json!({ "type": "struct", "fields": fields }).to_string().into();
    json!({ "metaData": metadata }).to_string()
}

fn field(name: &str, kind: &str) -> Value {
    json!({ "name": name, "type": kind, "nullable": true, "metadata": { "comment": "theirs" } })
}

#[tokio::test]
async fn a_change_is_rebased_over_those_of_others() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let theirs = foreign(&store, |metadata, fields| {
        metadata["description"] = json!("of the other writer");
        metadata["configuration"] = json!({ "custom.key": "kept" });
        fields.push(field("note", "string"));
    });
    store.then(Fault::Rival(theirs.await));
    assert_eq!(commit_second(&table, 2).await.expect("should commit"), landed(3));
    let ours = metadata_of(&store.entry(3).await.expect("should be there")).expect("should change the table");
    assert_eq!(columns_of(&ours), ["ts", "host", "load", "date", "note", "cores"]);
    assert_eq!(
        (&ours["description"], &ours["configuration"]["custom.key"]),
        (&json!("of the other writer"), &json!("kept"))
    );
    assert!(ours["schemaString"].as_str().is_some_and(|text| text.contains("theirs")), "{ours}");
}

#[tokio::test]
async fn a_column_that_another_writer_adds_first_is_not_added_again() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    store.then(Fault::Rival(foreign(&store, |_, fields| fields.push(field("cores", "long"))).await));
    assert_eq!(commit_second(&table, 2).await.expect("should commit"), landed(3));
    assert_eq!(metadata_of(&store.entry(3).await.expect("should be there")), None);
}

#[tokio::test]
async fn a_column_of_another_type_or_case_or_without_nulls_is_refused() {
    let unlike: [(Value, &str); 3] = [
        (field("cores", "double"), "column \"cores\" is double in the table and long here"),
        (field("Cores", "long"), "column \"cores\" is \"Cores\" in the table"),
        (json!({ "name": "cores", "type": "long", "nullable": false, "metadata": {} }), "\"cores\" may be null here"),
    ];
    for (theirs, expected) in unlike {
        let (lake, store) = Faulty::lake([]);
        let table = lake.table(TABLE, &name());
        ten_rows(&table, 1).await.expect("should commit");
        store.then(Fault::Rival(foreign(&store, |_, fields| fields.push(theirs)).await));
        let error = commit_second(&table, 2).await.expect_err("should be refused");
        assert_eq!(error.kind(), Kind::Refused, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(store.entry(3).await.is_none(), "nothing should be written");
    }
}

#[tokio::test]
async fn a_narrower_column_gets_the_width_of_the_rows_and_a_wider_one_keeps_its_own() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    store.then(Fault::Rival(foreign(&store, |_, fields| fields.push(field("cores", "integer"))).await));
    assert_eq!(commit_second(&table, 2).await.expect("should commit"), landed(3));
    let changed = metadata_of(&store.entry(3).await.expect("should be there")).expect("should change the table");
    let schema: Value = serde_json::from_str(changed["schemaString"].as_str().expect("should be text")).expect("JSON");
    let cores = &schema["fields"][4];
    assert_eq!(
        (&cores["name"], &cores["type"], &cores["metadata"]["comment"]),
        (&json!("cores"), &json!("long"), &json!("theirs"))
    );

    let mut narrow = second();
    narrow.columns[3].kind = ColumnType::Int;
    narrow.schema_version = 3;
    let commit = Commit { node: NODE, incarnation: NOW, first_sequence: 3, sequence: 3, spec: &narrow, adds: &[] };
    assert_eq!(table.commit(commit).await.expect("should commit"), landed(4));
    assert_eq!(metadata_of(&store.entry(4).await.expect("should be there")), None);
}

#[tokio::test]
async fn a_column_that_must_not_be_null_cannot_come_later() {
    let (lake, _) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let mut spec = second();
    spec.columns[3].nullable = false;
    let commit = Commit { node: NODE, incarnation: NOW, first_sequence: 2, sequence: 2, spec: &spec, adds: &[] };
    let error = table.commit(commit).await.expect_err("should be refused");
    assert!(error.to_string().contains("column \"cores\" is missing"), "{error}");
}

#[tokio::test]
async fn two_nodes_with_different_new_columns_both_get_them() {
    let objects = Arc::new(object_store::memory::InMemory::new());
    let (one, store) = Faulty::lake_over(objects.clone(), []);
    let (two, _) = Faulty::lake_over(objects, []);
    let (one, two) = (one.table(TABLE, &name()), two.table(TABLE, &name()));
    ten_rows(&one, 1).await.expect("should commit");
    let adds = write(&two, 20_000, 10).await;
    commit_as(&two, Incarnation(1), 1..=1, &adds).await.expect("should commit");
    commit_second(&one, 2).await.expect("should commit");
    let mut theirs = spec();
    theirs.columns.push(column("zone", ColumnType::String, true));
    theirs.schema_version = 2;
    let commit =
        Commit { node: NODE, incarnation: Incarnation(1), first_sequence: 2, sequence: 2, spec: &theirs, adds: &[] };
    let version = two.commit(commit).await.expect("should commit").version;
    let both = metadata_of(&store.entry(version).await.expect("should be there")).expect("should change the table");
    assert_eq!(columns_of(&both), ["ts", "host", "load", "date", "cores", "zone"]);
}
