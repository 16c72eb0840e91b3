//! Cuts the rows of a post by event-time bucket and encodes each cut as a slice for the log.

use std::collections::BTreeMap;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use penstock_store::{Bucket, SliceInput, TableId};

use super::decode::Decoded;
use super::reject::{Reject, RejectKind};
use crate::schema::payload::encode_slice;
use crate::schema::time::{DAY_MICROS, bucket_of};
use crate::schema::{TableSpec, payload::PayloadError};

/// How old a row has to be to count as old, microseconds.
pub const OLD: i64 = 2 * DAY_MICROS;

/// Most slices of one post. Each has a header of its own, so rows that are spread thin over time grow in the log.
pub const MAX_SLICES_PER_POST: usize = 4_096;

/// One slice a bucket, in the order of time; the rows of a slice keep the order of the post. The times must be those
/// of the batch, and not empty.
///
/// Rows before `old_before` (microseconds) go into buckets of a whole day: a backfill of years would otherwise come to a generation, a
/// file and a place in the commit order for each hour of them, in front of the fresh rows of its own table.
pub fn slices(table: TableId, spec: &TableSpec, decoded: Decoded, old_before: i64) -> Result<Vec<SliceInput>, Reject> {
    let Decoded { batch, times, .. } = decoded;
    assert_eq!(batch.num_rows(), times.len(), "every row has its time");
    let width = |time: i64| if time < old_before { DAY_MICROS } else { spec.bucket_micros() };
    let Some((min, max)) = bounds(&times) else {
        return Ok(Vec::new());
    };
    let first = bucket_of(min, width(min));
    if max < first.end() {
        return Ok(vec![slice(table, spec, first, &batch, (min, max))?]);
    }
    by_bucket(&times, width)?
        .into_iter()
        .map(|(bucket, rows)| {
            let bounds = bounds_of(&times, &rows);
            let part = take_record_batch(&batch, &UInt32Array::from(rows))
                .expect("rows should be found again in the batch they were counted in");
            slice(table, spec, bucket, &part, bounds)
        })
        .collect()
}

fn by_bucket(times: &[i64], width: impl Fn(i64) -> i64) -> Result<BTreeMap<Bucket, Vec<u32>>, Reject> {
    let mut buckets: BTreeMap<Bucket, Vec<u32>> = BTreeMap::new();
    for (row, time) in (0..).zip(times) {
        buckets.entry(bucket_of(*time, width(*time))).or_default().push(row);
        if buckets.len() > MAX_SLICES_PER_POST {
            return Err(Reject::new(
                RejectKind::Unprocessable,
                "too_many_buckets",
                format!("the event times of the rows fall into more than {MAX_SLICES_PER_POST} buckets of the table"),
                "send rows in the order of time, split over several posts, or declare a table with a wider bucket",
            ));
        }
    }
    Ok(buckets)
}

fn bounds(times: &[i64]) -> Option<(i64, i64)> {
    times.iter().fold(None, |so_far, &time| {
        let (min, max) = so_far.unwrap_or((time, time));
        Some((min.min(time), max.max(time)))
    })
}

fn bounds_of(times: &[i64], rows: &[u32]) -> (i64, i64) {
    let times: Vec<i64> = rows.iter().map(|row| times[*row as usize]).collect();
    bounds(&times).expect("a bucket should have the row it was opened for")
}

fn slice(
    table: TableId,
    spec: &TableSpec,
    bucket: Bucket,
    rows: &RecordBatch,
    (min_time, max_time): (i64, i64),
) -> Result<SliceInput, Reject> {
    let (encoding, payload) = encode_slice(rows).map_err(|e| unencodable(&e))?;
    Ok(SliceInput {
        table,
        schema_version: spec.schema_version,
        encoding,
        bucket,
        rows: u32::try_from(rows.num_rows()).map_err(|_| Reject::too_many_rows(u32::MAX as usize))?,
        min_time,
        max_time,
        payload,
    })
}

fn unencodable(error: &PayloadError) -> Reject {
    let help = "split the rows over several posts";
    Reject::new(RejectKind::Unprocessable, "unencodable_rows", error.to_string(), help)
}
