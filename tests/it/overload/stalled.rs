//! Bodies that are announced and do not come, or come a byte at a time, by the dozen: they hold no room that others need, and nothing is
//! left of them when their time is over.

use std::time::Duration;

use serde_json::json;

use super::figure;
use crate::kit::wire::{Wire, post_head};
use crate::kit::{self, Launch, NDJSON, NO_FLUSH, Server};

const TIMEOUT: (&str, &str) = ("server.body_timeout", "3s");

async fn in_flight(server: &Server) -> u64 {
    figure(&server.status().await, "/admission/in_flight_bytes")
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_stall_take_no_room_from_others_and_hold_none_for_ever() {
    let _turn = super::alone().await;
    let dir = kit::directory();
    let settings = [TIMEOUT, ("admission.max_in_flight", "16MiB")];
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).set_all(&settings).start().await;
    let row = |id: u64| json!({ "ts": "2026-04-01T10:00:00Z", "id": id, "pad": "x".repeat(1_000) });
    server.append("well", [row(0)]).await;
    let mut stalled = Vec::new();
    for at in 0..60 {
        let mut wire = Wire::to(server.address()).await;
        match at % 4 {
            // Half a head: nothing is known of a post yet.
            0 => wire.send(&post_head("well", "content-length: 8000000\r\n").as_bytes()[..60]).await,
            // Fifteen times eight megabytes are more than there is room for.
            1 => {
                wire.send(post_head("well", "content-length: 8000000\r\n").as_bytes()).await;
                wire.send(b"{\"ts\":").await;
            }
            // An unknown length, in pieces.
            2 => {
                wire.send(post_head("well", "transfer-encoding: chunked\r\n").as_bytes()).await;
                wire.send(b"6\r\n{\"ts\":\r\n").await;
            }
            // A table that does not exist.
            _ => wire.send(post_head("new", "content-length: 8000000\r\n").as_bytes()).await,
        }
        stalled.push(wire);
    }
    kit::until("all of them", async || (in_flight(&server).await > 30 * 16_000).then_some(())).await;
    // Others go on meanwhile, also with large bodies.
    let body = kit::ndjson((1..1_001).map(row));
    for _ in 0..5 {
        let reply = server.post("well", NDJSON, body.clone()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    for (at, mut wire) in stalled.into_iter().enumerate().filter(|(at, _)| at % 4 != 0) {
        let answer = wire.answer().await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{at}: {answer}");
    }
    kit::until("nothing in flight", async || (in_flight(&server).await == 0).then_some(())).await;
    assert_eq!(server.count("well").await, 5_001);
    assert_eq!(server.get("/v1/tables/new").await.status, 404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_a_byte_at_a_time_is_given_up() {
    let _turn = super::alone().await;
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).set_all(&[TIMEOUT]).start().await;
    let mut wire = Wire::to(server.address()).await;
    wire.send(post_head("slow", "content-length: 100000\r\n").as_bytes()).await;
    // Something moves all the time, for longer than a body may take.
    for _ in 0..50 {
        wire.send(b" ").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let answer = wire.answer().await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    kit::until("nothing in flight", async || (in_flight(&server).await == 0).then_some(())).await;
    server.stop().await;
}
