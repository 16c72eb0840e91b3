use super::*;
use crate::schema::spec::Earlier;
use crate::schema::{ColumnSpec, ColumnType, EventTime};

pub(super) fn spec(name: &str) -> TableSpec {
    TableSpec {
        name: name.parse().expect("should be a name"),
        schema_version: 1,
        columns: vec![ColumnSpec { name: "ts".to_owned(), kind: ColumnType::Timestamp, nullable: false }],
        event_time: EventTime::Column { name: "ts".to_owned(), unit: None },
        bucket_seconds: 3600,
        partition: Some("date".to_owned()),
        sort: vec![],
        history: vec![],
        bloom: vec![],
        rules: crate::schema::Rules::default(),
    }
}

#[tokio::test]
async fn tables_survive_a_reopen_and_names_are_unique() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let catalog = Catalog::open(dir.path()).await.expect("should open");
    let id = TableId(Uuid::new_v4());
    catalog.create_table(id, &spec("ops.cpu"), Cause::Declaration).await.expect("should create");
    let twice = catalog.create_table(TableId(Uuid::new_v4()), &spec("ops.cpu"), Cause::Declaration).await;
    assert!(matches!(twice, Err(Error::Exists(_))), "{twice:?}");
    catalog
        .create_table(TableId(Uuid::new_v4()), &spec("cpu"), Cause::Declaration)
        .await
        .expect("should create in another namespace");
    catalog.close().await;
    let catalog = Catalog::open(dir.path()).await.expect("should open again");
    let tables = catalog.tables().await.expect("should list");
    assert_eq!(tables.len(), 2);
    assert!(tables.contains(&(id, spec("ops.cpu"))));
}

#[tokio::test]
async fn a_flush_is_noted_once() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let catalog = Catalog::open(dir.path()).await.expect("should open");
    let table = TableId(Uuid::new_v4());
    catalog.create_table(table, &spec("cpu"), Cause::Declaration).await.expect("should create");
    let flush = Flush {
        table,
        incarnation: Incarnation(7),
        sequence: 3,
        delta_version: 5,
        rows: 10,
        bytes: 100,
        spans: vec![],
        dead: false,
    };
    catalog.record_flushes(&[flush.clone(), flush.clone()]).await.expect("should note");
    catalog.record_flushes(&[flush]).await.expect("should note again");
    let count: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM flushes").fetch_one(&catalog.pool).await.expect("should count");
    assert_eq!(count, 1);
}

#[tokio::test]
async fn a_table_is_found_by_name() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let catalog = Catalog::open(dir.path()).await.expect("should open");
    let id = TableId(Uuid::new_v4());
    catalog.create_table(id, &spec("ops.cpu"), Cause::Declaration).await.expect("should create");
    let find = |name: &str| name.parse().expect("should be a name");
    let found = catalog.table(&find("ops.cpu")).await.expect("should look");
    assert_eq!(found, Some((id, spec("ops.cpu"))));
    assert_eq!(catalog.table(&find("cpu")).await.expect("should look"), None);
}

#[tokio::test]
async fn a_file_that_is_no_catalog_is_named() {
    let dir = tempfile::tempdir().expect("should make a directory");
    std::fs::write(dir.path().join(FILE_NAME), [7; 4096]).expect("should write");
    let error = Catalog::open(dir.path()).await.expect_err("should not open").to_string();
    assert!(error.contains(FILE_NAME) && error.contains("moved away"), "{error}");
}

#[tokio::test]
async fn schema_versions_are_kept_with_what_made_them() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let catalog = Catalog::open(dir.path()).await.expect("should open");
    let (id, first) = (TableId(Uuid::new_v4()), spec("cpu"));
    catalog.create_table(id, &first, Cause::Rows).await.expect("should create");
    let with = |names: &[&str], version, history: &[u32]| {
        let added = names.iter().map(|n| ColumnSpec { name: (*n).to_owned(), kind: ColumnType::Long, nullable: true });
        let columns = first.columns.iter().cloned().chain(added).collect();
        TableSpec {
            columns,
            schema_version: version,
            history: history.iter().map(|count| Earlier::of(*count)).collect(),
            ..first.clone()
        }
    };
    let third = with(&["a", "b"], 3, &[1, 2]);
    catalog.put_definition(id, &with(&["a"], 2, &[1]), Cause::Declaration).await.expect("should note");
    catalog.put_definition(id, &third, Cause::Log).await.expect("should note");
    let shown = |versions: Vec<SchemaVersion>| -> Vec<(u32, usize, Option<String>)> {
        versions.into_iter().map(|v| (v.version, v.columns, v.cause)).collect()
    };
    let versions = catalog.schema_versions(id).await.expect("should list");
    let cause = |text: &str| Some(text.to_owned());
    assert_eq!(shown(versions), [(1, 1, cause("rows")), (2, 2, cause("declaration")), (3, 3, cause("log"))]);
    assert_eq!(catalog.tables().await.expect("should list"), [(id, third)]);

    // A log that knows less, or other columns, is right: the rows are its.
    let other = with(&["z"], 2, &[1]);
    catalog.put_definition(id, &other, Cause::Log).await.expect("should note");
    assert_eq!(catalog.table(&first.name).await.expect("should look"), Some((id, other)));
}
