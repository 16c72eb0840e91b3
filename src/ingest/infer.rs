//! The definition of a table that does not exist yet, from its first post.

use bytes::Bytes;

use super::json::{Body, RowShapes};
use super::reject::{Fault, Reject, RejectKind};
use super::rejected::Rejected;
use super::{Format, Limits, arrow};
use crate::schema::spec::{DEFAULT_BUCKET_SECONDS, RECEIPT_COLUMN};
use crate::schema::{ColumnSpec, ColumnType, EventTime, TableName, TableSpec, TimeUnit};

/// Columns that are taken for the event time; the first of these names that exists.
pub(super) const EVENT_TIME_NAMES: &[&str] = &["timestamp", "time", "ts"];

/// Infers a table that holds every row of the body without loss; rows that are no JSON objects are passed over. Columns stand in the order of their first
/// appearance; all but the event time may be null. `time_unit` says what epoch numbers in the event time count.
/// Where no column can be the event time by its name, rows are timed by their receipt.
pub fn infer(
    name: TableName,
    format: Format,
    body: &Bytes,
    time_unit: Option<TimeUnit>,
    limits: &Limits,
) -> Result<TableSpec, Reject> {
    if body.len() > limits.decoded_bytes() {
        return Err(Reject::body_too_large(limits.decoded_bytes()));
    }
    let (event, columns) = match format {
        Format::ArrowStream => arrow::columns(body, limits)?,
        Format::Ndjson | Format::Json => json_columns(format, body, time_unit, limits)?,
    };
    if columns.len() > limits.max_columns {
        return Err(Reject::too_many_columns(limits.max_columns));
    }
    define(name, event, columns, time_unit)
}

/// The name of the event-time column among these, if there is one.
pub(super) fn event_time<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<&'static str> {
    let mut best = None;
    names.try_for_each(|name| {
        let rank = EVENT_TIME_NAMES.iter().position(|known| *known == name);
        best = [best, rank].into_iter().flatten().min();
        (best != Some(0)).then_some(())
    });
    best.map(|rank| EVENT_TIME_NAMES[rank])
}

/// The column that holds the event time.
pub(super) fn time_column(name: &str) -> ColumnSpec {
    ColumnSpec { name: name.to_owned(), kind: ColumnType::Timestamp, nullable: false }
}

fn json_columns(
    format: Format,
    body: &Bytes,
    time_unit: Option<TimeUnit>,
    limits: &Limits,
) -> Result<(Option<&'static str>, Vec<ColumnSpec>), Reject> {
    let mut shapes = RowShapes::new(time_unit, EVENT_TIME_NAMES, limits);
    let mut rejected = Rejected::default();
    let rows = Body::new(format, body)?.each(limits, &mut shapes, &mut rejected)?;
    // No row says anything about the table.
    if let Some(first) = rejected.rows().first().filter(|_| rejected.len() as u64 == rows) {
        return Err(Reject { status: RejectKind::Unprocessable, ..first.reason.clone() });
    }
    let event = event_time(shapes.columns.names());
    if let Some(name) = event {
        shapes.check_event_time(name)?;
    }
    let columns = shapes
        .columns
        .column_specs(|name| (event == Some(name)).then(|| time_column(name)))
        .map_err(|(row, fault)| fault.at(shapes.number(row), ""))?;
    Ok((event, columns))
}

fn define(
    name: TableName,
    event: Option<&str>,
    mut columns: Vec<ColumnSpec>,
    unit: Option<TimeUnit>,
) -> Result<TableSpec, Reject> {
    let event_time = match event {
        Some(name) => EventTime::Column { name: name.to_owned(), unit },
        None if columns.iter().any(|c| c.name.eq_ignore_ascii_case(RECEIPT_COLUMN)) => {
            return Err(Fault::reserved_column().within(RECEIPT_COLUMN).at(1, ""));
        }
        None => {
            columns.push(time_column(RECEIPT_COLUMN));
            EventTime::Receipt { column: RECEIPT_COLUMN.to_owned() }
        }
    };
    let spec = TableSpec {
        name,
        schema_version: 1,
        partition: Some(TableSpec::partition_name(&columns)),
        columns,
        event_time,
        bucket_seconds: DEFAULT_BUCKET_SECONDS,
        sort: Vec::new(),
        history: Vec::new(),
        bloom: Vec::new(),
    };
    spec.validate().map_err(|e| {
        let help = "rename the columns, or declare the table and send rows that fit it";
        Reject::new(RejectKind::Unprocessable, "invalid_table", format!("no table can hold these rows: {e}"), help)
    })?;
    Ok(spec)
}
