//! A few rows in few bytes. An Arrow IPC message says for each column where its nodes and buffers lie, and starts every buffer on
//! eight bytes: for one row of eight columns that is a kilobyte around a hundred bytes of values. Here only the values and their
//! lengths are written, column by column, and many payloads are read into the same arrays ([`Unpacker`]).
//!
//! ```text
//! payload  rows: varint, then every column of the schema version in its order, for all rows
//! column   if it may be null: presence u8 (0: every value is there, 1: none is and nothing follows, 2: a bit a value, one if it is
//!          there, lowest first, padded to a byte); then by type, of those values that are there:
//!            boolean                            a bit a value, lowest first, padded to a byte
//!            int, float, date                   4 bytes a value
//!            long, double, timestamp            8 bytes a value
//!            decimal                            16 bytes a value
//!            string, binary                     length: varint a value, then their bytes back to back
//!            list                               length: varint a value, then the items of all of them as a column
//!            map                                the same with two columns, keys and values
//!            struct                             each field as a column, for the values that are null as well
//! ```
//!
//! Integers are little-endian; a varint has seven bits a byte, lowest first, the top bit set on all but the last.

use arrow::array::{Array, ArrowPrimitiveType, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, ToByteSlice,
};

mod unpack;

pub use unpack::{UnpackError, Unpacker};

/// Most rows of a payload. With more, an Arrow IPC message costs little a row, and is read without looking at each value.
pub const MAX_ROWS: usize = 32;

/// Most items that the lists of one column may have in a payload, nested ones by themselves: a column that is nothing but nulls takes
/// one byte, however many they are.
pub const MAX_ITEMS: usize = 65_536;

pub(super) const ALL: u8 = 0;
pub(super) const NONE: u8 = 1;
pub(super) const SOME: u8 = 2;

/// The rows packed; none if they are too many, or of a type that no column has.
pub fn pack(batch: &RecordBatch) -> Option<Vec<u8>> {
    let rows = batch.num_rows();
    if rows > MAX_ROWS {
        return None;
    }
    let mut out = Vec::with_capacity(64 + 16 * batch.num_columns() * rows);
    put_varint(&mut out, rows);
    let all: Vec<usize> = (0..rows).collect();
    let schema = batch.schema_ref();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        put_column(&mut out, field, column, &all)?;
    }
    Some(out)
}

/// Writes the values of `array` at the places `at`.
fn put_column(out: &mut Vec<u8>, field: &Field, array: &dyn Array, at: &[usize]) -> Option<()> {
    let present: Vec<usize>;
    let mut there = at;
    if field.is_nullable() {
        present = at.iter().copied().filter(|i| array.is_valid(*i)).collect();
        there = &present;
        match there.len() {
            n if n == at.len() => out.push(ALL),
            0 => {
                out.push(NONE);
                return Some(());
            }
            _ => {
                out.push(SOME);
                put_bits(out, at.iter().map(|i| array.is_valid(*i)));
            }
        }
    }
    match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean();
            put_bits(out, there.iter().map(|i| values.value(*i)));
        }
        DataType::Int32 => put_fixed::<Int32Type>(out, array, there),
        DataType::Date32 => put_fixed::<Date32Type>(out, array, there),
        DataType::Float32 => put_fixed::<Float32Type>(out, array, there),
        DataType::Int64 => put_fixed::<Int64Type>(out, array, there),
        DataType::Float64 => put_fixed::<Float64Type>(out, array, there),
        DataType::Timestamp(TimeUnit::Microsecond, _) => put_fixed::<TimestampMicrosecondType>(out, array, there),
        DataType::Decimal128(_, _) => put_fixed::<Decimal128Type>(out, array, there),
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            put_bytes(out, there, |i| values.value(i).as_bytes());
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>();
            put_bytes(out, there, |i| values.value(i));
        }
        DataType::List(item) => {
            let lists = array.as_list::<i32>();
            let items = put_lengths(out, lists.value_offsets(), there)?;
            put_column(out, item, lists.values(), &items)?;
        }
        DataType::Map(entries, _) => {
            let maps = array.as_map();
            let items = put_lengths(out, maps.value_offsets(), there)?;
            let DataType::Struct(fields) = entries.data_type() else { return None };
            put_column(out, fields.first()?, maps.keys(), &items)?;
            put_column(out, fields.get(1)?, maps.values(), &items)?;
        }
        DataType::Struct(fields) => {
            let structs = array.as_struct();
            for (field, column) in fields.iter().zip(structs.columns()) {
                put_column(out, field, column, at)?;
            }
        }
        _ => return None,
    }
    Some(())
}

fn put_fixed<T: ArrowPrimitiveType>(out: &mut Vec<u8>, array: &dyn Array, there: &[usize]) {
    let values = array.as_primitive::<T>().values();
    for i in there {
        out.extend_from_slice(values[*i].to_byte_slice());
    }
}

fn put_bytes<'a>(out: &mut Vec<u8>, there: &[usize], value: impl Fn(usize) -> &'a [u8]) {
    for i in there {
        put_varint(out, value(*i).len());
    }
    for i in there {
        out.extend_from_slice(value(*i));
    }
}

/// Writes the lengths of lists, and answers where their items are.
fn put_lengths(out: &mut Vec<u8>, offsets: &[i32], there: &[usize]) -> Option<Vec<usize>> {
    let mut items = Vec::new();
    for i in there {
        let range = usize::try_from(offsets[*i]).ok()?..usize::try_from(offsets[*i + 1]).ok()?;
        put_varint(out, range.len());
        if items.len() + range.len() > MAX_ITEMS {
            return None;
        }
        items.extend(range);
    }
    Some(items)
}

fn put_bits(out: &mut Vec<u8>, bits: impl Iterator<Item = bool>) {
    let (mut byte, mut filled) = (0_u8, 0);
    for bit in bits {
        byte |= u8::from(bit) << filled;
        filled += 1;
        if filled == 8 {
            out.push(byte);
            (byte, filled) = (0, 0);
        }
    }
    if filled > 0 {
        out.push(byte);
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
