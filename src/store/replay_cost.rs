//! What it costs to read the log, before anybody reads it.
//!
//! A record costs whatever its length is: it is checked, decoded, and put in its place. So log is weighed: its bytes, and
//! [`RECORD_BYTES`] more for each record. In that unit many small rows and a few large ones are read at about the same rate, and a
//! rate that was measured with the one says something about the other.
//!
//! Shards are read side by side, each by a thread of its own: a start takes as long as its slowest shard, and rates are of one shard.

/// What a record weighs beside its bytes: as many bytes as are read in the time that it takes. Measured, one-row posts against posts of a
/// megabyte; a build without optimisation spends more on each record.
pub const RECORD_BYTES: u64 = if cfg!(debug_assertions) { 8 << 10 } else { 2 << 10 };

/// The weight of so much log.
#[must_use]
pub fn weight(bytes: u64, records: u64) -> u64 {
    bytes.saturating_add(records.saturating_mul(RECORD_BYTES))
}

/// Weight a second.
#[must_use]
pub fn rate(weight: u64, micros: u64) -> u64 {
    u64::try_from(u128::from(weight) * 1_000_000 / u128::from(micros.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_weigh_more_than_their_bytes() {
        assert_eq!(weight(1_000, 0), 1_000);
        assert_eq!(weight(1_000, 3), 1_000 + 3 * RECORD_BYTES);
        assert_eq!(weight(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(rate(1_000, 500), 2_000_000);
        assert_eq!(rate(1_000, 0), 1_000_000_000);
    }
}
