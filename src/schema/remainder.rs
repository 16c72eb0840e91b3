//! Nanoseconds. A Delta timestamp counts microseconds; what a time has below that stands in a column of its own.
//!
//! **The rule.** A timestamp `x` keeps its nanoseconds if there is an `int` named `x_ns` beside it: a column of the table beside a column,
//! a field of the same struct beside a field, however deep. It takes 0 to 999; the time itself is floored, also before 1970, so that
//! `x` in microseconds times 1000 plus `x_ns` is the time in nanoseconds. It is 0 where a time has none, and null where there is no
//! time; rows may also say it themselves. Without that column a time with nanoseconds does not fit, and rejects its row: times that
//! stand directly in a list or a map have no place beside them.

use super::{ColumnSpec, ColumnType};

/// What the name of a time gets behind it.
const SUFFIX: &str = "_ns";

/// The name of the column that takes the nanoseconds of a time.
pub fn name_of(time: &str) -> String {
    format!("{time}{SUFFIX}")
}

/// Where the times stand that keep their nanoseconds, each with the place of these.
pub fn pairs(columns: &[ColumnSpec]) -> Vec<(usize, usize)> {
    let takes =
        |column: &ColumnSpec| column.kind == ColumnType::Int && column.nullable && column.name.ends_with(SUFFIX);
    let rests = columns.iter().enumerate().filter(|(_, column)| takes(column));
    rests
        .filter_map(|(rest, column)| {
            let name = column.name.strip_suffix(SUFFIX)?;
            let time = columns.iter().position(|time| time.name == name && time.kind == ColumnType::Timestamp)?;
            Some((time, rest))
        })
        .collect()
}
