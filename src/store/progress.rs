//! How far a start is: bytes of log to read, bytes read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::Lsn;
use crate::wal::segment::Segment;

/// How far a start is. Shared with whoever wants to tell.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    done: AtomicU64,
}

/// One look at it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes of log to read, at most: the last segment of a shard is seldom full.
    pub total: u64,
    /// Bytes read.
    pub done: u64,
}

/// One shard's reader.
#[derive(Debug)]
pub struct Meter<'a> {
    progress: &'a Progress,
    from: Lsn,
    told: u64,
    expected: u64,
}

/// Bytes between two tellings: a record is often smaller than what telling costs.
const STEP: u64 = 1 << 20;

impl Progress {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How far it is.
    pub fn reading(&self) -> Reading {
        Reading { total: self.total.load(Ordering::Relaxed), done: self.done.load(Ordering::Relaxed) }
    }

    /// A shard is about to read its log from a checkpoint on.
    pub(crate) fn meter(&self, segments: &[Segment], checkpoint: Lsn) -> Meter<'_> {
        let end = segments.last().map_or(checkpoint, Segment::limit);
        let expected = end.0.saturating_sub(checkpoint.0);
        self.total.fetch_add(expected, Ordering::Relaxed);
        Meter { progress: self, from: checkpoint, told: 0, expected }
    }
}

impl Meter<'_> {
    /// The reader is at `lsn`.
    pub(crate) fn at(&mut self, lsn: Lsn) {
        let read = lsn.0.saturating_sub(self.from.0);
        if read >= self.told + STEP {
            self.progress.done.fetch_add(read - self.told, Ordering::Relaxed);
            self.told = read;
        }
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        let left = self.expected.saturating_sub(self.told);
        self.progress.done.fetch_add(left, Ordering::Relaxed);
    }
}
