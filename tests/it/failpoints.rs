//! The process is killed at each step between the seal of a generation and the record that it is committed: what the next start
//! makes of it is in the table once, whatever was on its way, and no file is left that nothing refers to.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kit::replay::replay;
use crate::kit::{self, JSON, Launch, NO_FLUSH, Reply, delta};

/// Where it dies, and what the lake holds then.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// For `PENSTOCK_FAILPOINT`.
    name: &'static str,
    /// Whether the table is there already.
    table: bool,
    /// The version that the log ends at when the process is dead; none if it has not begun.
    version: Option<u64>,
    /// Whether files of the generation have to be there then.
    files: bool,
}

const fn place(name: &'static str, version: u64, files: bool) -> Place {
    Place { name, table: true, version: Some(version), files }
}

/// With a table at version 1, and a second commit on its way.
const STEADY: [Place; 7] = [
    // The Seal record is durable, and nothing else has happened.
    place("flush::upload::before", 1, false),
    // Some of the generation's files are up.
    place("lake::write_data::part:3", 1, true),
    place("flush::upload::after", 1, true),
    place("lake::place::before", 1, true),
    // The commit is in the table, and nobody has heard of it.
    place("lake::place::after", 2, true),
    // It is published, and the log does not know.
    place("flush::record::before", 2, true),
    place("flush::record::after", 2, true),
];

/// With the commit that creates the table on its way.
const FIRST: [Place; 3] = [
    Place { name: "lake::place::before", table: false, version: None, files: true },
    Place { name: "lake::place::after", table: false, version: Some(0), files: true },
    Place { name: "lake::place::after:2", table: false, version: Some(1), files: true },
];

/// Rows of each post of the generation: more than are packed, which would make one batch of all posts.
const POST: usize = 40;
/// Behind the ids of three of them.
const END: i64 = 10 + 3 * POST as i64;

fn rows(ids: std::ops::Range<i64>) -> impl Iterator<Item = Value> {
    ids.map(|id| json!({ "ts": format!("2026-04-01T10:{:02}:{:02}Z", id / 60, id % 60), "id": id }))
}

async fn dies_at(place: Place) {
    println!("{place:?}");
    let dir = kit::directory();
    let table = dir.path().join("lake/default/t");
    // Every batch of rows is a file of its own.
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH).set("flush.target_file_bytes", "1").set("store.shards", "1");
    let launch = launch.set("flush.orphan_age", "0s");
    let mut before = 0;
    if place.table {
        let server = launch.start().await;
        server.append("t", rows(0..10)).await;
        server.flush().await;
        server.stop().await;
        before = kit::objects_in(&table).keys().filter(|path| path.ends_with(".parquet")).count();
    }
    let mut server = launch.clone().env("PENSTOCK_FAILPOINT", place.name).start().await;
    for first in (10..END).step_by(POST) {
        server.append("t", rows(first..first + POST as i64)).await;
    }
    let request = server.http().post(server.at("/v1/flush")).header("content-type", JSON);
    let answer = Reply::try_of(request.body(json!({ "timeout": "30s" }).to_string())).await;
    let status = server.process.ended().await;
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{place:?}: {answer:?}\n{}", server.process.log());
    let found = kit::objects_in(&table);
    let entries = found.keys().filter(|path| path.starts_with("_delta_log/") && path.ends_with(".json"));
    assert_eq!(entries.max().map(|_| replay("t", &found).version), place.version, "{place:?}");
    let files = found.keys().filter(|path| path.ends_with(".parquet")).count();
    assert_eq!(files > before, place.files, "{place:?}: {files} files, {before} before");
    drop(server);

    let first = if place.table { 0 } else { 10 };
    let server = launch.start().await;
    let count = u64::try_from(END - first).expect("should fit");
    assert_eq!(server.count("t").await, count, "{place:?}");
    server.flush().await;
    assert_eq!(server.count("t").await, count, "{place:?} after the flush");
    // One more: what was in doubt must not come back with it either.
    server.append("t", rows(END..END + 10)).await;
    server.flush().await;
    let shown = server.table("t").await;
    kit::until("the sweep to be through", async || (server.status().await["flush"]["open_uploads"] == 0).then_some(()))
        .await;
    server.stop().await;

    let objects = kit::objects_in(&table);
    let log = replay("t", &objects);
    let mut ids = log.longs("t", &objects, "id");
    ids.sort_unstable();
    assert_eq!(ids, (first..END + 10).collect::<Vec<_>>(), "{place:?}");
    let location = shown["location"].as_str().expect("should be a URL");
    assert_eq!(delta::read(location).await.expect("should be a table").rows(), ids.len() as u64);
    let orphans = log.orphans(&objects);
    assert!(orphans.is_empty(), "{place:?} leaves files that nothing refers to: {orphans:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_seal_and_cursor_every_row_is_in_the_table_once() {
    for place in STEADY {
        dies_at(place).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_table_is_created_every_row_is_in_it_once() {
    for place in FIRST {
        dies_at(place).await;
    }
}
