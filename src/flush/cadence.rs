//! How often a table is committed to: a balance between history and small files on one side and freshness on the other.
//!
//! - A bucket whose window has passed waits until the table's last seal is an [`interval`] ago. The interval is what the table takes to
//!   fill a file of the target size, within `commit_interval` and `max_age`. Size, age, pressure and demand do not ask.
//! - [`Load`] says whether all tables together can be flushed that often at all.

use std::time::{Duration, Instant};

use super::Options;

#[cfg(test)]
mod tests;

/// The weight of what is new in a moving average.
const NEW: f64 = 0.3;
/// Stored bytes for each payload byte, before a table's own files were measured.
const FIRST_RATIO: f64 = 0.2;

/// The time from one seal to the next that a table should have: as long as it takes to fill a file, at least `least`, at most
/// `most` (and `least` where the two contradict each other). `file_rate` is in stored bytes a second.
pub fn interval(file_rate: f64, target_file_bytes: u64, least: Duration, most: Duration) -> Duration {
    let most = most.max(least);
    let seconds = target_file_bytes as f64 / file_rate;
    // Not a number, and beyond what a duration holds: nothing arrives.
    Duration::try_from_secs_f64(seconds).unwrap_or(most).clamp(least, most)
}

/// What is known of one table's rows over time.
#[derive(Debug, Clone, Copy)]
pub struct Cadence {
    sealed_at: Option<Instant>,
    /// Payload bytes a second.
    rate: Option<f64>,
    /// Stored bytes for each payload byte.
    ratio: f64,
}

impl Default for Cadence {
    fn default() -> Self {
        Self { sealed_at: None, rate: None, ratio: FIRST_RATIO }
    }
}

fn average(old: f64, new: f64) -> f64 {
    old + (new - old) * NEW
}

impl Cadence {
    /// Generations of `bytes` payload bytes together were sealed.
    pub fn sealed(&mut self, bytes: u64, now: Instant) {
        if let Some(before) = self.sealed_at {
            let seconds = now.saturating_duration_since(before).as_secs_f64().max(1e-3);
            let rate = bytes as f64 / seconds;
            self.rate = Some(self.rate.map_or(rate, |old| average(old, rate)));
        }
        self.sealed_at = Some(now);
    }

    /// A generation became files.
    pub fn encoded(&mut self, payload_bytes: u64, file_bytes: u64) {
        if payload_bytes > 0 {
            self.ratio = average(self.ratio, file_bytes as f64 / payload_bytes as f64);
        }
    }

    /// Whether a bucket may be sealed because its window has passed.
    pub fn is_due(&self, options: &Options, now: Instant) -> bool {
        let Some(sealed_at) = self.sealed_at else { return true };
        let file_rate = self.rate.unwrap_or(0.0) * self.ratio;
        let target = options.target_file_bytes.as_u64();
        now.saturating_duration_since(sealed_at)
            >= interval(file_rate, target, options.commit_interval, options.max_age)
    }

    /// Whether anything was sealed in this time.
    pub fn is_active(&self, within: Duration, now: Instant) -> bool {
        self.sealed_at.is_some_and(|at| now.saturating_duration_since(at) <= within)
    }
}

/// What flushing costs, measured over all tables.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Tables that had something sealed lately.
    pub active_tables: usize,
    /// Time of one upload, encoding included; a moving average.
    pub upload: Option<Duration>,
    /// Time of one commit; a moving average.
    pub commit: Option<Duration>,
}

impl Load {
    /// An upload was made.
    pub fn uploaded(&mut self, took: Duration) {
        self.upload = Some(moved(self.upload, took));
    }

    /// A commit was made.
    pub fn committed(&mut self, took: Duration) {
        self.commit = Some(moved(self.commit, took));
    }

    /// The time in which every active table can be uploaded and committed once; none before anything was measured.
    pub fn round(&self, parallelism: usize, commits_at_once: usize) -> Option<Duration> {
        let share = |took: Option<Duration>, at_once: usize| {
            took.map(|took| took.mul_f64(self.active_tables as f64 / at_once.max(1) as f64))
        };
        // Both go on at the same time: the slower one counts.
        share(self.upload, parallelism).max(share(self.commit, commits_at_once))
    }

    /// Why the wanted lag cannot be kept, with what would do; none if it can.
    pub fn infeasible(&self, parallelism: usize, commits_at_once: usize, wanted: Duration) -> Option<String> {
        let round = self.round(parallelism, commits_at_once)?;
        if round <= wanted {
            return None;
        }
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let needed = (parallelism as f64 * round.as_secs_f64() / wanted.as_secs_f64().max(1e-3)).ceil();
        Some(format!(
            "{} active tables need {} for one round at flush.parallelism = {parallelism}, and flush.max_age is {}: raise \
             flush.parallelism to {needed:.0} (flush.threads and flush.memory with it), or flush.max_age",
            self.active_tables,
            seconds(round),
            seconds(wanted),
        ))
    }
}

fn moved(old: Option<Duration>, new: Duration) -> Duration {
    old.map_or(new, |old| Duration::from_secs_f64(average(old.as_secs_f64(), new.as_secs_f64()).max(0.0)))
}
