//! What is written is a Delta table to others too: two independent readers from PyPI, `deltalake` and `duckdb`, find what the rows
//! say, what SQL here says, and each other's counts and sums.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kit::{self, Launch, NO_FLUSH, python};

const SCRIPT: &str = include_str!("readers.py");

/// 2026-03-07T20:00:00Z.
const FIRST_SECOND: i64 = 1_772_913_600;
const ROWS: i64 = 600;
/// Ten minutes: the rows lie on five dates, the first hours of one up to the last of another.
const STEP_SECONDS: i64 = 600;

fn definition() -> Value {
    let column = |name: &str, kind: &str| json!({ "name": name, "type": kind });
    json!({
        "columns": [
            { "name": "ts", "type": "timestamp", "nullable": false },
            column("id", "long"),
            column("host", "string"),
            column("small", "int"),
            column("load", "double"),
            column("ratio", "float"),
            column("up", "boolean"),
            column("raw", "binary"),
            column("day", "date"),
            column("price", "decimal(20,4)"),
            column("tags", "map<string,string>"),
            column("items", "list<long>"),
            column("place", "struct<room:long,name:string>"),
            column("deep", "list<struct<a:map<string,long>,b:timestamp>>"),
        ],
        "event_time": "ts",
        "event_time_unit": "ms",
        "sort": ["host", "id"],
    })
}

fn row(id: i64) -> Value {
    let seconds = FIRST_SECOND + id * STEP_SECONDS;
    let host = if id % 10 == 0 { Value::Null } else { json!(format!("höst-{}", id % 7)) };
    let items = if id % 3 == 0 { json!([]) } else { json!([id, Value::Null, -1]) };
    json!({
        "ts": seconds * 1_000 + id,
        "id": id,
        "host": host,
        "small": id - 300,
        "load": id as f64 / 4.0,
        "ratio": 0.5,
        "up": id % 2 == 0,
        "raw": "AAECAw==",
        "day": "2026-01-31",
        "price": format!("{id}.0625"),
        "tags": { "a": "x", "b": Value::Null, "c": format!("{id}") },
        "items": items,
        "place": { "room": id % 5, "name": "r" },
        "deep": [{ "a": { "k": id }, "b": "2026-01-31T12:00:00+01:00" }, { "a": Value::Null }],
    })
}

/// What every reader has to find, from the rows alone.
fn expected() -> Value {
    let ids = 0..ROWS;
    let date = |id: i64| {
        let seconds = u64::try_from(FIRST_SECOND + id * STEP_SECONDS).expect("should be after 1970");
        humantime::format_rfc3339(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).to_string()[..10]
            .to_owned()
    };
    let mut dates: BTreeMap<String, i64> = BTreeMap::new();
    ids.clone().for_each(|id| *dates.entry(date(id)).or_default() += 1);
    let on_date = |id: &i64| date(*id) == DATE;
    let micros = |id: i64| (FIRST_SECOND + id * STEP_SECONDS) * 1_000_000 + id * 1_000;
    let sum: i64 = ids.clone().sum();
    json!({
        "count": ROWS,
        "ids": sum,
        "prices": format!("{}.{:04}", sum + ROWS * 625 / 10_000, ROWS * 625 % 10_000),
        "items": ids.clone().filter(|id| id % 3 != 0).map(|id| id - 1).sum::<i64>(),
        "inner": ids.clone().map(|id| id % 5).sum::<i64>(),
        "tags": 2 * ROWS,
        "nulls": ids.clone().filter(|id| id % 10 == 0).count(),
        "bytes": 4 * ROWS,
        "first": micros(0),
        "last": micros(ROWS - 1),
        "dates": dates,
        "on_date": ids.clone().filter(on_date).count(),
        "on_date_ids": ids.filter(on_date).sum::<i64>(),
    })
}

const DATE: &str = "2026-03-09";

#[tokio::test(flavor = "multi_thread")]
async fn two_independent_readers_find_the_same_rows() {
    let Some(program) = python::with(&["deltalake", "pyarrow", "duckdb", "duckdb_extension_delta"]) else { return };
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).env("TZ", "Asia/Kathmandu").start().await;
    server.declare("telemetry.wide", &definition()).await.ok();
    // Three posts and flushes: several versions, several files in a partition.
    for third in 0..3 {
        let rows = (0..ROWS).filter(|id| id % 3 == third).map(row);
        server.append("telemetry.wide", rows).await;
        server.flush().await;
    }
    let shown = server.table("telemetry.wide").await;
    let query = format!(
        "select count(*) as count, sum(id) as ids, cast(sum(price) as varchar) as prices, \
         sum(place['room']) as inner, count(*) - count(host) as nulls, \
         (select count(*) from telemetry.wide where date = '{DATE}') as on_date, \
         (select sum(id) from telemetry.wide where date = '{DATE}') as on_date_ids from telemetry.wide"
    );
    let sql = server.row(&query).await;
    server.stop().await;

    let location = url::Url::parse(shown["location"].as_str().expect("should be a URL")).expect("should be a URL");
    let path = location.to_file_path().expect("should be a path").display().to_string();
    let found = python::run(&program, SCRIPT, &[&path, DATE], &[]).await;
    let wanted = expected();
    let agrees = |reader: &str, found: &Value| {
        for (key, value) in found.as_object().expect("should be an object") {
            if let Some(wanted) = wanted.get(key) {
                assert_eq!(value, wanted, "{reader}: {key}");
            }
        }
    };
    agrees("SQL", &sql);
    for reader in ["deltalake", "duckdb"] {
        let found = &found[reader];
        agrees(reader, found);
        let missing: Vec<_> =
            wanted.as_object().expect("should be an object").keys().filter(|k| found[*k].is_null()).collect();
        assert!(missing.is_empty(), "{reader} did not say {missing:?}");
    }
    assert_eq!(found["deltalake"]["version"], shown["delta_version"]);
    assert_eq!(found["deltalake"]["partitions"], json!(["date"]));
    check_types(&found);
}

fn check_types(found: &Value) {
    let arrow = &found["deltalake"]["types"];
    for (column, kind) in [
        ("ts", "timestamp[us, tz=UTC]"),
        ("id", "int64"),
        ("small", "int32"),
        ("load", "double"),
        ("ratio", "float"),
        ("up", "bool"),
        ("day", "date32[day]"),
        ("date", "date32[day]"),
        ("price", "decimal128(20, 4)"),
    ] {
        assert_eq!(arrow[column], kind, "{column}");
    }
    for (column, begins) in [("tags", "map<"), ("items", "list<"), ("place", "struct<room: int64"), ("deep", "list<")] {
        assert!(arrow[column].as_str().is_some_and(|t| t.starts_with(begins)), "{column}: {}", arrow[column]);
    }
    let duckdb = &found["duckdb"]["types"];
    for (column, kind) in [
        ("ts", "TIMESTAMP WITH TIME ZONE"),
        ("id", "BIGINT"),
        ("small", "INTEGER"),
        ("host", "VARCHAR"),
        ("raw", "BLOB"),
        ("date", "DATE"),
        ("price", "DECIMAL(20,4)"),
        ("tags", "MAP(VARCHAR, VARCHAR)"),
        ("items", "BIGINT[]"),
        ("place", "STRUCT(room BIGINT, \"name\" VARCHAR)"),
        ("deep", "STRUCT(a MAP(VARCHAR, BIGINT), b TIMESTAMP WITH TIME ZONE)[]"),
    ] {
        assert_eq!(duckdb[column], kind, "{column}");
    }
}
