//! The store: opens a data directory, hands requests to the shards' owners, shows what they published.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::bucket::Sealed;
use crate::bucket::producer::{Seen, Verdict};
use crate::bucket::state::TableSummary;
use crate::bucket::{PARTS, SealHistory, TableUsage, TableView, Whereabouts};
use crate::checkpoint::checkpointer::{self, Checkpointer};
use crate::checkpoint::lanes::{self, Lanes};
use crate::checkpoint::moving::Identity;
use crate::checkpoint::{self, CheckpointError, Report as CheckpointReport};
use crate::clock::Clock;
use crate::error::{AppendError, OpenError};
use crate::first_start;
use crate::fs::{self, FileSystem, Lock};
use crate::leftovers;
use crate::manifest::{self, LogPosition, Manifest};
use crate::options::{self, Options};
use crate::progress::Progress;
use crate::recovery::{self, ReadyShard, Report, Source};
use crate::shard::{self, Rhythm, Shared};
use crate::status::{self, ShardStatus};
use crate::types::{Bucket, Incarnation, Lsn, Mark, NodeId, Note, PostId, SliceInput, Stamp, TableId};
use crate::wal::owner::{self, Owner};
use crate::wal::pool::Pool;
use crate::wal::queue::{Appended, Request};
use crate::wal::record::{Commit, Define, Record, Rows};
use crate::wal::segment;

pub(crate) const LOCK_FILE: &str = "LOCK";
/// Most log segments of a shard that wait to be used again.
const MAX_SPARES: u64 = 64;

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

/// An open data directory.
#[derive(Debug)]
pub struct Store {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    lane_dirs: Vec<PathBuf>,
    manifest: Manifest,
    report: Report,
    max_record_bytes: usize,
    clock: Clock,
    shards: Vec<Arc<Shared>>,
    threads: Mutex<Threads>,
    _lock: Box<dyn Lock>,
}

/// The threads of all shards.
#[derive(Debug, Default)]
struct Threads {
    owners: Vec<JoinHandle<()>>,
    checkpointers: Vec<JoinHandle<()>>,
}

impl Store {
    /// Opens `dir`, or makes it. Reads manifests and logs; blocks meanwhile.
    ///
    /// # Errors
    /// [`OpenError`]: the directory is in use, damaged, of another shape than configured, or cannot be read or written.
    pub fn open(fs: Arc<dyn FileSystem>, dir: &Path, options: &Options) -> Result<Self, OpenError> {
        Self::open_telling(fs, dir, options, &Progress::new())
    }

    /// As [`Self::open`], and tells meanwhile how far it is.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_telling(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        options: &Options,
        progress: &Progress,
    ) -> Result<Self, OpenError> {
        let at = |what: &str| OpenError::io(format!("{what} {}", dir.display()));
        fs.create_dir_all(dir).map_err(at("creating"))?;
        let lock = lock(&*fs, dir)?;
        let (mut manifest, lanes) = layout(&fs, dir, options)?;
        let lanes = Arc::new(lanes);
        let source = Source {
            fs: &fs,
            dir,
            manifest: &manifest,
            lanes: &lanes,
            marks: options.marks(),
            replay_bytes: options.replay_bytes,
            progress,
        };
        let (read, report) = recovery::read_all(source)?;
        if manifest.version == manifest::VERSION_1 {
            lanes.make(manifest.node)?;
        }
        let mut ready = Vec::with_capacity(read.len());
        let mut logs = Vec::with_capacity(read.len());
        for (number, read) in (0..).zip(read) {
            let shard = recovery::resume(source, read, number)?;
            let active = shard.segments.back().expect("should have a fresh segment").header.base;
            logs.push(LogPosition { durable: shard.head, segment: active });
            ready.push((number, shard));
        }
        manifest.begin(logs.iter().map(|log| log.durable).collect());
        manifest.logs = logs;
        manifest.version = manifest::VERSION;
        if let Some(rate) = report.rate {
            manifest.add_replay_rate(rate);
        }
        // MUST BEFORE the first append: sequences count within the incarnation, and one used twice would hide rows from the table.
        // MUST AFTER the fresh segments: it says that they are there, and where the durable part ends.
        manifest.store(&*fs, dir).map_err(at("writing the manifest in"))?;
        let files = ready.iter().flat_map(|(number, shard)| {
            shard.files.iter().chain(&shard.spilled).map(|f| (f.reference.lane, *number, f.reference.id))
        });
        // MUST AFTER the manifest: one that was read may be in the page cache only, and another layout's may come back without it.
        leftovers::remove(&*fs, dir, (manifest.node, manifest.layout), &lanes, &files.collect());
        let mut store = Self {
            fs,
            dir: dir.to_owned(),
            lane_dirs: options::lane_dirs(dir, &options.lanes),
            manifest,
            report,
            max_record_bytes: options.max_record_bytes,
            clock: Clock::new(),
            shards: Vec::new(),
            threads: Mutex::default(),
            _lock: lock,
        };
        for (number, shard) in ready {
            store.start_shard(number, shard, &lanes, options).map_err(at("starting a log's threads for"))?;
        }
        Ok(store)
    }

    /// What fails here drops the store, which stops the threads that run: one that went on without the lock could be a second writer.
    fn start_shard(
        &mut self,
        number: u32,
        ready: ReadyShard,
        lanes: &Arc<Lanes>,
        options: &Options,
    ) -> std::io::Result<()> {
        let Manifest { node, incarnation, segment_bytes, layout, .. } = self.manifest;
        let dir = segment::shard_dir(&self.dir, layout, number);
        let ReadyShard { segments, state, head, edits, image, files, spilled, records } = ready;
        let freed_at_once = options.checkpoint_bytes / segment_bytes + 2;
        let pool = Pool::start(Arc::clone(&self.fs), &dir, segment_bytes, freed_at_once.min(MAX_SPARES) as usize)?;
        let pool = Arc::new(pool);
        let rhythm = Rhythm::new(options.checkpoint_interval, options.checkpoint_bytes);
        let shared = Arc::new(Shared::new(number, state, options.queue_bytes, (head, records), rhythm));
        let settings = owner::Settings {
            fs: Arc::clone(&self.fs),
            dir: dir.clone(),
            shard: number,
            node,
            incarnation,
            segment_bytes,
            group_bytes: options.group_bytes,
        };
        let (log, below) = (Arc::clone(&pool), image.checkpoint);
        let owner = Owner::new(settings, Arc::clone(&shared), log, segments, head, below);
        let settings = checkpointer::Settings {
            identity: Identity { shard: number, node, incarnation },
            dir,
            least_rate: options.lane_rate,
            max_files: options.lane_files,
        };
        let lanes = Arc::clone(lanes);
        let manifest = (edits, image);
        let checkpointer = Checkpointer::new(settings, Arc::clone(&shared), pool, lanes, manifest, files, spilled)?;
        self.shards.push(shared);
        let mut threads = self.threads.lock();
        let thread = |name: &str| std::thread::Builder::new().name(format!("penstock-{name}-{number}"));
        threads.owners.push(thread("log").spawn(move || owner.run())?);
        threads.checkpointers.push(thread("ckpt").spawn(move || checkpointer.run())?);
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

    /// Whether an incarnation that wrote something is a start of this data directory; none if it may be one that is forgotten.
    pub fn has_started(&self, incarnation: Incarnation) -> Option<bool> {
        self.manifest.has_started(incarnation)
    }

    /// The start that wrote a table's record at an LSN, and the shard that it was on then. None if that start is not remembered.
    pub fn origin(&self, table: TableId, lsn: Lsn) -> Option<(Incarnation, u32)> {
        self.manifest.origin(table, lsn)
    }

    /// Where the rows of a table's record at an LSN are; none if there is no such record in the log yet.
    pub fn whereabouts(&self, table: TableId, lsn: Lsn) -> Option<Whereabouts> {
        let shard = self.shard(table);
        // MUST BEFORE the look at the table: what is below has been applied.
        let is_durable = lsn.0 < shard.counters.durable_lsn.load(Ordering::Acquire);
        is_durable.then(|| shard.state.read().whereabouts(table, lsn))
    }

    /// What the start found.
    pub fn recovery(&self) -> Report {
        self.report
    }

    /// The shard that a table lives on.
    pub fn shard_of(&self, table: TableId) -> u32 {
        shard::of(table, self.manifest.shards())
    }

    fn shard(&self, table: TableId) -> &Arc<Shared> {
        &self.shards[self.shard_of(table) as usize]
    }

    /// Appends one record: all of its slices or none. They have to be of tables on one shard, with a definition in the log.
    ///
    /// # Errors
    /// At once if the record can never be taken; later through the answer.
    pub fn append(&self, slices: Vec<SliceInput>) -> Result<Pending<Appended>, AppendError> {
        self.append_rows(slices.into())
    }

    /// As [`Self::append`], and exactly once: a repeat of a stamp, also one that is under way, gets the receipt of the first one. The
    /// slices have to be of one table.
    ///
    /// # Errors
    /// As [`Self::append`]; and through the answer if it is not known whether the stamp was seen, or a newer epoch holds.
    pub fn append_stamped(&self, stamp: Stamp, slices: Vec<SliceInput>) -> Result<Pending<Appended>, AppendError> {
        self.append_rows(Rows { mark: Some(stamp.into()), slices })
    }

    /// As [`Self::append`], and exactly once: a repeat of an identity, also one that is under way, gets the receipt of the first one and
    /// what was noted of it. The slices have to be of one table.
    ///
    /// # Errors
    /// As [`Self::append`]; and through the answer if it is not known whether the identity was seen, a newer epoch holds, or it was
    /// used with another digest.
    pub fn append_once(
        &self,
        id: PostId,
        note: Note,
        slices: Vec<SliceInput>,
    ) -> Result<Pending<Appended>, AppendError> {
        let mark = Mark { id, note, at: self.clock.seconds() };
        self.append_rows(Rows { mark: Some(mark), slices })
    }

    /// The first record of an identity, if it is durable. What is under way is not seen here: [`Self::append_once`] waits for it.
    ///
    /// # Errors
    /// As the answer of [`Self::append_once`] would be, for what cannot be appended.
    pub fn seen(&self, table: TableId, id: PostId, digest: u64) -> Result<Option<Appended>, AppendError> {
        let shard = self.shard_of(table);
        let verdict = self.shards[shard as usize].state.read().check(table, id, self.clock.seconds());
        match verdict {
            Verdict::New => Ok(None),
            Verdict::Repeat(Seen { note, .. }) if note.digest != digest => Err(AppendError::Reused),
            Verdict::Repeat(seen) => Ok(Some(seen.answer(shard))),
            // A group that is under way may have begun the epoch.
            Verdict::Unknown => Ok(None),
            Verdict::Fenced { newest } => Err(AppendError::Fenced { newest }),
            Verdict::TooMany => Err(match id {
                PostId::Sequence(_) => AppendError::TooManyProducers,
                PostId::Key(_) => AppendError::TooManyKeys,
            }),
        }
    }

    fn append_rows(&self, rows: Rows) -> Result<Pending<Appended>, AppendError> {
        let slices = &rows.slices;
        let Some(first) = slices.first() else { return Err(crate::wal::record::EncodeError::Empty.into()) };
        let shard = self.shard_of(first.table);
        if slices.iter().any(|s| self.shard_of(s.table) != shard) {
            return Err(AppendError::MixedShards);
        }
        let record = Record::Slices(rows);
        let encoded = record.encode()?;
        self.check_len(encoded.padded_len())?;
        let Record::Slices(rows) = record else { unreachable!("the record was made of slices") };
        Ok(self.push(shard, |done| Request::Append { rows, encoded, done }))
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

    /// What is remembered of the starts that sealed rows of a table, this one included.
    pub fn seal_history(&self, table: TableId) -> SealHistory {
        self.shard(table).state.read().seal_history(table)
    }

    /// What a table has waiting for Delta, to be read again and again; none if the log does not know the table.
    pub fn usage(&self, table: TableId) -> Option<Arc<TableUsage>> {
        self.shard(table).state.read().usage(table)
    }

    /// All tables with unflushed rows.
    pub fn summaries(&self) -> Vec<TableSummary> {
        let mut summaries = Vec::new();
        for shard in &self.shards {
            for part in 0..PARTS {
                let tables = shard.state.read().unflushed_tables(part);
                // A table at a time: whoever holds the lock holds up the owner, for longer if it loses its processor.
                summaries.extend(tables.into_iter().filter_map(|table| shard.state.read().summary(table)));
            }
        }
        summaries
    }

    /// Payload bytes that commits took away since the start.
    pub fn flushed_bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.counters.flushed_bytes.load(Ordering::Relaxed)).sum()
    }

    /// Changes when checkpoints are due by themselves, from now on: the time between two of a shard (none: never by time), and the log
    /// bytes behind the last one.
    pub fn set_checkpoints(&self, interval: Option<Duration>, log_bytes: u64) {
        for shard in &self.shards {
            shard.rhythm.set(interval, log_bytes);
            shard.trigger.retime();
        }
    }

    /// Asks every shard that has log behind its last checkpoint for the next one, and waits for nothing.
    pub fn checkpoint_soon(&self) {
        let behind = |s: &&Arc<Shared>| status::of(s).replay_bytes() > 0;
        self.shards.iter().filter(behind).for_each(|s| s.trigger.log_is_long());
    }

    /// Checkpoints every shard now, in parallel, and waits for it; blocks. Afterwards a restart reads next to nothing.
    ///
    /// # Errors
    /// The first shard's reason.
    pub fn checkpoint(&self) -> Result<Vec<CheckpointReport>, CheckpointError> {
        let waiting: Vec<_> = self.shards.iter().map(|s| (s, s.trigger.demand(true))).collect();
        let outcome = |(shard, answer): (&Arc<Shared>, oneshot::Receiver<checkpoint::Outcome>)| {
            answer.blocking_recv().unwrap_or_else(|_| {
                let reason = shard.poisoned().unwrap_or(AppendError::Closed);
                Err(CheckpointError::Stopped(reason.to_string()))
            })
        };
        waiting.into_iter().map(outcome).collect()
    }

    /// The directories of the lanes, by their number.
    pub fn lane_dirs(&self) -> Vec<PathBuf> {
        self.lane_dirs.clone()
    }

    /// Bytes that may still be used on the file system of a directory; none if the system does not say.
    pub fn free_bytes(&self, dir: &Path) -> Option<u64> {
        self.fs
            .available_bytes(dir)
            .inspect_err(|error| tracing::debug!(dir = %dir.display(), %error, "no free space"))
            .ok()
    }

    /// Weight of log a second that a restart reads of a shard, see `replay_cost`: the lowest of what recent starts have measured; none
    /// before the first.
    pub fn replay_rate(&self) -> Option<u64> {
        self.manifest.replay_rate()
    }

    /// The same as it is to be expected, and not as it is to be feared: the middle one.
    pub fn expected_replay_rate(&self) -> Option<u64> {
        self.manifest.middle_replay_rate()
    }

    /// Weight of the log that a restart would read of the shard that has most of it: they are read side by side.
    pub fn replay_weight(&self) -> u64 {
        self.shards.iter().map(|s| status::replay_weight(s)).max().unwrap_or_default()
    }

    /// Payload bytes that are not known to be in Delta.
    pub fn unflushed_bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.counters.unflushed_bytes.load(Ordering::Relaxed)).sum()
    }

    /// What the rows that are not known to be in Delta take in memory, or took before a checkpoint moved them: payloads, and what lies
    /// around each post's.
    pub fn held_bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.counters.held_bytes.load(Ordering::Relaxed)).sum()
    }

    /// Rows that are not known to be in Delta.
    pub fn unflushed_rows(&self) -> u64 {
        self.shards.iter().map(|s| s.counters.unflushed_rows.load(Ordering::Relaxed)).sum()
    }

    /// Sequences of a table that its producers never sent, and that are too far back to come; in what was applied since the start, a
    /// replay's records included.
    pub fn producer_gaps(&self, table: TableId) -> u64 {
        self.shard(table).state.read().producers().gaps(table)
    }

    /// Every shard's figures.
    pub fn status(&self) -> Vec<ShardStatus> {
        self.shards.iter().map(|s| status::of(s)).collect()
    }

    /// The first shard that stopped, and why.
    pub fn poisoned(&self) -> Option<AppendError> {
        self.shards.iter().find_map(|s| s.poisoned())
    }

    /// Checkpoints, refuses new work, finishes what has queued, and notes in the manifest how far the logs are durable. Blocks.
    /// Idempotent.
    ///
    /// # Errors
    /// The I/O error of the manifest; the logs are whole all the same.
    pub fn close(&self) -> std::io::Result<()> {
        // Twice: what waited for a group to ride in is written behind the first one. With nothing new the second does nothing.
        for _ in 0..2 {
            if self.shards.iter().any(|s| s.queue.is_closed()) {
                break;
            }
            if let Err(error) = self.checkpoint() {
                tracing::warn!(%error, "no checkpoint at the end; the next start reads more of the log");
                break;
            }
        }
        // Held to the end: two callers would write the same file.
        let mut threads = self.threads.lock();
        self.stop(&mut threads);
        let mut manifest = self.manifest.clone();
        for (log, shard) in manifest.logs.iter_mut().zip(&self.shards) {
            log.durable = Lsn(shard.counters.durable_lsn.load(Ordering::Acquire));
            log.segment = Lsn(shard.counters.active_from.load(Ordering::Acquire));
        }
        manifest.store(&*self.fs, &self.dir)
    }

    fn stop(&self, threads: &mut Threads) {
        for shard in &self.shards {
            shard.trigger.stop();
            shard.queue.close(AppendError::Closed);
        }
        for thread in threads.checkpointers.drain(..).chain(threads.owners.drain(..)) {
            if thread.join().is_err() {
                tracing::error!("a thread of the log panicked");
            }
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let mut threads = std::mem::take(&mut *self.threads.lock());
        self.stop(&mut threads);
    }
}

/// Keeps every other process off the directory while it is held.
pub(crate) fn lock(fs: &dyn FileSystem, dir: &Path) -> Result<Box<dyn Lock>, OpenError> {
    let path = dir.join(LOCK_FILE);
    let lock = fs.lock(&path).map_err(OpenError::io(format!("locking {}", dir.display())))?;
    lock.ok_or_else(|| OpenError::Locked { holder: fs::lock_holder(fs, &path), path: dir.to_owned() })
}

/// What the data directory is, made if it is new; with this start's incarnation.
fn layout(fs: &Arc<dyn FileSystem>, dir: &Path, options: &Options) -> Result<(Manifest, Lanes), OpenError> {
    let lane_dirs = options::lane_dirs(dir, &options.lanes);
    let (mut manifest, is_new) = match Manifest::load(&**fs, dir)? {
        Some(found) => (found, false),
        None => (first_start::manifest(&**fs, dir, options, lane_dirs.len())?, true),
    };
    manifest.check_counts(options.shards, lane_dirs.len())?;
    manifest.incarnation = recovery::new_incarnation();
    manifest.starts += 1;
    if is_new {
        // MUST BEFORE the manifest: with it, a lane that is not there is lost rows.
        lanes::make(&**fs, &lane_dirs, manifest.node)?;
        first_start::make_shards(&**fs, dir, &manifest)?;
    }
    if manifest.version == manifest::VERSION_1 {
        // Made once everything has been read.
        manifest.lanes = u32::try_from(lane_dirs.len()).unwrap_or(u32::MAX);
        return Ok((manifest, Lanes::unmade(Arc::clone(fs), lane_dirs, options.barrier)));
    }
    let lanes = Lanes::open(Arc::clone(fs), lane_dirs, manifest.node, options.barrier)?;
    Ok((manifest, lanes))
}
