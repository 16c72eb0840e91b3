use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::ipc::reader::StreamReader;
use clap::Parser;

use super::load::Load;
use super::payload::Payload;
use super::report::Report;
use super::{AppendArgs, BodyFormat, What, append, open, payload};
use crate::cli::client::{ARROW_STREAM, Client};
use crate::cli::stub::Stub;
use crate::cli::{Cli, Command};

fn args(extra: &str) -> AppendArgs {
    let words = ["penstock", "bench", "append"].into_iter().chain(extra.split_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        Command::Bench(args) => {
            let What::Append(args) = args.what else { panic!("not append") };
            args
        }
        _ => panic!("not bench"),
    }
}

#[test]
fn rows_carry_the_time_they_are_sent() {
    let payload = Payload::new(BodyFormat::Ndjson, 3, 200).unwrap();
    let body = payload.render(1_700_000_000_000_009).unwrap();
    let rows: Vec<serde_json::Value> =
        body.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect();
    let times: Vec<i64> = rows.iter().map(|row| row["ts"].as_i64().unwrap()).collect();
    assert_eq!(times, [1_700_000_000_000_009, 1_700_000_000_000_010, 1_700_000_000_000_011]);
    let each = body.len() / 3;
    assert!((180..=220).contains(&each), "{each} bytes a row");
    let declared: Vec<String> = payload::definition().columns.into_iter().map(|c| c.name).collect();
    let sent: Vec<String> = rows[0].as_object().unwrap().keys().cloned().collect();
    assert!(declared.iter().all(|name| sent.contains(name)) && sent.len() == declared.len());
}

#[test]
fn both_formats_send_the_same_rows() {
    let text = Payload::new(BodyFormat::Ndjson, 5, 300).unwrap().render(1_700_000_000_000_000).unwrap();
    let stream = Payload::new(BodyFormat::Arrow, 5, 300).unwrap().render(1_700_000_000_000_000).unwrap();
    let batch = StreamReader::try_new(stream.as_ref(), None).unwrap().next().unwrap().unwrap();
    let mut writer = arrow::json::LineDelimitedWriter::new(Vec::new());
    writer.write(&batch).unwrap();
    let from_arrow = writer.into_inner();
    let parse = |text: &[u8]| -> Vec<serde_json::Value> {
        text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect()
    };
    for (mut left, mut right) in parse(&text).into_iter().zip(parse(&from_arrow)) {
        // One writes microseconds, the other RFC 3339.
        left["ts"].take();
        right["ts"].take();
        assert_eq!(left, right);
    }
}

#[tokio::test]
async fn the_loop_ends_at_its_budget_and_counts_refusals() {
    let stub = Stub::start().await;
    let client = Client::new(&stub.url()).unwrap();
    let tables: Vec<crate::schema::TableName> = vec!["bench.a".parse().unwrap(), "bench.b".parse().unwrap()];
    for table in &tables {
        client.create(table, &payload::definition()).await.unwrap();
    }
    stub.shared.refuse.store(3, Ordering::Relaxed);
    let payload = Arc::new(Payload::new(BodyFormat::Arrow, 10, 200).unwrap());
    let load = Load { client, payload, tables: tables.into(), connections: 4 };
    let outcome = load.run(Duration::from_secs(20), 21).await.unwrap();
    assert_eq!((outcome.posts, outcome.rows, outcome.refusals), (21, 210, 3));
    assert_eq!(outcome.latencies.percentiles().count, 21);
    assert!(outcome.elapsed < Duration::from_secs(20));
    let rows: Vec<u64> = stub.shared.tables.lock().values().map(|t| t.rows).collect();
    assert_eq!(rows.iter().sum::<u64>(), 210);
    assert!(rows.iter().all(|rows| *rows > 0), "{rows:?}");
    assert!(stub.shared.media_types.lock().iter().all(|m| m == ARROW_STREAM));
}

#[tokio::test]
async fn an_open_loop_sends_what_is_due_and_does_not_send_again_what_is_refused() {
    let stub = Stub::start().await;
    let client = Client::new(&stub.url()).unwrap();
    let table: crate::schema::TableName = "bench.a".parse().unwrap();
    client.create(&table, &payload::definition()).await.unwrap();
    stub.shared.refuse.store(3, Ordering::Relaxed);
    let payload = Arc::new(Payload::new(BodyFormat::Arrow, 10, 200).unwrap());
    let load = Load { client, payload, tables: vec![table].into(), connections: 4 };
    let outcome = open::run(&load, 200.0, Duration::from_millis(500)).await.unwrap();
    assert_eq!((outcome.due, outcome.posts, outcome.rows, outcome.refused), (100, 97, 970, 3));
    assert_eq!(outcome.latencies.percentiles().count, 97);
    assert!(outcome.elapsed >= Duration::from_millis(490), "none before it is due: {:?}", outcome.elapsed);
}

#[tokio::test]
async fn what_was_sent_late_counts_from_when_it_was_due() {
    let stub = Stub::start().await;
    let client = Client::new(&stub.url()).unwrap();
    let table: crate::schema::TableName = "bench.a".parse().unwrap();
    client.create(&table, &payload::definition()).await.unwrap();
    let payload = Arc::new(Payload::new(BodyFormat::Arrow, 1, 200).unwrap());
    // All are due at once, and one connection sends them one after another: the last one has waited for all others.
    let load = Load { client, payload, tables: vec![table].into(), connections: 1 };
    let outcome = open::run(&load, 1e9, Duration::from_nanos(50)).await.unwrap();
    let (slowest, all) = (outcome.latencies.percentiles().max_us, outcome.elapsed.as_micros() as u64);
    assert_eq!(outcome.posts, 50);
    assert!(slowest * 10 >= all * 8, "the slowest took {slowest} us of {all}");
}

#[tokio::test]
async fn a_short_acknowledgement_ends_it() {
    let stub = Stub::start().await;
    stub.shared.forget.store(1, Ordering::Relaxed);
    let client = Client::new(&stub.url()).unwrap();
    let error = append(&args("--rows 2 --max-posts 5 --warm-up 0"), &client).await.unwrap_err();
    assert_eq!(error.to_string(), "a post of 2 rows was acknowledged with 1");
}

#[tokio::test]
async fn a_measurement_reports_differences() {
    let stub = Stub::start().await;
    let client = Client::new(&stub.url()).unwrap();
    let args = args("--rows 10 --max-posts 100 --warm-up 0 --connections 2 --tables 2");
    let before = client.status().await.unwrap();
    let report: Report = append(&args, &client).await.unwrap();
    assert_eq!(before.store.records, 0);
    assert_eq!((report.posts, report.rows), (100, 1_000));
    assert_eq!(report.written_per_payload_byte, Some(1.5));
    assert_eq!(report.records_per_sync, Some(2.0));
    assert!((report.cpu_seconds_per_million_rows - 1.0).abs() < 1e-9);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["ack"]["count"], 100);
    assert!(json["rows_per_second"].as_f64().unwrap() > 0.0);
    let text = report.text();
    assert!(text.contains("p99.9") && text.contains("1.50 bytes per payload byte"), "{text}");
}

#[test]
fn posts_are_bounded() {
    let too_many = Cli::try_parse_from(["penstock", "bench", "append", "--connections", "5000"]);
    assert_eq!(too_many.unwrap_err().exit_code(), 2);
    assert!(Cli::try_parse_from(["penstock", "bench", "append", "--url", "http://x", "--set", "a=b"]).is_err());
}
