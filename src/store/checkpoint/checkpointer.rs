//! The thread that checkpoints one shard, one checkpoint at a time.
//!
//! ```text
//!  1 swap (the owner, between two groups) -> 2 one lane file, paced -> 3 barrier -> 4 edit, synced -> 5 install, recycle, unlink
//!            ^                                    |
//!            '------- the set is kept ------------'  a failure before the barrier: come again
//! ```
//!
//! Failures up to the barrier change nothing: what was taken stays with the thread, and the next checkpoint writes it together with
//! what has come since. A failed barrier, or a manifest that could not be written, stops the shard: the bytes may be on disk all the
//! same, and whoever went on would do so beside a manifest that says something else.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::edit::{Counter, Edit, Part};
use super::edits::{AppendFailed, EditLog};
use super::invariants::{self, Image};
use super::lanes::Lanes;
use super::moving::{Identity, Load, MoveError, Moved};
use super::pace::{self, Pace};
use super::trigger::Due;
use super::{CheckpointError, Outcome, Report, policy, snapshot};
use crate::bucket::GenerationFact;
use crate::bucket::dirty::Dirty;
use crate::bucket::extent::LaneFile;
use crate::error::AppendError;
use crate::shard::Shared;
use crate::types::Lsn;
use crate::wal::pool::Pool;
use crate::wal::queue::Request;
use crate::wal::segment;

/// Pause after a checkpoint that was put off, while the log asks for one all the time.
const RETRY_EVERY: Duration = Duration::from_millis(250);

/// What a checkpointer needs to know of its surroundings.
#[derive(Debug)]
pub struct Settings {
    /// Whose lane files it writes.
    pub identity: Identity,
    /// The shard's directory.
    pub dir: PathBuf,
    /// Least bytes a second that a lane file is written with.
    pub least_rate: u64,
    /// Most lane files, before the smallest ones are merged.
    pub max_files: usize,
}

/// The checkpointer's own state.
#[derive(Debug)]
pub struct Checkpointer {
    settings: Settings,
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    lanes: Arc<Lanes>,
    edits: EditLog,
    image: Image,
    /// No lane file of the shard has this id or a higher one.
    next_id: u64,
    /// Lane files that are in the manifest.
    files: BTreeMap<u64, Arc<LaneFile>>,
    /// Lane files that rows were moved into while the log was read, and that no edit has named yet.
    unnamed: Vec<Arc<LaneFile>>,
    /// Lane files that cannot be read, and are not tried again.
    unreadable: HashSet<u64>,
    /// What was taken from the owner and is not in the manifest yet.
    taken: Vec<Dirty>,
}

impl Checkpointer {
    /// A checkpointer of what a start has read. Its manifest has been made sure.
    ///
    /// # Errors
    /// If the lanes cannot be listed.
    pub fn new(
        settings: Settings,
        shared: Arc<Shared>,
        pool: Arc<Pool>,
        lanes: Arc<Lanes>,
        (edits, image): (EditLog, Image),
        files: impl IntoIterator<Item = Arc<LaneFile>>,
        unnamed: Vec<Arc<LaneFile>>,
    ) -> io::Result<Self> {
        let next_id = lanes.next_id(settings.identity.shard, image.next_lane_file)?;
        let files = files.into_iter().map(|f| (f.reference.id, f)).collect();
        let (unreadable, taken) = (HashSet::new(), Vec::new());
        let this = Self { settings, shared, pool, lanes, edits, image, next_id, files, unnamed, unreadable, taken };
        this.publish();
        Ok(this)
    }

    /// Runs until it is stopped.
    pub fn run(mut self) {
        // What a crash left between the manifest and the log; and shards that began together go on apart.
        let _ = self.guarded(Self::recycle);
        let shift = f64::from(self.settings.identity.shard % 16) / 16.0;
        let (mut began, mut part) = (Instant::now(), 1.0 - shift / 2.0);
        loop {
            let next = self.shared.rhythm.interval().map(|i| began + i.mul_f64(part));
            match self.shared.trigger.wait(next) {
                Due::Stop => return,
                Due::Retimed => {
                    // The owner looks when it writes, and nobody may be writing.
                    if self.behind() >= self.shared.rhythm.log_bytes() {
                        self.shared.trigger.log_is_long();
                    }
                    // The interval counts from where it began.
                    continue;
                }
                Due::Interval => {
                    if self.has_work() {
                        let _ = self.checkpoint(false);
                    }
                }
                Due::LongLog => {
                    if matches!(self.checkpoint(false), Err(CheckpointError::Postponed(_))) {
                        self.shared.trigger.pause(RETRY_EVERY);
                    }
                }
                Due::Demand(demands) => {
                    let outcome = self.checkpoint(demands.iter().any(|d| d.at_once));
                    for demand in demands {
                        drop(demand.done.send(outcome.clone()));
                    }
                }
            }
            (began, part) = (Instant::now(), 1.0);
        }
    }

    /// Log bytes behind the last checkpoint.
    fn behind(&self) -> u64 {
        self.shared.counters.durable_lsn.load(Ordering::Acquire).saturating_sub(self.image.checkpoint.0)
    }

    fn has_work(&self) -> bool {
        let head = self.shared.counters.durable_lsn.load(Ordering::Acquire);
        !self.taken.is_empty()
            || !self.unnamed.is_empty()
            || head > self.image.checkpoint.0 && self.shared.state.read().is_dirty()
            || self.files.values().any(|f| f.is_dead())
    }

    /// One checkpoint. A panic in it is a failure like others: the shard stops, the thread does not end without a word.
    fn checkpoint(&mut self, at_once: bool) -> Outcome {
        let outcome = self.guarded(|this| this.try_checkpoint(at_once));
        let put_off = match &outcome {
            Err(CheckpointError::Postponed(reason)) => {
                let shard = self.settings.identity.shard;
                tracing::warn!(shard, reason, "a checkpoint is put off; the log grows until it succeeds");
                Some(reason.clone())
            }
            _ => None,
        };
        *self.shared.postponed.lock() = put_off;
        outcome
    }

    fn guarded<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, CheckpointError>) -> Result<T, CheckpointError> {
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| run(self)));
        let outcome = outcome.unwrap_or_else(|_| Err(CheckpointError::Broken("the checkpoint panicked".to_owned())));
        if let Err(CheckpointError::Broken(reason)) = &outcome {
            tracing::error!(shard = self.settings.identity.shard, reason, "the checkpoint stopped the shard");
            self.shared.poison(reason);
        }
        outcome
    }

    fn try_checkpoint(&mut self, at_once: bool) -> Outcome {
        let started = Instant::now();
        let mut phases = Phases { shared: Arc::clone(&self.shared), since: started, next: 0 };
        // 1
        let swap = self.ask(|done| Request::Swap { done })?;
        let checkpoint = swap.checkpoint;
        if !swap.dirty.is_empty() {
            self.taken.push(swap.dirty);
        }
        phases.ended();
        // 2
        let (moved, rewritten) = self.move_rows(self.next_id, checkpoint, at_once)?;
        // Also if nothing comes of it: the name may not be free again.
        self.next_id += u64::from(moved.is_some());
        let lane_bytes = moved.as_ref().map_or(0, |m| m.file.reference.bytes);
        phases.ended();
        // 3
        let mut added = self.unnamed.clone();
        added.extend(moved.as_ref().map(|m| Arc::clone(&m.file)));
        self.lanes.barrier(&added).map_err(|e| broken("making a lane file durable", &e))?;
        phases.ended();
        // 4. MUST AFTER the barrier: it says that the rows are there. MUST BEFORE 5: a segment that is recycled without this proof
        // takes acknowledged rows with it.
        let dropped: Vec<u64> = self
            .files
            .values()
            .filter(|f| f.is_dead() || rewritten.contains(&f.reference.id))
            .map(|f| f.reference.id)
            .collect();
        let edit = self.edit((checkpoint, swap.segment), &added, dropped);
        if let Some(moved) = &moved {
            invariants::check_extents(&moved.entries, checkpoint)
                .map_err(|v| CheckpointError::Broken(v.to_string()))?;
        }
        let mut image = self.image.clone();
        image.follow(&edit).map_err(|v| CheckpointError::Broken(v.to_string()))?;
        match self.edits.append(&edit) {
            Ok(()) => {}
            Err(AppendFailed::NoSpace(error)) => {
                if let Some(moved) = moved {
                    self.forget(&moved);
                }
                return Err(CheckpointError::Postponed(error.to_string()));
            }
            Err(AppendFailed::Broken(error)) => return Err(broken("writing the shard's manifest", &error)),
        }
        self.image = image;
        phases.ended();
        self.shared.counters.checkpoint_records.store(swap.records, Ordering::Release);
        // 5
        self.taken.clear();
        self.unnamed.clear();
        self.files.extend(added.into_iter().map(|f| (f.reference.id, f)));
        let extents = moved.map_or(0, |moved| {
            let extents = moved.entries.len();
            moved.install();
            extents
        });
        let unneeded: Vec<Arc<LaneFile>> = edit.dropped.iter().filter_map(|id| self.files.remove(id)).collect();
        self.unlink(&unneeded);
        self.shorten_manifest()?;
        let freed = self.recycle()?;
        phases.ended();
        self.shared.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.shared.counters.written_bytes.fetch_add(lane_bytes + edit.encoded_len() as u64, Ordering::Relaxed);
        self.publish();
        let report = Report {
            shard: self.settings.identity.shard,
            checkpoint,
            extents: extents as u64,
            lane_bytes,
            segments_freed: freed,
            files_dropped: unneeded.len() as u64,
            micros: started.elapsed().as_micros() as u64,
        };
        tracing::debug!(?report, "checkpoint");
        Ok(report)
    }

    /// Asks the owner, and waits for its next turn.
    fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, AppendError>>) -> Request,
    ) -> Result<T, CheckpointError> {
        let (done, answer) = oneshot::channel();
        self.shared.queue.push(request(done));
        match answer.blocking_recv() {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(CheckpointError::Stopped(error.to_string())),
            Err(_) => Err(CheckpointError::Stopped("the log's owner has ended".to_owned())),
        }
    }

    /// Writes one lane file: what is in memory below the checkpoint, and what pins lane files of which little is live. Answers which
    /// ones can go then.
    fn move_rows(
        &mut self,
        id: u64,
        checkpoint: Lsn,
        at_once: bool,
    ) -> Result<(Option<Moved>, Vec<u64>), CheckpointError> {
        let mut load = Load::new(self.taken.iter().flat_map(|d| &d.generations));
        let usage: Vec<_> = self
            .files
            .values()
            .filter(|f| !self.unreadable.contains(&f.reference.id))
            .map(|f| (f.reference.id, f.reference.bytes, f.live_bytes()))
            .collect();
        let rewritten = policy::rewrite(&usage, self.settings.max_files);
        for file in rewritten.iter().filter_map(|id| self.files.get(id)) {
            if let Err(error) = load.add_live_of(file, &self.shared) {
                self.unreadable.insert(file.reference.id);
                return Err(CheckpointError::Postponed(error.to_string()));
            }
        }
        if load.is_empty() {
            return Ok((None, rewritten));
        }
        let behind = self.behind();
        let unpaced = at_once || behind > self.shared.rhythm.log_bytes().saturating_mul(2);
        let interval = self.shared.rhythm.interval().unwrap_or_default();
        let rate = (!unpaced).then(|| pace::rate(behind, interval, self.settings.least_rate));
        let mut pace = Pace::new(&self.shared.trigger, rate);
        let moved = load.write(&self.lanes, self.settings.identity, id, checkpoint, &mut pace);
        match moved {
            Ok(moved) => Ok((moved, rewritten)),
            Err(MoveError::Undone(error)) => Err(CheckpointError::Postponed(error.to_string())),
            Err(MoveError::Unreadable(id, error)) => {
                // What lies there is still live; the next attempt leaves it where it is.
                self.unreadable.insert(id);
                Err(CheckpointError::Postponed(error.to_string()))
            }
            Err(MoveError::Sync(error)) => Err(broken("making a lane file durable", &error)),
        }
    }

    /// What step 1 took, and where step 2 put it.
    fn edit(&self, (checkpoint, segment): (Lsn, Lsn), added: &[Arc<LaneFile>], dropped: Vec<u64>) -> Edit {
        // Also of generations that are in Delta by now: what lies of them in lane files would come back without its seal.
        let seals = self.taken.iter().flat_map(|d| &d.seals).map(|s| GenerationFact {
            table: s.generation.table,
            bucket: s.generation.bucket,
            generation: s.generation.first_lsn,
            seal: Some(s.seal),
        });
        let latest: BTreeMap<_, _> =
            self.taken.iter().flat_map(|d| &d.progress).map(|(table, i, p)| ((*table, *i), *p)).collect();
        let counters = latest.into_iter().map(|((table, incarnation), p)| Counter {
            table,
            incarnation,
            sealed: p.sealed,
            committed: p.committed,
        });
        let defines: BTreeMap<_, _> =
            self.taken.iter().flat_map(|d| &d.defines).map(|d| ((d.table, d.schema_version), d)).collect();
        Edit {
            sequence: self.image.sequence + 1,
            part: Part::Delta,
            checkpoint,
            segment,
            next_lane_file: self.next_id,
            defines: defines.into_values().cloned().collect(),
            generations: seals.collect(),
            counters: counters.collect(),
            producers: snapshot::stamped(&self.shared, self.taken.iter().flat_map(|d| &d.marks)),
            keys: snapshot::keyed(self.taken.iter().flat_map(|d| &d.marks)),
            added: added.iter().map(|f| f.reference).collect(),
            dropped,
        }
    }

    /// A lane file that no edit will name.
    fn forget(&self, moved: &Moved) {
        if let Err(error) = self.lanes.fs().remove(&moved.file.path) {
            tracing::debug!(path = %moved.file.path.display(), %error, "a lane file that nobody needs was not removed");
        }
    }

    /// MUST AFTER the edit that no longer has them. Readers that have them open keep them; a name that stays is removed at the next
    /// start.
    fn unlink(&self, files: &[Arc<LaneFile>]) {
        for file in files {
            if let Err(error) = self.lanes.fs().remove(&file.path) {
                tracing::warn!(path = %file.path.display(), %error, "a dead lane file was not removed");
            }
        }
    }

    /// Begins a new manifest file when this one says much that later edits made void.
    fn shorten_manifest(&mut self) -> Result<(), CheckpointError> {
        if !policy::manifest_is_long(self.edits.len_bytes(), self.edits.snapshot_bytes()) {
            return Ok(());
        }
        let snapshot = snapshot::edits(&self.shared, &self.image);
        let Settings { identity, dir, .. } = &self.settings;
        let fs = self.lanes.fs();
        let number = self.edits.number() + 1;
        match EditLog::create(&**fs, dir, identity.shard, identity.node, number, &snapshot) {
            Ok(edits) => self.edits = edits,
            // The old one does as well; it is only longer.
            Err(AppendFailed::NoSpace(error)) => {
                tracing::warn!(%error, "the shard's manifest could not be shortened");
                return Ok(());
            }
            Err(AppendFailed::Broken(error)) => return Err(broken("writing the shard's manifest", &error)),
        }
        for edit in &snapshot {
            self.image.follow(edit).map_err(|v| CheckpointError::Broken(v.to_string()))?;
        }
        self.edits.remove_older(&**fs).map_err(|e| broken("removing an older manifest of the shard", &e))
    }

    /// Gives back the segments that the manifest makes unnecessary.
    fn recycle(&mut self) -> Result<u64, CheckpointError> {
        let below = self.image.checkpoint;
        let released = self.ask(|done| Request::Release { below, done })?;
        let freed = released.len() as u64;
        if freed > 0 {
            let files = released.into_iter().map(|s| (s.path, segment::HEADER_LEN + s.header.capacity));
            self.pool.recycle(files).map_err(|e| broken("recycling log segments", &e))?;
        }
        Ok(freed)
    }

    fn publish(&self) {
        let counters = &self.shared.counters;
        let sum = |figure: fn(&LaneFile) -> u64| self.files.values().map(|f| figure(f)).sum();
        counters.checkpoint_lsn.store(self.image.checkpoint.0, Ordering::Release);
        counters.lane_files.store(self.files.len() as u64, Ordering::Relaxed);
        counters.lane_bytes.store(sum(|f| f.reference.bytes), Ordering::Relaxed);
        counters.lane_live_bytes.store(sum(LaneFile::live_bytes), Ordering::Relaxed);
    }
}

/// Tells the phases of a checkpoint apart.
struct Phases {
    shared: Arc<Shared>,
    since: Instant,
    next: usize,
}

impl Phases {
    /// The next phase in the order of [`crate::status::PHASES`] has ended.
    fn ended(&mut self) {
        let now = Instant::now();
        if let Some(phase) = self.shared.counters.phases.get(self.next) {
            phase.count(now - self.since);
        }
        (self.since, self.next) = (now, self.next + 1);
    }
}

fn broken(what: &str, error: &io::Error) -> CheckpointError {
    CheckpointError::Broken(format!("{what}: {error}"))
}
