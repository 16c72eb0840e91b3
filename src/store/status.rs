//! One shard's figures, for operators.

use std::sync::atomic::Ordering;

use crate::histogram::{Distribution, Histogram};
use crate::replay_cost;
use crate::shard::Shared;
use crate::types::Lsn;

/// The phases of a checkpoint, in their order; [`ShardStatus::phases`] has their durations.
pub const PHASES: [&str; 5] = ["swap", "write", "barrier", "edit", "recycle"];

/// One shard's figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardStatus {
    /// The shard.
    pub shard: u32,
    /// Everything below is durable and visible.
    pub durable_lsn: Lsn,
    /// A restart reads the log from here on.
    pub checkpoint_lsn: Lsn,
    /// Log bytes that are kept on disk.
    pub retained_bytes: u64,
    /// Records made durable since the start.
    pub records: u64,
    /// Records behind the last checkpoint: a restart reads them.
    pub replay_records: u64,
    /// Groups made durable since the start: each one is a sync.
    pub groups: u64,
    /// Payload bytes made durable since the start.
    pub payload_bytes: u64,
    /// Bytes passed to write calls since the start, zero-fill left out.
    pub written_bytes: u64,
    /// Microseconds that the owner spent in write calls since the start.
    pub write_micros: u64,
    /// The owner's syncs since the start.
    pub syncs: Distribution,
    /// Records of a group.
    pub group_records: Distribution,
    /// What the owner did since the start beside writing and syncing, a piece at a time: staging what has queued (and handing a
    /// checkpoint its changes), and applying a group and answering for it. Nobody's record gets on meanwhile.
    pub bookkeeping: Distribution,
    /// Rows that are not known to be in Delta.
    pub unflushed_rows: u64,
    /// Payload bytes that are not known to be in Delta.
    pub unflushed_bytes: u64,
    /// Checkpoints since the start.
    pub checkpoints: u64,
    /// How long the phases of checkpoints took, see [`PHASES`]; those that were begun.
    pub phases: [Distribution; PHASES.len()],
    /// Lane files in use.
    pub lane_files: u64,
    /// Their bytes.
    pub lane_bytes: u64,
    /// Bytes in them that live generations need.
    pub lane_live_bytes: u64,
    /// Why the last checkpoint was put off.
    pub postponed: Option<String>,
    /// Why the shard stopped.
    pub poisoned: Option<String>,
}

impl ShardStatus {
    /// Log bytes that a restart would read.
    pub fn replay_bytes(&self) -> u64 {
        self.durable_lsn.0.saturating_sub(self.checkpoint_lsn.0)
    }

    /// The same, weighed: what it costs to read them.
    pub fn replay_weight(&self) -> u64 {
        replay_cost::weight(self.replay_bytes(), self.replay_records)
    }
}

pub(crate) fn of(shard: &Shared) -> ShardStatus {
    let counters = &shard.counters;
    let checkpoint = counters.checkpoint_lsn.load(Ordering::Acquire);
    let durable = counters.durable_lsn.load(Ordering::Acquire);
    ShardStatus {
        shard: shard.number,
        durable_lsn: Lsn(durable),
        checkpoint_lsn: Lsn(checkpoint),
        retained_bytes: durable.saturating_sub(counters.retained_from.load(Ordering::Relaxed)),
        records: counters.records.load(Ordering::Relaxed),
        replay_records: replay_records(shard),
        groups: counters.groups.load(Ordering::Relaxed),
        payload_bytes: counters.payload_bytes.load(Ordering::Relaxed),
        written_bytes: counters.written_bytes.load(Ordering::Relaxed),
        write_micros: counters.write_nanos.load(Ordering::Relaxed) / 1000,
        syncs: counters.syncs.read(),
        group_records: counters.group_records.read(),
        bookkeeping: counters.bookkeeping.read(),
        unflushed_rows: counters.unflushed_rows.load(Ordering::Relaxed),
        unflushed_bytes: counters.unflushed_bytes.load(Ordering::Relaxed),
        checkpoints: counters.checkpoints.load(Ordering::Relaxed),
        phases: counters.phases.each_ref().map(Histogram::read),
        lane_files: counters.lane_files.load(Ordering::Relaxed),
        lane_bytes: counters.lane_bytes.load(Ordering::Relaxed),
        lane_live_bytes: counters.lane_live_bytes.load(Ordering::Relaxed),
        postponed: shard.postponed.lock().clone(),
        poisoned: shard.poisoned().map(|e| e.to_string()),
    }
}

fn replay_records(shard: &Shared) -> u64 {
    let counters = &shard.counters;
    // In this order: it may come out larger than it is, and is never negative.
    let before = counters.checkpoint_records.load(Ordering::Acquire);
    counters.log_records.load(Ordering::Relaxed).saturating_sub(before)
}

/// The weight of what a restart would read of one shard, for callers that ask at every post.
pub(crate) fn replay_weight(shard: &Shared) -> u64 {
    let counters = &shard.counters;
    let checkpoint = counters.checkpoint_lsn.load(Ordering::Acquire);
    let bytes = counters.durable_lsn.load(Ordering::Acquire).saturating_sub(checkpoint);
    replay_cost::weight(bytes, replay_records(shard))
}
