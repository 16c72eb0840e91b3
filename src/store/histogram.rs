//! Durations, counted by size: cheap enough for the owner's every turn, and exact enough to tell a stall from the rest.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the classes, microseconds; one more class holds what is longer.
pub const BOUNDS_MICROS: [u64; 15] =
    [10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000];

/// How many durations there were of each class since the start, and their sum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durations {
    /// One count per bound of [`BOUNDS_MICROS`], of what is at most as long and longer than the bound before; the last one is of
    /// what is longer than all.
    pub counts: [u64; BOUNDS_MICROS.len() + 1],
    /// All of them together, microseconds.
    pub micros: u64,
}

impl Durations {
    /// What came after an earlier reading of the same figures.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts;
        counts.iter_mut().zip(earlier.counts).for_each(|(now, then)| *now -= then);
        Self { counts, micros: self.micros - earlier.micros }
    }

    /// How many were longer than one of the bounds.
    #[must_use]
    pub fn longer_than(&self, bound_micros: u64) -> u64 {
        self.counts.iter().skip(BOUNDS_MICROS.partition_point(|b| *b <= bound_micros)).sum()
    }

    /// The bound that the longest of them stayed within, microseconds; `None` if it was longer than all bounds, 0 if there is none.
    #[must_use]
    pub fn longest_within(&self) -> Option<u64> {
        match self.counts.iter().rposition(|count| *count > 0) {
            None => Some(0),
            Some(class) => BOUNDS_MICROS.get(class).copied(),
        }
    }
}

/// [`Durations`] that are being counted. One thread writes, any may read: classes are exact, though not of one moment.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BOUNDS_MICROS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    pub(crate) fn count(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let class = BOUNDS_MICROS.partition_point(|bound| bound * 1000 < nanos);
        self.counts[class].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Durations {
        Durations {
            counts: std::array::from_fn(|class| self.counts[class].load(Ordering::Relaxed)),
            micros: self.nanos.load(Ordering::Relaxed) / 1000,
        }
    }
}

#[cfg(test)]
mod tests;
