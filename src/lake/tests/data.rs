//! Data files and what their `add` actions say.

use std::num::NonZeroU64;
use std::sync::Arc;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde_json::{Value, json};

use super::support::*;
use crate::lake::{FileSettings, LakeTable};
use crate::schema::TableSpec;

#[tokio::test]
async fn adds_carry_partition_values_and_statistics() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let entry = store.entry(1).await.expect("should have version 1");
    let adds = actions(&entry, "add");
    assert_eq!(adds.len(), 1);
    let add = &adds[0];
    assert_eq!(add["partitionValues"], json!({ "date": "2024-10-04" }));
    assert_eq!(add["dataChange"], true);
    let path = add["path"].as_str().expect("should have a path");
    assert!(path.starts_with("date=2024-10-04/part-00000-") && path.ends_with(".zstd.parquet"), "{path}");

    let stats: Value = serde_json::from_str(add["stats"].as_str().expect("should have statistics")).expect("JSON");
    assert_eq!(stats["numRecords"], 10);
    assert_eq!(stats["minValues"]["host"], "host-0");
    assert_eq!(stats["maxValues"]["host"], "host-4");
    assert_eq!(stats["maxValues"]["load"], 9.0);
    assert_eq!(stats["nullCount"]["host"], 1);
    let first = stats["minValues"]["ts"].as_str().expect("should have a time");
    assert!(first.starts_with("2024-10-04T00:00:00"), "{first}");

    let file = store.head(&Path::from(format!("lake/metrics/cpu/{path}"))).await.expect("should be there");
    assert_eq!(add["size"], file.size);
}

#[tokio::test]
async fn generations_of_two_days_share_a_commit() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    let mut batches = day_of_rows(&spec(), 20_000, 3);
    batches.extend(day_of_rows(&spec(), -1, 4));
    let files = table.write_data(&spec(), batches, &FileSettings::default()).await.expect("should write");
    assert_eq!((files.adds.len(), files.rows), (2, 7));
    commit_as(&table, NOW, 1..=2, &files.adds).await.expect("should commit");
    let entry = store.entry(1).await.expect("should have version 1");
    let mut dates: Vec<Value> =
        actions(&entry, "add").iter().map(|add| add["partitionValues"]["date"].clone()).collect();
    dates.sort_by_key(Value::to_string);
    assert_eq!(dates, [json!("1969-12-31"), json!("2024-10-04")]);
}

#[tokio::test]
async fn a_file_that_reaches_its_size_is_followed_by_another() {
    let (lake, _) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    let settings =
        FileSettings { target_file_bytes: NonZeroU64::new(200_000).expect("is not 0"), ..Default::default() };
    let batches = day_of_rows(&spec(), 20_000, 200_000);
    let files = table.write_data(&spec(), batches, &settings).await.expect("should write");
    assert!(files.adds.len() > 1, "{}", files.adds.len());
    assert_eq!(files.bytes, files.adds.iter().map(|add| u64::try_from(add.size).expect("positive")).sum::<u64>());
    let mut paths: Vec<_> = files.adds.iter().map(|add| add.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), files.adds.len());
}

#[tokio::test]
async fn a_table_without_partitions() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    let mut spec = spec();
    spec.partition = None;
    let batches = day_of_rows(&spec, 20_000, 3);
    let files = table.write_data(&spec, batches, &FileSettings::default()).await.expect("should write");
    let commit = crate::lake::Commit {
        node: NODE,
        incarnation: NOW,
        first_sequence: 1,
        sequence: 1,
        spec: &spec,
        adds: &files.adds,
    };
    table.commit(commit).await.expect("should commit");
    let entry = store.entry(1).await.expect("should have version 1");
    assert_eq!(actions(&entry, "add")[0]["partitionValues"], json!({}));
}

#[tokio::test]
async fn rows_of_another_shape_are_refused() {
    let (lake, _) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    let mut narrow = spec();
    narrow.columns.pop();
    let error = table
        .write_data(&narrow, day_of_rows(&spec(), 20_000, 3), &FileSettings::default())
        .await
        .expect_err("should be refused");
    assert!(matches!(error, crate::lake::Error::Rows { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_column_type_comes_back_as_it_went_in() {
    let mut spec = spec();
    for (name, kind) in [
        ("flag", "boolean"),
        ("small", "int"),
        ("big", "long"),
        ("ratio", "float"),
        ("raw", "binary"),
        ("day", "date"),
        ("price", "decimal(20,0)"),
        ("items", "list<long>"),
        ("tags", "map<string,string>"),
        ("inner", "struct<a:long,b:list<string>>"),
    ] {
        spec.columns.push(column(name, kind.parse().expect("should be a type"), true));
    }
    let rows = r#"{"ts":"2024-10-04T00:00:02Z","host":"b"}
{"ts":"2024-10-04T00:00:01Z","host":"a","load":1.5,"flag":true,"small":1,"big":9007199254740993,"ratio":0.5,"raw":"00ff","day":"2024-10-04","price":18446744073709551615,"items":[1,null],"tags":{"k":"v"},"inner":{"a":1,"b":["x"]}}"#;
    let reader = arrow::json::ReaderBuilder::new(crate::schema::arrow::arrow_schema(&spec)).build(rows.as_bytes());
    let batches = reader.expect("should read").collect::<Result<Vec<_>, _>>().expect("should decode");
    let bucket = penstock_store::Bucket { start: 20_000 * DAY, width: DAY };
    let batches: Vec<_> =
        batches.iter().map(|batch| crate::schema::arrow::with_partition(&spec, batch, bucket)).collect();
    let sent = arrow::util::pretty::pretty_format_batches(&batches).expect("should format").to_string();

    let dir = tempfile::tempdir().expect("should have a directory");
    let table = local(dir.path()).table(TABLE, &name());
    let files = table.write_data(&spec, batches, &FileSettings::default()).await.expect("should write");
    let commit = crate::lake::Commit {
        node: NODE,
        incarnation: NOW,
        first_sequence: 1,
        sequence: 1,
        spec: &spec,
        adds: &files.adds,
    };
    table.commit(commit).await.expect("should commit");

    let read = deltalake::open_table(table.location()).await.expect("should open");
    let session = deltalake::datafusion::prelude::SessionContext::new();
    session.register_table("t", read.table_provider().await.expect("should provide")).expect("should register");
    let columns: Vec<&str> = spec.columns.iter().map(|c| c.name.as_str()).chain(["date"]).collect();
    let sql = format!("select {} from t", columns.join(", "));
    let back = session.sql(&sql).await.expect("should plan").collect().await.expect("should run");
    assert_eq!(arrow::util::pretty::pretty_format_batches(&back).expect("should format").to_string(), sent);
}

/// Column names may have characters that mean something in a path or a URL. Readers go by the log, and find the file.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_column_of_odd_characters_is_found_by_readers() {
    for odd in ["d\u{e4}t:e/x", "50%25", "tag#1", "..", "q?&+"] {
        let mut spec = spec();
        spec.partition = Some(odd.to_owned());
        let dir = tempfile::tempdir().expect("should have a directory");
        let table = local(dir.path()).table(TABLE, &name());
        let batches = day_of_rows(&spec, -1, 3);
        let files = table.write_data(&spec, batches, &FileSettings::default()).await.expect("should write");
        let commit = crate::lake::Commit {
            node: NODE,
            incarnation: NOW,
            first_sequence: 1,
            sequence: 1,
            spec: &spec,
            adds: &files.adds,
        };
        table.commit(commit).await.expect("should commit");
        let read = deltalake::open_table(table.location()).await.expect("should open");
        let session = deltalake::datafusion::prelude::SessionContext::new();
        session.register_table("t", read.table_provider().await.expect("should provide")).expect("should register");
        let sql = format!("select count(*), min(\"{odd}\"), max(load) from t where \"{odd}\" = date '1969-12-31'");
        let found = session.sql(&sql).await.expect("should plan").collect().await.expect("should run");
        let found = arrow::util::pretty::pretty_format_batches(&found).expect("should format").to_string();
        assert!(found.contains("| 3 ") && found.contains("1969-12-31") && found.contains("2.0"), "{odd}: {found}");
    }
}

#[tokio::test]
async fn declared_columns_have_a_bloom_filter_that_knows_their_values() {
    use parquet::file::properties::ReaderProperties;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::serialized_reader::ReadOptionsBuilder;
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    // One of them is of a version that these rows do not have yet.
    let spec = TableSpec { bloom: vec!["host".into(), "later".into()], ..spec() };
    let batches = day_of_rows(&spec, 20_000, 10);
    let files = table.write_data(&spec, batches, &FileSettings::default()).await.expect("should write");
    let path = Path::from(format!("lake/metrics/cpu/{}", files.adds[0].path));
    let bytes = store.get(&path).await.expect("should be there").bytes().await.expect("should read");
    let properties = ReaderProperties::builder().set_read_bloom_filter(true).build();
    let options = ReadOptionsBuilder::new().with_reader_properties(properties).build();
    let file = SerializedFileReader::new_with_options(bytes, options).expect("should be Parquet");
    let group = file.get_row_group(0).expect("should have a row group");
    let columns: Vec<String> = group.metadata().columns().iter().map(|c| c.column_path().string()).collect();
    for (at, column) in columns.iter().enumerate() {
        let filter = group.get_column_bloom_filter(at);
        assert_eq!(filter.is_some(), column == "host", "{column}");
        let Some(filter) = filter else { continue };
        assert!((0..5).filter(|n| *n != 2).any(|n| filter.check(&format!("host-{n}").as_str())));
        let strangers = (0..100).filter(|n| filter.check(&format!("stranger-{n}").as_str())).count();
        assert!(strangers < 20, "{strangers} of 100 values that are not there are taken for there");
    }
}

/// The columns that the statistics of a file of the table name.
async fn columns_with_statistics(table: &LakeTable, settings: &FileSettings) -> Vec<String> {
    let files = table.write_data(&spec(), day_of_rows(&spec(), 20_000, 3), settings).await.expect("should write");
    let stats = files.adds[0].stats.as_deref().expect("should have statistics");
    let stats: Value = serde_json::from_str(stats).expect("should be JSON");
    assert_eq!(stats["numRecords"], 3, "whatever the number of columns");
    let mut names: Vec<String> =
        stats["nullCount"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn the_first_columns_have_statistics_and_the_table_says_how_many_if_it_does() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    let settings = FileSettings { stats_columns: 2, ..Default::default() };
    assert_eq!(columns_with_statistics(&table, &FileSettings::default()).await, ["host", "load", "ts"]);
    assert_eq!(columns_with_statistics(&table, &settings).await, ["host", "ts"], "as set");

    // Another writer sets the table's property, seen with the next commit; then another takes over and opens it.
    ten_rows(&table, 1).await.expect("should commit");
    let first = store.entry(0).await.expect("should have version 0");
    let mut metadata = actions(&first, "metaData").remove(0);
    for (version, said, expected) in [
        (2, "1", &["ts"][..]),
        (4, "0", &[]),
        (6, "-1", &["host", "load", "ts"]),
        (8, "as many as there are", &["host", "ts"]),
        (10, "1", &["ts"]),
    ] {
        metadata["configuration"] = json!({ "delta.dataSkippingNumIndexedCols": said });
        store.put_entry(version, &json!({ "metaData": metadata }).to_string()).await;
        ten_rows(&table, version).await.expect("should commit behind it");
        assert_eq!(columns_with_statistics(&table, &settings).await, expected, "{said}");
    }
    let next = Faulty::lake_over(Arc::clone(&store) as _, []).0.table(TABLE, &name());
    next.resolve(&[NOW], NODE).await.expect("should open");
    assert_eq!(columns_with_statistics(&next, &settings).await, ["ts"]);
}
