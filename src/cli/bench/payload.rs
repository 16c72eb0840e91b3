//! Rows for a post: made once, from a fixed seed, so that two measurements send the same; for each post only the
//! times change. Shaped like the access log of some services.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::BodyFormat;
use crate::cli::client::{ARROW_STREAM, CreateTable, NDJSON};
use crate::schema::{ColumnSpec, ColumnType, TimeUnit};

/// Digits of a time in microseconds since the epoch, from 2001 to 2286.
const STAMP_DIGITS: usize = 16;
const SERVICES: [&str; 8] =
    ["checkout", "search", "inventory", "payments", "accounts", "shipping", "frontend", "images"];

/// The body of a post, but for its times.
#[derive(Debug)]
pub struct Payload {
    rows: u32,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// The text, and where the digits of each row's time are.
    Ndjson { text: Vec<u8>, stamps: Vec<usize> },
    /// The batch; its first column is replaced.
    Arrow(RecordBatch),
}

struct Row {
    host: String,
    service: &'static str,
    status: i64,
    latency_ms: f64,
    bytes: i64,
    message: String,
}

/// The tables' definition.
pub fn definition() -> CreateTable {
    let column = |name: &str, kind, nullable| ColumnSpec { name: name.to_owned(), kind, nullable };
    CreateTable {
        columns: vec![
            column("ts", ColumnType::Timestamp, false),
            column("host", ColumnType::String, true),
            column("service", ColumnType::String, true),
            column("status", ColumnType::Long, true),
            column("latency_ms", ColumnType::Double, true),
            column("bytes", ColumnType::Long, true),
            column("message", ColumnType::String, true),
        ],
        event_time: Some("ts".to_owned()),
        event_time_unit: Some(TimeUnit::Us),
        bucket: None,
        partition: true,
        sort: vec!["host".to_owned()],
        bloom: Vec::new(),
        rules: crate::schema::spec::RulesPatch::default(),
    }
}

impl Payload {
    /// `rows` rows of about `row_bytes` bytes as JSON.
    pub fn new(format: BodyFormat, rows: u32, row_bytes: u32) -> Result<Self, ArrowError> {
        let mut random = StdRng::seed_from_u64(0x9e37_79b9);
        let made: Vec<Row> = (0..rows).map(|_| row(&mut random, row_bytes as usize)).collect();
        let body = match format {
            BodyFormat::Ndjson => ndjson(&made),
            BodyFormat::Arrow => Body::Arrow(batch(&made)?),
        };
        Ok(Self { rows, body })
    }

    /// Rows a post.
    pub fn rows(&self) -> u64 {
        u64::from(self.rows)
    }

    /// The media type of the body.
    pub fn media_type(&self) -> &'static str {
        match self.body {
            Body::Ndjson { .. } => NDJSON,
            Body::Arrow(_) => ARROW_STREAM,
        }
    }

    /// A body whose first row has the time `now` (microseconds), each further one a microsecond more.
    pub fn render(&self, now: i64) -> Result<Bytes, ArrowError> {
        match &self.body {
            Body::Ndjson { text, stamps } => {
                let mut text = text.clone();
                for (row, at) in stamps.iter().enumerate() {
                    put_digits(&mut text[*at..*at + STAMP_DIGITS], now + row as i64);
                }
                Ok(text.into())
            }
            Body::Arrow(batch) => {
                let stamps = TimestampMicrosecondArray::from_iter_values(now..now + i64::from(self.rows));
                let mut columns = batch.columns().to_vec();
                columns[0] = Arc::new(stamps.with_timezone("UTC"));
                let batch = RecordBatch::try_new(batch.schema(), columns)?;
                let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
                writer.write(&batch)?;
                Ok(writer.into_inner()?.into())
            }
        }
    }
}

/// The time now, in microseconds since the epoch.
pub fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn row(random: &mut StdRng, row_bytes: usize) -> Row {
    // What the other columns take as JSON, about.
    let room = row_bytes.saturating_sub(130);
    let message: String =
        (0..room).map(|i| if i % 9 == 8 { ' ' } else { char::from(b'a' + random.random_range(0..26_u8)) }).collect();
    Row {
        host: format!("host-{:03}", random.random_range(0..200)),
        service: SERVICES[random.random_range(0..SERVICES.len())],
        status: [200, 200, 200, 200, 201, 204, 404, 500][random.random_range(0..8)],
        latency_ms: f64::from(random.random_range(200..90_000_u32)) / 1_000.0,
        bytes: random.random_range(120..60_000),
        message,
    }
}

fn ndjson(rows: &[Row]) -> Body {
    let mut text = Vec::new();
    let mut stamps = Vec::with_capacity(rows.len());
    for row in rows {
        text.extend_from_slice(b"{\"ts\":");
        stamps.push(text.len());
        text.extend_from_slice(&[b'0'; STAMP_DIGITS]);
        let rest = format!(
            ",\"host\":\"{}\",\"service\":\"{}\",\"status\":{},\"latency_ms\":{:.3},\"bytes\":{},\"message\":\"{}\"}}\n",
            row.host, row.service, row.status, row.latency_ms, row.bytes, row.message
        );
        text.extend_from_slice(rest.as_bytes());
    }
    Body::Ndjson { text, stamps }
}

fn batch(rows: &[Row]) -> Result<RecordBatch, ArrowError> {
    let strings = |of: fn(&Row) -> &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(rows.iter().map(of))) };
    let longs = |of: fn(&Row) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(rows.iter().map(of))) };
    let stamps = TimestampMicrosecondArray::from(vec![0; rows.len()]).with_timezone("UTC");
    RecordBatch::try_from_iter([
        ("ts", Arc::new(stamps) as ArrayRef),
        ("host", strings(|r| &r.host)),
        ("service", strings(|r| r.service)),
        ("status", longs(|r| r.status)),
        ("latency_ms", Arc::new(Float64Array::from_iter_values(rows.iter().map(|r| r.latency_ms)))),
        ("bytes", longs(|r| r.bytes)),
        ("message", strings(|r| &r.message)),
    ])
}

/// Writes a number right-aligned, with leading zeros if need be.
fn put_digits(to: &mut [u8], mut number: i64) {
    for digit in to.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
