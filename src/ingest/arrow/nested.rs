//! Lists, structs and maps: rebuilt around their converted children. What lies under a null, or between the lists, is
//! no row's value; it is left behind before it could be refused.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, OffsetSizeTrait, StringArray, StructArray, UInt64Array, make_array,
    new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{ArrowNativeType, DataType, Fields};

use super::convert::{convert, convert_time_or, mismatch};
use super::faults::{Faults, OfField, OfItems};
use super::remainder;
use crate::ingest::names;
use crate::ingest::reject::Fault;
use crate::ingest::text_time::Epochs;
use crate::schema::arrow::{data_type, entries_field, entry_fields, list_field};
use crate::schema::remainder::pairs;
use crate::schema::{ColumnSpec, ColumnType};

/// A list column.
pub(super) fn list(array: &ArrayRef, item: &ColumnType, faults: &mut dyn Faults) -> ArrayRef {
    let (ranges, items) = match array.data_type() {
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            (ranges(lists.offsets(), array.nulls()), lists.values().clone())
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            (ranges(lists.offsets(), array.nulls()), lists.values().clone())
        }
        DataType::FixedSizeList(_, width) => {
            let width = width.unsigned_abs() as usize;
            let lists = array.as_fixed_size_list();
            let offsets: Vec<i64> = (0..=array.len()).map(|i| i64::usize_as(i * width)).collect();
            (ranges(&offsets, array.nulls()), lists.values().clone())
        }
        _ => return mismatch(array, &ColumnType::List(Box::new(item.clone())), faults),
    };
    let (offsets, items) = gather(&ranges, &items);
    let items = convert(&items, item, Epochs::Micros, &mut OfItems { offsets: &offsets, lists: faults });
    Arc::new(ListArray::new(list_field(item), offsets, items, array.nulls().cloned()))
}

/// A map column.
pub(super) fn map(array: &ArrayRef, value: &ColumnType, faults: &mut dyn Faults) -> ArrayRef {
    if !matches!(array.data_type(), DataType::Map(_, _)) {
        return mismatch(array, &ColumnType::Map(Box::new(value.clone())), faults);
    }
    let maps = array.as_map();
    let ranges = ranges(maps.offsets(), array.nulls());
    let (offsets, keys) = gather(&ranges, maps.keys());
    let (_, values) = gather(&ranges, maps.values());
    let keys = convert(&keys, &ColumnType::String, Epochs::Micros, &mut OfItems { offsets: &offsets, lists: faults });
    let values = convert(&values, value, Epochs::Micros, &mut OfItems { offsets: &offsets, lists: faults });
    let keys = check_keys(&keys, &offsets, faults);
    let entries = StructArray::new(entry_fields(value), vec![keys, values], None);
    Arc::new(MapArray::new(entries_field(value), offsets, entries, array.nulls().cloned(), false))
}

/// The keys, of which none is null: where one was, its map is at fault.
fn check_keys(keys: &ArrayRef, offsets: &OffsetBuffer<i32>, faults: &mut dyn Faults) -> ArrayRef {
    let texts = keys.as_string::<i32>();
    for (index, bounds) in offsets.windows(2).enumerate() {
        let range = bounds[0].as_usize()..bounds[1].as_usize();
        if range.clone().any(|at| texts.is_null(at)) {
            faults.add(index, Fault::missing_value());
        }
        let mut sorted: Vec<&str> = range.map(|at| texts.value(at)).collect();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            faults.add(index, Fault::duplicate_key());
        }
    }
    if texts.null_count() == 0 {
        return Arc::clone(keys);
    }
    Arc::new(texts.iter().map(|key| Some(key.unwrap_or_default())).collect::<StringArray>())
}

/// A struct column; fields are found by name, and those that are missing are null.
pub(super) fn structs(array: &ArrayRef, fields: &[ColumnSpec], faults: &mut dyn Faults) -> ArrayRef {
    let DataType::Struct(found) = array.data_type() else {
        return mismatch(array, &ColumnType::Struct(fields.to_vec()), faults);
    };
    let source = array.as_struct();
    check_fields(found, source, fields, faults);
    let pairs = pairs(fields);
    let mut nanos = vec![None; pairs.len()];
    let mut columns = Vec::with_capacity(fields.len());
    for (at, field) in fields.iter().enumerate() {
        let Some((from, _)) = found.find(&field.name) else {
            columns.push(new_null_array(&data_type(&field.kind), array.len()));
            continue;
        };
        let child = beneath(source.nulls(), source.column(from));
        let place = pairs.iter().position(|(time, _)| *time == at).map(|pair| &mut nanos[pair]);
        let mut of_field = OfField { name: &field.name, structs: &mut *faults };
        columns.push(convert_time_or(&child, &field.kind, Epochs::Micros, place, &mut of_field));
    }
    for ((_, rest), nanos) in pairs.iter().zip(&nanos) {
        if let Some(nanos) = nanos {
            let mut of_field = OfField { name: &fields[*rest].name, structs: &mut *faults };
            columns[*rest] = remainder::merged(&columns[*rest], nanos, &mut of_field);
        }
    }
    let DataType::Struct(target) = data_type(&ColumnType::Struct(fields.to_vec())) else {
        unreachable!("a struct column has a struct type")
    };
    let structs = StructArray::try_new_with_length(target, columns, source.nulls().cloned(), array.len());
    Arc::new(structs.expect("the fields of a struct should have one value for each struct"))
}

fn check_fields(found: &Fields, source: &StructArray, known: &[ColumnSpec], faults: &mut dyn Faults) {
    for (at, field) in found.iter().enumerate() {
        let fault = if !known.iter().any(|k| k.name == *field.name()) {
            names::no_column(field.name(), known.iter().map(|known| known.name.as_str()))
        } else if found.iter().take(at).any(|earlier| earlier.name() == field.name()) {
            Fault::duplicate_key()
        } else {
            continue;
        };
        let nulls = beneath(source.nulls(), source.column(at)).logical_nulls();
        let values = (0..source.len()).filter(|row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row)));
        let mut of_field = OfField { name: field.name(), structs: &mut *faults };
        values.for_each(|row| of_field.add(row, fault.clone()));
    }
}

/// A child with the nulls of its struct in addition to its own.
fn beneath(parent: Option<&NullBuffer>, child: &ArrayRef) -> ArrayRef {
    // An array of nothing but nulls has no room for more, and needs none.
    if parent.is_none() || *child.data_type() == DataType::Null {
        return child.clone();
    }
    let nulls = NullBuffer::union(parent, child.nulls());
    let data = child.to_data().into_builder().nulls(nulls).build();
    make_array(data.expect("an array should stay valid with more of its values null"))
}

/// The items of each list, none for a null one.
fn ranges<O: OffsetSizeTrait>(offsets: &[O], nulls: Option<&NullBuffer>) -> Vec<(usize, usize)> {
    let range = |(row, bounds): (usize, &[O])| match nulls {
        Some(nulls) if nulls.is_null(row) => (bounds[1].as_usize(), bounds[1].as_usize()),
        _ => (bounds[0].as_usize(), bounds[1].as_usize()),
    };
    offsets.windows(2).enumerate().map(range).collect()
}

/// The items of all ranges one after another, with the offsets that cut them.
fn gather(ranges: &[(usize, usize)], items: &ArrayRef) -> (OffsetBuffer<i32>, ArrayRef) {
    let mut offsets = vec![0_i32];
    let mut total = 0_usize;
    for (start, end) in ranges {
        total += end - start;
        offsets.push(i32::try_from(total).expect("items should be fewer than the bytes that were counted before"));
    }
    let first = ranges.first().map_or(0, |r| r.0);
    let contiguous = ranges.windows(2).all(|pair| pair[0].1 == pair[1].0);
    let items = if contiguous {
        items.slice(first, total)
    } else {
        let wanted: UInt64Array = ranges.iter().flat_map(|(start, end)| *start as u64..*end as u64).collect();
        take(items, &wanted, None).expect("the items of a validated list should be within its values")
    };
    (OffsetBuffer::new(ScalarBuffer::from(offsets)), items)
}
