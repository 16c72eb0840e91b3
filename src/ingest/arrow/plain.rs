//! Columns with every value in its own place: runs are written out, and list views become lists whose items stand in order. Nothing
//! behind this has to know of either. What it takes is counted before, by [`super::size`].

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, LargeListArray, ListArray, MapArray, OffsetSizeTrait, StructArray,
    UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::{
    ArrowNativeType, DataType, Field, FieldRef, Fields, Int16Type, Int32Type, Int64Type, RunEndIndexType,
};

/// Whether a type has runs or list views in it.
pub(super) fn is_plain(kind: &DataType) -> bool {
    match kind {
        DataType::RunEndEncoded(_, _) | DataType::ListView(_) | DataType::LargeListView(_) => false,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => is_plain(item.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| is_plain(field.data_type())),
        DataType::Dictionary(_, values) => is_plain(values),
        _ => true,
    }
}

/// The same values. A plain array is handed back as it is.
pub(super) fn plain(array: &ArrayRef) -> ArrayRef {
    if is_plain(array.data_type()) {
        return Arc::clone(array);
    }
    match array.data_type() {
        DataType::RunEndEncoded(_, _) => {
            let (values, places) = runs(array);
            plain(&pick(values, places))
        }
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            plain(&take(dictionary.values(), dictionary.keys(), None).expect("keys should be within their dictionary"))
        }
        DataType::ListView(item) => list_view::<i32>(array, item),
        DataType::LargeListView(item) => list_view::<i64>(array, item),
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            let items = plain(list.values());
            Arc::new(ListArray::new(like(item, &items), list.offsets().clone(), items, list.nulls().cloned()))
        }
        DataType::LargeList(item) => {
            let list = array.as_list::<i64>();
            let items = plain(list.values());
            Arc::new(LargeListArray::new(like(item, &items), list.offsets().clone(), items, list.nulls().cloned()))
        }
        DataType::FixedSizeList(item, width) => {
            let list = array.as_fixed_size_list();
            let items = plain(list.values());
            let (nulls, rows) = (list.nulls().cloned(), list.len());
            let made = FixedSizeListArray::try_new_with_length(like(item, &items), *width, items, nulls, rows);
            Arc::new(made.expect("a list's items should have kept their number"))
        }
        DataType::Struct(fields) => Arc::new(structs(fields, array.as_struct())),
        DataType::Map(entries, sorted) => {
            let map = array.as_map();
            let DataType::Struct(fields) = entries.data_type() else { unreachable!("a map's entries are structs") };
            let inner = structs(fields, map.entries());
            let entries = Arc::new(entries.as_ref().clone().with_data_type(inner.data_type().clone()));
            Arc::new(MapArray::new(entries, map.offsets().clone(), inner, map.nulls().cloned(), *sorted))
        }
        _ => unreachable!("other types are plain"),
    }
}

fn structs(fields: &Fields, array: &StructArray) -> StructArray {
    let columns: Vec<ArrayRef> = array.columns().iter().map(plain).collect();
    let fields: Fields = fields.iter().zip(&columns).map(|(field, column)| like(field, column)).collect();
    let made = StructArray::try_new_with_length(fields, columns, array.nulls().cloned(), array.len());
    made.expect("the fields of a struct should have kept their length")
}

/// The field, with the type that its values have now. Runs may hide nulls from it, so it may be null.
fn like(field: &FieldRef, values: &ArrayRef) -> FieldRef {
    Arc::new(Field::new(field.name(), values.data_type().clone(), field.is_nullable() || values.null_count() > 0))
}

fn pick(values: &ArrayRef, places: Vec<u64>) -> ArrayRef {
    take(values, &UInt64Array::from(places), None).expect("places should be within the values")
}

/// The values of a run-end encoded array, and for each row the place of its own.
pub(super) fn runs(array: &ArrayRef) -> (&ArrayRef, Vec<u64>) {
    let DataType::RunEndEncoded(ends, _) = array.data_type() else { unreachable!("asked of runs only") };
    match ends.data_type() {
        DataType::Int16 => runs_of::<Int16Type>(array),
        DataType::Int32 => runs_of::<Int32Type>(array),
        _ => runs_of::<Int64Type>(array),
    }
}

fn runs_of<R: RunEndIndexType>(array: &ArrayRef) -> (&ArrayRef, Vec<u64>) {
    let runs = array.as_run::<R>();
    let (offset, rows) = (runs.run_ends().offset(), runs.len());
    let mut places = Vec::with_capacity(rows);
    for (run, end) in runs.run_ends().values().iter().enumerate() {
        let until = end.as_usize().saturating_sub(offset).min(rows);
        places.resize(until.max(places.len()), run as u64);
    }
    (runs.values(), places)
}

/// For each row of a list view where its items begin, and how many they are; none for a null.
pub(super) fn views<O: OffsetSizeTrait>(array: &ArrayRef) -> (&ArrayRef, Vec<(usize, usize)>) {
    let lists = array.as_list_view::<O>();
    let view = |row| match lists.is_null(row) {
        true => (0, 0),
        false => (lists.value_offset(row).as_usize(), lists.value_size(row).as_usize()),
    };
    (lists.values(), (0..lists.len()).map(view).collect())
}

fn list_view<O: OffsetSizeTrait>(array: &ArrayRef, item: &FieldRef) -> ArrayRef {
    let (values, views) = views::<O>(array);
    let places = views.iter().flat_map(|(start, size)| *start as u64..(start + size) as u64).collect();
    let items = plain(&pick(values, places));
    let offsets = OffsetBuffer::<i64>::from_lengths(views.iter().map(|(_, size)| *size));
    let nulls: Option<NullBuffer> = array.nulls().cloned();
    Arc::new(LargeListArray::new(like(item, &items), offsets, items, nulls))
}

#[cfg(test)]
mod tests;
