//! Columns of any Arrow type into a table's types. A value passes unchanged or is refused by its row.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, PrimitiveArray, PrimitiveBuilder, StringArray,
    new_null_array,
};
use arrow::compute::take;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};

use super::nested;
use crate::ingest::number::{self, DOUBLE_EXACT, FLOAT_EXACT, NumberError};
use crate::ingest::reject::Fault;
use crate::ingest::text_time::{Epochs, in_range};
use crate::schema::ColumnType;
use crate::schema::arrow::{UTC, data_type};
use crate::schema::time::{MAX_DAYS, MIN_DAYS};

const DAY_MILLIS: i64 = 86_400_000;

/// A value that the table's type does not hold, by its place in the array.
#[derive(Debug)]
pub(super) struct ConvertError {
    pub index: usize,
    pub fault: Fault,
}

pub(super) type Converted = Result<ArrayRef, ConvertError>;

/// Converts an array into the type of a column.
pub(super) fn convert(array: &ArrayRef, kind: &ColumnType, epochs: Epochs) -> Converted {
    match array.data_type() {
        DataType::Null => return Ok(new_null_array(&data_type(kind), array.len())),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            let values = take(dictionary.values(), dictionary.keys(), None)
                .expect("keys of a validated dictionary should be within its values");
            return convert(&values, kind, epochs);
        }
        _ => {}
    }
    match kind {
        ColumnType::Boolean if *array.data_type() == DataType::Boolean => Ok(array.clone()),
        ColumnType::Int => int(array),
        ColumnType::Long => long(array),
        ColumnType::Float => float(array),
        ColumnType::Double => double(array),
        ColumnType::String => string(array),
        ColumnType::Binary => binary(array),
        ColumnType::Date => date(array),
        ColumnType::Timestamp => timestamp(array, epochs),
        ColumnType::Decimal { precision, scale } => decimal(array, *precision, *scale),
        ColumnType::List(item) => nested::list(array, item),
        ColumnType::Struct(fields) => nested::structs(array, fields),
        ColumnType::Map(value) => nested::map(array, value),
        ColumnType::Boolean => mismatch(array, kind),
    }
}

/// The whole column is of another type; named with its first row.
pub(super) fn mismatch(array: &ArrayRef, kind: &ColumnType) -> Converted {
    let fault = Fault::type_mismatch(&format!("a column of Arrow's {}", array.data_type()), kind);
    Err(ConvertError { index: 0, fault })
}

fn each<S: ArrowPrimitiveType, T: ArrowPrimitiveType>(
    array: &ArrayRef,
    value: impl Fn(S::Native) -> Result<T::Native, Fault>,
) -> Result<PrimitiveArray<T>, ConvertError> {
    let mut values = PrimitiveBuilder::<T>::with_capacity(array.len());
    for (index, source) in array.as_primitive::<S>().iter().enumerate() {
        match source {
            None => values.append_null(),
            Some(source) => values.append_value(value(source).map_err(|fault| ConvertError { index, fault })?),
        }
    }
    Ok(values.finish())
}

/// Integers of any width, each as an `i128`; none if the array has others.
fn each_integer<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    value: impl Fn(i128) -> Result<T::Native, Fault>,
) -> Option<Result<PrimitiveArray<T>, ConvertError>> {
    Some(match array.data_type() {
        DataType::Int8 => each::<Int8Type, T>(array, |v| value(v.into())),
        DataType::Int16 => each::<Int16Type, T>(array, |v| value(v.into())),
        DataType::Int32 => each::<Int32Type, T>(array, |v| value(v.into())),
        DataType::Int64 => each::<Int64Type, T>(array, |v| value(v.into())),
        DataType::UInt8 => each::<UInt8Type, T>(array, |v| value(v.into())),
        DataType::UInt16 => each::<UInt16Type, T>(array, |v| value(v.into())),
        DataType::UInt32 => each::<UInt32Type, T>(array, |v| value(v.into())),
        DataType::UInt64 => each::<UInt64Type, T>(array, |v| value(v.into())),
        _ => return None,
    })
}

fn integers<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    kind: &ColumnType,
    value: impl Fn(i128) -> Result<T::Native, Fault>,
) -> Converted {
    match each_integer::<T>(array, value) {
        Some(converted) => Ok(Arc::new(converted?)),
        None => mismatch(array, kind),
    }
}

fn int(array: &ArrayRef) -> Converted {
    match array.data_type() {
        DataType::Int32 => Ok(array.clone()),
        _ => integers::<Int32Type>(array, &ColumnType::Int, |v| {
            i32::try_from(v).map_err(|_| Fault::out_of_range(&v.to_string(), "int"))
        }),
    }
}

fn long(array: &ArrayRef) -> Converted {
    match array.data_type() {
        DataType::Int64 => Ok(array.clone()),
        _ => integers::<Int64Type>(array, &ColumnType::Long, |v| {
            i64::try_from(v).map_err(|_| Fault::out_of_range(&v.to_string(), "long"))
        }),
    }
}

#[expect(clippy::cast_precision_loss, reason = "integers that a float does not hold are refused before")]
fn float(array: &ArrayRef) -> Converted {
    match array.data_type() {
        DataType::Float32 => Ok(array.clone()),
        DataType::Float16 => Ok(Arc::new(each::<Float16Type, Float32Type>(array, |v| Ok(v.to_f32()))?)),
        _ => integers::<Float32Type>(array, &ColumnType::Float, |v| {
            if v.abs() <= FLOAT_EXACT { Ok(v as f32) } else { Err(Fault::inexact(&v.to_string(), "float")) }
        }),
    }
}

#[expect(clippy::cast_precision_loss, reason = "integers that a double does not hold are refused before")]
fn double(array: &ArrayRef) -> Converted {
    match array.data_type() {
        DataType::Float64 => Ok(array.clone()),
        DataType::Float32 => Ok(Arc::new(each::<Float32Type, Float64Type>(array, |v| Ok(v.into()))?)),
        DataType::Float16 => Ok(Arc::new(each::<Float16Type, Float64Type>(array, |v| Ok(v.to_f64()))?)),
        _ => integers::<Float64Type>(array, &ColumnType::Double, |v| {
            if v.abs() <= DOUBLE_EXACT { Ok(v as f64) } else { Err(Fault::inexact(&v.to_string(), "double")) }
        }),
    }
}

fn string(array: &ArrayRef) -> Converted {
    Ok(match array.data_type() {
        DataType::Utf8 => array.clone(),
        DataType::LargeUtf8 => Arc::new(array.as_string::<i64>().iter().collect::<StringArray>()),
        DataType::Utf8View => Arc::new(array.as_string_view().iter().collect::<StringArray>()),
        _ => return mismatch(array, &ColumnType::String),
    })
}

fn binary(array: &ArrayRef) -> Converted {
    Ok(match array.data_type() {
        DataType::Binary => array.clone(),
        DataType::LargeBinary => Arc::new(array.as_binary::<i64>().iter().collect::<BinaryArray>()),
        DataType::BinaryView => Arc::new(array.as_binary_view().iter().collect::<BinaryArray>()),
        DataType::FixedSizeBinary(_) => Arc::new(array.as_fixed_size_binary().iter().collect::<BinaryArray>()),
        _ => return mismatch(array, &ColumnType::Binary),
    })
}

fn date(array: &ArrayRef) -> Converted {
    let check = |days: i64, shown: String| {
        let days = i32::try_from(days).ok().filter(|d| (MIN_DAYS..=MAX_DAYS).contains(d));
        days.ok_or_else(|| Fault::out_of_range(&shown, "dates, which are in the years 0001 to 9999"))
    };
    Ok(match array.data_type() {
        DataType::Date32 => {
            Arc::new(each::<Date32Type, Date32Type>(array, |days| check(days.into(), format!("day {days}")))?)
        }
        DataType::Date64 => Arc::new(each::<Date64Type, Date32Type>(array, |millis| {
            if millis.rem_euclid(DAY_MILLIS) != 0 {
                return Err(Fault::inexact(&format!("{millis} ms"), "date"));
            }
            check(millis.div_euclid(DAY_MILLIS), format!("{millis} ms"))
        })?),
        _ => return mismatch(array, &ColumnType::Date),
    })
}

fn timestamp(array: &ArrayRef, epochs: Epochs) -> Converted {
    let scaled = |value: i64, factor: i64, unit: &str| match value.checked_mul(factor) {
        Some(micros) => in_range(micros, &format!("{value} {unit}")),
        None => in_range(i64::MAX, &format!("{value} {unit}")),
    };
    let times = match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => {
            each::<TimestampSecondType, TimestampMicrosecondType>(array, |v| scaled(v, 1_000_000, "s"))
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            each::<TimestampMillisecondType, TimestampMicrosecondType>(array, |v| scaled(v, 1_000, "ms"))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            each::<TimestampMicrosecondType, TimestampMicrosecondType>(array, |v| scaled(v, 1, "us"))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            each::<TimestampNanosecondType, TimestampMicrosecondType>(array, |v| match v % 1_000 {
                0 => in_range(v / 1_000, &format!("{v} ns")),
                _ => Err(Fault::timestamp_precision(&format!("{v} ns"))),
            })
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => times_from_text(&string(array)?, epochs),
        _ => match each_integer::<TimestampMicrosecondType>(array, |v| epochs.read_number(&v.to_string())) {
            Some(times) => times,
            None => return mismatch(array, &ColumnType::Timestamp),
        },
    };
    Ok(Arc::new(times?.with_timezone(UTC)))
}

fn times_from_text(array: &ArrayRef, epochs: Epochs) -> Result<PrimitiveArray<TimestampMicrosecondType>, ConvertError> {
    let texts = array.as_string::<i32>().iter().enumerate();
    texts
        .map(|(index, text)| {
            text.map(|t| epochs.read_text(t)).transpose().map_err(|fault| ConvertError { index, fault })
        })
        .collect()
}

fn decimal(array: &ArrayRef, precision: u8, scale: i8) -> Converted {
    let wanted = || ColumnType::Decimal { precision, scale };
    let rescaled = |value: i128, from: i8| {
        rescale(value, i32::from(scale) - i32::from(from))
            .and_then(|v| number::decimal_in_range(v, precision))
            .map_err(|e| e.fault(&shown(value, from), wanted()))
    };
    let values = match array.data_type() {
        DataType::Decimal32(_, from) => each::<Decimal32Type, Decimal128Type>(array, |v| rescaled(v.into(), *from)),
        DataType::Decimal64(_, from) => each::<Decimal64Type, Decimal128Type>(array, |v| rescaled(v.into(), *from)),
        DataType::Decimal128(_, from) => each::<Decimal128Type, Decimal128Type>(array, |v| rescaled(v, *from)),
        DataType::Decimal256(_, from) => each::<Decimal256Type, Decimal128Type>(array, |v| match v.to_i128() {
            Some(v) => rescaled(v, *from),
            None => Err(Fault::out_of_range("a decimal of more than 38 digits", wanted())),
        }),
        _ => match each_integer::<Decimal128Type>(array, |v| rescaled(v, 0)) {
            Some(values) => values,
            None => return mismatch(array, &wanted()),
        },
    };
    let values = values?.with_precision_and_scale(precision, scale);
    Ok(Arc::new(values.expect("a decimal type should have been checked when it was parsed")))
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
