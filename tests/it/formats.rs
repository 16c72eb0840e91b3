//! Every format a post may have gives the same rows; times are UTC wherever they came from; every format a query may be answered
//! in says the same.

use std::io::{Cursor, Write};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde_json::{Value, json};

use crate::kit::{self, ARROW, JSON, Launch, NDJSON, NO_FLUSH, Server, delta};

/// 2026-02-28T22:30:00.123Z; half an hour past midnight in Berlin, and half past nine in the morning in Melbourne.
const EVENING_MS: i64 = 1_772_317_800_123;
const HOUR_MS: i64 = 3_600_000;

fn definition() -> Value {
    json!({
        "columns": [
            { "name": "ts", "type": "timestamp", "nullable": false },
            { "name": "id", "type": "long" },
            { "name": "host", "type": "string" },
            { "name": "load", "type": "double" },
            { "name": "ok", "type": "boolean" },
        ],
        "event_time": "ts",
        "event_time_unit": "ms",
        "sort": ["host"],
    })
}

/// Four rows on two dates, as the senders write them.
fn rows() -> Vec<Value> {
    let row = |id: i64, host: Value, load: Value, ok: Value| json!({ "ts": EVENING_MS + (id - 1) * HOUR_MS, "id": id, "host": host, "load": load, "ok": ok });
    vec![
        row(1, json!("a, \"b\""), json!(0.5), json!(true)),
        row(2, json!("é\n😀"), json!(-1.25), json!(false)),
        row(3, Value::Null, Value::Null, Value::Null),
        row(4, json!(""), json!(1e300), json!(true)),
    ]
}

/// The same rows as an Arrow stream of two batches.
fn arrow_stream() -> Vec<u8> {
    let column = |name: &str| rows().iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    let long = |name: &str| column(name).iter().map(|v| v.as_i64()).collect::<Vec<_>>();
    let times = TimestampMillisecondArray::from(long("ts")).with_timezone("+02:00");
    let hosts: StringArray = column("host").iter().map(|v| v.as_str().map(str::to_owned)).collect();
    let loads: Float64Array = column("load").iter().map(Value::as_f64).collect();
    let oks: BooleanArray = column("ok").iter().map(Value::as_bool).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        // In another order than the table's columns.
        ("host", Arc::new(hosts)),
        ("ts", Arc::new(times)),
        ("id", Arc::new(Int64Array::from(long("id")))),
        ("ok", Arc::new(oks)),
        ("load", Arc::new(loads)),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("should make a batch");
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).expect("should begin a stream");
    for (from, len) in [(0, 1), (1, 3)] {
        writer.write(&batch.slice(from, len)).expect("should write a batch");
    }
    writer.into_inner().expect("should end the stream")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("should compress");
    encoder.finish().expect("should compress")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("should compress")
}

/// What every table has to hold.
fn expected() -> Vec<Value> {
    let times = [
        "2026-02-28T22:30:00.123Z",
        "2026-02-28T23:30:00.123Z",
        "2026-03-01T00:30:00.123Z",
        "2026-03-01T01:30:00.123Z",
    ];
    let dress = |(mut row, time): (Value, &str)| {
        row["ts"] = json!(time);
        row["date"] = json!(&time[..10]);
        row
    };
    rows().into_iter().zip(times).map(dress).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_formats_give_the_same_rows_before_and_after_a_flush() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    let array = Value::from(rows()).to_string();
    let lines = kit::ndjson(rows());
    let stream = arrow_stream();
    let bodies: [(&str, &str, &str, Vec<u8>); 8] = [
        ("json_array", JSON, "identity", array.clone().into_bytes()),
        ("json_lines", NDJSON, "identity", lines.clone().into_bytes()),
        ("arrow_stream", ARROW, "identity", stream.clone()),
        ("json_array_gzip", "application/json; charset=utf-8", "gzip", gzip(array.as_bytes())),
        ("json_array_zstd", JSON, "zstd", zstd(array.as_bytes())),
        ("json_lines_gzip", NDJSON, "gzip", gzip(lines.as_bytes())),
        ("arrow_stream_gzip", ARROW, "gzip", gzip(&stream)),
        ("arrow_stream_zstd", ARROW, "zstd", zstd(&stream)),
    ];
    for (table, content_type, encoding, body) in &bodies {
        let declared = server.declare(table, &definition()).await;
        assert_eq!(declared.status, 201, "{}", declared.text());
        let headers = [("content-type", *content_type), ("content-encoding", *encoding)];
        let reply = server.send(&format!("/v1/tables/{table}/rows"), &headers, body.clone()).await.ok();
        assert_eq!(reply["rows"], 4, "{reply}");
        assert_eq!(reply["durability"], "synced");
        assert_eq!(reply["table"], format!("default.{table}"));
        assert_eq!(reply["created"], Value::Null);
        assert!(reply["receipt"].as_str().is_some_and(|r| r.contains(':')), "{reply}");
    }
    server.declare("json_object", &definition()).await.ok();
    for row in rows() {
        assert_eq!(server.post("json_object", JSON, row.to_string()).await.ok()["rows"], 1);
    }
    let tables: Vec<&str> = bodies.iter().map(|(table, ..)| *table).chain(["json_object"]).collect();
    for moment in ["unflushed", "flushed"] {
        for table in &tables {
            let found = server.sql(&format!("select * from {table} order by id")).await;
            assert_eq!(found, expected(), "{table}, {moment}");
        }
        server.flush().await;
    }
    for table in &tables {
        let shown = server.table(table).await;
        assert_eq!(shown["unflushed_rows"], 0, "{shown}");
        assert_eq!(shown["delta_rows"], 4, "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dates_and_times_are_utc_in_a_process_that_lives_in_melbourne() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).env("TZ", "Australia/Melbourne").start().await;
    // One moment, written four ways; and the moments around midnight UTC.
    let times = [
        ("2026-02-28T22:30:00Z", "2026-02-28T22:30:00Z"),
        ("2026-03-01T00:30:00+02:00", "2026-02-28T22:30:00Z"),
        ("2026-03-01T09:30:00+11:00", "2026-02-28T22:30:00Z"),
        ("2026-02-28T15:00:00-07:30", "2026-02-28T22:30:00Z"),
        ("2026-02-28T23:59:59.999999Z", "2026-02-28T23:59:59.999999Z"),
        ("2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z"),
        ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.500Z"),
    ];
    let rows = times.iter().zip(1..).map(|((sent, _), id)| json!({ "ts": sent, "id": id }));
    let created = server.append("moments", rows).await["created"].clone();
    assert_eq!(created["partition"], "date", "{created}");
    for moment in ["unflushed", "flushed"] {
        let found = server.sql("select ts, date, cast(ts as varchar) as text from moments order by id").await;
        for (row, (_, utc)) in found.iter().zip(times) {
            assert_eq!(instant(&row["ts"]), instant(&json!(utc)), "{moment}: {row}");
            assert_eq!(row["date"], utc[..10], "{moment}: {row}");
            assert!(row["text"].as_str().is_some_and(|t| t.starts_with(&utc[..10]) && t.ends_with('Z')), "{row}");
        }
        let days = server.sql("select date, count(*) as n from moments group by date order by date").await;
        let wanted = json!([{ "date": "1969-12-31", "n": 1 }, { "date": "2026-02-28", "n": 5 }, { "date": "2026-03-01", "n": 1 }]);
        assert_eq!(Value::from(days), wanted, "{moment}");
        let filtered = server.row("select count(*) as n from moments where date = '2026-02-28'").await;
        assert_eq!(filtered["n"], 5, "{moment}");
        let since = "select count(*) as n from moments where ts >= timestamp '2026-02-28 23:00:00'";
        assert_eq!(server.row(since).await["n"], 2, "{moment}: a literal without an offset is UTC");
        server.flush().await;
    }
    let location = server.table("moments").await["location"].as_str().expect("should be a URL").to_owned();
    let disk = delta::read(&location).await.expect("should be a Delta table");
    let mut partitions: Vec<&str> = disk.files.iter().map(|(path, _)| &path[..15]).collect();
    partitions.sort_unstable();
    partitions.dedup();
    assert_eq!(partitions, ["date=1969-12-31", "date=2026-02-28", "date=2026-03-01"]);
}

fn instant(time: &Value) -> String {
    // Digits of a fraction that say nothing may be left out.
    let text = time.as_str().expect("should be a time").trim_end_matches('Z');
    if text.contains('.') { text.trim_end_matches('0').to_owned() } else { text.to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_post_makes_the_table_and_the_same_post_fits_it() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    let row = json!({ "time": 1_772_317_800, "n": 1, "big": u64::MAX, "x": 1.5, "on": true, "tags": { "a": "b" }, "list": [1, 2], "date": "today" });
    let path = "/v1/tables/inferred/rows?time_unit=s";
    let first = server.send(path, &[("content-type", JSON)], row.to_string()).await.ok();
    let spec = &first["created"];
    let column = |name: &str| {
        let columns = spec["columns"].as_array().expect("should have columns");
        columns.iter().find(|c| c["name"] == name).map(|c| c["type"].clone()).unwrap_or_default()
    };
    assert_eq!(spec["event_time"], json!({ "from": "column", "name": "time", "unit": "s" }), "{spec}");
    assert_eq!((column("time"), column("n")), (json!("timestamp"), json!("long")), "{spec}");
    assert_eq!(column("big"), "decimal(20,0)", "a number beyond 63 bits is kept whole");
    assert_eq!((column("x"), column("on"), column("list")), (json!("double"), json!("boolean"), json!("list<long>")));
    assert_eq!(spec["partition"], "event_date", "the rows have a date of their own");
    let second = server.send(path, &[("content-type", JSON)], row.to_string()).await.ok();
    assert_eq!(second["created"], Value::Null);
    server.flush().await;
    let third = server.post("inferred", JSON, row.to_string()).await;
    assert_eq!(third.ok()["rows"], 1);
    let found = server
        .row("select distinct event_date, cast(big as varchar) as big, count(*) over () as n from inferred")
        .await;
    assert_eq!((&found["event_date"], &found["big"]), (&json!("2026-02-28"), &json!("18446744073709551615")));
    assert_eq!(server.count("inferred").await, 3);

    let untimed = server.append("untimed", [json!({ "n": 1 })]).await;
    assert_eq!(untimed["created"]["event_time"]["from"], "receipt", "{untimed}");
    let today = server.row("select date = cast(now() as date) as today from untimed").await;
    assert_eq!(today["today"], true, "rows without a time have that of their receipt");
}

#[tokio::test(flavor = "multi_thread")]
async fn declaring_twice_is_fine_and_declaring_otherwise_is_a_conflict() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    let first = server.declare("logs.web", &definition()).await;
    assert_eq!((first.status, &first.json()["name"]), (201, &json!("logs.web")), "{}", first.text());
    assert_eq!(server.declare("logs.web", &definition()).await.status, 200);
    let mut other = definition();
    other["sort"] = json!([]);
    let refused = server.declare("logs.web", &other).await;
    assert_eq!((refused.status, refused.refusal().as_str()), (409, "table_differs"));
    let listed = server.get("/v1/tables").await.ok();
    assert_eq!(listed["tables"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed["tables"][0], first.json());
    let shown = server.table("logs.web").await;
    assert_eq!((&shown["delta_version"], &shown["unflushed_rows"]), (&Value::Null, &json!(0)), "{shown}");
    assert!(
        shown["location"].as_str().is_some_and(|l| l.starts_with("file:///") && l.ends_with("/logs/web/")),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_says_the_same_in_every_format() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    server.declare("t", &definition()).await.ok();
    server.append("t", rows()).await;
    let sql = "select id, host, load, ok from t order by id";
    let json_rows = Value::from(server.sql(sql).await);

    let lines = ask(&server, sql, NDJSON).await;
    let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).expect("should be JSON")).collect();
    assert_eq!(Value::from(lines), json_rows);

    let csv = ask(&server, sql, "text/csv").await;
    assert_eq!(csv, "id,host,load,ok\n1,\"a, \"\"b\"\"\",0.5,true\n2,\"é\n😀\",-1.25,false\n3,,,\n4,,1e300,true\n");

    let stream = server.send("/v1/sql", &[("content-type", "text/plain"), ("accept", ARROW)], sql).await;
    assert_eq!(stream.header("content-type"), Some(ARROW));
    let reader = StreamReader::try_new(Cursor::new(stream.body), None).expect("should be an Arrow stream");
    let batches: Vec<RecordBatch> = reader.map(|b| b.expect("should be a batch")).collect();
    let mut writer = arrow_json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, arrow_json::writer::JsonArray>(Vec::new());
    writer
        .write_batches(&batches.iter().collect::<Vec<_>>())
        .and_then(|()| writer.finish())
        .expect("should write JSON");
    let from_arrow: Value = serde_json::from_slice(&writer.into_inner()).expect("should be JSON");
    assert_eq!(from_arrow, json_rows);

    let nothing = "select id, host from t where id > 99";
    assert_eq!(ask(&server, nothing, "text/csv").await, "id,host\n", "an empty result still has its header");
    assert_eq!(ask(&server, nothing, NDJSON).await, "");
    let empty = server.send("/v1/sql", &[("content-type", "text/plain"), ("accept", ARROW)], nothing).await;
    let reader = StreamReader::try_new(Cursor::new(empty.body), None).expect("should be an Arrow stream");
    assert_eq!((reader.schema().fields().len(), reader.count()), (2, 0));
    let empty = server.ask(nothing).await.ok();
    assert_eq!((&empty["rows"], &empty["row_count"]), (&json!([]), &json!(0)));
    assert_eq!(empty["columns"][0], json!({ "name": "id", "type": "Int64" }));
}

async fn ask(server: &Server, sql: &str, accept: &str) -> String {
    let reply = server.send("/v1/sql", &[("content-type", "text/plain"), ("accept", accept)], sql.to_owned()).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some(accept)), "{}", reply.text());
    reply.text()
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_can_be_looked_up_in_sql() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).start().await;
    server.declare("t", &definition()).await.ok();
    server.append("logs.web", [json!({ "ts": "2026-01-01T00:00:00Z", "n": 1 })]).await;
    let shown = Value::from(server.sql("show tables").await);
    assert_eq!(shown, json!([{ "namespace": "default", "table": "t" }, { "namespace": "logs", "table": "web" }]));
    let columns = "select column_name, is_nullable from information_schema.columns \
                   where table_schema = 'logs' and table_name = 'web' order by ordinal_position";
    let wanted = json!([
        { "column_name": "n", "is_nullable": "YES" },
        { "column_name": "ts", "is_nullable": "NO" },
        { "column_name": "date", "is_nullable": "YES" },
    ]);
    assert_eq!(Value::from(server.sql(columns).await), wanted);
    let described = server.sql("describe logs.web").await;
    let names: Vec<&Value> = described.iter().map(|row| &row["column_name"]).collect();
    assert_eq!(names, ["n", "ts", "date"]);
    let joined = "select count(*) as n from t full join logs.web on t.id = web.n";
    assert_eq!(server.row(joined).await["n"], 1);
    assert_eq!(server.sql("explain select * from t").await.len(), 2);
}
