//! How long a table keeps the entries of its log, as its properties say.
//!
//! Two settings concern exactly-once. `delta.setTransactionRetentionDuration` makes the table forget which sequences it
//! holds: any value is refused. `delta.logRetentionDuration` lets whoever cleans the log remove entries that are older:
//! a version that was cleaned away is free again, and a create-only PUT of it "succeeds", into a hole. We put behind a head
//! that was seen less than `head_ttl` ago, so entries have to live well longer than that and than a PUT may be under way.

use std::collections::HashMap;
use std::time::Duration;

use super::Error;

const TRANSACTIONS: &str = "delta.setTransactionRetentionDuration";
const LOG: &str = "delta.logRetentionDuration";
const STATS_COLUMNS: &str = "delta.dataSkippingNumIndexedCols";
const CLEAN_UP: &str = "delta.enableExpiredLogCleanup";

/// What Delta takes if the table says nothing.
const DEFAULT_LOG: Duration = Duration::from_secs(30 * 86_400);

/// How many times longer than a head is believed entries have to be kept.
const MARGIN: u32 = 10;

/// The columns whose statistics go into the log; -1 for all. Not about retention, and read with the other properties.
pub(super) fn stats_columns(properties: &Properties) -> Option<String> {
    let columns: i64 = value(properties, STATS_COLUMNS)?.trim().parse().ok()?;
    // As whoever else writes the table takes it: no other negative number means anything.
    (columns >= -1).then(|| columns.to_string())
}

/// The properties of a table's metadata.
pub(super) type Properties = HashMap<String, Option<String>>;

/// A setting that could make us lose rows or write them twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unsafe {
    pub(super) property: &'static str,
    pub(super) value: String,
    /// What could happen, and what to do.
    pub(super) reason: &'static str,
}

/// How the log may be cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogRetention {
    /// Entries that are younger stay.
    pub(super) keep: Duration,
    /// Whether entries that are older may go.
    pub(super) clean_up: bool,
}

/// The first setting that is not safe.
pub(super) fn check(properties: &Properties) -> Result<(), Unsafe> {
    // Ours carry no time, and writers differ in whether they drop or keep such ids: any retention may drop them.
    if let Some(value) = value(properties, TRANSACTIONS) {
        let reason = "once the table forgets our transaction ids, a restart could write rows twice; unset the property";
        return Err(Unsafe { property: TRANSACTIONS, value: value.to_owned(), reason });
    }
    log(properties).map(drop)
}

/// Refuses a table whose entries may be cleaned away behind a head that we still believe in.
///
/// # Errors
/// [`Error::LogRetention`], with the least that would do.
pub(super) fn check_log(
    location: &str,
    properties: &Properties,
    head_ttl: Duration,
    longest_put: Duration,
) -> Result<(), Error> {
    let Some(value) = value(properties, LOG) else { return Ok(()) };
    let least = head_ttl.saturating_add(longest_put).saturating_mul(MARGIN);
    if interval(value).is_some_and(|kept| kept >= least) {
        return Ok(());
    }
    Err(Error::LogRetention { location: location.to_owned(), value: value.to_owned(), least })
}

/// What the table says about its log.
pub(super) fn log(properties: &Properties) -> Result<LogRetention, Unsafe> {
    let clean_up = value(properties, CLEAN_UP).is_none_or(|text| !text.trim().eq_ignore_ascii_case("false"));
    let Some(text) = value(properties, LOG) else { return Ok(LogRetention { keep: DEFAULT_LOG, clean_up }) };
    let refused = |reason| Unsafe { property: LOG, value: text.to_owned(), reason };
    let keep = interval(text)
        .ok_or_else(|| refused("that is no interval that is known here; write it as in `interval 30 days`"))?;
    Ok(LogRetention { keep, clean_up })
}

fn value<'a>(properties: &'a Properties, name: &str) -> Option<&'a str> {
    properties.get(name).and_then(Option::as_deref)
}

/// A calendar interval as Delta's writers take it: `interval 1 day 12 hours`, the first word optional. Months and years
/// have no length and are refused by them too.
fn interval(text: &str) -> Option<Duration> {
    let lower = text.to_ascii_lowercase();
    let mut words: Vec<&str> = lower.split_whitespace().collect();
    if words.first() == Some(&"interval") {
        words.remove(0);
    }
    if words.is_empty() || !words.len().is_multiple_of(2) {
        return None;
    }
    words.chunks(2).try_fold(Duration::ZERO, |sum, pair| {
        let count: u64 = pair[0].parse().ok()?;
        let unit = match pair[1].trim_end_matches('s') {
            "nanosecond" => Duration::from_nanos(1),
            "microsecond" => Duration::from_micros(1),
            "millisecond" => Duration::from_millis(1),
            "second" => Duration::from_secs(1),
            "minute" => Duration::from_secs(60),
            "hour" => Duration::from_secs(3_600),
            "day" => Duration::from_secs(86_400),
            "week" => Duration::from_secs(7 * 86_400),
            _ => return None,
        };
        sum.checked_add(unit.checked_mul(u32::try_from(count).ok()?)?)
    })
}

#[cfg(test)]
mod tests;
