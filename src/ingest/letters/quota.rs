//! How many bytes of rejected rows one sender may leave: a sender whose every row is bad must not fill the disk with them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// In what time what was used up comes back.
const REFILL: Duration = Duration::from_secs(60);

/// Senders that are told apart; the others share one allowance.
const MAX_SENDERS: usize = 10_000;

/// What each sender has left. Full at first, and again after a minute.
#[derive(Debug)]
pub struct Quota {
    /// Bytes a minute, and at once.
    bytes: u64,
    used: Mutex<HashMap<String, Used>>,
}

#[derive(Debug, Clone, Copy)]
struct Used {
    bytes: f64,
    at: Instant,
}

impl Used {
    fn now(self, rate: f64, now: Instant) -> f64 {
        (self.bytes - now.saturating_duration_since(self.at).as_secs_f64() * rate).max(0.0)
    }
}

impl Quota {
    /// So many bytes a minute for each sender.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, used: Mutex::default() }
    }

    /// Takes bytes from a sender's allowance.
    ///
    /// # Errors
    /// How long until there are as many; nothing is taken then. What is more than a full allowance waits for a full one.
    pub fn take(&self, sender: &str, bytes: u64, now: Instant) -> Result<(), Duration> {
        let full = self.bytes as f64;
        let rate = full / REFILL.as_secs_f64();
        let mut all = self.used.lock();
        if !all.contains_key(sender) && all.len() >= MAX_SENDERS {
            all.retain(|_, used| used.now(rate, now) > 0.0);
        }
        let sender = if all.contains_key(sender) || all.len() < MAX_SENDERS { sender } else { "" };
        let used = all.get(sender).map_or(0.0, |used| used.now(rate, now));
        // One post that is larger than the allowance goes if nothing else has used it.
        let over = (used + bytes as f64 - full).min(used);
        if over > 0.0 {
            return Err(if rate > 0.0 { Duration::from_secs_f64(over / rate) } else { REFILL });
        }
        all.insert(sender.to_owned(), Used { bytes: used + bytes as f64, at: now });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_comes_back_in_a_minute() {
        let (quota, start) = (Quota::new(600), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(quota.take("a", 600, start), Ok(()));
        assert_eq!(quota.take("a", 100, start), Err(Duration::from_secs(10)));
        assert_eq!(quota.take("b", 100, start), Ok(()));
        assert_eq!(quota.take("a", 100, at(10)), Ok(()));
        assert_eq!(quota.take("a", 1, at(10)).unwrap_err().as_millis(), 100);
        assert_eq!(quota.take("a", 600, at(70)), Ok(()));
    }

    #[test]
    fn a_post_larger_than_all_goes_when_nothing_is_used() {
        let (quota, start) = (Quota::new(600), Instant::now());
        assert_eq!(quota.take("a", 1_200, start), Ok(()));
        assert_eq!(quota.take("a", 600, start), Err(Duration::from_secs(120)));
        assert_eq!(quota.take("a", 600, start + Duration::from_secs(120)), Ok(()));
    }

    #[test]
    fn senders_without_number_share_what_is_left() {
        let (quota, start) = (Quota::new(600), Instant::now());
        for sender in 0..MAX_SENDERS {
            assert_eq!(quota.take(&sender.to_string(), 600, start), Ok(()));
        }
        assert_eq!(quota.take("one more", 600, start), Ok(()));
        assert!(quota.take("another", 600, start).is_err());
        assert!(quota.used.lock().len() <= MAX_SENDERS + 1);
        assert_eq!(quota.take("another", 600, start + REFILL), Ok(()));
        assert_eq!(quota.used.lock().len(), 1, "who has used nothing for a minute is forgotten");
    }
}
