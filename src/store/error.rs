//! What the store answers when it cannot do what it was asked.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::fs;
use crate::types::{Lsn, TableId};
use crate::wal::record::EncodeError;

/// Why a record was not made durable. Nothing of it will become visible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Come again shortly.
    #[error("the log's queue is full")]
    QueueFull,
    /// The disk has no room for another log segment; appends go on by themselves when it has.
    #[error("no space for the log: {0}")]
    NoSpace(String),
    /// A write or a sync failed. Final until a restart.
    #[error("the log of shard {shard} stopped: {reason}")]
    Poisoned {
        /// The shard.
        shard: u32,
        /// The first thing that failed.
        reason: String,
    },
    /// The store is closing.
    #[error("the store is shutting down")]
    Closed,
    /// The record could not be read back.
    #[error("{0}")]
    Encode(#[from] EncodeError),
    /// The record is over the configured limit.
    #[error("a record of {len} bytes is over the limit of {max} bytes")]
    TooLarge {
        /// Bytes in the log.
        len: usize,
        /// The limit, bytes.
        max: usize,
    },
    /// Rows need a definition of their table, and of the schema version they name, before them.
    #[error("table {0} has no definition for schema version {1} in the log")]
    Undefined(TableId, u32),
    /// The stamp lies below what is remembered, or its producer is not remembered: it may be durable or not.
    #[error(
        "sequence {0} is below what is remembered of its producer; find out what arrived, and go on in a new epoch"
    )]
    UnknownSequence(u64),
    /// A newer epoch of the producer holds.
    #[error("epoch {newest} of this producer has begun; earlier ones are closed")]
    Fenced {
        /// The newest epoch.
        newest: u32,
    },
    /// No producer is idle for long enough to give its place to a new one.
    #[error("too many producers are remembered; try again later, or post without a producer")]
    TooManyProducers,
    /// No key that is remembered is old enough to give its place to a new one.
    #[error(
        "too many posts with keys of their own came in too short a time; try again later, or number them as a producer"
    )]
    TooManyKeys,
    /// The key, or the sequence, is that of a record that was made of something else.
    #[error("this key, or producer sequence, was used for another body")]
    Reused,
    /// A record is of one shard.
    #[error("the slices of one record belong to different shards")]
    MixedShards,
}

/// Why the store does not open. Nothing was changed on disk unless an operation itself failed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the directory.
    #[error("{path} is in use by another process{holder}", path = path.display(), holder = holder.map(|p| format!(" (pid {p})")).unwrap_or_default())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process, if it can be told.
        holder: Option<u32>,
    },
    /// Bytes that were durable are not what was written.
    #[error("{path}: damaged at byte {offset}: {what}", path = path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What was found.
        what: String,
    },
    /// Files are missing, or belong to something else.
    #[error("{path}: {what}", path = path.display())]
    Layout {
        /// The file or directory.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The configuration says another number than the data directory has.
    #[error(
        "the data directory has {stored} {what}, the configuration says {configured}; they cannot be changed by configuration"
    )]
    CountChanged {
        /// What is counted.
        what: &'static str,
        /// As the data directory has it.
        stored: u32,
        /// As the configuration says.
        configured: u32,
    },
    /// The operating system refused; nothing is concluded from it.
    #[error("{what}: {source}{hint}", hint = hint(source))]
    Io {
        /// What was being done.
        what: String,
        /// The refusal.
        #[source]
        source: io::Error,
    },
}

/// What to do about refusals that `io::ErrorKind` has no word for.
fn hint(error: &io::Error) -> &'static str {
    match fs::raw_os_error(error).map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => "; raise the limit of open files (ulimit -n)",
        Some(Errno::IO) => "; the disk cannot be read or written",
        _ => "",
    }
}

impl OpenError {
    /// An I/O error with what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Damage at a log position.
    pub(crate) fn corrupt(path: &std::path::Path, offset: u64, lsn: Lsn, what: &str) -> Self {
        Self::Corrupt { path: path.to_owned(), offset, what: format!("{what} (LSN {lsn})") }
    }
}
