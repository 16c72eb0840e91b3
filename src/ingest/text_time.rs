//! Times and dates from text and from epoch numbers, exact to the nanosecond or refused.

use crate::schema::time::{DAY_MICROS, MAX_MICROS, MIN_MICROS, days_of_civil};
use crate::schema::{EventTime, TableSpec, TimeUnit};

use super::number::{Exact, NumberError};
use super::reject::{Fault, excerpt};

/// Digits of a second's fraction that can be kept.
const NANO_DIGITS: usize = 9;

const NANOS: i128 = 1_000;
const MINUTE_MICROS: i64 = 60_000_000;
const HOUR_MICROS: i64 = 60 * MINUTE_MICROS;

/// A time, to the nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time {
    /// Floored, also before 1970.
    pub micros: i64,
    /// 0 to 999 nanoseconds behind them.
    pub nanos: i32,
}

impl Time {
    /// A time of nanoseconds since the epoch; `shown` is how it came.
    fn of_nanos(nanos: i128, shown: &str) -> Result<Self, Fault> {
        let micros = i64::try_from(nanos.div_euclid(NANOS)).unwrap_or(i64::MAX);
        let rest = i32::try_from(nanos.rem_euclid(NANOS)).unwrap_or(0);
        Ok(Self { micros: in_range(micros, shown)?, nanos: rest })
    }

    /// Its microseconds, if it has nothing below.
    pub fn whole(self, shown: &str) -> Result<i64, Fault> {
        if self.nanos == 0 { Ok(self.micros) } else { Err(Fault::timestamp_precision(shown)) }
    }
}

/// How numbers in a timestamp column are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Epochs {
    /// Not at all: an event time whose table says no unit.
    None,
    /// In the unit of the table's event time.
    Unit(TimeUnit),
    /// As microseconds, in every timestamp column but the event time.
    Micros,
}

impl Epochs {
    /// The rule for a column of a table.
    pub fn of(spec: &TableSpec, column: &str) -> Self {
        match &spec.event_time {
            EventTime::Column { name, unit } if name == column => unit.map_or(Self::None, Self::Unit),
            _ => Self::Micros,
        }
    }

    /// A number's time.
    pub fn read_number(self, text: &str) -> Result<Time, Fault> {
        match self {
            Self::Micros => epoch(text, TimeUnit::Us),
            Self::Unit(unit) => epoch(text, unit),
            Self::None => Err(Fault::new(
                "time_unit_needed",
                format!("{} is an epoch number, and the table says no unit", excerpt(text)),
                "say it with ?time_unit=s|ms|us|ns in the post that creates the table, or declare the table",
            )),
        }
    }

    /// A text's time. Where the table says a unit, digits alone are an epoch number that came as a
    /// string, as 64-bit numbers do; elsewhere they might as well be a date without its hyphens.
    pub fn read_text(self, text: &str) -> Result<Time, Fault> {
        match self {
            Self::Unit(unit) if is_integer(text) => epoch(text, unit),
            _ => timestamp(text),
        }
    }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A timestamp: RFC 3339, with a space in place of `T` as well, UTC where it has no offset.
pub(super) fn timestamp(text: &str) -> Result<Time, Fault> {
    let mut rest = Cursor(text.as_bytes());
    let parsed = read_timestamp(&mut rest).filter(|_| rest.0.is_empty());
    match parsed {
        None => Err(Fault::new(
            "invalid_timestamp",
            format!("{:?} is not a timestamp", excerpt(text)),
            "send RFC 3339, as in 2026-01-31T12:34:56.789Z or with an offset such as +02:00",
        )),
        Some((_, false)) => Err(Fault::below_nanosecond(text)),
        Some((nanos, true)) => Time::of_nanos(nanos, text),
    }
}

/// The time again, if it lies in the years 1 to 9999.
pub(super) fn in_range(micros: i64, shown: &str) -> Result<i64, Fault> {
    if (MIN_MICROS..=MAX_MICROS).contains(&micros) {
        return Ok(micros);
    }
    Err(Fault::new(
        "out_of_range",
        format!("{} is outside the years 0001 to 9999", excerpt(shown)),
        "check the unit of the number: ?time_unit= takes s, ms, us or ns",
    ))
}

/// An epoch number's time.
pub(super) fn epoch(text: &str, unit: TimeUnit) -> Result<Time, Fault> {
    let power = match unit {
        TimeUnit::S => 9,
        TimeUnit::Ms => 6,
        TimeUnit::Us => 3,
        TimeUnit::Ns => 0,
    };
    match Exact::parse(text).and_then(|n| n.scaled(power)) {
        Err(NumberError::Inexact) => Err(Fault::below_nanosecond(text)),
        Err(NumberError::Syntax) => Err(Fault::type_mismatch(&excerpt(text), "timestamp")),
        Err(NumberError::Range) => Time::of_nanos(i128::MAX, text),
        Ok(nanos) => Time::of_nanos(nanos, text),
    }
}

/// A date `YYYY-MM-DD` in days since the epoch.
pub(super) fn date(text: &str) -> Result<i32, Fault> {
    let mut rest = Cursor(text.as_bytes());
    rest.date().filter(|_| rest.0.is_empty()).ok_or_else(|| {
        Fault::new(
            "invalid_date",
            format!("{:?} is not a date", excerpt(text)),
            "send YYYY-MM-DD, a day that exists, in the years 0001 to 9999",
        )
    })
}

/// Nanoseconds, and whether the text has nothing but zeros behind them.
fn read_timestamp(rest: &mut Cursor<'_>) -> Option<(i128, bool)> {
    let days = i64::from(rest.date()?);
    rest.one_of(b"Tt ")?;
    let hour = rest.two_digits(23)?;
    rest.one_of(b":")?;
    let minute = rest.two_digits(59)?;
    rest.one_of(b":")?;
    let second = rest.two_digits(59)?;
    let (fraction, exact) = if rest.one_of(b".").is_some() { rest.fraction()? } else { (0, true) };
    let offset = rest.offset()?;
    let of_day = hour * HOUR_MICROS + minute * MINUTE_MICROS + second * 1_000_000;
    Some((i128::from(days * DAY_MICROS + of_day - offset) * NANOS + i128::from(fraction), exact))
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn one_of(&mut self, bytes: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        bytes.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }

    fn digit(&mut self) -> Option<i64> {
        self.one_of(b"0123456789").map(|b| i64::from(b - b'0'))
    }

    fn two_digits(&mut self, max: i64) -> Option<i64> {
        let value = self.digit()? * 10 + self.digit()?;
        (value <= max).then_some(value)
    }

    fn date(&mut self) -> Option<i32> {
        let year = self.two_digits(99)? * 100 + self.two_digits(99)?;
        self.one_of(b"-")?;
        let month = self.two_digits(12)?;
        self.one_of(b"-")?;
        let day = self.two_digits(31)?;
        days_of_civil(i32::try_from(year).ok()?, u32::try_from(month).ok()?, u32::try_from(day).ok()?)
    }

    fn fraction(&mut self) -> Option<(i64, bool)> {
        let (mut nanos, mut places, mut exact) = (0, 0, true);
        while let Some(digit) = self.digit() {
            if places < NANO_DIGITS {
                nanos = nanos * 10 + digit;
            } else {
                exact &= digit == 0;
            }
            places += 1;
        }
        if places == 0 {
            return None;
        }
        let missing = u32::try_from(NANO_DIGITS.saturating_sub(places)).ok()?;
        Some((nanos * 10_i64.pow(missing), exact))
    }

    /// `Z`, `+hh:mm`, `+hhmm`, `+hh`, or nothing.
    fn offset(&mut self) -> Option<i64> {
        if self.0.is_empty() || self.one_of(b"Zz").is_some() {
            return Some(0);
        }
        let sign = if self.one_of(b"+-")? == b'-' { -1 } else { 1 };
        let hours = self.two_digits(23)?;
        let colon = self.one_of(b":").is_some();
        let minutes = if self.0.is_empty() && !colon { 0 } else { self.two_digits(59)? };
        Some(sign * (hours * HOUR_MICROS + minutes * MINUTE_MICROS))
    }
}
