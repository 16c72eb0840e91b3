//! What a checkpoint leaves on disk: rows that were still unflushed, moved out of the log so that its segments can be used again.
//!
//! ```text
//!  drained slices -> lane_writer -> lane file -> barrier -> edit -> edits, synced -> segments are recycled
//!                                       |                     |
//!  a start  <-----------------------  extents  <-----------  load, make sure
//! ```
//!
//! In flow order:
//!
//! - [`trigger`]: when a checkpoint is due; [`policy`]: what else is decided by numbers;
//! - [`checkpointer`]: the thread of a shard, and the order of its steps;
//! - [`moving`]: what goes into one lane file, at which [`pace`];
//! - [`lanes`]: the directories, their mount guards, the barrier;
//! - [`lane_file`]: the bytes of a lane file, header, extents and index;
//! - [`lane_writer`]: writing one;
//! - [`edit`]: what one checkpoint changes, as the shard's manifest says it; [`snapshot`]: all of it anew;
//! - [`edit_file`]: the bytes of a shard's manifest, and finding edits in damaged ones;
//! - [`edits`]: the shard's manifest: making it, reading it, appending to it;
//! - [`invariants`]: what holds between all of these;
//! - [`base`]: a shard at its checkpoint, from manifest and lane files, whose indexes [`index_reader`] merges.
//!
//! Unlike the design, the index of a lane file is in the lane file itself, and the manifest says where: a snapshot of the manifest
//! need not repeat what can be millions of places.

pub mod base;
pub mod checkpointer;
pub mod edit;
pub mod edit_file;
pub mod edits;
pub mod index_reader;
pub mod invariants;
pub mod lane_file;
pub mod lane_writer;
pub mod lanes;
pub mod moving;
pub mod pace;
pub mod policy;
pub mod snapshot;
pub mod trigger;

use crate::types::Lsn;

/// What one checkpoint did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// The shard.
    pub shard: u32,
    /// The log is needed from here on.
    pub checkpoint: Lsn,
    /// Extents written.
    pub extents: u64,
    /// Bytes of the lane file that was written.
    pub lane_bytes: u64,
    /// Log segments that could be used again.
    pub segments_freed: u64,
    /// Lane files that were dead or rewritten.
    pub files_dropped: u64,
    /// Microseconds it took.
    pub micros: u64,
}

/// Why there was no checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Nothing has changed; the next one will include what this one would have.
    #[error("the checkpoint is put off: {0}")]
    Postponed(String),
    /// The shard has stopped because of it.
    #[error("the checkpoint failed, and the shard has stopped: {0}")]
    Broken(String),
    /// The shard had stopped before, or the store is closing.
    #[error("no checkpoint: {0}")]
    Stopped(String),
}

/// What came of a checkpoint.
pub type Outcome = Result<Report, CheckpointError>;
