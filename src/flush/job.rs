//! What a table's tasks do: ask the table what it holds, upload a generation, commit what is uploaded, confirm what was committed.
//! No lock of ours is held.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::FutureExt;
use penstock_store::{Incarnation, Sealed, Slice, TableId};

use super::doubt::{self, Decision, Doubt};
use super::permits::Room;
use super::table::Ready;
use super::{Context, dead, encode};
use crate::failpoint;
use crate::lake::{self, Commit, DataFiles, LakeTable, Uploading};
use crate::schema::TableSpec;
use crate::schema::arrow::arrow_schema;
use crate::schema::payload::{self, Batches};
use crate::schema::registry::Table;

#[cfg(test)]
mod tests;

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
    #[error("the log does not take what was decided: {0}")]
    Log(#[from] penstock_store::AppendError),
    /// A commit that the log had taken is not in the table.
    #[error(
        "sequence {sequence} of start {incarnation} was committed and is not in the table, which stands at {held:?}"
    )]
    Vanished { incarnation: Incarnation, sequence: u64, held: Option<u64> },
    #[error("its rows cannot be written, and dead letters have no table that they could go to")]
    DeadLetters,
    #[error("its dead letters were committed and are not in their table")]
    Unburied,
    /// A defect; only the table that met it has to wait.
    #[error("it panicked: {0}")]
    Panicked(String),
}

impl Error {
    /// Whether the table holds other rows than we believed, and has to be asked again.
    pub fn is_stale(&self) -> bool {
        self.is_void() || matches!(self, Self::Lake(error) if error.kind() == lake::Kind::Stale)
    }

    /// Whether files that are uploaded may be gone.
    pub fn is_void(&self) -> bool {
        matches!(self, Self::Lake(lake::Error::Changed { .. }) | Self::Vanished { .. })
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
    /// The highest sequence of each incarnation that somebody has decided to let go.
    pub dropped: Vec<(Incarnation, u64)>,
}

/// Asks the table which sequences it holds, and refuses it if it holds some that were never sealed here, unless somebody has decided
/// what is to become of the rows.
///
/// # Errors
/// [`Error`]; nothing is known then.
pub async fn resolve(
    context: &Context,
    table: TableId,
    incarnations: &[Incarnation],
    decision: Option<Decision>,
) -> Result<Holdings, Error> {
    let (_, lake_table) = open(context, table)?;
    let node = context.store.node();
    let sequences = lake_table.resolve(incarnations, node).await?;
    let sequences = incarnations.iter().copied().zip(sequences).collect();
    let mut holdings = Holdings { version: lake_table.published(), sequences, dropped: Vec::new() };
    let standings = lake_table.standings(node).await;
    // MUST AFTER the table was read: what is sealed and committed in between is then known here.
    let history = context.store.seal_history(table);
    let doubts = doubt::doubts(node, &standings, &history, |start| context.store.has_started(start));
    let Some(first) = doubts.first() else { return Ok(holdings) };
    let Some(decision) = decision else {
        let location = lake_table.location().to_string();
        let Doubt { app, committed, sealed } = first.clone();
        return Err(lake::Error::Restored { location, app, committed, sealed }.into());
    };
    tracing::warn!(%table, ?decision, ?doubts, "rows in doubt were decided about");
    for doubt in doubts {
        let Some(incarnation) = doubt.incarnation() else { continue };
        let (sequence, version) = (doubt.committed, holdings.version.unwrap_or_default());
        // From here on the directory knows of these commits, and is in doubt no longer.
        context.store.commit(penstock_store::Commit { table, incarnation, sequence, version }).wait().await?;
    }
    if decision == Decision::Drop {
        let sealed = history.starts.iter().filter(|(incarnation, _)| incarnations.contains(incarnation));
        holdings.dropped = sealed.map(|(incarnation, progress)| (*incarnation, progress.sealed)).collect();
    }
    Ok(holdings)
}

/// Decodes, sorts, encodes and uploads. What is uploaded is in no table yet. Most of `room` is given back once all is encoded.
///
/// # Errors
/// [`Error`]; nothing of the generation is in the table then, and it can be uploaded again.
pub async fn upload(context: &Context, sealed: &Sealed, room: &mut Room) -> Result<DataFiles, Error> {
    failpoint::reach("flush::upload::before");
    let generation = &sealed.generation;
    let (table, lake_table) = open(context, generation.table)?;
    #[cfg(test)]
    assert!(!context.panics.lock().contains(&sealed.seal.sequence), "injected");
    let reading = Arc::clone(generation);
    let slices = tokio::task::spawn_blocking(move || reading.slices(usize::MAX)).await;
    let slices = slices.map_err(|e| Error::Unreadable(e.into()))?.map_err(Error::Unreadable)?;
    let spec = written_as(&table.spec, &slices);
    let schema = arrow_schema(&spec);
    // A payload that had to be copied goes as soon as it is decoded.
    let batches = Batches::new(Arc::new(spec.clone()), schema, slices);
    let batches: Vec<RecordBatch> =
        batches.collect::<Result<_, _>>().map_err(|e| Error::Payload { lsn: e.lsn, source: e.source })?;
    let sorted = encode::sorted(&spec, batches, generation.bucket)?;
    let attempt = context.sweep.attempt(table.id, &spec.name, context.store.node(), sealed);
    let uploading = Uploading { announce: Some(attempt), requests: context.requests.clone() };
    let files = lake_table
        .write_batches(&spec, room.encoding(sorted), &context.options.get().file_settings(), uploading)
        .await?;
    failpoint::reach("flush::upload::after");
    Ok(files)
}

/// The definition that a generation is written with: the newest that one of its slices was acknowledged under, so that one
/// file takes all of them, and the table gets a column with the first rows that have it.
fn written_as(newest: &TableSpec, slices: &[Slice]) -> TableSpec {
    let version = slices.iter().map(|slice| slice.schema_version).max();
    version.and_then(|version| newest.at(version)).unwrap_or_else(|| newest.clone())
}

/// What became of a commit.
#[derive(Debug)]
pub struct Done {
    pub committed: lake::Committed,
    /// It is in the table, for certain.
    pub confirmed: bool,
}

/// Commits what is ready, and confirms it at once where that costs next to nothing. A generation that cannot be written goes to the
/// dead letters first.
///
/// # Errors
/// [`Error`]; the commit may have landed all the same, which the next attempt finds out.
pub async fn commit(context: &Context, table: TableId, ready: &Ready) -> Result<Done, Error> {
    let (table, lake_table) = open(context, table)?;
    if let Some((sealed, reason)) = &ready.dead {
        // MUST BEFORE the commit that moves the table past it: from then on nobody keeps the rows but the dead letters.
        dead::bury(context, sealed, reason).await?;
    }
    let spec = table.spec.at(ready.files.schema_version).unwrap_or_else(|| table.spec.clone());
    let request = Commit {
        node: context.store.node(),
        incarnation: ready.incarnation,
        first_sequence: ready.first_sequence,
        sequence: ready.sequence,
        spec: &spec,
        adds: &ready.files.adds,
    };
    let committed = lake_table.commit(request).await?;
    if !lake_table.is_local() {
        return Ok(Done { committed, confirmed: false });
    }
    match confirmed(context, &lake_table, &[(ready.incarnation, ready.sequence)]).await {
        Ok(()) => Ok(Done { committed, confirmed: true }),
        Err(Error::Lake(error)) if error.kind() == lake::Kind::Unavailable => Ok(Done { committed, confirmed: false }),
        Err(error) => Err(error),
    }
}

/// Asks whether what was committed is in the table: the highest sequence of each incarnation.
///
/// # Errors
/// [`Error`]; it may not be, and files that were uploaded may be gone, if the error [is void](Error::is_void).
pub async fn confirm(context: &Context, table: TableId, landed: &[(Incarnation, u64)]) -> Result<(), Error> {
    let (_, lake_table) = open(context, table)?;
    confirmed(context, &lake_table, landed).await
}

async fn confirmed(context: &Context, lake_table: &LakeTable, landed: &[(Incarnation, u64)]) -> Result<(), Error> {
    let incarnations: Vec<Incarnation> = landed.iter().map(|(incarnation, _)| *incarnation).collect();
    let held = lake_table.resolve(&incarnations, context.store.node()).await?;
    // That the log was replaced is told once, to whoever asks first. The rows leave our log for what the table says, not for what it
    // did not say.
    let missing = landed.iter().zip(held).find(|((_, sequence), held)| *held < Some(*sequence));
    missing.map_or(Ok(()), |((incarnation, sequence), held)| {
        let (incarnation, sequence) = (*incarnation, *sequence);
        Err(Error::Vanished { incarnation, sequence, held })
    })
}
