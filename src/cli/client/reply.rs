//! Bodies of the HTTP API, beside the status ([`crate::engine::status`]). Unknown fields are ignored, so that an older command line
//! reads a newer server.

use serde::{Deserialize, Serialize};

use crate::engine::Decision;
use crate::engine::letters::Letter;
use crate::schema::spec::RulesPatch;
use crate::schema::{ColumnSpec, EventTime, TableName, TableSpec, TimeUnit};

/// Body of `PUT /v1/tables/{table}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CreateTable {
    /// What rows carry.
    pub columns: Vec<ColumnSpec>,
    /// The timestamp column rows are bucketed by; none means the time of receipt.
    pub event_time: Option<String>,
    /// What epoch numbers in the event time count.
    pub event_time_unit: Option<TimeUnit>,
    /// Width of a bucket, `1h` for example; the server's default without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// Whether files are partitioned by date.
    pub partition: bool,
    /// Columns that rows of a file are sorted by.
    pub sort: Vec<String>,
    /// Columns for which data files carry a Bloom filter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bloom: Vec<String>,
    /// What the table takes, as far as it is said.
    #[serde(skip_serializing_if = "RulesPatch::is_empty")]
    pub rules: RulesPatch,
}

impl CreateTable {
    /// The declaration that stands for a definition.
    pub fn of(spec: &TableSpec) -> Self {
        let receipt =
            |column: &&ColumnSpec| matches!(&spec.event_time, EventTime::Receipt { column: c } if *c == column.name);
        let (event_time, event_time_unit) = match &spec.event_time {
            EventTime::Column { name, unit } => (Some(name.clone()), *unit),
            EventTime::Receipt { .. } => (None, None),
        };
        Self {
            columns: spec.columns.iter().filter(|column| !receipt(column)).cloned().collect(),
            event_time,
            event_time_unit,
            bucket: Some(format!("{}s", spec.bucket_seconds)),
            partition: spec.partition.is_some(),
            sort: spec.sort.clone(),
            bloom: spec.bloom.clone(),
            rules: RulesPatch::default(),
        }
    }
}

/// Answer to `GET /v1/tables`.
#[derive(Debug, Deserialize)]
pub struct Tables {
    pub tables: Vec<TableSpec>,
}

/// Answer to `GET /v1/tables/{table}`.
#[derive(Debug, Clone, Deserialize)]
pub struct TableReply {
    /// The definition.
    pub table: TableSpec,
    /// The table's id; never reused.
    pub id: String,
    /// URL of the Delta table.
    pub location: String,
    /// Version of the Delta table; none before the first commit.
    pub delta_version: Option<u64>,
    /// Rows in the Delta table.
    pub delta_rows: u64,
    /// Files in the Delta table.
    pub delta_files: u64,
    /// Acknowledged rows that are not in the Delta table yet.
    pub unflushed_rows: u64,
}

/// Which dead letters.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct LettersQuery<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Answer to `GET /v1/dead-letters`.
#[derive(Debug, Deserialize)]
pub struct Letters {
    pub letters: Vec<Letter>,
}

/// Body of `POST /v1/dead-letters/replay`.
#[derive(Debug, Serialize)]
pub struct ReplayRequest<'a> {
    #[serde(flatten)]
    pub query: &'a LettersQuery<'a>,
    pub ids: &'a [String],
}

/// Answer to an accepted post.
#[derive(Debug, Clone, Deserialize)]
pub struct Appended {
    /// Rows acknowledged.
    pub rows: u64,
}

/// Answer to `GET /v1/receipts/{receipt}`.
#[derive(Debug, Clone, Deserialize)]
pub struct Standing {
    /// The table; none if the server does not know it any more.
    pub table: Option<String>,
    /// `durable`, `sealed`, `committed` or `dead_lettered`.
    pub state: String,
    /// Whether nothing more will happen to the rows.
    pub committed: bool,
    /// The table has them from this version on.
    pub delta_version: Option<u64>,
    /// What else there is to know.
    pub message: Option<String>,
}

/// Body of `POST /v1/flush`.
#[derive(Debug, Serialize)]
pub struct FlushRequest<'a> {
    pub tables: Option<&'a [TableName]>,
    pub timeout: &'a str,
    /// Left out where nothing is decided: an older server knows no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<Decision>,
}

/// Answer to `POST /v1/flush`.
#[derive(Debug, Deserialize)]
pub struct Flushed {
    pub tables: Vec<FlushedTable>,
}

/// One table of a flush.
#[derive(Debug, Clone, Deserialize)]
pub struct FlushedTable {
    /// Its name.
    pub table: String,
    /// Version of the Delta table now.
    pub delta_version: Option<u64>,
    /// Rows this flush brought in.
    pub rows_flushed: u64,
}

/// Body of every error.
#[derive(Debug, Deserialize)]
pub struct Refusal {
    pub error: RefusalBody,
}

/// What the server says about an error.
#[derive(Debug, Deserialize)]
pub struct RefusalBody {
    pub code: String,
    pub message: String,
    #[serde(default)]
    pub help: Option<String>,
}
