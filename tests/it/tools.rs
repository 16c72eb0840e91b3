//! The operator's tools for a stopped server, through the binary: look, check, repair, and another number of logs.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::kit::command::{Ran, penstock};
use crate::kit::{self, Launch, NO_FLUSH, Server};

fn launch(dir: &Path) -> Launch {
    Launch::on(dir).set_all(&NO_FLUSH).set("store.shards", "1").set("store.segment", "1MiB")
}

async fn posts(server: &Server, table: &str, first: i64, posts: i64) {
    for id in first..first + posts {
        server.append(table, [json!({ "ts": "2026-04-01T10:00:00Z", "id": id, "pad": "x".repeat(5_000) })]).await;
    }
}

async fn wal(dir: &Path, arguments: &[&str]) -> Ran {
    let dir = dir.to_str().expect("should be text");
    penstock(&[&["wal"], arguments, &["--data-dir", dir]].concat()).await
}

async fn checkpoint(server: &Server) {
    penstock(&["checkpoint", "--url", &server.url]).await.ok();
}

fn newest_segment(dir: &Path) -> PathBuf {
    let segments = kit::files(&dir.join("wal")).into_iter().map(|(path, _)| path);
    segments.filter(|path| path.extension().is_some_and(|e| e == "seg")).max().expect("should have a segment")
}

fn ids(rows: &[Value]) -> Vec<i64> {
    rows.iter().map(|row| row["id"].as_i64().expect("should be a number")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_log_is_looked_into_checked_and_repaired() {
    let dir = kit::directory();
    let server = launch(dir.path()).start().await;
    posts(&server, "kept", 0, 5).await;
    let said = wal(dir.path(), &["inspect"]).await.failed();
    assert!(said.contains("in use"), "a running server's log is not looked into: {said}");
    checkpoint(&server).await;
    posts(&server, "kept", 5, 8).await;
    server.kill();

    let looked: Value =
        serde_json::from_str(&wal(dir.path(), &["inspect", "--json"]).await.ok()).expect("should be JSON");
    let generations = looked["shards"][0]["generations"].as_array().expect("should have generations");
    let rows: u64 = generations.iter().map(|g| g["rows"].as_u64().expect("should be a number")).sum();
    assert_eq!(rows, 13, "{looked:#}");
    assert!(wal(dir.path(), &["inspect"]).await.ok().contains("in the log"));
    wal(dir.path(), &["verify"]).await.ok();

    // One row in the middle of the log.
    let segment = newest_segment(dir.path());
    let bytes = std::fs::read(&segment).expect("should read the segment");
    let starts: Vec<usize> = (4096..bytes.len()).step_by(4096).filter(|at| bytes[*at..].starts_with(b"PNSG")).collect();
    let at = starts[starts.len() / 2] + 3_000;
    let file = OpenOptions::new().write(true).open(&segment).expect("should open the segment");
    file.write_all_at(&[bytes[at] ^ 1], at as u64).expect("should damage it");
    assert!(launch(dir.path()).refused().await.contains("penstock wal"), "the refusal should name the tool");
    let said = wal(dir.path(), &["verify"]).await;
    let name = segment.file_name().expect("should have a name").to_string_lossy().into_owned();
    assert!(said.code == Some(1) && said.stdout.contains(&name), "{said:?}");

    let planned = wal(dir.path(), &["repair"]).await.ok();
    assert!(planned.contains("--yes"), "it says how to go on: {planned}");
    assert_eq!(std::fs::read(&segment).expect("should be there")[at], bytes[at] ^ 1, "and does nothing");
    let done = wal(dir.path(), &["repair", "--yes"]).await.ok();
    assert!(done.contains("quarantine"), "{done}");
    wal(dir.path(), &["verify"]).await.ok();
    let server = launch(dir.path()).start().await;
    let left = ids(&server.sql("select id from kept order by id").await);
    assert_eq!(left.len(), 12, "one row is lost, and one only: {left:?}");
    posts(&server, "kept", 100, 1).await;
    server.flush().await;
    assert_eq!(ids(&server.sql("select id from kept order by id").await), [left, vec![100]].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_logs_and_lanes_keeps_every_row() {
    let dir = kit::directory();
    let lanes = kit::directory();
    let server = launch(dir.path()).start().await;
    for table in ["a", "b", "c", "d"] {
        posts(&server, table, 0, 4).await;
    }
    checkpoint(&server).await;
    for table in ["a", "b", "c", "d"] {
        posts(&server, table, 4, 3).await;
    }
    server.kill();
    let data = dir.path().to_str().expect("should be text").to_owned();
    let first_lane = dir.path().join("lanes/0").to_str().expect("should be text").to_owned();
    let second_lane = lanes.path().to_str().expect("should be text").to_owned();
    let now = ["--data-dir", &data, "--set", "store.shards=1"];
    let wanted = ["--shards", "3", "--lane", &first_lane, "--lane", &second_lane];
    let said = penstock(&[&["reshape"], &now[..], &wanted[..]].concat()).await.ok();
    assert!(said.contains('3'), "{said}");

    let said = launch(dir.path()).refused().await;
    assert!(said.contains("3 shards"), "the old number is refused: {said}");
    let lanes_setting = format!("[\"{first_lane}\",\"{second_lane}\"]");
    let reshaped = || launch(dir.path()).set("store.shards", "3").set("store.lanes", &lanes_setting);
    let server = reshaped().start().await;
    for table in ["a", "b", "c", "d"] {
        assert_eq!(ids(&server.sql(&format!("select id from {table} order by id")).await), (0..7).collect::<Vec<_>>());
        posts(&server, table, 7, 1).await;
    }
    server.kill();
    let server = reshaped().start().await;
    server.flush().await;
    for table in ["a", "b", "c", "d"] {
        assert_eq!(server.count(table).await, 8);
    }
}
