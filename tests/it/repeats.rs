//! What a sender may rely on when it sends a post again, and what it can learn of one that was acknowledged.

use serde_json::{Value, json};

use crate::kit::{self, JSON, Launch, NDJSON, NO_FLUSH, Reply, Server};

const ROWS: &str = "/v1/tables/orders/rows";
const BODY: &str = "{\"ts\":\"2026-03-01T10:00:00Z\",\"id\":1}\n{\"ts\":\"2026-03-01T11:00:00Z\",\"id\":2}\n";
const OTHER: &str = "{\"ts\":\"2026-03-01T10:00:00Z\",\"id\":3}\n";

async fn keyed(server: &Server, key: &str, body: &'static str) -> Reply {
    server.send(ROWS, &[("content-type", NDJSON), ("idempotency-key", key)], body).await
}

async fn numbered(server: &Server, epoch: &str, sequence: &str, body: impl Into<reqwest::Body>) -> Reply {
    let headers = [
        ("content-type", NDJSON),
        ("penstock-producer", "agent 1"),
        ("penstock-epoch", epoch),
        ("penstock-sequence", sequence),
    ];
    server.send(ROWS, &headers, body).await
}

fn receipt(reply: &Reply) -> String {
    reply.ok()["receipt"].as_str().expect("should be text").to_owned()
}

fn refused(reply: &Reply) -> (u16, String) {
    (reply.status, reply.refusal())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_a_post_safe_to_repeat_over_restarts() {
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH);
    let mut server = launch.start().await;
    let first = keyed(&server, "order 7", BODY).await;
    assert_eq!((first.header("penstock-repeated"), &first.ok()["rows"]), (None, &json!(2)));
    assert!(first.ok()["created"].is_object());
    for round in 0..3 {
        let again = keyed(&server, "order 7", BODY).await;
        assert_eq!(again.header("penstock-repeated"), Some("true"));
        let (told, first) = (again.ok(), first.ok());
        for field in ["table", "rows", "receipt", "durability"] {
            assert_eq!(told[field], first[field], "round {round}");
        }
        assert_eq!(refused(&keyed(&server, "order 7", OTHER).await), (422, "post_id_reused".to_owned()));
        assert_eq!(server.count("orders").await, 2);
        match round {
            0 => server.kill(),
            _ => drop(server.stop().await),
        }
        server = launch.start().await;
    }
    // Keys count by table, and the compression of a body does not.
    let headers = [("content-type", NDJSON), ("idempotency-key", "order 7")];
    assert_ne!(receipt(&server.send("/v1/tables/others/rows", &headers, BODY).await), receipt(&first));
    let mut gzip = flate2::read::GzEncoder::new(BODY.as_bytes(), flate2::Compression::best());
    let mut packed = Vec::new();
    std::io::Read::read_to_end(&mut gzip, &mut packed).expect("should compress");
    let headers = [("content-type", NDJSON), ("idempotency-key", "order 7"), ("content-encoding", "gzip")];
    assert_eq!(receipt(&server.send(ROWS, &headers, packed).await), receipt(&first));
    // The table may have become one that would not take the rows.
    assert_eq!(server.count("orders").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_leaves_nothing_behind() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).set("ingest.create_tables", "false").start().await;
    assert_eq!(refused(&keyed(&server, "k", BODY).await), (404, "unknown_table".to_owned()));
    let definition = json!({ "columns": [{ "name": "ts", "type": "timestamp", "nullable": false }, { "name": "id", "type": "long" }],
        "event_time": "ts" });
    assert_eq!(server.declare("orders", &definition).await.status, 201, "the definition");
    let broken = keyed(&server, "k", "{\"ts\":\"2026-03-01T10:00:00Z\",\"id\":").await;
    assert!((400..500).contains(&broken.status), "{}", broken.text());
    let taken = keyed(&server, "k", BODY).await;
    assert_eq!((taken.header("penstock-repeated"), server.count("orders").await), (None, 2), "{}", taken.text());
    let headers = |more: &[(&'static str, &'static str)]| [&[("content-type", NDJSON)], more].concat();
    for more in [
        &[("idempotency-key", "a"), ("penstock-producer", "p"), ("penstock-sequence", "0")][..],
        &[("penstock-producer", "p")],
        &[("penstock-sequence", "1")],
        &[("penstock-producer", "p"), ("penstock-sequence", "one")],
        &[("idempotency-key", "")],
    ] {
        let reply = server.send(ROWS, &headers(more), OTHER).await;
        assert_eq!(refused(&reply), (400, "bad_post_id".to_owned()), "{more:?}");
    }
    assert_eq!(server.count("orders").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_come_in_any_order_a_new_epoch_fences_the_old_one_and_gaps_are_told() {
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH);
    let server = launch.start().await;
    let body = |n: u64| format!("{{\"ts\":\"2026-03-01T10:00:00Z\",\"id\":{n}}}\n");
    let mut receipts = Vec::new();
    for n in [3, 0, 2, 5] {
        receipts.push((n, receipt(&numbered(&server, "1", &n.to_string(), body(n)).await)));
    }
    for (n, first) in &receipts {
        assert_eq!(receipt(&numbered(&server, "1", &n.to_string(), body(*n)).await), *first);
    }
    assert_eq!(refused(&numbered(&server, "1", "3", body(4)).await), (422, "post_id_reused".to_owned()));
    // Far ahead: what is missing below the window will not be taken any more.
    numbered(&server, "1", "1030", body(1030)).await.ok();
    assert_eq!(refused(&numbered(&server, "1", "4", body(4)).await), (409, "unknown_sequence".to_owned()));
    assert_eq!(server.status().await["tables"][0]["sequence_gaps"], 3, "1, 4 and 6 lie below 1030 - 1023");
    numbered(&server, "2", "0", body(100)).await.ok();
    let fenced = numbered(&server, "1", "1031", body(1031)).await;
    assert_eq!(refused(&fenced), (409, "fenced".to_owned()));
    assert!(fenced.text().contains("epoch 2"), "{}", fenced.text());
    server.kill();
    let server = launch.start().await;
    assert_eq!(refused(&numbered(&server, "1", "1031", body(1031)).await), (409, "fenced".to_owned()));
    assert_eq!(server.count("orders").await, 6);
}

/// Everything that can be asked of a receipt, from the ack to the table.
#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_tells_how_far_its_rows_are() {
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH);
    let server = launch.start().await;
    let first = receipt(&keyed(&server, "a", BODY).await);
    let ask = async |server: &Server, receipt: &str, query: &str| {
        let reply = server.get(&format!("/v1/receipts/{receipt}{query}")).await;
        (reply.status, reply.json())
    };
    let (status, standing) = ask(&server, &first, "").await;
    assert_eq!(status, 200);
    let expected = json!({ "receipt": first, "table": "default.orders", "state": "durable", "durable": true, "sealed": false,
        "committed": false, "delta_version": null, "message": standing["message"] });
    assert_eq!(standing, expected);
    assert!(standing["message"].as_str().is_some_and(|m| m.contains("nothing to send again")), "{standing}");
    let (status, standing) = ask(&server, &first, "?wait=committed&timeout=100ms").await;
    assert_eq!((status, &standing["state"]), (202, &json!("durable")));
    // A post that waits, and is told in time; and one that is told that it is on its way.
    let headers = [("content-type", NDJSON)];
    let late = server.send(&format!("{ROWS}?wait=committed&timeout=50ms"), &headers, OTHER).await;
    assert_eq!(
        (late.status, &late.ok()["durability"], &late.ok()["state"]),
        (202, &json!("synced"), &json!("durable"))
    );
    let waiting = {
        let (http, url) = (kit::server::client(), server.at(&format!("{ROWS}?wait=committed&timeout=30s")));
        tokio::spawn(async move { Reply::of(http.post(url).header("content-type", NDJSON).body(OTHER)).await })
    };
    kit::until("the waiting post's row", async || (server.count("orders").await == 4).then_some(())).await;
    server.flush().await;
    let told = waiting.await.expect("should not panic");
    assert_eq!((told.status, &told.ok()["state"]), (200, &json!("committed")), "{}", told.text());
    let version = told.ok()["delta_version"].as_u64().expect("should be known");
    let (status, standing) = ask(&server, &first, "?wait=committed").await;
    assert_eq!((status, &standing["state"], &standing["committed"]), (200, &json!("committed"), &json!(true)));
    assert!(standing["delta_version"].as_u64() <= Some(version) && standing["delta_version"].is_u64(), "{standing}");
    let before = standing;
    server.kill();

    let server = launch.start().await;
    assert_eq!(ask(&server, &first, "").await, (200, before), "after a restart");
    for (text, expected) in [
        ("x", (400, "bad_receipt")),
        (&first.replace(":", ":9"), (404, "unknown_receipt")),
        (&first.replacen(&first[..8], "00000000", 1), (404, "receipt_of_another_node")),
    ] {
        let reply = server.get(&format!("/v1/receipts/{text}")).await;
        assert_eq!((reply.status, reply.refusal().as_str()), expected, "{text}");
    }
    let bad = server.get(&format!("/v1/receipts/{first}?wait=forever")).await;
    assert_eq!(refused(&bad), (400, "bad_parameter".to_owned()));
    let bad = server.get(&format!("/v1/receipts/{first}?wait=committed&timeout=soon")).await;
    assert_eq!(refused(&bad), (400, "bad_parameter".to_owned()));
    drop(server.stop().await);
    // The history is what knows the version; without it the rows are in the table all the same.
    std::fs::remove_file(dir.path().join("catalog.db")).expect("should be there");
    let server = launch.start().await;
    let (_, standing) = ask(&server, &first, "").await;
    assert_eq!((&standing["state"], &standing["delta_version"]), (&json!("committed"), &Value::Null));
    assert!(standing["message"].as_str().is_some_and(|m| m.contains("no longer known")), "{standing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_directory_does_not_know_what_the_original_wrote_later() {
    let (dir, copy) = (kit::directory(), kit::directory());
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH);
    let server = launch.start().await;
    let shared = receipt(&keyed(&server, "a", BODY).await);
    drop(server.stop().await);
    for (path, bytes) in kit::files(dir.path()) {
        let to = copy.path().join(path.strip_prefix(dir.path()).expect("should lie in it"));
        std::fs::create_dir_all(to.parent().expect("should have a parent")).expect("should be made");
        std::fs::write(to, bytes).expect("should be written");
    }
    let server = launch.start().await;
    let later = receipt(&keyed(&server, "b", OTHER).await);
    drop(server.stop().await);
    let server = Launch::on(copy.path()).set_all(&NO_FLUSH).start().await;
    // Its own record at the same place is another one.
    keyed(&server, "c", OTHER).await.ok();
    assert_eq!(server.get(&format!("/v1/receipts/{shared}")).await.status, 200);
    let reply = server.get(&format!("/v1/receipts/{later}")).await;
    assert_eq!(refused(&reply), (404, "unknown_receipt".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_can_be_held_to_a_receipt() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    let first = receipt(&keyed(&server, "a", BODY).await);
    let text = "select count(*) as n from orders";
    let named = json!({ "sql": text, "receipt": first }).to_string();
    let reply = server.send("/v1/sql", &[("content-type", JSON)], named).await;
    assert_eq!(reply.ok()["rows"][0]["n"], 2);
    let headers = [("content-type", "text/plain"), ("penstock-receipt", first.as_str())];
    assert_eq!(server.send("/v1/sql", &headers, text).await.ok()["rows"][0]["n"], 2);
    let other = first.replacen(&first[..8], "00000000", 1);
    let headers = [("content-type", "text/plain"), ("penstock-receipt", other.as_str())];
    assert_eq!(refused(&server.send("/v1/sql", &headers, text).await), (404, "receipt_of_another_node".to_owned()));
    let headers = [("content-type", "text/plain"), ("penstock-receipt", "nonsense")];
    assert_eq!(refused(&server.send("/v1/sql", &headers, text).await), (400, "bad_receipt".to_owned()));
}

/// Many wait for little: a stop answers all of them at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_answers_those_who_wait() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).set("flush.shutdown_timeout", "0s").start().await;
    let first = receipt(&keyed(&server, "a", BODY).await);
    let url = server.at(&format!("/v1/receipts/{first}?wait=committed&timeout=5m"));
    let waiting: Vec<_> = (0..200)
        .map(|_| {
            let (http, url) = (server.http().clone(), url.clone());
            tokio::spawn(async move { Reply::of(http.get(url)).await })
        })
        .collect();
    // While they wait, others are served.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(server.count("orders").await, 2);
    assert!(waiting.iter().all(|w| !w.is_finished()), "they should wait");
    drop(server.stop().await);
    for reply in waiting {
        let reply = reply.await.expect("should not panic");
        assert_eq!((reply.status, &reply.json()["state"]), (202, &json!("durable")));
    }
}
