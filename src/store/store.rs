//! The store: opens a data directory, hands requests to the shards' owners, shows what they published.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::bucket::state::TableSummary;
use crate::bucket::{Sealed, TableView};
use crate::error::{AppendError, OpenError};
use crate::first_start;
use crate::fs::{self, FileSystem, Lock};
use crate::manifest::{LogPosition, Manifest};
use crate::recovery::{self, ReadyShard, Report};
use crate::shard::Shared;
use crate::types::{Bucket, Incarnation, Lsn, NodeId, SliceInput, TableId};
use crate::wal::owner::{Owner, Settings};
use crate::wal::pool::Pool;
use crate::wal::queue::{Appended, Request};
use crate::wal::record::{Commit, Define, Record};
use crate::wal::segment;

const LOCK_FILE: &str = "LOCK";

/// How a store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Logs and owner threads. Default 2; at least 1, at most 1024. Fixed when the data directory is made.
    pub shards: u32,
    /// Data bytes of a log segment. Default 32 MiB, at least 64 KiB. Fixed when the data directory is made.
    pub segment_bytes: u64,
    /// Most bytes that one sync covers, but for a single larger record. Default 4 MiB.
    pub group_bytes: usize,
    /// Most bytes that wait for a shard's owner. Default 64 MiB.
    pub queue_bytes: usize,
    /// Largest record, bytes. Default 256 MiB.
    pub max_record_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: 2,
            segment_bytes: 32 << 20,
            group_bytes: 4 << 20,
            queue_bytes: 64 << 20,
            max_record_bytes: 256 << 20,
        }
    }
}

/// A caller's wait for the sync that covers its record.
#[must_use = "nothing is known to be durable before the answer"]
#[derive(Debug)]
pub struct Pending<T> {
    answer: oneshot::Receiver<Result<T, AppendError>>,
    shard: u32,
}

impl<T> Pending<T> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// Why the record is not durable.
    pub async fn wait(self) -> Result<T, AppendError> {
        self.answer.await.unwrap_or_else(|_| Err(unanswered(self.shard)))
    }

    /// Waits on the calling thread; not for async code.
    ///
    /// # Errors
    /// Why the record is not durable.
    pub fn wait_blocking(self) -> Result<T, AppendError> {
        self.answer.blocking_recv().unwrap_or_else(|_| Err(unanswered(self.shard)))
    }
}

/// The owner answers everybody whose request it took, unless it panics.
fn unanswered(shard: u32) -> AppendError {
    AppendError::Poisoned { shard, reason: "the log's owner thread ended without an answer".to_owned() }
}

/// One shard's figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// The shard.
    pub shard: u32,
    /// Everything below is durable and visible.
    pub durable_lsn: Lsn,
    /// Log bytes that are kept because something in them is not in Delta yet.
    pub retained_bytes: u64,
    /// Records made durable since the start.
    pub records: u64,
    /// Groups made durable since the start: each one is a sync.
    pub groups: u64,
    /// Payload bytes made durable since the start.
    pub payload_bytes: u64,
    /// Bytes passed to write calls since the start, zero-fill left out.
    pub written_bytes: u64,
    /// Rows that are not known to be in Delta.
    pub unflushed_rows: u64,
    /// Payload bytes that are not known to be in Delta.
    pub unflushed_bytes: u64,
    /// Why the shard stopped.
    pub poisoned: Option<String>,
}

/// An open data directory.
#[derive(Debug)]
pub struct Store {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    manifest: Manifest,
    report: Report,
    max_record_bytes: usize,
    shards: Vec<Arc<Shared>>,
    owners: Mutex<Vec<JoinHandle<()>>>,
    _lock: Box<dyn Lock>,
}

impl Store {
    /// Opens `dir`, or makes it. Reads the whole log; blocks meanwhile.
    ///
    /// # Errors
    /// [`OpenError`]: the directory is in use, damaged, of another shape than configured, or cannot be read or written.
    pub fn open(fs: Arc<dyn FileSystem>, dir: &Path, options: &Options) -> Result<Self, OpenError> {
        let at = |what: &str| OpenError::io(format!("{what} {}", dir.display()));
        fs.create_dir_all(dir).map_err(at("creating"))?;
        let lock_path = dir.join(LOCK_FILE);
        let lock = fs.lock(&lock_path).map_err(at("locking"))?;
        let Some(lock) = lock else {
            return Err(OpenError::Locked { holder: fs::lock_holder(&*fs, &lock_path), path: dir.to_owned() });
        };
        let (mut manifest, is_new) = match Manifest::load(&*fs, dir)? {
            Some(found) => (found, false),
            None => (first_start::manifest(&*fs, dir, options.shards, options.segment_bytes)?, true),
        };
        if manifest.shards() != options.shards {
            let (stored, configured) = (manifest.shards(), options.shards);
            return Err(OpenError::CountChanged { what: "shards", stored, configured });
        }
        manifest.incarnation = recovery::new_incarnation();
        manifest.starts += 1;
        if is_new {
            first_start::make_shards(&*fs, dir, &manifest)?;
        }
        let (read, report) = recovery::read_all(&*fs, dir, &manifest)?;
        let mut ready = Vec::with_capacity(read.len());
        for (number, read) in (0..).zip(read) {
            let shard = recovery::resume(&*fs, dir, read, &manifest, number)?;
            let active = shard.segments.back().expect("should have a fresh segment").header.base;
            manifest.logs[number as usize] = LogPosition { durable: shard.head, segment: active };
            ready.push((number, shard));
        }
        // MUST BEFORE the first append: sequences count within the incarnation, and one used twice would hide rows from the table.
        // MUST AFTER the fresh segments: it says that they are there, and where the durable part ends.
        manifest.store(&*fs, dir).map_err(at("writing the manifest in"))?;
        let mut store = Self {
            fs,
            dir: dir.to_owned(),
            manifest,
            report,
            max_record_bytes: options.max_record_bytes,
            shards: Vec::new(),
            owners: Mutex::default(),
            _lock: lock,
        };
        for (number, shard) in ready {
            store.start_owner(number, shard, options).map_err(at("starting a log's owner for"))?;
        }
        Ok(store)
    }

    /// What fails here drops the store, which stops the owners that run: one that went on without the lock could be a second writer.
    fn start_owner(&mut self, number: u32, ready: ReadyShard, options: &Options) -> std::io::Result<()> {
        let dir = segment::shard_dir(&self.dir, number);
        let pool = Pool::start(Arc::clone(&self.fs), &dir, self.manifest.segment_bytes)?;
        let shared = Arc::new(Shared::new(number, ready.state, options.queue_bytes, ready.head));
        let settings = Settings {
            fs: Arc::clone(&self.fs),
            dir,
            shard: number,
            node: self.manifest.node,
            incarnation: self.manifest.incarnation,
            segment_bytes: self.manifest.segment_bytes,
            group_bytes: options.group_bytes,
        };
        let owner = Owner::new(settings, Arc::clone(&shared), pool, ready.segments, ready.head);
        let thread = std::thread::Builder::new().name(format!("penstock-log-{number}"));
        self.owners.lock().push(thread.spawn(move || owner.run())?);
        self.shards.push(shared);
        Ok(())
    }

    /// Which data directory this is.
    pub fn node(&self) -> NodeId {
        self.manifest.node
    }

    /// This start.
    pub fn incarnation(&self) -> Incarnation {
        self.manifest.incarnation
    }

    /// What the start found.
    pub fn recovery(&self) -> Report {
        self.report
    }

    /// The shard that a table lives on.
    pub fn shard_of(&self, table: TableId) -> u32 {
        // The id is random, so its low half is as good as any hash of it.
        let shards = self.shards.len() as u128;
        u32::try_from((table.0.as_u128() & u128::from(u64::MAX)) % shards)
            .expect("should be below the number of shards")
    }

    fn shard(&self, table: TableId) -> &Arc<Shared> {
        &self.shards[self.shard_of(table) as usize]
    }

    /// Appends one record: all of its slices or none. They have to be of tables on one shard, with a definition in the log.
    ///
    /// # Errors
    /// At once if the record can never be taken; later through the answer.
    pub fn append(&self, slices: Vec<SliceInput>) -> Result<Pending<Appended>, AppendError> {
        let Some(first) = slices.first() else { return Err(crate::wal::record::EncodeError::Empty.into()) };
        let shard = self.shard_of(first.table);
        if slices.iter().any(|s| self.shard_of(s.table) != shard) {
            return Err(AppendError::MixedShards);
        }
        let record = Record::Slices(slices);
        let encoded = record.encode()?;
        self.check_len(encoded.padded_len())?;
        let Record::Slices(slices) = record else { unreachable!("the record was made of slices") };
        Ok(self.push(shard, |done| Request::Append { slices, encoded, done }))
    }

    /// Makes a table known to the log, or its next schema version.
    ///
    /// # Errors
    /// At once if the definition is too long; later through the answer.
    pub fn define(&self, define: Define) -> Result<Pending<Appended>, AppendError> {
        let shard = self.shard_of(define.table);
        let record = Record::Define(define.clone());
        let encoded = record.encode()?;
        self.check_len(encoded.padded_len())?;
        Ok(self.push(shard, |done| Request::Define { define, encoded, done }))
    }

    fn check_len(&self, len: usize) -> Result<(), AppendError> {
        let max = self.max_record_bytes;
        if len > max { Err(AppendError::TooLarge { len, max }) } else { Ok(()) }
    }

    /// Seals the bucket's open generation, if it still is `generation`; the answer is none if it is not.
    pub fn seal(&self, table: TableId, bucket: Bucket, generation: Lsn) -> Pending<Option<Sealed>> {
        self.push(self.shard_of(table), |done| Request::Seal { table, bucket, generation, done })
    }

    /// Records that Delta holds what was sealed up to a sequence; the rows leave the store. Rides with the next group.
    ///
    /// MUST AFTER a published Delta snapshot that contains the commit, or a reader would find the rows nowhere.
    pub fn commit(&self, commit: Commit) -> Pending<()> {
        let encoded = Record::Commit(commit).encode().unwrap_or_else(|e| unreachable!("a commit is short: {e}"));
        self.push(self.shard_of(commit.table), |done| Request::Commit { commit, encoded, done })
    }

    fn push<T>(
        &self,
        shard: u32,
        request: impl FnOnce(oneshot::Sender<Result<T, AppendError>>) -> Request,
    ) -> Pending<T> {
        let (done, answer) = oneshot::channel();
        self.shards[shard as usize].queue.push(request(done));
        Pending { answer, shard }
    }

    /// The definitions in the log, newest schema version each.
    pub fn definitions(&self) -> Vec<Define> {
        self.shards.iter().flat_map(|s| s.state.read().definitions().cloned().collect::<Vec<_>>()).collect()
    }

    /// Pins the unflushed rows of a table as they are now: everything acknowledged before, nothing that a crash could take back.
    pub fn view(&self, table: TableId) -> TableView {
        self.shard(table).state.read().view(table)
    }

    /// All tables with unflushed rows.
    pub fn summaries(&self) -> Vec<TableSummary> {
        self.shards.iter().flat_map(|s| s.state.read().summaries()).collect()
    }

    /// Payload bytes that are not known to be in Delta.
    pub fn unflushed_bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.counters.unflushed_bytes.load(Ordering::Relaxed)).sum()
    }

    /// Rows that are not known to be in Delta.
    pub fn unflushed_rows(&self) -> u64 {
        self.shards.iter().map(|s| s.counters.unflushed_rows.load(Ordering::Relaxed)).sum()
    }

    /// Every shard's figures.
    pub fn status(&self) -> Vec<ShardStatus> {
        self.shards.iter().map(|s| status_of(s)).collect()
    }

    /// The first shard that stopped, and why.
    pub fn poisoned(&self) -> Option<AppendError> {
        self.shards.iter().find_map(|s| s.poisoned())
    }

    /// Refuses new work, finishes what has queued, and notes in the manifest how far the logs are durable. Blocks. Idempotent.
    ///
    /// # Errors
    /// The I/O error of the manifest; the logs are whole all the same.
    pub fn close(&self) -> std::io::Result<()> {
        // Held to the end: two callers would write the same file.
        let mut owners = self.owners.lock();
        self.stop(&mut owners);
        let mut manifest = self.manifest.clone();
        for (log, shard) in manifest.logs.iter_mut().zip(&self.shards) {
            log.durable = Lsn(shard.counters.durable_lsn.load(Ordering::Acquire));
            log.segment = Lsn(shard.counters.active_from.load(Ordering::Acquire));
        }
        manifest.store(&*self.fs, &self.dir)
    }

    fn stop(&self, owners: &mut Vec<JoinHandle<()>>) {
        for shard in &self.shards {
            shard.queue.close(AppendError::Closed);
        }
        for owner in owners.drain(..) {
            if owner.join().is_err() {
                tracing::error!("a log's owner thread panicked");
            }
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let mut owners = std::mem::take(&mut *self.owners.lock());
        self.stop(&mut owners);
    }
}

fn status_of(shard: &Shared) -> ShardStatus {
    let counters = &shard.counters;
    let durable = counters.durable_lsn.load(Ordering::Acquire);
    ShardStatus {
        shard: shard.number,
        durable_lsn: Lsn(durable),
        retained_bytes: durable.saturating_sub(counters.retained_from.load(Ordering::Relaxed)),
        records: counters.records.load(Ordering::Relaxed),
        groups: counters.groups.load(Ordering::Relaxed),
        payload_bytes: counters.payload_bytes.load(Ordering::Relaxed),
        written_bytes: counters.written_bytes.load(Ordering::Relaxed),
        unflushed_rows: counters.unflushed_rows.load(Ordering::Relaxed),
        unflushed_bytes: counters.unflushed_bytes.load(Ordering::Relaxed),
        poisoned: shard.poisoned().map(|e| e.to_string()),
    }
}
