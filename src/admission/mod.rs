//! What may come in now. [`policy`] is the decision, a pure function; [`Admission`] gathers its numbers and holds the leases.
//!
//! A lease covers a post's bytes while it is received, decoded and queued, and as its work what is allocated for it meanwhile. It
//! ends at the ack, from where the store's own counter holds them, as the memory that they take, until they are in Delta. Each table and each namespace has a share of its own, so that one whose
//! rows do not reach Delta fills that share and nobody else's.
//!
//! Refused posts are counted by reason, and each learns when to come again; nothing queues here.

mod lease;
pub mod policy;

#[cfg(test)]
mod tests;

pub use lease::{Admission, Backlog, Lease, Observed, POST_OVERHEAD, Share};
pub use policy::{Decision, Limits, Refusal, Usage, policy};

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The `[admission]` settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Most bytes that are acknowledged and not yet in Delta, as the memory that they take, those in flight included. Default 1 GiB.
    pub max_unflushed: bytesize::ByteSize,
    /// Most bytes of posts between their first byte and their ack, with what is made of them meanwhile. Default 256 MiB.
    pub max_in_flight: bytesize::ByteSize,
    /// The part of `max_unflushed` that one table may have, above 0 and at most 1. Default 0.5.
    pub table_share: f64,
    /// The same for all tables of a namespace together. Default 0.8.
    pub namespace_share: f64,
    /// How long a restart may read the log. Default 10s.
    #[serde(with = "humantime_serde")]
    pub replay_budget: Duration,
    /// How long a table's rows may wait for Delta before the table's posts are refused; 0s: for ever. Default 0s.
    #[serde(with = "humantime_serde")]
    pub max_cursor_lag: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_unflushed: bytesize::ByteSize::gib(1),
            max_in_flight: bytesize::ByteSize::mib(256),
            table_share: 0.5,
            namespace_share: 0.8,
            replay_budget: Duration::from_secs(10),
            max_cursor_lag: Duration::ZERO,
        }
    }
}

/// A setting that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// A share is no part of a whole.
    #[error("admission.{name} = {value}: it is a part of max_unflushed, above 0 and at most 1")]
    Share {
        /// The key.
        name: &'static str,
        /// As set.
        value: f64,
    },
    /// A budget of nothing.
    #[error("admission.{0} is 0: nothing would ever be let in")]
    Nothing(&'static str),
}

impl Options {
    /// Checks what no type can.
    ///
    /// # Errors
    /// [`OptionsError`], naming the key.
    pub fn validate(&self) -> Result<(), OptionsError> {
        for (name, value) in [("table_share", self.table_share), ("namespace_share", self.namespace_share)] {
            if !(value > 0.0 && value <= 1.0) {
                return Err(OptionsError::Share { name, value });
            }
        }
        let nothing = [
            ("max_unflushed", self.max_unflushed.as_u64() == 0),
            ("max_in_flight", self.max_in_flight.as_u64() == 0),
            ("replay_budget", self.replay_budget.is_zero()),
        ];
        nothing.into_iter().find(|(_, zero)| *zero).map_or(Ok(()), |(name, _)| Err(OptionsError::Nothing(name)))
    }

    /// The limits in bytes, where a start reads so many bytes of log a second and takes so long for everything else.
    pub fn limits(&self, replay_rate: u64, load: Duration) -> Limits {
        let max_unflushed = self.max_unflushed.as_u64();
        let part = |share: f64| (max_unflushed as f64 * share) as u64;
        // Even where loading alone takes the budget, something has to be let in, or no log could ever be checkpointed away.
        let seconds = self.replay_budget.saturating_sub(load).max(self.replay_budget / 10).as_secs_f64();
        Limits {
            max_unflushed,
            max_in_flight: self.max_in_flight.as_u64(),
            table: part(self.table_share),
            namespace: part(self.namespace_share),
            replay: (replay_rate as f64 * seconds) as u64,
            max_lag: Some(self.max_cursor_lag).filter(|lag| !lag.is_zero()),
        }
    }
}
