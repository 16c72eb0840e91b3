//! Arrow IPC streams.
//!
//! - [`stream`]: messages into batches, from bytes that nobody vouches for;
//! - [`size`]: what batches take once shared values are written out;
//! - [`plain`]: runs and list views written out;
//! - [`convert`]: columns of any Arrow type into the table's types, without loss;
//! - [`nested`]: the same for lists, structs and maps.

mod convert;
mod nested;
mod plain;
mod size;
mod stream;

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, TimestampMicrosecondArray, new_null_array};
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;

use convert::convert;

use super::Limits;
use super::infer::{event_time, time_column};
use super::limits::row_bytes;
use super::reject::{Fault, Reject, RejectKind};
use super::text_time::Epochs;
use crate::schema::arrow::{UTC, arrow_schema, column_type};
use crate::schema::{ColumnSpec, EventTime, TableSpec};

/// The columns that a stream asks for, and which of them is the event time.
pub(super) fn columns(body: &Bytes, limits: &Limits) -> Result<(Option<&'static str>, Vec<ColumnSpec>), Reject> {
    let (schema, batches) = stream::read(body, limits)?;
    if batches.iter().all(|b| b.num_rows() == 0) {
        return Err(Reject::empty_body());
    }
    check_names(&schema)?;
    let event = event_time(schema.fields().iter().map(|f| f.name().as_str()));
    let columns = schema.fields().iter().map(|field| {
        if event == Some(field.name()) {
            return time_column(field.name());
        }
        let kind = column_type(field.data_type()).expect("types without a counterpart should have been refused");
        ColumnSpec { name: field.name().clone(), kind, nullable: true }
    });
    Ok((event, columns.collect()))
}

/// Decodes the batches of a stream into one batch of the table's columns.
pub(super) fn decode(spec: &TableSpec, body: &Bytes, now_micros: i64, limits: &Limits) -> Result<RecordBatch, Reject> {
    let (schema, batches) = stream::read(body, limits)?;
    check_names(&schema)?;
    let sources = sources(spec, &schema)?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    check_size(spec, &batches, rows, limits)?;
    let target = arrow_schema(spec);
    let mut first_row = 1;
    let mut converted = Vec::with_capacity(batches.len());
    for batch in batches.iter().filter(|b| b.num_rows() > 0) {
        converted.push(convert_batch(spec, &target, &sources, batch, now_micros, first_row)?);
        first_row += batch.num_rows() as u64;
    }
    match converted.as_slice() {
        [] => Err(Reject::empty_body()),
        [one] => Ok(one.clone()),
        several => Ok(concat_batches(&target, several).expect("batches of one schema and bounded size should join")),
    }
}

fn check_names(schema: &Schema) -> Result<(), Reject> {
    let mut seen = HashSet::new();
    match schema.fields().iter().find(|f| !seen.insert(f.name())) {
        None => Ok(()),
        Some(twice) => Err(Fault::duplicate_key().within(twice.name()).at(1, "")),
    }
}

/// For each column of the table its place in the stream.
fn sources(spec: &TableSpec, schema: &Schema) -> Result<Vec<Option<usize>>, Reject> {
    for field in schema.fields() {
        let fault = match spec.column_index(field.name()) {
            None => Fault::unknown_column(),
            Some(at) if is_receipt(spec, at) => Fault::reserved_column(),
            Some(_) => continue,
        };
        return Err(fault.within(field.name()).at(1, ""));
    }
    Ok(spec.columns.iter().map(|c| schema.index_of(&c.name).ok()).collect())
}

fn is_receipt(spec: &TableSpec, at: usize) -> bool {
    matches!(&spec.event_time, EventTime::Receipt { column } if *column == spec.columns[at].name)
}

fn check_size(spec: &TableSpec, batches: &[RecordBatch], rows: usize, limits: &Limits) -> Result<(), Reject> {
    if rows > limits.max_rows {
        return Err(Reject::too_many_rows(limits.max_rows));
    }
    // Below 2 GiB, which the offsets of one batch address.
    let limit = limits.max_batch_bytes.min(i32::MAX as usize);
    let values = batches.iter().flat_map(RecordBatch::columns).map(size::written_out);
    let bytes = values.fold(rows.saturating_mul(row_bytes(spec)), usize::saturating_add);
    if bytes <= limit {
        return Ok(());
    }
    let message = format!("the rows take {bytes} bytes in memory, and one post may take {limit}");
    let help = "split the rows over several posts";
    Err(Reject::new(RejectKind::TooLarge, "batch_too_large", message, help))
}

fn convert_batch(
    spec: &TableSpec,
    target: &SchemaRef,
    sources: &[Option<usize>],
    batch: &RecordBatch,
    now_micros: i64,
    first_row: u64,
) -> Result<RecordBatch, Reject> {
    let rows = batch.num_rows();
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(spec.columns.len());
    for (at, (column, source)) in spec.columns.iter().zip(sources).enumerate() {
        let array = match source {
            Some(source) => {
                let epochs = Epochs::of(spec, &column.name);
                convert(&plain::plain(batch.column(*source)), &column.kind, epochs)
                    .map_err(|e| e.fault.within(&column.name).at(first_row + e.index as u64, ""))?
            }
            None if is_receipt(spec, at) => {
                Arc::new(TimestampMicrosecondArray::from_value(now_micros, rows).with_timezone(UTC))
            }
            None => new_null_array(target.field(at).data_type(), rows),
        };
        if let Some(row) = first_null(&array).filter(|_| !column.nullable) {
            return Err(Fault::missing_value().within(&column.name).at(first_row + row as u64, ""));
        }
        columns.push(array);
    }
    Ok(RecordBatch::try_new(target.clone(), columns).expect("converted columns should have the table's types"))
}

fn first_null(array: &ArrayRef) -> Option<usize> {
    array.nulls().and_then(|nulls| (0..nulls.len()).find(|row| nulls.is_null(*row)))
}
