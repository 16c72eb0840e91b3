//! The demo's tables and rows. Sizes are bytes, times microseconds since the epoch.

use bytes::Bytes;
use serde::Serialize;

use crate::cli::client::CreateTable;
use crate::schema::{ColumnSpec, ColumnType, TableName, TimeUnit};

/// What is sampled; each has a table of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    Processes,
    Memory,
    Disks,
    Network,
}

/// One process.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessRow {
    pub ts: i64,
    pub host: String,
    pub pid: i32,
    pub name: String,
    pub state: String,
    /// Of one core, since the sample before; none for a process that is new.
    pub cpu_percent: Option<f64>,
    pub rss_bytes: u64,
    pub threads: i64,
    /// Since the process started; none if we may not know.
    pub read_bytes: Option<u64>,
    /// Since the process started; none if we may not know.
    pub write_bytes: Option<u64>,
}

/// The machine's memory.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryRow {
    pub ts: i64,
    pub host: String,
    pub total_bytes: u64,
    pub available_bytes: Option<u64>,
    pub free_bytes: u64,
    pub cached_bytes: u64,
    pub dirty_bytes: u64,
    pub swap_used_bytes: u64,
}

/// One disk, or a part of it.
#[derive(Debug, Clone, Serialize)]
pub struct DiskRow {
    pub ts: i64,
    pub host: String,
    pub device: String,
    /// Since boot.
    pub read_bytes: u64,
    /// Since boot.
    pub write_bytes: u64,
    /// Since the sample before.
    pub busy_percent: Option<f64>,
}

/// One network interface.
#[derive(Debug, Clone, Serialize)]
pub struct NetworkRow {
    pub ts: i64,
    pub host: String,
    pub interface: String,
    /// Since boot.
    pub received_bytes: u64,
    /// Since boot.
    pub sent_bytes: u64,
    /// Since boot, both ways.
    pub errors: u64,
    /// Since boot, both ways.
    pub dropped: u64,
}

impl Source {
    /// All of them, in the order they are shown.
    pub const ALL: [Self; 4] = [Self::Processes, Self::Memory, Self::Disks, Self::Network];

    /// Its table.
    pub fn table(self) -> TableName {
        let name = match self {
            Self::Processes => "proc_processes",
            Self::Memory => "proc_memory",
            Self::Disks => "proc_disks",
            Self::Network => "proc_network",
        };
        TableName::new("demo", name).expect("should be a valid name")
    }

    /// Its table's definition: what the rows above carry.
    pub fn definition(self) -> CreateTable {
        use ColumnType::{Double, Long, String};
        let (own, sort): (&[(&str, ColumnType)], &[&str]) = match self {
            Self::Processes => (
                &[
                    ("pid", Long),
                    ("name", String),
                    ("state", String),
                    ("cpu_percent", Double),
                    ("rss_bytes", Long),
                    ("threads", Long),
                    ("read_bytes", Long),
                    ("write_bytes", Long),
                ],
                &["host", "pid"],
            ),
            Self::Memory => (
                &[
                    ("total_bytes", Long),
                    ("available_bytes", Long),
                    ("free_bytes", Long),
                    ("cached_bytes", Long),
                    ("dirty_bytes", Long),
                    ("swap_used_bytes", Long),
                ],
                &["host"],
            ),
            Self::Disks => (
                &[("device", String), ("read_bytes", Long), ("write_bytes", Long), ("busy_percent", Double)],
                &["host", "device"],
            ),
            Self::Network => (
                &[
                    ("interface", String),
                    ("received_bytes", Long),
                    ("sent_bytes", Long),
                    ("errors", Long),
                    ("dropped", Long),
                ],
                &["host", "interface"],
            ),
        };
        let column = |name: &str, kind: ColumnType, nullable| ColumnSpec { name: name.to_owned(), kind, nullable };
        let mut columns = vec![column("ts", ColumnType::Timestamp, false), column("host", String, true)];
        columns.extend(own.iter().map(|(name, kind)| column(name, kind.clone(), true)));
        CreateTable {
            columns,
            event_time: Some("ts".to_owned()),
            event_time_unit: Some(TimeUnit::Us),
            bucket: None,
            partition: true,
            sort: sort.iter().map(ToString::to_string).collect(),
            bloom: Vec::new(),
            rules: crate::schema::spec::RulesPatch::default(),
        }
    }
}

/// Rows of one table on their way.
#[derive(Debug, Clone)]
pub struct Post {
    pub source: Source,
    pub rows: u64,
    pub body: Bytes,
}

impl Post {
    /// Rows as newline-delimited JSON.
    pub fn new<T: Serialize>(source: Source, rows: &[T]) -> Self {
        let mut body = Vec::with_capacity(rows.len() * 200);
        for row in rows {
            serde_json::to_writer(&mut body, row).expect("should serialise: plain fields, into memory");
            body.push(b'\n');
        }
        Self { source, rows: rows.len() as u64, body: body.into() }
    }
}
