//! What a shard's owner shares with everybody else: its queue, its published state, numbers that only the owner writes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::bucket::state::ShardState;
use crate::checkpoint::trigger::Trigger;
use crate::error::AppendError;
use crate::histogram::Histogram;
use crate::status::PHASES;
use crate::types::{Lsn, TableId};
use crate::wal::queue::Queue;

/// The shard of so many that a table lives on.
pub(crate) fn of(table: TableId, shards: u32) -> u32 {
    // The id is random, so its low half is as good as any hash of it.
    let low = table.0.as_u128() & u128::from(u64::MAX);
    u32::try_from(low % u128::from(shards)).expect("should be below the number of shards")
}

/// Numbers of one shard.
#[derive(Debug, Default)]
pub struct Counters {
    /// Records made durable since the start.
    pub records: AtomicU64,
    /// The same, and those that the start read: counted like this, those behind a checkpoint are a difference.
    pub log_records: AtomicU64,
    /// `log_records` at the last checkpoint's moment.
    pub checkpoint_records: AtomicU64,
    /// Groups made durable since the start.
    pub groups: AtomicU64,
    /// Payload bytes made durable since the start.
    pub payload_bytes: AtomicU64,
    /// Bytes passed to write calls since the start, zero-fill left out.
    pub written_bytes: AtomicU64,
    /// Nanoseconds that the owner spent in write calls.
    pub write_nanos: AtomicU64,
    /// The owner's syncs.
    pub(crate) syncs: Histogram,
    /// Records of a group.
    pub(crate) group_records: Histogram,
    /// What the owner did between two syncs but for the write call: staging, swapping, applying, answering.
    pub(crate) bookkeeping: Histogram,
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
    /// What those rows take in memory, as far as they are there.
    pub held_bytes: AtomicU64,
    /// Payload bytes that commits took away since the start.
    pub flushed_bytes: AtomicU64,
    /// The log below is not needed: the manifest says what of it is live.
    pub checkpoint_lsn: AtomicU64,
    /// Checkpoints since the start.
    pub checkpoints: AtomicU64,
    /// The phases of checkpoints, in the order of [`PHASES`].
    pub(crate) phases: [Histogram; PHASES.len()],
    /// Lane files in use.
    pub lane_files: AtomicU64,
    /// Their bytes.
    pub lane_bytes: AtomicU64,
    /// Bytes of extents in them that a live generation needs.
    pub lane_live_bytes: AtomicU64,
}

/// When checkpoints are due by themselves; may change while the shard runs.
#[derive(Debug)]
pub struct Rhythm {
    /// Nanoseconds between two checkpoints; [`NO_INTERVAL`] for none.
    interval_nanos: AtomicU64,
    /// Log bytes behind the checkpoint at which the next one is due; at twice as many nothing is paced any more.
    log_bytes: AtomicU64,
}

const NO_INTERVAL: u64 = u64::MAX;

impl Rhythm {
    pub(crate) fn new(interval: Option<Duration>, log_bytes: u64) -> Self {
        let rhythm = Self { interval_nanos: AtomicU64::new(NO_INTERVAL), log_bytes: AtomicU64::new(0) };
        rhythm.set(interval, log_bytes);
        rhythm
    }

    pub(crate) fn set(&self, interval: Option<Duration>, log_bytes: u64) {
        let nanos = interval.map(|i| u64::try_from(i.as_nanos()).unwrap_or(NO_INTERVAL));
        self.interval_nanos.store(nanos.unwrap_or(NO_INTERVAL), Ordering::Relaxed);
        self.log_bytes.store(log_bytes, Ordering::Relaxed);
    }

    /// Time between two checkpoints; none: only a long log or a demand brings one.
    pub fn interval(&self) -> Option<Duration> {
        Some(self.interval_nanos.load(Ordering::Relaxed)).filter(|n| *n != NO_INTERVAL).map(Duration::from_nanos)
    }

    /// Log bytes behind the checkpoint at which the next one is due.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }
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
    /// Written by the owner and the checkpointer only, each its own.
    pub counters: Counters,
    /// When the next checkpoint is due by itself.
    pub rhythm: Rhythm,
    /// Brings it on.
    pub trigger: Trigger,
    /// Why the last checkpoint was put off; none if it went well.
    pub postponed: Mutex<Option<String>>,
    poison: OnceLock<String>,
}

impl Shared {
    pub(crate) fn new(
        number: u32,
        state: ShardState,
        queue_bytes: usize,
        (head, replayed): (Lsn, u64),
        rhythm: Rhythm,
    ) -> Self {
        let counters = Counters::default();
        counters.durable_lsn.store(head.0, Ordering::Relaxed);
        counters.log_records.store(replayed, Ordering::Relaxed);
        let queue = Queue::new(queue_bytes);
        let shared = Self {
            number,
            queue,
            state: RwLock::default(),
            counters,
            rhythm,
            trigger: Trigger::default(),
            postponed: Mutex::default(),
            poison: OnceLock::new(),
        };
        shared.publish_unflushed(&state);
        *shared.state.write() = state;
        shared
    }

    /// Publishes what the state counts.
    pub(crate) fn publish_unflushed(&self, state: &ShardState) {
        let (rows, bytes) = state.unflushed();
        self.counters.unflushed_rows.store(rows, Ordering::Relaxed);
        self.counters.unflushed_bytes.store(bytes, Ordering::Relaxed);
        self.counters.held_bytes.store(state.held_bytes(), Ordering::Relaxed);
        self.counters.flushed_bytes.store(state.flushed_bytes(), Ordering::Relaxed);
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
