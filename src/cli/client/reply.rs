//! Bodies of the HTTP API. Unknown fields are ignored, so that an older command line reads a newer server.

use serde::{Deserialize, Serialize};

use crate::schema::{ColumnSpec, TableName, TableSpec, TimeUnit};

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

/// Answer to an accepted post.
#[derive(Debug, Clone, Deserialize)]
pub struct Appended {
    /// Rows acknowledged.
    pub rows: u64,
}

/// Body of `POST /v1/flush`.
#[derive(Debug, Serialize)]
pub struct FlushRequest<'a> {
    pub tables: Option<&'a [TableName]>,
    pub timeout: &'a str,
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

/// Answer to `GET /v1/status`.
#[derive(Debug, Clone, Deserialize)]
pub struct Status {
    /// Id of the data directory.
    pub node: String,
    /// Id of this start.
    pub incarnation: String,
    /// The server's version.
    pub version: String,
    /// Seconds since the start.
    pub uptime_seconds: f64,
    /// Whether the server takes rows.
    pub ready: bool,
    /// Why not.
    pub reason: Option<String>,
    /// Root of the Delta tables.
    pub lake_url: String,
    /// The server's process.
    pub process: Process,
    /// The log.
    pub store: Store,
    /// The limit on what is not flushed.
    pub admission: Admission,
    /// Each table's backlog.
    pub tables: Vec<TableStatus>,
}

/// What the server's process uses.
#[derive(Debug, Clone, Deserialize)]
pub struct Process {
    /// User and system time since its start.
    pub cpu_seconds: f64,
    /// Memory resident.
    pub resident_bytes: u64,
}

/// The log's counters since the start.
#[derive(Debug, Clone, Deserialize)]
pub struct Store {
    /// One entry for each shard.
    pub shards: Vec<ShardStatus>,
    /// Records appended.
    pub records: u64,
    /// Groups written.
    pub groups: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Bytes handed in by callers.
    pub payload_bytes: u64,
    /// Bytes written to disk for them.
    pub written_bytes: u64,
    /// Bytes acknowledged and not flushed.
    pub unflushed_bytes: u64,
    /// Rows acknowledged and not flushed.
    pub unflushed_rows: u64,
}

/// One shard of the log.
#[derive(Debug, Clone, Deserialize)]
pub struct ShardStatus {
    /// Its number.
    pub shard: u64,
    /// Everything below is on disk.
    pub durable_lsn: u64,
    /// Bytes of log kept.
    pub retained_bytes: u64,
    /// Why it takes no more writes.
    pub poisoned: Option<String>,
}

/// The limit on unflushed bytes.
#[derive(Debug, Clone, Deserialize)]
pub struct Admission {
    /// The limit.
    pub limit_bytes: u64,
    /// Bytes of it in use.
    pub in_flight_bytes: u64,
    /// Posts refused since the start.
    pub refusals: u64,
}

/// One table's backlog.
#[derive(Debug, Clone, Deserialize)]
pub struct TableStatus {
    /// Its name.
    pub table: String,
    /// Generations that still take rows.
    pub open_generations: u64,
    /// Generations on their way into the Delta table.
    pub sealed_generations: u64,
    /// Rows not flushed.
    pub unflushed_rows: u64,
    /// Bytes not flushed.
    pub unflushed_bytes: u64,
    /// Version of the Delta table.
    pub delta_version: Option<u64>,
    /// The last failure to flush, if it is not over.
    pub last_error: Option<String>,
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
