//! SQL over all tables: flushed Delta rows plus acknowledged rows that are not flushed yet, in one consistent view.
//!
//! In flow order:
//!
//! - [`sql`]: how many queries run, for how long, on which threads;
//! - [`session`]: one DataFusion session a query, read only;
//! - [`statement`]: how large a statement may be;
//! - [`view`]: what the query pins: the store's rows first, then Delta snapshots;
//! - [`names`]: the catalog that resolves names to pinned tables;
//! - [`provider`]: one pinned table as a DataFusion table;
//! - [`unflushed`]: its unflushed rows, decoded as they are read;
//! - [`failure`]: whose fault an error is.
//!
//! Absent here: result formats and protocols (`server`).

mod failure;
mod names;
mod provider;
mod session;
mod sql;
mod statement;
mod unflushed;
mod view;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use sql::{Query, Sql};

/// The `[query]` settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Memory that all queries together may use for sorts, joins and groups; nothing is spilled. Default 1 GiB.
    pub memory: bytesize::ByteSize,
    /// How long a query may take, from its arrival to the last row that the client has read. Default 1m, at most 1 day.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// Queries that run at the same time; more wait their turn. Default 8.
    pub concurrency: usize,
    /// Longest SQL text, bytes. Default 1 MiB.
    pub max_sql: bytesize::ByteSize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory: bytesize::ByteSize::gib(1),
            timeout: Duration::from_secs(60),
            concurrency: 8,
            max_sql: bytesize::ByteSize::mib(1),
        }
    }
}

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not a statement that may be run here.
    #[error("{0}")]
    Invalid(String),
    /// The statement is fine, and met values for which it has no result: a division by zero, a text that is no number.
    #[error("{0}")]
    Values(String),
    /// It hit a limit, and would do so again.
    #[error("{0}")]
    Limit(String),
    /// Others are in the way; the same query may well succeed later.
    #[error("{0}")]
    Busy(String),
    /// The lake's store failed while data files were read.
    #[error("{0}")]
    Unavailable(String),
    /// A defect, or data that cannot be read.
    #[error("{0}")]
    Failed(String),
    /// A table's Delta log cannot be read now.
    #[error("table {table}: {source}")]
    Lake {
        table: crate::schema::TableName,
        #[source]
        source: Box<crate::lake::Error>,
    },
}

#[cfg(test)]
mod tests;
