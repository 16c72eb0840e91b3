//! Latency percentiles: a histogram in microseconds, three significant figures.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest time told apart; anything longer counts as this.
const MAX: Duration = Duration::from_secs(600);

/// Times of many calls.
#[derive(Debug, Clone)]
pub struct Latencies {
    micros: Histogram<u64>,
}

/// The percentiles we print, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Calls measured.
    pub count: u64,
    /// Half of the calls were no slower.
    pub p50_us: u64,
    /// 9 of 10 calls were no slower.
    pub p90_us: u64,
    /// 99 of 100 calls were no slower.
    pub p99_us: u64,
    /// 999 of 1,000 calls were no slower.
    pub p999_us: u64,
    /// The slowest call.
    pub max_us: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let micros = Histogram::new_with_bounds(1, MAX.as_micros() as u64, 3).expect("should be valid bounds");
        Self { micros }
    }
}

impl Latencies {
    /// Counts one call.
    pub fn record(&mut self, time: Duration) {
        let micros = time.min(MAX).as_micros() as u64;
        self.micros.saturating_record(micros.max(1));
    }

    /// Takes in what another task measured.
    pub fn merge(&mut self, other: &Self) {
        self.micros.add(&other.micros).expect("should have equal bounds");
    }

    /// The percentiles so far; all zero before the first call.
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| if self.micros.is_empty() { 0 } else { self.micros.value_at_quantile(quantile) };
        Percentiles {
            count: self.micros.len(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.micros.max(),
        }
    }
}
