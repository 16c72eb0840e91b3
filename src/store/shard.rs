//! What a shard's owner shares with everybody else: its queue, its published state, numbers that only the owner writes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::bucket::state::ShardState;
use crate::error::AppendError;
use crate::types::Lsn;
use crate::wal::queue::Queue;

/// Numbers of one shard.
#[derive(Debug, Default)]
pub struct Counters {
    /// Records made durable since the start.
    pub records: AtomicU64,
    /// Groups made durable since the start.
    pub groups: AtomicU64,
    /// Payload bytes made durable since the start.
    pub payload_bytes: AtomicU64,
    /// Bytes passed to write calls since the start, zero-fill left out.
    pub written_bytes: AtomicU64,
    /// Everything below is durable and visible.
    pub durable_lsn: AtomicU64,
    /// Base of the oldest segment that is kept.
    pub retained_from: AtomicU64,
    /// Base of the segment that is written to.
    pub active_from: AtomicU64,
    /// Rows that are not known to be in Delta.
    pub unflushed_rows: AtomicU64,
    /// Payload bytes that are not known to be in Delta.
    pub unflushed_bytes: AtomicU64,
}

/// One shard as its callers and readers see it.
#[derive(Debug)]
pub struct Shared {
    /// Its place in the data directory.
    pub number: u32,
    /// What waits for the owner.
    pub queue: Queue,
    /// Written by the owner only, after the sync.
    pub state: RwLock<ShardState>,
    /// Written by the owner only.
    pub counters: Counters,
    poison: OnceLock<String>,
}

impl Shared {
    pub(crate) fn new(number: u32, state: ShardState, queue_bytes: usize, head: Lsn) -> Self {
        let counters = Counters::default();
        counters.durable_lsn.store(head.0, Ordering::Relaxed);
        let queue = Queue::new(queue_bytes);
        let shared = Self { number, queue, state: RwLock::default(), counters, poison: OnceLock::new() };
        shared.publish_unflushed(&state);
        *shared.state.write() = state;
        shared
    }

    /// Publishes what the state counts.
    pub(crate) fn publish_unflushed(&self, state: &ShardState) {
        let (rows, bytes) = state.unflushed();
        self.counters.unflushed_rows.store(rows, Ordering::Relaxed);
        self.counters.unflushed_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Publishes which segments there are: the bases of the oldest and of the newest.
    pub(crate) fn publish_segments(&self, oldest: Lsn, active: Lsn) {
        self.counters.retained_from.store(oldest.0, Ordering::Relaxed);
        self.counters.active_from.store(active.0, Ordering::Release);
    }

    /// Stops the shard for good. The first reason stays.
    pub(crate) fn poison(&self, reason: &str) -> AppendError {
        let reason = self.poison.get_or_init(|| reason.to_owned()).clone();
        let error = AppendError::Poisoned { shard: self.number, reason };
        self.queue.close(error.clone());
        error
    }

    /// The error that every append gets, once the shard has stopped.
    pub fn poisoned(&self) -> Option<AppendError> {
        let reason = self.poison.get()?.clone();
        Some(AppendError::Poisoned { shard: self.number, reason })
    }
}
