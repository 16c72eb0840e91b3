//! Slices in order as batches. Packed ones of one version that follow each other make one batch: otherwise each row of a table that
//! gets many small posts would be a batch of its own.

use std::iter::Peekable;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use penstock_store::{Lsn, Slice};

use super::{ENCODING_PACKED, PayloadError, decode_as, definition_then, fill_up};
use crate::schema::TableSpec;
use crate::schema::arrow::arrow_schema;
use crate::schema::packed::Unpacker;

/// From so many rows on, or payload bytes, a batch is not made larger.
const MOST_ROWS: usize = 4_096;
const MOST_BYTES: usize = 4 << 20;

/// A slice that cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Where its record starts.
    pub lsn: Lsn,
    /// Why.
    pub source: PayloadError,
}

/// The rows of slices, as rows of a definition that knows the versions of all of them.
#[derive(Debug)]
pub struct Batches<I: Iterator<Item = Slice>> {
    spec: Arc<TableSpec>,
    schema: SchemaRef,
    slices: Peekable<I>,
}

impl<I: Iterator<Item = Slice>> Batches<I> {
    /// `schema` is the Arrow schema of `spec`.
    pub fn new(spec: Arc<TableSpec>, schema: SchemaRef, slices: impl IntoIterator<IntoIter = I>) -> Self {
        Self { spec, schema, slices: slices.into_iter().peekable() }
    }

    fn packed(&mut self, first: &Slice) -> Result<RecordBatch, Unreadable> {
        let version = first.schema_version;
        let at = |lsn, source: PayloadError| Unreadable { lsn, source };
        let then = definition_then(&self.spec, version).map_err(|e| at(first.lsn, e))?;
        let schema = then.as_ref().map_or_else(|| SchemaRef::clone(&self.schema), arrow_schema);
        let mut rows = Unpacker::new(&schema).map_err(|e| at(first.lsn, e.into()))?;
        rows.add(&first.payload).map_err(|e| at(first.lsn, e.into()))?;
        let mut bytes = first.payload.len();
        while rows.rows() < MOST_ROWS && bytes < MOST_BYTES {
            let follows = |s: &Slice| s.encoding == ENCODING_PACKED && s.schema_version == version;
            let Some(next) = self.slices.next_if(follows) else { break };
            rows.add(&next.payload).map_err(|e| at(next.lsn, e.into()))?;
            bytes += next.payload.len();
        }
        let rows = rows.finish().map_err(|e| at(first.lsn, e.into()))?;
        if then.is_none() { Ok(rows) } else { fill_up(rows, &self.schema).map_err(|e| at(first.lsn, e)) }
    }
}

impl<I: Iterator<Item = Slice>> Iterator for Batches<I> {
    type Item = Result<RecordBatch, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        let slice = self.slices.next()?;
        if slice.encoding == ENCODING_PACKED {
            return Some(self.packed(&slice));
        }
        let batch = decode_as(&self.spec, &self.schema, slice.schema_version, slice.encoding, &slice.payload);
        Some(batch.map_err(|source| Unreadable { lsn: slice.lsn, source }))
    }
}
