//! Turns a generation's slices into what a data file holds: one order over all rows, the partition column added, in
//! batches of bounded size.
//!
//! Keys are compared in Arrow's row format and only the keys are copied for it: the rows themselves are gathered once,
//! a bounded batch at a time, so that neither the memory nor the 2 GiB limit of a string column's offsets grows with
//! the generation.

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};
use penstock_store::Bucket;

use crate::schema::TableSpec;
use crate::schema::arrow::with_partition;

#[cfg(test)]
mod tests;

/// Most rows of a batch that is handed to the file writer.
pub const MAX_BATCH_ROWS: usize = 65_536;

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
/// equal in the order of their arrival; appends the partition column for `bucket`, in which all rows lie.
///
/// # Errors
/// A sort column that is missing, or batches that do not fit together.
pub fn sort_and_partition(
    spec: &TableSpec,
    mut batches: Vec<RecordBatch>,
    bucket: Bucket,
) -> Result<Vec<RecordBatch>, Error> {
    batches.retain(|batch| batch.num_rows() > 0);
    let Some(first) = batches.first() else { return Ok(Vec::new()) };
    let keys = Keys::new(spec, first)?;
    let rows = batches.iter().map(|batch| keys.of(batch)).collect::<Result<Vec<_>, _>>()?;

    let mut order: Vec<(usize, usize)> =
        rows.iter().enumerate().flat_map(|(batch, rows)| (0..rows.num_rows()).map(move |row| (batch, row))).collect();
    if order.is_sorted_by(|a, b| rows[a.0].row(a.1) <= rows[b.0].row(b.1)) {
        return Ok(batches.iter().flat_map(sliced).map(|batch| with_partition(spec, &batch, bucket)).collect());
    }
    // Stable: a tie leaves rows as they arrived, so that encoding the same generation again gives the same rows in
    // the same order.
    order.sort_by(|a, b| rows[a.0].row(a.1).cmp(&rows[b.0].row(b.1)));
    drop(rows);

    let sources: Vec<&RecordBatch> = batches.iter().collect();
    order
        .chunks(MAX_BATCH_ROWS)
        .map(|chunk| Ok(with_partition(spec, &interleave_record_batch(&sources, chunk)?, bucket)))
        .collect()
}

fn sliced(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> + '_ {
    (0..batch.num_rows())
        .step_by(MAX_BATCH_ROWS)
        .map(|start| batch.slice(start, MAX_BATCH_ROWS.min(batch.num_rows() - start)))
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
