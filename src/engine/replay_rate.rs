//! How fast a restart would read the log, and how that is known.

use std::sync::Arc;

use penstock_store::{Store, self_test};
use serde::{Deserialize, Serialize};

/// How a rate of replay is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Not at all.
    #[default]
    Unknown,
    /// Recent starts of this data directory have measured it.
    Measured,
    /// No start had enough to read yet: this start has tried it with a log in memory.
    SelfTest,
}

/// A test in memory does not measure what a disk adds: a part of what it finds is believed.
const BELIEVED: u64 = 2;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplayRate {
    /// Weight of log (`penstock_store::replay_cost`) of each shard, to be on the safe side: the lowest of the recent ones.
    pub(super) bytes_per_second: u64,
    /// The same as it is to be expected.
    pub(super) expected: u64,
    pub(super) basis: Basis,
}

/// What recent starts have measured; a test of some milliseconds where none has.
pub(super) async fn find(store: &Arc<Store>, shards: u32) -> ReplayRate {
    if let (Some(bytes_per_second), Some(expected)) = (store.replay_rate(), store.expected_replay_rate()) {
        return ReplayRate { bytes_per_second, expected, basis: Basis::Measured };
    }
    let tested = tokio::task::spawn_blocking(move || self_test::replay_rate(shards)).await;
    let expected = tested.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    let bytes_per_second = expected / BELIEVED;
    tracing::info!(
        bytes_per_second,
        "no start has measured yet how fast the log is read; this is from a test in memory"
    );
    ReplayRate { bytes_per_second, expected, basis: Basis::SelfTest }
}
