//! What a table's tasks do: ask the table what it holds, upload a generation, commit what is uploaded. No lock of ours is held.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::FutureExt;
use penstock_store::{Incarnation, Sealed, TableId};

use super::table::Ready;
use super::{Context, encode};
use crate::failpoint;
use crate::lake::{self, Commit, DataFiles, LakeTable};
use crate::schema::arrow::arrow_schema;
use crate::schema::payload;
use crate::schema::registry::Table;

/// Why a task did not do what it was for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the table is not in the registry")]
    UnknownTable,
    #[error("rows of LSN {lsn} cannot be read: {source}")]
    Payload {
        lsn: penstock_store::Lsn,
        #[source]
        source: payload::PayloadError,
    },
    #[error("checkpointed rows cannot be read: {0}")]
    Unreadable(#[source] std::io::Error),
    #[error(transparent)]
    Encode(#[from] encode::Error),
    #[error(transparent)]
    Lake(#[from] lake::Error),
    /// A defect; only the table that met it has to wait.
    #[error("it panicked: {0}")]
    Panicked(String),
}

impl Error {
    /// Whether the table holds other rows than we believed, and has to be asked again.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Lake(error) if error.kind() == lake::Kind::Stale)
    }
}

/// Turns a panic into an error: a task that ends without a word would leave its table waiting for ever.
pub async fn guarded<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Error::Panicked(text.unwrap_or_else(|| "without a message".to_owned())))
    })
}

fn open(context: &Context, table: TableId) -> Result<(Arc<Table>, Arc<LakeTable>), Error> {
    let table = context.registry.by_id(table).ok_or(Error::UnknownTable)?;
    let lake_table = context.lake.table(table.id, &table.spec.name);
    Ok((table, lake_table))
}

/// What a table says that it holds.
#[derive(Debug)]
pub struct Holdings {
    /// The Delta version that says so; none if there is no table yet.
    pub version: Option<u64>,
    /// The highest sequence of each incarnation.
    pub sequences: Vec<(Incarnation, Option<u64>)>,
}

/// Asks the table which sequences it holds.
///
/// # Errors
/// [`Error`]; nothing is known then.
pub async fn resolve(context: &Context, table: TableId, incarnations: &[Incarnation]) -> Result<Holdings, Error> {
    let (_, lake_table) = open(context, table)?;
    let sequences = lake_table.resolve(incarnations, context.store.node()).await?;
    let sequences = incarnations.iter().copied().zip(sequences).collect();
    Ok(Holdings { version: lake_table.published(), sequences })
}

/// Decodes, sorts, encodes and uploads. What is uploaded is in no table yet.
///
/// # Errors
/// [`Error`]; nothing of the generation is in the table then, and it can be uploaded again.
pub async fn upload(context: &Context, sealed: &Sealed) -> Result<DataFiles, Error> {
    failpoint::reach("flush::upload::before");
    let generation = &sealed.generation;
    let (table, lake_table) = open(context, generation.table)?;
    let schema = arrow_schema(&table.spec);
    let reading = Arc::clone(generation);
    let slices = tokio::task::spawn_blocking(move || reading.slices(usize::MAX)).await;
    let slices = slices.map_err(|e| Error::Unreadable(e.into()))?.map_err(Error::Unreadable)?;
    let mut batches: Vec<RecordBatch> = Vec::with_capacity(slices.len());
    for slice in &slices {
        let batch = payload::decode(slice.encoding, &slice.payload, &schema);
        batches.push(batch.map_err(|source| Error::Payload { lsn: slice.lsn, source })?);
    }
    let batches = encode::sort_and_partition(&table.spec, batches, generation.bucket)?;
    let files = lake_table.write_data(&table.spec, batches, &context.options.file_settings()).await?;
    failpoint::reach("flush::upload::after");
    Ok(files)
}

/// Commits what is ready.
///
/// # Errors
/// [`Error`]; the commit may have landed all the same, which the next attempt finds out.
pub async fn commit(context: &Context, table: TableId, ready: &Ready) -> Result<lake::Committed, Error> {
    let (table, lake_table) = open(context, table)?;
    let request = Commit {
        node: context.store.node(),
        incarnation: ready.incarnation,
        first_sequence: ready.first_sequence,
        sequence: ready.sequence,
        spec: &table.spec,
        adds: &ready.files.adds,
    };
    Ok(lake_table.commit(request).await?)
}
