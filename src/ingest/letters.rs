//! Rejected rows on their way into the dead-letter table of their namespace ([`crate::schema::letters`] says what it is).
//!
//! - They are durable before the rows of the same post that were taken, or with them: where both tables are on one shard they are one
//!   record, all or nothing; else the letters go first. A crash in between leaves letters of a post that was never acknowledged, which the
//!   sender sends again: letters may then be there twice, under two ids, and rows are not. In the other order a repeat that is known as
//!   one would be answered from its first record, and the letters were lost.
//! - A post that is refused whole leaves none: its sender has the rows and knows it. Those are `on_error=abort`, too many bad rows in
//!   one post, and too many from one sender ([`quota`]).
//! - A post without any good row is refused and leaves its rows here all the same: what becomes of a row does not depend on its
//!   neighbours.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array,
};
use penstock_store::{NodeId, SliceInput};
use uuid::Uuid;

use super::decode::Decoded;
use super::{Format, Reject, RejectedRow, slices};
use crate::schema::arrow::{UTC, arrow_schema};
use crate::schema::letters::{REJECTED, REPLAYED, REPLAYING};
use crate::schema::registry::Table;
use crate::schema::{TableName, TableSpec};

pub mod quota;
pub mod replay;

#[cfg(test)]
mod tests;

/// What the letters of one post have in common.
#[derive(Debug, Clone, Copy)]
pub struct Envelope<'a> {
    /// Names the post; with the row's number it is the letter's id. The same for a repeat that is known as one.
    pub post: Uuid,
    pub table: &'a TableName,
    pub format: Format,
    pub sender: &'a str,
    pub node: NodeId,
    /// Time of receipt, microseconds.
    pub now: i64,
}

impl Envelope<'_> {
    /// The rows as letters, a slice for the log.
    ///
    /// # Errors
    /// If they cannot be encoded.
    pub fn seal(&self, letters: &Table, rows: &[&RejectedRow]) -> Result<Vec<SliceInput>, Reject> {
        let text = |of: &dyn Fn(&RejectedRow) -> Option<String>| -> ArrayRef {
            Arc::new(rows.iter().map(|row| of(row)).collect::<StringArray>())
        };
        let number = |row: &&RejectedRow| row.reason.row.and_then(|row| i64::try_from(row).ok());
        let columns = Columns { spec: &letters.spec, rows: rows.len() };
        let batch = columns.batch(|name| match name {
            "received_at" => Some(columns.time(self.now)),
            "id" => Some(text(&|row| Some(format!("{}.{}", self.post, row.reason.row.unwrap_or_default())))),
            "state" => Some(columns.text(REJECTED)),
            "node" => Some(columns.text(&self.node.to_string())),
            "table_name" => Some(columns.text(&self.table.to_string())),
            "source" => Some(columns.text(self.format.name())),
            "sender" => Some(columns.text(self.sender)),
            "row_number" => Some(Arc::new(rows.iter().map(number).collect::<Int64Array>())),
            "code" => Some(text(&|row| Some(row.reason.code.to_owned()))),
            "column_name" => Some(text(&|row| row.reason.column.as_deref().map(str::to_owned))),
            "value" => Some(text(&|row| row.reason.value.as_deref().map(str::to_owned))),
            "reason" => Some(text(&|row| Some(row.reason.message.clone()))),
            "help" => Some(text(&|row| Some(row.reason.help.clone()))),
            "original" => Some(Arc::new(rows.iter().map(|row| Some(row.original.as_ref())).collect::<BinaryArray>())),
            _ => None,
        });
        columns.slices(letters, batch, self.now)
    }
}

/// Which state letters come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Replaying,
    Replayed,
}

/// Says of letters that a replay is about to append them, or has.
///
/// # Errors
/// If that cannot be encoded.
pub fn mark(
    letters: &Table,
    ids: &[String],
    step: Step,
    replay: Uuid,
    node: NodeId,
    now: i64,
) -> Result<Vec<SliceInput>, Reject> {
    let columns = Columns { spec: &letters.spec, rows: ids.len() };
    let batch = columns.batch(|name| match name {
        "received_at" => Some(columns.time(now)),
        "id" => Some(Arc::new(ids.iter().map(Some).collect::<StringArray>())),
        "state" => Some(columns.text(if step == Step::Replaying { REPLAYING } else { REPLAYED })),
        "node" => Some(columns.text(&node.to_string())),
        "replay" => Some(columns.text(&replay.to_string())),
        _ => None,
    });
    columns.slices(letters, batch, now)
}

/// Columns of so many rows of the dead-letter table.
struct Columns<'a> {
    spec: &'a TableSpec,
    rows: usize,
}

impl Columns<'_> {
    fn batch(&self, column: impl Fn(&str) -> Option<ArrayRef>) -> RecordBatch {
        let schema = arrow_schema(self.spec);
        let fields = schema.fields().iter();
        let columns = fields.map(|f| column(f.name()).unwrap_or_else(|| new_null_array(f.data_type(), self.rows)));
        RecordBatch::try_new(Arc::clone(&schema), columns.collect()).expect("a letter should have its table's columns")
    }

    fn text(&self, text: &str) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, self.rows)))
    }

    fn time(&self, micros: i64) -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from_value(micros, self.rows).with_timezone(UTC))
    }

    fn slices(&self, letters: &Table, batch: RecordBatch, now: i64) -> Result<Vec<SliceInput>, Reject> {
        let decoded = Decoded { batch, times: vec![now; self.rows], rejected: super::Rejected::default() };
        slices(letters.id, self.spec, decoded, i64::MIN)
    }
}
