//! What others do to our tables and to our data directory while we write: a table that is dropped, another one in its place, a
//! directory that is restored from a copy. Each row is once in the table that counts, or still in the log, and the reason is told.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::kit::{self, JSON, Launch, NO_FLUSH, Server, delta, penstock};

fn launch(dir: &Path) -> Launch {
    Launch::on(dir).set_all(&NO_FLUSH)
}

fn rows(ids: std::ops::Range<i64>) -> impl Iterator<Item = Value> {
    ids.map(|id| json!({ "ts": "2026-04-01T10:00:00Z", "id": id }))
}

async fn location(server: &Server) -> (String, PathBuf) {
    let location = server.table("cpu").await["location"].as_str().expect("should be a URL").to_owned();
    let path = url::Url::parse(&location).ok().and_then(|url| url.to_file_path().ok()).expect("should be a path");
    (location, path)
}

/// The ids in the Delta table, in order.
async fn ids(location: &str) -> Vec<i64> {
    let mut ids = delta::read(location).await.expect("should be a table").longs("id");
    ids.sort_unstable();
    ids
}

/// A flush that does not come to its end; gives what it says.
async fn refused_flush(server: &Server) -> String {
    let body = json!({ "tables": ["cpu"], "timeout": "1s" }).to_string();
    let reply = server.send("/v1/flush", &[("content-type", JSON)], body).await;
    assert!(reply.status >= 400, "{}", reply.text());
    reply.text()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_dropped_is_made_anew_by_the_rows_that_come_after() {
    let dir = kit::directory();
    let server = launch(dir.path()).start().await;
    server.append("cpu", rows(0..100)).await;
    server.flush().await;
    let (location, path) = location(&server).await;
    assert_eq!(ids(&location).await, (0..100).collect::<Vec<_>>());

    std::fs::remove_dir_all(&path).expect("should drop the table");
    server.append("cpu", rows(100..150)).await;
    server.flush().await;
    assert_eq!(ids(&location).await, (100..150).collect::<Vec<_>>());
    assert_eq!(server.count("cpu").await, 50);
    server.append("cpu", rows(150..160)).await;
    server.flush().await;
    assert_eq!(ids(&location).await, (100..160).collect::<Vec<_>>());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_table_in_its_place_stalls_it_by_name_until_that_is_moved_away() {
    let dir = kit::directory();
    let server = launch(dir.path()).start().await;
    for table in ["cpu", "disk"] {
        server.append(table, rows(0..100)).await;
    }
    server.flush().await;
    let (location, path) = location(&server).await;
    std::fs::remove_dir_all(&path).expect("should drop the table");
    let theirs = path.join("_delta_log");
    std::fs::create_dir_all(&theirs).expect("should make a directory");
    let fields = json!([{ "name": "x", "type": "long", "nullable": true, "metadata": {} }]);
    let metadata = json!({ "metaData": {
        "id": "1de1c4a0-5e5a-4c3e-9f63-2e8e1bb0a111", "format": { "provider": "parquet", "options": {} },
        "schemaString": json!({ "type": "struct", "fields": fields }).to_string(), "partitionColumns": [], "configuration": {},
    } });
    let protocol = json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 2 } });
    std::fs::write(theirs.join(format!("{:020}.json", 0)), format!("{protocol}\n{metadata}")).expect("should write");

    server.append("cpu", rows(100..150)).await;
    server.append("disk", rows(100..150)).await;
    let said = refused_flush(&server).await;
    assert!(said.contains("not ours") && said.contains("1de1c4a0"), "{said}");
    let status = server.status().await.to_string();
    assert!(status.contains("1de1c4a0"), "{status}");
    // A PUT of ours behind their version 0 is a part of their table; behind a gap it would have made that unreadable.
    deltalake::open_table(url::Url::parse(&location).expect("should be a URL")).await.expect("should be readable");
    let body = json!({ "tables": ["disk"], "timeout": "30s" }).to_string();
    server.send("/v1/flush", &[("content-type", JSON)], body).await.ok();

    std::fs::rename(&path, path.with_extension("theirs")).expect("should move it away");
    server.flush().await;
    assert_eq!(ids(&location).await, (100..150).collect::<Vec<_>>(), "what was not released is there, once");
    assert_eq!(server.count("disk").await, 150);
    server.stop().await;
}

fn copy(from: &Path, to: &Path) {
    for (path, bytes) in kit::files(from) {
        let inside = path.strip_prefix(from).expect("should lie inside");
        // The lake is not part of what is restored.
        if inside.starts_with("lake") {
            continue;
        }
        let target = to.join(inside);
        std::fs::create_dir_all(target.parent().expect("should have a parent")).expect("should make a directory");
        std::fs::write(target, bytes).expect("should write the copy");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_data_directory_is_refused_until_somebody_decides() {
    let (dir, backup) = (kit::directory(), kit::directory());
    let server = launch(dir.path()).start().await;
    server.append("cpu", rows(0..100)).await;
    server.flush().await;
    server.append("cpu", rows(100..150)).await;
    let (location, _) = location(&server).await;
    server.kill();
    copy(dir.path(), backup.path());

    // The original goes on, and loses its disk.
    let server = launch(dir.path()).start().await;
    server.append("cpu", rows(150..160)).await;
    server.flush().await;
    server.stop().await;
    assert_eq!(ids(&location).await, (0..160).collect::<Vec<_>>());
    for path in ["wal", "lanes"] {
        std::fs::remove_dir_all(dir.path().join(path)).expect("should lose it");
    }
    copy(backup.path(), dir.path());

    let server = launch(dir.path()).start().await;
    let said = refused_flush(&server).await;
    assert!(said.contains("restored or cloned") && said.contains("--doubt"), "{said}");
    assert_eq!(ids(&location).await, (0..160).collect::<Vec<_>>(), "nothing is doubled");
    assert_eq!(server.count("cpu").await, 210, "and nothing hidden");
    let url = format!("http://{}", server.address());
    penstock(&["flush", "--url", &url, "--doubt", "drop", "cpu"]).await.ok();
    assert_eq!(server.count("cpu").await, 160);
    server.append("cpu", rows(160..170)).await;
    server.flush().await;
    server.stop().await;
    assert_eq!(ids(&location).await, (0..170).collect::<Vec<_>>());
}
