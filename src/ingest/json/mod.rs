//! JSON rows.
//!
//! - [`rows`]: cuts a body into rows, by lines or by one array;
//! - [`seed`]: serde seeds that carry each value straight to its column, without a tree in between;
//! - [`column`]: the growing Arrow columns; [`scalar`]: the readings of single values;
//! - [`shape`]: what the rows of a first post have in common, for the table it creates.

mod column;
mod rows;
mod scalar;
mod seed;
mod shape;

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::FilterBuilder;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use column::Fields;
use seed::ObjectVisitor;

use super::Limits;
use super::limits::row_bytes;
use super::overflow::Overflow;
use super::reject::{Fault, Reject};
use super::rejected::Rejected;
use super::room::Room;
use super::window::Window;
use crate::schema::arrow::arrow_schema;
use crate::schema::{EventTime, TableSpec};

pub(super) use rows::{Body, Context, RowSink};
pub(super) use shape::{RowShapes, Shapes};

/// Hears of each key of a row, in its order, and of its value as JSON text; of nulls not.
pub(super) fn each_value(row: &[u8], tell: impl FnMut(&str, &str)) {
    struct Values<F>(F);

    impl<'de, F: FnMut(&str, &str)> Visitor<'de> for Values<F> {
        type Value = ();

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some((key, value)) = map.next_entry::<Cow<'_, str>, &RawValue>()? {
                if value.get() != "null" {
                    (self.0)(&key, value.get());
                }
            }
            Ok(())
        }
    }

    // What is no object has no keys; a row that was rejected may be that.
    let _ = serde_json::Deserializer::from_slice(row).deserialize_map(Values(tell));
}

/// Decodes the rows of a body into a batch of the table's columns, without those that go to `rejected`.
pub(super) fn decode(
    spec: &TableSpec,
    body: Body<'_>,
    now_micros: i64,
    limits: &Limits,
    rejected: &mut Rejected,
    room: Arc<dyn Room>,
) -> Result<RecordBatch, Reject> {
    let mut sink = ColumnSink {
        fields: Fields::for_rows(spec),
        reserved: match &spec.event_time {
            EventTime::Receipt { column } => spec.column_index(column),
            EventTime::Column { .. } => None,
        },
        row_bytes: row_bytes(spec),
        now_micros,
        overflow: Overflow::of(spec, limits),
        context: Context::new(limits.max_batch_bytes).in_room(room, body.len()),
        window: match &spec.event_time {
            EventTime::Column { name, .. } => spec.column_index(name).map(|at| (at, Window::of(spec, now_micros))),
            EventTime::Receipt { .. } => None,
        },
        rows: 0,
        undone: Vec::new(),
    };
    body.each(limits, &mut sink, rejected)?;
    Ok(RecordBatch::try_new(arrow_schema(spec), sink.finish())
        .expect("columns should have the table's types and one value a row"))
}

/// Carries rows to the columns of a batch.
struct ColumnSink<'a> {
    fields: Fields,
    /// The receipt-time column, which rows may not have and the server fills.
    reserved: Option<usize>,
    overflow: Overflow<'a>,
    row_bytes: usize,
    now_micros: i64,
    context: Context,
    /// The event-time column, and what the table takes of it.
    window: Option<(usize, Window)>,
    /// Rows in the columns, those that were taken back included.
    rows: usize,
    /// Which of them were taken back. Arrow's builders do not shrink, so such a row is filled up, and left out at the end.
    undone: Vec<usize>,
}

impl ColumnSink<'_> {
    /// Whether the table takes a row of the last row's event time.
    fn check_time(&self) -> Result<(), (usize, Fault)> {
        let Some((at, window)) = &self.window else { return Ok(()) };
        let fault = self.fields.columns[*at].last_time().and_then(|time| window.check(time));
        fault.map_or(Ok(()), |fault| Err((*at, fault)))
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        let columns = self.fields.finish();
        if self.undone.is_empty() {
            return columns;
        }
        let mut kept = vec![true; self.rows];
        self.undone.iter().for_each(|row| kept[*row] = false);
        let kept = FilterBuilder::new(&BooleanArray::from(kept)).optimize().build();
        let columns = columns.iter().map(|column| kept.filter(column));
        columns.map(|column| column.expect("columns should have one value a row")).collect()
    }
}

impl RowSink for ColumnSink<'_> {
    const SYNTAX_FIRST: bool = false;

    fn context(&mut self) -> &mut Context {
        &mut self.context
    }

    fn row<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        self.rows += 1;
        self.context.charge::<D::Error>(self.row_bytes)?;
        let (reserved, overflow) = (self.reserved, Some(&self.overflow));
        let visitor = ObjectVisitor { fields: &mut self.fields, reserved, overflow, context: &mut self.context };
        deserializer.deserialize_any(visitor)?;
        if let Some(at) = self.reserved {
            self.fields.columns[at].append_time(self.now_micros);
        }
        let closed = self.overflow.at.map_or(Ok(()), |at| self.fields.close_overflow(at));
        let done = closed.and_then(|()| self.fields.fill_missing(self.reserved)).and_then(|()| self.check_time());
        done.map_err(|(at, fault)| {
            self.context.within(&self.fields.columns[at].name);
            self.context.fail(fault)
        })
    }

    fn undo(&mut self) -> bool {
        self.fields.fill_up(self.rows);
        self.undone.push(self.rows - 1);
        true
    }

    fn restart(&mut self) {
        self.fields.fill_up(self.rows);
        self.fields.finish();
        self.context.restart();
        self.rows = 0;
        self.undone.clear();
    }
}

/// The refusal of a row that is no object.
fn not_an_object(found: &str) -> Fault {
    Fault::new(
        "row_not_object",
        format!("a row is a JSON object, and this is {found}"),
        "send one object a row: a line each in application/x-ndjson, an array of objects in application/json",
    )
}
