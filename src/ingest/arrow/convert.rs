//! Columns of any Arrow type into a table's types. A value passes unchanged, or rejects its row and is null from then on.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, Int32Array, PrimitiveArray, PrimitiveBuilder,
    StringArray, new_null_array,
};
use arrow::compute::take;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};

use super::faults::Faults;
use super::nested;
use crate::ingest::number::{self, DOUBLE_EXACT, FLOAT_EXACT, NumberError};
use crate::ingest::reject::Fault;
use crate::ingest::text_time::{Epochs, Time, in_range};
use crate::schema::ColumnType;
use crate::schema::arrow::{UTC, data_type};
use crate::schema::time::{MAX_DAYS, MIN_DAYS};

const DAY_MILLIS: i64 = 86_400_000;

/// Converts an array into the type of a column.
pub(super) fn convert(array: &ArrayRef, kind: &ColumnType, epochs: Epochs, faults: &mut dyn Faults) -> ArrayRef {
    match array.data_type() {
        DataType::Null => return new_null_array(&data_type(kind), array.len()),
        DataType::Dictionary(_, _) => return convert(&without_dictionary(array), kind, epochs, faults),
        _ => {}
    }
    match kind {
        ColumnType::Boolean if *array.data_type() == DataType::Boolean => array.clone(),
        ColumnType::Int => int(array, faults),
        ColumnType::Long => long(array, faults),
        ColumnType::Float => float(array, faults),
        ColumnType::Double => double(array, faults),
        ColumnType::String => string(array, faults),
        ColumnType::Binary => binary(array, faults),
        ColumnType::Date => date(array, faults),
        ColumnType::Timestamp => timestamp(array, epochs, faults),
        ColumnType::Decimal { precision, scale } => decimal(array, *precision, *scale, faults),
        ColumnType::List(item) => nested::list(array, item, faults),
        ColumnType::Struct(fields) => nested::structs(array, fields, faults),
        ColumnType::Map(value) => nested::map(array, value, faults),
        ColumnType::Boolean => mismatch(array, kind, faults),
    }
}

/// The whole column is of another type: every value is at fault.
pub(super) fn mismatch(array: &ArrayRef, kind: &ColumnType, faults: &mut dyn Faults) -> ArrayRef {
    let fault = Fault::mismatch_as_told(format!("a column of Arrow's {} is not of type {kind}", array.data_type()));
    (0..array.len()).filter(|index| array.is_valid(*index)).for_each(|index| faults.add(index, fault.clone()));
    new_null_array(&data_type(kind), array.len())
}

fn each<S: ArrowPrimitiveType, T: ArrowPrimitiveType>(
    array: &ArrayRef,
    faults: &mut dyn Faults,
    value: impl Fn(S::Native) -> Result<T::Native, Fault>,
) -> PrimitiveArray<T> {
    let mut values = PrimitiveBuilder::<T>::with_capacity(array.len());
    for (index, source) in array.as_primitive::<S>().iter().enumerate() {
        values.append_option(source.and_then(|source| kept(value(source), index, faults)));
    }
    values.finish()
}

fn kept<T>(value: Result<T, Fault>, index: usize, faults: &mut dyn Faults) -> Option<T> {
    value.map_err(|fault| faults.add(index, fault)).ok()
}

/// Integers of any width, each as an `i128`; none if the array has others.
fn each_integer<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    faults: &mut dyn Faults,
    value: impl Fn(i128) -> Result<T::Native, Fault>,
) -> Option<PrimitiveArray<T>> {
    Some(match array.data_type() {
        DataType::Int8 => each::<Int8Type, T>(array, faults, |v| value(v.into())),
        DataType::Int16 => each::<Int16Type, T>(array, faults, |v| value(v.into())),
        DataType::Int32 => each::<Int32Type, T>(array, faults, |v| value(v.into())),
        DataType::Int64 => each::<Int64Type, T>(array, faults, |v| value(v.into())),
        DataType::UInt8 => each::<UInt8Type, T>(array, faults, |v| value(v.into())),
        DataType::UInt16 => each::<UInt16Type, T>(array, faults, |v| value(v.into())),
        DataType::UInt32 => each::<UInt32Type, T>(array, faults, |v| value(v.into())),
        DataType::UInt64 => each::<UInt64Type, T>(array, faults, |v| value(v.into())),
        _ => return None,
    })
}

fn integers<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    kind: &ColumnType,
    faults: &mut dyn Faults,
    value: impl Fn(i128) -> Result<T::Native, Fault>,
) -> ArrayRef {
    match each_integer::<T>(array, faults, value) {
        Some(converted) => Arc::new(converted),
        None => mismatch(array, kind, faults),
    }
}

fn int(array: &ArrayRef, faults: &mut dyn Faults) -> ArrayRef {
    match array.data_type() {
        DataType::Int32 => array.clone(),
        _ => integers::<Int32Type>(array, &ColumnType::Int, faults, |v| {
            i32::try_from(v).map_err(|_| Fault::out_of_range(&v.to_string(), "int"))
        }),
    }
}

fn long(array: &ArrayRef, faults: &mut dyn Faults) -> ArrayRef {
    match array.data_type() {
        DataType::Int64 => array.clone(),
        _ => integers::<Int64Type>(array, &ColumnType::Long, faults, |v| {
            i64::try_from(v).map_err(|_| Fault::out_of_range(&v.to_string(), "long"))
        }),
    }
}

#[expect(clippy::cast_precision_loss, reason = "integers that a float does not hold are refused before")]
fn float(array: &ArrayRef, faults: &mut dyn Faults) -> ArrayRef {
    match array.data_type() {
        DataType::Float32 => array.clone(),
        DataType::Float16 => Arc::new(each::<Float16Type, Float32Type>(array, faults, |v| Ok(v.to_f32()))),
        _ => integers::<Float32Type>(array, &ColumnType::Float, faults, |v| {
            if v.abs() <= FLOAT_EXACT { Ok(v as f32) } else { Err(Fault::inexact(&v.to_string(), "float")) }
        }),
    }
}

#[expect(clippy::cast_precision_loss, reason = "integers that a double does not hold are refused before")]
fn double(array: &ArrayRef, faults: &mut dyn Faults) -> ArrayRef {
    match array.data_type() {
        DataType::Float64 => array.clone(),
        DataType::Float32 => Arc::new(each::<Float32Type, Float64Type>(array, faults, |v| Ok(v.into()))),
        DataType::Float16 => Arc::new(each::<Float16Type, Float64Type>(array, faults, |v| Ok(v.to_f64()))),
        _ => integers::<Float64Type>(array, &ColumnType::Double, faults, |v| {
            if v.abs() <= DOUBLE_EXACT { Ok(v as f64) } else { Err(Fault::inexact(&v.to_string(), "double")) }
        }),
    }
}

fn string(array: &ArrayRef, faults: &mut dyn Faults) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8 => array.clone(),
        DataType::LargeUtf8 => Arc::new(array.as_string::<i64>().iter().collect::<StringArray>()),
        DataType::Utf8View => Arc::new(array.as_string_view().iter().collect::<StringArray>()),
        _ => mismatch(array, &ColumnType::String, faults),
    }
}

fn binary(array: &ArrayRef, faults: &mut dyn Faults) -> ArrayRef {
    match array.data_type() {
        DataType::Binary => array.clone(),
        DataType::LargeBinary => Arc::new(array.as_binary::<i64>().iter().collect::<BinaryArray>()),
        DataType::BinaryView => Arc::new(array.as_binary_view().iter().collect::<BinaryArray>()),
        DataType::FixedSizeBinary(_) => Arc::new(array.as_fixed_size_binary().iter().collect::<BinaryArray>()),
        _ => mismatch(array, &ColumnType::Binary, faults),
    }
}

fn date(array: &ArrayRef, faults: &mut dyn Faults) -> ArrayRef {
    let check = |days: i64, shown: String| {
        let days = i32::try_from(days).ok().filter(|d| (MIN_DAYS..=MAX_DAYS).contains(d));
        days.ok_or_else(|| Fault::out_of_range(&shown, "dates, which are in the years 0001 to 9999"))
    };
    match array.data_type() {
        DataType::Date32 => {
            Arc::new(each::<Date32Type, Date32Type>(array, faults, |days| check(days.into(), format!("day {days}"))))
        }
        DataType::Date64 => Arc::new(each::<Date64Type, Date32Type>(array, faults, |millis| {
            if millis.rem_euclid(DAY_MILLIS) != 0 {
                return Err(Fault::inexact(&format!("{millis} ms"), "date"));
            }
            check(millis.div_euclid(DAY_MILLIS), format!("{millis} ms"))
        })),
        _ => mismatch(array, &ColumnType::Date, faults),
    }
}

/// Converts as [`convert`] does; of a time whose nanoseconds have a place they go there.
pub(super) fn convert_time_or(
    array: &ArrayRef,
    kind: &ColumnType,
    epochs: Epochs,
    nanos: Option<&mut Option<Int32Array>>,
    faults: &mut dyn Faults,
) -> ArrayRef {
    match nanos {
        None => convert(array, kind, epochs, faults),
        Some(place) => {
            let (times, nanos) = times(&without_dictionary(array), epochs, true, faults);
            *place = Some(nanos);
            times
        }
    }
}

/// Whether any of the times has nanoseconds.
pub(super) fn has_nanos(array: &ArrayRef, epochs: Epochs) -> bool {
    struct Ignored;
    impl Faults for Ignored {
        fn add(&mut self, _: usize, _: Fault) {}
    }
    let (_, nanos) = times(&without_dictionary(array), epochs, true, &mut Ignored);
    nanos.iter().flatten().any(|nanos| nanos != 0)
}

fn without_dictionary(array: &ArrayRef) -> ArrayRef {
    match array.as_any_dictionary_opt() {
        Some(dictionary) => take(dictionary.values(), dictionary.keys(), None)
            .expect("keys of a validated dictionary should be within its values"),
        None => array.clone(),
    }
}

fn timestamp(array: &ArrayRef, epochs: Epochs, faults: &mut dyn Faults) -> ArrayRef {
    times(array, epochs, false, faults).0
}

/// The times in microseconds, and the nanoseconds behind these; `keeps_nanos` says whether there may be any.
fn times(array: &ArrayRef, epochs: Epochs, keeps_nanos: bool, faults: &mut dyn Faults) -> (ArrayRef, Int32Array) {
    let scaled = |value: i64, factor: i64, unit: &str| match value.checked_mul(factor) {
        Some(micros) => in_range(micros, &format!("{value} {unit}")),
        None => in_range(i64::MAX, &format!("{value} {unit}")),
    };
    let whole = |time: Time, shown: &str| if keeps_nanos { Ok(time.micros) } else { time.whole(shown) };
    let micros = match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => {
            each::<TimestampSecondType, TimestampMicrosecondType>(array, faults, |v| scaled(v, 1_000_000, "s"))
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            each::<TimestampMillisecondType, TimestampMicrosecondType>(array, faults, |v| scaled(v, 1_000, "ms"))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            each::<TimestampMicrosecondType, TimestampMicrosecondType>(array, faults, |v| scaled(v, 1, "us"))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let times = array.as_primitive::<TimestampNanosecondType>();
            let micros = each::<TimestampNanosecondType, TimestampMicrosecondType>(array, faults, |v| {
                let time = Time { micros: v.div_euclid(1_000), nanos: below_micro(v) };
                whole(time, &format!("{v} ns"))
            });
            return (Arc::new(micros.with_timezone(UTC)), times.unary(below_micro));
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let texts = string(array, faults);
            let texts = texts.as_string::<i32>().iter().map(|text| text.map(Cow::Borrowed));
            return times_of(texts, |text| epochs.read_text(text), whole, faults);
        }
        kind if kind.is_integer() => {
            let integers = each_integer::<Decimal128Type>(array, faults, Ok).expect("integers are read as such");
            let texts = integers.iter().map(|value| value.map(|value| Cow::Owned(value.to_string())));
            return times_of(texts, |text| epochs.read_number(text), whole, faults);
        }
        _ => {
            let none = mismatch(array, &ColumnType::Timestamp, faults);
            return (none, Int32Array::new_null(array.len()));
        }
    };
    let nanos = micros.unary(|_| 0);
    (Arc::new(micros.with_timezone(UTC)), nanos)
}

fn below_micro(nanos: i64) -> i32 {
    i32::try_from(nanos.rem_euclid(1_000)).expect("a remainder should be below a thousand")
}

fn times_of<'a>(
    texts: impl Iterator<Item = Option<Cow<'a, str>>>,
    read: impl Fn(&str) -> Result<Time, Fault>,
    whole: impl Fn(Time, &str) -> Result<i64, Fault>,
    faults: &mut dyn Faults,
) -> (ArrayRef, Int32Array) {
    let read = |(index, text): (usize, Option<Cow<'_, str>>)| {
        let text = text?;
        let time = read(&text).and_then(|time| whole(time, &text).map(|micros| Time { micros, ..time }));
        kept(time, index, faults)
    };
    let times: Vec<Option<Time>> = texts.enumerate().map(read).collect();
    let micros: PrimitiveArray<TimestampMicrosecondType> = times.iter().map(|time| time.map(|t| t.micros)).collect();
    (Arc::new(micros.with_timezone(UTC)), times.iter().map(|time| time.map(|t| t.nanos)).collect())
}

fn decimal(array: &ArrayRef, precision: u8, scale: i8, faults: &mut dyn Faults) -> ArrayRef {
    let wanted = || ColumnType::Decimal { precision, scale };
    let rescaled = |value: i128, from: i8| {
        rescale(value, i32::from(scale) - i32::from(from))
            .and_then(|v| number::decimal_in_range(v, precision))
            .map_err(|e| e.fault(&shown(value, from), wanted()))
    };
    let values = match array.data_type() {
        DataType::Decimal32(_, from) => {
            each::<Decimal32Type, Decimal128Type>(array, faults, |v| rescaled(v.into(), *from))
        }
        DataType::Decimal64(_, from) => {
            each::<Decimal64Type, Decimal128Type>(array, faults, |v| rescaled(v.into(), *from))
        }
        DataType::Decimal128(_, from) => each::<Decimal128Type, Decimal128Type>(array, faults, |v| rescaled(v, *from)),
        DataType::Decimal256(_, from) => each::<Decimal256Type, Decimal128Type>(array, faults, |v| match v.to_i128() {
            Some(v) => rescaled(v, *from),
            None => Err(Fault::out_of_range("a decimal of more than 38 digits", wanted())),
        }),
        _ => match each_integer::<Decimal128Type>(array, faults, |v| rescaled(v, 0)) {
            Some(values) => values,
            None => return mismatch(array, &wanted(), faults),
        },
    };
    let values = values.with_precision_and_scale(precision, scale);
    Arc::new(values.expect("a decimal type should have been checked when it was parsed"))
}

/// Moves the point by `places`, to the right if positive.
fn rescale(value: i128, places: i32) -> Result<i128, NumberError> {
    if value == 0 {
        return Ok(0);
    }
    let factor = 10_i128.checked_pow(places.unsigned_abs());
    match (places >= 0, factor) {
        (true, Some(factor)) => value.checked_mul(factor).ok_or(NumberError::Range),
        (true, None) => Err(NumberError::Range),
        (false, Some(factor)) if value % factor == 0 => Ok(value / factor),
        (false, _) => Err(NumberError::Inexact),
    }
}

fn shown(value: i128, scale: i8) -> String {
    if scale == 0 { value.to_string() } else { format!("{value}e{}", -i32::from(scale)) }
}
