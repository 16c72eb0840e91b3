//! Whether a table takes a row of some event time, received now.
//!
//! Old rows are taken by default: a sender that was offline, and a backfill, are no mistakes. Rows far ahead are: a bucket of theirs would
//! stay open for as long, and most often a clock or a unit is wrong. A wrong unit is told by what it leads to: seconds that are read as
//! milliseconds or microseconds lie in January 1970. (Milliseconds that are read as seconds lie in the year 58,000, which is no time at all.)

use crate::ingest::reject::Fault;
use crate::schema::TableSpec;
use crate::schema::spec::{Action, Rules};
use crate::schema::time::{DAY_MICROS, MAX_MICROS, MIN_MICROS};

/// The end of 1970: what lies before is looked at for its unit.
const FIRST_YEAR: std::ops::Range<i64> = 0..365 * DAY_MICROS;

/// How near to now an event time has to come in another unit for that unit to be the likely one.
const NEAR: i64 = 10 * 366 * DAY_MICROS;

/// Units are a thousand apart.
const FACTORS: [(i64, &str); 3] =
    [(1_000, "a thousand"), (1_000_000, "a million"), (1_000_000_000, "a thousand million")];

/// The event times that a table takes.
#[derive(Debug, Clone)]
pub(super) struct Window {
    now: i64,
    rules: Rules,
    /// Times for which nothing has to be asked.
    plain: std::ops::RangeInclusive<i64>,
    late_before: i64,
    early_after: i64,
}

impl Window {
    /// That of a table, for rows received now (microseconds).
    pub fn of(spec: &TableSpec, now: i64) -> Self {
        let rules = spec.rules.clone();
        let micros = |time: std::time::Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let bound = |action, bound, none| if action == Action::Accept { none } else { bound };
        let late_before = bound(rules.late, now.saturating_sub(micros(rules.late_after)), MIN_MICROS);
        let early_after = bound(rules.early, now.saturating_add(micros(rules.early_after)), MAX_MICROS);
        let (from, to) = match rules.wrong_unit {
            Action::Accept => (late_before, early_after),
            _ => (late_before.max(FIRST_YEAR.end), early_after),
        };
        Self { now, rules, plain: from..=to, late_before, early_after }
    }

    /// Why a row of this time is not taken; none if it is.
    pub fn check(&self, time: i64) -> Option<Fault> {
        if self.plain.contains(&time) { None } else { self.refuse(time) }
    }

    #[cold]
    fn refuse(&self, time: i64) -> Option<Fault> {
        let fault = |action, fault: Fault| match action {
            Action::Accept => None,
            Action::DeadLetter => Some(fault),
            Action::Reject => Some(fault.not_kept()),
        };
        if self.rules.wrong_unit != Action::Accept
            && let Some(wrong) = self.wrong_unit(time)
        {
            return fault(self.rules.wrong_unit, wrong);
        }
        if time < self.late_before {
            let after = humantime::format_duration(self.rules.late_after);
            return fault(
                self.rules.late,
                Fault::new(
                    "too_late",
                    format!("{} is more than {after} before the time of receipt, {}", shown(time), shown(self.now)),
                    "send it in time, or let the table take it: tables alter --late accept, or a longer --late-after",
                ),
            );
        }
        if time > self.early_after {
            let after = humantime::format_duration(self.rules.early_after);
            return fault(
                self.rules.early,
                Fault::new(
                    "too_early",
                    format!("{} is more than {after} after the time of receipt, {}", shown(time), shown(self.now)),
                    "check the sender's clock and time zone, or let the table take it: tables alter --early accept, or a longer --early-after",
                ),
            );
        }
        None
    }

    fn wrong_unit(&self, time: i64) -> Option<Fault> {
        let near =
            |time: i64| (self.now.saturating_sub(NEAR)..=self.now.saturating_add(2 * DAY_MICROS)).contains(&time);
        if !FIRST_YEAR.contains(&time) {
            return None;
        }
        let likely = |(factor, name): (i64, _)| Some((time.checked_mul(factor).filter(|time| near(*time))?, name));
        let (likely, name) = FACTORS.into_iter().find_map(likely)?;
        let (time, now, likely) = (shown(time), shown(self.now), shown(likely));
        Some(Fault::new(
            "wrong_time_unit",
            format!(
                "{time} is far from the time of receipt, {now}, and {name} times as much is {likely}: the unit seems to be another"
            ),
            "send times in the unit that the table says (tables show), or as RFC 3339 text; if such times are meant, tables alter \
             --wrong-unit accept",
        ))
    }
}

fn shown(micros: i64) -> String {
    let time = arrow::temporal_conversions::timestamp_us_to_datetime(micros);
    time.map_or_else(|| format!("{micros} us"), |time| format!("{}Z", time.format("%Y-%m-%dT%H:%M:%S")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DAY: i64 = DAY_MICROS;
    /// 2026-01-31T12:34:56Z
    const NOW: i64 = 1_769_862_896_000_000;

    fn window(rules: Rules) -> Window {
        Window::of(&TableSpec { rules, ..crate::schema::tests::every_type() }, NOW)
    }

    fn code(window: &Window, time: i64) -> Option<(&'static str, bool)> {
        window.check(time).map(|fault| (fault.code, fault.kept))
    }

    #[test]
    fn old_rows_are_taken_and_rows_far_ahead_are_not() {
        let window = window(Rules::default());
        for time in [NOW, NOW + 2 * DAY, NOW - 3_000 * DAY, MIN_MICROS, -1, 0, 1, FIRST_YEAR.end] {
            assert_eq!(code(&window, time), None, "{time}");
        }
        assert_eq!(code(&window, NOW + 2 * DAY + 1), Some(("too_early", true)));
        assert_eq!(code(&window, MAX_MICROS), Some(("too_early", true)));
        let fault = window.check(NOW + 3 * DAY).expect("should be too early");
        assert!(fault.detail.contains("2026-02-03T12:34:56Z") && fault.detail.contains("2days"), "{fault:?}");
        assert!(fault.help.contains("--early"), "{fault:?}");
    }

    #[test]
    fn a_wrong_unit_is_told_from_an_old_or_an_early_time() {
        let window = window(Rules::default());
        // Seconds and milliseconds as microseconds, seconds as milliseconds, nanoseconds as milliseconds are no times.
        for (time, likely) in
            [(NOW / 1_000_000, "a million"), (NOW / 1_000, "a thousand"), (NOW / 1_000_000_000, "a thousand million")]
        {
            let fault = window.check(time).expect("should be of another unit");
            assert_eq!(fault.code, "wrong_time_unit");
            assert!(fault.detail.contains(likely) && fault.detail.contains("2026-01-31"), "{fault:?}");
        }
        assert_eq!(code(&window, 31 * DAY), None, "February 1970 is a time like any other");
    }

    #[test]
    fn a_table_has_rules_of_its_own() {
        let rules = Rules {
            late: Action::Reject,
            late_after: Duration::from_secs(3_600),
            early: Action::DeadLetter,
            early_after: Duration::from_secs(60),
            wrong_unit: Action::Accept,
            ..Rules::default()
        };
        let strict = window(rules);
        assert_eq!(code(&strict, NOW - DAY / 24), None);
        assert_eq!(code(&strict, NOW - DAY / 24 - 1), Some(("too_late", false)));
        assert_eq!(code(&strict, NOW / 1_000), Some(("too_late", false)));
        assert_eq!(code(&strict, NOW + 60_000_001), Some(("too_early", true)));
        let any = window(Rules::any_time());
        assert!([MIN_MICROS, 0, NOW / 1_000, MAX_MICROS].into_iter().all(|time| any.check(time).is_none()));
        let no_late = window(Rules { late: Action::DeadLetter, ..Rules::default() });
        assert_eq!(code(&no_late, NOW - 8 * DAY), Some(("too_late", true)));
        assert_eq!(code(&no_late, NOW / 1_000), Some(("wrong_time_unit", true)), "the more telling reason comes first");
    }
}
