//! How a store is opened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bucket::keys::KeyLimits;
use crate::bucket::producer::ProducerLimits;
use crate::bucket::state::MarkLimits;
use crate::checkpoint::lanes::Barrier;

/// The lane of a node that is given none.
const DEFAULT_LANE: &str = "lanes/0";

/// How a store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Logs and owner threads. Default 2; at least 1, at most 1024. Fixed when the data directory is made; see `reshape`.
    pub shards: u32,
    /// Data bytes of a log segment. Default 32 MiB, at least 64 KiB. Fixed when the data directory is made.
    pub segment_bytes: u64,
    /// Most bytes that one sync covers, but for a single larger record. Default 4 MiB.
    pub group_bytes: usize,
    /// Most bytes that wait for a shard's owner. Default 64 MiB.
    pub queue_bytes: usize,
    /// Largest record, bytes. Default 256 MiB.
    pub max_record_bytes: usize,
    /// Directories for checkpointed rows, ideally one a device. Default: none, which is `lanes/0` in the data directory. Their number
    /// is fixed when the data directory is made; they may be mounted elsewhere later.
    pub lanes: Vec<PathBuf>,
    /// Time between two checkpoints of a shard. Default 10 s; none: only a long log or a demand brings one.
    pub checkpoint_interval: Option<Duration>,
    /// Log bytes of a shard behind its last checkpoint at which the next one is due. Default 128 MiB. With the replay rate it bounds
    /// the time of a restart.
    pub checkpoint_bytes: u64,
    /// How lane files are made durable.
    pub barrier: Barrier,
    /// Least bytes a second that a lane file is written with, unless somebody waits. Default 64 MiB; more when the interval would not
    /// suffice.
    pub lane_rate: u64,
    /// Most lane files of a shard before the smallest ones are merged. Default 64.
    pub lane_files: usize,
    /// Producers that a shard remembers, to know their repeats: how many, and for how long at least.
    pub producers: ProducerLimits,
    /// Keys of posts that a shard remembers, to know their repeats: how many, and for how long at least.
    pub keys: KeyLimits,
    /// Bytes that rows may take in memory while a start reads the logs; the rest goes to lane files. Default 512 MiB.
    pub replay_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: 2,
            segment_bytes: 32 << 20,
            group_bytes: 4 << 20,
            queue_bytes: 64 << 20,
            max_record_bytes: 256 << 20,
            lanes: Vec::new(),
            checkpoint_interval: Some(Duration::from_secs(10)),
            checkpoint_bytes: 128 << 20,
            barrier: Barrier::Auto,
            lane_rate: 64 << 20,
            lane_files: 64,
            producers: ProducerLimits::default(),
            keys: KeyLimits::default(),
            replay_bytes: 512 << 20,
        }
    }
}

impl Options {
    /// How much a shard remembers to know repeats.
    pub(crate) fn marks(&self) -> MarkLimits {
        MarkLimits { producers: self.producers, keys: self.keys }
    }
}

/// The directories of the lanes that are configured.
pub(crate) fn lane_dirs(dir: &Path, configured: &[PathBuf]) -> Vec<PathBuf> {
    if configured.is_empty() { vec![dir.join(DEFAULT_LANE)] } else { configured.to_vec() }
}
