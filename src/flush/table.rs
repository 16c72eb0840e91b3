//! One table's generations between seal and commit.
//!
//! Uploads may end in any order; commits go strictly in seal order, so a generation waits for those before it. What is ready from
//! the front on, under one incarnation, goes into one commit: the fixed cost of a commit is shared.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use penstock_store::{Incarnation, Lsn, Sealed};

use super::dead::{Fault, Strikes};
use crate::lake::DataFiles;

/// First pause after a failure; doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Most generations in one commit, which bounds its size. No more than these are uploaded ahead either: a table that cannot commit
/// must not fill the lake with files that nothing refers to.
const MAX_GENERATIONS: usize = 256;
/// Files that have waited this long for their commit are uploaded anew: another writer's vacuum takes what no version refers to, and
/// deletes nothing younger than days.
const MAX_WAIT: Duration = Duration::from_secs(12 * 3600);

#[derive(Debug)]
enum Stage {
    Waiting,
    Uploading,
    Ready(DataFiles, Instant),
    /// It cannot be written, and why.
    Dead(String),
}

#[derive(Debug)]
struct Entry {
    sealed: Sealed,
    bytes: u64,
    stage: Stage,
    strikes: Strikes,
}

impl Entry {
    fn is_to_upload(&self, now: Instant) -> bool {
        match &self.stage {
            Stage::Waiting => true,
            Stage::Ready(_, since) => now.saturating_duration_since(*since) >= MAX_WAIT,
            Stage::Uploading | Stage::Dead(_) => false,
        }
    }
}

/// What goes into the next commit.
#[derive(Debug)]
pub struct Ready {
    pub incarnation: Incarnation,
    /// Lowest sequence.
    pub first_sequence: u64,
    /// Highest sequence.
    pub sequence: u64,
    pub files: DataFiles,
    /// The generation is one that cannot be written, and why: it goes to the dead letters, and the commit has no files.
    pub dead: Option<(Sealed, String)>,
}

/// How many generations of a table are at which stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    /// To be uploaded.
    pub waiting: u64,
    /// Being encoded or uploaded.
    pub uploading: u64,
    /// To be committed.
    pub ready: u64,
}

/// What left a queue because the table holds it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Released {
    pub generations: usize,
    pub rows: u64,
}

/// A table's queue. Pure bookkeeping: it starts nothing itself.
#[derive(Debug, Default)]
pub struct Queue {
    entries: VecDeque<Entry>,
    /// Log position of the newest seal that was ever enqueued.
    newest: Option<Lsn>,
    /// Payload bytes of all entries.
    bytes: u64,
    /// Whether the table was asked which generations it holds; before, those of earlier starts are in doubt.
    pub resolved: bool,
    /// A task of this table is at the lake: resolving or committing.
    pub busy: bool,
    failures: u32,
    paused_until: Option<Instant>,
}

impl Queue {
    /// Takes in what the store says is sealed; what is known already is left alone. Tells whether anything was new.
    ///
    /// The list MUST be the store's own, all of it and in its order. Generations may be sealed by several callers at once, whose
    /// answers arrive in any order: one that was enqueued before an older one would hide it, the commit of its sequence would
    /// cover both, and the rows of the older one would leave the log without having been uploaded.
    pub fn enqueue(&mut self, sealed: Vec<Sealed>) -> bool {
        let known = self.newest.map_or(0, |newest| sealed.partition_point(|s| s.seal.lsn <= newest));
        let mut any = false;
        for sealed in sealed.into_iter().skip(known) {
            let bytes = sealed.generation.totals().bytes;
            self.newest = Some(sealed.seal.lsn);
            self.bytes += bytes;
            self.entries.push_back(Entry { sealed, bytes, stage: Stage::Waiting, strikes: Strikes::default() });
            any = true;
        }
        any
    }

    /// The incarnations that have generations here, in commit order.
    pub fn incarnations(&self) -> Vec<Incarnation> {
        let mut all: Vec<Incarnation> = Vec::new();
        for entry in &self.entries {
            if !all.contains(&entry.sealed.seal.incarnation) {
                all.push(entry.sealed.seal.incarnation);
            }
        }
        all
    }

    /// Payload bytes of the next generation to upload.
    pub fn to_upload(&self, now: Instant) -> Option<u64> {
        self.next(now).map(|at| self.entries[at].bytes)
    }

    /// The next generation to upload, marked as being uploaded.
    pub fn next_upload(&mut self, now: Instant) -> Option<Sealed> {
        let at = self.next(now)?;
        let entry = &mut self.entries[at];
        entry.stage = Stage::Uploading;
        Some(entry.sealed.clone())
    }

    fn next(&self, now: Instant) -> Option<usize> {
        if !self.resolved || self.is_paused(now) {
            return None;
        }
        // A table that fails tries with one: the others have the room.
        if self.failures > 0 && self.near().any(|entry| matches!(entry.stage, Stage::Uploading)) {
            return None;
        }
        self.near().position(|entry| entry.is_to_upload(now))
    }

    fn near(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().take(MAX_GENERATIONS)
    }

    /// How many generations are at which stage.
    pub fn stages(&self) -> Stages {
        let mut stages = Stages::default();
        for entry in self.near() {
            match entry.stage {
                Stage::Waiting => stages.waiting += 1,
                Stage::Uploading => stages.uploading += 1,
                Stage::Ready(..) | Stage::Dead(_) => stages.ready += 1,
            }
        }
        stages.waiting += self.entries.len().saturating_sub(MAX_GENERATIONS) as u64;
        stages
    }

    /// Notes how an upload ended. The files of a generation that has left meanwhile are not needed.
    pub fn uploaded(&mut self, sealed: &Sealed, files: Option<DataFiles>) {
        if let Some(entry) = self.entries.iter_mut().find(|e| e.sealed.seal == sealed.seal) {
            entry.stage = files.map_or(Stage::Waiting, |files| Stage::Ready(files, Instant::now()));
        }
    }

    /// Notes that an upload failed through the generation's own rows. With `limit` failures of one kind in a row it is not tried
    /// again: it is a dead letter.
    pub fn struck(&mut self, sealed: &Sealed, fault: Option<Fault>, reason: &str, limit: u32) {
        if let Some(entry) = self.entries.iter_mut().find(|e| e.sealed.seal == sealed.seal)
            && entry.strikes.add(fault, limit)
        {
            entry.stage = Stage::Dead(reason.to_owned());
        }
    }

    /// What can be committed now: the ready generations at the front, or the one at the front if it is a dead letter.
    pub fn ready(&self, now: Instant) -> Option<Ready> {
        if self.busy || !self.resolved || self.is_paused(now) {
            return None;
        }
        let front = self.entries.front()?;
        let (incarnation, first_sequence) = (front.sealed.seal.incarnation, front.sealed.seal.sequence);
        let mut ready = Ready { incarnation, first_sequence, sequence: 0, files: DataFiles::default(), dead: None };
        if let Stage::Dead(reason) = &front.stage {
            ready.sequence = first_sequence;
            ready.dead = Some((front.sealed.clone(), reason.clone()));
            return Some(ready);
        }
        for entry in self.entries.iter().take(MAX_GENERATIONS) {
            let Stage::Ready(files, _) = &entry.stage else { break };
            if entry.sealed.seal.incarnation != incarnation || entry.is_to_upload(now) {
                break;
            }
            ready.sequence = entry.sealed.seal.sequence;
            ready.files.adds.extend(files.adds.iter().cloned());
            ready.files.rows += files.rows;
            ready.files.bytes += files.bytes;
        }
        (ready.sequence > 0).then_some(ready)
    }

    /// Lets go of what the table holds.
    pub fn committed(&mut self, incarnation: Incarnation, sequence: u64) -> Released {
        let mut released = Released::default();
        self.entries.retain(|entry| {
            let seal = entry.sealed.seal;
            let stays = seal.incarnation != incarnation || seal.sequence > sequence;
            if !stays {
                released.generations += 1;
                released.rows += entry.sealed.generation.totals().rows;
                self.bytes -= entry.bytes;
            }
            stays
        });
        if released.generations > 0 {
            self.failures = 0;
            self.paused_until = None;
        }
        released
    }

    /// Waits longer after each failure. Uploads that are ready stay ready. Several uploads that fail together are one failure.
    pub fn failed(&mut self, now: Instant) {
        if self.is_paused(now) {
            return;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(MAX_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.paused_until = Some(now + pause);
    }

    /// Ends the pause after a failure: somebody asks for a flush now.
    pub fn retry_now(&mut self) {
        self.paused_until = None;
    }

    /// Until when the table waits after a failure.
    pub fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Payload bytes of everything here.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the table waits after a failure.
    pub fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Payload bytes that are on their way to the table; none while its attempts fail.
    pub fn moving_bytes(&self) -> u64 {
        if self.failures == 0 { self.bytes } else { 0 }
    }

    /// Whether nothing is left to do.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests;
