//! Leases by bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::policy::{Decision, Limits, Refusal, Usage, policy};

/// Counts what is in flight and asks the policy.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    in_flight: AtomicU64,
    refusals: AtomicU64,
}

/// Bytes that a post may hold; given back when dropped.
#[must_use = "a lease that is dropped covers nothing"]
#[derive(Debug)]
pub struct Lease {
    admission: Arc<Admission>,
    bytes: u64,
}

impl Admission {
    /// Admission under these limits.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, in_flight: AtomicU64::new(0), refusals: AtomicU64::new(0) })
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Bytes under lease.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Posts refused since the start.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// A lease for `bytes`, where `unflushed` bytes wait for Delta.
    ///
    /// # Errors
    /// [`Refusal`], with the time to wait.
    pub fn lease(self: &Arc<Self>, bytes: u64, unflushed: u64) -> Result<Lease, Refusal> {
        self.reserve(0, bytes, unflushed)?;
        Ok(Lease { admission: Arc::clone(self), bytes })
    }

    /// Raises what one post holds. The post is judged as a whole: one that could never be taken is told so, however it grew.
    fn reserve(&self, held: u64, bytes: u64, unflushed: u64) -> Result<(), Refusal> {
        // Reserved first and looked at then, so that posts which come together cannot all be told that there is room.
        let in_flight = self.in_flight.fetch_add(bytes - held, Ordering::Relaxed).saturating_sub(held);
        match policy(Usage { unflushed, in_flight }, bytes, self.limits) {
            Decision::Admit => Ok(()),
            Decision::Refuse(refusal) => {
                self.in_flight.fetch_sub(bytes - held, Ordering::Relaxed);
                self.refusals.fetch_add(1, Ordering::Relaxed);
                Err(refusal)
            }
        }
    }
}

impl Lease {
    /// Extends the lease to `bytes` in all; never shrinks it.
    ///
    /// # Errors
    /// [`Refusal`]; the lease stays as it was.
    pub fn grow_to(&mut self, bytes: u64, unflushed: u64) -> Result<(), Refusal> {
        if bytes > self.bytes {
            self.admission.reserve(self.bytes, bytes, unflushed)?;
            self.bytes = bytes;
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.admission.in_flight.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
