//! One table's generations between seal and commit.
//!
//! Uploads may end in any order; commits go strictly in seal order, so a generation waits for those before it. What is ready from
//! the front on, under one incarnation, goes into one commit: the fixed cost of a commit is shared. What has landed stays, in
//! front, until a look at the table's log has confirmed it; one look does for many commits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use penstock_store::{Incarnation, Lsn, Sealed};

use super::Span;
use super::dead::{Fault, Strikes};
use crate::lake::DataFiles;

/// First pause after a failure; doubles up to what rows may wait for anyway, within these bounds.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LEAST_MAX_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Most generations in one commit, which bounds its size. No more than these are uploaded ahead either: a table that cannot commit
/// must not fill the lake with files that nothing refers to.
const MAX_GENERATIONS: usize = 256;
/// Commits that wait for one look at the log, at most.
const MAX_UNCONFIRMED: usize = 8;
/// Files that have waited this long for their commit are uploaded anew: another writer's vacuum takes what no version refers to, and
/// deletes nothing younger than days.
const MAX_WAIT: Duration = Duration::from_secs(12 * 3600);

#[derive(Debug)]
enum Stage {
    Waiting,
    Uploading,
    /// Begun before the table was replaced: the files may have gone with it.
    Void,
    Ready(DataFiles, Instant),
    /// It cannot be written, and why.
    Dead(String),
    Landed,
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
            Stage::Uploading | Stage::Void | Stage::Dead(_) | Stage::Landed => false,
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
    /// Committed, and to be confirmed.
    pub landed: u64,
}

/// A commit that the log took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landed {
    pub incarnation: Incarnation,
    /// Highest sequence.
    pub sequence: u64,
    pub version: u64,
    /// Of the data files.
    pub bytes: u64,
    /// It moves the table past a dead letter.
    pub dead: bool,
}

/// What left a queue because the table holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Released {
    pub generations: usize,
    pub rows: u64,
    pub spans: Vec<Span>,
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
    /// Commits that are not confirmed, in order.
    landed: Vec<Landed>,
    /// When the first of them landed.
    landed_at: Option<Instant>,
    /// Somebody waits for what was sealed up to here.
    hurry_to: Option<Lsn>,
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
        if self.failures > 0 && self.near().any(|entry| matches!(entry.stage, Stage::Uploading | Stage::Void)) {
            return None;
        }
        let landed = self.entries.len() - self.left().count();
        self.near().position(|entry| entry.is_to_upload(now)).map(|at| landed + at)
    }

    /// What may be uploaded and committed next.
    fn near(&self) -> impl Iterator<Item = &Entry> {
        self.left().take(MAX_GENERATIONS)
    }

    /// How many generations are at which stage.
    pub fn stages(&self) -> Stages {
        let mut stages = Stages::default();
        for entry in self.near() {
            match entry.stage {
                Stage::Waiting => stages.waiting += 1,
                Stage::Uploading | Stage::Void => stages.uploading += 1,
                Stage::Ready(..) | Stage::Dead(_) => stages.ready += 1,
                Stage::Landed => {}
            }
        }
        stages.landed = (self.entries.len() - self.left().count()) as u64;
        stages.waiting += self.left().count().saturating_sub(MAX_GENERATIONS) as u64;
        stages
    }

    /// Notes how an upload ended. The files of a generation that has left meanwhile are not needed.
    pub fn uploaded(&mut self, sealed: &Sealed, files: Option<DataFiles>) {
        if let Some(entry) = self.entries.iter_mut().find(|e| e.sealed.seal == sealed.seal) {
            let files = files.filter(|_| matches!(entry.stage, Stage::Uploading));
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

    /// Behind what has landed.
    fn left(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().skip_while(|e| matches!(e.stage, Stage::Landed))
    }

    fn has_ready(&self) -> bool {
        self.left().next().is_some_and(|e| matches!(e.stage, Stage::Ready(..) | Stage::Dead(_)))
    }

    /// What can be committed now: the ready generations at the front, or the one at the front if it is a dead letter.
    pub fn ready(&self, now: Instant) -> Option<Ready> {
        if self.busy || !self.resolved || self.is_paused(now) {
            return None;
        }
        let front = self.left().next()?;
        let (incarnation, first_sequence) = (front.sealed.seal.incarnation, front.sealed.seal.sequence);
        let mut ready = Ready { incarnation, first_sequence, sequence: 0, files: DataFiles::default(), dead: None };
        if let Stage::Dead(reason) = &front.stage {
            ready.sequence = first_sequence;
            ready.dead = Some((front.sealed.clone(), reason.clone()));
            return Some(ready);
        }
        for entry in self.near() {
            let Stage::Ready(files, _) = &entry.stage else { break };
            if entry.sealed.seal.incarnation != incarnation || entry.is_to_upload(now) {
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

    /// The log took a commit. What is in it stays until that is confirmed.
    pub fn landed(&mut self, landed: Landed, now: Instant) {
        let covered = |e: &&mut Entry| {
            e.sealed.seal.incarnation == landed.incarnation && e.sealed.seal.sequence <= landed.sequence
        };
        self.entries.iter_mut().filter(covered).for_each(|e| e.stage = Stage::Landed);
        self.landed.push(landed);
        self.landed_at.get_or_insert(now);
        self.failures = 0;
        self.paused_until = None;
    }

    /// When the log is to be looked at; at once if `eager`. None if nothing has landed, or the table cannot be asked now.
    pub fn confirm_at(&self, now: Instant, delay: Duration, eager: bool) -> Option<Instant> {
        let landed_at = self.landed_at.filter(|_| !self.busy && self.resolved && !self.is_paused(now))?;
        // Whoever waits waits for all of it: what is ready goes first, and shares the look.
        let hurry = eager || (self.is_hurried() && !self.has_ready());
        let at_once = hurry || self.landed.len() >= MAX_UNCONFIRMED;
        Some(if at_once { landed_at } else { landed_at + delay })
    }

    /// What waits to be confirmed: the highest sequence of each incarnation.
    pub fn unconfirmed(&self) -> Vec<(Incarnation, u64)> {
        let mut highest: Vec<(Incarnation, u64)> = Vec::new();
        for Landed { incarnation, sequence, .. } in &self.landed {
            match highest.last_mut().filter(|(last, _)| last == incarnation) {
                Some((_, known)) => *known = (*known).max(*sequence),
                None => highest.push((*incarnation, *sequence)),
            }
        }
        highest
    }

    /// The log was looked at: what has landed is in the table.
    pub fn confirmed(&mut self) -> Vec<Landed> {
        self.landed_at = None;
        std::mem::take(&mut self.landed)
    }

    /// The table was asked: what landed and was not released is not in it.
    pub fn asked(&mut self) {
        self.resolved = true;
        self.landed_at = None;
        self.landed.clear();
        let landed = self.entries.iter_mut().filter(|e| matches!(e.stage, Stage::Landed));
        landed.for_each(|e| e.stage = Stage::Waiting);
    }

    /// The table's log was replaced: what has landed may not be in it, and files that were uploaded may be gone. To look for each
    /// would not do, as a look says nothing about the next moment: everything is uploaded again, under new names.
    pub fn void(&mut self) {
        self.resolved = false;
        for entry in &mut self.entries {
            entry.stage = match std::mem::replace(&mut entry.stage, Stage::Waiting) {
                Stage::Uploading | Stage::Void => Stage::Void,
                Stage::Dead(reason) => Stage::Dead(reason),
                Stage::Waiting | Stage::Ready(..) | Stage::Landed => Stage::Waiting,
            };
        }
        self.landed_at = None;
        self.landed.clear();
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
                let (first, last) = entry.sealed.generation.span();
                released.spans.push(Span { sequence: seal.sequence, first, last });
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
    /// No longer than `longest`, so that a lake that is back is noticed.
    pub fn failed(&mut self, now: Instant, longest: Duration) {
        if self.is_paused(now) {
            return;
        }
        let pause =
            FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(longest.clamp(LEAST_MAX_PAUSE, MAX_PAUSE));
        self.failures = self.failures.saturating_add(1);
        self.paused_until = Some(now + pause);
    }

    /// Ends the pause after a failure: somebody asks for a flush now.
    pub fn retry_now(&mut self) {
        self.paused_until = None;
        self.hurry_to = self.newest;
    }

    fn is_hurried(&self) -> bool {
        self.entries.front().is_some_and(|first| Some(first.sealed.seal.lsn) <= self.hurry_to)
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
