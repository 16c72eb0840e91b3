//! How much may go on at once: in tasks ([`Slots`]), and in bytes of rows ([`Memory`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

#[cfg(test)]
mod tests;

/// Tasks of one kind that run. Those that have run for long no longer count, so that tables whose store hangs do not use up what
/// the others work with; up to a hard limit, so that a store that hangs for all does not gather tasks without end.
#[derive(Debug)]
pub struct Slots {
    /// How long a task counts.
    counts_for: Duration,
    running: VecDeque<(u64, Instant)>,
    next: u64,
}

/// A running task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a slot that is not given back stays taken"]
pub struct Slot {
    id: u64,
    /// When it began.
    pub since: Instant,
}

impl Slots {
    pub fn new(counts_for: Duration) -> Self {
        Self { counts_for, running: VecDeque::new(), next: 0 }
    }

    /// Takes a slot, if fewer than `limit` tasks count and fewer than `hard` run.
    pub fn take(&mut self, limit: usize, hard: usize, now: Instant) -> Option<Slot> {
        // In order of their beginning: the young ones are at the end.
        let young = |(_, since): &&(u64, Instant)| now.saturating_duration_since(*since) < self.counts_for;
        let counting = self.running.iter().rev().take_while(young).take(limit).count();
        if counting >= limit || self.running.len() >= hard.max(limit) {
            return None;
        }
        let slot = Slot { id: self.next, since: now };
        self.next += 1;
        self.running.push_back((slot.id, now));
        Some(slot)
    }

    /// Gives it back.
    pub fn give(&mut self, slot: Slot) {
        self.running.retain(|(id, _)| *id != slot.id);
    }

    /// Tasks that run.
    #[cfg(test)]
    pub fn running(&self) -> usize {
        self.running.len()
    }
}

/// What part of a generation's room its encoded files keep while they are on their way.
const ENCODED_SHARE: u64 = 4;

/// Bytes of rows that may be encoded and uploaded at once. One generation always goes, however large.
#[derive(Debug, Default)]
pub struct Memory {
    used: AtomicU64,
    /// Hears of room that comes back before its task ends.
    freed: Arc<Notify>,
}

impl Memory {
    pub fn new(freed: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), freed })
    }

    /// Payload bytes that have room now; encoding takes up to three times as much memory.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Room for a generation of so many payload bytes, if there is within `limit`. What was given before stays given, also where the
    /// limit was a higher one then.
    pub fn take(self: &Arc<Self>, bytes: u64, limit: u64) -> Option<Room> {
        let bytes = bytes.clamp(1, limit.max(1));
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit.max(1));
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Room(Part { memory: Arc::clone(self), bytes }))
    }
}

/// Room for one generation's rows; given back when dropped.
#[derive(Debug)]
#[must_use = "room that is dropped is given back"]
pub struct Room(Part);

#[derive(Debug)]
struct Part {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
        // MUST AFTER it is given back: who is woken looks at once.
        self.memory.freed.notify_one();
    }
}

impl Room {
    /// The rows as `batches` gives them out. Behind the last one only the encoded files are left, and most of the room is given
    /// back: requests may take long, and encoding is what needs memory.
    pub fn encoding<I: Iterator>(&mut self, batches: I) -> Encoding<I> {
        let files = (self.0.bytes / ENCODED_SHARE).max(1).min(self.0.bytes);
        let rows = std::mem::replace(&mut self.0.bytes, files) - files;
        Encoding { batches, _rows: Part { memory: Arc::clone(&self.0.memory), bytes: rows } }
    }
}

/// See [`Room::encoding`].
#[derive(Debug)]
pub struct Encoding<I> {
    batches: I,
    _rows: Part,
}

impl<I: Iterator> Iterator for Encoding<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.batches.next()
    }
}
