//! What can go wrong between us and a Delta table, and what the caller should do about it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use deltalake::DeltaTableError;
use penstock_store::TableId;

use super::deadline::Exceeded;

/// What the caller should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Try again later: the store is slow, unreachable or failing.
    Unavailable,
    /// This table stalls until somebody acts on the error's text; others go on.
    Refused,
    /// The caller's view is out of date: resolve the table, then try with what is left.
    Stale,
    /// The settings are wrong; nothing works until they are changed.
    Settings,
    /// What is stored cannot be read.
    Corrupt,
    /// These rows cannot be written, whatever the store does; others can.
    Rows,
}

/// A failed operation on the lake.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lake's URL cannot be used.
    #[error("the lake url {url:?} cannot be used: {reason}")]
    Url {
        /// As configured.
        url: String,
        /// Why.
        reason: &'static str,
    },
    /// A setting of the object store is unknown, or its value is not valid.
    #[error("object store settings: {0}")]
    Settings(#[source] object_store::Error),
    /// The lake's directory cannot be made.
    #[error("lake directory {path}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The store let a second create-only PUT of one key succeed, so two commits of one version both would.
    #[error(
        "the object store at {url} ignores `If-None-Match: *`: two commits of one version would both succeed and rows \
         would be lost; use a store that honours conditional PUTs, or `conditional_put = \"etag\"` if it was disabled"
    )]
    NoConditionalPut {
        /// The lake.
        url: String,
    },
    /// Of several create-only PUTs of one key at the same time not exactly one succeeded.
    #[error(
        "{winners} of {racers} create-only PUTs of one key at the same time succeeded at {url}, not one: the store looks first and \
         writes then, and two nodes would overwrite each other's commits; use a store with atomic conditional PUTs"
    )]
    NotAtomic {
        /// The lake.
        url: String,
        /// PUTs that were answered with success.
        winners: usize,
        /// All of them.
        racers: usize,
    },
    /// The store has not been proven fit to be committed to; every table waits for that.
    #[error("nothing can be committed to the lake yet: {0}")]
    Unproven(#[source] Arc<Error>),
    /// A call to the object store failed.
    #[error("{action} {path}: {source}")]
    Store {
        /// What was tried.
        action: &'static str,
        /// On which object.
        path: String,
        /// The store's reason.
        source: object_store::Error,
    },
    /// A call to the object store had no answer in time; it may still take effect.
    #[error("{action} {path}: no answer within {limit:?}")]
    Timeout {
        /// What was tried.
        action: &'static str,
        /// On which object.
        path: String,
        /// The configured limit of one call.
        limit: Duration,
    },
    /// delta-rs failed.
    #[error("{action} {path}: {source}")]
    Delta {
        /// What was tried.
        action: &'static str,
        /// On which table.
        path: String,
        /// delta-rs's reason.
        source: Box<DeltaTableError>,
    },
    /// A commit's outcome could not be settled; whether it landed is found out by the next attempt.
    #[error("version {version} of {table} is not settled after {tries} tries, the last one: {last}")]
    Unsettled {
        /// The table.
        table: String,
        /// The version that was to be written.
        version: u64,
        /// How often it was tried.
        tries: u32,
        /// The last try's error.
        last: Box<Error>,
    },
    /// Other writers took every version that was tried.
    #[error("other writers of {table} were faster until version {version}; will try again")]
    LostRaces {
        /// The table.
        table: String,
        /// The newest version taken by another.
        version: u64,
    },
    /// Only a part of the commit's sequences is new: committing would write the others twice.
    #[error(
        "sequences up to {committed} are in {table} already, of a commit that was to hold {first} to {last}; resolve and \
         commit the rest"
    )]
    PartlyCommitted {
        /// The table.
        table: String,
        /// The highest committed sequence.
        committed: u64,
        /// The lowest sequence of the refused commit.
        first: u64,
        /// The highest sequence of the refused commit.
        last: u64,
    },
    /// The log is not the one that was written to: what was put since it was last seen counts only as far as the log
    /// that is there now says so.
    #[error("the log of {table} is not the one that was written to: {reason}; the table is asked again what it holds")]
    Changed {
        /// The table.
        table: String,
        /// What gave it away.
        reason: String,
    },
    /// Another live process writes with our application id.
    #[error(
        "another live process writes as this node and this start ({app}; seen in {table}{}): nothing is flushed any more. It \
         runs on a copy of this machine or of this process; stop one of them, then restart the other: rows are safe in both \
         logs",
        .version.map_or_else(String::new, |v| format!(", version {v}"))
    )]
    Fenced {
        /// Where it was seen.
        table: String,
        /// Its entry, where that is known.
        version: Option<u64>,
        /// The application id.
        app: String,
    },
    /// The table holds rows of this node that its data directory knows nothing of.
    #[error(
        "{location} holds rows of this node that its data directory never sealed ({app} stands at {committed} there, and at \
         {sealed} here): the directory was restored or cloned from an older state, and rows that were not flushed at that time \
         may be in the table already. Nothing is flushed into it until somebody decides: look at the rows with SQL (those in \
         doubt may show twice), then `penstock flush --doubt keep TABLE` to flush them all the same, or `--doubt drop TABLE` to \
         let them go"
    )]
    Restored {
        /// The table.
        location: String,
        /// The application id.
        app: String,
        /// The sequence that it stands at in the table.
        committed: u64,
        /// The highest sequence that the data directory has sealed under it.
        sealed: u64,
    },
    /// The table's log entries do not live long enough.
    #[error(
        "{location} sets delta.logRetentionDuration = {value:?}: entries have to be kept for at least {least:?}, or a commit \
         could go into a version that was cleaned away; raise the property, or lower lake.head_ttl"
    )]
    LogRetention {
        /// Where.
        location: String,
        /// The property's value.
        value: String,
        /// What would do.
        least: Duration,
    },
    /// Another table lives where ours should.
    #[error(
        "{location} holds the Delta table {found}, not ours ({expected}); move that table away, or give this one another \
         name"
    )]
    NotOurs {
        /// Where.
        location: String,
        /// The id in its metadata.
        found: String,
        /// Our id.
        expected: TableId,
    },
    /// The table uses features that we do not write.
    #[error("{location} uses table features that penstock does not write: {}; drop them from the table", .features.join(", "))]
    Features {
        /// Where.
        location: String,
        /// The features' names.
        features: Vec<String>,
    },
    /// The table forgets something that we rely on: transaction ids, or log entries that we have not seen.
    #[error("{location} sets {property} = {value:?}: {reason}")]
    Retention {
        /// Where.
        location: String,
        /// The property.
        property: &'static str,
        /// Its value.
        value: String,
        /// What could happen, and what to do.
        reason: &'static str,
    },
    /// A Delta checkpoint does not say what the log says. Nothing is removed behind it.
    #[error("the checkpoint of {location} at version {version} is not right, log entries stay: {reason}")]
    Checkpoint {
        /// Which table.
        location: String,
        /// The checkpoint's version.
        version: u64,
        /// What is wrong.
        reason: String,
    },
    /// Rows of our definition do not fit the table's schema.
    #[error("the schema of {location} does not take rows of schema version {schema_version}: {}", .problems.join("; "))]
    Schema {
        /// Where.
        location: String,
        /// Our definition's version.
        schema_version: u32,
        /// Each difference.
        problems: Vec<String>,
    },
    /// The table is partitioned otherwise.
    #[error("{location} is partitioned by {found:?}, and our definition says {expected:?}")]
    Partitioning {
        /// Where.
        location: String,
        /// The table's partition columns.
        found: Vec<String>,
        /// Ours.
        expected: Vec<String>,
    },
    /// The log does not reach a version that it should hold.
    #[error("the log of {location} ends at version {}, before version {wanted}", .reached.map_or("none".to_owned(), |v| v.to_string()))]
    LogEnds {
        /// The table.
        location: String,
        /// Its newest version.
        reached: Option<u64>,
        /// What was asked for.
        wanted: u64,
    },
    /// Something in the log cannot be read.
    #[error("{location}: {reason}")]
    Corrupt {
        /// The object or table.
        location: String,
        /// Why.
        reason: String,
    },
    /// A data file's rows do not have the table's schema.
    #[error("rows for {table} do not have its schema: {source}")]
    Rows {
        /// The table.
        table: String,
        /// Arrow's reason.
        source: arrow::error::ArrowError,
    },
    /// Rows that cannot be encoded.
    #[error("encoding rows for {table}: {source}")]
    Encode {
        /// The table.
        table: String,
        /// The encoder's reason.
        source: Box<DeltaTableError>,
    },
    /// The settings of data files are not valid.
    #[error("data file settings: {0}")]
    FileSettings(#[source] parquet::errors::ParquetError),
    /// Delta's `txn` has room for 63 bits.
    #[error("sequence {0} does not fit a Delta transaction version")]
    Sequence(u64),
}

impl Error {
    /// What the caller should do.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Url { .. }
            | Self::Settings(_)
            | Self::NoConditionalPut { .. }
            | Self::NotAtomic { .. }
            | Self::FileSettings(_) => Kind::Settings,
            Self::Unproven(problem) => problem.kind(),
            Self::Directory { .. }
            | Self::Store { .. }
            | Self::Timeout { .. }
            | Self::Delta { .. }
            | Self::Unsettled { .. }
            | Self::LostRaces { .. } => Kind::Unavailable,
            Self::PartlyCommitted { .. } | Self::Changed { .. } => Kind::Stale,
            Self::NotOurs { .. }
            | Self::Features { .. }
            | Self::Retention { .. }
            | Self::LogRetention { .. }
            | Self::Fenced { .. }
            | Self::Restored { .. }
            | Self::Schema { .. }
            | Self::Partitioning { .. }
            | Self::Sequence(_) => Kind::Refused,
            Self::Rows { .. } | Self::Encode { .. } => Kind::Rows,
            Self::Corrupt { .. } | Self::LogEnds { .. } | Self::Checkpoint { .. } => Kind::Corrupt,
        }
    }

    pub(super) fn store(action: &'static str, path: impl ToString, source: object_store::Error) -> Self {
        match exceeded(&source) {
            Some(limit) => Self::Timeout { action, path: path.to_string(), limit },
            None => Self::Store { action, path: path.to_string(), source },
        }
    }

    pub(super) fn delta(action: &'static str, path: impl ToString, source: DeltaTableError) -> Self {
        match exceeded(&source) {
            Some(limit) => Self::Timeout { action, path: path.to_string(), limit },
            None => Self::Delta { action, path: path.to_string(), source: Box::new(source) },
        }
    }
}

/// The limit that a call ran into, if that is at the bottom of the error.
fn exceeded(error: &(dyn std::error::Error + 'static)) -> Option<Duration> {
    std::iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref::<Exceeded>())
        .map(|exceeded| exceeded.limit)
}
