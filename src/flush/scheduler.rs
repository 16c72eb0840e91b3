//! One task that owns all flush state. It looks at the store several times a second and whenever something ends, seals what the
//! policy says, and starts what can be started. The work itself runs in tasks beside it, which only report back.
//!
//! - Everything that happens to a table wakes it: it gets a turn at the lake and one at the uploads. What happens costs the same
//!   however many tables there are; only the look at the store costs by the table, and is paced for it.
//! - A table that fails pauses alone. A look never waits: not for a disk, not for the lake.
//! - If this task itself panics, [`supervise`] begins anew: the store still has every generation, and the tables know what they
//!   hold.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dashmap::DashMap;
use parking_lot::Mutex;
use penstock_store::{AppendError, Commit, Generation, Pending, Sealed, Store, TableId, TableSummary};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use super::policy::{Candidate, seal_reason};
use super::ring::Ring;
use super::table::{Queue, Ready};
use super::{Context, Flushed, job};
use crate::failpoint;
use crate::lake::{self, DataFiles};

/// How often the store is looked at, at most.
const TICK: Duration = Duration::from_millis(100);
/// The time between two looks, in looks: with very many tables a look takes milliseconds, and they are the log's as well.
const LOOK_SHARE: u32 = 20;
/// Resolves and commits at the same time. One table has at most one of them.
const MAX_AT_LAKE: usize = 64;
/// The wait after the log refused a record of ours, and after a panic.
const BACK_OFF: Duration = Duration::from_secs(1);

/// How far one table is, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableProgress {
    /// Rows that reached the table since the start.
    pub rows_flushed: u64,
    /// Delta version of the last commit.
    pub version: Option<u64>,
    /// Why the last attempt failed; none once one succeeds.
    pub last_error: Option<String>,
}

/// What the scheduler shows to others, and what they tell it.
#[derive(Debug, Default)]
pub struct Shared {
    pub tables: DashMap<TableId, TableProgress>,
    /// Tables that are to be flushed now, also where they wait after a failure.
    demanded: Mutex<HashSet<TableId>>,
    nudge: Notify,
    stop: watch::Sender<bool>,
}

impl Shared {
    /// Asks for these tables to be flushed now.
    pub fn demand(&self, tables: impl Iterator<Item = TableId>) {
        self.demanded.lock().extend(tables);
        self.nudge.notify_one();
    }

    /// Ends the scheduler and its tasks.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// Tells how many unflushed bytes the node wants on their way to Delta.
pub type Relief = Arc<dyn Fn() -> u64 + Send + Sync>;

enum Event {
    Sealed(Result<(), AppendError>),
    Uploaded { sealed: Sealed, result: Result<DataFiles, job::Error> },
    Committed { table: TableId, ready: Ready, result: Result<lake::Committed, job::Error> },
    Resolved { table: TableId, result: Result<job::Holdings, job::Error> },
    Recorded,
}

struct Scheduler {
    context: Arc<Context>,
    shared: Arc<Shared>,
    relief: Relief,
    flushed: mpsc::UnboundedSender<Flushed>,
    /// Uploads run here: a long sort must not hold up anybody's commit.
    encoders: Handle,
    queues: HashMap<TableId, Queue>,
    lake_turns: Ring,
    upload_turns: Ring,
    paused: HashSet<TableId>,
    tasks: JoinSet<Event>,
    at_lake: usize,
    uploads: usize,
    /// Seals have been asked for and not all are answered.
    sealing: bool,
    no_seal_before: Option<Instant>,
    next_look: tokio::time::Instant,
}

/// Keeps a scheduler running until it is told to stop.
pub async fn supervise(
    context: Arc<Context>,
    shared: Arc<Shared>,
    relief: Relief,
    encoders: Handle,
    flushed: mpsc::UnboundedSender<Flushed>,
) {
    loop {
        let new = Scheduler::new(&context, &shared, &relief, &encoders, &flushed);
        match tokio::spawn(new.run()).await {
            Ok(()) => return,
            Err(error) => tracing::error!(%error, "the flush scheduler ended; it begins anew"),
        }
        tokio::time::sleep(BACK_OFF).await;
    }
}

impl Scheduler {
    fn new(
        context: &Arc<Context>,
        shared: &Arc<Shared>,
        relief: &Relief,
        encoders: &Handle,
        flushed: &mpsc::UnboundedSender<Flushed>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            shared: Arc::clone(shared),
            relief: Arc::clone(relief),
            flushed: flushed.clone(),
            encoders: encoders.clone(),
            queues: HashMap::new(),
            lake_turns: Ring::default(),
            upload_turns: Ring::default(),
            paused: HashSet::new(),
            tasks: JoinSet::new(),
            at_lake: 0,
            uploads: 0,
            sealing: false,
            no_seal_before: None,
            next_look: tokio::time::Instant::now(),
        }
    }

    async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut stop = shared.stop.subscribe();
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep_until(self.next_look) => self.look(true),
                () = shared.nudge.notified() => self.look(false),
                Some(ended) = self.tasks.join_next() => self.handle(finished(ended)),
            }
            self.start_work();
        }
    }

    /// Takes in what is sealed, and, on its own time, seals what should be.
    fn look(&mut self, may_seal: bool) {
        let began = Instant::now();
        let mut summaries = self.context.store.summaries();
        for summary in &mut summaries {
            let sealed = std::mem::take(&mut summary.sealed);
            if !sealed.is_empty() && self.queues.entry(summary.table).or_default().enqueue(sealed) {
                self.wake(summary.table);
            }
        }
        self.end_pauses(began);
        if may_seal {
            self.seal_due(&summaries, began);
            self.next_look = tokio::time::Instant::now() + TICK.max(began.elapsed() * LOOK_SHARE);
        }
    }

    fn seal_due(&mut self, summaries: &[TableSummary], now: Instant) {
        if self.sealing || self.no_seal_before.is_some_and(|then| now < then) {
            return;
        }
        // What is on its way already may be enough: sealing more would only make small files.
        let moving: u64 = self.queues.values().map(Queue::moving_bytes).sum();
        let mut wanted = (self.relief)().saturating_sub(moving);
        let mut open: Vec<&Arc<Generation>> = summaries.iter().flat_map(|s| &s.open).collect();
        if wanted > 0 {
            open.sort_by_cached_key(|generation| Reverse(generation.totals().bytes));
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64);
        let mut seals = Vec::new();
        for generation in open {
            let bytes = generation.totals().bytes;
            let age = now.saturating_duration_since(generation.opened_at);
            let candidate = Candidate { bytes, age, window_end: generation.bucket.end() };
            if let Some(reason) = seal_reason(&candidate, &self.context.options, wall, wanted > 0) {
                tracing::debug!(table = %generation.table, bucket = generation.bucket.start, ?reason, "sealing");
                wanted = wanted.saturating_sub(bytes);
                seals.push(self.context.store.seal(generation.table, generation.bucket, generation.first_lsn));
            }
        }
        if !seals.is_empty() {
            self.sealing = true;
            self.tasks.spawn(answers(seals));
        }
    }

    fn end_pauses(&mut self, now: Instant) {
        let demanded = std::mem::take(&mut *self.shared.demanded.lock());
        for table in demanded {
            if let Some(queue) = self.queues.get_mut(&table) {
                queue.retry_now();
                self.wake(table);
            }
        }
        let queues = &self.queues;
        let over = |table: &TableId| queues.get(table).is_none_or(|queue| !queue.is_paused(now));
        let over: Vec<TableId> = self.paused.iter().copied().filter(over).collect();
        for table in over {
            self.paused.remove(&table);
            self.wake(table);
        }
    }

    /// Something happened to the table: it may have work.
    fn wake(&mut self, table: TableId) {
        self.lake_turns.push(table);
        self.upload_turns.push(table);
    }

    /// Starts every resolve, upload and commit that can be started, a table at a time in turn.
    fn start_work(&mut self) {
        let now = Instant::now();
        while self.at_lake < MAX_AT_LAKE
            && let Some(table) = self.lake_turns.pop()
        {
            self.start_at_lake(table, now);
        }
        while self.uploads < self.context.options.parallelism.max(1)
            && let Some(table) = self.upload_turns.pop()
        {
            if self.start_upload(table, now) {
                self.upload_turns.push(table);
            }
        }
    }

    fn start_at_lake(&mut self, table: TableId, now: Instant) {
        let Some(queue) = self.queues.get_mut(&table) else { return };
        let context = Arc::clone(&self.context);
        if let Some(ready) = queue.ready(now) {
            queue.busy = true;
            self.at_lake += 1;
            self.tasks.spawn(async move {
                let result = job::guarded(job::commit(&context, table, &ready)).await;
                Event::Committed { table, ready, result }
            });
        } else if !queue.resolved && !queue.busy && !queue.is_empty() && !queue.is_paused(now) {
            queue.busy = true;
            self.at_lake += 1;
            let incarnations = queue.incarnations();
            self.tasks.spawn(async move {
                let result = job::guarded(job::resolve(&context, table, &incarnations)).await;
                Event::Resolved { table, result }
            });
        }
    }

    fn start_upload(&mut self, table: TableId, now: Instant) -> bool {
        let Some(sealed) = self.queues.get_mut(&table).and_then(|q| q.next_upload(now)) else { return false };
        self.uploads += 1;
        let context = Arc::clone(&self.context);
        let work = async move {
            let result = job::guarded(job::upload(&context, &sealed)).await;
            Event::Uploaded { sealed, result }
        };
        self.tasks.spawn_on(work, &self.encoders);
        true
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Recorded => {}
            Event::Sealed(result) => {
                self.sealing = false;
                if let Err(error) = result {
                    tracing::warn!(%error, "a bucket cannot be sealed");
                    self.no_seal_before = Some(Instant::now() + BACK_OFF);
                }
                self.look(false);
            }
            Event::Uploaded { sealed, result } => {
                self.uploads -= 1;
                let table = sealed.generation.table;
                let files = result.map_err(|error| self.failed(table, &error)).ok();
                if let Some(queue) = self.queues.get_mut(&table) {
                    queue.uploaded(&sealed, files);
                }
                self.wake(table);
            }
            Event::Resolved { table, result } => {
                self.left_lake(table);
                match result {
                    Ok(holdings) => self.resolved(table, holdings),
                    Err(error) => self.failed(table, &error),
                }
            }
            Event::Committed { table, ready, result } => {
                self.left_lake(table);
                match result {
                    Ok(done) => {
                        let bytes = if done.adopted { 0 } else { ready.files.bytes };
                        let (incarnation, sequence) = (ready.incarnation, ready.sequence);
                        self.release(Commit { table, incarnation, sequence, version: done.version }, bytes);
                    }
                    // A part is in the table already, from an attempt that landed late. To ask again settles at least that part.
                    Err(error) if error.is_stale() => {
                        tracing::info!(%table, %error, "asking the table again");
                        if let Some(queue) = self.queues.get_mut(&table) {
                            queue.resolved = false;
                        }
                    }
                    Err(error) => self.failed(table, &error),
                }
            }
        }
    }

    fn left_lake(&mut self, table: TableId) {
        self.at_lake -= 1;
        if let Some(queue) = self.queues.get_mut(&table) {
            queue.busy = false;
        }
        self.wake(table);
    }

    fn resolved(&mut self, table: TableId, holdings: job::Holdings) {
        for (incarnation, sequence) in holdings.sequences {
            if let (Some(sequence), Some(version)) = (sequence, holdings.version) {
                self.release(Commit { table, incarnation, sequence, version }, 0);
            }
        }
        if let Some(queue) = self.queues.get_mut(&table) {
            queue.resolved = true;
        }
    }

    /// The table holds everything up to a sequence: those rows may leave the log and the store.
    fn release(&mut self, commit: Commit, bytes: u64) {
        let Commit { table, incarnation, sequence, version } = commit;
        let released = self.queues.get_mut(&table).map(|q| q.committed(incarnation, sequence)).unwrap_or_default();
        if released.generations == 0 {
            return;
        }
        // MUST AFTER the lake published a version that holds the commit (it does so before it returns): a reader that no longer
        // finds the rows in the store has to find them in its snapshot. Durable a little later; until then a restart asks the table.
        failpoint::reach("flush::record::before");
        let pending = self.context.store.commit(commit);
        self.tasks.spawn(record(Arc::clone(&self.context.store), commit, pending));
        let mut progress = self.shared.tables.entry(table).or_default();
        progress.rows_flushed += released.rows;
        progress.version = Some(version).max(progress.version);
        progress.last_error = None;
        drop(progress);
        tracing::debug!(%table, %incarnation, sequence, version, rows = released.rows, "committed");
        let flushed = Flushed { table, incarnation, sequence, version, rows: released.rows, bytes };
        if self.flushed.send(flushed).is_err() {
            tracing::trace!("nobody keeps the history any more");
        }
    }

    fn failed(&mut self, table: TableId, error: &job::Error) {
        let text = chain(error);
        let mut progress = self.shared.tables.entry(table).or_default();
        if progress.last_error.as_ref() != Some(&text) {
            let name = self.context.registry.by_id(table).map(|t| t.spec.name.to_string());
            let name = name.unwrap_or_else(|| table.to_string());
            tracing::warn!(table = name, error = text, "a flush failed; it is tried again");
        }
        progress.last_error = Some(text);
        drop(progress);
        if let Some(queue) = self.queues.get_mut(&table) {
            queue.failed(Instant::now());
            self.paused.insert(table);
        }
    }
}

/// Tasks report their failures, panics included: one that did not is a defect here, and the supervisor begins anew.
fn finished(ended: Result<Event, JoinError>) -> Event {
    ended.unwrap_or_else(|error| std::panic::resume_unwind(Box::new(error.to_string())))
}

async fn answers(seals: Vec<Pending<Option<Sealed>>>) -> Event {
    let mut result = Ok(());
    for seal in seals {
        // The generation itself is taken in with the store's list, see `Queue::enqueue`.
        if let Err(error) = seal.wait().await {
            result = Err(error);
        }
    }
    Event::Sealed(result)
}

/// Waits for a Commit record, and writes it again where a full disk refused it: without it the rows would be held, and counted
/// against the limit on unflushed bytes, until a restart.
async fn record(store: Arc<Store>, commit: Commit, mut pending: Pending<()>) -> Event {
    loop {
        match pending.wait().await {
            // A log that has stopped takes nothing any more; the next start asks the table.
            Ok(()) => {
                failpoint::reach("flush::record::after");
                return Event::Recorded;
            }
            Err(AppendError::Poisoned { .. } | AppendError::Closed) => return Event::Recorded,
            Err(error) => tracing::warn!(table = %commit.table, %error, "a commit is not recorded yet"),
        }
        tokio::time::sleep(BACK_OFF).await;
        pending = store.commit(commit);
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    for cause in causes.map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests;
