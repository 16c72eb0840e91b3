//! Durations and sizes, counted by class: cheap enough for the owner's every turn, and exact enough to tell a stall from the rest.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the classes: microseconds where durations are counted, numbers of things where sizes are. One more class holds what
/// is larger.
pub const BOUNDS: [u64; 25] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
];

/// How many there were of each class since the start, and their sum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Distribution {
    /// One count per bound of [`BOUNDS`], of what is at most as large and larger than the bound before; the last one is of what is
    /// larger than all.
    pub counts: [u64; BOUNDS.len() + 1],
    /// All of them together, microseconds for durations.
    pub sum: u64,
}

impl Distribution {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What came after an earlier reading of the same figures.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts;
        counts.iter_mut().zip(earlier.counts).for_each(|(now, then)| *now = now.saturating_sub(then));
        Self { counts, sum: self.sum.saturating_sub(earlier.sum) }
    }

    /// How many were larger than one of the bounds.
    #[must_use]
    pub fn larger_than(&self, bound: u64) -> u64 {
        self.counts.iter().skip(BOUNDS.partition_point(|b| *b <= bound)).sum()
    }

    /// The bound that the largest of them stayed within; `None` if it was larger than all bounds, 0 if there is none.
    #[must_use]
    pub fn largest_within(&self) -> Option<u64> {
        match self.counts.iter().rposition(|count| *count > 0) {
            None => Some(0),
            Some(class) => BOUNDS.get(class).copied(),
        }
    }
}

/// A [`Distribution`] that is being counted. Any thread may write and read: classes are exact, though not of one moment.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    /// Thousandths: a sum of microseconds, each rounded, would be off by as many as there are.
    thousandths: AtomicU64,
}

impl Histogram {
    /// Counts a duration.
    pub fn count(&self, duration: Duration) {
        self.add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts a size.
    pub fn count_size(&self, size: u64) {
        self.add(size.saturating_mul(1_000));
    }

    fn add(&self, thousandths: u64) {
        let class = BOUNDS.partition_point(|bound| bound * 1_000 < thousandths);
        self.counts[class].fetch_add(1, Ordering::Relaxed);
        self.thousandths.fetch_add(thousandths, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn read(&self) -> Distribution {
        Distribution {
            counts: std::array::from_fn(|class| self.counts[class].load(Ordering::Relaxed)),
            sum: self.thousandths.load(Ordering::Relaxed) / 1_000,
        }
    }
}

#[cfg(test)]
mod tests;
