//! How long a table keeps the entries of its log, as its properties say.
//!
//! Two settings concern exactly-once. `delta.setTransactionRetentionDuration` makes the table forget which sequences it
//! holds: any value is refused. `delta.logRetentionDuration` lets whoever cleans the log remove entries that are older:
//! a head that we have not looked at for longer than that may have its successors removed, and a create-only PUT of the
//! next version would succeed in the hole. How long we rely on a head is bounded (design.md section 6), and has to stay
//! well below the retention: less than [`SHORTEST_LOG`] is refused.

use std::collections::HashMap;
use std::time::Duration;

const TRANSACTIONS: &str = "delta.setTransactionRetentionDuration";
const LOG: &str = "delta.logRetentionDuration";
const CLEAN_UP: &str = "delta.enableExpiredLogCleanup";

/// What Delta takes if the table says nothing.
const DEFAULT_LOG: Duration = Duration::from_secs(30 * 86_400);

/// The shortest log retention that we write to.
pub(super) const SHORTEST_LOG: Duration = Duration::from_secs(3_600);

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

/// What the table says about its log.
pub(super) fn log(properties: &Properties) -> Result<LogRetention, Unsafe> {
    let clean_up = value(properties, CLEAN_UP).is_none_or(|text| !text.trim().eq_ignore_ascii_case("false"));
    let Some(text) = value(properties, LOG) else { return Ok(LogRetention { keep: DEFAULT_LOG, clean_up }) };
    let refused = |reason| Unsafe { property: LOG, value: text.to_owned(), reason };
    let keep = interval(text)
        .ok_or_else(|| refused("that is no interval that is known here; write it as in `interval 30 days`"))?;
    if keep < SHORTEST_LOG {
        return Err(refused(
            "a clean-up could remove entries that we have not seen, and our commits into the hole would be lost; \
             keep the log for `interval 1 hour` or longer",
        ));
    }
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
mod tests {
    use super::*;

    #[test]
    fn intervals_as_writers_of_delta_spell_them() {
        let hours = |count: u64| Some(Duration::from_secs(count * 3_600));
        for (text, expected) in [
            ("interval 30 days", hours(720)),
            ("INTERVAL 1 Week", hours(168)),
            ("1 day 12 hours", hours(36)),
            ("interval 90 minutes", Some(Duration::from_secs(5_400))),
            ("interval 0 seconds", Some(Duration::ZERO)),
            ("interval", None),
            ("", None),
            ("interval 1 month", None),
            ("interval -1 day", None),
            ("30", None),
        ] {
            assert_eq!(interval(text), expected, "{text:?}");
        }
    }

    #[test]
    fn settings_that_could_cost_rows_are_named() {
        let set = |name: &str, value: &str| Properties::from([(name.to_owned(), Some(value.to_owned()))]);
        assert_eq!(log(&Properties::new()), Ok(LogRetention { keep: DEFAULT_LOG, clean_up: true }));
        let off = set(CLEAN_UP, "FALSE");
        assert_eq!(log(&off), Ok(LogRetention { keep: DEFAULT_LOG, clean_up: false }));
        let week = set(LOG, "interval 1 week");
        assert_eq!(log(&week).expect("should be fine").keep, Duration::from_secs(7 * 86_400));
        assert_eq!(check(&week), Ok(()));
        for (name, value) in [(TRANSACTIONS, "interval 99 weeks"), (LOG, "interval 5 minutes"), (LOG, "soon")] {
            let refused = check(&set(name, value)).expect_err("should be refused");
            assert_eq!((refused.property, refused.value.as_str()), (name, value));
        }
    }
}
