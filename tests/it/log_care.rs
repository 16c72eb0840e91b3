//! Checkpoints and log clean-up of a running server, as readers see them that know nothing of it.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::kit::{self, Launch, NO_FLUSH, python};

const SCRIPT: &str = include_str!("sums.py");

fn rows(ids: std::ops::Range<i64>) -> Vec<Value> {
    let time = |id: i64| format!("2026-03-07T20:{:02}:{:02}Z", id / 60 % 60, id % 60);
    ids.map(|id| json!({ "ts": time(id), "id": id, "load": 0.5 })).collect()
}

/// Makes everything in the log a hundred days old but its newest entry: what was seen of that vouches for the log.
fn age(log: &Path) {
    let newest = names(log).into_iter().filter(|name| name.ends_with(".json")).max();
    for name in names(log).into_iter().filter(|name| Some(name) != newest.as_ref()) {
        let path = log.join(name);
        let old = SystemTime::now() - Duration::from_secs(100 * 86_400);
        File::options().append(true).open(path).expect("should open").set_modified(old).expect("should set the time");
    }
}

fn names(log: &Path) -> Vec<String> {
    let names = std::fs::read_dir(log).expect("should list").map(|entry| entry.expect("should list").file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn other_readers_read_a_table_whose_log_was_cleaned() {
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH).set("lake.checkpoint_every", "4");
    let server = launch.start().await;
    let log = dir.path().join("lake/default/cpu/_delta_log");
    let mut flushed = 0;
    // Every flush is a version; the log is made old behind each, so that only what must stay stays.
    while flushed < 5 || names(&log).iter().any(|name| *name == format!("{:020}.json", 3)) {
        server.append("cpu", rows(flushed * 10..flushed * 10 + 10)).await;
        server.flush().await;
        flushed += 1;
        assert!(flushed < 100, "the log is never cleaned: {:?}", names(&log));
        age(&log);
    }
    server.append("cpu", rows(flushed * 10..flushed * 10 + 10)).await;
    server.flush().await;
    flushed += 1;
    let count = flushed * 10;
    let ids = count * (count - 1) / 2;
    let found = json!({ "count": count, "ids": ids });
    let sums = "select count(*) as count, sum(id) as ids from cpu";
    assert_eq!(server.row(sums).await, found);
    server.kill();
    let server = launch.start().await;
    assert_eq!(server.row(sums).await, found, "over a restart");
    server.append("cpu", rows(count..count + 10)).await;
    server.flush().await;
    server.stop().await;
    let left = names(&log);
    assert!(left.contains(&"_last_checkpoint".to_owned()) && left.len() < 16, "{left:?}");

    let modules = ["deltalake", "pyarrow", "duckdb", "duckdb_extension_delta", "polars"];
    let Some(program) = python::with(&modules) else { return };
    let table = log.parent().expect("should have a parent").display().to_string();
    let found = python::run(&program, SCRIPT, &[&table, "load"], &[]).await;
    let (count, ids) = (count + 10, (count + 10) * (count + 9) / 2);
    for (reader, found) in found.as_object().expect("should be an object") {
        assert_eq!((&found["count"], &found["ids"]), (&json!(count), &json!(ids)), "{reader}");
        assert_eq!(found["load"][0], json!(count), "{reader}");
    }
}
