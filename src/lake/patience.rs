//! How long a commit keeps trying before it reports that it is unsettled.

use std::time::Duration;

/// The bounds of one commit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// PUTs of one version whose outcome stays open.
    pub(super) tries: u32,
    /// Wait behind the first of them; doubles, up to [`MAX_WAIT`], and half of it is random.
    pub(super) first_wait: Duration,
    /// All tries of all versions together, other writers' wins included.
    pub(super) whole: Duration,
}

const MAX_WAIT: Duration = Duration::from_secs(5);

impl Patience {
    /// For stores whose calls are given up after `call_timeout`.
    pub(super) fn new(call_timeout: Duration) -> Self {
        Self { tries: 6, first_wait: Duration::from_millis(50), whole: call_timeout.saturating_mul(4) }
    }

    /// The wait behind the given try, which counts from 1.
    pub(super) fn wait(&self, tried: u32) -> Duration {
        let longest = self.first_wait.saturating_mul(1 << (tried.saturating_sub(1)).min(16)).min(MAX_WAIT);
        longest.mul_f64(rand::random_range(0.5..=1.0))
    }
}
