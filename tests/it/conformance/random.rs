//! Cases by chance: tables of random types, and rows of random values that fit them, as another reader has to find them.

use std::fmt::Write;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};

use super::case::{Case, Column, Expected, Fate, Protocol};

const TABLES: u64 = 24;
const ROWS: usize = 30;
/// 0001-01-01 and 9999-12-31, in days since 1970.
const DAYS: std::ops::Range<i64> = -719_162..2_932_897;
const MIN_MICROS: i64 = -62_135_596_800_000_000;
const MAX_MICROS: i64 = 253_402_300_799_999_999;
const DAY_MICROS: i64 = 86_400_000_000;

/// Cases of a seed; each takes the seed's number as its line.
pub fn cases(seed: u64) -> Vec<Case> {
    (seed..seed + TABLES).map(case).collect()
}

fn case(seed: u64) -> Case {
    let mut random = StdRng::seed_from_u64(seed);
    let count = random.random_range(1..6);
    let columns: Vec<Column> = (0..count)
        .map(|at| Column { name: format!("c{at}"), kind: kind(&mut random, 3), nullable: random.random_bool(0.8) })
        .collect();
    let (mut rows, mut fates) = (Vec::new(), Vec::new());
    for _ in 0..ROWS {
        let mut row = Map::new();
        for column in &columns {
            let value = value(&mut random, &column.kind, column.nullable);
            row.insert(column.name.clone(), value);
        }
        rows.push(&*Value::Object(row.clone()).to_string().leak());
        fates.push(Fate::Read(Value::Object(row)));
    }
    Case {
        line: usize::try_from(seed).expect("should be small"),
        name: "random",
        protocols: vec![Protocol::Ndjson, Protocol::Json, Protocol::Arrow],
        arrow: None,
        columns: Some(columns),
        settings: Vec::new(),
        after: None,
        rows,
        expected: Expected::Rows(fates),
    }
}

fn kind(random: &mut StdRng, depth: usize) -> String {
    const PLAIN: [&str; 9] = ["boolean", "int", "long", "float", "double", "string", "binary", "date", "timestamp"];
    match random.random_range(0..if depth > 1 { 14 } else { 10 }) {
        9 => {
            let precision = random.random_range(1..=38);
            format!("decimal({precision},{})", random.random_range(0..=precision))
        }
        10 | 11 => format!("list<{}>", kind(random, depth - 1)),
        12 => format!("map<string,{}>", kind(random, depth - 1)),
        13 => {
            let fields: Vec<String> =
                (0..random.random_range(1..4)).map(|at| format!("f{at}:{}", kind(random, depth - 1))).collect();
            format!("struct<{}>", fields.join(","))
        }
        plain => PLAIN[plain].to_owned(),
    }
}

fn value(random: &mut StdRng, kind: &str, nullable: bool) -> Value {
    if nullable && random.random_bool(0.15) {
        return Value::Null;
    }
    let inner = |name: &str| kind.strip_prefix(name).and_then(|rest| rest.strip_prefix('<')?.strip_suffix('>'));
    if let Some(item) = inner("list") {
        return (0..random.random_range(0..4)).map(|_| value(random, item, true)).collect();
    }
    if let Some(item) = inner("map").and_then(|inner| inner.strip_prefix("string,")) {
        let entries = (0..random.random_range(0..4)).map(|_| (text(random), value(random, item, true)));
        return Value::Object(entries.collect());
    }
    if let Some(fields) = inner("struct") {
        let fields = super::sent::fields_of(fields).into_iter();
        return Value::Object(fields.map(|(name, kind)| (name.to_owned(), value(random, kind, true))).collect());
    }
    plain(random, kind)
}

fn plain(random: &mut StdRng, kind: &str) -> Value {
    match kind {
        "boolean" => json!(random.random::<bool>()),
        "int" => json!(edgy(random, i32::MIN.into(), i32::MAX.into())),
        "long" => json!(edgy(random, i64::MIN, i64::MAX)),
        "float" => float(random, |random| f64::from(f32::from_bits(random.random()))),
        "double" => float(random, |random| f64::from_bits(random.random())),
        "string" => json!(text(random)),
        "binary" => {
            let bytes: Vec<u8> = (0..random.random_range(0..40)).map(|_| random.random()).collect();
            json!(base64(&bytes))
        }
        "date" => json!(date(edgy(random, DAYS.start, DAYS.end - 1))),
        "timestamp" => json!(time(edgy(random, MIN_MICROS, MAX_MICROS))),
        decimal => json!(digits(random, decimal)),
    }
}

/// A number in the range: often small, or at an end of it.
fn edgy(random: &mut StdRng, min: i64, max: i64) -> i64 {
    match random.random_range(0..5) {
        0 => min + random.random_range(0..3),
        1 => max - random.random_range(0..3),
        2 => random.random_range(-5..5),
        _ => random.random_range(min..=max),
    }
}

fn float(random: &mut StdRng, any: impl Fn(&mut StdRng) -> f64) -> Value {
    match any(random) {
        _ if random.random_bool(0.2) => json!(f64::from(random.random_range(-1_000..1_000)) / 8.0),
        nan if nan.is_nan() => json!("NaN"),
        infinite if infinite.is_infinite() => json!(if infinite > 0.0 { "Infinity" } else { "-Infinity" }),
        finite => json!(finite),
    }
}

fn text(random: &mut StdRng) -> String {
    const ODD: [&str; 12] = ["", "\"", "\\", "\n", "\0", "é", "😀", "\u{feff}", "{", "null", "\u{7f}", "\u{2028}"];
    let mut text = String::new();
    for _ in 0..random.random_range(0..12) {
        match random.random_range(0..4) {
            0 => text.push_str(ODD[random.random_range(0..ODD.len())]),
            1 => text.extend(char::from_u32(random.random_range(0..0x11_0000))),
            _ => text.push(random.random_range('a'..='z')),
        }
    }
    text
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0_usize, |bits, at| bits << 8 | usize::from(*group.get(at).unwrap_or(&0)));
        for digit in 0..4 {
            text.push(if digit <= group.len() { DIGITS[bits >> (18 - 6 * digit) & 63].into() } else { '=' });
        }
    }
    text
}

/// As humantime says it, which ends before 1970: the calendar repeats itself every 400 years, of 146,097 days.
fn date(days: i64) -> String {
    let eras = (-days).max(0).div_euclid(146_097) + i64::from(days < 0);
    let later = u64::try_from(days + eras * 146_097).expect("should be after 1970");
    let text =
        humantime::format_rfc3339(std::time::UNIX_EPOCH + std::time::Duration::from_secs(later * 86_400)).to_string();
    let year: i64 = text[..4].parse().expect("should be a year");
    format!("{:04}{}", year - eras * 400, &text[4..10])
}

fn time(micros: i64) -> String {
    let (days, of_day) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
    let (seconds, fraction) = (of_day / 1_000_000, of_day % 1_000_000);
    let fraction = format!(".{fraction:06}");
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    format!("{}T{:02}:{:02}:{:02}{fraction}Z", date(days), seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

fn digits(random: &mut StdRng, kind: &str) -> String {
    let inner = kind.trim_start_matches("decimal(").trim_end_matches(')');
    let (precision, scale) = inner.split_once(',').expect("should be a decimal type");
    let precision: usize = precision.parse().expect("should be a number");
    let scale: usize = scale.parse().expect("should be a number");
    let mut digits = String::new();
    for _ in 0..random.random_range(1..=precision) {
        write!(digits, "{}", random.random_range(0..10)).expect("should be written");
    }
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let number = if scale == 0 { whole.to_owned() } else { format!("{whole}.{fraction}") };
    let is_zero = number.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    if !is_zero && random.random() { format!("-{number}") } else { number }
}
