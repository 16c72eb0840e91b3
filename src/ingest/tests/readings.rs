use crate::ingest::base64;
use crate::ingest::number::{NumberError, decimal, double, float, integer};
use crate::ingest::reject::excerpt;
use crate::ingest::text_time::{Time, date, epoch, timestamp};
use crate::schema::TimeUnit;

#[test]
fn integers_are_exact_or_refused() {
    assert_eq!(integer::<i64>("9223372036854775807"), Ok(i64::MAX));
    assert_eq!(integer::<i64>("-9223372036854775808"), Ok(i64::MIN));
    assert_eq!(integer::<i64>("9223372036854775808"), Err(NumberError::Range));
    assert_eq!(integer::<i64>("-0"), Ok(0));
    assert_eq!(integer::<i64>("1.0"), Ok(1));
    assert_eq!(integer::<i64>("1.5e1"), Ok(15));
    assert_eq!(integer::<i64>("1e18"), Ok(1_000_000_000_000_000_000));
    assert_eq!(integer::<i64>("1e19"), Err(NumberError::Range));
    assert_eq!(integer::<i64>("1200e-2"), Ok(12));
    assert_eq!(integer::<i64>("1.5"), Err(NumberError::Inexact));
    assert_eq!(integer::<i64>("9007199254740993.0"), Ok(9_007_199_254_740_993));
    assert_eq!(integer::<i64>("1.00000000000000000001"), Err(NumberError::Inexact));
    assert_eq!(integer::<i64>("1e999999999999"), Err(NumberError::Range));
    assert_eq!(integer::<i64>("1e-999999999999"), Err(NumberError::Inexact));
    assert_eq!(integer::<i64>("0e999999999999"), Ok(0));
    assert_eq!(integer::<i32>("2147483648"), Err(NumberError::Range));
    assert_eq!(integer::<i64>(&"9".repeat(10_000)), Err(NumberError::Range));
    assert_eq!(integer::<i64>(&format!("0.{}", "0".repeat(10_000))), Ok(0));
}

#[test]
fn only_json_numbers_are_numbers() {
    for text in
        ["", "-", "+1", "01", "1.", ".5", "1e", "1e+", "0x10", "1_000", "NaN", "Infinity", " 1", "1 ", "--1", "1.2.3"]
    {
        assert_eq!(integer::<i64>(text), Err(NumberError::Syntax), "{text:?}");
    }
}

#[test]
fn doubles_hold_whole_numbers_exactly_or_not_at_all() {
    assert_eq!(double("9007199254740992"), Ok(9_007_199_254_740_992.0));
    assert_eq!(double("-9007199254740992"), Ok(-9_007_199_254_740_992.0));
    assert_eq!(double("9007199254740993"), Err(NumberError::Inexact));
    assert_eq!(double("18446744073709551615"), Err(NumberError::Inexact));
    assert_eq!(double(&"9".repeat(60)), Err(NumberError::Inexact));
    assert_eq!(double("0.1"), Ok(0.1));
    assert_eq!(double("2.2250738585072014e-308"), Ok(2.225_073_858_507_201_4e-308));
    assert_eq!(double("1e400"), Err(NumberError::Range));
    assert_eq!(float("16777216"), Ok(16_777_216.0));
    assert_eq!(float("16777217"), Err(NumberError::Inexact));
    assert_eq!(float("1e39"), Err(NumberError::Range));
}

#[test]
fn decimals_keep_every_digit() {
    assert_eq!(decimal("12345678901234567890.12", 22, 2), Ok(1_234_567_890_123_456_789_012));
    assert_eq!(decimal("1.2", 10, 2), Ok(120));
    assert_eq!(decimal("1.20000", 10, 2), Ok(120));
    assert_eq!(decimal("-1.234", 10, 2), Err(NumberError::Inexact));
    assert_eq!(decimal("18446744073709551615", 20, 0), Ok(18_446_744_073_709_551_615));
    assert_eq!(decimal("100000000000000000000", 20, 0), Err(NumberError::Range));
    assert_eq!(decimal("99999999999999999999999999999999999999", 38, 0), Ok(10_i128.pow(38) - 1));
    assert_eq!(decimal("100000000000000000000000000000000000000", 38, 0), Err(NumberError::Range));
}

fn at(text: &str) -> i64 {
    let time = timestamp(text).unwrap_or_else(|f| panic!("{text}: {f:?}"));
    assert_eq!(time.nanos, 0, "{text}");
    time.micros
}

#[test]
fn timestamps_are_utc_to_the_microsecond() {
    assert_eq!(at("1970-01-01T00:00:00Z"), 0);
    assert_eq!(at("2026-01-31T12:34:56Z"), 1_769_862_896_000_000);
    assert_eq!(at("2026-01-31T12:34:56.789Z"), 1_769_862_896_789_000);
    assert_eq!(at("2026-01-31T12:34:56.789012Z"), 1_769_862_896_789_012);
    assert_eq!(at("2026-01-31T12:34:56.789012000Z"), 1_769_862_896_789_012);
    assert_eq!(at("2026-01-31t14:34:56+02:00"), 1_769_862_896_000_000);
    assert_eq!(at("2026-01-31T07:04:56-05:30"), 1_769_862_896_000_000);
    assert_eq!(at("2026-01-31T14:34:56+0200"), 1_769_862_896_000_000);
    assert_eq!(at("2026-01-31T14:34:56+02"), 1_769_862_896_000_000);
    assert_eq!(at("2026-01-31 12:34:56"), 1_769_862_896_000_000);
    assert_eq!(at("2026-01-31 12:34:56.5"), 1_769_862_896_500_000);
    assert_eq!(at("1969-12-31T23:59:59.999999Z"), -1);
    assert_eq!(at("0001-01-01T00:00:00Z"), crate::schema::time::MIN_MICROS);
    assert_eq!(at("9999-12-31T23:59:59.999999Z"), crate::schema::time::MAX_MICROS);
}

#[test]
fn what_is_no_timestamp_is_refused() {
    for text in [
        "",
        "now",
        "2026-01-31",
        "2026-01-31T12:34Z",
        "2026-1-31T12:34:56Z",
        "2026-02-30T00:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T12:60:00Z",
        "2026-01-31T23:59:60Z",
        "2026-01-31T12:34:56.Z",
        "2026-01-31T12:34:56 Z",
        "2026-01-31T12:34:56+2:00",
        "2026-01-31T12:34:56+02:",
        "2026-01-31T12:34:56+02:60",
        "2026-01-31T12:34:56Zx",
        " 2026-01-31T12:34:56Z",
        "20260131T123456Z",
        "+2026-01-31T12:34:56Z",
        "2026-01-31T12:34:56é",
    ] {
        assert_eq!(timestamp(text).unwrap_err().code, "invalid_timestamp", "{text:?}");
    }
    assert_eq!(timestamp("2023-11-14T22:13:20.3352264121Z").unwrap_err().code, "below_nanosecond");
    assert_eq!(timestamp("0001-01-01T00:00:00+00:01").unwrap_err().code, "out_of_range");
    assert_eq!(timestamp("9999-12-31T23:59:59.999999-00:01").unwrap_err().code, "out_of_range");
    assert_eq!(timestamp("0000-12-31T00:00:00Z").unwrap_err().code, "invalid_timestamp");
}

#[test]
fn epochs_convert_exactly_or_are_refused() {
    assert_eq!(epoch("1700000000", TimeUnit::S), Ok(Time { micros: 1_700_000_000_000_000, nanos: 0 }));
    assert_eq!(epoch("1700000000.335226", TimeUnit::S), Ok(Time { micros: 1_700_000_000_335_226, nanos: 0 }));
    assert_eq!(epoch("1700000000335", TimeUnit::Ms), Ok(Time { micros: 1_700_000_000_335_000, nanos: 0 }));
    assert_eq!(epoch("1700000000335226", TimeUnit::Us), Ok(Time { micros: 1_700_000_000_335_226, nanos: 0 }));
    assert_eq!(epoch("1700000000335226000", TimeUnit::Ns), Ok(Time { micros: 1_700_000_000_335_226, nanos: 0 }));
    assert_eq!(epoch("-1000", TimeUnit::Ns), Ok(Time { micros: -1, nanos: 0 }));
    assert_eq!(epoch("0", TimeUnit::Ns), Ok(Time { micros: 0, nanos: 0 }));
    let time = Time { micros: 1_700_000_000_335_226, nanos: 412 };
    assert_eq!(epoch("1700000000335226412", TimeUnit::Ns), Ok(time));
    assert_eq!(epoch("1700000000.335226412", TimeUnit::S), Ok(time));
    assert_eq!(timestamp("2023-11-14T22:13:20.335226412Z"), Ok(time));
    assert_eq!(epoch("-1", TimeUnit::Ns), Ok(Time { micros: -1, nanos: 999 }));
    assert_eq!(timestamp("1969-12-31T23:59:59.999999999Z"), Ok(Time { micros: -1, nanos: 999 }));
    assert_eq!(time.whole("a time").unwrap_err().code, "timestamp_precision");
    assert_eq!(epoch("1700000000335226412.5", TimeUnit::Ns).unwrap_err().code, "below_nanosecond");
    assert_eq!(epoch("1700000000.3352264125", TimeUnit::S).unwrap_err().code, "below_nanosecond");
    assert_eq!(epoch("1700000000335226412", TimeUnit::S).unwrap_err().code, "out_of_range");
    assert_eq!(epoch("1e300", TimeUnit::S).unwrap_err().code, "out_of_range");
}

#[test]
fn dates_are_days_that_exist() {
    assert_eq!(date("1970-01-01"), Ok(0));
    assert_eq!(date("2024-02-29"), Ok(19_782));
    for text in
        ["2023-02-29", "2024-13-01", "2024-1-1", "24-01-01", "2024-01-01T00:00:00Z", "", "0000-01-01", "10000-01-01"]
    {
        assert_eq!(date(text).unwrap_err().code, "invalid_date", "{text:?}");
    }
}

#[test]
fn base64_is_decoded_or_refused() {
    let cases: [(&str, &[u8]); 8] = [
        ("", b""),
        ("Zg==", b"f"),
        ("Zg", b"f"),
        ("Zm8=", b"fo"),
        ("Zm8", b"fo"),
        ("Zm9v", b"foo"),
        ("Zm9vYg==", b"foob"),
        ("+/+/", &[0xfb, 0xff, 0xbf]),
    ];
    for (text, bytes) in cases {
        assert_eq!(base64::decode(text).as_deref(), Some(bytes), "{text:?}");
    }
    for text in ["Z", "Zg=", "Zg===", "Zh==", "Zm9", "Zm 9v", "Zm9v\n", "-_-_", "=", "====", "Zg==Zg==", "é"] {
        assert_eq!(base64::decode(text), None, "{text:?}");
    }
    let all: Vec<u8> = (0..=255).collect();
    let text = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==";
    assert_eq!(base64::decode(text).unwrap(), all[..64]);
    assert_eq!(base64::encode(&all[..64]), text);
    for len in 0..8 {
        assert_eq!(base64::decode(&base64::encode(&all[..len])).unwrap(), all[..len]);
    }
}

#[test]
fn excerpts_are_short_and_end_between_characters() {
    assert_eq!(excerpt("short"), "short");
    assert_eq!(excerpt(&"x".repeat(80)), "x".repeat(80));
    assert_eq!(excerpt(&"é".repeat(81)).chars().count(), 80);
    assert_eq!(excerpt(&"é".repeat(100_000)).chars().count(), 80);
}
