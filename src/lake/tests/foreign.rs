//! Tables and actions of other writers: what we append to, and what we refuse by name.

use serde_json::{Value, json};

use super::support::*;
use crate::lake::{Error, Kind};
use crate::schema::ColumnType;

fn field(name: &str, kind: Value, nullable: bool) -> Value {
    json!({ "name": name, "type": kind, "nullable": nullable, "metadata": {} })
}

fn our_fields() -> Vec<Value> {
    vec![
        field("ts", json!("timestamp"), false),
        field("host", json!("string"), true),
        field("load", json!("double"), true),
        field("date", json!("date"), true),
    ]
}

fn metadata(fields: Vec<Value>) -> Value {
    json!({
        "id": TABLE.to_string(),
        "format": { "provider": "parquet", "options": {} },
        "schemaString": json!({ "type": "struct", "fields": fields }).to_string(),
        "partitionColumns": ["date"],
        "configuration": {},
        "createdTime": 0,
    })
}

fn protocol() -> Value {
    json!({ "minReaderVersion": 1, "minWriterVersion": 2 })
}

fn entry(protocol: &Value, metadata: &Value) -> String {
    format!("{}\n{}", json!({ "protocol": protocol }), json!({ "metaData": metadata }))
}

/// Commits into a table that is there already.
async fn commit_into(protocol: Value, metadata: Value) -> Result<(), Error> {
    let (lake, store) = Faulty::lake([]);
    store.put_entry(0, &entry(&protocol, &metadata)).await;
    let table = lake.table(TABLE, &name());
    let done = ten_rows(&table, 1).await;
    assert_eq!(done.is_ok(), store.entry(1).await.is_some(), "a refused commit should write nothing");
    done.map(drop)
}

/// The same actions, but committed by another writer while the table is in use.
async fn commit_behind(protocol: Value, metadata: Value) -> Result<(), Error> {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    store.put_entry(2, &entry(&protocol, &metadata)).await;
    let done = ten_rows(&table, 2).await;
    assert_eq!(done.is_ok(), store.entry(3).await.is_some(), "a refused commit should write nothing");
    if done.is_err() {
        ten_rows(&table, 2).await.expect_err("should be refused again");
    }
    done.map(drop)
}

async fn refused(protocol: Value, metadata: Value) -> String {
    let opened = commit_into(protocol.clone(), metadata.clone()).await.expect_err("should be refused");
    let behind = commit_behind(protocol, metadata).await.expect_err("should be refused");
    assert_eq!(opened.kind(), Kind::Refused, "{opened}");
    assert_eq!(opened.to_string(), behind.to_string());
    opened.to_string()
}

async fn accepted(protocol: Value, metadata: Value) {
    commit_into(protocol.clone(), metadata.clone()).await.expect("should be accepted");
    commit_behind(protocol, metadata).await.expect("should be accepted");
}

#[tokio::test]
async fn columns_in_another_order_and_nullable_ones_of_others_are_fine() {
    let mut fields = our_fields();
    fields.reverse();
    fields.push(field("note", json!("string"), true));
    accepted(protocol(), metadata(fields)).await;
}

#[tokio::test]
async fn a_schema_that_does_not_take_our_rows_is_refused() {
    let mut fields = our_fields();
    fields[2] = field("load", json!("long"), true);
    let error = refused(protocol(), metadata(fields)).await;
    assert!(error.contains("column \"load\" is long in the table and double here"), "{error}");

    let mut fields = our_fields();
    fields.remove(0);
    fields.push(field("site", json!("string"), false));
    let error = refused(protocol(), metadata(fields)).await;
    assert!(error.contains("column \"ts\" is missing"), "{error}");
    assert!(error.contains("column \"site\" must not be null"), "{error}");

    let mut fields = our_fields();
    fields[1] = field("host", json!("string"), false);
    let error = refused(protocol(), metadata(fields)).await;
    assert!(error.contains("column \"host\" may be null here"), "{error}");
}

#[tokio::test]
async fn another_table_at_our_place_is_refused() {
    let mut other = metadata(our_fields());
    other["id"] = json!("1de1c4a0-5e5a-4c3e-9f63-2e8e1bb0a111");
    let error = refused(protocol(), other).await;
    assert!(error.contains("1de1c4a0") && error.contains("another name"), "{error}");
}

#[tokio::test]
async fn another_partitioning_is_refused() {
    let mut other = metadata(our_fields());
    other["partitionColumns"] = json!(["host"]);
    let error = refused(protocol(), other).await;
    assert!(error.contains("partitioned by [\"host\"]"), "{error}");
}

#[tokio::test]
async fn features_that_ask_something_of_writers_are_refused_by_name() {
    let features = |names: &[&str]| json!({ "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": names });
    accepted(features(&["appendOnly", "invariants", "changeDataFeed"]), metadata(our_fields())).await;
    let error = refused(features(&["appendOnly", "rowTracking", "domainMetadata"]), metadata(our_fields())).await;
    assert!(error.contains("does not write: domainMetadata, rowTracking;"), "{error}");
}

#[tokio::test]
async fn features_are_refused_where_they_are_used() {
    let legacy = json!({ "minReaderVersion": 1, "minWriterVersion": 4 });
    accepted(legacy.clone(), metadata(our_fields())).await;

    let mut checked = metadata(our_fields());
    checked["configuration"] = json!({ "delta.constraints.positive": "load > 0" });
    let error = refused(legacy.clone(), checked).await;
    assert!(error.contains("delta.constraints.positive"), "{error}");

    let mut fields = our_fields();
    fields[3]["metadata"] = json!({ "delta.generationExpression": "CAST(ts AS DATE)" });
    let error = refused(legacy, metadata(fields)).await;
    assert!(error.contains("generatedColumns (column \"date\")"), "{error}");
}

#[tokio::test]
async fn a_table_that_forgets_transactions_is_refused() {
    let mut forgetful = metadata(our_fields());
    forgetful["configuration"] = json!({ "delta.setTransactionRetentionDuration": "interval 1 days" });
    let error = refused(protocol(), forgetful).await;
    assert!(error.contains("interval 1 days"), "{error}");
}

#[tokio::test]
async fn a_log_that_is_kept_too_short_for_us_to_notice_a_hole_is_refused() {
    let keeps = |text: &str| {
        let mut metadata = metadata(our_fields());
        metadata["configuration"] = json!({ "delta.logRetentionDuration": text });
        metadata
    };
    accepted(protocol(), keeps("interval 1 day")).await;
    let error = refused(protocol(), keeps("interval 10 minutes")).await;
    assert!(error.contains("interval 10 minutes") && error.contains("have to be kept for at least"), "{error}");
}

#[test]
fn nested_types_are_compared_to_the_leaves() {
    use crate::lake::schema::{parse, problems};
    let mut spec = spec();
    for (name, kind) in [("tags", "map<string,string>"), ("path", "list<struct<a:long,b:decimal(20,0)>>")] {
        spec.columns.push(column(name, kind.parse::<ColumnType>().expect("should be a type"), true));
    }
    let ours = crate::lake::schema::of(&spec).to_string();
    assert_eq!(problems(&spec, &parse(&ours).expect("should parse")), Vec::<String>::new());
    assert!(serde_json::from_str::<deltalake::kernel::StructType>(&ours).is_ok(), "the kernel should read it: {ours}");

    let theirs = ours
        .replace("decimal(20,0)", "decimal(10,0)")
        .replace("\"valueContainsNull\":true", "\"valueContainsNull\":false");
    assert_eq!(
        problems(&spec, &parse(&theirs).expect("should parse")),
        [
            "items of \"tags\" may be null here and not in the table",
            "column \"path[].b\" is decimal(10,0) in the table and decimal(20,0) here"
        ]
    );
}

/// What others do while we write, and whether the commit behind it goes in.
async fn behind(
    theirs: &[Value],
) -> (std::sync::Arc<crate::lake::LakeTable>, std::sync::Arc<Faulty>, Result<(), Error>) {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let entry: Vec<String> = theirs.iter().map(Value::to_string).collect();
    store.put_entry(2, &entry.join("\n")).await;
    let done = ten_rows(&table, 2).await;
    (table, store, done.map(drop))
}

/// The data files of an entry.
async fn files(store: &Faulty, version: u64) -> Vec<Value> {
    actions(&store.entry(version).await.expect("should be there"), "add")
}

#[tokio::test]
async fn appends_and_compactions_of_others_are_rebased_over() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    ten_rows(&table, 2).await.expect("should commit");
    // Somebody appends, and somebody puts our two files into one.
    let theirs = write(&table, 20_000, 7).await;
    store.put_entry(3, &json!({ "add": theirs[0] }).to_string()).await;
    let whole = write(&table, 20_000, 20).await;
    let mut compaction = Vec::new();
    for version in [1, 2] {
        for add in files(&store, version).await {
            let remove = json!({ "path": add["path"], "dataChange": false, "deletionTimestamp": 1,
                "extendedFileMetadata": true, "partitionValues": add["partitionValues"], "size": add["size"] });
            compaction.push(json!({ "remove": remove }).to_string());
        }
    }
    let mut add = json!(whole[0]);
    add["dataChange"] = json!(false);
    compaction.push(json!({ "add": add }).to_string());
    store.put_entry(4, &compaction.join("\n")).await;

    assert_eq!(ten_rows(&table, 3).await.expect("should commit"), landed(5));
    assert_eq!(table.confirm().await.expect("should confirm"), Some(5));
    let snapshot = table.snapshot(None).await.expect("should read").expect("should be there");
    assert_eq!((snapshot.rows(), snapshot.files()), (Some(20 + 7 + 10), 3));
}

#[tokio::test]
async fn a_nullable_column_that_others_add_is_left_null() {
    let mut fields = our_fields();
    fields.push(field("note", json!("string"), true));
    let (table, _, done) = behind(&[json!({ "metaData": metadata(fields) })]).await;
    done.expect("should be compatible");
    assert_eq!(table.confirm().await.expect("should confirm"), Some(3));
    assert_eq!(table.resolve(&[super::support::NOW], NODE).await.expect("should resolve"), [Some(2)]);
}

/// A table that stalls keeps what it has, names its reason, and goes on once somebody has taken the change back.
#[tokio::test]
async fn a_change_that_we_cannot_follow_stalls_the_table_until_it_is_taken_back() {
    let without_time: Vec<Value> = our_fields().into_iter().filter(|field| field["name"] != "ts").collect();
    let mut by_host = metadata(our_fields());
    by_host["partitionColumns"] = json!(["date", "host"]);
    let feature = json!({ "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"] });
    let mut short = metadata(our_fields());
    short["configuration"] = json!({ "delta.logRetentionDuration": "interval 1 minutes" });
    let mut unreadable = short.clone();
    unreadable["configuration"] = json!({ "delta.logRetentionDuration": "a while" });
    for (change, reason) in [
        (json!({ "metaData": metadata(without_time) }), "column \"ts\" is missing"),
        (json!({ "metaData": by_host }), "partitioned by [\"date\", \"host\"], and our definition says [\"date\"]"),
        (json!({ "protocol": feature }), "does not write: rowTracking;"),
        (json!({ "metaData": short }), "sets delta.logRetentionDuration = \"interval 1 minutes\""),
        (json!({ "metaData": unreadable }), "sets delta.logRetentionDuration = \"a while\""),
    ] {
        let (table, store, done) = behind(std::slice::from_ref(&change)).await;
        let error = done.expect_err("should be refused");
        assert_eq!(error.kind(), Kind::Refused, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(store.versions().await, [0, 1, 2], "nothing should be written");
        ten_rows(&table, 2).await.expect_err("should be refused again");

        let back = [json!({ "protocol": protocol() }), json!({ "metaData": metadata(our_fields()) })];
        store.put_entry(3, &back.map(|action| action.to_string()).join("\n")).await;
        assert_eq!(ten_rows(&table, 2).await.expect("should go on"), landed(4));
        assert_eq!(table.confirm().await.expect("should confirm"), Some(4));
    }
}

#[tokio::test]
async fn a_log_that_is_kept_for_long_enough_is_accepted() {
    let mut kept = metadata(our_fields());
    kept["configuration"] = json!({ "delta.logRetentionDuration": "interval 1 day" });
    accepted(protocol(), kept).await;
}
