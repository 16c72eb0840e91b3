//! Generations that cannot be written: they go, as the bytes that they are, to a Delta table of their own, so that their table moves
//! on and nothing is lost.
//!
//! - Only where the rows are at fault, the same way several times in a row ([`Strikes`]). A store that fails, and a table that refuses,
//!   stall; they never lead here.
//! - They go to `<namespace>.dead_generations`, one row a slice. It is not the table of rejected rows (`schema::letters`): those are rows
//!   of the log like others, read by people and replayed; these are bytes that nobody can read yet, and they are on their way out of the
//!   log. One table for both would have two ways in, with a commit order of its own each, and half of its columns null in every row.
//! - Its id is derived from the namespace, so that all nodes that write to a lake agree on it. It is Delta only: rows do not pass through
//!   the log, whose disk may be what is short.
//! - Exactly once under the key (table, incarnation, sequence): its commits count under a writer of their own for each table
//!   ([`writer`]), with the generation's own sequence as the version. A table's dead generations go in seal order, so that version grows.
//! - Then a commit without files moves the table's own transaction past the generation. A crash between the two repeats both; the first
//!   one finds itself done.
//! - What was posted to a table that is itself called so stays where it is, and that table stalls.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::error::ArrowError;
use penstock_store::{Bucket, NodeId, Sealed, Slice, TableId};
use uuid::Uuid;

use super::{Context, job};
use crate::lake::{Commit, DataFiles, Kind, LakeTable, Uploading};
use crate::schema::arrow::{UTC, arrow_schema, with_partition};
use crate::schema::letters::derived_id;
use crate::schema::registry::Table;
use crate::schema::{ColumnSpec, ColumnType, EventTime, TableName, TableSpec};

#[cfg(test)]
mod tests;

/// The table's name in its namespace.
pub const TABLE_NAME: &str = "dead_generations";

const EVENT_TIME: &str = "failed_at";
const DAY: i64 = 86_400_000_000;

/// Failures of one generation for which its rows are at fault, of one kind and in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Strikes {
    fault: Option<Fault>,
    count: u32,
}

/// What is wrong with rows that cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Their bytes cannot be read as what they are said to be.
    Payload,
    /// They cannot be sorted or encoded.
    Encoding,
    /// Whoever works on them panics.
    Panic,
}

impl Fault {
    /// The fault of the rows, if the failure of an upload is theirs.
    pub fn of(error: &job::Error) -> Option<Self> {
        match error {
            job::Error::Payload { .. } => Some(Self::Payload),
            job::Error::Encode(_) => Some(Self::Encoding),
            job::Error::Panicked(_) => Some(Self::Panic),
            job::Error::Lake(error) if error.kind() == Kind::Rows => Some(Self::Encoding),
            job::Error::Lake(_)
            | job::Error::UnknownTable
            | job::Error::Unreadable(_)
            | job::Error::Log(_)
            | job::Error::Vanished { .. }
            | job::Error::DeadLetters
            | job::Error::Unburied => None,
        }
    }
}

impl Strikes {
    /// Counts a failure; true once the rows have failed `limit` times in the same way. A failure of the store neither counts nor
    /// begins anew. A limit of 0 is none.
    pub fn add(&mut self, fault: Option<Fault>, limit: u32) -> bool {
        let Some(fault) = fault else { return false };
        self.count = if self.fault == Some(fault) { self.count.saturating_add(1) } else { 1 };
        self.fault = Some(fault);
        limit > 0 && self.count >= limit
    }
}

/// The table of dead generations of a table's namespace.
fn table_name(of: &TableName) -> TableName {
    TableName::new(of.namespace(), TABLE_NAME).expect("should be a name: the namespace is that of one")
}

/// The id of a namespace's table: the same on every node.
pub fn table_id(namespace: &str) -> TableId {
    derived_id("penstock dead letters", namespace)
}

/// The writer under whose name a node's dead generations of one table count in the dead-letter table.
pub fn writer(node: NodeId, table: TableId) -> NodeId {
    NodeId(Uuid::from_u128(node.0.as_u128() ^ table.0.as_u128()))
}

fn spec(name: TableName) -> TableSpec {
    let column = |name: &str, kind| ColumnSpec { name: name.into(), kind, nullable: false };
    TableSpec {
        name,
        schema_version: 1,
        columns: vec![
            column(EVENT_TIME, ColumnType::Timestamp),
            column("table", ColumnType::String),
            column("table_id", ColumnType::String),
            column("node", ColumnType::String),
            column("incarnation", ColumnType::String),
            column("sequence", ColumnType::Long),
            column("lsn", ColumnType::Long),
            column("encoding", ColumnType::Int),
            column("schema_version", ColumnType::Int),
            column("rows", ColumnType::Long),
            column("min_time", ColumnType::Timestamp),
            column("max_time", ColumnType::Timestamp),
            column("payload", ColumnType::Binary),
            column("reason", ColumnType::String),
        ],
        event_time: EventTime::Column { name: EVENT_TIME.into(), unit: None },
        bucket_seconds: 86_400,
        partition: Some("date".into()),
        sort: vec![],
        history: vec![],
        bloom: vec![],
        rules: crate::schema::Rules::any_time(),
    }
}

/// Writes a sealed generation to its namespace's dead-letter table, exactly once. Durable when this returns.
///
/// # Errors
/// [`job::Error`]: the rows cannot be read, or the dead-letter table cannot be written; the generation stays where it is.
pub async fn bury(context: &Context, sealed: &Sealed, reason: &str) -> Result<(), job::Error> {
    let source = context.registry.by_id(sealed.generation.table).ok_or(job::Error::UnknownTable)?;
    let name = table_name(&source.spec.name);
    if source.spec.name == name {
        return Err(job::Error::DeadLetters);
    }
    let (id, writer) = (table_id(name.namespace()), writer(context.store.node(), source.id));
    let dead = context.lake.table(id, &name);
    let seal = sealed.seal;
    let there = dead.resolve(&[seal.incarnation], writer).await?;
    if there.first().copied().flatten() < Some(seal.sequence) {
        let spec = spec(name);
        let files = write(context, &dead, &spec, &source, sealed, reason).await?;
        let (first_sequence, sequence) = (seal.sequence, seal.sequence);
        let adds = &files.adds;
        let commit =
            Commit { node: writer, incarnation: seal.incarnation, first_sequence, sequence, spec: &spec, adds };
        let done = dead.commit(commit).await?;
        if !done.adopted {
            context.sweep.landed(id, adds);
        }
        // MUST AFTER the commit: what landed is not in the table before the table says so.
        let there = dead.resolve(&[seal.incarnation], writer).await?;
        if there.first().copied().flatten() < Some(seal.sequence) {
            context.sweep.doubted(id);
            return Err(job::Error::Unburied);
        }
    }
    context.sweep.covered(id, seal.incarnation, seal.sequence);
    Ok(())
}

async fn write(
    context: &Context,
    dead: &LakeTable,
    spec: &TableSpec,
    source: &Table,
    sealed: &Sealed,
    reason: &str,
) -> Result<DataFiles, job::Error> {
    let reading = Arc::clone(&sealed.generation);
    let slices = tokio::task::spawn_blocking(move || reading.slices(usize::MAX)).await;
    let slices = slices.map_err(|e| job::Error::Unreadable(e.into()))?.map_err(job::Error::Unreadable)?;
    let writer = writer(context.store.node(), source.id);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64);
    let letter = Letter { context, spec, source, sealed, reason, now };
    let bucket = Bucket { start: now - now.rem_euclid(DAY), width: DAY };
    // A batch a slice: the bytes of all of them need not fit the 2 GiB of one column.
    let batches = slices.iter().map(|slice| letter.of(slice).map(|batch| with_partition(spec, &batch, bucket)));
    let attempt = context.sweep.attempt(table_id(spec.name.namespace()), &spec.name, writer, sealed);
    let uploading = Uploading { announce: Some(attempt), requests: context.requests.clone() };
    Ok(dead.write_batches(spec, batches, &context.options.get().file_settings(), uploading).await?)
}

/// What all rows of a dead generation have in common.
struct Letter<'a> {
    context: &'a Context,
    spec: &'a TableSpec,
    source: &'a Table,
    sealed: &'a Sealed,
    reason: &'a str,
    now: i64,
}

impl Letter<'_> {
    fn of(&self, slice: &Slice) -> Result<RecordBatch, ArrowError> {
        let time = |at: i64| Arc::new(TimestampMicrosecondArray::from(vec![at]).with_timezone(UTC)) as ArrayRef;
        let text = |text: &str| Arc::new(StringArray::from(vec![text])) as ArrayRef;
        let long = |n: u64| Arc::new(Int64Array::from(vec![i64::try_from(n).unwrap_or(i64::MAX)])) as ArrayRef;
        let int = |n: u32| Arc::new(Int32Array::from(vec![i32::try_from(n).unwrap_or(i32::MAX)])) as ArrayRef;
        let columns = vec![
            time(self.now),
            text(&self.source.spec.name.to_string()),
            text(&self.source.id.to_string()),
            text(&self.context.store.node().to_string()),
            text(&self.sealed.seal.incarnation.to_string()),
            long(self.sealed.seal.sequence),
            long(slice.lsn.0),
            int(u32::from(slice.encoding)),
            int(slice.schema_version),
            long(u64::from(slice.rows)),
            time(slice.min_time),
            time(slice.max_time),
            Arc::new(BinaryArray::from(vec![slice.payload.as_ref()])),
            text(self.reason),
        ];
        RecordBatch::try_new(arrow_schema(self.spec), columns)
    }
}
