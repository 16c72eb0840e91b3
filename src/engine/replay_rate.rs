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

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplayRate {
    /// Log bytes.
    pub(super) bytes_per_second: u64,
    pub(super) basis: Basis,
}

/// What recent starts have measured; a test of some milliseconds where none has.
pub(super) async fn find(store: &Arc<Store>, shards: u32) -> ReplayRate {
    if let Some(bytes_per_second) = store.replay_rate() {
        return ReplayRate { bytes_per_second, basis: Basis::Measured };
    }
    let tested = tokio::task::spawn_blocking(move || self_test::replay_rate(shards)).await;
    let bytes_per_second = tested.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    tracing::info!(
        bytes_per_second,
        "no start has measured yet how fast the log is read; this is from a test in memory"
    );
    ReplayRate { bytes_per_second, basis: Basis::SelfTest }
}
