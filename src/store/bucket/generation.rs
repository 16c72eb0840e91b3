//! The immutable set of slices that one seal closes. While it is open it only grows at its end, so that a reader who remembers how
//! many slices it had needs no copy.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::RwLock;

use crate::types::{Bucket, Incarnation, Lsn, SliceInput, TableId};

/// A durable slice.
#[derive(Debug, Clone)]
pub struct Slice {
    /// Where its record starts.
    pub lsn: Lsn,
    /// The definition that the payload was encoded with.
    pub schema_version: u32,
    /// The payload's encoding.
    pub encoding: u8,
    /// Rows in the payload.
    pub rows: u32,
    /// Smallest event time, microseconds.
    pub min_time: i64,
    /// Largest event time, microseconds.
    pub max_time: i64,
    /// The rows.
    pub payload: Bytes,
}

/// A generation's place in its table's commit order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealInfo {
    /// The start that sealed.
    pub incarnation: Incarnation,
    /// The place among the generations of the table that this start sealed, from 1.
    pub sequence: u64,
    /// LSN of the Seal record: the records before it are in, those after it are in the next generation.
    pub lsn: Lsn,
}

/// What a generation holds by now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Slices.
    pub slices: usize,
    /// Rows.
    pub rows: u64,
    /// Payload bytes.
    pub bytes: u64,
}

/// One generation of one bucket.
#[derive(Debug)]
pub struct Generation {
    /// The table.
    pub table: TableId,
    /// The window of its rows.
    pub bucket: Bucket,
    /// LSN of its first record: its name within the shard.
    pub first_lsn: Lsn,
    /// When this process saw its first record; monotonic, so that a jump of the wall clock seals nothing.
    pub opened_at: Instant,
    slices: RwLock<(Vec<Slice>, Totals)>,
    seal: OnceLock<SealInfo>,
}

/// A generation whose seal is durable.
#[derive(Debug, Clone)]
pub struct Sealed {
    /// Its rows.
    pub generation: Arc<Generation>,
    /// Its place.
    pub seal: SealInfo,
}

impl Generation {
    pub(super) fn new(table: TableId, bucket: Bucket, first_lsn: Lsn) -> Self {
        Self { table, bucket, first_lsn, opened_at: Instant::now(), slices: RwLock::default(), seal: OnceLock::new() }
    }

    pub(super) fn push(&self, lsn: Lsn, input: SliceInput) {
        let mut guard = self.slices.write();
        let (slices, totals) = &mut *guard;
        totals.slices += 1;
        totals.rows += u64::from(input.rows);
        totals.bytes += input.payload.len() as u64;
        slices.push(Slice {
            lsn,
            schema_version: input.schema_version,
            encoding: input.encoding,
            rows: input.rows,
            min_time: input.min_time,
            max_time: input.max_time,
            payload: input.payload,
        });
    }

    pub(super) fn close(&self, seal: SealInfo) {
        self.seal.set(seal).expect("should be sealed once");
    }

    /// The seal, once it is durable.
    pub fn seal(&self) -> Option<SealInfo> {
        self.seal.get().copied()
    }

    /// What it holds now.
    pub fn totals(&self) -> Totals {
        self.slices.read().1
    }

    /// Its first `count` slices. They share memory with the generation.
    pub fn slices(&self, count: usize) -> Vec<Slice> {
        let guard = self.slices.read();
        guard.0[..count.min(guard.0.len())].to_vec()
    }
}
