//! Leases by bytes, of the node and of the post's table and namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::RwLock;
use penstock_store::{TableId, TableUsage};

use super::policy::{Decision, Limits, Refusal, Usage, fits_in_flight, policy};

/// What a post takes whatever is in it, bytes: buffers of its connection, its task, its place in a page of the log.
pub const POST_OVERHEAD: u64 = 16 << 10;

/// What waits on this node at the moment of a post. Asked each time: between two looks a log grows by as much as a disk writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Acknowledged and not in Delta, as the memory that it takes.
    pub unflushed: u64,
    /// Log that a restart would read, weighed.
    pub replay: u64,
}

/// What is measured now and then rather than asked at each post.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observed {
    /// Log that a restart would read, weighed.
    pub replay: u64,
    /// Payload bytes that reach Delta a second; 0 if none do.
    pub drain_rate: u64,
}

/// Counts what is in flight and asks the policy.
#[derive(Debug)]
pub struct Admission {
    limits: RwLock<Limits>,
    observed: RwLock<Observed>,
    in_flight: AtomicU64,
    /// What of it is work above [`POST_OVERHEAD`].
    work: AtomicU64,
    tables: DashMap<TableId, Arc<Share>>,
    namespaces: DashMap<String, Arc<Namespace>>,
    counts: Counts,
}

/// What was decided since the start.
#[derive(Debug, Default)]
struct Counts {
    admitted: AtomicU64,
    delayed: AtomicU64,
    delayed_micros: AtomicU64,
    refused: DashMap<&'static str, u64>,
}

/// One table's part of the node's room.
#[derive(Debug)]
pub struct Share {
    usage: Arc<TableUsage>,
    in_flight: AtomicU64,
    lag_millis: AtomicU64,
    namespace: Arc<Namespace>,
}

/// One namespace's.
#[derive(Debug, Default)]
struct Namespace {
    in_flight: AtomicU64,
    /// The sum over its tables, as of the last look: to add them up at each post would cost by the table.
    unflushed: AtomicU64,
}

/// Bytes that a post may hold; given back when dropped.
#[must_use = "a lease that is dropped covers nothing"]
#[derive(Debug)]
pub struct Lease {
    admission: Arc<Admission>,
    /// None for a table that does not exist yet: it has nothing waiting.
    share: Option<Arc<Share>>,
    bytes: u64,
    /// What working on the post takes beside them; the node's only.
    work: u64,
}

impl Admission {
    /// Admission under these limits.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits: RwLock::new(limits),
            observed: RwLock::default(),
            in_flight: AtomicU64::new(0),
            work: AtomicU64::new(0),
            tables: DashMap::new(),
            namespaces: DashMap::new(),
            counts: Counts::default(),
        })
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        *self.limits.read()
    }

    /// Other limits from now on. What is held stays held, also where it is over them.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.write() = limits;
    }

    /// What was measured.
    pub fn observed(&self) -> Observed {
        *self.observed.read()
    }

    /// Takes what was measured.
    pub fn observe(&self, observed: Observed) {
        *self.observed.write() = observed;
        let mut sums: std::collections::HashMap<*const Namespace, (Arc<Namespace>, u64)> = Default::default();
        for share in &self.tables {
            let sum = sums.entry(Arc::as_ptr(&share.namespace)).or_insert_with(|| (Arc::clone(&share.namespace), 0));
            sum.1 += share.usage.held();
        }
        for (namespace, sum) in sums.into_values() {
            namespace.unflushed.store(sum, Ordering::Relaxed);
        }
    }

    /// A table's share, made at the first call; `usage` is the store's.
    pub fn share(
        &self,
        table: TableId,
        namespace: &str,
        usage: impl FnOnce() -> Option<Arc<TableUsage>>,
    ) -> Option<Arc<Share>> {
        if let Some(share) = self.tables.get(&table) {
            return Some(Arc::clone(&share));
        }
        let usage = usage()?;
        let namespace = Arc::clone(&self.namespaces.entry(namespace.to_owned()).or_default());
        let new = || Arc::new(Share { usage, in_flight: AtomicU64::new(0), lag_millis: AtomicU64::new(0), namespace });
        Some(Arc::clone(&self.tables.entry(table).or_insert_with(new)))
    }

    /// Tells how old a table's oldest unflushed row is.
    pub fn observe_lag(&self, table: TableId, lag: Duration) {
        if let Some(share) = self.tables.get(&table) {
            share.lag_millis.store(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// The load as the fullest table and the fullest namespace see it, where `unflushed` bytes of the node wait for Delta.
    pub fn fullest(&self, unflushed: u64) -> Usage {
        let Observed { replay, drain_rate } = self.observed();
        let (in_flight, work) = (self.in_flight(), self.work.load(Ordering::Relaxed));
        let mut usage = Usage { unflushed, in_flight, work, replay, drain_rate, ..Usage::default() };
        for share in &self.tables {
            let used = share.in_flight.load(Ordering::Relaxed).saturating_add(share.usage.held());
            usage.table = usage.table.max(used);
        }
        for namespace in &self.namespaces {
            let waiting = namespace.unflushed.load(Ordering::Relaxed).min(unflushed);
            usage.namespace = usage.namespace.max(namespace.in_flight.load(Ordering::Relaxed).saturating_add(waiting));
        }
        usage
    }

    /// Bytes under lease.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Posts refused since the start.
    pub fn refusals(&self) -> u64 {
        self.counts.refused.iter().map(|count| *count).sum()
    }

    /// The same by reason.
    pub fn refusals_by_reason(&self) -> Vec<(&'static str, u64)> {
        let mut counts: Vec<_> = self.counts.refused.iter().map(|count| (*count.key(), *count)).collect();
        counts.sort_unstable();
        counts
    }

    /// Posts let in since the start, at once or after a delay.
    pub fn admissions(&self) -> u64 {
        self.counts.admitted.load(Ordering::Relaxed)
    }

    /// Posts delayed since the start, and for how long together.
    pub fn delays(&self) -> (u64, Duration) {
        let micros = self.counts.delayed_micros.load(Ordering::Relaxed);
        (self.counts.delayed.load(Ordering::Relaxed), Duration::from_micros(micros))
    }

    /// A lease for `bytes`, and how long the post is to wait before it goes on.
    ///
    /// # Errors
    /// [`Refusal`], with the time to wait.
    pub fn lease(
        self: &Arc<Self>,
        share: Option<Arc<Share>>,
        bytes: u64,
        backlog: Backlog,
    ) -> Result<(Lease, Duration), Refusal> {
        let mut lease = Lease { admission: Arc::clone(self), share, bytes: 0, work: 0 };
        let delay = lease.reserve(bytes, backlog)?;
        self.counts.admitted.fetch_add(1, Ordering::Relaxed);
        if delay > Duration::ZERO {
            self.counts.delayed.fetch_add(1, Ordering::Relaxed);
            let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
            self.counts.delayed_micros.fetch_add(micros, Ordering::Relaxed);
        }
        Ok((lease, delay))
    }

    fn counted(&self, refusal: Refusal) -> Refusal {
        *self.counts.refused.entry(refusal.code()).or_default() += 1;
        refusal
    }
}

impl Lease {
    /// Extends the lease to `bytes` in all; never shrinks it.
    ///
    /// # Errors
    /// [`Refusal`]; the lease stays as it was.
    pub fn grow_to(&mut self, bytes: u64, backlog: Backlog) -> Result<(), Refusal> {
        if bytes > self.bytes {
            // It was delayed when it came, if at all.
            self.reserve(bytes, backlog)?;
        }
        Ok(())
    }

    /// Whether the lease could be extended to `bytes` in all. It is not: who only says that more will come holds no room for it.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn would_grow_to(&mut self, bytes: u64, backlog: Backlog) -> Result<(), Refusal> {
        let before = self.bytes;
        self.grow_to(bytes, backlog)?;
        self.give_back(self.bytes - before);
        self.bytes = before;
        Ok(())
    }

    /// Sets what the post takes beside its bytes while it is worked on: buffers, columns, what it becomes. It counts against the
    /// bytes in flight, and nobody else's share. May shrink.
    ///
    /// # Errors
    /// [`Refusal`] where it would grow; the lease stays as it was.
    pub fn work(&mut self, work: u64) -> Result<(), Refusal> {
        let (before, in_flight) = (self.work, &self.admission.in_flight);
        if work <= before {
            in_flight.fetch_sub(before - work, Ordering::Relaxed);
        } else {
            let others = in_flight.fetch_add(work - before, Ordering::Relaxed).saturating_sub(self.bytes + before);
            if let Some(refusal) = fits_in_flight(others, self.bytes.saturating_add(work), &self.admission.limits()) {
                in_flight.fetch_sub(work - before, Ordering::Relaxed);
                return Err(self.admission.counted(refusal));
            }
        }
        self.work = work;
        // Swapped in two steps: what others see meanwhile is off by this post's work.
        let counted = |work: u64| work.saturating_sub(POST_OVERHEAD);
        self.admission.work.fetch_add(counted(work), Ordering::Relaxed);
        self.admission.work.fetch_sub(counted(before), Ordering::Relaxed);
        Ok(())
    }

    /// Raises what the post holds. It is judged as a whole: one that could never be taken is told so, however it grew.
    fn reserve(&mut self, bytes: u64, Backlog { unflushed, replay }: Backlog) -> Result<Duration, Refusal> {
        let (held, admission) = (self.bytes, &self.admission);
        let more = bytes - held;
        // Reserved first and looked at then, so that posts which come together cannot all be told that there is room.
        let before = |counter: &AtomicU64| counter.fetch_add(more, Ordering::Relaxed).saturating_sub(held);
        let in_flight = before(&admission.in_flight);
        let drain_rate = admission.observed().drain_rate;
        let work = admission.work.load(Ordering::Relaxed);
        let mut usage = Usage { unflushed, in_flight, work, replay, drain_rate, ..Usage::default() };
        if let Some(share) = &self.share {
            usage.table = before(&share.in_flight).saturating_add(share.usage.held());
            let of_namespace = before(&share.namespace.in_flight);
            // As of the last look: what has reached Delta since is known of the node, at least.
            let waiting = share.namespace.unflushed.load(Ordering::Relaxed).min(unflushed);
            usage.namespace = of_namespace.saturating_add(waiting);
            // Looks see only tables that have rows waiting: one that has none left would keep its last age, and be refused for ever.
            if share.usage.rows() > 0 {
                usage.lag = Duration::from_millis(share.lag_millis.load(Ordering::Relaxed));
            }
        }
        let delay = match policy(&usage, bytes, &admission.limits()) {
            Decision::Admit => Duration::ZERO,
            Decision::Delay(delay) => delay,
            Decision::Refuse(refusal) => {
                self.give_back(more);
                return Err(self.admission.counted(refusal));
            }
        };
        self.bytes = bytes;
        Ok(delay)
    }

    fn give_back(&self, bytes: u64) {
        self.admission.in_flight.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(share) = &self.share {
            share.in_flight.fetch_sub(bytes, Ordering::Relaxed);
            share.namespace.in_flight.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back(self.bytes);
        self.admission.in_flight.fetch_sub(self.work, Ordering::Relaxed);
        self.admission.work.fetch_sub(self.work.saturating_sub(POST_OVERHEAD), Ordering::Relaxed);
    }
}
