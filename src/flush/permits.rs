//! How much may go on at once: in tasks ([`Slots`]), and in bytes of rows ([`Memory`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

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

/// Permits are counted in units of this many bytes.
const UNIT: u64 = 64 << 10;
/// What part of a generation's permit its encoded files keep while they are on their way.
const ENCODED_SHARE: usize = 4;

/// Bytes of rows that may be encoded and uploaded at once. One generation always goes, however large.
#[derive(Debug)]
pub struct Memory {
    units: Arc<Semaphore>,
    total: u32,
    freed: Arc<Notify>,
}

impl Memory {
    /// `freed` hears of permits that come back before their task ends.
    pub fn new(bytes: u64, freed: Arc<Notify>) -> Self {
        let total = u32::try_from((bytes / UNIT).max(1)).unwrap_or(u32::MAX);
        Self { units: Arc::new(Semaphore::new(total as usize)), total, freed }
    }

    /// Room for a generation of so many payload bytes, if there is.
    pub fn take(&self, bytes: u64) -> Option<Room> {
        let units = u32::try_from(bytes.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX).min(self.total);
        let permit = Arc::clone(&self.units).try_acquire_many_owned(units).ok()?;
        Some(Room { permit, freed: Arc::clone(&self.freed) })
    }
}

/// Room for one generation's rows; given back when dropped.
#[derive(Debug)]
#[must_use = "room that is dropped is given back"]
pub struct Room {
    permit: OwnedSemaphorePermit,
    freed: Arc<Notify>,
}

impl Room {
    /// The rows as `batches` gives them out. Behind the last one only the encoded files are left, and most of the room is given
    /// back: requests may take long, and encoding is what needs memory.
    pub fn encoding<I: Iterator>(&mut self, batches: I) -> Encoding<I> {
        let files = (self.permit.num_permits() / ENCODED_SHARE).max(1);
        let rows = self.permit.num_permits().saturating_sub(files);
        Encoding { batches, _rows: self.permit.split(rows).map(|permit| Freed(Some(permit), Arc::clone(&self.freed))) }
    }
}

/// See [`Room::encoding`].
#[derive(Debug)]
pub struct Encoding<I> {
    batches: I,
    _rows: Option<Freed>,
}

#[derive(Debug)]
struct Freed(Option<OwnedSemaphorePermit>, Arc<Notify>);

impl Drop for Freed {
    fn drop(&mut self) {
        // MUST BEFORE the notice: who is woken looks at once.
        self.0.take();
        self.1.notify_one();
    }
}

impl<I: Iterator> Iterator for Encoding<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.batches.next()
    }
}
