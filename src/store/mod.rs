//! Penstock's durable core: bytes in, bytes durable.
//!
//! ```text
//!  append -> queue -> owner thread: group, write, fdatasync -> generations (readable) -> answer
//!                         |                                         |
//!                     segments <--- recycled --- checkpoint: lane file, barrier, edit
//! ```
//!
//! In flow order:
//!
//! - [`types`]: the plain values that cross the boundary;
//! - [`fs`]: the file system as a trait: the real one, and one in memory that fails on command;
//! - [`wal`]: a shard's log, from record to segment, and reading it back;
//! - [`bucket`]: durable rows that are not in Delta yet, by table and bucket, and what readers pin;
//! - [`checkpoint`]: unflushed rows from memory to lane files, so that the log can be recycled;
//! - [`shard`]: what the owner thread of a shard shares, [`histogram`]s of its time included;
//! - [`manifest`]: which node, how many shards, which start;
//! - [`first_start`]: making a data directory;
//! - [`recovery`]: from a directory to running shards, within a fixed memory ([`spill`]) and with [`progress`]; `leftovers`: what
//!   it removes then;
//! - [`self_test`]: how fast a log is replayed here, before a start has shown it;
//! - [`reshape`]: another number of shards or lanes;
//! - [`store`]: the handle that callers hold, with its [`options`] and [`status`];
//! - [`tools`]: looking into, checking and repairing the directory of a node that is stopped.
//!
//! It knows no Arrow, no Delta and no HTTP. Absent: dropping a table.

pub mod bucket;
pub mod checkpoint;
mod clock;
pub mod error;
pub mod first_start;
pub mod fs;
pub mod histogram;
pub(crate) mod leftovers;
pub mod manifest;
pub mod options;
pub mod progress;
pub mod recovery;
pub mod replay_cost;
pub mod reshape;
pub mod self_test;
pub mod shard;
pub mod spill;
pub mod status;
pub mod store;
pub mod tools;
pub mod types;
pub mod wal;

pub use bucket::dirty::SealProgress;
pub use bucket::generation::{GENERATION_OVERHEAD, SLICE_OVERHEAD};
pub use bucket::keys::KeyLimits;
pub use bucket::producer::ProducerLimits;
pub use bucket::state::TableSummary;
pub use bucket::{Generation, GenerationView, Part, SealHistory, Sealed, Slice, TableUsage, TableView, Whereabouts};
pub use checkpoint::lanes::Barrier;
pub use checkpoint::{CheckpointError, Report as CheckpointReport};
pub use error::{AppendError, OpenError};
pub use histogram::{Distribution, Histogram};
pub use options::Options;
pub use progress::Progress;
pub use recovery::Report;
pub use status::{PHASES, ShardStatus};
pub use store::{Pending, Store};
pub use types::{
    Bucket, Incarnation, Lsn, Mark, NodeId, Note, PostId, PostKey, ProducerId, SliceInput, Stamp, TableId,
};
pub use wal::queue::Appended;
pub use wal::record::{Commit, Define};
