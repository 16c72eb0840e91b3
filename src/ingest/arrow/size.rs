//! What a column takes once values that rows share are written out for each of them. A dictionary with one long value,
//! views of one long block, a run or lists of the same items stand for far more bytes than they occupy.

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait};
use arrow::datatypes::DataType;

use super::plain;

/// Bytes of the values of a column, each counted as often as rows have it.
pub(super) fn written_out(array: &ArrayRef) -> usize {
    match array.data_type() {
        DataType::Utf8View => views(array.as_string_view().views()),
        DataType::BinaryView => views(array.as_binary_view().views()),
        DataType::Utf8 => array.as_string::<i32>().value_data().len(),
        DataType::LargeUtf8 => array.as_string::<i64>().value_data().len(),
        DataType::Binary => array.as_binary::<i32>().value_data().len(),
        DataType::LargeBinary => array.as_binary::<i64>().value_data().len(),
        DataType::List(_) => written_out(array.as_list::<i32>().values()),
        DataType::LargeList(_) => written_out(array.as_list::<i64>().values()),
        DataType::FixedSizeList(_, _) => written_out(array.as_fixed_size_list().values()),
        DataType::Struct(_) => all(array.as_struct().columns()).saturating_add(array.len()),
        DataType::Map(_, _) => all(array.as_map().entries().columns()),
        DataType::Dictionary(_, _)
        | DataType::RunEndEncoded(_, _)
        | DataType::ListView(_)
        | DataType::LargeListView(_) => total(&each(array)),
        DataType::FixedSizeBinary(width) => array.len().saturating_mul(width.unsigned_abs() as usize),
        other => array.len().saturating_mul(other.primitive_width().unwrap_or(1)),
    }
}

fn all(columns: &[ArrayRef]) -> usize {
    columns.iter().map(written_out).fold(0, usize::saturating_add)
}

/// The low half of the low word of a view is the length of its value.
fn views(views: &[u128]) -> usize {
    views.iter().map(|view| length_of(*view)).fold(0, usize::saturating_add)
}

fn length_of(view: u128) -> usize {
    (view & u128::from(u32::MAX)) as usize
}

fn total(sizes: &[usize]) -> usize {
    sizes.iter().copied().fold(0, usize::saturating_add)
}

/// The same of each value: those of a dictionary, a run or a list view may be wanted often, or never.
fn each(array: &ArrayRef) -> Vec<usize> {
    match array.data_type() {
        DataType::Utf8View => array.as_string_view().views().iter().map(|view| length_of(*view)).collect(),
        DataType::BinaryView => array.as_binary_view().views().iter().map(|view| length_of(*view)).collect(),
        DataType::Utf8 => lengths(array.as_string::<i32>().offsets()),
        DataType::LargeUtf8 => lengths(array.as_string::<i64>().offsets()),
        DataType::Binary => lengths(array.as_binary::<i32>().offsets()),
        DataType::LargeBinary => lengths(array.as_binary::<i64>().offsets()),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            of_ranges(list.values(), ranges(list.offsets()))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            of_ranges(list.values(), ranges(list.offsets()))
        }
        DataType::FixedSizeList(_, width) => {
            let width = width.unsigned_abs() as usize;
            let items = array.as_fixed_size_list().values();
            of_ranges(items, (0..array.len()).map(|row| (row * width, width)))
        }
        DataType::ListView(_) => {
            let (items, views) = plain::views::<i32>(array);
            of_ranges(items, views.into_iter())
        }
        DataType::LargeListView(_) => {
            let (items, views) = plain::views::<i64>(array);
            of_ranges(items, views.into_iter())
        }
        DataType::Struct(_) => sums(array.as_struct().columns(), array.len()),
        DataType::Map(_, _) => {
            let map = array.as_map();
            let entries = sums(map.entries().columns(), map.entries().len());
            of_sizes(&entries, ranges(map.offsets()))
        }
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            if dictionary.values().is_empty() {
                return vec![0; array.len()];
            }
            let (sizes, keys) = (each(dictionary.values()), dictionary.normalized_keys());
            let size = |(row, key): (usize, usize)| if array.is_valid(row) { sizes[key] } else { 0 };
            keys.into_iter().enumerate().map(size).collect()
        }
        DataType::RunEndEncoded(_, _) => {
            let (values, places) = plain::runs(array);
            let sizes = each(values);
            places.into_iter().map(|place| sizes[place as usize]).collect()
        }
        DataType::FixedSizeBinary(width) => vec![width.unsigned_abs() as usize; array.len()],
        other => vec![other.primitive_width().unwrap_or(1); array.len()],
    }
}

fn sums(columns: &[ArrayRef], rows: usize) -> Vec<usize> {
    let mut sums = vec![1; rows];
    for column in columns {
        sums.iter_mut().zip(each(column)).for_each(|(sum, size): (&mut usize, _)| *sum = sum.saturating_add(size));
    }
    sums
}

fn of_ranges(items: &ArrayRef, ranges: impl Iterator<Item = (usize, usize)>) -> Vec<usize> {
    of_sizes(&each(items), ranges)
}

/// The sizes of ranges of items, each with its start and its length, from the items' own.
fn of_sizes(sizes: &[usize], ranges: impl Iterator<Item = (usize, usize)>) -> Vec<usize> {
    let mut sums = Vec::with_capacity(sizes.len() + 1);
    sums.push(0_usize);
    for (at, size) in sizes.iter().enumerate() {
        sums.push(sums[at].saturating_add(*size));
    }
    ranges.map(|(start, len)| (sums[start + len] - sums[start]).saturating_add(len)).collect()
}

fn ranges<O: OffsetSizeTrait>(offsets: &[O]) -> impl Iterator<Item = (usize, usize)> {
    offsets.windows(2).map(|w| (w[0].as_usize(), (w[1] - w[0]).as_usize()))
}

fn lengths<O: OffsetSizeTrait>(offsets: &[O]) -> Vec<usize> {
    offsets.windows(2).map(|w| (w[1] - w[0]).as_usize()).collect()
}
