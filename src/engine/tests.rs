use std::path::Path;

use bytes::Bytes;

use super::*;
use crate::ingest::post::Post;
use crate::ingest::{ContentEncoding, Format};

fn config(dir: &Path) -> Config {
    let mut config = Config { data_dir: dir.to_owned(), ..Config::default() };
    config.store.shards = 1;
    config.store.segment = bytesize::ByteSize::mib(1);
    config
}

async fn post(engine: &Engine, rows: &str) {
    let post = Post {
        table: "cpu".parse().expect("should be a name"),
        format: Format::from_content_type("application/x-ndjson").expect("should be a format"),
        encoding: ContentEncoding::Identity,
        time_unit: None,
        on_error: crate::ingest::OnError::Accept,
        id: None,
        sender: std::net::Ipv4Addr::LOCALHOST.into(),
        body: Bytes::copy_from_slice(rows.as_bytes()),
    };
    let lease = engine.lease(&post.table, rows.len() as u64).await.expect("should have room");
    engine.ingest().post(post, lease).await.expect("should take the rows");
}

async fn count(engine: &Engine) -> usize {
    let mut query = engine.sql().query("select * from cpu").await.expect("should run");
    let mut rows = 0;
    while let Some(batch) = query.next().await.expect("should go on") {
        rows += batch.num_rows();
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_survive_a_stop_flushed_and_a_stop_without_time_to_flush() {
    let dir = tempfile::tempdir().expect("should make a directory");
    for start in 1..=4 {
        let mut config = config(dir.path());
        if start % 2 == 0 {
            config.flush.shutdown_timeout = Duration::ZERO;
        }
        let engine = Engine::start(config).await.expect("should start");
        // The stop has checkpointed what it did not flush.
        assert_eq!(engine.status().store.recovery.log_bytes, 0, "start {start}");
        post(&engine, "{\"time\":\"2024-05-01T00:00:00Z\",\"n\":1}\n{\"time\":\"2024-05-02T00:00:00Z\",\"n\":2}").await;
        assert_eq!(count(&engine).await, start * 2);
        assert_eq!(engine.unready(), None);
        engine.stop().await;
    }
    let engine = Engine::start(config(dir.path())).await.expect("should start");
    let table = engine.registry().all().remove(0);
    engine.flush(&[table.id], Duration::from_secs(30)).await.expect("should flush");
    let stats = engine.lake_table(&table).stats().await.expect("should be read");
    assert_eq!(stats.rows, Some(8));
    assert_eq!(engine.unflushed_rows(table.id), 0);
    let status = engine.status();
    assert_eq!((status.tables.len(), status.tables[0].unflushed_rows, status.ready), (1, 0, true));
    engine.stop().await;
    let catalog = Catalog::open(dir.path()).await.expect("should open");
    assert_eq!(catalog.tables().await.expect("should list").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_engine_on_the_same_directory_does_not_start() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let engine = Engine::start(config(dir.path())).await.expect("should start");
    let error = Engine::start(config(dir.path())).await.expect_err("should be locked out");
    assert!(matches!(error, StartError::Store(OpenError::Locked { .. })), "{error}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_of_any_length_are_fine() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let mut config = config(dir.path());
    config.flush.shutdown_timeout = Duration::MAX;
    config.query.timeout = Duration::MAX;
    config.store.checkpoint_interval = Duration::MAX;
    let engine = Engine::start(config).await.expect("should start");
    post(&engine, "{\"n\":1}").await;
    assert_eq!(count(&engine).await, 1);
    engine.stop().await;
}
