//! What a column takes once values that rows share are written out for each of them. A dictionary with one long value,
//! or views of one long block, stand for far more bytes than they occupy.

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait};
use arrow::datatypes::DataType;

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
        DataType::Struct(_) => array.as_struct().columns().iter().map(written_out).fold(0, usize::saturating_add),
        DataType::Map(_, _) => {
            array.as_map().entries().columns().iter().map(written_out).fold(0, usize::saturating_add)
        }
        DataType::Dictionary(_, _) => dictionary(array),
        DataType::FixedSizeBinary(width) => array.len().saturating_mul(width.unsigned_abs() as usize),
        other => array.len().saturating_mul(other.primitive_width().unwrap_or(1)),
    }
}

/// The low half of the low word of a view is the length of its value.
fn views(views: &[u128]) -> usize {
    views.iter().map(|view| (view & u128::from(u32::MAX)) as usize).fold(0, usize::saturating_add)
}

/// Each key counts the size of its value. For nested values each counts the whole dictionary, which bounds any of them.
fn dictionary(array: &ArrayRef) -> usize {
    let dictionary = array.as_any_dictionary();
    let values = dictionary.values();
    if values.is_empty() {
        return 0;
    }
    let sizes = match values.data_type() {
        DataType::Utf8 => lengths(values.as_string::<i32>().offsets()),
        DataType::LargeUtf8 => lengths(values.as_string::<i64>().offsets()),
        DataType::Binary => lengths(values.as_binary::<i32>().offsets()),
        DataType::LargeBinary => lengths(values.as_binary::<i64>().offsets()),
        DataType::Utf8View => values.as_string_view().views().iter().map(|v| views(&[*v])).collect(),
        DataType::BinaryView => values.as_binary_view().views().iter().map(|v| views(&[*v])).collect(),
        DataType::FixedSizeBinary(width) => vec![width.unsigned_abs() as usize; values.len()],
        other => vec![other.primitive_width().unwrap_or_else(|| written_out(values)); values.len()],
    };
    let keys = dictionary.normalized_keys();
    let used = keys.iter().enumerate().filter(|(row, _)| array.is_valid(*row));
    used.map(|(_, key)| sizes[*key]).fold(0, usize::saturating_add)
}

fn lengths<O: OffsetSizeTrait>(offsets: &[O]) -> Vec<usize> {
    offsets.windows(2).map(|w| (w[1] - w[0]).as_usize()).collect()
}
