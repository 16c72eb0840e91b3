//! Bytes that are no request, and connections on which nothing comes.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::Victim;
use crate::kit::wire::{Wire, post_head};

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_the_socket_ends_that_connection_and_nothing_else() {
    let victim = Victim::start(&[]).await;
    let address = victim.server.address().to_owned();
    let mut random = StdRng::seed_from_u64(7);
    let mut noise = vec![0_u8; 16 << 10];
    random.fill(noise.as_mut_slice());
    let long_path = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20));
    let many_headers = format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "x-y: z\r\n".repeat(5_000));
    let noises: [&[u8]; 8] = [
        &noise,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/sql HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/sql HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\nabcdefg",
        long_path.as_bytes(),
        many_headers.as_bytes(),
    ];
    for bytes in noises {
        let mut wire = Wire::to(&address).await;
        wire.send(bytes).await;
        wire.send(b"\r\n\r\n").await;
        let answer = wire.answer().await;
        assert!(is_refusal(&answer), "{:?} ... got {answer}", &bytes[..12]);
    }
    let mut wire = Wire::to(&address).await;
    wire.send(post_head("bad", "transfer-encoding: chunked\r\n").as_bytes()).await;
    wire.send(b"zz\r\n{}\r\n0\r\n\r\n").await;
    let answer = wire.answer().await;
    assert!(is_refusal(&answer), "{answer}");
    victim.check(&["good"]).await;
}

/// Silence, a 4xx, or, to those who begin as HTTP/2 does, something that is no HTTP/1 at all.
fn is_refusal(answer: &str) -> bool {
    !answer.starts_with("HTTP/1.1 ") || answer.starts_with("HTTP/1.1 4")
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_half_open_connections_are_let_go_and_hold_nobody_up() {
    let victim = Victim::start(&[("server.body_timeout", "1s"), ("server.max_connections", "64")]).await;
    let address = victim.server.address().to_owned();
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(Wire::to(&address).await);
    }
    let mut halves = Vec::new();
    for _ in 0..20 {
        let mut wire = Wire::to(&address).await;
        wire.send(post_head("good", "content-length: 1000\r\n").as_bytes()).await;
        wire.send(b"{\"ts\":").await;
        halves.push(wire);
    }
    let begun = Instant::now();
    assert_eq!(victim.server.count("good").await, 1, "others are served meanwhile");
    for mut wire in halves {
        let answer = wire.answer().await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{answer}");
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    // A sender that goes away in the middle of a body leaves nothing behind.
    let mut gone = Wire::to(&address).await;
    gone.send(post_head("good", "content-length: 1000\r\n").as_bytes()).await;
    gone.send(b"{\"ts\":\"2026-01-01T00:00:00Z\",\"id\":9}").await;
    drop(gone);
    drop(silent);
    victim.check(&["good"]).await;
}
