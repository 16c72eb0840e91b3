//! NDJSON into Arrow: posts of 500 rows with eight typed columns, by our decoder and by arrow-json's reader on the same
//! bytes. The two do not do the same work: ours also refuses unknown and repeated keys and every value that its column
//! would hold with loss.

use std::fmt::Write;
use std::hint::black_box;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::json::ReaderBuilder;
use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use penstock::ingest::{Format, Limits, decode};
use penstock::schema::arrow::arrow_schema;
use penstock::schema::{ColumnSpec, EventTime, TableSpec};

const ROWS: usize = 500;

fn spec() -> TableSpec {
    let columns = [
        ("ts", "timestamp"),
        ("host", "string"),
        ("region", "string"),
        ("status", "int"),
        ("bytes", "long"),
        ("latency", "double"),
        ("ok", "boolean"),
        ("message", "string"),
    ]
    .map(|(name, kind)| ColumnSpec {
        name: name.to_owned(),
        kind: kind.parse().expect("should be a type"),
        nullable: name != "ts",
    });
    TableSpec {
        name: "requests".parse().expect("should be a name"),
        schema_version: 1,
        partition: Some("date".to_owned()),
        columns: columns.into(),
        event_time: EventTime::Column { name: "ts".to_owned(), unit: None },
        bucket_seconds: 3_600,
        sort: Vec::new(),
        history: Vec::new(),
        bloom: Vec::new(),
        rules: penstock::schema::Rules::default(),
    }
}

fn post() -> Bytes {
    let mut text = String::new();
    for i in 0..ROWS {
        writeln!(
            text,
            r#"{{"ts":"2026-01-31T12:{:02}:{:02}.{:06}Z","host":"host-{}","region":"eu-west-1","status":{},"bytes":{},"latency":{}.{:03},"ok":{},"message":"GET /api/v1/items/{} took longer than usual"}}"#,
            i / 60 % 60,
            i % 60,
            i * 7_919 % 1_000_000,
            i % 40,
            200 + i % 5,
            i * 104_729,
            i % 900,
            i % 1_000,
            i % 3 == 0,
            i * 31,
        )
        .expect("should write into memory");
    }
    Bytes::from(text)
}

fn by_arrow_json(schema: &Arc<arrow::datatypes::Schema>, body: &Bytes) -> RecordBatch {
    let mut reader = ReaderBuilder::new(schema.clone())
        .with_batch_size(ROWS)
        .with_strict_mode(true)
        .build(body.as_ref())
        .expect("should build");
    reader.next().expect("should have a batch").expect("should decode")
}

fn json_decode(c: &mut Criterion) {
    let (spec, body, limits) = (spec(), post(), Limits::default());
    let schema = arrow_schema(&spec);
    let ours = decode(&spec, Format::Ndjson, &body, 0, &limits).expect("should decode");
    assert_eq!(ours.batch, by_arrow_json(&schema, &body), "both decoders should read the same");
    for (unit, throughput) in
        [("bytes", Throughput::Bytes(body.len() as u64)), ("rows", Throughput::Elements(ROWS as u64))]
    {
        let mut group = c.benchmark_group(format!("ndjson_{unit}"));
        group.throughput(throughput);
        group.bench_function("penstock", |b| {
            b.iter(|| decode(&spec, Format::Ndjson, black_box(&body), 0, &limits));
        });
        group.bench_function("arrow_json", |b| b.iter(|| by_arrow_json(&schema, black_box(&body))));
        group.finish();
    }
}

criterion_group!(benches, json_decode);
criterion_main!(benches);
