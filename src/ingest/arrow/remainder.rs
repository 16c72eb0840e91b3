//! The nanoseconds of times, in their own columns: see [`crate::schema::remainder`].

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use arrow::datatypes::{DataType, Int32Type, TimeUnit, TimestampNanosecondType};

use super::faults::Faults;
use crate::ingest::reject::Fault;
use crate::schema::{ColumnSpec, ColumnType, remainder};

/// What a row says of its nanoseconds itself, and otherwise those of its time. Both, and not the same, is a fault.
pub(super) fn merged(own: &ArrayRef, nanos: &Int32Array, faults: &mut dyn Faults) -> ArrayRef {
    let own = own.as_primitive::<Int32Type>();
    if own.null_count() == own.len() {
        return Arc::new(nanos.clone());
    }
    let both = own.iter().zip(nanos).enumerate();
    let one = both.map(|(row, (own, nanos))| match (own, nanos) {
        (Some(own), Some(nanos)) if nanos != 0 && own != nanos => {
            faults.add(row, Fault::other_nanoseconds(nanos));
            None
        }
        (own, nanos) => own.or(nanos),
    });
    Arc::new(one.collect::<Int32Array>())
}

/// Whether any of the times has nanoseconds.
pub(super) fn has_nanos(array: &ArrayRef) -> bool {
    if *array.data_type() == DataType::Timestamp(TimeUnit::Nanosecond, None) || is_zoned_nanos(array.data_type()) {
        return array.as_primitive::<TimestampNanosecondType>().iter().flatten().any(|time| time % 1_000 != 0);
    }
    false
}

fn is_zoned_nanos(kind: &DataType) -> bool {
    matches!(kind, DataType::Timestamp(TimeUnit::Nanosecond, Some(_)))
}

/// The type, with fields for the nanoseconds that times in the values have.
pub(super) fn extended(kind: ColumnType, array: &ArrayRef) -> ColumnType {
    match kind {
        ColumnType::Struct(fields) if array.as_struct_opt().is_some() => {
            ColumnType::Struct(with_nanos(fields, |name| array.as_struct().column_by_name(name).cloned()))
        }
        ColumnType::List(item) => match items(array) {
            Some(items) => ColumnType::List(Box::new(extended(*item, items))),
            None => ColumnType::List(item),
        },
        ColumnType::Map(value) => match array.as_map_opt() {
            Some(map) => ColumnType::Map(Box::new(extended(*value, map.values()))),
            None => ColumnType::Map(value),
        },
        plain => plain,
    }
}

fn items(array: &ArrayRef) -> Option<&ArrayRef> {
    match array.data_type() {
        DataType::List(_) => Some(array.as_list::<i32>().values()),
        DataType::LargeList(_) => Some(array.as_list::<i64>().values()),
        DataType::FixedSizeList(_, _) => Some(array.as_fixed_size_list().values()),
        _ => None,
    }
}

fn with_nanos(fields: Vec<ColumnSpec>, values: impl Fn(&str) -> Option<ArrayRef>) -> Vec<ColumnSpec> {
    let mut made: Vec<ColumnSpec> = Vec::with_capacity(fields.len());
    let taken: Vec<String> = fields.iter().map(|field| field.name.clone()).collect();
    for field in fields {
        let Some(array) = values(&field.name) else {
            made.push(field);
            continue;
        };
        let rest = remainder::name_of(&field.name);
        let wanted = field.kind == ColumnType::Timestamp && has_nanos(&array) && !taken.contains(&rest);
        made.push(ColumnSpec { kind: extended(field.kind, &array), ..field });
        made.extend(wanted.then_some(ColumnSpec { name: rest, kind: ColumnType::Int, nullable: true }));
    }
    made
}
