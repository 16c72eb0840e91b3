//! The decision, as a pure function of the node's load at one moment.
//!
//! Four budgets, each with its own reach: bytes in flight and unflushed bytes of the node, log bytes that a restart would read, and
//! the share of one table or namespace of the unflushed bytes. What is over its own share is told so (the sender's problem), what is over
//! the node's is told that (everybody's).
//!
//! The control law, for `u` = the fullest of the budgets that a post falls under, as a part of its limit:
//!
//! ```text
//!  u < 0.5         admit                                    nothing else happens
//!  0.5 <= u        admit; relief: seal and checkpoint early, as much as is above one half and not on its way already
//!  0.8 <= u < 1    delay each post by 1 s * ((u - 0.8) / 0.2)^2, then admit
//!  1 <= u          refuse, with the time after which the drain rate will have made room
//! ```
//!
//! Senders that wait for their acks are slowed to what drains before anybody is refused: the delay grows without a step from nothing
//! to a second, and squared, so that a node that is merely busy costs next to no latency. Nothing here has a memory: the law holds
//! also after a restart with a backlog.

use std::time::Duration;

/// The limits in force. Bytes, but for the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Acknowledged and not in Delta, those in flight included.
    pub max_unflushed: u64,
    /// Between first byte and ack.
    pub max_in_flight: u64,
    /// Of `max_unflushed`, for one table.
    pub table: u64,
    /// Of `max_unflushed`, for one namespace.
    pub namespace: u64,
    /// Of log that a restart would read.
    pub replay: u64,
    /// How old a table's oldest unflushed row may be.
    pub max_lag: Option<Duration>,
}

impl Limits {
    /// The largest post that an idle node takes.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.max_unflushed.min(self.max_in_flight).min(self.table).min(self.namespace).min(self.replay)
    }
}

/// The load at one moment, as one post of one table sees it. Bytes, but for the last two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Acknowledged payload of the node that is not yet in Delta.
    pub unflushed: u64,
    /// Under lease, with what working on it takes.
    pub in_flight: u64,
    /// The part of that which will be nobody's rows.
    pub work: u64,
    /// The same two of the post's table, together.
    pub table: u64,
    /// The same two of the post's namespace, together.
    pub namespace: u64,
    /// Log that a restart would read.
    pub replay: u64,
    /// Age of the table's oldest unflushed row.
    pub lag: Duration,
    /// What reaches Delta a second, as measured; 0 if nothing does.
    pub drain_rate: u64,
}

/// What becomes of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Admit,
    /// Admit, after this time.
    Delay(Duration),
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
    /// Room comes back with the next checkpoint.
    #[error("a restart would have to read {replay} bytes of log; the budget for it is {limit}")]
    Replay { replay: u64, limit: u64, retry_after: Duration },
    /// Room comes back as this table's rows reach Delta.
    #[error("{used} bytes of this table are waiting to reach Delta; one table may have {limit}")]
    Table { used: u64, limit: u64, retry_after: Duration },
    /// Room comes back as this namespace's rows reach Delta.
    #[error("{used} bytes of this namespace are waiting to reach Delta; one namespace may have {limit}")]
    Namespace { used: u64, limit: u64, retry_after: Duration },
    /// The table's rows reach Delta too slowly, or not at all.
    #[error("rows of this table have waited for {lag:?} to reach Delta; the limit is {limit:?}")]
    Lag { lag: Duration, limit: Duration, retry_after: Duration },
    /// The post could not be taken by an idle node either.
    #[error("a post of {bytes} bytes is over the limit of {limit}")]
    NeverFits { bytes: u64, limit: u64 },
}

/// Shortest wait that is asked for: a flush takes at least this long to free anything.
pub const RETRY_MIN: Duration = Duration::from_secs(1);
/// Longest wait that is asked for however full the node is: a lake that is back is to be noticed.
pub const RETRY_MAX: Duration = Duration::from_secs(30);
/// Where relief begins.
const RELIEF: f64 = 0.5;
/// Where posts begin to be delayed.
const PACE: f64 = 0.8;
/// The delay just below the limit.
const PACE_MAX: Duration = Duration::from_secs(1);
/// How full the node should be when a refused post comes again.
const RETURN: f64 = 0.9;

/// Decides about `bytes` more, which are not part of `usage` yet.
#[must_use]
pub fn policy(usage: &Usage, bytes: u64, limits: &Limits) -> Decision {
    let most = limits.largest();
    if bytes > most {
        return Decision::Refuse(Refusal::NeverFits { bytes, limit: most });
    }
    let in_flight = usage.in_flight.saturating_add(bytes);
    if in_flight > limits.max_in_flight {
        let (in_flight, limit) = (usage.in_flight, limits.max_in_flight);
        return Decision::Refuse(Refusal::InFlight { in_flight, limit, retry_after: RETRY_MIN });
    }
    let wait = |total: u64, limit: u64| wait_for_room(total, limit, usage.drain_rate);
    let (unflushed, limit) = (usage.unflushed, limits.max_unflushed);
    // What becomes rows and log; the rest is given back by then.
    let coming = in_flight.saturating_sub(usage.work);
    let total = unflushed.saturating_add(coming);
    if total > limit {
        return Decision::Refuse(Refusal::Unflushed { unflushed, limit, retry_after: wait(total, limit) });
    }
    let (replay, limit) = (usage.replay, limits.replay);
    if replay.saturating_add(coming) > limit {
        return Decision::Refuse(Refusal::Replay { replay, limit, retry_after: RETRY_MIN });
    }
    // The node has room: now the sender's own.
    let (used, limit) = (usage.table, limits.table);
    if used.saturating_add(bytes) > limit {
        return Decision::Refuse(Refusal::Table { used, limit, retry_after: wait(used, limit) });
    }
    let (used, limit) = (usage.namespace, limits.namespace);
    if used.saturating_add(bytes) > limit {
        return Decision::Refuse(Refusal::Namespace { used, limit, retry_after: wait(used, limit) });
    }
    if let Some(limit) = limits.max_lag.filter(|limit| usage.lag > *limit) {
        return Decision::Refuse(Refusal::Lag {
            lag: usage.lag,
            limit,
            retry_after: RETRY_MAX.min(limit.max(RETRY_MIN)),
        });
    }
    let fullest = [
        part(total, limits.max_unflushed),
        part(usage.table.saturating_add(bytes), limits.table),
        part(usage.namespace.saturating_add(bytes), limits.namespace),
        part(replay.saturating_add(coming), limits.replay),
    ];
    match pace(fullest.into_iter().fold(0.0, f64::max)) {
        Duration::ZERO => Decision::Admit,
        delay => Decision::Delay(delay),
    }
}

/// Whether a post may hold `bytes` in all while it is worked on, where others hold so much; the refusal if not. A post that is alone may
/// hold twice as much, for what becomes of it is several times what was sent, and whoever sends no more than the limit is to get through.
#[must_use]
pub fn fits_in_flight(others: u64, bytes: u64, limits: &Limits) -> Option<Refusal> {
    let limit = limits.max_in_flight;
    let alone = limit.saturating_mul(2);
    if bytes > alone {
        return Some(Refusal::NeverFits { bytes, limit: alone });
    }
    if others == 0 {
        return None;
    }
    let refusal = Refusal::InFlight { in_flight: others, limit, retry_after: RETRY_MIN };
    (others.saturating_add(bytes) > limit).then_some(refusal)
}

fn part(used: u64, limit: u64) -> f64 {
    used as f64 / limit.max(1) as f64
}

/// The delay of a post where so much of a budget is used.
fn pace(used: f64) -> Duration {
    let above = ((used - PACE) / (1.0 - PACE)).clamp(0.0, 1.0);
    // A timer is no finer than this, and less is not worth one.
    let delay = PACE_MAX.mul_f64(above * above);
    if delay < Duration::from_millis(1) { Duration::ZERO } else { delay }
}

/// How long it takes to drain down to where the post will be let in.
fn wait_for_room(used: u64, limit: u64, drain_rate: u64) -> Duration {
    let over = used.saturating_sub((limit as f64 * RETURN) as u64);
    if drain_rate == 0 {
        // Nothing drains: an outage, of unknown length. The fuller, the later, so that fewer come back at once.
        return RETRY_MIN.mul_f64(1.0 + 9.0 * part(over, limit).min(1.0));
    }
    Duration::try_from_secs_f64(over as f64 / drain_rate as f64).unwrap_or(RETRY_MAX).clamp(RETRY_MIN, RETRY_MAX)
}

/// How many unflushed bytes should be on their way to Delta now, to make room before posts are delayed or refused.
#[must_use]
pub fn relief_bytes(unflushed: u64, limits: &Limits) -> u64 {
    unflushed.saturating_sub((limits.max_unflushed as f64 * RELIEF) as u64)
}

/// Whether the logs should be checkpointed now, whatever their own triggers say.
#[must_use]
pub fn wants_checkpoint(replay: u64, limits: &Limits) -> bool {
    replay as f64 >= limits.replay as f64 * RELIEF && replay > 0
}

impl Refusal {
    /// All words that [`code`](Self::code) knows.
    pub const CODES: [&str; 7] = [
        "over_unflushed_limit",
        "over_in_flight_limit",
        "over_replay_budget",
        "over_table_share",
        "over_namespace_share",
        "over_cursor_lag",
        "body_too_large",
    ];

    /// When to come again; none if never.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unflushed { retry_after, .. }
            | Self::InFlight { retry_after, .. }
            | Self::Replay { retry_after, .. }
            | Self::Table { retry_after, .. }
            | Self::Namespace { retry_after, .. }
            | Self::Lag { retry_after, .. } => Some(*retry_after),
            Self::NeverFits { .. } => None,
        }
    }

    /// Whether the sender's own table or namespace is the reason, and others are let in.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Table { .. } | Self::Namespace { .. } | Self::Lag { .. })
    }

    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unflushed { .. } => "over_unflushed_limit",
            Self::InFlight { .. } => "over_in_flight_limit",
            Self::Replay { .. } => "over_replay_budget",
            Self::Table { .. } => "over_table_share",
            Self::Namespace { .. } => "over_namespace_share",
            Self::Lag { .. } => "over_cursor_lag",
            Self::NeverFits { .. } => "body_too_large",
        }
    }
}
