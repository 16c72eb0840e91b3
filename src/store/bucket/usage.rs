//! What one table has waiting for Delta, in figures that anybody may read without the shard's lock: admission asks at every post.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. The shard's owner writes; each figure is exact, though the two are not of one moment.
#[derive(Debug, Default)]
pub struct TableUsage {
    rows: AtomicU64,
    bytes: AtomicU64,
    /// What they take in memory; see `Totals::held`.
    held: AtomicU64,
}

impl TableUsage {
    /// Rows that are durable and not known to be in Delta.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Payload bytes of those rows.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What those rows take in memory while they are there, slices and generations included.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, rows: u64, bytes: u64, held: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.held.fetch_add(held, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, rows: u64, bytes: u64, held: u64) {
        self.rows.fetch_sub(rows, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.held.fetch_sub(held, Ordering::Relaxed);
    }

    /// Sets all three, at a restore and in tests.
    pub fn set(&self, rows: u64, bytes: u64, held: u64) {
        self.rows.store(rows, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.held.store(held, Ordering::Relaxed);
    }
}
