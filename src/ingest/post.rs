//! A post on its way: decoded, sliced, appended, acknowledged.
//!
//! A lease of the caller's covers the bytes; it grows when a compressed body turns out larger. The answer comes after the sync.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use penstock_store::{AppendError, Appended, Define, Note, PostId, SliceInput, Store, TableId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::cut::{Attempt, Cut, Terms, attempt};
use super::letters::Envelope;
use super::letters::quota::Quota;
use super::rejected::Tally;
use super::room::Leased;
use super::{ContentEncoding, Format, Limits, OnError, Receipt, Reject, Rejected, decompress_in, infer, repeat};
use crate::admission::{Backlog, Lease, Refusal};
use crate::catalog::{self, By, Catalog, Cause};
use crate::failpoint;
use crate::schema::letters;
use crate::schema::registry::{Registry, Table};
use crate::schema::spec::SpecError;
use crate::schema::versions::Change;
use crate::schema::{TableName, TableSpec, TimeUnit};

/// How often one post may find that its table has to change.
const MAX_EVOLUTIONS: usize = 8;

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
    /// Bytes of rejected rows that one sender may leave in a minute; a post with more is refused whole for a while. Default 32 MiB.
    pub rejected_per_minute: bytesize::ByteSize,
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
            rejected_per_minute: bytesize::ByteSize::mib(32),
        }
    }
}

impl Options {
    pub(super) fn limits(&self) -> Limits {
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
    /// Who sends, for the dead letters.
    pub sender: IpAddr,
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
    NoneTaken {
        rejected: Rejected,
        good: u64,
        /// Whether the rows are in the dead-letter table: they are, unless the sender asked for all or none.
        kept: bool,
    },
    #[error(
        "{sender} has sent more bad rows than are kept for a sender in a minute; nothing of this post was taken; the first: {first}"
    )]
    TooManyLetters { sender: String, first: String, retry_after: Duration },
    #[error(
        "table {0} holds the rows that other tables reject; it is filled by the server, and takes no posts and no declarations"
    )]
    Reserved(TableName),
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
    #[error("table {0} holds the rows that other tables reject, and is made by the server")]
    Reserved(TableName),
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
    pub(super) store: Arc<Store>,
    pub(super) registry: Arc<Registry>,
    catalog: Catalog,
    options: Options,
    /// Held while a table is made or gets columns, so that two first posts make one table, and no two changes one version.
    defining: tokio::sync::Mutex<()>,
    quota: Quota,
    tally: Tally,
}

impl Ingest {
    /// Takes rows for these tables.
    pub fn new(store: Arc<Store>, registry: Arc<Registry>, catalog: Catalog, options: Options) -> Self {
        let quota = Quota::new(options.rejected_per_minute.as_u64());
        let (defining, tally) = (tokio::sync::Mutex::new(()), Tally::default());
        Self { store, registry, catalog, options, defining, quota, tally }
    }

    /// Rows that were rejected since the start, by the code of the reason.
    pub fn rejected_rows(&self) -> Vec<(&'static str, u64)> {
        self.tally.counts()
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
        let Post { table, format, encoding, time_unit, on_error, id, sender, body } = post;
        if table.name() == letters::TABLE_NAME {
            return Err(PostError::Reserved(table));
        }
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
        let terms = Terms { format, on_error, now: now_micros(), limits };
        let (table, created) = self.table_for(&table, &body, time_unit, terms, sender, &room).await?;
        let (table, cut) = self.cut(table, body, terms, sender, &room).await?;
        self.tally.add(&cut.rejected);
        let Cut { slices, rows, rejected } = cut.or_none(on_error)?;
        let letters = self.letters(&table, &terms, sender, &rejected, id).await?;
        // The log keeps the rows in another form, which may be the larger one.
        let of_slice = |slice: &SliceInput| slice.payload.len() as u64 + penstock_store::SLICE_OVERHEAD;
        // In this order: what it took to make them is not asked for twice.
        room.settle(0);
        room.hold(slices.iter().chain(&letters).map(of_slice).sum(), self.backlog())?;
        note.accepted = u32::try_from(rows).unwrap_or(u32::MAX);
        note.rejected = u32::try_from(rejected.len()).unwrap_or(u32::MAX);
        if slices.is_empty() {
            if !letters.is_empty() {
                self.store.append(letters)?.wait().await?;
            }
            return Err(PostError::NoneTaken { rejected, good: 0, kept: true });
        }
        let record = self.append(id.map(|id| (id, note)), letters, slices).await?;
        let accepted = self.accepted(table.id, record, rows, rejected);
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

    /// The rows that the table can hold; before that it evolves, if it does and they ask for it.
    async fn cut(
        &self,
        mut table: Arc<Table>,
        mut body: Bytes,
        terms: Terms,
        sender: IpAddr,
        room: &Arc<Leased>,
    ) -> Result<(Arc<Table>, Cut), PostError> {
        let mut tries = 0;
        loop {
            let (trying, room) = (Arc::clone(&table), Arc::clone(room));
            // Others change the table at the same time; a post that is overtaken again and again takes it as it is.
            let may_evolve = tries < MAX_EVOLUTIONS;
            let size = body.len();
            match off_thread(size, move || attempt(&trying, body, &terms, may_evolve, &room)).await?? {
                Attempt::Done(cut) => return Ok((table, cut)),
                Attempt::Evolve { next, body: again } => {
                    table = self.evolve(&table, &next, sender).await?;
                    body = again;
                }
            }
            tries += 1;
        }
    }

    /// Takes a table to what rows ask of it, unless it has changed since they were looked at. Returns it as it is then.
    async fn evolve(&self, table: &Table, wanted: &TableSpec, sender: IpAddr) -> Result<Arc<Table>, PostError> {
        let _guard = self.defining.lock().await;
        let current = self.registry.by_id(table.id).ok_or_else(|| PostError::UnknownTable(table.spec.name.clone()))?;
        if current.spec.schema_version != table.spec.schema_version {
            return Ok(current);
        }
        match current.spec.change_to(wanted) {
            Change::Next(next) => Ok(self.extend(table.id, *next, Cause::Rows.by(sender)).await?),
            Change::None | Change::Refused(_) => Ok(current),
        }
    }

    /// The rejected rows as slices of the dead-letter table.
    async fn letters(
        &self,
        table: &Table,
        terms: &Terms,
        sender: IpAddr,
        rejected: &Rejected,
        id: Option<PostId>,
    ) -> Result<Vec<SliceInput>, PostError> {
        let rows = rejected.letters();
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        let sender = sender.to_string();
        let bytes: usize = rows.iter().map(|row| row.original.len()).sum();
        if let Err(retry_after) = self.quota.take(&sender, bytes as u64, Instant::now()) {
            let first = first.reason.message.clone();
            return Err(PostError::TooManyLetters { sender, first, retry_after });
        }
        let letters = self.letter_table(table.spec.name.namespace()).await?;
        let (post, node) = (post_name(table, id), self.store.node());
        let Terms { format, now, .. } = *terms;
        let envelope = Envelope { post, table: &table.spec.name, format, sender: &sender, node, now };
        Ok(envelope.seal(&letters, &rows)?)
    }

    /// The dead-letter table of a namespace, made when it is first needed.
    async fn letter_table(&self, namespace: &str) -> Result<Arc<Table>, PostError> {
        let spec = letters::spec(namespace);
        let known = |table: Arc<Table>| {
            // Made by an older build, or by hand.
            let fits = table.spec.columns == spec.columns;
            let reasons = vec!["its columns are not those of dead letters; rename it".to_owned()];
            let differs = CreateError::Differs { table: table.spec.name.clone(), reasons };
            if fits { Ok(table) } else { Err(PostError::Create(differs)) }
        };
        if let Some(table) = self.registry.by_name(&spec.name) {
            return known(table);
        }
        let _guard = self.defining.lock().await;
        if let Some(table) = self.registry.by_name(&spec.name) {
            return known(table);
        }
        known(self.create(letters::table_id(namespace), spec.clone(), Cause::Letters.into()).await?)
    }

    /// Appends rows, and letters with them or before them.
    async fn append(
        &self,
        once: Option<(PostId, Note)>,
        letters: Vec<SliceInput>,
        rows: Vec<SliceInput>,
    ) -> Result<Appended, PostError> {
        let shard = |slices: &[SliceInput]| slices.first().map(|slice| self.store.shard_of(slice.table));
        let append = |rows| match once {
            Some((id, note)) => self.store.append_once(id, note, rows),
            None => self.store.append(rows),
        };
        if letters.is_empty() {
            return Ok(append(rows)?.wait().await?);
        }
        // What is taken once is a record of one table.
        if once.is_none() && shard(&letters) == shard(&rows) {
            let both = letters.iter().chain(&rows).cloned().collect();
            match self.store.append(both) {
                // Each may fit where both do not.
                Err(AppendError::TooLarge { .. }) => {}
                pending => return Ok(pending?.wait().await?),
            }
        }
        // MUST BEFORE the rows: once they are durable the post may count as done, and nobody sends the letters again.
        self.store.append(letters)?.wait().await?;
        failpoint::reach("ingest::letters::durable");
        Ok(append(rows)?.wait().await?)
    }

    async fn table_for(
        &self,
        name: &TableName,
        body: &Bytes,
        time_unit: Option<TimeUnit>,
        terms: Terms,
        sender: IpAddr,
        room: &Arc<Leased>,
    ) -> Result<(Arc<Table>, bool), PostError> {
        if let Some(table) = self.registry.by_name(name) {
            return Ok((table, false));
        }
        if !self.options.create_tables {
            return Err(PostError::UnknownTable(name.clone()));
        }
        let (owned, copy, limits) = (name.clone(), body.clone(), terms.limits);
        let spec = off_thread(body.len(), move || infer(owned, terms.format, &copy, time_unit, &limits)).await??;
        // Rows that the table could not hold must not leave an empty table behind.
        let (trial, copy) = (Table { id: TableId(Uuid::nil()), spec: spec.clone() }, body.clone());
        let room = Arc::clone(room);
        let work = move || attempt(&trial, copy, &terms, false, &room);
        if let Attempt::Done(cut) = off_thread(body.len(), work).await?? {
            let Cut { rows, rejected, .. } = cut.or_none(terms.on_error)?;
            if rows == 0 {
                return Err(PostError::NoneTaken { rejected, good: 0, kept: false });
            }
        }
        let guard = self.defining.lock().await;
        if let Some(table) = self.registry.by_name(name) {
            return Ok((table, false));
        }
        let table = self.create(TableId(Uuid::new_v4()), spec, Cause::Rows.by(sender)).await?;
        drop(guard);
        Ok((table, true))
    }

    /// Makes a table, finds it with this very definition, or gives it the columns and the wider types that it lacks.
    ///
    /// # Errors
    /// [`CreateError::Differs`] if the name is taken by a table that cannot become this one.
    pub async fn declare(&self, spec: TableSpec, by: impl Into<By>) -> Result<(Arc<Table>, Declared), CreateError> {
        spec.validate()?;
        let by = by.into();
        if spec.name.name() == letters::TABLE_NAME {
            return Err(CreateError::Reserved(spec.name));
        }
        let _guard = self.defining.lock().await;
        let (table, there) = match self.registry.by_name(&spec.name) {
            Some(table) => (table, Declared::Same),
            None => {
                let id = TableId(Uuid::new_v4());
                (self.create(id, spec.clone(), by.clone()).await?, Declared::Created)
            }
        };
        match table.spec.change_to(&spec) {
            Change::None => Ok((table, there)),
            Change::Next(next) => Ok((self.extend(table.id, *next, by).await?, Declared::Extended)),
            Change::Refused(reasons) => Err(CreateError::Differs { table: spec.name, reasons }),
        }
    }

    /// Takes a table to its next schema version.
    async fn extend(&self, id: TableId, next: TableSpec, by: By) -> Result<Arc<Table>, CreateError> {
        // MUST BEFORE anybody sees it: the log takes no row of a version that it does not know, and could not read it again.
        self.define(id, &next).await?;
        let (version, columns) = (next.schema_version, next.columns.len());
        let table = self.registry.advance(Table { id, spec: next.clone() });
        let table = table.unwrap_or_else(|| self.registry.insert(Table { id, spec: next.clone() }));
        tracing::info!(table = %next.name, %id, version, columns, "table has a new schema version");
        // After a crash before this, or a failure of it, the next start brings the catalog up to the log.
        self.catalog.put_definition(id, &next, by).await?;
        Ok(table)
    }

    /// Makes a table, which may turn out to be one that an earlier attempt got as far as the catalog: then with that definition.
    async fn create(&self, id: TableId, spec: TableSpec, by: By) -> Result<Arc<Table>, CreateError> {
        let (id, spec) = match self.catalog.create_table(id, &spec, by).await {
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

/// Names a post for its letters: a repeat that is known as one leaves the same letters.
fn post_name(table: &Table, id: Option<PostId>) -> Uuid {
    let text = match id {
        None => return Uuid::new_v4(),
        Some(PostId::Key(key)) => format!("{} {:032x}", table.id, key.0),
        Some(PostId::Sequence(stamp)) => format!("{} {} {} {}", table.id, stamp.producer, stamp.epoch, stamp.sequence),
    };
    letters::derived_id("penstock post", &text).0
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

pub(super) fn now_micros() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}
