//! Bytes on the wire that stand for more in memory: posts of one row, much JSON at once, bodies that decompress to a thousand times
//! their length, rows that leave most columns out. What counts is what is allocated, and the process stays within what it was allowed.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{FIXED_MEMORY, figure, peak_memory, resident};
use crate::kit::senders;
use crate::kit::{self, Launch, NDJSON, NO_FLUSH, Server};

const ALL: [(&str, &str); 2] = [("admission.table_share", "1.0"), ("admission.namespace_share", "1.0")];
/// Nothing leaves memory for a lane.
const NO_CHECKPOINT: [(&str, &str); 3] =
    [("store.checkpoint_interval", "0s"), ("store.checkpoint_log", "1GiB"), ("admission.replay_budget", "1h")];

/// One-row posts on one connection, many of them on their way at a time.
async fn one_row_posts(address: String, first: u64, posts: u64) {
    const AT_ONCE: u64 = 50;
    let mut stream = TcpStream::connect(address).await.expect("should connect");
    let mut answers = vec![0; 64 << 10];
    for chunk in (first..first + posts).step_by(AT_ONCE as usize) {
        let (mut text, count) = (String::new(), AT_ONCE.min(first + posts - chunk));
        for id in chunk..chunk + count {
            let body = format!("{{\"ts\":\"2026-04-01T10:00:00Z\",\"id\":{id}}}\n");
            let head = "POST /v1/tables/one.row/rows HTTP/1.1\r\nhost: p\r\ncontent-type: application/x-ndjson\r\n";
            let _ = write!(text, "{head}content-length: {}\r\n\r\n{body}", body.len());
        }
        stream.write_all(text.as_bytes()).await.expect("should send");
        let (mut acked, mut seen) = (0, Vec::new());
        while acked < count {
            let read = stream.read(&mut answers).await.expect("should be answered");
            assert!(read > 0, "hung up");
            seen.extend_from_slice(&answers[..read]);
            // Counted anew each time: an answer may be cut in two.
            let text = String::from_utf8_lossy(&seen);
            assert!(!text.contains("HTTP/1.1 4") && !text.contains("HTTP/1.1 5"), "{text}");
            acked = text.matches("\"receipt\"").count() as u64;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_of_one_row_count_as_what_they_take_and_not_as_what_was_sent() {
    let _turn = super::alone().await;
    const CONNECTIONS: u64 = 64;
    let posts: u64 = if std::env::var_os("PENSTOCK_OVERLOAD_SECONDS").is_some() { 260_000 } else { 52_000 };
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH).set_all(&ALL).set_all(&NO_CHECKPOINT);
    let server = launch.set("flush.shutdown_timeout", "1s").start().await;
    // Warm: what a connection and a table take by themselves is there.
    one_row_posts(server.address().to_owned(), 0, 2_000).await;
    let (before, rest) = (resident(&server), posts - 2_000);
    let held = async || figure(&server.status().await, "/store/unflushed_memory");
    let (held_before, began) = (held().await, std::time::Instant::now());
    let each = rest.div_ceil(CONNECTIONS);
    let tasks: Vec<_> = (0..CONNECTIONS)
        .map(|n| {
            let first = 2_000 + n * each;
            tokio::spawn(one_row_posts(server.address().to_owned(), first, each.min(posts.saturating_sub(first))))
        })
        .collect();
    for task in tasks {
        task.await.expect("should not panic");
    }
    let status = server.status().await;
    let (grown, counted) = (resident(&server) - before, figure(&status, "/store/unflushed_memory") - held_before);
    let payload = figure(&status, "/store/unflushed_bytes");
    println!(
        "{posts} posts in {:?}: {} KiB resident, {} KiB counted, {} KiB of payload",
        began.elapsed(),
        grown >> 10,
        counted >> 10,
        payload >> 10
    );
    assert_eq!(figure(&status, "/store/unflushed_rows"), posts);
    assert!(counted > payload + posts * 200, "{counted} counted for {posts} posts of {payload} bytes");
    // The connections' buffers come on top.
    let slack = CONNECTIONS * (512 << 10);
    assert!(grown <= counted + counted / 4 + slack, "{grown} bytes more are resident and {counted} counted");
    server.kill();
}

/// A post that is sent again as it is told to; gives the last status.
async fn insist(server: &Server, table: &str, headers: &[(&str, &str)], body: bytes::Bytes) -> (u16, u64) {
    for attempt in 0.. {
        let reply = server.send(&format!("/v1/tables/{table}/rows"), headers, body.clone()).await;
        if reply.status != 503 {
            return (reply.status, attempt);
        }
        tokio::time::sleep(senders::wait(&reply)).await;
    }
    unreachable!("attempts do not end")
}

#[tokio::test(flavor = "multi_thread")]
async fn much_json_at_once_is_decoded_within_what_may_be_in_flight() {
    let _turn = super::alone().await;
    const POSTS: u64 = 10;
    const ROWS: u64 = 45_000;
    const IN_FLIGHT: u64 = 192 << 20;
    const UNFLUSHED: u64 = 384 << 20;
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH).set_all(&ALL).set_all(&[
        ("admission.max_in_flight", "192MiB"),
        ("admission.max_unflushed", "384MiB"),
        ("server.body_timeout", "60s"),
        ("store.checkpoint_log", "32MiB"),
        ("flush.shutdown_timeout", "1s"),
    ]);
    let server = launch.start().await;
    let definition = json!({
        "columns": [
            { "name": "ts", "type": "timestamp", "nullable": false },
            { "name": "id", "type": "long" },
            { "name": "pad", "type": "string" },
        ],
        "event_time": "ts",
    });
    assert_eq!(server.declare("big.json", &definition).await.status, 201);
    let body = |post: u64| {
        let mut text = String::new();
        for id in post * ROWS..(post + 1) * ROWS {
            let _ = writeln!(text, "{{\"ts\":\"2026-04-01T10:00:00Z\",\"id\":{id},\"pad\":\"{id:x>600}\"}}");
        }
        bytes::Bytes::from(text)
    };
    let bodies: Vec<_> = (0..POSTS).map(body).collect();
    let sent: usize = bodies.iter().map(bytes::Bytes::len).sum();
    assert!(sent > 285_000_000, "{sent} bytes");
    let (began, headers) = (std::time::Instant::now(), [("content-type", NDJSON)]);
    let posts = bodies.into_iter().map(|body| insist(&server, "big.json", &headers, body));
    let outcomes = futures::future::join_all(posts).await;
    let peak = peak_memory(&server);
    println!("{sent} bytes in {:?}, peak {} MiB, {outcomes:?}", began.elapsed(), peak >> 20);
    assert!(outcomes.iter().all(|(status, _)| *status == 200), "{outcomes:?}");
    assert!(peak <= FIXED_MEMORY + IN_FLIGHT + UNFLUSHED, "{} MiB", peak >> 20);
    // Some of them in the lake by now: a bucket is sealed when it is large enough.
    assert_eq!(server.count("big.json").await, POSTS * ROWS);
    server.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_stand_for_a_thousand_times_their_length_are_held_to_what_may_be_in_flight() {
    let _turn = super::alone().await;
    const IN_FLIGHT: u64 = 48 << 20;
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH).set("flush.seal_bytes", "1TiB");
    let server = launch.set("admission.max_in_flight", "48MiB").set("flush.shutdown_timeout", "1s").start().await;
    let mut columns: Vec<_> = (0..400).map(|n| json!({ "name": format!("c{n}"), "type": "long" })).collect();
    columns.push(json!({ "name": "id", "type": "long" }));
    assert_eq!(server.declare("wide", &json!({ "columns": columns })).await.status, 201);
    // Twenty megabytes that are no row, compressed to twenty kilobytes.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&vec![b'x'; 20 << 20]).expect("should compress");
    let bomb = bytes::Bytes::from(gzip.finish().expect("should compress"));
    // And nine kilobytes that are ten megabytes of columns.
    let sparse = bytes::Bytes::from("{}\n".repeat(3_000));
    let zipped = [("content-type", NDJSON), ("content-encoding", "gzip")];
    let plain = [("content-type", NDJSON)];
    let bombs = (0..6).map(|_| insist(&server, "wide", &zipped, bomb.clone()));
    let rows = (0..12).map(|_| insist(&server, "wide", &plain, sparse.clone()));
    let (bombs, rows) = tokio::join!(futures::future::join_all(bombs), futures::future::join_all(rows));
    let peak = peak_memory(&server);
    println!("peak {} MiB; bombs {bombs:?}; sparse rows {rows:?}", peak >> 20);
    assert!(bombs.iter().all(|(status, _)| *status == 422), "{bombs:?}");
    assert!(rows.iter().all(|(status, _)| *status == 200), "{rows:?}");
    // What was taken waits in memory, as what it is.
    let waiting = figure(&server.status().await, "/store/unflushed_bytes");
    // One that is alone may take twice as much. All of them at once would be several times that.
    assert!(peak <= FIXED_MEMORY + 2 * IN_FLIGHT + waiting, "{} MiB, {} MiB waiting", peak >> 20, waiting >> 20);
    server.kill();
}
