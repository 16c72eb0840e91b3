//! Past the limit on unflushed bytes posts are refused, with a time after which to come again; nothing that was acknowledged is
//! lost, and once the lake takes writes again everything goes on by itself.

use std::collections::BTreeSet;

use serde_json::json;

use crate::kit::{self, JSON, Launch, NDJSON, Server, delta};

const SETTINGS: [(&str, &str); 5] = [
    ("admission.max_unflushed", "192KiB"),
    ("admission.table_share", "1.0"),
    ("admission.namespace_share", "1.0"),
    ("flush.max_age", "200ms"),
    ("flush.min_age", "50ms"),
];

/// Posts of about 10 KiB until one is refused; gives the ids that were acknowledged.
async fn fill(server: &Server, first: i64) -> BTreeSet<i64> {
    let mut acked = BTreeSet::new();
    for post in 0..200 {
        let ids: Vec<i64> = (first + post * 10..first + (post + 1) * 10).collect();
        let row = |id: &i64| json!({ "ts": "2026-04-01T10:00:00Z", "id": id, "pad": "x".repeat(1_000) });
        let reply = server.post("full", NDJSON, kit::ndjson(ids.iter().map(row))).await;
        if reply.status == 200 {
            acked.extend(ids);
            continue;
        }
        assert_eq!((reply.status, reply.refusal().as_str()), (503, "over_unflushed_limit"), "{}", reply.text());
        let wait: u64 =
            reply.header("retry-after").and_then(|w| w.parse().ok()).expect("should say when to come again");
        assert!((1..=60).contains(&wait), "{wait}");
        assert!(reply.text().contains("Retry-After"), "{}", reply.text());
        return acked;
    }
    panic!("200 posts were taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lake_that_takes_no_writes_fills_the_node_and_the_node_recovers_by_itself() {
    let dir = kit::directory();
    let stone = kit::block_namespace(&dir.path().join("lake"), "default");
    let server = Launch::on(dir.path()).set_all(&SETTINGS).start().await;
    let mut acked = fill(&server, 0).await;
    assert!((5..30).contains(&(acked.len() / 10)), "{} posts were taken", acked.len() / 10);

    let status = kit::until("the reason in the status", async || {
        let status = server.status().await;
        status["tables"][0]["last_error"].is_string().then_some(status)
    })
    .await;
    assert!(status["admission"]["refusals"].as_u64() >= Some(1), "{status}");
    assert_eq!(status["store"]["unflushed_rows"], acked.len(), "{status}");
    assert_eq!(server.get("/readyz").await.status, 200, "an outage of the lake is no reason to take the node out");
    // A declaration is not a post: it needs no room.
    let definition = json!({ "columns": [{ "name": "n", "type": "long" }] });
    assert_eq!(server.declare("declared", &definition).await.status, 201);
    // Whether the rows can be read meanwhile depends on what the lake can still tell; a wrong answer is not among the choices.
    let count = server.ask("select count(*) as n from \"full\"").await;
    match count.status {
        200 => assert_eq!(count.json()["rows"][0]["n"], acked.len()),
        503 => assert_eq!(count.refusal(), "lake_unavailable"),
        other => panic!("{other}: {}", count.text()),
    }
    let flush = server.send("/v1/flush", &[("content-type", JSON)], json!({ "timeout": "300ms" }).to_string()).await;
    assert_eq!((flush.status, flush.refusal().as_str()), (504, "flush_timeout"), "{}", flush.text());

    std::fs::remove_file(stone).expect("should repair the lake");
    kit::until("room again", async || {
        let row = json!({ "ts": "2026-04-01T11:00:00Z", "id": -1, "pad": "y" });
        (server.post("full", NDJSON, kit::ndjson([row])).await.status == 200).then_some(())
    })
    .await;
    acked.insert(-1);
    server.flush().await;
    let status = server.status().await;
    let table = status["tables"].as_array().and_then(|t| t.iter().find(|t| t["table"] == "default.full")).cloned();
    assert_eq!(
        table.expect("should be there")["last_error"],
        json!(null),
        "an error that is over is forgotten: {status}"
    );
    check(server, &acked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_node_that_is_killed_keeps_its_rows_and_its_limit() {
    let dir = kit::directory();
    // Nobody listens on port 1.
    let down = [
        ("lake.url", "s3://nowhere/lake"),
        ("lake.storage.endpoint", "http://127.0.0.1:1"),
        ("lake.storage.access_key_id", "id"),
        ("lake.storage.secret_access_key", "key"),
        ("lake.call_timeout", "2s"),
    ];
    let launch = Launch::on(dir.path()).set_all(&SETTINGS);
    let server = launch.clone().set_all(&down).start().await;
    let mut acked = fill(&server, 0).await;
    server.kill();

    let server = launch.clone().set_all(&down).start().await;
    assert_eq!(server.status().await["store"]["unflushed_rows"], acked.len(), "all of it is still there");
    let more = fill(&server, 1_000_000).await;
    assert!(more.len() <= 10, "the limit counts what was there before the start: {}", more.len());
    acked.extend(more);
    server.kill();

    let server = launch.start().await;
    server.flush().await;
    assert!(!fill_once(&server, 2_000_000).await.is_empty());
    acked.extend(2_000_000..2_000_010);
    server.flush().await;
    check(server, &acked).await;
}

async fn fill_once(server: &Server, first: i64) -> Vec<i64> {
    let ids: Vec<i64> = (first..first + 10).collect();
    let rows = ids.iter().map(|id| json!({ "ts": "2026-04-01T12:00:00Z", "id": id, "pad": "z" }));
    server.append("full", rows).await;
    ids
}

/// Every acknowledged row is in the table on disk, once, and nothing else is.
async fn check(server: Server, acked: &BTreeSet<i64>) {
    assert_eq!(server.count("\"full\"").await, acked.len() as u64);
    let location = server.table("full").await["location"].as_str().expect("should be a URL").to_owned();
    server.stop().await;
    let mut found = delta::read(&location).await.expect("should be a Delta table").longs("id");
    found.sort_unstable();
    assert_eq!(found, acked.iter().copied().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_that_could_never_fit_is_told_so() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set("admission.max_unflushed", "64KiB").start().await;
    let row = json!({ "ts": "2026-04-01T10:00:00Z", "pad": "x".repeat(100_000) });
    let reply = server.post("large", NDJSON, kit::ndjson([row])).await;
    assert_eq!((reply.status, reply.refusal().as_str()), (413, "body_too_large"), "{}", reply.text());
    assert_eq!(reply.header("retry-after"), None, "coming again would not help");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_flushed_fills_its_own_share_and_others_go_on() {
    let dir = kit::directory();
    let stone = kit::block_namespace(&dir.path().join("lake"), "stuck");
    let settings = [
        ("admission.max_unflushed", "384KiB"),
        ("admission.table_share", "0.25"),
        ("admission.namespace_share", "0.5"),
        ("flush.max_age", "200ms"),
        ("flush.min_age", "50ms"),
    ];
    let server = Launch::on(dir.path()).set_all(&settings).start().await;
    let row = |id: u64| json!({ "ts": "2026-04-01T10:00:00Z", "id": id, "pad": "x".repeat(1_000) });
    let send = async |table: &str, id: u64| server.post(table, NDJSON, kit::ndjson((id..id + 10).map(row))).await;
    let mut taken = 0;
    let refused = loop {
        let reply = send("stuck.rows", taken * 10).await;
        if reply.status != 200 {
            break reply;
        }
        taken += 1;
        assert!(taken < 20, "96 KiB are full by now");
    };
    assert_eq!((refused.status, refused.refusal().as_str()), (429, "over_table_share"), "{}", refused.text());
    let wait: u64 = refused.header("retry-after").and_then(|w| w.parse().ok()).expect("should say when to come again");
    assert!((1..=30).contains(&wait), "{wait}");
    assert!(taken >= 5, "{taken} posts were taken");

    // A second table of the namespace gets what is left of the namespace's, and no more.
    let mut beside = 0;
    while send("stuck.others", beside * 10).await.status == 200 {
        beside += 1;
        assert!(beside < 20, "96 KiB are full by now");
    }
    assert!(beside >= 5, "{beside} posts were taken");
    // Elsewhere several times as much as the node may hold goes through, as it reaches Delta. It is held up now and then, at most.
    for post in 0..100 {
        kit::until("room for a table that is well", async || {
            let reply = send("well", post * 10).await;
            assert!(reply.status == 200 || reply.status == 503, "{}", reply.text());
            (reply.status == 200).then_some(())
        })
        .await;
    }
    assert_eq!(send("stuck.rows", taken * 10).await.status, 429, "its share is still full");

    std::fs::remove_file(stone).expect("should repair the lake");
    kit::until("room again", async || (send("stuck.rows", taken * 10).await.status == 200).then_some(())).await;
    server.flush().await;
    assert_eq!(server.count("stuck.rows").await, (taken + 1) * 10);
    assert_eq!(server.count("stuck.others").await, beside * 10);
    assert_eq!(server.count("well").await, 1_000);
    let scraped = server.get("/metrics").await.text();
    let refusals =
        scraped.lines().find(|l| l.starts_with("penstock_admission_refusals_total{reason=\"over_table_share\"}"));
    let refusals: u64 = refusals.and_then(|l| l.rsplit(' ').next()?.parse().ok()).expect("should be counted");
    assert!(refusals >= 2, "{refusals}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usage_is_one_look_whose_sums_agree() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&kit::NO_FLUSH).start().await;
    let row = |id: u64| json!({ "ts": "2026-04-01T10:00:00Z", "id": id, "pad": "x".repeat(100) });
    for (table, rows) in [("ops.cpu", 10), ("ops.disk", 5), ("web.hits", 7)] {
        server.append(table, (0..rows).map(row)).await;
    }
    let status = server.status().await;
    let usage = &status["usage"];
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or_else(|| panic!("should be a number: {status}"));
    let tables = status["tables"].as_array().expect("should be a list");
    for (figure, rows) in [("unflushed_rows", Some(22.0)), ("unflushed_bytes", None)] {
        let of_tables: f64 = tables.iter().map(|table| number(&table[figure])).sum();
        let of_namespaces = usage["namespaces"].as_array().expect("should be a list");
        let of_namespaces: f64 = of_namespaces.iter().map(|of| number(&of[figure])).sum();
        assert!(of_tables == of_namespaces && of_tables == number(&usage[figure]), "{figure}: {status}");
        assert!(of_tables == number(&status["store"][figure]) && rows.is_none_or(|rows| rows == of_tables), "{status}");
    }
    let oldest = tables.iter().map(|table| number(&table["lag_seconds"])).fold(0.0, f64::max);
    assert_eq!(number(&usage["lag_seconds"]), oldest);
    let names: Vec<_> =
        usage["namespaces"].as_array().into_iter().flatten().map(|of| of["namespace"].clone()).collect();
    assert_eq!(names, ["ops", "web"]);
    for limit in ["decode_limit_bytes", "encode_limit_bytes"] {
        assert_eq!(number(&usage[limit]), f64::from(256 << 20), "{limit}");
    }
    let disks = usage["disks"].as_array().expect("should be a list");
    assert_eq!(disks.iter().map(|disk| disk["of"].clone()).collect::<Vec<_>>(), ["data", "lane-0"]);
    assert!(disks.iter().all(|disk| number(&disk["free_bytes"]) > 0.0), "{status}");
    // Nothing was measured yet, so the start has tried it.
    assert_eq!(status["store"]["replay_rate_basis"], "self_test");
    let (bytes, rate) = (number(&usage["replay_bytes"]), number(&status["store"]["replay_rate"]));
    // What loading takes, which is told in whole milliseconds, and the log at the rate to be expected: twice the one believed.
    let load = number(&status["store"]["recovery"]["load_millis"]) / 1e3;
    let reading = number(&usage["replay_estimate_seconds"]) - load;
    assert!(rate > 0.0 && (reading - bytes / (2.0 * rate)).abs() < 3e-3, "{status}");
    let seconds = number(&status["admission"]["replay_limit_bytes"]) / rate;
    assert!((9.0..=10.0).contains(&seconds), "ten seconds of it, without what loading takes: {status}");
    let shown = kit::penstock(&["status", "--url", &server.url]).await.ok();
    assert!(
        shown.contains("by a self-test") && shown.contains("lane-0: ") && shown.contains("being decoded"),
        "{shown}"
    );
    server.stop().await;
}
