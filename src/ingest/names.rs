//! Names that columns cannot have.
//!
//! Neither Parquet nor the readers take every key for a name, and they do not tell apart names that differ in case only. A row with a
//! value under such a key is rejected, and a table made from rows does not get such columns. (A map takes any key.)

use std::collections::HashMap;

use super::reject::Fault;
use crate::schema::ColumnSpec;
use crate::schema::spec::{RECEIPT_COLUMN, SpecError, check_column_name};

/// Why a key that is no column is none, in the words for its sender. `known` are the columns there are.
pub(super) fn no_column<'a>(key: &str, mut known: impl Iterator<Item = &'a str>) -> Fault {
    if check_column_name(key).is_err() {
        return Fault::new(
            "invalid_column_name",
            "no column can have this name, which is empty, too long, or has one of the characters ` ,;{}()=`, tab or newline",
            "rename the key, or send it within an object in a map<string,...> column, which takes any key",
        );
    }
    let lower = key.to_lowercase();
    match known.find(|name| name.to_lowercase() == lower) {
        Some(twin) => Fault::new(
            "ambiguous_column_name",
            format!("the table has {twin:?}, and Delta's readers do not tell apart names that differ in case only"),
            format!("send the value as {twin:?}, or under another name"),
        ),
        None => Fault::unknown_column(),
    }
}

/// The columns whose names are allowed. Of names that differ in case only the one with the most values stays, and of these the first
/// in the order of bytes: whatever the order of rows.
pub(super) fn usable(
    columns: Vec<(ColumnSpec, u64)>,
    allowed: impl Fn(&str) -> Result<(), SpecError>,
) -> Vec<ColumnSpec> {
    let mut best: HashMap<String, (u64, std::cmp::Reverse<String>)> = HashMap::new();
    for (column, values) in &columns {
        let rank = (*values, std::cmp::Reverse(column.name.clone()));
        let known = best.entry(column.name.to_lowercase()).or_insert_with(|| rank.clone());
        if *known < rank {
            *known = rank;
        }
    }
    let is_best =
        |column: &ColumnSpec| best.get(&column.name.to_lowercase()).is_some_and(|(_, best)| best.0 == column.name);
    let stays = |column: &ColumnSpec| allowed(&column.name).is_ok() && is_best(column);
    columns.into_iter().map(|(column, _)| column).filter(stays).collect()
}

/// Whether the column is the one that the server fills where rows have no event time.
pub(super) fn is_reserved(name: &str) -> bool {
    name.to_lowercase() == RECEIPT_COLUMN
}
