//! The plain values that cross the store's boundary. Nothing here knows Arrow, Delta or HTTP.

use std::fmt;

use bytes::Bytes;
use uuid::Uuid;

/// Identifies a table for the life of the lake; never reused, also not after a drop and a recreation by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub Uuid);

/// Identifies a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId(pub Uuid);

/// One start of a node: random, durable in the manifest before the first append. Seal sequences count within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub u64);

/// A shard's logical byte position; grows for the life of the data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Lsn(pub u64);

/// Identifies who sends: chosen by the producer, the same over its restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProducerId(pub u128);

/// What a producer says of one record, so that a repeat of it is known as one. Sequences count from 0 within (table, producer,
/// epoch).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// Who sends.
    pub producer: ProducerId,
    /// One life of the producer. A higher one fences the lower ones off: what they still have in flight is refused.
    pub epoch: u32,
    /// The record's place among those that the producer sends to the table in this epoch.
    pub sequence: u64,
}

/// Identifies one post among those to its table: 128 bits made of the key that its sender chose for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PostKey(pub u128);

/// By what a repeat of a record is known as one, within the record's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PostId {
    /// Its place among those of a producer.
    Sequence(Stamp),
    /// A key of its own.
    Key(PostKey),
}

/// What is remembered beside the identity, and told to repeats. The store compares digests, and carries the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// Of what was sent: the same identity with another digest is a mistake of the sender's, and no repeat.
    pub digest: u64,
    /// Rows that were accepted.
    pub accepted: u32,
    /// Rows that were rejected.
    pub rejected: u32,
}

/// What makes a record one that is taken once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// By what a repeat is known.
    pub id: PostId,
    /// What a repeat is told.
    pub note: Note,
    /// When it was sent, seconds since the epoch: how long keys are kept outlasts a process.
    pub at: u32,
}

/// A stamp of which nothing else is known.
impl From<Stamp> for Mark {
    fn from(stamp: Stamp) -> Self {
        Self { id: PostId::Sequence(stamp), note: Note::default(), at: 0 }
    }
}

/// The event-time window a row belongs to, in microseconds since the epoch (UTC). `width` is positive and divides a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bucket {
    /// First microsecond of the window.
    pub start: i64,
    /// Microseconds.
    pub width: i64,
}

impl Bucket {
    /// First microsecond behind the window.
    pub fn end(&self) -> i64 {
        self.start.saturating_add(self.width)
    }
}

/// The rows of one request that belong to one (table, bucket), as the store receives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceInput {
    /// The table.
    pub table: TableId,
    /// The definition that the payload was encoded with, from 1.
    pub schema_version: u32,
    /// The payload's encoding; the store carries it and never looks inside.
    pub encoding: u8,
    /// The window that the rows belong to.
    pub bucket: Bucket,
    /// Rows in the payload.
    pub rows: u32,
    /// Smallest event time, microseconds.
    pub min_time: i64,
    /// Largest event time, microseconds.
    pub max_time: i64,
    /// The rows.
    pub payload: Bytes,
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for PostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
