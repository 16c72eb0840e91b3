//! SIGTERM and SIGINT: no new requests, the running ones finish, exit code 0, nothing lost, and a log that the next start has
//! nothing to do with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::kit::wire::{Wire, post_head};
use crate::kit::{self, Launch, NDJSON, NO_FLUSH, Reply, Server, delta};

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_under_load_loses_nothing_and_leaves_a_clean_log() {
    under_load(Signal::TERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigint_under_load_loses_nothing_and_leaves_a_clean_log() {
    under_load(Signal::INT).await;
}

async fn under_load(signal: Signal) {
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH);
    let server = launch.start().await;
    let (acked, stop) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicBool::new(false)));
    let senders: Vec<_> = (0..4)
        .map(|i| tokio::spawn(post_until_refused(server.url.clone(), i, Arc::clone(&acked), Arc::clone(&stop))))
        .collect();
    kit::until("some posts", async || (acked.load(Ordering::SeqCst) >= 200).then_some(())).await;
    let log = server.stop_by(signal).await;
    stop.store(true, Ordering::SeqCst);
    let mut ambiguous = 0;
    for sender in senders {
        ambiguous += sender.await.expect("should not panic");
    }
    assert!(log.contains("draining"), "{log}");

    let (acked, server) = (acked.load(Ordering::SeqCst), launch.start().await);
    let status = server.status().await;
    assert_eq!(status["store"]["unflushed_rows"], 0, "the first server should have flushed everything: {status}");
    let location = server.table("load").await["location"].as_str().expect("should be a URL").to_owned();
    let counted = server.count("load").await;
    server.stop().await;
    let disk = delta::read(&location).await.expect("should be a Delta table");
    let mut ids = disk.longs("id");
    assert_eq!(ids.len() as u64, counted);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len() as u64, counted, "rows are there twice");
    let counted = i64::try_from(counted).expect("should fit");
    assert!(
        (acked..=acked + ambiguous).contains(&counted),
        "{acked} acknowledged, {ambiguous} unknown, {counted} found"
    );
}

/// Posts single connections' rows until the server stops taking them; gives the rows of which nobody knows what became.
async fn post_until_refused(base: String, sender: i64, acked: Arc<AtomicI64>, stop: Arc<AtomicBool>) -> i64 {
    const ROWS: i64 = 10;
    let http = kit::server::client();
    for post in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let row = |i| json!({ "ts": "2026-04-01T10:00:00Z", "id": sender * 1_000_000 + post * ROWS + i });
        let request = http.post(format!("{base}/v1/tables/load/rows")).header("content-type", NDJSON);
        match Reply::try_of(request.body(kit::ndjson((0..ROWS).map(row)))).await {
            Ok(reply) if reply.status == 200 => {
                acked.fetch_add(ROWS, Ordering::SeqCst);
            }
            Ok(reply) => assert_eq!(reply.status, 503, "{}", reply.text()),
            Err(error) if error.is_connect() => return 0,
            Err(_) => return ROWS,
        }
    }
    0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_that_has_begun_is_finished_before_the_server_ends() {
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH);
    let server = launch.start().await;
    let body = kit::ndjson((0..50).map(|id| json!({ "ts": "2026-04-01T10:00:00Z", "id": id })));
    let (first, rest) = body.split_at(body.len() / 2);
    let mut wire = Wire::to(server.address()).await;
    wire.send(post_head("slow", &format!("content-length: {}\r\n", body.len())).as_bytes()).await;
    wire.send(first.as_bytes()).await;
    in_flight(&server).await;
    server.process.signal(Signal::TERM);
    let address = server.address().to_owned();
    kit::until("no new connections", async || tokio::net::TcpStream::connect(&address).await.err()).await;
    wire.send(rest.as_bytes()).await;
    let answer = wire.answer().await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.stop().await;
    let server = launch.start().await;
    assert_eq!(server.count("slow").await, 50);
    server.stop().await;
}

/// Waits until the server has seen the beginning of a post.
async fn in_flight(server: &Server) {
    kit::until("a post in flight", async || {
        let status = server.status().await;
        (status["admission"]["in_flight_bytes"].as_u64()? > 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_lake_that_is_down_a_drain_ends_in_time_and_keeps_the_rows() {
    let dir = kit::directory();
    let stone = kit::block_namespace(&dir.path().join("lake"), "default");
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH).set("flush.shutdown_timeout", "300ms");
    let server = launch.start().await;
    server.append("kept", (0..100).map(|id| json!({ "ts": "2026-04-01T10:00:00Z", "id": id }))).await;
    let begun = std::time::Instant::now();
    let log = server.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(log.contains("stopping with rows that are not in Delta"), "{log}");

    std::fs::remove_file(stone).expect("should repair the lake");
    let server = launch.start().await;
    assert_eq!(server.count("kept").await, 100);
    server.flush().await;
    let location = server.table("kept").await["location"].as_str().expect("should be a URL").to_owned();
    server.stop().await;
    assert_eq!(delta::read(&location).await.expect("should be a Delta table").rows(), 100);
}
