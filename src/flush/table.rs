//! One table's generations between seal and commit.
//!
//! Uploads may end in any order; commits go strictly in seal order, so a generation waits for those before it. What is ready from
//! the front on, under one incarnation, goes into one commit: the fixed cost of a commit is shared.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use penstock_store::{Incarnation, Lsn, Sealed};

use crate::lake::DataFiles;

/// First pause after a failure; doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Most generations in one commit, which bounds its size. No more than these are uploaded ahead either: a table that cannot commit
/// must not fill the lake with files that nothing refers to.
const MAX_GENERATIONS: usize = 256;

#[derive(Debug)]
enum Stage {
    Waiting,
    Uploading,
    Ready(DataFiles),
}

#[derive(Debug)]
struct Entry {
    sealed: Sealed,
    bytes: u64,
    stage: Stage,
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
            self.entries.push_back(Entry { sealed, bytes, stage: Stage::Waiting });
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

    /// The next generation to upload, marked as being uploaded.
    pub fn next_upload(&mut self, now: Instant) -> Option<Sealed> {
        if !self.resolved || self.is_paused(now) {
            return None;
        }
        let near = self.entries.iter_mut().take(MAX_GENERATIONS);
        let entry = near.into_iter().find(|e| matches!(e.stage, Stage::Waiting))?;
        entry.stage = Stage::Uploading;
        Some(entry.sealed.clone())
    }

    /// Notes how an upload ended. The files of a generation that has left meanwhile are not needed.
    pub fn uploaded(&mut self, sealed: &Sealed, files: Option<DataFiles>) {
        if let Some(entry) = self.entries.iter_mut().find(|e| e.sealed.seal == sealed.seal) {
            entry.stage = files.map_or(Stage::Waiting, Stage::Ready);
        }
    }

    /// What can be committed now: the ready generations at the front.
    pub fn ready(&self, now: Instant) -> Option<Ready> {
        if self.busy || !self.resolved || self.is_paused(now) {
            return None;
        }
        let first = self.entries.front()?.sealed.seal;
        let (incarnation, first_sequence) = (first.incarnation, first.sequence);
        let mut ready = Ready { incarnation, first_sequence, sequence: 0, files: DataFiles::default() };
        for entry in self.entries.iter().take(MAX_GENERATIONS) {
            let Stage::Ready(files) = &entry.stage else { break };
            if entry.sealed.seal.incarnation != incarnation {
                break;
            }
            ready.sequence = entry.sealed.seal.sequence;
            ready.files.adds.extend(files.adds.iter().cloned());
            ready.files.rows += files.rows;
            ready.files.bytes += files.bytes;
            ready.files.schema_version = ready.files.schema_version.max(files.schema_version);
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
