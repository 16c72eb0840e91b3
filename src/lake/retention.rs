//! How long a table keeps its log entries, and whether that is long enough for us.
//!
//! A version that was cleaned away is free again: a PUT of it "succeeds", into a hole. We put behind a head that was
//! seen less than `head_ttl` ago, so entries have to live well longer than that and than a PUT may be under way.

use std::time::Duration;

use super::Error;
use super::definition::Definition;

const PROPERTY: &str = "delta.logRetentionDuration";
/// How many times over.
const MARGIN: u32 = 10;

/// Refuses a table whose entries may be cleaned away behind a head that we still believe in.
///
/// # Errors
/// [`Error::LogRetention`], with the least that would do.
pub(super) fn check(
    location: &str,
    definition: &Definition,
    head_ttl: Duration,
    longest_put: Duration,
) -> Result<(), Error> {
    // Without the property it is 30 days.
    let Some(value) = definition.property(PROPERTY) else { return Ok(()) };
    let least = head_ttl.saturating_add(longest_put).saturating_mul(MARGIN);
    if interval(value).is_some_and(|kept| kept >= least) {
        return Ok(());
    }
    Err(Error::LogRetention { location: location.to_owned(), value: value.to_owned(), least })
}

/// An interval as Delta's properties have it, `interval 30 days`; none if it is not understood.
fn interval(text: &str) -> Option<Duration> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_prefix("interval").unwrap_or(&text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let (pairs, []) = words.as_chunks::<2>() else { return None };
    let mut whole = (!pairs.is_empty()).then_some(Duration::ZERO)?;
    for [count, unit] in pairs {
        let count: u32 = count.trim_matches('\'').parse().ok()?;
        let nanos: u64 = match unit.trim_end_matches('s') {
            "nanosecond" => 1,
            "microsecond" => 1_000,
            "millisecond" => 1_000_000,
            "second" => 1_000_000_000,
            "minute" => 60_000_000_000,
            "hour" => 3_600_000_000_000,
            "day" => 86_400_000_000_000,
            "week" => 604_800_000_000_000,
            _ => return None,
        };
        whole = whole.checked_add(Duration::from_nanos(nanos).checked_mul(count)?)?;
    }
    Some(whole)
}

#[cfg(test)]
mod tests;
