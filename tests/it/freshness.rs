//! A row that was acknowledged is counted by every query that begins afterwards, and never goes away: while posts and flushes go
//! on, a count never goes back, never misses an acknowledged row and never counts a row twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::kit::{self, Launch, NDJSON, Reply, Server};

const WRITERS: u64 = 3;
const ROWS: u64 = 20;
const RUN: Duration = Duration::from_secs(6);
const ENOUGH: u64 = 10;

#[derive(Debug, Default)]
struct Progress {
    sent: AtomicU64,
    acked: AtomicU64,
    stop: AtomicBool,
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_never_go_back_and_never_miss_an_acknowledged_row() {
    let dir = kit::directory();
    let settings = [
        ("flush.max_age", "150ms"),
        ("flush.min_age", "50ms"),
        ("flush.seal_bytes", "64KiB"),
        ("store.segment", "1MiB"),
    ];
    let server = Arc::new(Launch::on(dir.path()).set_all(&settings).start().await);
    let progress = Arc::new(Progress::default());
    // Two dates, so that two buckets are open and flushed side by side.
    server.append("fresh", [json!({ "ts": "2026-05-01T23:59:00Z", "id": u64::MAX >> 2, "w": 0 })]).await;
    progress.sent.store(1, Ordering::SeqCst);
    progress.acked.store(1, Ordering::SeqCst);

    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        tasks.push(tokio::spawn(write(Arc::clone(&server), Arc::clone(&progress), writer)));
    }
    tasks.push(tokio::spawn(flush(Arc::clone(&server), Arc::clone(&progress))));
    let queries = read(&server, &progress).await;
    progress.stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.expect("should not panic");
    }

    let acked = progress.acked.load(Ordering::SeqCst);
    assert_eq!(server.count("fresh").await, acked, "after the last post");
    let version = server.table("fresh").await["delta_version"].as_u64().expect("should have been flushed");
    println!("{queries} queries over {acked} rows and {version} Delta versions");
    assert!(queries >= ENOUGH && version >= 5, "{queries} queries, {version} versions: too few to show anything");
    server.flush().await;
    assert_eq!(server.count("fresh").await, acked, "after the last flush");
}

/// Counts in a tight loop: for a while, and on a busy machine until there were enough queries to show anything.
async fn read(server: &Server, progress: &Progress) -> u64 {
    let (mut queries, mut last) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < RUN || queries < ENOUGH && begun.elapsed() < kit::PATIENCE {
        let before = progress.acked.load(Ordering::SeqCst);
        let row =
            server.row("select count(*) as n, count(distinct id) as d, count(distinct date) as days from fresh").await;
        let after = progress.sent.load(Ordering::SeqCst);
        let n = row["n"].as_u64().expect("should be a count");
        assert_eq!(row["d"], n, "a row was counted twice");
        assert!(n >= before, "{before} rows were acknowledged before a query that saw {n}");
        assert!(n >= last, "a query saw {n} rows, the one before it {last}");
        assert!(n <= after, "{n} rows were seen and only {after} sent");
        (queries, last) = (queries + 1, n);
    }
    queries
}

async fn write(server: Arc<Server>, progress: Arc<Progress>, writer: u64) {
    let http = kit::server::client();
    for post in 0.. {
        if progress.stop.load(Ordering::SeqCst) {
            return;
        }
        let row = |i: u64| {
            let id = writer * 1_000_000_000 + post * ROWS + i;
            let minute = id % 60;
            let hour = if i.is_multiple_of(2) { "2026-05-01T23" } else { "2026-05-02T00" };
            json!({ "ts": format!("{hour}:{minute:02}:00Z"), "id": id, "w": writer })
        };
        let body = kit::ndjson((0..ROWS).map(row));
        progress.sent.fetch_add(ROWS, Ordering::SeqCst);
        let request = http.post(server.at("/v1/tables/fresh/rows")).header("content-type", NDJSON).body(body);
        Reply::of(request).await.ok();
        progress.acked.fetch_add(ROWS, Ordering::SeqCst);
    }
}

/// Flushes on demand come between those by age and size.
async fn flush(server: Arc<Server>, progress: Arc<Progress>) {
    while !progress.stop.load(Ordering::SeqCst) {
        server.flush().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
