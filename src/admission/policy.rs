//! The decision. Below half of the limit nothing happens; from there open buckets are sealed early, so that draining starts before
//! anybody is refused; at the limit posts are refused with the time after which room is likely.

use std::time::Duration;

/// The limits in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub max_unflushed: u64,
    /// Bytes.
    pub max_in_flight: u64,
}

/// The node's load at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Acknowledged payload bytes that are not yet in Delta.
    pub unflushed: u64,
    /// Bytes under lease.
    pub in_flight: u64,
}

/// What becomes of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Admit,
    Refuse(Refusal),
}

/// Why a post is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Room comes back as rows reach Delta.
    #[error("{unflushed} bytes are waiting to reach Delta; the limit is {limit}")]
    Unflushed { unflushed: u64, limit: u64, retry_after: Duration },
    /// Room comes back as posts are acknowledged.
    #[error("{in_flight} bytes of posts are in flight; the limit is {limit}")]
    InFlight { in_flight: u64, limit: u64, retry_after: Duration },
    /// The post could not be taken by an idle node either.
    #[error("a post of {bytes} bytes is over the limit of {limit}")]
    NeverFits { bytes: u64, limit: u64 },
}

/// A flush takes at least this long to free anything.
const RETRY_UNFLUSHED: Duration = Duration::from_secs(1);
/// Longest wait that is asked for however full the node is.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Decides about `bytes` more, which are not part of `usage` yet.
#[must_use]
pub fn policy(usage: Usage, bytes: u64, limits: Limits) -> Decision {
    let most = limits.max_unflushed.min(limits.max_in_flight);
    if bytes > most {
        return Decision::Refuse(Refusal::NeverFits { bytes, limit: most });
    }
    if usage.in_flight.saturating_add(bytes) > limits.max_in_flight {
        let (in_flight, limit) = (usage.in_flight, limits.max_in_flight);
        return Decision::Refuse(Refusal::InFlight { in_flight, limit, retry_after: RETRY_UNFLUSHED });
    }
    let total = usage.unflushed.saturating_add(usage.in_flight).saturating_add(bytes);
    if total > limits.max_unflushed {
        let (unflushed, limit) = (usage.unflushed, limits.max_unflushed);
        return Decision::Refuse(Refusal::Unflushed { unflushed, limit, retry_after: retry_after(total, limit) });
    }
    Decision::Admit
}

/// The fuller beyond the limit, the later: what is over takes longer to drain, and fewer senders come back at once.
fn retry_after(total: u64, limit: u64) -> Duration {
    let over = (total - limit) as f64 / limit.max(1) as f64;
    RETRY_UNFLUSHED.mul_f64(1.0 + 10.0 * over.min(1.0)).min(RETRY_MAX)
}

/// How many unflushed bytes should be on their way to Delta now, to make room before posts are refused: as many as are above half
/// of the limit.
#[must_use]
pub fn relief_bytes(usage: Usage, limits: Limits) -> u64 {
    usage.unflushed.saturating_sub(limits.max_unflushed / 2)
}

impl Refusal {
    /// When to come again; none if never.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unflushed { retry_after, .. } | Self::InFlight { retry_after, .. } => Some(*retry_after),
            Self::NeverFits { .. } => None,
        }
    }
}
