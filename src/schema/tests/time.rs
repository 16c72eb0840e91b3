use penstock_store::Bucket;

use crate::schema::time::{DAY_MICROS, MAX_DAYS, MAX_MICROS, MIN_DAYS, MIN_MICROS, bucket_of, date_of, days_of_civil};

const HOUR: i64 = 3_600_000_000;

#[test]
fn a_bucket_starts_at_a_multiple_of_its_width() {
    assert_eq!(bucket_of(0, HOUR), Bucket { start: 0, width: HOUR });
    assert_eq!(bucket_of(HOUR - 1, HOUR).start, 0);
    assert_eq!(bucket_of(HOUR, HOUR).start, HOUR);
}

#[test]
fn before_1970_a_bucket_still_starts_before_its_rows() {
    assert_eq!(bucket_of(-1, HOUR).start, -HOUR);
    assert_eq!(bucket_of(-HOUR, HOUR).start, -HOUR);
    assert_eq!(bucket_of(-HOUR - 1, HOUR).start, -2 * HOUR);
}

#[test]
fn every_time_lies_in_its_bucket_and_the_bucket_in_one_day() {
    for width in [1_000_000, 60_000_000, HOUR, 6 * HOUR, DAY_MICROS] {
        for micros in [MIN_MICROS, -DAY_MICROS - 1, -1, 0, 1, 1_700_000_000_335_226, MAX_MICROS] {
            let bucket = bucket_of(micros, width);
            assert!(bucket.start <= micros && micros < bucket.end());
            assert_eq!(date_of(bucket.start), date_of(micros));
            assert_eq!(date_of(bucket.end() - 1), date_of(micros));
        }
    }
}

#[test]
fn the_ends_of_the_range_do_not_overflow() {
    assert!(bucket_of(i64::MIN, HOUR).start <= i64::MIN + HOUR);
    assert!(bucket_of(i64::MAX, HOUR).start > i64::MAX - HOUR);
    assert_eq!(bucket_of(i64::MAX, HOUR).end(), i64::MAX);
}

#[test]
fn dates_are_those_of_utc() {
    assert_eq!(date_of(0), 0);
    assert_eq!(date_of(-1), -1);
    assert_eq!(date_of(DAY_MICROS - 1), 0);
    assert_eq!(date_of(MIN_MICROS), MIN_DAYS);
    assert_eq!(date_of(MAX_MICROS), MAX_DAYS);
}

#[test]
fn civil_days_follow_the_calendar() {
    assert_eq!(days_of_civil(1970, 1, 1), Some(0));
    assert_eq!(days_of_civil(1969, 12, 31), Some(-1));
    assert_eq!(days_of_civil(2000, 2, 29), Some(11_016));
    assert_eq!(days_of_civil(2026, 1, 31), Some(20_484));
    assert_eq!(days_of_civil(1, 1, 1), Some(MIN_DAYS));
    assert_eq!(days_of_civil(9_999, 12, 31), Some(MAX_DAYS));
    for (year, month, day) in [(1900, 2, 29), (2023, 2, 29), (2024, 2, 30), (2024, 4, 31), (2024, 13, 1), (2024, 0, 1)]
    {
        assert_eq!(days_of_civil(year, month, day), None);
    }
    assert_eq!(days_of_civil(0, 1, 1), None);
    assert_eq!(days_of_civil(10_000, 1, 1), None);
}

#[test]
fn civil_days_count_every_day_once() {
    let mut expected = MIN_DAYS;
    for year in 1..=9_999 {
        for month in 1..=12 {
            for day in 1..=31 {
                if let Some(days) = days_of_civil(year, month, day) {
                    assert_eq!(days, expected);
                    expected += 1;
                }
            }
        }
    }
    assert_eq!(expected, MAX_DAYS + 1);
}
