//! A table gets columns while rows arrive, over a crash: queries see them with nulls in older rows, flushed or not, and so do other
//! readers.

use serde_json::{Value, json};

use crate::kit::{self, Launch, NO_FLUSH, penstock, python};

const SCRIPT: &str = include_str!("sums.py");
const TABLE: &str = "telemetry.cpu";
/// 2026-03-07T20:00:00Z; all rows lie in the same bucket.
const FIRST_MILLI: i64 = 1_772_913_600_000;

fn definition(columns: &[(&str, &str)]) -> Value {
    let mut all = vec![
        json!({ "name": "ts", "type": "timestamp", "nullable": false }),
        json!({ "name": "id", "type": "long" }),
        json!({ "name": "host", "type": "string" }),
    ];
    all.extend(columns.iter().map(|(name, kind)| json!({ "name": name, "type": kind })));
    json!({ "columns": all, "event_time": "ts", "event_time_unit": "ms", "sort": ["host"] })
}

fn rows(ids: std::ops::Range<i64>, more: &Value) -> Vec<Value> {
    let row = |id: i64| {
        let mut row = json!({ "ts": FIRST_MILLI + id, "id": id, "host": format!("host-{}", id % 3) });
        let fields = more.as_object().expect("should be an object").clone();
        row.as_object_mut().expect("should be an object").extend(fields);
        row
    };
    ids.map(row).collect()
}

const SUMS: &str = "select count(*) as count, sum(id) as ids, count(zone) as zones, count(cores) as cores, sum(cores) as sum, \
                    count(load) as loads from telemetry.cpu";

#[tokio::test(flavor = "multi_thread")]
async fn columns_are_added_while_rows_arrive_and_survive_a_crash() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    assert_eq!(server.declare(TABLE, &definition(&[])).await.status, 201);
    server.append(TABLE, rows(0..10, &json!({}))).await;

    // A row that has the column before the table has it is refused, and nothing of its post is kept.
    let early = server.post(TABLE, kit::NDJSON, kit::ndjson(rows(10..12, &json!({ "zone": "z" })))).await;
    assert_eq!(early.status, 422, "{}", early.text());
    let wider = definition(&[("zone", "string"), ("cores", "int")]);
    let shown = server.declare(TABLE, &wider).await;
    assert_eq!((shown.status, &shown.json()["schema_version"]), (200, &json!(2)), "{}", shown.text());
    server.append(TABLE, rows(10..20, &json!({ "zone": "z", "cores": 4 }))).await;
    server.append(TABLE, rows(20..25, &json!({}))).await;
    let sums = json!({ "count": 25, "ids": 300, "zones": 10, "cores": 10, "sum": 40, "loads": 0 });
    let without_load = SUMS.replace("count(load)", "0");
    assert_eq!(server.row(&without_load).await, sums);

    // All of that is in one generation of two schema versions, and in the log alone.
    server.kill();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    assert_eq!(server.row(&without_load).await, sums);
    server.flush().await;
    assert_eq!(server.row(&without_load).await, sums, "the flush should change nothing");
    let table = server.table(TABLE).await;
    assert_eq!((&table["delta_rows"], &table["delta_files"]), (&json!(25), &json!(1)), "one generation, one file");

    // One more column, and a wider type for one whose narrow values are in a file already.
    let more = ["--add-column", "load:double", "--add-column", "cores:long"];
    let alter = [&["tables", "alter", TABLE, "--url", server.url.as_str()], more.as_slice()].concat();
    let altered = penstock(&alter).await.ok();
    assert!(altered.contains("has changed: schema version 3"), "{altered}");
    assert!(penstock(&alter).await.ok().contains("was like this already: schema version 3"));
    server.append(TABLE, rows(25..30, &json!({ "load": 0.5, "cores": 3_000_000_000_i64 }))).await;
    let sums = json!({ "count": 30, "ids": 435, "zones": 10, "cores": 15, "sum": 15_000_000_040_i64, "loads": 5 });
    assert_eq!(server.row(SUMS).await, sums);
    server.flush().await;
    assert_eq!(server.row(SUMS).await, sums, "the flush should change nothing");
    let table = server.table(TABLE).await;
    let versions: Vec<_> = table["schema_versions"].as_array().expect("should be there").iter().collect();
    let columns: Vec<_> = versions.iter().map(|version| (&version["version"], &version["columns"])).collect();
    assert_eq!(columns, [(&json!(1), &json!(3)), (&json!(2), &json!(5)), (&json!(3), &json!(6))]);
    assert!(versions.iter().all(|version| version["cause"] == "declaration"), "{versions:?}");

    // Older rows and newer ones in Delta and in the log, over another restart.
    server.append(TABLE, rows(30..31, &json!({ "zone": "y" }))).await;
    server.stop().await;
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    let found = server.row("select count(*) as n, count(zone) as zones from telemetry.cpu where cores is null").await;
    assert_eq!(found, json!({ "n": 16, "zones": 1 }));
    server.flush().await;
    let location = server.table(TABLE).await["location"].as_str().expect("should be a URL").to_owned();
    server.stop().await;

    let modules = ["deltalake", "pyarrow", "duckdb", "duckdb_extension_delta", "polars"];
    let Some(program) = python::with(&modules) else { return };
    let path = url::Url::parse(&location).expect("should be a URL").to_file_path().expect("should be a path");
    let found = python::run(&program, SCRIPT, &[&path.display().to_string(), "zone", "cores", "load"], &[]).await;
    for (reader, found) in found.as_object().expect("should be an object") {
        assert_eq!((&found["count"], &found["ids"]), (&json!(31), &json!(465)), "{reader}");
        assert_eq!(found["zone"][0], 11, "{reader}");
        let numbers = |name: &str| (found[name][0].as_i64(), found[name][1].as_f64());
        assert_eq!(
            (numbers("cores"), numbers("load")),
            ((Some(15), Some(15_000_000_040.0)), (Some(5), Some(2.5))),
            "{reader}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_table_cannot_become_is_refused_with_the_reason() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).start().await;
    let mut wide = definition(&[("zone", "string")]);
    server.declare(TABLE, &wide).await.ok();
    let refused = async |definition: &Value, expected: &str| {
        let reply = server.declare(TABLE, definition).await;
        assert_eq!((reply.status, reply.refusal().as_str()), (409, "table_differs"), "{}", reply.text());
        assert!(reply.text().contains(expected), "{}", reply.text());
    };
    refused(&definition(&[]), "column \\\"zone\\\" is missing: a column cannot be dropped").await;
    refused(&definition(&[("zone", "long")]), "cannot become long").await;
    wide["bucket"] = json!("5m");
    refused(&wide, "the bucket is 3600s and not 300s").await;
    let mut strict = definition(&[("zone", "string"), ("must", "long")]);
    strict["columns"][4]["nullable"] = json!(false);
    refused(&strict, "new column \\\"must\\\" must be nullable").await;
    let line = ["tables", "alter", TABLE, "--add-column", "zone:double", "--url", server.url.as_str()];
    let error = penstock(&line).await.failed();
    assert!(error.contains("cannot become double"), "{error}");
    assert_eq!(server.table(TABLE).await["table"]["schema_version"], 1, "nothing should have changed");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_came_from_its_rows_and_has_no_time_of_its_own_gets_columns_too() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    server.append("notes", [json!({ "text": "a" })]).await;
    server.flush().await;
    let alter = ["tables", "alter", "notes", "--add-column", "stars:long", "--url", server.url.as_str()];
    let altered = penstock(&alter).await.ok();
    assert!(altered.contains("has changed: schema version 2") && altered.contains("_received_at"), "{altered}");
    server.append("notes", [json!({ "text": "b", "stars": 5 })]).await;
    let sums =
        "select count(*) as n, count(stars) as rated, sum(stars) as stars, count(_received_at) as times from notes";
    let found = json!({ "n": 2, "rated": 1, "stars": 5, "times": 2 });
    assert_eq!(server.row(sums).await, found);
    server.flush().await;
    assert_eq!(server.row(sums).await, found);
    let causes: Vec<_> = server.table("notes").await["schema_versions"]
        .as_array()
        .expect("should be there")
        .iter()
        .map(|version| version["cause"].clone())
        .collect();
    assert_eq!(causes, [json!("rows"), json!("declaration")]);
    server.stop().await;
}

/// The table is made by its first rows and gets columns and wider types from later ones, of senders of two versions, while it is
/// flushed.
#[tokio::test(flavor = "multi_thread")]
async fn columns_come_with_the_rows_while_they_are_flushed() {
    let dir = kit::directory();
    let settings = [("flush.max_age", "150ms"), ("flush.min_age", "50ms"), ("flush.grace", "1h")];
    let server = Launch::on(dir.path()).set_all(&settings).start().await;
    let path = format!("/v1/tables/{TABLE}/rows?time_unit=ms");
    let post = async |ids: std::ops::Range<i64>, more: Value| {
        server.send(&path, &[("content-type", kit::NDJSON)], kit::ndjson(rows(ids, &more))).await.ok()
    };
    let mut next = 0;
    for (round, more) in
        [json!({}), json!({ "zone": "z" }), json!({ "zone": "z", "cores": 4, "none": null })].iter().enumerate()
    {
        for _ in 0..10 {
            // Old senders and new ones by turns.
            for more in [more, &json!({})] {
                let reply = post(next..next + 5, more.clone()).await;
                assert_eq!((&reply["rows"], &reply["rejected"]), (&json!(5), &json!(0)), "{round}: {reply}");
                next += 5;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    // Of a type that no reader would follow: kept aside, and the others are taken.
    let mixed = "{\"ts\":1772913600000,\"id\":1000000,\"cores\":\"four\"}\n{\"ts\":1772913600000,\"id\":300}";
    let reply = server.send(&path, &[("content-type", kit::NDJSON)], mixed).await.ok();
    assert_eq!(
        (&reply["rows"], &reply["dead_letters"], &reply["errors"][0]["code"]),
        (&json!(1), &json!(1), &json!("type_mismatch"))
    );
    let sums = json!({ "count": 301, "ids": 300 * 301 / 2, "zones": 100, "cores": 50, "sum": 200 });
    let query = "select count(*) as count, sum(id) as ids, count(zone) as zones, count(cores) as cores, sum(cores) as sum from telemetry.cpu";
    assert_eq!(server.row(query).await, sums);
    server.flush().await;
    assert_eq!(server.row(query).await, sums, "the flush should change nothing");
    let table = server.table(TABLE).await;
    let versions = table["schema_versions"].as_array().expect("should be there");
    assert_eq!(versions.len(), 3, "{versions:?}");
    assert!(versions.iter().all(|v| v["cause"] == "rows" && v["actor"] == "127.0.0.1"), "{versions:?}");
    let location = table["location"].as_str().expect("should be a URL").to_owned();
    server.stop().await;
    let Some(program) = python::with(&["deltalake", "pyarrow", "duckdb", "duckdb_extension_delta", "polars"]) else {
        return;
    };
    let path = url::Url::parse(&location).expect("should be a URL").to_file_path().expect("should be a path");
    let found = python::run(&program, SCRIPT, &[&path.display().to_string(), "zone", "cores"], &[]).await;
    for (reader, found) in found.as_object().expect("should be an object") {
        assert_eq!((&found["count"], &found["ids"]), (&json!(301), &json!(300 * 301 / 2)), "{reader}");
        assert_eq!((&found["zone"][0], &found["cores"][0]), (&json!(100), &json!(50)), "{reader}");
    }
}

/// SD-5: a sender invents keys. The table stops getting columns, and keeps everything all the same.
#[tokio::test(flavor = "multi_thread")]
async fn keys_beyond_the_cap_overflow_and_a_strict_table_takes_none() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).set("ingest.max_columns", "20").start().await;
    let keys = |from: usize, count: usize| {
        (from..from + count).map(|i| (format!("k{i}"), json!(i))).collect::<serde_json::Map<_, _>>()
    };
    server.append("wide", [Value::from(keys(0, 10_633))]).await;
    server.append("wide", [Value::from(keys(10_633, 5))]).await;
    let found = server.row("select count(*) as n, sum(cardinality(_overflow)) as keys from wide").await;
    assert_eq!(found, json!({ "n": 2, "keys": 10_633 - 18 + 5 }));
    assert_eq!(server.table("wide").await["table"]["columns"].as_array().map(Vec::len), Some(20));
    let one = server.row("select _overflow['k10632'] as v from wide where _overflow['k10632'] is not null").await;
    assert_eq!(one, json!({ "v": "10632" }));

    // A table that was declared is strict until it is told otherwise.
    server.declare(TABLE, &definition(&[])).await;
    let more = || kit::ndjson(rows(0..5, &json!({ "zone": "z" })));
    let refused = server.post(TABLE, kit::NDJSON, more()).await;
    assert_eq!((refused.status, refused.refusal().as_str()), (422, "unknown_column"));
    assert!(refused.text().contains("--schema evolve"), "{}", refused.text());
    penstock(&["tables", "alter", TABLE, "--schema", "evolve", "--url", &server.url]).await.ok();
    assert_eq!(server.post(TABLE, kit::NDJSON, more()).await.ok()["rows"], 5);
    // All or none: what is refused does not change the table.
    let abort = format!("/v1/tables/{TABLE}/rows?on_error=abort");
    let body = "{\"ts\":1772913600000,\"new\":1}\n{\"ts\":1772913600000,\"id\":\"no\"}";
    assert_eq!(server.send(&abort, &[("content-type", kit::NDJSON)], body).await.status, 422);
    let columns = &server.table(TABLE).await["table"]["columns"];
    assert!(!columns.to_string().contains("\"new\"") && columns.to_string().contains("\"zone\""), "{columns}");
    // Its letters fit now.
    let replayed = penstock(&["dead-letters", "replay", "--table", TABLE, "--url", &server.url]).await.ok();
    assert!(replayed.contains("replayed 5"), "{replayed}");
    server.flush().await;
    assert_eq!(server.count(TABLE).await, 10);
    server.stop().await;
}
