//! One file writer for each date of the partition column, which all but tests and odd callers have one of: a generation's bucket lies
//! in one date.
//!
//! Deliberately not delta-rs's own partitioning: it hashes and copies every row to find what is known. Its writer is used as for a table
//! without partitions, and the value is added to the actions. The directory's name says nothing to Delta; it is `column=date` where
//! the column's name needs no escaping, which writers and readers do differently.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Date32Type, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;
use deltalake::datafile::writer::{DeltaWriter, WriterConfig};
use deltalake::kernel::Add;
use deltalake::{DeltaResult, DeltaTableError};

use super::sink::Sink;

#[cfg(test)]
mod tests;

/// Dates that have an open file at the same time.
const MAX_OPEN: usize = 4;

/// Writers by date, the one that was used last at the end.
pub(super) struct Writers {
    sink: Sink,
    config: WriterConfig,
    /// The partition column's name; the last column of each batch.
    partition: Option<String>,
    /// Of the files.
    schema: SchemaRef,
    open: Vec<(Option<String>, DeltaWriter)>,
    adds: Vec<Add>,
}

impl Writers {
    /// `config` is that of a table without partitions whose columns are `schema`.
    pub(super) fn new(sink: Sink, config: WriterConfig, schema: SchemaRef, partition: Option<String>) -> Self {
        Self { sink, config, partition, schema, open: Vec::new(), adds: Vec::new() }
    }

    pub(super) async fn write(&mut self, batch: RecordBatch) -> DeltaResult<()> {
        if self.partition.is_none() {
            return self.writer(None).await?.write(&batch).await;
        }
        let (dates, columns) = batch.columns().split_last().ok_or_else(|| misfit("no partition column"))?;
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns.to_vec())?;
        let mut from = 0;
        for to in run_ends(dates.as_ref())? {
            let date = array_value_to_string(dates, from)?;
            self.writer(Some(date)).await?.write(&rows.slice(from, to - from)).await?;
            from = to;
        }
        Ok(())
    }

    async fn writer(&mut self, date: Option<String>) -> DeltaResult<&mut DeltaWriter> {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == date) {
            // Most often it is there already.
            self.open[at..].rotate_left(1);
        } else {
            if self.open.len() >= MAX_OPEN {
                let (date, writer) = self.open.remove(0);
                self.close_one(date, writer).await?;
            }
            let sink = self.sink.in_directory(self.directory(date.as_deref()));
            self.open.push((date, DeltaWriter::new(Arc::new(sink), self.config.clone())));
        }
        Ok(&mut self.open.last_mut().expect("should be there: it has just been put").1)
    }

    fn directory(&self, date: Option<&str>) -> Option<String> {
        let (name, date) = (self.partition.as_deref()?, date?);
        let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        Some(if is_plain { format!("{name}={date}") } else { date.to_owned() })
    }

    async fn close_one(&mut self, date: Option<String>, writer: DeltaWriter) -> DeltaResult<()> {
        let directory = self.directory(date.as_deref());
        for mut add in writer.close().await? {
            if let (Some(directory), Some(name)) = (&directory, &self.partition) {
                add.path = format!("{directory}/{}", add.path);
                add.partition_values.insert(name.clone(), date.clone());
            }
            self.adds.push(add);
        }
        Ok(())
    }

    /// Ends all files.
    pub(super) async fn close(mut self) -> DeltaResult<Vec<Add>> {
        for (date, writer) in std::mem::take(&mut self.open) {
            self.close_one(date, writer).await?;
        }
        Ok(self.adds)
    }
}

fn misfit(what: &str) -> DeltaTableError {
    ArrowError::InvalidArgumentError(what.to_owned()).into()
}

/// Where each run of equal dates ends.
fn run_ends(dates: &dyn Array) -> DeltaResult<Vec<usize>> {
    let dates = dates.as_primitive_opt::<Date32Type>().ok_or_else(|| misfit("the partition column holds no dates"))?;
    if dates.null_count() > 0 {
        return Err(misfit("a row has no date"));
    }
    let dates = dates.values();
    let changes = (1..dates.len()).filter(|at| dates[*at] != dates[at - 1]);
    Ok(changes.chain((!dates.is_empty()).then_some(dates.len())).collect())
}
