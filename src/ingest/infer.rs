//! The definition of a table that does not exist yet, from its first post.

use bytes::Bytes;

use super::json::{Body, RowShapes};
use super::reject::{Reject, RejectKind};
use super::rejected::Rejected;
use super::{Format, Limits, arrow, names};
use crate::schema::spec::{DEFAULT_BUCKET_SECONDS, MAX_COLUMNS, OVERFLOW_COLUMN, RECEIPT_COLUMN, check_column_name};
use crate::schema::{ColumnSpec, ColumnType, EventTime, Rules, TableName, TableSpec, TimeUnit, remainder};

/// Columns that are taken for the event time; the first of these names that exists.
pub(super) const EVENT_TIME_NAMES: &[&str] = &["timestamp", "time", "ts"];

/// Infers a table that holds as many rows of the body as one can, without loss. What holds most values of a column decides its type,
/// and not their order; the rows that do not fit are told by whoever decodes them. Columns stand in the order of their first
/// appearance; all but the event time may be null, and those without a value are left out. `time_unit` says what epoch numbers in the
/// event time count. Where no column can be the event time by its name, rows are timed by their receipt.
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
    let Inferred { event, columns: mut found, nanos, overflows } = match format {
        Format::ArrowStream => arrow::columns(body, time_unit, limits)?,
        Format::Ndjson | Format::Json => json_columns(format, body, time_unit, limits)?,
    };
    if let Some((column, values)) = found.iter_mut().find(|(column, _)| event == Some(column.name.as_str())) {
        // It stays, however many others have its name in another case.
        (*column, *values) = (time_column(&column.name), u64::MAX);
    }
    let mut columns = names::usable(found, check_column_name);
    add_remainders(&mut columns, &nanos);
    let most = limits.max_columns.min(MAX_COLUMNS) - usize::from(event.is_none());
    if overflows || columns.len() > most {
        let mut left = most.saturating_sub(1);
        columns.retain(|column| {
            let kept = event == Some(&column.name) || left > usize::from(event.is_some());
            left -= usize::from(kept && event != Some(&column.name));
            kept
        });
        columns.push(ColumnSpec { name: OVERFLOW_COLUMN.to_owned(), kind: ColumnType::overflow(), nullable: true });
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

/// Puts a column for the nanoseconds behind each of these times, unless there is one of its name.
fn add_remainders(columns: &mut Vec<ColumnSpec>, times: &[String]) {
    for time in times {
        let name = remainder::name_of(time);
        let taken = columns.iter().any(|column| column.name.to_lowercase() == name.to_lowercase());
        if let Some(at) = columns.iter().position(|column| column.name == *time).filter(|_| !taken) {
            columns.insert(at + 1, ColumnSpec { name, kind: ColumnType::Int, nullable: true });
        }
    }
}

/// What a body asks for.
pub(super) struct Inferred {
    /// The column of the event time.
    pub event: Option<&'static str>,
    /// All columns, with the number of their values.
    pub columns: Vec<(ColumnSpec, u64)>,
    /// Times that have nanoseconds.
    pub nanos: Vec<String>,
    /// Whether there are keys beyond those.
    pub overflows: bool,
}

fn json_columns(
    format: Format,
    body: &Bytes,
    time_unit: Option<TimeUnit>,
    limits: &Limits,
) -> Result<Inferred, Reject> {
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
    let nanos = event.filter(|name| shapes.has_nanos(name)).map(str::to_owned).into_iter().collect();
    Ok(Inferred { event, columns: shapes.columns.column_specs(), nanos, overflows: shapes.overflows })
}

fn define(
    name: TableName,
    event: Option<&str>,
    mut columns: Vec<ColumnSpec>,
    unit: Option<TimeUnit>,
) -> Result<TableSpec, Reject> {
    let event_time = match event {
        Some(name) => EventTime::Column { name: name.to_owned(), unit },
        None => {
            columns.retain(|column| !names::is_reserved(&column.name));
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
        rules: Rules::from_rows(),
    };
    spec.validate().map_err(|e| {
        let help = "rename the columns, or declare the table and send rows that fit it";
        Reject::new(RejectKind::Unprocessable, "invalid_table", format!("no table can hold these rows: {e}"), help)
    })?;
    Ok(spec)
}
