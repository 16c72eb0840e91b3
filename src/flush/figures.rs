//! What the flush has done and how long it took, over all tables, since the start. Written by the scheduler and its tasks, read by
//! whoever wants to know: a scrape, the status, `penstock tune --explain`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use penstock_store::{Distribution, Histogram};

use super::policy::Reason;

#[cfg(test)]
mod tests;

/// A step that can fail, and is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Asking the table what it holds.
    Resolve,
    Upload,
    Commit,
    Confirm,
}

impl Step {
    /// All of them, with a word for each.
    pub const ALL: [(Self, &'static str); 4] =
        [(Self::Resolve, "resolve"), (Self::Upload, "upload"), (Self::Commit, "commit"), (Self::Confirm, "confirm")];
}

/// What keeps an upload from beginning that could begin otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// As many run as may.
    Parallelism,
    /// Their rows are as many bytes as may be.
    Memory,
}

/// What is counted.
#[derive(Debug, Default)]
pub struct Tally {
    pub seals: Histogram,
    pub encodes: Histogram,
    pub commits: Histogram,
    pub confirms: Histogram,
    sealed: [AtomicU64; Reason::ALL.len()],
    failures: [AtomicU64; Step::ALL.len()],
    uploads: AtomicU64,
    uploaded_bytes: AtomicU64,
    held: Mutex<Holding>,
}

#[derive(Debug, Default)]
struct Holding {
    now: Option<(Held, Instant)>,
    parallelism: Duration,
    memory: Duration,
}

impl Holding {
    fn turn_to(&mut self, held: Option<Held>, now: Instant) {
        if let Some((was, since)) = self.now {
            let took = now.saturating_duration_since(since);
            match was {
                Held::Parallelism => self.parallelism += took,
                Held::Memory => self.memory += took,
            }
        }
        self.now = held.map(|held| (held, now));
    }
}

/// What was counted until some moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// From asking for a seal until it was durable.
    pub seals: Distribution,
    /// Time of an encoding thread for a generation: decoding, sorting, encoding.
    pub encodes: Distribution,
    /// Commits that landed.
    pub commits: Distribution,
    /// Looks at a table's log that confirmed commits.
    pub confirms: Distribution,
    /// Seals by reason.
    pub sealed: Vec<(&'static str, u64)>,
    /// Failures by step.
    pub failures: Vec<(&'static str, u64)>,
    /// Generations that were uploaded.
    pub uploads: u64,
    /// Their payload bytes.
    pub uploaded_bytes: u64,
    /// For how long another upload would have begun but for the parallelism.
    pub held_by_parallelism: Duration,
    /// The same for the memory.
    pub held_by_memory: Duration,
}

impl Tally {
    /// A bucket is sealed.
    pub fn sealed(&self, reason: Reason) {
        self.sealed[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A step failed.
    pub fn failed(&self, step: Step) {
        self.failures[step as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A generation was uploaded.
    pub fn uploaded(&self, payload_bytes: u64) {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        self.uploaded_bytes.fetch_add(payload_bytes, Ordering::Relaxed);
    }

    /// From now on uploads are held by this, or by nothing.
    pub fn held(&self, held: Option<Held>, now: Instant) {
        self.held.lock().turn_to(held, now);
    }

    /// What was counted so far.
    pub fn read(&self, now: Instant) -> Figures {
        let (held_by_parallelism, held_by_memory) = {
            let mut holding = self.held.lock();
            let held = holding.now.map(|(held, _)| held);
            holding.turn_to(held, now);
            (holding.parallelism, holding.memory)
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            seals: self.seals.read(),
            encodes: self.encodes.read(),
            commits: self.commits.read(),
            confirms: self.confirms.read(),
            sealed: Reason::ALL.iter().map(|(reason, word)| (*word, count(&self.sealed[*reason as usize]))).collect(),
            failures: Step::ALL.iter().map(|(step, word)| (*word, count(&self.failures[*step as usize]))).collect(),
            uploads: count(&self.uploads),
            uploaded_bytes: count(&self.uploaded_bytes),
            held_by_parallelism,
            held_by_memory,
        }
    }
}

/// Runs `work`, and tells for how long it kept its thread busy: the time in which it waited for others is left out.
pub async fn busy<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let mut work = std::pin::pin!(work);
    let mut busy = Duration::ZERO;
    let done = std::future::poll_fn(|context| {
        let began = Instant::now();
        let poll = work.as_mut().poll(context);
        busy += began.elapsed();
        poll
    });
    let done = done.await;
    (done, busy)
}
