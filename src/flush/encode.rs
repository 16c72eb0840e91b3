//! Turns a generation's slices into what a data file holds: one order over all rows, the partition column added, in
//! batches of bounded size.
//!
//! Keys are compared in Arrow's row format and only the keys are copied for it: the rows themselves are gathered once,
//! a bounded batch at a time and only when it is asked for, so that neither the memory nor the 2 GiB limit of a string
//! column's offsets grows with the generation. Beside the rows there are the keys and eight bytes a row, and the keys are gone
//! before the first batch is gathered.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::error::ArrowError;
use arrow::row::{Row, RowConverter, Rows, SortField};
use penstock_store::Bucket;

use crate::schema::TableSpec;
use crate::schema::arrow::with_partition;

#[cfg(test)]
mod tests;

/// Most rows of a batch that is handed to the file writer: enough to share the cost of a batch, few enough to be a small part of a
/// generation.
pub const MAX_BATCH_ROWS: usize = 8_192;

/// Why rows could not be put in order.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The spec names a column that the rows do not have.
    #[error("the rows have no column {0:?} to sort by")]
    MissingColumn(String),
    /// Arrow refused: the batches differ in schema, or a column's type has no order.
    #[error("sorting a generation's rows")]
    Arrow(#[from] ArrowError),
}

/// Sorts `batches`, all of one schema, by the spec's sort columns and then by event time, keeping rows that compare
/// equal in the order of their arrival. What it gives out has the partition column for `bucket`, in which all rows lie.
///
/// # Errors
/// A sort column that is missing, or batches that do not fit together.
pub fn sorted(spec: &TableSpec, mut batches: Vec<RecordBatch>, bucket: Bucket) -> Result<Sorted<'_>, Error> {
    batches.retain(|batch| batch.num_rows() > 0);
    let Some(first) = batches.first() else { return Ok(Sorted { spec, bucket, rest: Rest::InOrder(VecDeque::new()) }) };
    let keys = Keys::new(spec, first)?;
    let rows = batches.iter().map(|batch| keys.of(batch)).collect::<Result<Vec<_>, _>>()?;
    let places = || rows.iter().enumerate().flat_map(|(batch, rows)| (0..rows.num_rows()).map(move |row| (batch, row)));
    if places().map(|(batch, row)| rows[batch].row(row)).is_sorted() {
        return Ok(Sorted { spec, bucket, rest: Rest::InOrder(batches.into()) });
    }
    let mut order: Vec<Place> = places().map(|(batch, row)| Place { batch: batch as u32, row: row as u32 }).collect();
    // Stable: a tie leaves rows as they arrived, so that encoding the same generation again gives the same rows in
    // the same order.
    order.sort_by(|a, b| a.of(&rows).cmp(&b.of(&rows)));
    Ok(Sorted { spec, bucket, rest: Rest::Gathered { batches, order, next: 0 } })
}

/// Where a row lies: which batch, which row of it. A slice counts its rows, and a generation its slices, in 32 bits too.
#[derive(Debug, Clone, Copy)]
struct Place {
    batch: u32,
    row: u32,
}

impl Place {
    fn of(self, rows: &[Rows]) -> Row<'_> {
        rows[self.batch as usize].row(self.row as usize)
    }
}

/// Rows in file order, a batch at a time.
#[derive(Debug)]
pub struct Sorted<'a> {
    spec: &'a TableSpec,
    bucket: Bucket,
    rest: Rest,
}

#[derive(Debug)]
enum Rest {
    /// They came in order: each batch is let go of once it is given out.
    InOrder(VecDeque<RecordBatch>),
    Gathered {
        batches: Vec<RecordBatch>,
        order: Vec<Place>,
        next: usize,
    },
}

impl Rest {
    fn next(&mut self) -> Option<Result<RecordBatch, ArrowError>> {
        match self {
            Self::InOrder(batches) => {
                let batch = batches.pop_front()?;
                if batch.num_rows() <= MAX_BATCH_ROWS {
                    return Some(Ok(batch));
                }
                batches.push_front(batch.slice(MAX_BATCH_ROWS, batch.num_rows() - MAX_BATCH_ROWS));
                Some(Ok(batch.slice(0, MAX_BATCH_ROWS)))
            }
            Self::Gathered { batches, order, next } => {
                let chunk = &order[*next..order.len().min(*next + MAX_BATCH_ROWS)];
                if chunk.is_empty() {
                    return None;
                }
                *next += chunk.len();
                let places: Vec<(usize, usize)> = chunk.iter().map(|p| (p.batch as usize, p.row as usize)).collect();
                let sources: Vec<&RecordBatch> = batches.iter().collect();
                Some(interleave_record_batch(&sources, &places))
            }
        }
    }
}

impl Iterator for Sorted<'_> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.rest.next()?;
        Some(batch.map(|batch| with_partition(self.spec, &batch, self.bucket)))
    }
}

/// The sort key's columns and their encoding into comparable bytes.
struct Keys {
    columns: Vec<usize>,
    converter: RowConverter,
}

impl Keys {
    fn new(spec: &TableSpec, sample: &RecordBatch) -> Result<Self, Error> {
        let schema = sample.schema();
        let time = spec.event_time.column();
        let names = spec.sort.iter().map(String::as_str).filter(|name| *name != time).chain([time]);
        let columns = names
            .map(|name| schema.index_of(name).map_err(|_| Error::MissingColumn(name.to_owned())))
            .collect::<Result<Vec<_>, _>>()?;
        let fields = columns.iter().map(|at| SortField::new(schema.field(*at).data_type().clone())).collect();
        Ok(Self { columns, converter: RowConverter::new(fields)? })
    }

    fn of(&self, batch: &RecordBatch) -> Result<Rows, Error> {
        let key = batch.project(&self.columns)?;
        Ok(self.converter.convert_columns(key.columns())?)
    }
}
