//! Penstock's durable core: bytes in, bytes durable.
//!
//! ```text
//!  append -> queue -> owner thread: group, write, fdatasync -> generations (readable) -> answer
//!                         |                                         |
//!                     segments <---- recycled below ---- seal, commit: numbers come back
//! ```
//!
//! In flow order:
//!
//! - [`types`]: the plain values that cross the boundary;
//! - [`fs`]: the file system as a trait: the real one, and one in memory that fails on command;
//! - [`wal`]: a shard's log, from record to segment, and reading it back;
//! - [`bucket`]: durable rows that are not in Delta yet, by table and bucket, and what readers pin;
//! - [`shard`]: what the owner thread of a shard shares;
//! - [`manifest`]: which node, how many shards, which start;
//! - [`first_start`]: making a data directory;
//! - [`recovery`]: from a directory to running shards;
//! - [`store`]: the handle that callers hold.
//!
//! It knows no Arrow, no Delta and no HTTP. Absent: checkpoints and lanes (the formats have their place), idempotent producers (a
//! record has room for them), dropping a table.

pub mod bucket;
pub mod error;
pub mod first_start;
pub mod fs;
pub mod manifest;
pub mod recovery;
pub mod shard;
pub mod store;
pub mod types;
pub mod wal;

pub use bucket::state::TableSummary;
pub use bucket::{Generation, GenerationView, Sealed, Slice, TableView};
pub use error::{AppendError, OpenError};
pub use recovery::Report;
pub use store::{Options, Pending, ShardStatus, Store};
pub use types::{Bucket, Incarnation, Lsn, NodeId, SliceInput, TableId};
pub use wal::queue::Appended;
pub use wal::record::{Commit, Define};
