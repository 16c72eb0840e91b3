//! The unflushed rows of a pinned table as partitions of a scan. What a checkpoint has moved into a lane file is read part by part,
//! off the query's threads; slices are decoded as the query asks for them.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::StreamExt;
use penstock_store::{Bucket, GenerationView, Lsn, Part, Slice};

use crate::schema::arrow::{arrow_schema, table_arrow_schema, with_partition};
use crate::schema::payload::{self, Batches, Unreadable};
use crate::schema::{TableName, TableSpec};

/// One share of the slices.
#[derive(Debug)]
struct Share {
    spec: Arc<TableSpec>,
    /// With the partition column.
    schema: SchemaRef,
    parts: Vec<(Bucket, Part)>,
}

/// Splits the generations' slices over at most `partitions` streams of about the same number of bytes.
pub fn partitions(
    spec: &Arc<TableSpec>,
    generations: &[GenerationView],
    partitions: usize,
) -> Vec<Arc<dyn PartitionStream>> {
    let schema = table_arrow_schema(spec);
    let bytes: u64 = generations.iter().map(|g| g.totals().bytes).sum();
    let share_bytes = bytes.div_ceil(partitions.max(1) as u64).max(1);
    let mut shares: Vec<Arc<dyn PartitionStream>> = Vec::new();
    let mut parts = Vec::new();
    let mut in_share = 0;
    let mut close = |parts: &mut Vec<(Bucket, Part)>| {
        let parts = std::mem::take(parts);
        shares.push(Arc::new(Share { spec: Arc::clone(spec), schema: Arc::clone(&schema), parts }));
    };
    for generation in generations {
        let bucket = generation.generation().bucket;
        for part in generation.parts().into_iter().flat_map(|part| split(part, share_bytes)) {
            in_share += part.bytes();
            parts.push((bucket, part));
            if in_share >= share_bytes {
                close(&mut parts);
                in_share = 0;
            }
        }
    }
    if !parts.is_empty() {
        close(&mut parts);
    }
    shares
}

/// What is in memory can be cut anywhere; what is in a lane file is read as one.
fn split(part: Part, bytes: u64) -> Vec<Part> {
    let Part::Memory(slices) = part else { return vec![part] };
    let mut parts = Vec::new();
    let (mut cut, mut in_cut) = (Vec::new(), 0);
    for slice in slices {
        in_cut += slice.payload.len() as u64;
        cut.push(slice);
        if in_cut >= bytes {
            parts.push(Part::Memory(std::mem::take(&mut cut)));
            in_cut = 0;
        }
    }
    if !cut.is_empty() {
        parts.push(Part::Memory(cut));
    }
    parts
}

impl PartitionStream for Share {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let spec = Arc::clone(&self.spec);
        let plain = arrow_schema(&spec);
        let parts = futures::stream::iter(self.parts.clone());
        let batches =
            parts.then(|(bucket, part)| async move { (bucket, read(part).await) }).flat_map(move |(bucket, slices)| {
                let (spec, plain) = (Arc::clone(&spec), Arc::clone(&plain));
                let (slices, failed) = match slices {
                    Ok(slices) => (slices, None),
                    Err(error) => (Vec::new(), Some(Err(error))),
                };
                let table = spec.name.clone();
                let unreadable = move |Unreadable { lsn, source }| {
                    DataFusionError::External(Box::new(UnreadableRows { table: table.clone(), lsn, source }))
                };
                let batches = Batches::new(Arc::clone(&spec), plain, slices)
                    .map(move |batch| Ok(with_partition(&spec, &batch.map_err(&unreadable)?, bucket)));
                futures::stream::iter(batches.chain(failed))
            });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}

/// Reads a lane file off the query's threads.
async fn read(part: Part) -> Result<Vec<Slice>> {
    if let Part::Memory(slices) = part {
        return Ok(slices);
    }
    let reading = tokio::task::spawn_blocking(move || part.read()).await;
    let read = reading.map_err(|error| DataFusionError::External(Box::new(error)))?;
    read.map_err(|error| DataFusionError::External(Box::new(error)))
}

/// A slice in the log that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("rows of LSN {lsn} of {table} cannot be read: {source}")]
struct UnreadableRows {
    table: TableName,
    lsn: Lsn,
    source: payload::PayloadError,
}
