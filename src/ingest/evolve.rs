//! The next definition of a table that evolves, from the rows that it could not hold as it is.
//!
//! - Keys that it lacks become columns, in the order of their first appearance, of the type that holds most of their values in this
//!   post: the rule by which a first post makes a table (`infer`). Rows with other values are rejected.
//! - `int` becomes `long`, and `float` `double`, where a value asks for it: those are what readers follow in the files that are there
//!   (`lake::schema`). No other type changes; such a row is rejected, and a column of another name is the remedy.
//! - A time with nanoseconds gets the column that takes them ([`remainder`]).
//! - The overflow column is added once something can only go there.
//!
//! Rows of older versions stay as they are, in the buckets that are open: both versions are read as the newest one, so that senders of two
//! versions do not seal a bucket for each batch.

use std::collections::HashSet;

use bytes::Bytes;

use super::json::{self, Shapes};
use super::number;
use super::overflow::Overflow;
use super::rejected::{Rejected, RejectedRow};
use super::{Format, Limits, arrow};
use crate::schema::spec::{OVERFLOW_COLUMN, SchemaMode};
use crate::schema::versions::Change;
use crate::schema::{ColumnSpec, ColumnType, TableSpec, remainder};

/// The definition that holds more of the rows; none if there is none. `rejected` are those of the post under `spec`.
pub(super) fn next(
    spec: &TableSpec,
    format: Format,
    body: &Bytes,
    rejected: &Rejected,
    limits: &Limits,
) -> Option<TableSpec> {
    if spec.rules.schema != SchemaMode::Evolve || rejected.is_empty() {
        return None;
    }
    let mut wanted = spec.clone();
    for row in rejected.rows() {
        widen(&mut wanted, row);
        make_room(&mut wanted, row);
    }
    add(&mut wanted, spec, format, body, rejected, limits);
    match spec.change_to(&wanted) {
        Change::Next(next) => Some(*next),
        Change::None | Change::Refused(_) => None,
    }
}

/// Widens the column of a value that the wider type holds.
fn widen(spec: &mut TableSpec, row: &RejectedRow) {
    let reason = &row.reason;
    if !matches!(reason.code, "out_of_range" | "inexact_number") {
        return;
    }
    let (Some(name), Some(value)) = (&reason.column, &reason.value) else { return };
    let Some(column) = spec.columns.iter_mut().find(|column| *column.name == **name) else { return };
    match column.kind {
        ColumnType::Int if number::integer::<i64>(value).is_ok() => column.kind = ColumnType::Long,
        ColumnType::Float if number::double(value).is_ok() => column.kind = ColumnType::Double,
        _ => {}
    }
}

/// Adds the column for the nanoseconds of a time. (A struct cannot get a field later.)
fn make_room(spec: &mut TableSpec, row: &RejectedRow) {
    let Some(time) = row.reason.column.as_deref().filter(|_| row.reason.code == "timestamp_precision") else { return };
    let is_time = spec.columns.iter().any(|column| column.name == time && column.kind == ColumnType::Timestamp);
    let name = remainder::name_of(time);
    if is_time && spec.has_room_for_name(&name) {
        spec.columns.push(ColumnSpec { name, kind: ColumnType::Int, nullable: true });
    }
}

/// Adds columns for keys that no column has.
fn add(wanted: &mut TableSpec, spec: &TableSpec, format: Format, body: &Bytes, rejected: &Rejected, limits: &Limits) {
    let rule = Overflow::of(spec, limits);
    let unknown = rejected.rows().iter().filter(|row| row.reason.code == "unknown_column");
    let mut shapes = Shapes::default();
    let (mut overflows, mut keys) = (false, HashSet::new());
    for row in unknown {
        json::each_value(&row.original, |key, value| {
            if !rule.may_be(key) {
                return;
            }
            if rule.takes(key) || (keys.len() >= rule.room() && !keys.contains(key)) {
                overflows = true;
                return;
            }
            keys.insert(key.to_owned());
            shapes.add(key, value, limits);
        });
    }
    let (typed, nanos) = match format {
        Format::ArrowStream => arrow::columns(body, None, limits)
            .map_or_else(|_| (Vec::new(), Vec::new()), |inferred| (inferred.columns, inferred.nanos)),
        Format::Ndjson | Format::Json => (Vec::new(), Vec::new()),
    };
    for (name, shape) in shapes.types() {
        // A stream says itself what its columns are.
        let sent = typed.iter().find(|(column, _)| column.name == name).map(|(column, _)| column.kind.clone());
        let column = sent.or(shape).map(|kind| ColumnSpec { name: name.to_owned(), kind, nullable: true });
        let fits = |column: &ColumnSpec| {
            let mut trial = wanted.clone();
            trial.columns.push(column.clone());
            trial.validate().is_ok()
        };
        let Some(column) = column.filter(fits) else { continue };
        let rest = nanos.contains(&column.name).then(|| remainder::name_of(&column.name));
        wanted.columns.push(column);
        let rest = rest.map(|name| ColumnSpec { name, kind: ColumnType::Int, nullable: true });
        if let Some(rest) = rest.filter(|rest| wanted.has_room_for_name(&rest.name)) {
            wanted.columns.push(rest);
        }
    }
    if overflows && rule.at.is_none() && wanted.column_index(OVERFLOW_COLUMN).is_none() {
        wanted.columns.push(ColumnSpec {
            name: OVERFLOW_COLUMN.to_owned(),
            kind: ColumnType::overflow(),
            nullable: true,
        });
    }
}

#[cfg(test)]
mod tests;
