//! One task that owns all flush state. It looks at the store several times a second and whenever something ends, seals what the
//! policy says, and starts what can be started. The work itself runs in tasks beside it, which only report back.
//!
//! - Everything that happens to a table wakes it: it gets a turn at the lake and one at the uploads. What happens costs the same
//!   however many tables there are; only the look at the store costs by the table, and is paced for it.
//! - A table that fails pauses alone, and one whose store hangs stops counting against the limits of all, see [`Slots`].
//! - [`look`]: the look at the store; [`tasks`]: how tasks end.
//! - A commit is not the end: [`landing`].
//! - If this task itself panics, [`supervise`] begins anew: the store still has every generation, and the tables know what they
//!   hold.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use penstock_store::{AppendError, Commit, Sealed, TableId};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::cadence::Cadence;
use super::dead::Fault;
use super::figures::{Held, Step, busy};
use super::permits::{Memory, Room, Slot, Slots};
use super::progress::Shared;
use super::ring::Ring;
use super::table::{Queue, Ready, Released};
use super::{Context, Flushed, job};
use crate::failpoint;
use crate::lake::DataFiles;

mod landing;
mod look;
mod tasks;

use tasks::{chain, finished, record};

/// How often the store is looked at, at most.
const TICK: Duration = Duration::from_millis(100);
/// The time between two looks, in looks: with very many tables a look takes milliseconds, and they are the log's as well.
const LOOK_SHARE: u32 = 20;
/// Resolves and commits at the same time. One table has at most one of them.
pub const MAX_AT_LAKE: usize = 64;
/// The most of them when many hang.
const HARD_AT_LAKE: usize = 1_024;
/// A resolve or commit that takes longer than this no longer counts.
const SLOW_AT_LAKE: Duration = Duration::from_secs(2);
/// An upload that takes longer than this no longer counts, and makes room for as many again as may run.
const SLOW_UPLOAD: Duration = Duration::from_secs(10);
/// The wait after the log refused a record of ours, and after a panic.
const BACK_OFF: Duration = Duration::from_secs(1);

/// Tells how many unflushed bytes the node wants on their way to Delta.
pub type Relief = Arc<dyn Fn() -> u64 + Send + Sync>;

enum Event {
    Sealed(Result<(), AppendError>),
    Uploaded { sealed: Sealed, slot: Slot, result: Result<DataFiles, job::Error> },
    Committed { table: TableId, slot: Slot, ready: Ready, result: Result<job::Done, job::Error> },
    Confirmed { table: TableId, slot: Slot, result: Result<(), job::Error> },
    Resolved { table: TableId, slot: Slot, result: Result<job::Holdings, job::Error> },
    Recorded(TableId),
}

struct Scheduler {
    context: Arc<Context>,
    shared: Arc<Shared>,
    relief: Relief,
    flushed: mpsc::UnboundedSender<Flushed>,
    /// Uploads run here: a long sort must not hold up anybody's commit.
    encoders: Handle,
    queues: HashMap<TableId, Queue>,
    cadences: HashMap<TableId, Cadence>,
    lake_turns: Ring,
    upload_turns: Ring,
    paused: HashSet<TableId>,
    /// Tables with commits that are not confirmed.
    unconfirmed: HashSet<TableId>,
    /// The node wants room: nothing waits to be confirmed.
    eager: bool,
    tasks: JoinSet<Event>,
    at_lake: Slots,
    uploads: Slots,
    memory: Arc<Memory>,
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
            cadences: HashMap::new(),
            lake_turns: Ring::default(),
            upload_turns: Ring::default(),
            paused: HashSet::new(),
            unconfirmed: HashSet::new(),
            eager: false,
            tasks: JoinSet::new(),
            at_lake: Slots::new(SLOW_AT_LAKE),
            uploads: Slots::new(SLOW_UPLOAD),
            memory: Arc::clone(&shared.memory),
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
                () = shared.room.notified() => {}
                Some(ended) = self.tasks.join_next() => self.handle(finished(ended)),
            }
            self.start_work();
        }
    }

    /// Something happened to the table: it may have work.
    fn wake(&mut self, table: TableId) {
        self.lake_turns.push(table);
        self.upload_turns.push(table);
        self.show(table);
    }

    /// Lets others see how the table is.
    fn show(&self, table: TableId) {
        let Some(queue) = self.queues.get(&table) else { return };
        let stages = queue.stages();
        let mut progress = self.shared.tables.entry(table).or_default();
        progress.waiting = stages.waiting;
        progress.uploading = stages.uploading;
        progress.ready = stages.ready;
        progress.landed = stages.landed;
        progress.committing = queue.busy;
        progress.paused_until = queue.paused_until();
    }

    /// Starts every resolve, upload and commit that can be started, a table at a time in turn.
    fn start_work(&mut self) {
        let now = Instant::now();
        while let Some(table) = self.lake_turns.pop() {
            let Some(slot) = self.at_lake.take(MAX_AT_LAKE, HARD_AT_LAKE, now) else {
                self.lake_turns.push_front(table);
                break;
            };
            if !self.start_at_lake(table, slot, now) {
                self.at_lake.give(slot);
            }
        }
        let options = self.context.options.get();
        let parallelism = options.parallelism.max(1);
        let mut held = None;
        while let Some(table) = self.upload_turns.pop() {
            let Some(bytes) = self.queues.get(&table).and_then(|queue| queue.to_upload(now)) else { continue };
            let Some(slot) = self.uploads.take(parallelism, parallelism * 2, now) else {
                held = Some(Held::Parallelism);
                self.upload_turns.push_front(table);
                break;
            };
            // A large one waits at the front until there is room for it: small ones would pass it by for ever.
            let Some(room) = self.memory.take(bytes, options.memory.as_u64()) else {
                held = Some(Held::Memory);
                self.uploads.give(slot);
                self.upload_turns.push_front(table);
                break;
            };
            self.start_upload(table, slot, room, now);
            self.upload_turns.push(table);
        }
        self.shared.tally.held(held, now);
    }

    fn start_at_lake(&mut self, table: TableId, slot: Slot, now: Instant) -> bool {
        let Some(queue) = self.queues.get_mut(&table) else { return false };
        let context = Arc::clone(&self.context);
        let confirm_at = queue.confirm_at(now, context.options.get().confirm_delay, self.eager);
        if confirm_at.is_some_and(|at| at <= now) {
            queue.busy = true;
            let landed = queue.unconfirmed();
            self.tasks.spawn(async move {
                let result = job::guarded(job::confirm(&context, table, &landed)).await;
                Event::Confirmed { table, slot, result }
            });
        } else if let Some(ready) = queue.ready(now) {
            queue.busy = true;
            // Dead letters are encoded first.
            let encodes = ready.dead.is_some();
            let work = async move {
                let result = job::guarded(job::commit(&context, table, &ready)).await;
                Event::Committed { table, slot, ready, result }
            };
            if encodes {
                self.tasks.spawn_on(work, &self.encoders)
            } else {
                self.tasks.spawn(work)
            };
        } else if !queue.resolved && !queue.busy && !queue.is_empty() && !queue.is_paused(now) {
            queue.busy = true;
            let incarnations = queue.incarnations();
            let decision = self.shared.decision(table);
            self.tasks.spawn(async move {
                let result = job::guarded(job::resolve(&context, table, &incarnations, decision)).await;
                Event::Resolved { table, slot, result }
            });
        } else {
            return false;
        }
        self.show(table);
        true
    }

    fn start_upload(&mut self, table: TableId, slot: Slot, mut room: Room, now: Instant) {
        let Some(sealed) = self.queues.get_mut(&table).and_then(|q| q.next_upload(now)) else {
            self.uploads.give(slot);
            return;
        };
        let (context, tally) = (Arc::clone(&self.context), Arc::clone(&self.shared.tally));
        let work = async move {
            let (result, took) = busy(job::guarded(job::upload(&context, &sealed, &mut room))).await;
            tally.encodes.count(took);
            Event::Uploaded { sealed, slot, result }
        };
        self.tasks.spawn_on(work, &self.encoders);
        self.show(table);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Recorded(table) => {
                self.shared.departed(table);
                self.shared.recorded.notify_waiters();
            }
            Event::Sealed(result) => {
                self.sealing = false;
                if let Err(error) = result {
                    tracing::warn!(%error, "a bucket cannot be sealed");
                    self.no_seal_before = Some(Instant::now() + BACK_OFF);
                }
                self.look(false);
            }
            Event::Uploaded { sealed, slot, result } => {
                self.uploads.give(slot);
                self.shared.load.lock().uploaded(slot.since.elapsed());
                self.count_failure(Step::Upload, &result);
                self.uploaded(&sealed, result);
            }
            Event::Resolved { table, slot, result } => {
                self.count_failure(Step::Resolve, &result);
                self.left_lake(table, slot);
                match result {
                    Ok(holdings) => self.resolved(table, holdings),
                    Err(error) => self.stale_or_failed(table, &error),
                }
            }
            Event::Committed { table, slot, ready, result } => {
                self.count_failure(Step::Commit, &result);
                self.left_lake(table, slot);
                match result {
                    Ok(done) => {
                        self.shared.load.lock().committed(slot.since.elapsed());
                        self.shared.tally.commits.count(slot.since.elapsed());
                        self.shared.tables.entry(table).or_default().commits += 1;
                        self.landed(table, ready, &done);
                    }
                    Err(error) => self.stale_or_failed(table, &error),
                }
            }
            Event::Confirmed { table, slot, result } => {
                self.count_failure(Step::Confirm, &result);
                self.left_lake(table, slot);
                match result {
                    Ok(()) => {
                        self.shared.tally.confirms.count(slot.since.elapsed());
                        self.confirmed(table);
                    }
                    Err(error) => self.stale_or_failed(table, &error),
                }
            }
        }
    }

    fn uploaded(&mut self, sealed: &Sealed, result: Result<DataFiles, job::Error>) {
        let table = sealed.generation.table;
        let failure = result.as_ref().err().map(|error| (Fault::of(error), chain(error)));
        if let Err(error) = &result {
            self.failed(table, error);
        }
        if let Ok(files) = &result {
            let payload = sealed.generation.totals().bytes;
            self.cadences.entry(table).or_default().encoded(payload, files.bytes);
            self.shared.tally.uploaded(payload);
        }
        if let Some(queue) = self.queues.get_mut(&table) {
            queue.uploaded(sealed, result.ok());
            if let Some((fault, reason)) = failure {
                queue.struck(sealed, fault, &reason, self.context.options.get().dead_letter_after);
            }
        }
        self.wake(table);
    }

    fn count_failure<T>(&self, step: Step, result: &Result<T, job::Error>) {
        if result.is_err() {
            self.shared.tally.failed(step);
        }
    }

    fn left_lake(&mut self, table: TableId, slot: Slot) {
        self.at_lake.give(slot);
        if let Some(queue) = self.queues.get_mut(&table) {
            queue.busy = false;
        }
        self.wake(table);
    }

    fn resolved(&mut self, table: TableId, holdings: job::Holdings) {
        for (incarnation, sequence) in holdings.sequences {
            if let (Some(sequence), Some(version)) = (sequence, holdings.version) {
                self.release(Commit { table, incarnation, sequence, version }, 0, false);
            }
        }
        for (incarnation, sequence) in holdings.dropped {
            let version = holdings.version.unwrap_or_default();
            self.let_go(Commit { table, incarnation, sequence, version });
        }
        self.shared.decided(table);
        self.unconfirmed.remove(&table);
        if let Some(queue) = self.queues.get_mut(&table) {
            queue.asked();
        }
    }

    /// The table holds everything up to a sequence, or the dead letters do: those rows may leave the log and the store.
    fn release(&mut self, commit: Commit, bytes: u64, dead: bool) {
        let Commit { table, incarnation, sequence, version } = commit;
        let released = self.queues.get_mut(&table).map(|q| q.committed(incarnation, sequence)).unwrap_or_default();
        if released.generations == 0 {
            return;
        }
        // MUST AFTER the lake published a version that holds the commit (it does so when it confirms): a reader that no longer
        // finds the rows in the store has to find them in its snapshot. Durable a little later; until then a restart asks the table.
        failpoint::reach("flush::record::before");
        let rows = if dead { 0 } else { released.rows };
        let Released { spans, rows: all, .. } = released;
        let flushed = Flushed { table, incarnation, sequence, version, rows, bytes, spans, dead };
        if self.flushed.send(flushed).is_err() {
            tracing::trace!("nobody keeps the history any more");
        }
        // MUST BEFORE the rows leave the store: who finds them gone waits for so many to be in the history.
        self.shared.told.fetch_add(1, Ordering::Release);
        let pending = self.context.store.commit(commit);
        self.tasks.spawn(record(Arc::clone(&self.context.store), commit, pending));
        self.context.sweep.covered(table, incarnation, sequence);
        let mut progress = self.shared.tables.entry(table).or_default();
        progress.rows_flushed += rows;
        progress.dead_rows += all - rows;
        progress.dead_generations += u64::from(dead);
        progress.version = Some(version).max(progress.version);
        progress.committed_at = Some(SystemTime::now());
        progress.last_error = None;
        drop(progress);
        tracing::debug!(%table, %incarnation, sequence, version, rows, "committed");
        self.show(table);
    }

    fn failed(&mut self, table: TableId, error: &job::Error) {
        let text = chain(error);
        let mut progress = self.shared.tables.entry(table).or_default();
        if progress.last_error.as_ref() != Some(&text) {
            tracing::warn!(table = self.name_of(table), error = text, "a flush failed; it is tried again");
        }
        progress.last_error = Some(text);
        progress.failures += 1;
        drop(progress);
        if let Some(queue) = self.queues.get_mut(&table) {
            queue.failed(Instant::now(), self.context.options.get().max_age);
            self.paused.insert(table);
        }
        self.show(table);
    }

    fn name_of(&self, table: TableId) -> String {
        let known = self.context.registry.by_id(table);
        known.map_or_else(|| table.to_string(), |known| known.spec.name.to_string())
    }
}

#[cfg(test)]
mod tests;
