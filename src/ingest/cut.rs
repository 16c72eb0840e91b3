//! The rows of a post, decoded and cut within the room that it has, and what its table would have to be to hold more of them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use bytes::Bytes;
use penstock_store::SliceInput;

use super::decode::{Decoded, decode_telling, expected_bytes};
use super::post::PostError;
use super::room::{Leased, Room, none_left};
use super::slices::{OLD, slices};
use super::{Format, Limits, OnError, Reject, Rejected, evolve};
use crate::admission::POST_OVERHEAD;
use crate::schema::TableSpec;
use crate::schema::registry::Table;

/// What a post takes at its peak beside its body, in times of what its columns hold: they grow by doubling, and are written out twice.
const PEAK: usize = 3;

/// Steps in which one post may change its table: a row shows one fault at a time.
const MAX_STEPS: usize = 4;

/// How a post is to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub format: Format,
    pub on_error: OnError,
    /// Time of receipt, microseconds.
    pub now: i64,
    pub limits: Limits,
}

/// The rows of a post, ready for the log.
#[derive(Debug)]
pub(super) struct Cut {
    pub slices: Vec<SliceInput>,
    pub rows: u64,
    pub rejected: Rejected,
}

impl Cut {
    /// The same, if the sender wants good rows without bad ones.
    pub fn or_none(self, on_error: OnError) -> Result<Self, PostError> {
        match on_error {
            OnError::Abort if !self.rejected.is_empty() => {
                Err(PostError::NoneTaken { rejected: self.rejected, good: self.rows, kept: false })
            }
            _ => Ok(self),
        }
    }
}

/// What came of a post under the definition at hand.
#[derive(Debug)]
pub(super) enum Attempt {
    Done(Cut),
    /// The table evolves, and this definition holds more of the rows.
    Evolve {
        next: Box<TableSpec>,
        body: Bytes,
    },
}

/// Decodes a body into rows of the table, within the room that the post has.
pub(super) fn attempt(
    table: &Table,
    body: Bytes,
    terms: &Terms,
    may_evolve: bool,
    room: &Arc<Leased>,
) -> Result<Attempt, PostError> {
    // Before the first row is read: a refusal half-way would be work for nothing. A small post has what every post has.
    let expected = expected_bytes(&table.spec, terms.format, &body, &terms.limits);
    if expected > POST_OVERHEAD as usize / PEAK && !room.take(expected.saturating_mul(PEAK)) {
        return Err(room.explain(none_left()));
    }
    let (rejected, decoded) = read(&table.spec, &body, terms, room);
    if may_evolve
        && !rejected.is_empty()
        && let Some(next) = next(&table.spec, &body, terms, &rejected, room)
    {
        return Ok(Attempt::Evolve { next: Box::new(next), body });
    }
    let decoded = decoded.map_err(|reject| room.explain::<PostError>(reject))?;
    let rows = decoded.times.len() as u64;
    // The columns as they have grown (those that share a buffer count it each); and what they become, once as it is put together and
    // once as it stays. The body's bytes are those of one of the two.
    let becomes = size_of_values(&decoded.batch);
    let grown = decoded.batch.get_array_memory_size().min(becomes.saturating_mul(2));
    drop(body);
    if !room.settle(grown.saturating_add(becomes.saturating_mul(2))) {
        return Err(room.explain(none_left()));
    }
    let slices = slices(table.id, &table.spec, decoded, terms.now.saturating_sub(OLD))?;
    Ok(Attempt::Done(Cut { slices, rows, rejected }))
}

fn read(spec: &TableSpec, body: &Bytes, terms: &Terms, room: &Arc<Leased>) -> (Rejected, Result<Decoded, Reject>) {
    let room = Arc::clone(room) as Arc<dyn Room>;
    decode_telling(spec, terms.format, body, terms.now, &terms.limits, room)
}

fn size_of_values(batch: &RecordBatch) -> usize {
    let of_column =
        |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(column.get_array_memory_size());
    batch.columns().iter().map(of_column).sum()
}

/// The definition that comes of the post, if its rows would then be taken: what is refused changes no table.
fn next(spec: &TableSpec, body: &Bytes, terms: &Terms, rejected: &Rejected, room: &Arc<Leased>) -> Option<TableSpec> {
    let evolve =
        |spec: &TableSpec, rejected: &Rejected| evolve::next(spec, terms.format, body, rejected, &terms.limits);
    let mut found = evolve(spec, rejected)?;
    for _ in 0..MAX_STEPS {
        let (rejected, decoded) = read(&found, body, terms, room);
        match evolve(&found, &rejected) {
            Some(further) => found = further,
            None => {
                let taken = decoded.is_ok_and(|decoded| !decoded.times.is_empty());
                return (taken && (terms.on_error == OnError::Accept || rejected.is_empty())).then_some(found);
            }
        }
    }
    None
}
