//! A post on its way: decoded, sliced, appended, acknowledged.
//!
//! A lease of the caller's covers the bytes; it grows when a compressed body turns out larger. The answer comes after the sync.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{Array, ArrayRef, RecordBatch};
use bytes::Bytes;
use penstock_store::{AppendError, Appended, Define, Note, PostId, SliceInput, Store, TableId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::decode::expected_bytes;
use super::room::{Leased, Room, none_left};
use super::{
    ContentEncoding, Format, Limits, OnError, Receipt, Reject, Rejected, decode_in, decompress_in, infer, repeat,
    slices,
};
use crate::admission::{Backlog, Lease, POST_OVERHEAD, Refusal};
use crate::catalog::{self, Catalog, Cause};
use crate::schema::registry::{Registry, Table};
use crate::schema::spec::SpecError;
use crate::schema::versions::Change;
use crate::schema::{TableName, TableSpec, TimeUnit};

/// What a post takes at its peak beside its body, in times of what its columns hold: they grow by doubling, and are written out twice.
const PEAK: usize = 3;

/// Bodies above this are decoded off the async threads, bytes.
const DECODE_INLINE_MAX: usize = 128 << 10;

/// The `[ingest]` settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Whether a post to a table that does not exist creates it from its rows. Default true.
    pub create_tables: bool,
    /// Most bytes of a body as it is sent. Default 32 MiB.
    pub max_body: bytesize::ByteSize,
    /// Most bytes of a body once it is decompressed. Default 64 MiB, at most 2 GiB.
    pub max_decoded: bytesize::ByteSize,
    /// Most rows of a post. Default 1000000.
    pub max_rows: usize,
    /// Most columns of a table that a post creates. Default 1000.
    pub max_columns: usize,
    /// Most rows of a post that are rejected one by one; with more the post is refused whole. Default 10000.
    pub max_rejected_rows: usize,
    /// Most bytes of such rows, by the same rule. Default 8 MiB.
    pub max_rejected_bytes: bytesize::ByteSize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create_tables: true,
            max_body: bytesize::ByteSize::mib(32),
            max_decoded: bytesize::ByteSize::mib(64),
            max_rows: 1_000_000,
            max_columns: crate::schema::spec::MAX_COLUMNS,
            max_rejected_rows: 10_000,
            max_rejected_bytes: bytesize::ByteSize::mib(8),
        }
    }
}

impl Options {
    fn limits(&self) -> Limits {
        Limits {
            max_decoded_bytes: usize::try_from(self.max_decoded.as_u64()).unwrap_or(usize::MAX),
            max_rows: self.max_rows,
            max_columns: self.max_columns,
            max_rejected_rows: self.max_rejected_rows,
            max_rejected_bytes: usize::try_from(self.max_rejected_bytes.as_u64()).unwrap_or(usize::MAX),
            ..Limits::default()
        }
    }
}

/// One request's rows.
#[derive(Debug, Clone)]
pub struct Post {
    pub table: TableName,
    pub format: Format,
    pub encoding: ContentEncoding,
    /// The unit of epoch numbers, for a table that this post creates.
    pub time_unit: Option<TimeUnit>,
    /// What becomes of the good rows if there are bad ones.
    pub on_error: OnError,
    /// By what a repeat of it is known; none: it is taken as often as it comes.
    pub id: Option<PostId>,
    pub body: Bytes,
}

/// What an ack says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub receipt: Receipt,
    /// Rows that were taken.
    pub rows: u64,
    /// How many were not.
    pub rejected_rows: u64,
    /// Those that were not; of a repeat it is not known any more.
    pub rejected: Rejected,
    /// It repeats an earlier post, whose receipt and rows these are; nothing was written.
    pub repeated: bool,
    /// The definition, if this post made the table.
    pub created: Option<TableSpec>,
}

/// Why rows were not accepted.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    #[error(transparent)]
    Reject(#[from] Reject),
    /// No row was taken, because of these: all of them are bad, or the sender wants all or none.
    #[error("{}", none_taken(.rejected, *.good))]
    NoneTaken { rejected: Rejected, good: u64 },
    #[error("table {0} does not exist, and this server does not create tables from posts")]
    UnknownTable(TableName),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Log(#[from] AppendError),
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error("the decoder stopped: {0}")]
    Decoder(String),
}

fn none_taken(rejected: &Rejected, good: u64) -> String {
    let first = rejected.rows().first().map_or("", |row| &row.reason.message);
    match (rejected.len(), good) {
        (1, 0) => first.to_owned(),
        (bad, 0) => format!("{first} (and so on: none of {bad} rows fits the table)"),
        (bad, good) => format!("{first} (rejected: {bad}; the other {good} were not taken, as on_error=abort asks)"),
    }
}

/// Why a table was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// It is there and cannot become what was declared; the reasons say what to do.
    #[error("table {table} exists with another definition: {}", .reasons.join("; "))]
    Differs { table: TableName, reasons: Vec<String> },
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
    #[error(transparent)]
    Log(#[from] AppendError),
    #[error("the definition cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// What a declaration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// It made the table.
    Created,
    /// It gave a table that was there more columns or wider types.
    Extended,
    /// Nothing: it was there like this.
    Same,
}

/// Takes posts and declarations.
#[derive(Debug)]
pub struct Ingest {
    store: Arc<Store>,
    registry: Arc<Registry>,
    catalog: Catalog,
    options: Options,
    /// Held while a table is made or gets columns, so that two first posts make one table, and no two changes one version.
    defining: tokio::sync::Mutex<()>,
}

impl Ingest {
    /// Takes rows for these tables.
    pub fn new(store: Arc<Store>, registry: Arc<Registry>, catalog: Catalog, options: Options) -> Self {
        Self { store, registry, catalog, options, defining: tokio::sync::Mutex::new(()) }
    }

    /// The settings in force.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Accepts the rows that the table can hold; on disk when this returns. The lease covers the body, and grows with what is made of it.
    /// A repeat gets what the first one got.
    ///
    /// # Errors
    /// [`PostError`]. After a failure of the log the rows may or may not be in the table; what has an id may be sent again then.
    pub async fn post(&self, post: Post, lease: Lease) -> Result<Accepted, PostError> {
        let Post { table, format, encoding, time_unit, on_error, id, body } = post;
        let (limits, room) = (self.options.limits(), Leased::new(lease));
        let max = limits.max_decoded_bytes;
        let body = if encoding == ContentEncoding::Identity {
            body
        } else {
            let room = Arc::clone(&room);
            // Small ones too: a few bytes may become many.
            let work =
                move || decompress_in(encoding, body, max, &*room).map_err(|reject| room.explain::<PostError>(reject));
            tokio::task::spawn_blocking(work).await.map_err(|e| PostError::Decoder(e.to_string()))??
        };
        room.settle(0);
        room.hold(body.len() as u64, self.backlog())?;
        let mut note = Note::default();
        if let Some(id) = id {
            let whole = body.clone();
            note.digest = off_thread(body.len(), move || repeat::digest(format, &whole)).await?;
            // MUST BEFORE the rows are looked at: the table may have changed, and what was accepted once stays so.
            if let Some(table) = self.registry.by_name(&table)
                && let Some(first) = self.store.seen(table.id, id, note.digest)?
            {
                return Ok(self.accepted(table.id, first, 0, Rejected::default()));
            }
        }
        let (table, created) = self.table_for(&table, format, &body, (time_unit, on_error), &room).await?;
        let now = now_micros();
        let (decoding, taken) = (Arc::clone(&table), Arc::clone(&room));
        let cut = off_thread(body.len(), move || cut(&decoding, format, body, now, &limits, &taken)).await??;
        let Cut { slices, rows, rejected } = cut.or_none(on_error)?;
        // The log keeps the rows in another form, which may be the larger one.
        let of_slice = |slice: &SliceInput| slice.payload.len() as u64 + penstock_store::SLICE_OVERHEAD;
        // In this order: what it took to make them is not asked for twice.
        room.settle(0);
        room.hold(slices.iter().map(of_slice).sum(), self.backlog())?;
        note.accepted = u32::try_from(rows).unwrap_or(u32::MAX);
        note.rejected = u32::try_from(rejected.len()).unwrap_or(u32::MAX);
        let pending = match id {
            Some(id) => self.store.append_once(id, note, slices)?,
            None => self.store.append(slices)?,
        };
        let accepted = self.accepted(table.id, pending.wait().await?, rows, rejected);
        let created = (created && !accepted.repeated).then(|| table.spec.clone());
        Ok(Accepted { created, ..accepted })
    }

    fn accepted(&self, table: TableId, record: Appended, rows: u64, rejected: Rejected) -> Accepted {
        let Appended { shard, lsn, repeat_of } = record;
        let now = (self.store.incarnation(), shard);
        // Of a repeat, the start that wrote it: its receipt is that of the first one, to the letter.
        let (incarnation, shard) = self.store.origin(table, lsn).unwrap_or(now);
        Accepted {
            receipt: Receipt { node: self.store.node(), incarnation, shard, lsn, table },
            rows: repeat_of.map_or(rows, |first| u64::from(first.accepted)),
            rejected_rows: repeat_of.map_or(rejected.len() as u64, |first| u64::from(first.rejected)),
            rejected,
            repeated: repeat_of.is_some(),
            created: None,
        }
    }

    fn backlog(&self) -> Backlog {
        Backlog { unflushed: self.store.held_bytes(), replay: self.store.replay_weight() }
    }

    async fn table_for(
        &self,
        name: &TableName,
        format: Format,
        body: &Bytes,
        (time_unit, on_error): (Option<TimeUnit>, OnError),
        room: &Arc<Leased>,
    ) -> Result<(Arc<Table>, bool), PostError> {
        if let Some(table) = self.registry.by_name(name) {
            return Ok((table, false));
        }
        if !self.options.create_tables {
            return Err(PostError::UnknownTable(name.clone()));
        }
        let (owned, copy, limits) = (name.clone(), body.clone(), self.options.limits());
        let spec = off_thread(body.len(), move || infer(owned, format, &copy, time_unit, &limits)).await??;
        // Rows that the table could not hold must not leave an empty table behind.
        let (trial, copy) = (Table { id: TableId(Uuid::nil()), spec: spec.clone() }, body.clone());
        let room = Arc::clone(room);
        let trial = off_thread(body.len(), move || cut(&trial, format, copy, now_micros(), &limits, &room)).await??;
        trial.or_none(on_error)?;
        let guard = self.defining.lock().await;
        if let Some(table) = self.registry.by_name(name) {
            return Ok((table, false));
        }
        let table = self.create(spec, Cause::Rows).await?;
        drop(guard);
        Ok((table, true))
    }

    /// Makes a table, finds it with this very definition, or gives it the columns and the wider types that it lacks.
    ///
    /// # Errors
    /// [`CreateError::Differs`] if the name is taken by a table that cannot become this one.
    pub async fn declare(&self, spec: TableSpec) -> Result<(Arc<Table>, Declared), CreateError> {
        spec.validate()?;
        let _guard = self.defining.lock().await;
        let (table, there) = match self.registry.by_name(&spec.name) {
            Some(table) => (table, Declared::Same),
            None => (self.create(spec.clone(), Cause::Declaration).await?, Declared::Created),
        };
        match table.spec.change_to(&spec) {
            Change::None => Ok((table, there)),
            Change::Next(next) => Ok((self.extend(table.id, *next).await?, Declared::Extended)),
            Change::Refused(reasons) => Err(CreateError::Differs { table: spec.name, reasons }),
        }
    }

    /// Takes a table to its next schema version. (Rows with columns that it does not have will come here as well.)
    async fn extend(&self, id: TableId, next: TableSpec) -> Result<Arc<Table>, CreateError> {
        // MUST BEFORE anybody sees it: the log takes no row of a version that it does not know, and could not read it again.
        self.define(id, &next).await?;
        let (version, columns) = (next.schema_version, next.columns.len());
        let table = self.registry.advance(Table { id, spec: next.clone() });
        let table = table.unwrap_or_else(|| self.registry.insert(Table { id, spec: next.clone() }));
        tracing::info!(table = %next.name, %id, version, columns, "table has a new schema version");
        // After a crash before this, or a failure of it, the next start brings the catalog up to the log.
        self.catalog.put_definition(id, &next, Cause::Declaration).await?;
        Ok(table)
    }

    /// Makes a table, which may turn out to be one that an earlier attempt got as far as the catalog: then with that definition.
    async fn create(&self, spec: TableSpec, cause: Cause) -> Result<Arc<Table>, CreateError> {
        let id = TableId(Uuid::new_v4());
        let (id, spec) = match self.catalog.create_table(id, &spec, cause).await {
            Ok(()) => (id, spec),
            // The log refused its definition, or nobody waited for the answer. Its name is not to be taken for ever.
            Err(catalog::Error::Exists(name)) => {
                self.catalog.table(&name).await?.ok_or(catalog::Error::Exists(name))?
            }
            Err(error) => return Err(error.into()),
        };
        // MUST BEFORE the first row: the log has to say by itself what its rows are.
        self.define(id, &spec).await?;
        tracing::info!(table = %spec.name, %id, columns = spec.columns.len(), "table created");
        Ok(self.registry.insert(Table { id, spec }))
    }

    /// Writes a definition into the log.
    ///
    /// # Errors
    /// The log's.
    pub async fn define(&self, id: TableId, spec: &TableSpec) -> Result<(), CreateError> {
        let body = Bytes::from(serde_json::to_vec(spec)?);
        self.store.define(Define { table: id, schema_version: spec.schema_version, body })?.wait().await?;
        Ok(())
    }
}

/// The rows of a post, ready for the log.
#[derive(Debug)]
struct Cut {
    slices: Vec<SliceInput>,
    rows: u64,
    rejected: Rejected,
}

impl Cut {
    /// The same, if there are rows to take.
    fn or_none(self, on_error: OnError) -> Result<Self, PostError> {
        if self.rejected.is_empty() || (self.rows > 0 && on_error == OnError::Accept) {
            return Ok(self);
        }
        Err(PostError::NoneTaken { rejected: self.rejected, good: self.rows })
    }
}

/// The rows of a body as slices, within the room that the post has.
fn cut(
    table: &Table,
    format: Format,
    body: Bytes,
    now: i64,
    limits: &Limits,
    room: &Arc<Leased>,
) -> Result<Cut, PostError> {
    // Before the first row is read: a refusal half-way would be work for nothing. A small post has what every post has.
    let expected = expected_bytes(&table.spec, format, &body, limits);
    if expected > POST_OVERHEAD as usize / PEAK && !room.take(expected.saturating_mul(PEAK)) {
        return Err(room.explain(none_left()));
    }
    let decoding = Arc::clone(room) as Arc<dyn Room>;
    let mut decoded =
        decode_in(&table.spec, format, &body, now, limits, decoding).map_err(|e| room.explain::<PostError>(e))?;
    let rows = decoded.times.len() as u64;
    // The columns as they have grown (those that share a buffer count it each); and what they become, once as it is put together and
    // once as it stays. The body's bytes are those of one of the two.
    let becomes = size_of_values(&decoded.batch);
    let grown = decoded.batch.get_array_memory_size().min(becomes.saturating_mul(2));
    drop(body);
    if !room.settle(grown.saturating_add(becomes.saturating_mul(2))) {
        return Err(room.explain(none_left()));
    }
    let rejected = std::mem::take(&mut decoded.rejected);
    Ok(Cut { slices: slices(table.id, &table.spec, decoded)?, rows, rejected })
}

fn size_of_values(batch: &RecordBatch) -> usize {
    let of_column =
        |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(column.get_array_memory_size());
    batch.columns().iter().map(of_column).sum()
}

/// Small work stays on the thread it is on; large work must not hold up the other connections of that thread.
async fn off_thread<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PostError> {
    if bytes <= DECODE_INLINE_MAX {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|e| PostError::Decoder(e.to_string()))
}

fn now_micros() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}
