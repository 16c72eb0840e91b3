//! Posts.

use std::io::{Read, repeat};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::ipc::writer::StreamWriter;
use serde_json::{Map, Value, json};

use super::{Case, Victim};
use crate::kit::wire::{Wire, post_head};
use crate::kit::{self, ARROW, JSON, NDJSON, Reply, Server};

const TS: &str = "\"ts\":\"2026-01-01T00:00:00Z\"";

/// What is wrong, table, content type, body, statuses that are right, words that tell what is wrong.
type Bad = (&'static str, &'static str, &'static str, String, &'static [u16], &'static [&'static str]);

fn nested(open: &str, inner: &str, close: &str) -> String {
    const DEPTH: usize = 100_000;
    format!("{}{inner}{}", open.repeat(DEPTH), close.repeat(DEPTH))
}

fn wide(keys: usize) -> String {
    let columns: Map<String, Value> = (0..keys).map(|i| (format!("c{i}"), json!(i))).collect();
    Value::from(columns).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn json_that_is_wrong_is_refused_with_row_and_reason() {
    let victim = Victim::start(&[]).await;
    let with = |more: &str| format!("{{{TS},{more}}}");
    let deep_lists = nested("[", "1", "]");
    let cases: Vec<Bad> = vec![
        ("cut off", "bad", JSON, "{\"ts\":".into(), &[400], &["row 1", "JSON"]),
        ("cut off in line 2", "bad", NDJSON, format!("{{{TS}}}\n{{\"ts\":\n"), &[422], &["line 2"]),
        ("no JSON at all", "bad", JSON, "<xml/>".into(), &[400, 422], &["row 1"]),
        ("not a number", "bad", JSON, with("\"x\":NaN"), &[400], &["JSON"]),
        ("a number as a row", "bad", JSON, "[1,2]".into(), &[422], &["object"]),
        ("bytes behind the end", "bad", JSON, format!("[{{{TS}}}] x"), &[400], &["trailing"]),
        ("an empty body", "bad", JSON, String::new(), &[400], &["no rows"]),
        ("empty lines", "bad", NDJSON, "\n\n".into(), &[400], &["no rows"]),
        ("an empty array", "bad", JSON, "[]".into(), &[400], &["no rows"]),
        ("a key twice", "bad", JSON, with("\"a\":1,\"a\":2"), &[400, 422], &["row 1", "twice"]),
        ("a key twice, known", "good", JSON, with("\"id\":1,\"id\":2"), &[400, 422], &["row 1", "twice", "id"]),
        ("keys that differ in case", "bad", JSON, with("\"a\":1,\"A\":2"), &[422], &["case"]),
        ("an empty key", "bad", JSON, with("\"\":1"), &[422], &["name"]),
        ("10,633 keys for a known table", "good", JSON, wide(10_633), &[422], &["no such column"]),
        ("deep lists", "bad", JSON, format!("{{\"a\":{deep_lists}}}"), &[400, 422], &["row 1"]),
        ("deep lists for a known column", "good", JSON, with(&format!("\"id\":{deep_lists}")), &[400, 422], &["row 1"]),
        ("deep lists at the top", "bad", JSON, deep_lists.clone(), &[400, 422], &["row 1"]),
        ("deep lists, not closed", "bad", NDJSON, "[".repeat(100_000), &[400, 422], &["row 1"]),
        ("deep objects", "bad", JSON, nested("{\"a\":", "1", "}"), &[400, 422], &["row 1"]),
        ("an unknown column", "good", JSON, with("\"nope\":1"), &[422], &["nope", "no such column"]),
        ("a value of another type", "good", JSON, with("\"id\":\"x\""), &[422], &["id", "long"]),
        ("a number out of range", "good", JSON, with("\"id\":1e999"), &[422], &["id", "range"]),
        ("a fraction for a long", "good", JSON, with("\"id\":1.5"), &[422], &["id"]),
        ("no event time", "good", JSON, "{\"id\":1}".into(), &[422], &["ts", "null"]),
        ("a time that is none", "good", JSON, "{\"ts\":\"yesterday\"}".into(), &[422], &["yesterday", "RFC 3339"]),
        ("a time in numbers", "good", JSON, "{\"ts\":1700000000}".into(), &[422], &["time_unit"]),
        ("a year beyond all", "good", JSON, "{\"ts\":\"99999-01-01T00:00:00Z\"}".into(), &[422], &["ts"]),
        (
            "the second of two rows",
            "good",
            NDJSON,
            format!("{{{TS}}}\n{{{TS},\"id\":true}}\n"),
            &[422],
            &["row 2", "line 2"],
        ),
    ];
    for (what, table, content_type, body, status, says) in cases {
        let path = format!("/v1/tables/{table}/rows?on_error=abort");
        let reply = victim.server.send(&path, &[("content-type", content_type)], body).await;
        Case { what, reply, status, says }.check();
    }
    let nanoseconds = format!("{{\"ts\":{}}}", 1_700_000_000_335_226_412_u64);
    let path = "/v1/tables/bad/rows?time_unit=ms";
    let reply = victim.server.send(path, &[("content-type", JSON)], nanoseconds).await;
    Case { what: "nanoseconds for milliseconds", reply, status: &[422], says: &["unit"] }.check();
    for (what, body) in
        [("a byte that is no UTF-8", b"{\"a\":\"\xff\xfe\"}".to_vec()), ("half a character", b"{\"a\":\"\xc3".to_vec())]
    {
        for content_type in [JSON, NDJSON] {
            let reply = victim.server.post("bad", content_type, body.clone()).await;
            Case { what, reply, status: &[400, 422], says: &["UTF-8"] }.check();
        }
    }
    victim.check(&["good"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_names_and_parameters_that_are_wrong_are_refused() {
    let victim = Victim::start(&[("ingest.create_tables", "true")]).await;
    let post =
        async |path: &str, headers: &[(&str, &str)]| victim.server.send(path, headers, format!("{{{TS}}}")).await;
    let json: [(&str, &str); 1] = [("content-type", JSON)];
    let rows = "/v1/tables/bad/rows";
    let cases = [
        ("no content type", post(rows, &[]).await, [415, 415], "Content-Type"),
        ("another content type", post(rows, &[("content-type", "text/xml")]).await, [415, 415], "text/xml"),
        (
            "another encoding",
            post(rows, &[("content-type", JSON), ("content-encoding", "br")]).await,
            [415, 415],
            "zstd",
        ),
        (
            "two encodings",
            post(rows, &[("content-type", JSON), ("content-encoding", "gzip, zstd")]).await,
            [415, 415],
            "gzip",
        ),
        (
            "gzip that is none",
            post(rows, &[("content-type", JSON), ("content-encoding", "gzip")]).await,
            [400, 400],
            "gzip",
        ),
        (
            "zstd that is none",
            post(rows, &[("content-type", JSON), ("content-encoding", "zstd")]).await,
            [400, 400],
            "zstd",
        ),
        ("a unit that is none", post(&format!("{rows}?time_unit=h"), &json).await, [400, 400], "ms"),
        ("an unknown parameter", post(&format!("{rows}?unit=ms"), &json).await, [400, 400], "time_unit"),
        ("a way out", post("/v1/tables/..%2Fx/rows", &json).await, [400, 400], "../x"),
        ("a way out, encoded twice", post("/v1/tables/%252e%252e/rows", &json).await, [400, 400], "name"),
        ("capitals", post("/v1/tables/A.B/rows", &json).await, [400, 400], "lower case"),
        ("three parts", post("/v1/tables/a.b.c/rows", &json).await, [400, 400], "namespace.table"),
        ("a way out, all of it encoded", post("/v1/tables/%2e%2e%2f/rows", &json).await, [400, 404], ""),
        ("empty parts", post("/v1/tables/a./rows", &json).await, [400, 400], "name"),
        ("a zero byte", post("/v1/tables/%00/rows", &json).await, [400, 400], "name"),
        ("a name that is no UTF-8", post("/v1/tables/%ff/rows", &json).await, [400, 400], "UTF-8"),
        ("a letter with an accent", post("/v1/tables/caf%C3%A9/rows", &json).await, [400, 400], "letter"),
        ("a digit in front", post("/v1/tables/1st/rows", &json).await, [400, 400], "letter"),
        ("a name of 64 letters", post(&format!("/v1/tables/{}/rows", "a".repeat(64)), &json).await, [400, 400], "63"),
        ("no such path", post("/v1/nothing", &json).await, [404, 404], "path"),
        ("no such method", post("/v1/tables/good", &json).await, [405, 405], "method"),
    ];
    for (what, reply, status, says) in cases {
        Case { what, reply, status: status.to_vec().leak(), says: vec![says].leak() }.check();
    }
    // Escapes of plain letters are plain letters.
    let reply = post("/v1/tables/%67ood/rows", &json).await;
    assert_eq!(reply.ok()["table"], "default.good");
    victim.server.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn under_a_strict_configuration_posts_make_no_tables() {
    let dir = kit::directory();
    let server = kit::Launch::on(dir.path()).set("ingest.create_tables", "false").start().await;
    let reply = server.post("unknown", JSON, format!("{{{TS}}}")).await;
    Case { what: "an unknown table", reply, status: &[404], says: &["unknown", "PUT /v1/tables"] }.check();
    let definition = json!({ "columns": [{ "name": "ts", "type": "timestamp", "nullable": false }] });
    server.declare("known", &definition).await.ok();
    assert_eq!(server.post("known", JSON, format!("{{{TS}}}")).await.ok()["rows"], 1);
    assert_eq!(server.get("/v1/tables").await.ok()["tables"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_too_large_are_refused_however_they_come() {
    let limits = [("ingest.max_body", "1MiB"), ("ingest.max_decoded", "2MiB"), ("ingest.max_rows", "1000")];
    let victim = Victim::start(&limits).await;
    let server = &victim.server;
    let blank = |bytes: u64| {
        let mut body = Vec::new();
        repeat(b' ').take(bytes).read_to_end(&mut body).expect("should make a body");
        body
    };
    let told = server.post("bad", JSON, blank(3 << 20)).await;
    Case { what: "a body over the limit", reply: told, status: &[413], says: &["1048576", "max_body"] }.check();
    let answer = chunked(server, 40, 64 << 10).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{answer}");
    let announced = announce(server, "content-length: 99999999999\r\n").await;
    assert!(announced.starts_with("HTTP/1.1 413"), "{announced}");
    let rows = server.post("bad", NDJSON, format!("{{{TS}}}\n").repeat(1_001)).await;
    Case { what: "too many rows", reply: rows, status: &[413], says: &["1000", "split"] }.check();

    for (what, encoding, body) in [
        ("a gzip bomb", "gzip", gzip_of_blanks(64 << 20)),
        ("a zstd bomb", "zstd", zstd_of_blanks(512 << 20)),
        ("a zstd frame with a window of 2 GiB", "zstd", huge_window()),
    ] {
        assert!(body.len() < 1 << 20, "{what} has {} bytes", body.len());
        let headers = [("content-type", JSON), ("content-encoding", encoding)];
        let reply = server.send("/v1/tables/bad/rows", &headers, body).await;
        Case { what, reply, status: &[400, 413], says: &[] }.check();
    }
    victim.check(&["good"]).await;
}

fn gzip_of_blanks(bytes: u64) -> Vec<u8> {
    let mut compressed = Vec::new();
    let mut encoder = flate2::read::GzEncoder::new(repeat(b' ').take(bytes), flate2::Compression::fast());
    encoder.read_to_end(&mut compressed).expect("should compress");
    compressed
}

fn zstd_of_blanks(bytes: u64) -> Vec<u8> {
    zstd::encode_all(repeat(b' ').take(bytes), 1).expect("should compress")
}

/// A frame header that asks for a window of 2 GiB, and an empty last block.
fn huge_window() -> Vec<u8> {
    vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00]
}

/// Posts a body in chunks, without saying how long it will be.
async fn chunked(server: &Server, chunks: usize, size: usize) -> String {
    let mut wire = Wire::to(server.address()).await;
    wire.send(post_head("bad", "transfer-encoding: chunked\r\n").as_bytes()).await;
    let chunk = format!("{size:x}\r\n{}\r\n", " ".repeat(size));
    for _ in 0..chunks {
        wire.send(chunk.as_bytes()).await;
    }
    wire.send(b"0\r\n\r\n").await;
    wire.answer().await
}

/// Announces a body and waits for a go-ahead.
async fn announce(server: &Server, header: &str) -> String {
    let mut wire = Wire::to(server.address()).await;
    wire.send(post_head("bad", &format!("expect: 100-continue\r\n{header}")).as_bytes()).await;
    wire.answer().await
}

fn good_stream() -> Vec<u8> {
    let times = TimestampMicrosecondArray::from(vec![1_767_225_600_000_000; 64]).with_timezone("UTC");
    let columns: Vec<(&str, ArrayRef)> =
        vec![("ts", Arc::new(times)), ("id", Arc::new(Int64Array::from_iter_values(0..64)))];
    let batch = RecordBatch::try_from_iter(columns).expect("should make a batch");
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).expect("should begin a stream");
    writer.write(&batch).expect("should write a batch");
    writer.into_inner().expect("should end the stream")
}

#[tokio::test(flavor = "multi_thread")]
async fn arrow_streams_that_are_wrong_are_refused() {
    let victim = Victim::start(&[]).await;
    let good = good_stream();
    let mut bad: Vec<(String, Vec<u8>)> = vec![
        ("empty".into(), Vec::new()),
        ("garbage".into(), b"garbage, and more of it, and more of it".to_vec()),
        ("a file".into(), [b"ARROW1\0\0", good.as_slice()].concat()),
        ("bytes behind the end".into(), [good.as_slice(), b"more"].concat()),
        ("2 GiB of metadata".into(), [&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], good.as_slice()].concat()),
        ("negative metadata".into(), [&[0xff, 0xff, 0xff, 0xff, 0xf8, 0xff, 0xff, 0xff], good.as_slice()].concat()),
        ("no schema".into(), vec![0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]),
    ];
    // The end-of-stream mark is eight bytes, and a stream may do without it.
    bad.extend((1..good.len() - 8).step_by(61).map(|len| (format!("cut to {len} bytes"), good[..len].to_vec())));
    for (what, body) in bad {
        let reply = victim.server.post("bad", ARROW, body).await;
        assert!((400..500).contains(&reply.status), "{what}: {}: {}", reply.status, reply.text());
        reply.refusal();
    }
    // Every byte of lengths, offsets and counts, made huge: refused, or rows whose count is right.
    for at in (0..good.len()).step_by(7) {
        let mut body = good.clone();
        body[at] ^= 0xff;
        let reply: Reply = victim.server.post("maybe", ARROW, body).await;
        assert!((200..500).contains(&reply.status), "byte {at}: {}: {}", reply.status, reply.text());
    }
    let known = victim.server.sql("show tables").await;
    let known = known.iter().filter_map(|row| row["table"].as_str()).filter(|table| *table != "dead_letters");
    let known: Vec<&str> = known.collect();
    victim.check(&known).await;
}
