//! Arrow IPC streams.
//!
//! - [`stream`]: messages into batches, from bytes that nobody vouches for;
//! - [`size`]: what batches take once shared values are written out;
//! - [`plain`]: runs and list views written out;
//! - [`convert`]: columns of any Arrow type into the table's types, without loss;
//! - [`nested`]: the same for lists, structs and maps;
//! - [`remainder`]: the nanoseconds of times;
//! - [`faults`]: the values that do not fit; [`as_json`]: their rows as JSON.

pub(super) mod as_json;
mod convert;
mod faults;
mod nested;
mod plain;
mod remainder;
mod size;
mod stream;

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, MapArray, NullBufferBuilder, RecordBatch, StringBuilder, StructArray,
    TimestampMicrosecondArray, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{FilterBuilder, concat_batches};
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef, TimestampMicrosecondType};
use bytes::Bytes;

use convert::convert_time_or;
use faults::{Faults, RowFaults};

use super::infer::{Inferred, event_time};
use super::limits::row_bytes;
use super::overflow::Overflow;
use super::reject::{Fault, Reject, RejectKind};
use super::rejected::Rejected;
use super::room::{self, Room};
use super::text_time::Epochs;
use super::window::Window;
use super::{Limits, names};
use crate::schema::arrow::{UTC, arrow_schema, column_type, entries_field, entry_fields};
use crate::schema::remainder::pairs;
use crate::schema::{ColumnSpec, ColumnType, EventTime, TableSpec, TimeUnit};

/// The columns that a stream asks for, and which of them is the event time.
pub(super) fn columns(body: &Bytes, unit: Option<TimeUnit>, limits: &Limits) -> Result<Inferred, Reject> {
    let (schema, batches) = stream::read(body, limits)?;
    if batches.iter().all(|b| b.num_rows() == 0) {
        return Err(Reject::empty_body());
    }
    check_names(&schema)?;
    // Before anything is written out.
    check_size(0, &batches, limits)?;
    let event = event_time(schema.fields().iter().map(|f| f.name().as_str()));
    let (mut columns, mut nanos) = (Vec::with_capacity(schema.fields().len()), Vec::new());
    for (at, field) in schema.fields().iter().enumerate() {
        // A column of the type null says nothing, whatever its rows are.
        if *field.data_type() == DataType::Null {
            continue;
        }
        let kind = column_type(field.data_type()).expect("types without a counterpart should have been refused");
        let nulls = |batch: &RecordBatch| batch.num_rows() - batch.column(at).logical_null_count();
        let values = batches.iter().map(nulls).sum::<usize>() as u64;
        let name = field.name().clone();
        let arrays = || batches.iter().map(|batch| plain::plain(batch.column(at)));
        // Numbers and text are times in the event time only.
        let has_nanos = match event == Some(field.name()) {
            true => arrays().any(|array| convert::has_nanos(&array, unit.map_or(Epochs::None, Epochs::Unit))),
            false => kind == ColumnType::Timestamp && arrays().any(|array| remainder::has_nanos(&array)),
        };
        nanos.extend(has_nanos.then(|| name.clone()));
        let kind =
            if kind.depth() > 1 { arrays().fold(kind, |kind, array| remainder::extended(kind, &array)) } else { kind };
        columns.push((ColumnSpec { name, kind, nullable: true }, values));
    }
    Ok(Inferred { event, columns, nanos, overflows: false })
}

/// Decodes the batches of a stream into one batch of the table's columns, without the rows that go to `rejected`.
pub(super) fn decode(
    spec: &TableSpec,
    body: &Bytes,
    now_micros: i64,
    limits: &Limits,
    rejected: &mut Rejected,
    room: &dyn Room,
) -> Result<RecordBatch, Reject> {
    let (schema, batches) = stream::read(body, limits)?;
    check_names(&schema)?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if rows == 0 {
        return Err(Reject::empty_body());
    }
    let bytes = check_size(row_bytes(spec), &batches, limits)?;
    // Several batches are joined once each is converted.
    if !room.take(if batches.len() > 1 { bytes.saturating_mul(2) } else { bytes }) {
        return Err(room::none_left());
    }
    let target = arrow_schema(spec);
    let window = Window::of(spec, now_micros);
    let work = Work { spec, target: &target, columns: Columns::of(spec, &schema, limits), window, now_micros, limits };
    let mut first_row = 1;
    let mut converted = Vec::with_capacity(batches.len());
    for batch in batches.iter().filter(|b| b.num_rows() > 0) {
        converted.push(work.convert(batch, first_row, rejected)?);
        first_row += batch.num_rows() as u64;
    }
    match converted.as_slice() {
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

/// The columns of a stream, by what they are to the table.
struct Columns {
    /// For each column of the table its place in the stream.
    sources: Vec<Option<usize>>,
    /// Places in the stream that rows may have no values in.
    barred: Vec<(usize, Fault)>,
    /// Places in the stream whose values go to the overflow column.
    overflow: Vec<usize>,
}

impl Columns {
    fn of(spec: &TableSpec, schema: &Schema, limits: &Limits) -> Self {
        let rule = Overflow::of(spec, limits);
        let overflows = |field: &FieldRef| {
            rule.at.is_some() && spec.column_index(field.name()).is_none() && rule.takes(field.name())
        };
        let overflow = (0..schema.fields().len()).filter(|at| overflows(&schema.fields()[*at])).collect();
        let bar = |(at, field): (usize, &FieldRef)| match spec.column_index(field.name()) {
            _ if overflows(field) => None,
            Some(ours) if Some(ours) == rule.at => Some((at, Fault::reserved_column())),
            None => Some((at, names::no_column(field.name(), spec.columns.iter().map(|column| column.name.as_str())))),
            Some(ours) if is_receipt(spec, ours) => Some((at, Fault::reserved_column())),
            Some(_) => None,
        };
        let barred: Vec<_> = schema.fields().iter().enumerate().filter_map(bar).collect();
        let source = |column: &ColumnSpec| schema.index_of(&column.name).ok();
        let source = |column| source(column).filter(|at| barred.iter().all(|(barred, _)| barred != at));
        Self { sources: spec.columns.iter().map(source).collect(), barred, overflow }
    }
}

fn is_receipt(spec: &TableSpec, at: usize) -> bool {
    matches!(&spec.event_time, EventTime::Receipt { column } if *column == spec.columns[at].name)
}

/// Bytes that the rows take once they are the table's.
fn check_size(row_bytes: usize, batches: &[RecordBatch], limits: &Limits) -> Result<usize, Reject> {
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if rows > limits.max_rows {
        return Err(Reject::too_many_rows(limits.max_rows));
    }
    // Below 2 GiB, which the offsets of one batch address.
    let limit = limits.max_batch_bytes.min(i32::MAX as usize);
    let values = batches.iter().flat_map(RecordBatch::columns).map(size::written_out);
    let bytes = values.fold(rows.saturating_mul(row_bytes), usize::saturating_add);
    if bytes <= limit {
        return Ok(bytes);
    }
    let message = format!("the rows take {bytes} bytes in memory, and one post may take {limit}");
    let help = "split the rows over several posts";
    Err(Reject::new(RejectKind::TooLarge, "batch_too_large", message, help))
}

/// What all batches of a stream have in common.
struct Work<'a> {
    spec: &'a TableSpec,
    target: &'a SchemaRef,
    columns: Columns,
    window: Window,
    now_micros: i64,
    limits: &'a Limits,
}

impl Work<'_> {
    fn convert(&self, batch: &RecordBatch, first_row: u64, rejected: &mut Rejected) -> Result<RecordBatch, Reject> {
        let sent: Vec<ArrayRef> = batch.columns().iter().map(plain::plain).collect();
        let mut faults = RowFaults::new(self.limits.max_rejected_rows);
        for (at, fault) in &self.columns.barred {
            faults.begin(batch.schema_ref().field(*at).name());
            with_value(&sent[*at]).for_each(|row| faults.add(row, fault.clone()));
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.spec.columns.len());
        let pairs = pairs(&self.spec.columns);
        let mut nanos = vec![None; pairs.len()];
        for (at, (column, source)) in self.spec.columns.iter().zip(&self.columns.sources).enumerate() {
            faults.begin(&column.name);
            let array = match source {
                Some(source) => {
                    let epochs = Epochs::of(self.spec, &column.name);
                    let place = pairs.iter().position(|(time, _)| *time == at).map(|pair| &mut nanos[pair]);
                    convert_time_or(&sent[*source], &column.kind, epochs, place, &mut faults)
                }
                None if !self.columns.overflow.is_empty() && self.spec.overflow_index() == Some(at) => {
                    self.overflow(batch.schema_ref(), &sent)
                }
                None if is_receipt(self.spec, at) => {
                    let now = TimestampMicrosecondArray::from_value(self.now_micros, batch.num_rows());
                    Arc::new(now.with_timezone(UTC))
                }
                None => new_null_array(self.target.field(at).data_type(), batch.num_rows()),
            };
            if let Some(nulls) = array.nulls().filter(|nulls| !column.nullable && nulls.null_count() > 0) {
                let null = (0..nulls.len()).filter(|row| nulls.is_null(*row));
                null.for_each(|row| faults.add(row, Fault::missing_value()));
            }
            if matches!(&self.spec.event_time, EventTime::Column { name, .. } if *name == column.name) {
                let times = array.as_primitive::<TimestampMicrosecondType>();
                let valid = (0..times.len()).filter(|row| times.is_valid(*row));
                valid.for_each(|row| {
                    if let Some(fault) = self.window.check(times.value(row)) {
                        faults.add(row, fault);
                    }
                });
            }
            columns.push(array);
        }
        for ((_, rest), nanos) in pairs.iter().zip(&nanos) {
            if let Some(nanos) = nanos {
                faults.begin(&self.spec.columns[*rest].name);
                columns[*rest] = remainder::merged(&columns[*rest], nanos, &mut faults);
            }
        }
        if faults.rows.is_empty() {
            let batch = RecordBatch::try_new(self.target.clone(), columns);
            return Ok(batch.expect("converted columns should have the table's types"));
        }
        let mut kept = vec![true; batch.num_rows()];
        for (row, fault) in faults.rows {
            kept[row] = false;
            rejected.push(fault.at(first_row + row as u64, ""), self.limits, || {
                as_json::row(batch.schema_ref(), &sent, row)
            })?;
        }
        let kept = FilterBuilder::new(&BooleanArray::from(kept)).optimize().build();
        let columns = columns.iter().map(|column| kept.filter(column));
        let columns = columns.map(|column| column.expect("columns should have one value a row")).collect();
        let batch = RecordBatch::try_new(self.target.clone(), columns);
        Ok(batch.expect("converted columns should have the table's types"))
    }
}

impl Work<'_> {
    /// What has no column of its own, as JSON text by the column's name.
    fn overflow(&self, schema: &Schema, sent: &[ArrayRef]) -> ArrayRef {
        let rows = sent.first().map_or(0, |column| column.len());
        let (mut keys, mut values) = (StringBuilder::new(), StringBuilder::new());
        let (mut lengths, mut nulls) = (Vec::with_capacity(rows), NullBufferBuilder::new(rows));
        for row in 0..rows {
            let mut entries = 0;
            for at in &self.columns.overflow {
                if !as_json::is_null(sent[*at].as_ref(), row) {
                    keys.append_value(schema.field(*at).name());
                    values.append_value(as_json::of(sent[*at].as_ref(), row));
                    entries += 1;
                }
            }
            lengths.push(entries);
            nulls.append(entries > 0);
        }
        let columns: Vec<ArrayRef> = vec![Arc::new(keys.finish()), Arc::new(values.finish())];
        let entries = StructArray::new(entry_fields(&ColumnType::String), columns, None);
        let offsets = OffsetBuffer::from_lengths(lengths);
        Arc::new(MapArray::new(entries_field(&ColumnType::String), offsets, entries, nulls.finish(), false))
    }
}

/// The rows that have a value in a column.
fn with_value(array: &ArrayRef) -> impl Iterator<Item = usize> {
    let nulls = array.logical_nulls();
    (0..array.len()).filter(move |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row)))
}
