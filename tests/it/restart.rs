//! What a restart costs: after a checkpoint, or an orderly end, the next start reads nothing of the log; and while it reads, it says
//! how far it is.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kit::server::{Process, client};
use crate::kit::{self, Launch, NDJSON, NO_FLUSH, Reply, Server, delta, penstock};

/// Settings under which nothing is checkpointed unless it is asked for.
const NO_CHECKPOINT: [(&str, &str); 2] = [("store.checkpoint_interval", "0s"), ("store.checkpoint_log", "1GiB")];

fn launch(dir: &tempfile::TempDir) -> Launch {
    Launch::on(dir.path()).set_all(&NO_FLUSH).set_all(&NO_CHECKPOINT)
}

fn rows(ids: std::ops::Range<i64>) -> impl Iterator<Item = Value> {
    ids.map(|id| json!({ "ts": "2026-04-01T10:00:00Z", "id": id, "pad": "x".repeat(200) }))
}

/// A number of the status.
fn figure(status: &Value, pointer: &str) -> u64 {
    status.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no number {pointer} in {status}"))
}

/// Each row once, by SQL and after a flush in Delta.
async fn once_everywhere(server: Server, tables: &[&str], rows: u64) {
    for table in tables {
        assert_eq!(server.count(table).await, rows, "{table}");
    }
    server.flush().await;
    let mut locations = Vec::new();
    for table in tables {
        assert_eq!(server.count(table).await, rows, "{table} after the flush");
        locations.push(server.table(table).await["location"].as_str().expect("should be a URL").to_owned());
    }
    server.stop().await;
    for location in locations {
        let mut ids = delta::read(&location).await.expect("should be a Delta table").longs("id");
        ids.sort_unstable();
        let wanted: Vec<i64> = (0..i64::try_from(rows).expect("should fit")).collect();
        assert!(ids == wanted, "{location} has {} rows, or others than were posted", ids.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_checkpoint_a_killed_server_reads_next_to_nothing_and_has_every_row_once() {
    const TABLES: [&str; 3] = ["default.a", "default.b", "other.c"];
    let dir = kit::directory();
    let server = launch(&dir).start().await;
    for table in TABLES {
        for first in [0, 100, 200] {
            server.append(table, rows(first..first + 100)).await;
        }
    }
    let before = server.status().await;
    assert!(figure(&before, "/store/replay_bytes") > 150_000, "{before}");
    let said = penstock(&["checkpoint", "--url", &server.url]).await.ok();
    assert!(said.contains("rows moved") && said.contains("KiB"), "{said}");
    let after = server.status().await;
    assert_eq!(figure(&after, "/store/replay_bytes"), 0, "{after}");
    assert!(figure(&after, "/store/shards/0/checkpoints") >= 1, "{after}");
    assert_eq!(figure(&after, "/store/unflushed_rows"), 900, "a checkpoint is no flush: {after}");
    server.kill();

    let server = launch(&dir).start().await;
    let status = server.status().await;
    // What is written behind the last rows, a mark perhaps.
    assert!(figure(&status, "/store/recovery/log_bytes") <= 3 * 4096, "{status}");
    assert_eq!(figure(&status, "/store/recovery/records"), 0, "{status}");
    assert_eq!(figure(&status, "/store/unflushed_rows"), 900, "{status}");
    let said = penstock(&["status", "--url", &server.url]).await.ok();
    assert!(said.contains("restart") && said.contains("by a self-test; this start read"), "{said}");
    // From lane file and log together.
    for table in TABLES {
        server.append(table, rows(300..400)).await;
    }
    server.kill();
    once_everywhere(launch(&dir).start().await, &TABLES, 400).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_end_leaves_nothing_to_read_even_if_nothing_could_be_flushed() {
    let dir = kit::directory();
    let stone = kit::block_namespace(&dir.path().join("lake"), "default");
    let launch = launch(&dir).set("flush.shutdown_timeout", "100ms");
    for start in 1..=3 {
        let server = launch.start().await;
        let status = server.status().await;
        assert_eq!(figure(&status, "/store/recovery/log_bytes"), 0, "start {start}: {status}");
        server.append("kept", rows((start - 1) * 50..start * 50)).await;
        let log = server.stop().await;
        assert!(log.contains("stopping with rows that are not in Delta"), "{log}");
    }
    std::fs::remove_file(stone).expect("should repair the lake");
    once_everywhere(launch.start().await, &["default.kept"], 150).await;
}

/// A data directory whose log takes a while to read; gives its rows.
async fn long_log(launch: &Launch) -> u64 {
    const POSTS: i64 = 32;
    const ROWS: i64 = 600;
    let server = launch.start().await;
    for post in 0..POSTS {
        let ids = post * ROWS..(post + 1) * ROWS;
        let body =
            kit::ndjson(ids.map(|id| json!({ "ts": "2026-04-01T10:00:00Z", "id": id, "pad": "x".repeat(2_000) })));
        server.post("long", NDJSON, body).await.ok();
    }
    server.kill();
    (POSTS * ROWS) as u64
}

/// An address that nobody listens on, so that a server can be spoken to before it tells its own.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("should find a port");
    listener.local_addr().expect("should have an address").to_string()
}

/// Asks until the port is open.
async fn first_answer(process: &mut Process, http: &reqwest::Client, url: &str) -> Reply {
    loop {
        if let Ok(reply) = Reply::try_of(http.get(url)).await {
            return reply;
        }
        assert!(process.exited().is_none(), "{}", process.log());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_takes_long_tells_how_far_it_is_and_can_be_stopped() {
    let dir = kit::directory();
    let rows = long_log(&launch(&dir)).await;
    let address = free_address();
    let launch = launch(&dir).option("--listen", &address);
    let (http, url) = (client(), format!("http://{address}"));

    let mut process = launch.spawn();
    let ready = format!("{url}/readyz");
    let mut said = Vec::new();
    loop {
        let announced = process.address().is_some();
        let reply = first_answer(&mut process, &http, &ready).await;
        if reply.status == 200 {
            break;
        }
        assert!(!announced, "the port file is for a server that is ready");
        assert_eq!((reply.status, reply.header("retry-after"), reply.refusal().as_str()), (503, Some("1"), "starting"));
        said.push(reply.json()["error"]["message"].as_str().expect("should be a message").to_owned());
        if said.len() == 1 {
            assert_eq!(Reply::of(http.get(format!("{url}/healthz"))).await.status, 200);
            let post = http.post(format!("{url}/v1/tables/early/rows")).header("content-type", NDJSON);
            let reply = Reply::of(post.body(kit::ndjson(self::rows(0..1_000)))).await;
            // On a busy machine it may be ready by now.
            let is_ready = Reply::of(http.get(&ready)).await.status == 200;
            assert!(reply.status == 200 && is_ready || reply.refusal() == "starting", "{}", reply.text());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    said.dedup();
    assert!(said.iter().any(|s| s.starts_with("reading the log: ") && s.ends_with(" %)")), "{said:?}");
    let status = Reply::of(http.get(format!("{url}/v1/status"))).await.ok();
    assert!(figure(&status, "/store/recovery/log_bytes") > 16 << 20, "{status}");
    assert!(figure(&status, "/store/replay_rate") > 0, "{status}");
    assert_eq!(status["store"]["replay_rate_basis"], "measured", "{status}");
    process.kill();

    let mut process = launch.spawn();
    assert_eq!(first_answer(&mut process, &http, &ready).await.status, 503);
    process.signal(Signal::TERM);
    let status = process.ended().await;
    let log = process.log();
    assert!(status.success(), "{status}: {log}");
    // Unless it was ready before the signal arrived.
    assert!(log.contains("nothing is lost") && process.address().is_none() || log.contains("ready"), "{log}");
    assert_eq!(launch.start().await.count("long").await, rows);
}
