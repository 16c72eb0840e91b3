//! The unflushed rows of a pinned table as partitions of a scan. Slices are decoded as they are read, one at a time.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use penstock_store::{Bucket, GenerationView, Lsn, Slice};

use crate::schema::arrow::{arrow_schema, table_arrow_schema, with_partition};
use crate::schema::payload;
use crate::schema::{TableName, TableSpec};

/// One share of the slices.
#[derive(Debug)]
struct Share {
    spec: Arc<TableSpec>,
    /// With the partition column.
    schema: SchemaRef,
    slices: Vec<(Bucket, Slice)>,
}

/// Splits the generations' slices over at most `partitions` streams of about the same number of rows.
pub fn partitions(
    spec: &Arc<TableSpec>,
    generations: &[GenerationView],
    partitions: usize,
) -> Vec<Arc<dyn PartitionStream>> {
    let schema = table_arrow_schema(spec);
    let rows: u64 = generations.iter().map(|g| g.totals().rows).sum();
    let share_rows = rows.div_ceil(partitions.max(1) as u64).max(1);
    let mut shares: Vec<Arc<dyn PartitionStream>> = Vec::new();
    let mut slices = Vec::new();
    let mut in_share = 0;
    let mut close = |slices: &mut Vec<(Bucket, Slice)>| {
        let slices = std::mem::take(slices);
        shares.push(Arc::new(Share { spec: Arc::clone(spec), schema: Arc::clone(&schema), slices }));
    };
    for generation in generations {
        let bucket = generation.generation().bucket;
        for slice in generation.slices() {
            in_share += u64::from(slice.rows);
            slices.push((bucket, slice));
            if in_share >= share_rows {
                close(&mut slices);
                in_share = 0;
            }
        }
    }
    if !slices.is_empty() {
        close(&mut slices);
    }
    shares
}

impl PartitionStream for Share {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let spec = Arc::clone(&self.spec);
        let plain = arrow_schema(&spec);
        let slices = self.slices.clone();
        let batches = slices.into_iter().map(move |(bucket, slice)| decode(&spec, &plain, bucket, &slice));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), futures::stream::iter(batches)))
    }
}

/// A slice in the log that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("rows of LSN {lsn} of {table} cannot be read: {source}")]
struct Unreadable {
    table: TableName,
    lsn: Lsn,
    source: payload::PayloadError,
}

fn decode(spec: &TableSpec, plain: &SchemaRef, bucket: Bucket, slice: &Slice) -> Result<RecordBatch> {
    let batch = payload::decode(slice.encoding, &slice.payload, plain).map_err(|source| {
        DataFusionError::External(Box::new(Unreadable { table: spec.name.clone(), lsn: slice.lsn, source }))
    })?;
    Ok(with_partition(spec, &batch, bucket))
}
