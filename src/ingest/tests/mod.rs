mod arrow;
mod body;
mod infer;
mod json;
mod readings;
mod rejected;
mod slices;

use bytes::Bytes;

use super::{Decoded, Format, Limits, Reject, RejectKind};
use crate::schema::{ColumnSpec, ColumnType, EventTime, TableSpec, TimeUnit};

pub(crate) const NOW: i64 = 1_769_862_896_000_000;

/// A table whose rows have an event time `ts` and these columns, as in `a long, b string not null`.
pub(crate) fn table(unit: Option<TimeUnit>, columns: &str) -> TableSpec {
    let mut specs = vec![ColumnSpec { name: "ts".to_owned(), kind: ColumnType::Timestamp, nullable: false }];
    specs.extend(columns.split("; ").filter(|c| !c.is_empty()).map(parse_column));
    define(specs, EventTime::Column { name: "ts".to_owned(), unit })
}

/// A table whose rows are timed by receipt.
pub(crate) fn receipt_table(columns: &str) -> TableSpec {
    let mut specs: Vec<_> = columns.split("; ").map(parse_column).collect();
    specs.push(ColumnSpec { name: "_received_at".to_owned(), kind: ColumnType::Timestamp, nullable: false });
    define(specs, EventTime::Receipt { column: "_received_at".to_owned() })
}

fn parse_column(text: &str) -> ColumnSpec {
    let (name, kind) = text.split_once(' ').unwrap();
    let (kind, nullable) = match kind.strip_suffix(" not null") {
        Some(kind) => (kind, false),
        None => (kind, true),
    };
    ColumnSpec { name: name.to_owned(), kind: kind.parse().unwrap(), nullable }
}

fn define(columns: Vec<ColumnSpec>, event_time: EventTime) -> TableSpec {
    let spec = TableSpec {
        name: "t".parse().unwrap(),
        schema_version: 1,
        partition: Some(TableSpec::partition_name(&columns)),
        columns,
        event_time,
        bucket_seconds: 3_600,
        sort: vec![],
        history: vec![],
        bloom: vec![],
        rules: crate::schema::Rules::default(),
    };
    spec.validate().unwrap();
    spec
}

/// As if the sender wanted all or none: the first rejected row is an error.
fn all(decoded: Result<Decoded, Reject>) -> Result<Decoded, Reject> {
    let decoded = decoded?;
    assert_eq!(decoded.batch.num_rows(), decoded.times.len());
    match decoded.rejected.rows().first() {
        None => Ok(decoded),
        Some(first) => Err(first.reason.clone()),
    }
}

fn ndjson(spec: &TableSpec, body: &str) -> Result<Decoded, Reject> {
    all(super::decode(spec, Format::Ndjson, &Bytes::copy_from_slice(body.as_bytes()), NOW, &Limits::default()))
}

fn json(spec: &TableSpec, body: &str) -> Result<Decoded, Reject> {
    all(super::decode(spec, Format::Json, &Bytes::copy_from_slice(body.as_bytes()), NOW, &Limits::default()))
}

fn infer_ndjson(unit: Option<TimeUnit>, body: &str) -> Result<TableSpec, Reject> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    super::infer("t".parse().unwrap(), Format::Ndjson, &body, unit, &Limits::default())
}

/// The columns of a table as `name type`, one after another.
pub(crate) fn columns(spec: &TableSpec) -> String {
    let columns: Vec<_> = spec.columns.iter().map(|c| format!("{} {}", c.name, c.kind)).collect();
    columns.join("; ")
}

fn assert_reject<T: std::fmt::Debug>(result: Result<T, Reject>, code: &str, row: u64, column: &str) -> Reject {
    let reject = result.unwrap_err();
    assert_eq!(reject.code, code, "{reject:?}");
    assert_eq!(reject.row, Some(row), "{reject:?}");
    assert_eq!(reject.column.as_deref(), Some(column), "{reject:?}");
    assert!(reject.message.contains(&format!("row {row}")), "{reject:?}");
    assert!(!reject.help.is_empty());
    assert!(reject.message.chars().count() < 400, "{reject:?}");
    assert_eq!(reject.status, if code == "batch_too_large" { RejectKind::TooLarge } else { RejectKind::Unprocessable });
    reject
}
