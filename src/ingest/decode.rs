//! A body as one Arrow batch of the table's columns, with the event time of each row.

use ::arrow::array::{AsArray, RecordBatch};
use ::arrow::datatypes::TimestampMicrosecondType;
use bytes::Bytes;

use super::json::{self, Body};
use super::reject::Reject;
use super::rejected::Rejected;
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

/// Decodes a body into rows of the table, and the rows that it cannot hold. `now_micros` fills the receipt-time column of a table whose
/// rows have no event time of their own.
pub fn decode(
    spec: &TableSpec,
    format: Format,
    body: &Bytes,
    now_micros: i64,
    limits: &Limits,
) -> Result<Decoded, Reject> {
    if body.len() > limits.decoded_bytes() {
        return Err(Reject::body_too_large(limits.decoded_bytes()));
    }
    let mut rejected = Rejected::default();
    let batch = match format {
        Format::ArrowStream => arrow::decode(spec, body, now_micros, limits, &mut rejected)?,
        Format::Ndjson | Format::Json => {
            json::decode(spec, Body::new(format, body)?, now_micros, limits, &mut rejected)?
        }
    };
    let column = spec.column_index(spec.event_time.column()).expect("a table should have its event-time column");
    let times = batch.column(column).as_primitive::<TimestampMicrosecondType>().values().to_vec();
    Ok(Decoded { batch, times, rejected })
}
