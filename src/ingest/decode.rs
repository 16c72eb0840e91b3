//! A body as one Arrow batch of the table's columns, with the event time of each row.

use std::sync::Arc;

use ::arrow::array::{AsArray, RecordBatch};
use ::arrow::datatypes::TimestampMicrosecondType;
use bytes::Bytes;

use super::json::{self, Body};
use super::limits::row_bytes;
use super::reject::Reject;
use super::rejected::Rejected;
use super::room::{Boundless, Room};
use super::{Format, Limits, arrow};
use crate::schema::TableSpec;

/// The rows of a post.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The rows, with the schema [`crate::schema::arrow::arrow_schema`] gives for the table.
    pub batch: RecordBatch,
    /// The event time of each row, in microseconds since the epoch.
    pub times: Vec<i64>,
    /// The rows of the post that the table cannot hold; they are not in the batch.
    pub rejected: Rejected,
}

/// About what the columns of a body will hold, bytes: its text, and the fixed part of its rows, as far as they show without being read.
/// A lower bound is fine: what is above it is asked for as it comes.
pub fn expected_bytes(spec: &TableSpec, format: Format, body: &Bytes, limits: &Limits) -> usize {
    let fixed = |rows: usize| rows.min(limits.max_rows).saturating_mul(row_bytes(spec)).min(limits.max_batch_bytes);
    let fixed = match format {
        Format::Ndjson => {
            let of_lines = fixed(1 + body.iter().filter(|byte| **byte == b'\n').count());
            // Dense rows are done with. Where lines would take much more than their text, blank ones are not counted: that costs more.
            let is_sparse = of_lines > body.len().saturating_mul(4);
            if is_sparse { fixed(1 + body.windows(2).filter(|pair| pair == b"\n{").count()) } else { of_lines }
        }
        Format::Json | Format::ArrowStream => 0,
    };
    body.len().saturating_add(fixed)
}

/// Decodes a body into rows of the table, and the rows that it cannot hold. `now_micros` fills the receipt-time column of a table whose
/// rows have no event time of their own.
pub fn decode(
    spec: &TableSpec,
    format: Format,
    body: &Bytes,
    now_micros: i64,
    limits: &Limits,
) -> Result<Decoded, Reject> {
    decode_in(spec, format, body, now_micros, limits, Arc::new(Boundless))
}

/// The same, in a room that is asked before memory is taken.
pub fn decode_in(
    spec: &TableSpec,
    format: Format,
    body: &Bytes,
    now_micros: i64,
    limits: &Limits,
    room: Arc<dyn Room>,
) -> Result<Decoded, Reject> {
    let (rejected, decoded) = decode_telling(spec, format, body, now_micros, limits, room);
    decoded.map(|decoded| Decoded { rejected, ..decoded })
}

/// As [`decode`], and leaves the rejected rows also where there were too many of them.
pub(super) fn decode_telling(
    spec: &TableSpec,
    format: Format,
    body: &Bytes,
    now_micros: i64,
    limits: &Limits,
    room: Arc<dyn Room>,
) -> (Rejected, Result<Decoded, Reject>) {
    let mut rejected = Rejected::default();
    if body.len() > limits.decoded_bytes() {
        return (rejected, Err(Reject::body_too_large(limits.decoded_bytes())));
    }
    let batch = rows(spec, format, body, now_micros, limits, &mut rejected, room);
    let decoded = batch.map(|batch| timed(spec, batch, Rejected::default()));
    (rejected, decoded)
}

fn rows(
    spec: &TableSpec,
    format: Format,
    body: &Bytes,
    now_micros: i64,
    limits: &Limits,
    rejected: &mut Rejected,
    room: Arc<dyn Room>,
) -> Result<RecordBatch, Reject> {
    match format {
        Format::ArrowStream => arrow::decode(spec, body, now_micros, limits, rejected, &*room),
        Format::Ndjson | Format::Json => {
            json::decode(spec, Body::new(format, body)?, now_micros, limits, rejected, room)
        }
    }
}

/// Decodes one JSON row that stands by itself, also over several lines.
pub fn decode_one(spec: &TableSpec, row: &Bytes, now_micros: i64, limits: &Limits) -> Result<Decoded, Reject> {
    let mut rejected = Rejected::default();
    let batch = json::decode(spec, Body::one(row), now_micros, limits, &mut rejected, Arc::new(Boundless))?;
    Ok(timed(spec, batch, rejected))
}

fn timed(spec: &TableSpec, batch: RecordBatch, rejected: Rejected) -> Decoded {
    let column = spec.column_index(spec.event_time.column()).expect("a table should have its event-time column");
    let times = batch.column(column).as_primitive::<TimestampMicrosecondType>().values().to_vec();
    Decoded { batch, times, rejected }
}
