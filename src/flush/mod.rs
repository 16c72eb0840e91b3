//! From open buckets to committed Delta versions.
//!
//! In flow order:
//!
//! - [`policy`]: when a bucket is sealed; a pure function; [`cadence`]: how often a table's are;
//! - [`scheduler`]: one task that looks at the store, asks the policy, starts jobs, and owns all their state;
//! - [`ring`]: whose turn it is; [`permits`]: how much may go on at once; [`progress`]: what others see of it; [`figures`]: what it has
//!   done;
//! - [`table`]: one table's queue: strictly in seal order, consecutive ready generations in one commit;
//! - [`job`]: the jobs themselves: resolve, upload, commit, confirm;
//! - [`doubt`]: whether the data directory is an older copy; a pure function;
//! - [`encode`]: a generation's rows in file order;
//! - [`dead`]: generations that cannot be written go to a table of their own;
//! - [`journal`], [`sweep`]: uploads are written down before they begin, and files that no commit refers to are removed.
//!
//! Absent here: the Delta log itself (`lake`), who may send (`admission`).

mod cadence;
mod dead;
mod doubt;
pub mod encode;
mod figures;
mod job;
pub mod journal;
mod permits;
pub mod policy;
mod progress;
mod ring;
mod scheduler;
mod sweep;
mod table;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use penstock_store::{Incarnation, Lsn, Store, TableId};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::lake::{FileSettings, Lake};
use crate::schema::registry::Registry;

pub use cadence::Load;
pub use doubt::Decision;
pub use figures::Figures;
pub use progress::{TableProgress, Waiting};
pub use scheduler::MAX_AT_LAKE;
pub use sweep::Figures as Orphans;

use journal::Journal;
use progress::Shared;
use sweep::Sweep;

/// The `[flush]` settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Generations that are encoded and uploaded at the same time, over all tables. Those that have been at it for more than 10 s no
    /// longer count, and as many again may run. Default 4, at least 1; changeable while running.
    pub parallelism: usize,
    /// Payload bytes of the generations that are encoded and uploaded at the same time; one generation always goes. Encoding takes up
    /// to three times as much memory. Default 256 MiB.
    pub memory: bytesize::ByteSize,
    /// Threads that encode. Default 2, at least 1.
    pub threads: usize,
    /// Time past a bucket's window before it is sealed, for rows on their way. Default 10s.
    #[serde(with = "humantime_serde")]
    pub grace: Duration,
    /// A bucket is sealed once it has been open for this long, whether rows still arrive or not. Default 1m.
    #[serde(with = "humantime_serde")]
    pub max_age: Duration,
    /// A bucket whose window has passed is not sealed before it has been open for this long: late rows come in crowds, and each
    /// seal is a file. Default 5s.
    #[serde(with = "humantime_serde")]
    pub min_age: Duration,
    /// A bucket whose window has passed is not sealed before the table's last seal is this long ago, or as long as the table takes
    /// to fill a file of `target_file_bytes`, at most `max_age`. Default 5s.
    #[serde(with = "humantime_serde")]
    pub commit_interval: Duration,
    /// A bucket is sealed at this many payload bytes. Default 64 MiB.
    pub seal_bytes: bytesize::ByteSize,
    /// A data file is closed at about this size. Default 256 MiB.
    pub target_file_bytes: bytesize::ByteSize,
    /// zstd level of the data files, 1 to 22. Default 1.
    pub zstd_level: i32,
    /// The first so many columns have their least and largest value and their number of nulls in the Delta log; a table's own
    /// `delta.dataSkippingNumIndexedCols` wins. Default 32.
    pub stats_columns: u32,
    /// How long a commit on an object store waits for others before the table's log is looked at, which has to confirm it before
    /// its rows leave the log. On a local lake each commit is confirmed at once. Default 2s.
    #[serde(with = "humantime_serde")]
    pub confirm_delay: Duration,
    /// A file that was uploaded and that no commit refers to is removed when it is this old: a request that was given up may still
    /// arrive. Default 10m.
    #[serde(with = "humantime_serde")]
    pub orphan_age: Duration,
    /// After so many failures of one kind in a row for which its own rows are at fault, a generation goes to the namespace's
    /// `dead_generations` table as it is, and its table moves on. 0: never, the table waits. Default 5.
    pub dead_letter_after: u32,
    /// How long it is remembered which Delta version has the rows of a receipt. Default 7days.
    #[serde(with = "humantime_serde")]
    pub history: Duration,
    /// How long a shutdown may go on flushing; what is left then is checkpointed. Default 20s.
    #[serde(with = "humantime_serde")]
    pub shutdown_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            parallelism: 4,
            memory: bytesize::ByteSize::mib(256),
            threads: 2,
            grace: Duration::from_secs(10),
            max_age: Duration::from_secs(60),
            min_age: Duration::from_secs(5),
            commit_interval: Duration::from_secs(5),
            seal_bytes: bytesize::ByteSize::mib(64),
            target_file_bytes: bytesize::ByteSize::mib(256),
            zstd_level: 1,
            stats_columns: 32,
            confirm_delay: Duration::from_secs(2),
            orphan_age: Duration::from_secs(600),
            dead_letter_after: 5,
            history: Duration::from_secs(7 * 24 * 3600),
            shutdown_timeout: Duration::from_secs(20),
        }
    }
}

impl Options {
    fn file_settings(&self) -> FileSettings {
        let target = NonZeroU64::new(self.target_file_bytes.as_u64()).unwrap_or(NonZeroU64::MIN);
        let Self { zstd_level, stats_columns, .. } = *self;
        FileSettings { zstd_level, stats_columns, target_file_bytes: target, ..FileSettings::default() }
    }
}

/// What the stages of a flush work with.
#[derive(Debug)]
struct Context {
    store: Arc<Store>,
    lake: Arc<Lake>,
    registry: Arc<Registry>,
    options: Live,
    sweep: Arc<Sweep>,
    /// Where requests of uploads run, so that they do not wait for somebody's encoding; where the upload runs, if not given.
    requests: Option<Handle>,
    /// Sequences whose uploads panic.
    #[cfg(test)]
    panics: Mutex<HashSet<u64>>,
}

/// The settings in force, which may change while everything runs.
#[derive(Debug)]
struct Live(RwLock<Arc<Options>>);

impl Live {
    fn new(options: Options) -> Self {
        Self(RwLock::new(Arc::new(options)))
    }

    fn get(&self) -> Arc<Options> {
        Arc::clone(&self.0.read())
    }
}

/// A commit that is in the table, as told to whoever keeps the history, before its rows leave the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flushed {
    pub table: TableId,
    pub incarnation: Incarnation,
    /// Highest seal sequence in the commit.
    pub sequence: u64,
    pub version: u64,
    pub rows: u64,
    /// Of the data files; 0 where an earlier attempt turned out to have landed.
    pub bytes: u64,
    /// The generations in it.
    pub spans: Vec<Span>,
    /// They went to the dead letters instead.
    pub dead: bool,
}

/// The records that a committed generation may have rows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The generation's place among those that the start sealed.
    pub sequence: u64,
    /// Its first record.
    pub first: Lsn,
    /// Its last record.
    pub last: Lsn,
}

/// Why a demanded flush is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlushError {
    #[error("not everything was flushed in time: {left} generations are left{reason}")]
    Timeout { left: usize, reason: String },
    #[error("the log refuses to seal: {0}")]
    Log(#[from] penstock_store::AppendError),
}

/// How long a stop waits for the journal of uploads.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(5);

/// How long a demanded flush waits for a commit to be recorded before it looks by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Longest that a demanded flush waits, whatever it was told.
const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Flushes in the background until it is stopped or dropped.
#[derive(Debug)]
pub struct Flusher {
    context: Arc<Context>,
    shared: Arc<Shared>,
    scheduler: Mutex<Option<JoinHandle<()>>>,
    sweeping: JoinHandle<()>,
    _control: Threads,
    _encoders: Threads,
}

/// A runtime that may be dropped anywhere, also on a thread that must not wait.
#[derive(Debug)]
struct Threads(Option<Runtime>);

impl Threads {
    fn start(count: usize, name: &str) -> std::io::Result<(Self, Handle)> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(count.max(1)).thread_name(name).enable_all().build()?;
        let handle = runtime.handle().clone();
        Ok((Self(Some(runtime)), handle))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // A commit that is cut off here is settled by the table's own log at the next start.
            runtime.shutdown_background();
        }
    }
}

impl Flusher {
    /// Starts the threads. `journal` keeps uploads that are in no commit yet; `relief` tells how many bytes the node wants on their
    /// way to Delta; `flushed` hears of each commit.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn start(
        store: Arc<Store>,
        lake: Arc<Lake>,
        registry: Arc<Registry>,
        options: Options,
        journal: Arc<dyn Journal>,
        relief: impl Fn() -> u64 + Send + Sync + 'static,
        flushed: tokio::sync::mpsc::UnboundedSender<Flushed>,
    ) -> std::io::Result<Self> {
        let (control, control_handle) = Threads::start(2, "penstock-flush")?;
        let (encoders, encoders_handle) = Threads::start(options.threads, "penstock-encode")?;
        lake.identify(store.node(), store.incarnation());
        let sweep = Sweep::new(journal, options.orphan_age);
        let sweeping = control_handle.spawn(Arc::clone(&sweep).run(Arc::clone(&lake)));
        let requests = Some(control_handle.clone());
        let context = Context {
            store,
            lake,
            registry,
            options: Live::new(options),
            sweep,
            requests,
            #[cfg(test)]
            panics: Mutex::default(),
        };
        let context = Arc::new(context);
        let shared = Arc::new(Shared::new());
        let (ours, theirs) = (Arc::clone(&context), Arc::clone(&shared));
        let running = scheduler::supervise(ours, theirs, Arc::new(relief), encoders_handle, flushed);
        let scheduler = Mutex::new(Some(control_handle.spawn(running)));
        Ok(Self { context, shared, scheduler, sweeping, _control: control, _encoders: encoders })
    }

    /// How far each table is.
    pub fn progress(&self, table: TableId) -> TableProgress {
        self.shared.tables.get(&table).map(|p| p.clone()).unwrap_or_default()
    }

    /// Seals what is open in these tables and waits until all of it is in Delta. Tables that wait after a failure are tried at once.
    ///
    /// # Errors
    /// [`FlushError::Timeout`] with what is left; it goes on being flushed in the background.
    pub async fn flush(&self, tables: &[TableId], timeout: Duration) -> Result<(), FlushError> {
        self.flush_deciding(tables, timeout, None).await
    }

    /// The same, and says what is to become of rows that are in doubt, because the data directory is an older copy.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub async fn flush_deciding(
        &self,
        tables: &[TableId],
        timeout: Duration,
        decision: Option<Decision>,
    ) -> Result<(), FlushError> {
        let deadline = Instant::now() + timeout.min(MAX_WAIT);
        let mut wanted: HashMap<TableId, HashSet<Lsn>> = HashMap::new();
        let mut seals = Vec::new();
        for table in tables {
            for view in self.context.store.view(*table).generations {
                let generation = view.generation();
                wanted.entry(*table).or_default().insert(generation.first_lsn);
                if generation.seal().is_none() {
                    seals.push(self.context.store.seal(*table, generation.bucket, generation.first_lsn).wait());
                }
            }
        }
        let sealed = timeout_at(deadline, futures::future::try_join_all(seals)).await;
        // MUST AFTER the seals: the decision is about all rows that there are, and what is sealed later would be flushed.
        if let (Some(decision), Ok(Ok(_))) = (decision, &sealed) {
            self.shared.decide(wanted.keys().copied(), decision);
        }
        self.shared.demand(wanted.keys().copied());
        if let Ok(sealed) = sealed {
            drop(sealed?);
        }
        loop {
            let recorded = self.shared.recorded.notified();
            tokio::pin!(recorded);
            // MUST BEFORE the store is asked: what is recorded in between would be waited for in vain, for a while.
            recorded.as_mut().enable();
            wanted.retain(|table, names| {
                let generations = self.context.store.view(*table).generations;
                let left = generations.iter().map(|g| g.generation().first_lsn).filter(|lsn| names.contains(lsn));
                *names = left.collect();
                !names.is_empty()
            });
            if wanted.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.timed_out(&wanted));
            }
            // Asking costs by the table, and there may be a commit for each.
            let pause = Duration::from_micros(10) * u32::try_from(wanted.len()).unwrap_or(u32::MAX);
            tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
            // A commit of another flush, or a record that the log did not take, tells nobody here.
            drop(timeout_at(deadline.min(Instant::now() + LOOK_AGAIN), recorded).await);
        }
    }

    fn timed_out(&self, wanted: &HashMap<TableId, HashSet<Lsn>>) -> FlushError {
        let left = wanted.values().map(HashSet::len).sum();
        let stuck = wanted.keys().find_map(|table| self.progress(*table).last_error);
        let reason = stuck.map_or_else(String::new, |e| format!("; the last error was: {e}"));
        FlushError::Timeout { left, reason }
    }

    /// Ends the scheduler and drops its tasks. A commit that is cut off here is settled by the table's own log at the next start.
    pub async fn stop(&self) {
        self.shared.stop();
        let scheduler = self.scheduler.lock().take();
        if let Some(scheduler) = scheduler
            && let Err(error) = scheduler.await
        {
            tracing::error!(%error, "the flush scheduler");
        }
        self.sweeping.abort();
        // What the journal is not told now is decided again by the next start, at the price of reading the table.
        if tokio::time::timeout(JOURNAL_PATIENCE, self.context.sweep.tidy()).await.is_err() {
            tracing::warn!("the journal of uploads is slow; the next start looks at the last ones again");
        }
    }

    /// How many commits were told to whoever keeps the history. A commit whose rows have left the store is among them.
    pub fn told(&self) -> u64 {
        self.shared.told.load(Ordering::Acquire)
    }

    /// Changes each time that rows of the table have left the store.
    pub fn departures(&self, table: TableId) -> watch::Receiver<()> {
        self.shared.departures(table)
    }

    /// Generations that are encoded and uploaded at the same time.
    pub fn parallelism(&self) -> usize {
        self.context.options.get().parallelism.max(1)
    }

    /// Changes that, from now on; at least 1. What is running goes on.
    pub fn set_parallelism(&self, parallelism: usize) {
        self.retune(Options { parallelism, ..Options::clone(&self.context.options.get()) });
    }

    /// Other settings from now on; what is running goes on under those that it began with. The number of `threads`, `orphan_age` and
    /// `shutdown_timeout` stay as they were at the start.
    pub fn retune(&self, options: Options) {
        *self.context.options.0.write() = Arc::new(options);
        self.shared.room.notify_one();
    }

    /// Payload bytes that are being encoded and uploaded.
    pub fn encoding_bytes(&self) -> u64 {
        self.shared.memory.used()
    }

    /// What was done since the start, over all tables.
    pub fn figures(&self) -> Figures {
        self.shared.tally.read(std::time::Instant::now())
    }

    /// Sealed generations of all tables, by what they wait for.
    pub fn waiting(&self) -> Waiting {
        self.shared.tables.iter().fold(Waiting::default(), |sum, table| sum + Waiting::of(&table))
    }

    /// What flushing costs, over all tables.
    pub fn load(&self) -> Load {
        *self.shared.load.lock()
    }

    /// Uploaded files that are in no commit.
    pub fn orphans(&self) -> Orphans {
        self.context.sweep.figures()
    }
}

#[cfg(test)]
mod kit;
#[cfg(test)]
mod tests;
