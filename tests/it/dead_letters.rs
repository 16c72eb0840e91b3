//! Rejected rows through the real binary: kept as they were sent, listed, corrected, and replayed once each, wherever the process dies.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kit::{self, JSON, Launch, NDJSON, NO_FLUSH, Reply, Server, delta, penstock};

const TABLE: &str = "ops.requests";
const LETTERS: &str = "ops.dead_letters";

fn definition(columns: &[(&str, &str)]) -> Value {
    let mut all = vec![json!({ "name": "ts", "type": "timestamp", "nullable": false })];
    all.extend(columns.iter().map(|(name, kind)| json!({ "name": name, "type": kind })));
    json!({ "columns": all, "event_time": "ts", "event_time_unit": "ms" })
}

/// Ten rows, of which those with odd ids have a column that the table lacks.
fn rows(from: i64) -> String {
    let row = |id: i64| match id % 2 {
        0 => json!({ "ts": 1_772_913_600_000_i64 + id, "id": id }),
        _ => json!({ "ts": 1_772_913_600_000_i64 + id, "id": id, "region": "eu" }),
    };
    kit::ndjson((from..from + 10).map(row))
}

async fn listed(server: &Server, more: &str) -> Vec<Value> {
    let reply = server.get(&format!("/v1/dead-letters?namespace=ops{more}")).await.ok();
    reply["letters"].as_array().expect("should be a list").clone()
}

async fn replay(server: &Server) -> Value {
    let body = json!({ "table": TABLE }).to_string();
    server.send("/v1/dead-letters/replay", &[("content-type", JSON)], body).await.ok()
}

async fn ids(server: &Server) -> Vec<i64> {
    let rows = server.sql(&format!("select id from {TABLE} order by id")).await;
    rows.iter().map(|row| row["id"].as_i64().expect("should be a number")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_rows_are_kept_shown_and_replayed_after_a_fix() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    let url = server.url.clone();
    server.declare(TABLE, &definition(&[("id", "int")])).await;
    let reply = server.post(TABLE, NDJSON, rows(0)).await.ok();
    assert_eq!((&reply["rows"], &reply["rejected"], &reply["dead_letters"]), (&json!(5), &json!(5), &json!(5)));
    // None of these is good; they are kept all the same.
    let bad = "{\"ts\":1772913600000,\"id\":3000000000}\n{\"ts\":17729136";
    let reply = server.post(TABLE, NDJSON, bad).await;
    assert_eq!((reply.status, &reply.json()["dead_letters"]), (422, &json!(2)), "{}", reply.text());
    // The sender of these keeps them.
    let reply = server.send(&format!("/v1/tables/{TABLE}/rows?on_error=abort"), &[("content-type", NDJSON)], bad).await;
    assert_eq!((reply.status, &reply.json()["dead_letters"]), (422, &json!(0)), "{}", reply.text());

    let letters = listed(&server, "").await;
    assert_eq!(letters.len(), 7);
    let first = &letters[0];
    assert_eq!(first["original"], rows(0).lines().nth(1).expect("should be there"));
    assert_eq!(
        (&first["code"], &first["column"], &first["row"]),
        (&json!("unknown_column"), &json!("region"), &json!(2))
    );
    assert_eq!(
        (&first["table"], &first["source"], &first["state"]),
        (&json!(TABLE), &json!("ndjson"), &json!("pending"))
    );
    assert_eq!(first["sender"], "127.0.0.1");
    assert_eq!(listed(&server, "&code=invalid_json").await[0]["original"], "{\"ts\":17729136");
    let id = first["id"].as_str().expect("should be text");
    let shown = penstock(&["dead-letters", "show", id, "--namespace", "ops", "--url", &url]).await.ok();
    assert!(shown.contains("\"region\":\"eu\"") && shown.contains("remedy"), "{shown}");
    // Nothing has been corrected yet.
    let early = penstock(&["dead-letters", "replay", "--table", TABLE, "--url", &url]).await.ok();
    assert!(
        early.contains("replayed 0") && early.contains("7 still do not fit") && early.contains("region"),
        "{early}"
    );
    assert_eq!(ids(&server).await, [0, 2, 4, 6, 8]);

    // The letters are a table like others, over a flush and a restart.
    server.flush().await;
    server.stop().await;
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    assert_eq!(listed(&server, "").await.len(), 7);
    server.declare(TABLE, &definition(&[("id", "long"), ("region", "string")])).await;
    let outcome = replay(&server).await;
    assert_eq!((&outcome["replayed"], &outcome["still_rejected"]), (&json!(6), &json!(1)), "{outcome}");
    let wanted: Vec<i64> = (0..10).chain([3_000_000_000]).collect();
    assert_eq!(ids(&server).await, wanted);
    let again = replay(&server).await;
    assert_eq!((&again["replayed"], &again["still_rejected"]), (&json!(0), &json!(1)), "{again}");
    assert_eq!(ids(&server).await, wanted);
    assert_eq!((listed(&server, "").await.len(), listed(&server, "&state=all").await.len()), (1, 7));
    let listed = penstock(&["dead-letters", "list", "--namespace", "ops", "--all", "--url", &server.url]).await.ok();
    assert!(listed.contains("replayed") && listed.contains("pending") && listed.contains(TABLE), "{listed}");
    let refused = server.post(LETTERS, NDJSON, "{\"id\":\"x\"}").await;
    assert_eq!(refused.refusal(), "reserved_table");
    assert_eq!(server.declare(LETTERS, &definition(&[])).await.refusal(), "reserved_table");

    server.flush().await;
    for (table, count) in [(TABLE, 11), (LETTERS, 7 + 6 + 6)] {
        let location = server.table(table).await["location"].as_str().expect("should be a URL").to_owned();
        assert_eq!(delta::read(&location).await.expect("should be a table").rows(), count, "{table}");
    }
    server.stop().await;
}

/// The process dies in the middle of a replay, or between the letters and the rows of one post.
async fn dies_at(place: &str, shards: &str) {
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH).set("store.shards", shards);
    let server = launch.start().await;
    server.declare(TABLE, &definition(&[("id", "long")])).await;
    server.post(TABLE, NDJSON, rows(0)).await.ok();
    server.declare(TABLE, &definition(&[("id", "long"), ("region", "string")])).await;
    server.stop().await;
    let mut server = launch.clone().env("PENSTOCK_FAILPOINT", place).start().await;
    let request = server.http().post(server.at("/v1/dead-letters/replay")).header("content-type", JSON);
    let answer = Reply::try_of(request.body(json!({ "table": TABLE }).to_string())).await;
    let status = server.process.ended().await;
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{place}: {answer:?}\n{}", server.process.log());
    drop(server);
    // Twice: the second one finds nothing to do, also behind a checkpoint and a flush.
    for (round, replayed) in [(1, 5), (2, 0)] {
        let server = launch.start().await;
        let outcome = replay(&server).await;
        assert_eq!(
            (&outcome["replayed"], &outcome["resumed"]),
            (&json!(replayed), &json!(replayed)),
            "{place} {round}"
        );
        assert_eq!(ids(&server).await, (0..10).collect::<Vec<_>>(), "{place} {round}");
        assert!(listed(&server, "").await.is_empty(), "{place} {round}");
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_is_cut_short_appends_each_row_once() {
    for place in ["ingest::replay::named", "ingest::replay::appended"] {
        for shards in ["1", "2"] {
            dies_at(place, shards).await;
        }
    }
}

/// Letters are durable before the rows of their post: dead in between, the post was not acknowledged and is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_post_that_is_cut_short_between_its_letters_and_its_rows_loses_neither() {
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH).set("store.shards", "8").set("store.segment", "1MiB");
    let mut server = launch.clone().env("PENSTOCK_FAILPOINT", "ingest::letters::durable").start().await;
    // Tables lie on shards by their ids, which are random: some of them on another shard than the letters.
    let mut taken = 0;
    let table = loop {
        let table = format!("ops.t{taken}");
        let declared = server.declare(&table, &definition(&[("id", "long")])).await;
        assert_eq!(declared.status, 201, "{}", declared.text());
        let request = server.http().post(server.at(&format!("/v1/tables/{table}/rows"))).header("content-type", NDJSON);
        match Reply::try_of(request.body(rows(0))).await {
            Ok(reply) => assert_eq!(reply.ok()["rows"], 5),
            Err(_) => break table,
        }
        taken += 1;
        assert!(taken < 30, "letters and rows are never on two shards");
    };
    assert_eq!(server.process.ended().await.signal(), Some(Signal::KILL.as_raw()));
    drop(server);
    let server = launch.start().await;
    assert_eq!(server.count(&table).await, 0, "the post was never acknowledged");
    assert_eq!(listed(&server, &format!("&table={table}")).await.len(), 5, "and its letters are there");
    server.post(&table, NDJSON, rows(0)).await.ok();
    assert_eq!(server.count(&table).await, 5);
    server.stop().await;
}

/// With a key it is known whose letters they are: sent again, the post leaves them once, wherever the tables lie.
#[tokio::test(flavor = "multi_thread")]
async fn a_post_with_a_key_leaves_its_letters_once_however_often_it_is_sent() {
    for shards in ["1", "2"] {
        let dir = kit::directory();
        let launch = Launch::on(dir.path()).set_all(&NO_FLUSH).set("store.shards", shards);
        let server = launch.start().await;
        server.declare(TABLE, &definition(&[("id", "long")])).await;
        server.stop().await;
        let (path, headers) =
            (format!("/v1/tables/{TABLE}/rows"), [("content-type", NDJSON), ("idempotency-key", "a")]);
        let mut server = launch.clone().env("PENSTOCK_FAILPOINT", "ingest::letters::durable").start().await;
        let request =
            headers.iter().fold(server.http().post(server.at(&path)), |r, (name, value)| r.header(*name, *value));
        assert!(Reply::try_of(request.body(rows(0))).await.is_err(), "it dies between letters and rows");
        assert_eq!(server.process.ended().await.signal(), Some(Signal::KILL.as_raw()));
        drop(server);
        let mut receipts = Vec::new();
        for _ in 0..2 {
            let server = launch.start().await;
            for _ in 0..2 {
                let reply = server.send(&path, &headers, rows(0)).await.ok();
                assert_eq!((&reply["rows"], &reply["rejected"]), (&json!(5), &json!(5)), "{reply}");
                receipts.push(reply["receipt"].clone());
            }
            assert_eq!(
                (ids(&server).await, listed(&server, "").await.len()),
                (vec![0, 2, 4, 6, 8], 5),
                "{shards} shards"
            );
            server.stop().await;
        }
        receipts.dedup();
        assert_eq!(receipts.len(), 1, "{receipts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_of_nothing_but_bad_rows_is_told_to_wait() {
    let dir = kit::directory();
    let limits = [("ingest.rejected_per_minute", "2KiB"), ("ingest.max_rejected_rows", "20")];
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).set_all(&limits).start().await;
    server.declare(TABLE, &definition(&[("id", "long")])).await;
    let bad = |count: usize| "{\"ts\":1772913600000,\"id\":\"not a number\"}\n".repeat(count);
    assert_eq!(server.post(TABLE, NDJSON, bad(21)).await.refusal(), "too_many_rejected");
    let mut kept = 0;
    let refused = loop {
        let reply = server.post(TABLE, NDJSON, format!("{{\"ts\":1772913600000,\"id\":1}}\n{}", bad(10))).await;
        if reply.status != 200 {
            break reply;
        }
        kept += 10;
        assert!(kept < 100, "should be limited");
    };
    assert_eq!((refused.status, refused.refusal().as_str()), (429, "too_many_dead_letters"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(listed(&server, "").await.len(), kept, "what was refused left nothing");
    assert_eq!(server.count(TABLE).await, kept as u64 / 10);
    // Good rows are not held up.
    server.post(TABLE, NDJSON, "{\"ts\":1772913600000,\"id\":1}").await.ok();
    server.stop().await;
}
