use super::*;

fn upload(path: &str, began: i64) -> Upload {
    Upload {
        table: TableId(Uuid::from_u128(42)),
        name: "ops.cpu".parse().expect("should be a name"),
        writer: NodeId(Uuid::from_u128(7)),
        incarnation: Incarnation(0xbeef_0000_0000_0001),
        sequence: 3,
        path: path.to_owned(),
        began,
    }
}

#[tokio::test]
async fn uploads_are_there_until_they_end_also_after_a_reopen() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let catalog = Catalog::open(dir.path()).await.expect("should open");
    let (late, early) = (upload("date=2024-10-04/part-1.parquet", 2), upload("date=2024-10-04/part-0.parquet", 1));
    catalog.begin_uploads(&[late.clone(), early.clone()]).await.expect("should note");
    catalog.begin_uploads(std::slice::from_ref(&late)).await.expect("should note again");
    catalog.close().await;

    let catalog = Catalog::open(dir.path()).await.expect("should open again");
    assert_eq!(catalog.open_uploads().await.expect("should list"), [early.clone(), late.clone()]);
    let elsewhere = TableId(Uuid::from_u128(43));
    let ended = [(early.table, early.path.as_str()), (elsewhere, late.path.as_str()), (early.table, "never.parquet")];
    catalog.end_uploads(&ended).await.expect("should forget");
    assert_eq!(catalog.open_uploads().await.expect("should list"), [late]);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_an_error() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let catalog = Catalog::open(dir.path()).await.expect("should open");
    catalog.begin_uploads(&[upload("a", 1)]).await.expect("should note");
    sqlx::query("UPDATE uploads SET writer = 'nobody'").execute(&catalog.pool).await.expect("should update");
    let error = catalog.open_uploads().await.expect_err("should not be read");
    assert!(matches!(error, Error::Upload(_)), "{error}");
}
