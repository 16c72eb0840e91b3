//! How fast a lane file is written. Write-back of a whole checkpoint at once would stand between the log and its syncs: the file is
//! synced piece by piece, and the pieces are spread over half of the time until the next checkpoint.

use std::io;
use std::time::{Duration, Instant};

use super::trigger::Trigger;
use crate::fs::File;

/// Bytes between two syncs: short enough that a log sync behind one waits little, long enough to be sequential.
const SYNC_EVERY: u64 = 2 << 20;

/// The pace of one lane file.
#[derive(Debug)]
pub struct Pace<'a> {
    trigger: &'a Trigger,
    /// Bytes a second; none: as fast as it goes.
    rate: Option<u64>,
    started: Instant,
    written: u64,
    unsynced: u64,
    /// A sync failed: final, unlike a failed write.
    pub sync_failed: bool,
}

/// Bytes a second at which `bytes` take half of an interval, but no less than `least`.
pub fn rate(bytes: u64, interval: Duration, least: u64) -> u64 {
    let half = (interval / 2).as_millis().max(1);
    let rate = u128::from(bytes) * 1000 / half;
    u64::try_from(rate).unwrap_or(u64::MAX).max(least)
}

impl<'a> Pace<'a> {
    /// A pace that begins now.
    pub fn new(trigger: &'a Trigger, rate: Option<u64>) -> Self {
        Self { trigger, rate, started: Instant::now(), written: 0, unsynced: 0, sync_failed: false }
    }

    /// Called with the bytes that have just been written.
    ///
    /// # Errors
    /// A failed sync.
    pub fn wrote(&mut self, file: &dyn File, bytes: u64) -> io::Result<()> {
        let Some(rate) = self.rate else { return Ok(()) };
        self.written += bytes;
        self.unsynced += bytes;
        if self.unsynced >= SYNC_EVERY {
            self.unsynced = 0;
            if let Err(error) = file.sync_data() {
                self.sync_failed = true;
                return Err(error);
            }
        }
        let due = Duration::from_secs_f64(self.written as f64 / rate as f64);
        let ahead = due.saturating_sub(self.started.elapsed());
        if !ahead.is_zero() && self.trigger.pause(ahead) {
            self.rate = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::rate;

    #[test]
    fn half_of_the_interval_and_not_slower_than_the_least() {
        assert_eq!(rate(1_000_000, Duration::from_secs(10), 1), 200_000);
        assert_eq!(rate(1_000_000, Duration::from_secs(10), 300_000), 300_000);
        assert_eq!(rate(u64::MAX, Duration::ZERO, 1), u64::MAX);
    }
}
