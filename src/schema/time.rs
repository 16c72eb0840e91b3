//! The bucket and the date of an event time, by UTC alone: neither the process's time zone nor a session's matters.

use penstock_store::Bucket;

/// Microseconds of a day.
pub const DAY_MICROS: i64 = 86_400_000_000;

/// 0001-01-01T00:00:00Z in microseconds: the earliest timestamp a table takes.
pub const MIN_MICROS: i64 = -62_135_596_800_000_000;

/// 9999-12-31T23:59:59.999999Z in microseconds: the latest timestamp a table takes.
pub const MAX_MICROS: i64 = 253_402_300_799_999_999;

/// 0001-01-01 in days since the epoch.
pub const MIN_DAYS: i32 = -719_162;

/// 9999-12-31 in days since the epoch.
pub const MAX_DAYS: i32 = 2_932_896;

/// The bucket of `width_micros` (positive) that holds `micros`. Floors, so that times before 1970 fall into the
/// bucket that starts before them.
pub fn bucket_of(micros: i64, width_micros: i64) -> Bucket {
    debug_assert!(width_micros > 0, "a bucket has a positive width");
    Bucket { start: micros.saturating_sub(micros.rem_euclid(width_micros)), width: width_micros }
}

/// The UTC date of a time, in days since the epoch.
pub fn date_of(micros: i64) -> i32 {
    let days = micros.div_euclid(DAY_MICROS);
    i32::try_from(days).expect("an i64 of microseconds should span fewer than 2^31 days")
}

/// Days since the epoch of a date in the proleptic Gregorian calendar; none if there is no such date.
pub fn days_of_civil(year: i32, month: u32, day: u32) -> Option<i32> {
    if !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) || !(1..=9_999).contains(&year) {
        return None;
    }
    // Counted from March, so that the leap day is the last day of a year.
    let (month, day) = (month.cast_signed(), day.cast_signed());
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

fn days_in_month(year: i32, month: u32) -> u32 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
