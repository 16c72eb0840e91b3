//! A row of a stream as JSON, so that it can be kept with those that came as JSON, and sent again as they are. Nulls are left out.
//! Values are written as the JSON decoder reads them: exact numbers, times in UTC, base64.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Float16Type, Float32Type, Float64Type, Schema, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow::util::display::array_value_to_string;
use bytes::Bytes;

use crate::ingest::base64;

/// Deepest nesting that is written; types are bounded before.
const MAX_DEPTH: usize = 64;

/// A row of these columns, which are plain.
pub(in crate::ingest) fn row(schema: &Schema, columns: &[ArrayRef], row: usize) -> Bytes {
    let mut out = String::new();
    let fields = schema.fields().iter().zip(columns);
    object(&mut out, fields.map(|(field, column)| (field.name().as_str(), column.as_ref())), row, MAX_DEPTH);
    Bytes::from(out)
}

/// A value of a plain column.
pub(super) fn of(array: &dyn Array, row: usize) -> String {
    let mut out = String::new();
    value(&mut out, array, row, MAX_DEPTH);
    out
}

fn object<'a>(out: &mut String, fields: impl Iterator<Item = (&'a str, &'a dyn Array)>, row: usize, depth: usize) {
    out.push('{');
    let mut first = true;
    for (name, column) in fields.filter(|(_, column)| !is_null(*column, row)) {
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        text(out, name);
        out.push(':');
        value(out, column, row, depth);
    }
    out.push('}');
}

pub(super) fn is_null(array: &dyn Array, row: usize) -> bool {
    match array.data_type() {
        DataType::Null => true,
        // Of this row alone: for all of them it is worked out anew each time.
        DataType::Dictionary(_, _) => array.slice(row, 1).logical_nulls().is_some_and(|nulls| nulls.is_null(0)),
        _ => array.is_null(row),
    }
}

fn text(out: &mut String, value: &str) {
    out.push_str(&serde_json::Value::from(value).to_string());
}

fn value(out: &mut String, array: &dyn Array, row: usize, depth: usize) {
    if depth == 0 || is_null(array, row) {
        return out.push_str("null");
    }
    let depth = depth - 1;
    match array.data_type() {
        DataType::Boolean => out.push_str(if array.as_boolean().value(row) { "true" } else { "false" }),
        DataType::Float16 => float(out, f64::from(array.as_primitive::<Float16Type>().value(row).to_f32())),
        DataType::Float32 => {
            let value = array.as_primitive::<Float32Type>().value(row);
            // Its own shortest text: that of the double has digits that say nothing.
            if value.is_finite() { number(out, serde_json::to_string(&value)) } else { float(out, f64::from(value)) }
        }
        DataType::Float64 => float(out, array.as_primitive::<Float64Type>().value(row)),
        DataType::Binary => text(out, &base64::encode(array.as_binary::<i32>().value(row))),
        DataType::LargeBinary => text(out, &base64::encode(array.as_binary::<i64>().value(row))),
        DataType::BinaryView => text(out, &base64::encode(array.as_binary_view().value(row))),
        DataType::FixedSizeBinary(_) => text(out, &base64::encode(array.as_fixed_size_binary().value(row))),
        DataType::Timestamp(unit, _) => timestamp(out, array, *unit, row),
        DataType::List(_) => items(out, array.as_list::<i32>().value(row).as_ref(), depth),
        DataType::LargeList(_) => items(out, array.as_list::<i64>().value(row).as_ref(), depth),
        DataType::FixedSizeList(_, _) => items(out, array.as_fixed_size_list().value(row).as_ref(), depth),
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            object(out, fields.iter().zip(columns).map(|(f, c)| (f.name().as_str(), c.as_ref())), row, depth);
        }
        DataType::Map(_, _) => entries(out, &array.as_map().value(row), depth),
        DataType::Dictionary(_, _) => {
            let one = array.slice(row, 1);
            let dictionary = one.as_any_dictionary();
            value(out, dictionary.values().as_ref(), dictionary.normalized_keys()[0], depth);
        }
        kind if kind.is_integer() || kind.is_decimal() => {
            number(out, array_value_to_string(array, row).map_err(|_| ()));
        }
        _ => text(out, &array_value_to_string(array, row).unwrap_or_default()),
    }
}

fn number<E>(out: &mut String, text: Result<String, E>) {
    out.push_str(text.as_deref().unwrap_or("null"));
}

/// JSON has no word for the values that are no numbers.
fn float(out: &mut String, value: f64) {
    match value {
        finite if finite.is_finite() => number(out, serde_json::to_string(&finite)),
        nan if nan.is_nan() => out.push_str("\"NaN\""),
        infinite => out.push_str(if infinite > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" }),
    }
}

/// In UTC, whatever the column's zone, with the digits that there are.
fn timestamp(out: &mut String, array: &dyn Array, unit: TimeUnit, row: usize) {
    let (time, count) = match unit {
        TimeUnit::Second => {
            let times = array.as_primitive::<TimestampSecondType>();
            (times.value_as_datetime(row), times.value(row))
        }
        TimeUnit::Millisecond => {
            let times = array.as_primitive::<TimestampMillisecondType>();
            (times.value_as_datetime(row), times.value(row))
        }
        TimeUnit::Microsecond => {
            let times = array.as_primitive::<TimestampMicrosecondType>();
            (times.value_as_datetime(row), times.value(row))
        }
        TimeUnit::Nanosecond => {
            let times = array.as_primitive::<TimestampNanosecondType>();
            (times.value_as_datetime(row), times.value(row))
        }
    };
    match time {
        Some(time) => text(out, &format!("{}Z", time.format("%Y-%m-%dT%H:%M:%S%.f"))),
        None => text(out, &format!("{count} {unit:?}s since 1970")),
    }
}

fn items(out: &mut String, items: &dyn Array, depth: usize) {
    out.push('[');
    for at in 0..items.len() {
        out.push_str(if at == 0 { "" } else { "," });
        value(out, items, at, depth);
    }
    out.push(']');
}

fn entries(out: &mut String, entries: &arrow::array::StructArray, depth: usize) {
    let [keys, values] = entries.columns() else { return out.push_str("null") };
    out.push('{');
    for at in 0..entries.len() {
        let key = array_value_to_string(keys.as_ref(), at).unwrap_or_default();
        let _ = write!(out, "{}{}:", if at == 0 { "" } else { "," }, serde_json::Value::from(key));
        value(out, values.as_ref(), at, depth);
    }
    out.push('}');
}
