//! The time that is written into records: that of the wall when the process started, and from then on one that only grows.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// See the module.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    started_at: u64,
}

impl Clock {
    /// Starts now.
    pub fn new() -> Self {
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Self { started: Instant::now(), started_at }
    }

    /// Seconds since the epoch.
    pub fn seconds(&self) -> u32 {
        u32::try_from(self.started_at.saturating_add(self.started.elapsed().as_secs())).unwrap_or(u32::MAX)
    }
}
