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
    /// The table forgets transaction ids, and with them which sequences it holds.
    #[error(
        "{location} sets delta.setTransactionRetentionDuration = {value:?}: once the table forgets our transaction ids, a \
         restart could write rows twice; unset the property"
    )]
    TransactionRetention {
        /// Where.
        location: String,
        /// The property's value.
        value: String,
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
            Self::PartlyCommitted { .. } => Kind::Stale,
            Self::NotOurs { .. }
            | Self::Features { .. }
            | Self::TransactionRetention { .. }
            | Self::Schema { .. }
            | Self::Partitioning { .. }
            | Self::Rows { .. }
            | Self::Sequence(_) => Kind::Refused,
            Self::Corrupt { .. } => Kind::Corrupt,
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
