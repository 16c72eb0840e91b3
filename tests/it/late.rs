//! Late and early rows, and those of a wrong unit, through the real binary: by default, and by the rules of a table.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::kit::{self, Launch, NDJSON, NO_FLUSH, Server, penstock};

const DAY: i64 = 86_400;

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("should be after 1970");
    i64::try_from(since.as_secs()).expect("should fit")
}

fn definition(unit: &str, rules: &Value) -> Value {
    let columns = json!([{ "name": "ts", "type": "timestamp", "nullable": false }, { "name": "id", "type": "long" }]);
    json!({ "columns": columns, "event_time": "ts", "event_time_unit": unit, "rules": rules })
}

/// Posts rows of these times; gives how many were taken, and row and code of each of the others.
async fn post(server: &Server, table: &str, times: &[i64]) -> (u64, Vec<(u64, String)>, Value) {
    let rows = times.iter().enumerate().map(|(id, ts)| json!({ "ts": ts, "id": id }));
    let reply = server.post(table, NDJSON, kit::ndjson(rows)).await.json();
    let errors = reply["errors"].as_array().cloned().unwrap_or_default();
    let told = errors.iter().map(|e| (e["row"].as_u64().unwrap_or(0), e["code"].as_str().unwrap_or("").to_owned()));
    (reply["rows"].as_u64().expect("should be counted"), told.collect(), reply)
}

fn told(rows: &[(u64, &str)]) -> Vec<(u64, String)> {
    rows.iter().map(|(row, code)| (*row, (*code).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn late_rows_are_taken_and_those_far_ahead_or_of_a_wrong_unit_are_kept_aside() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    server.declare("t", &definition("s", &json!({}))).await;
    let times = [now(), now() - 3_000 * DAY, now() + DAY, now() + 3 * DAY, now() / 1_000, now() / 1_000_000];
    let (taken, rejected, reply) = post(&server, "t", &times).await;
    assert_eq!(taken, 3, "{reply}");
    assert_eq!(rejected, told(&[(4, "too_early"), (5, "wrong_time_unit"), (6, "wrong_time_unit")]), "{reply}");
    assert_eq!(reply["dead_letters"], 3);
    let message = reply["errors"][1]["message"].as_str().expect("should be text");
    assert!(message.contains("a thousand times as much"), "{message}");
    let help = reply["errors"][1]["help"].as_str().expect("should be text");
    assert!(help.contains("--wrong-unit"), "{help}");

    let metrics = server.get("/metrics").await.text();
    assert!(metrics.contains("penstock_rejected_rows_total{reason=\"wrong_time_unit\"} 2\n"), "{metrics}");
    assert!(metrics.contains("penstock_rejected_rows_total{reason=\"too_early\"} 1\n"), "{metrics}");

    // The table is told to take what is ahead; its dead letters then fit, and those of a wrong unit still do not.
    let url = server.url.as_str();
    let altered = penstock(&["tables", "alter", "t", "--early-after", "30d", "--url", url]).await.ok();
    assert!(altered.contains("schema version 2"), "{altered}");
    let shown = penstock(&["tables", "show", "t", "--url", url]).await.ok();
    assert!(shown.contains("ahead by more than 30days") || shown.contains("ahead by more than 30d"), "{shown}");
    let replayed = penstock(&["dead-letters", "replay", "--table", "t", "--url", url]).await.ok();
    assert!(replayed.contains("replayed 1") && replayed.contains("2 still do not fit"), "{replayed}");
    assert_eq!(server.count("t").await, 4);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_may_keep_late_rows_aside_or_leave_them_to_their_sender() {
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&NO_FLUSH);
    let server = launch.start().await;
    server.declare("kept", &definition("ms", &json!({ "late": "dead-letter", "late_after": "1h" }))).await;
    server.declare("left", &definition("ms", &json!({ "late": "reject", "late_after": "1h" }))).await;
    server.declare("any", &definition("ms", &json!({ "early": "accept", "wrong_unit": "accept" }))).await;
    server.stop().await;
    // The rules are part of the definition, which the log has.
    std::fs::remove_file(dir.path().join("catalog.db")).expect("should remove the catalog");
    let server = launch.start().await;
    let times = [now() * 1_000, (now() - 2 * 3_600) * 1_000];
    for (table, letters) in [("kept", 1), ("left", 0)] {
        let (taken, rejected, reply) = post(&server, table, &times).await;
        assert_eq!((taken, rejected), (1, told(&[(2, "too_late")])), "{reply}");
        assert_eq!((&reply["rejected"], &reply["dead_letters"]), (&json!(1), &json!(letters)), "{reply}");
    }
    let (taken, rejected, reply) = post(&server, "any", &[now(), (now() + 3_000 * DAY) * 1_000]).await;
    assert_eq!((taken, rejected), (2, vec![]), "{reply}");
    assert_eq!(server.count("dead_letters").await, 1);
    server.stop().await;
}

/// Ten years of hourly rows come in one post: a file and a bucket for each day, and the rows of today are in Delta with them.
#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_of_years_has_a_bucket_a_day() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    server.declare("t", &definition("s", &json!({}))).await;
    let midnight = now() / DAY * DAY;
    let times: Vec<i64> = (0..100 * 24).map(|hour| midnight - 300 * DAY + hour * 3_600).chain([now()]).collect();
    let (taken, _, reply) = post(&server, "t", &times).await;
    assert_eq!(taken, 2_401, "{reply}");
    let status = server.status().await;
    assert_eq!(status["tables"][0]["open_generations"], 101, "{status}");
    server.flush().await;
    assert_eq!((server.count("t").await, &server.table("t").await["delta_files"]), (2_401, &json!(101)));
    tokio::time::timeout(Duration::from_secs(30), server.stop()).await.expect("should stop");
}
