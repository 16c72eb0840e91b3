//! Times and dates from text and from epoch numbers, exact to the microsecond or refused.

use crate::schema::time::{DAY_MICROS, MAX_MICROS, MIN_MICROS, days_of_civil};
use crate::schema::{EventTime, TableSpec, TimeUnit};

use super::number::{Exact, NumberError};
use super::reject::{Fault, excerpt};

/// Digits of a second's fraction that a table keeps.
const MICRO_DIGITS: usize = 6;

const MINUTE_MICROS: i64 = 60_000_000;
const HOUR_MICROS: i64 = 60 * MINUTE_MICROS;

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

    /// A number's time in microseconds.
    pub fn read_number(self, text: &str) -> Result<i64, Fault> {
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

    /// A text's time in microseconds. Where the table says a unit, digits alone are an epoch number that came as a
    /// string, as 64-bit numbers do; elsewhere they might as well be a date without its hyphens.
    pub fn read_text(self, text: &str) -> Result<i64, Fault> {
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

/// A timestamp in microseconds: RFC 3339, with a space in place of `T` as well, UTC where it has no offset.
pub(super) fn timestamp(text: &str) -> Result<i64, Fault> {
    let mut rest = Cursor(text.as_bytes());
    let parsed = read_timestamp(&mut rest).filter(|_| rest.0.is_empty());
    match parsed {
        None => Err(Fault::new(
            "invalid_timestamp",
            format!("{:?} is not a timestamp", excerpt(text)),
            "send RFC 3339, as in 2026-01-31T12:34:56.789Z or with an offset such as +02:00",
        )),
        Some((_, false)) => Err(Fault::timestamp_precision(text)),
        Some((micros, true)) => in_range(micros, text),
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

/// An epoch number in microseconds.
pub(super) fn epoch(text: &str, unit: TimeUnit) -> Result<i64, Fault> {
    let power = match unit {
        TimeUnit::S => 6,
        TimeUnit::Ms => 3,
        TimeUnit::Us => 0,
        TimeUnit::Ns => -3,
    };
    match Exact::parse(text).and_then(|n| n.scaled(power)) {
        Err(NumberError::Inexact) => Err(Fault::timestamp_precision(text)),
        Err(NumberError::Syntax) => Err(Fault::type_mismatch(&excerpt(text), "timestamp")),
        Err(NumberError::Range) => in_range(i64::MAX, text),
        Ok(micros) => in_range(i64::try_from(micros).unwrap_or(i64::MAX), text),
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

/// Microseconds, and whether the text has nothing but zeros behind them.
fn read_timestamp(rest: &mut Cursor<'_>) -> Option<(i64, bool)> {
    let days = i64::from(rest.date()?);
    rest.one_of(b"Tt ")?;
    let hour = rest.two_digits(23)?;
    rest.one_of(b":")?;
    let minute = rest.two_digits(59)?;
    rest.one_of(b":")?;
    let second = rest.two_digits(59)?;
    let (fraction, exact) = if rest.one_of(b".").is_some() { rest.fraction()? } else { (0, true) };
    let offset = rest.offset()?;
    let of_day = hour * HOUR_MICROS + minute * MINUTE_MICROS + second * 1_000_000 + fraction;
    Some((days * DAY_MICROS + of_day - offset, exact))
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
        let (mut micros, mut places, mut exact) = (0, 0, true);
        while let Some(digit) = self.digit() {
            if places < MICRO_DIGITS {
                micros = micros * 10 + digit;
            } else {
                exact &= digit == 0;
            }
            places += 1;
        }
        if places == 0 {
            return None;
        }
        let missing = u32::try_from(MICRO_DIGITS.saturating_sub(places)).ok()?;
        Some((micros * 10_i64.pow(missing), exact))
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
