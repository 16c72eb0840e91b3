//! The write-ahead log of one shard, in the order a record passes through it:
//!
//! - [`record`]: what can be said in the log, and its bytes;
//! - [`frame`]: one record with its length, position and checksums;
//! - [`group`]: what one sync covers: a header on a 4 KiB boundary, then frames;
//! - [`segment`]: one preallocated file, its [`header`] and its name;
//! - [`pool`]: the few segments that are ready to be used, made off the owner's thread;
//! - [`queue`]: what callers hand over, in the order LSNs are given;
//! - [`stage`]: from what callers ask to the records of one group; `marks`: those that are repeats;
//! - [`owner`]: the one thread that writes: group commit, apply, recycle;
//! - [`scan`]: reading it all back: torn or corrupt.
//!
//! Absent here: what the rows mean, and the checkpoint, which says which segments nobody needs any more.

pub mod frame;
pub mod group;
pub mod header;
mod marks;
pub mod owner;
pub mod pool;
pub mod queue;
pub mod record;
pub mod scan;
pub mod segment;
pub mod stage;

pub(crate) mod codec;

/// Groups start on a multiple of this many bytes, so that a page torn in one group cannot damage another.
pub const GROUP_ALIGN: u64 = 4096;

/// The smallest multiple of [`GROUP_ALIGN`] that is not below `bytes`.
pub fn align_group(bytes: u64) -> u64 {
    bytes.next_multiple_of(GROUP_ALIGN)
}
