//! Settings change while the server runs: at once, as a whole, for later starts if asked, and by reading the file again.

use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kit::careless::Careless;
use crate::kit::{self, Launch, NO_FLUSH, Reply, Server, penstock};

async fn tune(server: &Server, patch: Value) -> Reply {
    let request = server.http().patch(server.at("/v1/tuning")).header("content-type", kit::JSON);
    Reply::of(request.body(patch.to_string())).await
}

async fn setting(server: &Server, key: &str) -> Value {
    let tuning = server.get("/v1/tuning").await.ok();
    let found = tuning["settings"].as_array().expect("should be a list").iter().find(|s| s["key"] == key).cloned();
    found.unwrap_or_else(|| panic!("{key} is not in {tuning}"))
}

fn row(id: u64) -> Value {
    json!({ "ts": "2026-04-01T10:00:00Z", "id": id })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_holds_at_once_and_a_bad_set_changes_nothing() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).set("store.checkpoint_interval", "0s").start().await;
    let before = server.status().await;
    assert_eq!(setting(&server, "flush.parallelism").await["source"], "default");
    assert_eq!(setting(&server, "flush.max_age").await["source"], "command_line");

    let tuned =
        tune(&server, json!({ "set": { "flush.parallelism": 16, "admission.replay_budget": "20s" } })).await.ok();
    let changed = json!([
        { "key": "flush.parallelism", "old": 4, "new": 16 },
        { "key": "admission.replay_budget", "old": "10s", "new": "20s" },
    ]);
    assert_eq!((&tuned["changed"], &tuned["kept"]), (&changed, &json!(false)));
    let after = server.status().await;
    assert_eq!(after["flush"]["parallelism"], 16);
    let limit = |status: &Value| status["admission"]["replay_limit_bytes"].as_f64().expect("should be a number");
    let ratio = limit(&after) / limit(&before);
    assert!((1.9..2.1).contains(&ratio), "{before} {after}");
    assert_eq!(setting(&server, "flush.parallelism").await["source"], "running");

    for (set, code, said) in [
        (
            json!({ "flush.parallelism": 2, "flush.memory": "1B" }),
            "bad_setting",
            "flush.memory = 1B cannot be: it is a size from 1MiB",
        ),
        (json!({ "flush.parallelism": 2, "flush.min_age": "2h" }), "bad_setting", "flush.min_age = 2h cannot be"),
        (json!({ "flush.parallelism": 2, "server.listen": "0.0.0.0:1" }), "fixed_setting", "server.listen"),
        (json!({ "flush.parallelism": 2, "flush.nonsense": 1 }), "unknown_setting", "flush.nonsense"),
        (json!({}), "bad_request", "no setting"),
    ] {
        let refused = tune(&server, json!({ "set": set, "persist": true })).await;
        assert_eq!((refused.status, refused.refusal().as_str()), (400, code), "{}", refused.text());
        assert!(refused.json()["error"]["message"].as_str().is_some_and(|m| m.contains(said)), "{}", refused.text());
    }
    assert_eq!(setting(&server, "flush.parallelism").await["value"], 16);
    assert!(!dir.path().join("tuning.toml").exists(), "nothing is kept of a refused set");

    // Sealing and checkpoints follow: nothing did either before.
    server.append("slow", (0..10).map(row)).await;
    let checkpoints = |status: &Value| {
        status["store"]["shards"].as_array().map(|s| s.iter().map(|s| s["checkpoints"].as_u64()).collect::<Vec<_>>())
    };
    assert_eq!(checkpoints(&server.status().await), Some(vec![Some(0), Some(0)]));
    tune(&server, json!({ "set": { "store.checkpoint_interval": "50ms" } })).await.ok();
    kit::until("a checkpoint", async || (checkpoints(&server.status().await)? != [Some(0), Some(0)]).then_some(()))
        .await;
    assert_eq!(server.status().await["store"]["unflushed_rows"], 10);
    tune(&server, json!({ "set": { "flush.max_age": "100ms", "flush.min_age": "10ms" } })).await.ok();
    kit::until("a flush", async || (server.status().await["store"]["unflushed_rows"] == 0).then_some(())).await;
    // A budget that the next post does not fit any more.
    tune(&server, json!({ "set": { "admission.max_in_flight": "64KiB" } })).await.ok();
    let large = json!({ "ts": "2026-04-01T10:00:00Z", "pad": "x".repeat(100_000) });
    assert_eq!(server.post("slow", kit::NDJSON, kit::ndjson([large])).await.refusal(), "body_too_large");
    let log = server.stop().await;
    for (key, old, new) in [("flush.parallelism", "4", "16"), ("admission.replay_budget", "10s", "20s")] {
        let line = log.lines().find(|line| line.contains("setting changed") && line.contains(key)).unwrap_or_default();
        assert!(line.contains(&format!("old={old}")) && line.contains(&format!("new={new}")), "{key}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_holds_at_later_starts_below_the_command_line_and_a_damaged_file_is_refused() {
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH);
    let server = launch.start().await;
    let url = server.url.clone();
    let ran = penstock(&["tune", "--url", &url, "--persist", "flush.parallelism=16", "flush.max_age=2h"]).await.ok();
    assert!(ran.contains("flush.parallelism: 4 -> 16") && ran.contains("flush.max_age: 1h -> 2h"), "{ran}");
    assert!(ran.contains("note: flush.max_age is also set by the command line"), "{ran}");
    let shown = penstock(&["tune", "--url", &url]).await.ok();
    assert!(shown.contains("flush.parallelism") && shown.contains("kept change"), "{shown}");
    server.kill();

    let server = launch.start().await;
    let parallelism = setting(&server, "flush.parallelism").await;
    assert_eq!((&parallelism["value"], &parallelism["source"]), (&json!(16), &json!("kept")));
    assert_eq!(server.status().await["flush"]["parallelism"], 16);
    let age = setting(&server, "flush.max_age").await;
    assert_eq!((&age["value"], &age["source"], &age["kept"]), (&json!("1h"), &json!("command_line"), &json!("2h")));
    server.stop().await;
    let server = launch.clone().env("PENSTOCK_FLUSH__PARALLELISM", "3").start().await;
    assert_eq!(setting(&server, "flush.parallelism").await["value"], 3);
    let ran = penstock(&["tune", "--url", &server.url, "--persist", "--reset", "flush.parallelism"]).await.ok();
    assert!(ran.contains("no setting has another value"), "{ran}");
    let failed = penstock(&["tune", "--url", &server.url, "flush.paralelism=1"]).await.failed();
    assert!(failed.contains("there is no setting flush.paralelism") && failed.contains("help: "), "{failed}");
    server.stop().await;
    let server = launch.start().await;
    assert_eq!(setting(&server, "flush.parallelism").await["value"], 4);
    server.stop().await;

    let file = dir.path().join("tuning.toml");
    std::fs::write(&file, "version = 1\nflush.parallelism = 0\n").expect("should write");
    let log = launch.refused().await;
    assert!(log.contains("tuning.toml") && log.contains("flush.parallelism = 0"), "{log}");
    std::fs::remove_file(&file).expect("should remove");
    launch.start().await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_reads_the_file_again_and_says_what_takes_a_restart() {
    let dir = kit::directory();
    let file = dir.path().join("penstock.toml");
    let write = |text: &str| std::fs::write(&file, text).expect("should write");
    write("[flush]\nparallelism = 3\n");
    let server = Launch::on(&dir.path().join("data")).option("--config", &file.display().to_string()).start().await;
    assert_eq!(setting(&server, "flush.parallelism").await["source"], "file");
    tune(&server, json!({ "set": { "flush.memory": "8MiB" } })).await.ok();

    write("[flush]\nparallelism = 5\nthreads = 3\n[server]\nmax_connections = 77\n");
    server.process.signal(Signal::HUP);
    kit::until("the new file", async || (setting(&server, "flush.parallelism").await["value"] == 5).then_some(()))
        .await;
    assert_eq!(server.status().await["flush"]["parallelism"], 5);
    assert_eq!(setting(&server, "flush.memory").await["value"], "256MiB", "as a start would have it");

    for broken in ["[flush]\nparallelism = 0\n", "[flush]\nparalelism = 9\n", "[flush\n"] {
        write(broken);
        let refusals = |log: &str| log.matches("cannot be used; nothing was changed").count();
        let before = refusals(&server.process.log());
        server.process.signal(Signal::HUP);
        kit::until("a refusal", async || (refusals(&server.process.log()) > before).then_some(())).await;
        assert_eq!(setting(&server, "flush.parallelism").await["value"], 5);
    }
    let log = server.stop().await;
    let line = log.lines().find(|line| line.contains("take a restart")).unwrap_or_default();
    assert!(line.contains("flush.threads") && line.contains("server.max_connections"), "{log}");
    assert!(!line.contains("flush.parallelism"), "{line}");
}

/// A backlog of generations with a row each, and a store whose uploads take a second.
#[tokio::test(flavor = "multi_thread")]
async fn the_drain_rate_follows_the_parallelism_during_a_backlog() {
    const GENERATIONS: u64 = 200;
    let (dir, store) = (kit::directory(), Careless::start().await);
    store.mend();
    store.slow_uploads(1_000);
    let server = Launch::on(dir.path())
        .set("lake.url", "s3://bucket/lake")
        .set("lake.storage.endpoint", &store.endpoint)
        .set_all(&[("lake.storage.access_key_id", "id"), ("lake.storage.secret_access_key", "key")])
        .set_all(&[("lake.storage.region", "us-east-1"), ("lake.storage.allow_http", "true")])
        .set_all(&[("flush.min_age", "0s"), ("flush.grace", "0s"), ("flush.commit_interval", "0s")])
        .set_all(&[("flush.confirm_delay", "100ms"), ("flush.parallelism", "2")])
        // They are uploaded in parts, which this store does not know.
        .set("lake.checkpoint_every", "0")
        .start()
        .await;
    let incarnation = server.status().await["incarnation"].clone();
    let hour = |n: u64| json!({ "ts": 1_700_000_000_u64 + n * 3_600, "id": n });
    let definition = json!({
        "columns": [{ "name": "ts", "type": "timestamp", "nullable": false }, { "name": "id", "type": "long" }],
        "event_time": "ts", "event_time_unit": "s",
    });
    let declared = server.declare("backlog", &definition).await;
    assert_eq!(declared.status, 201, "{}", declared.text());
    server.append("backlog", (0..GENERATIONS).map(hour)).await;
    let flushed = async || {
        let status = server.status().await;
        GENERATIONS - status["store"]["unflushed_rows"].as_u64().expect("should be a number")
    };
    let when = async |wanted: u64| {
        kit::until("that many generations", async || (flushed().await >= wanted).then(Instant::now)).await
    };

    // It says what to do before it is done.
    let explained = kit::until("an explanation", async || {
        let explained = server.get("/v1/tuning/explain").await.ok();
        (explained["flush"]["binds"] == "upload_latency").then_some(explained)
    })
    .await;
    let next = &explained["flush"]["next"];
    assert_eq!(
        (&next["key"], &next["from"], &next["to"], &next["live"]),
        (&json!("flush.parallelism"), &json!("2"), &json!("4"), &json!(true))
    );
    let factor = next["factor"].as_f64().expect("should be predicted");
    assert!(factor > 1.5, "{explained}");
    let said = penstock(&["tune", "--explain", "--url", &server.url]).await.ok();
    assert!(said.contains("the flush is bound by the latency of uploads"), "{said}");
    assert!(said.contains("next: flush.parallelism from 2 to 4 (penstock tune)"), "{said}");

    let (first, began) = (flushed().await, Instant::now());
    let slow = when(first + 8).await.duration_since(began).as_secs_f64() / 8.0;
    tune(&server, json!({ "set": { "flush.parallelism": 16 } })).await.ok();
    // Within seconds: what runs already goes on, and then sixteen at a time.
    let changed = flushed().await;
    when(changed + 8).await;
    let (first, began) = (flushed().await, Instant::now());
    let fast = when(first + 48).await.duration_since(began).as_secs_f64() / 48.0;
    assert!(slow / fast >= 2.5, "a generation took {slow} s and now takes {fast} s");
    assert_eq!(server.status().await["incarnation"], incarnation, "nobody restarted it");
    store.slow_uploads(0);
    server.flush().await;
    assert_eq!(server.count("backlog").await, GENERATIONS, "each row once");
    server.stop().await;
}
