//! What one checkpoint of one shard moved out of the log: a header page, then extents back to back, then their index.
//!
//! ```text
//!  0  magic        8 bytes "PNSTLAN1"
//!  8  version      u32  1
//! 12  shard        u32
//! 16  id           u64  unique within the shard; grows
//! 24  node         u128
//! 40  incarnation  u64  the start that wrote this file
//! 48  crc          u32  CRC32C of bytes 0..48
//!      zeros up to 4096
//! ```
//!
//! An extent holds slices of one generation in LSN order: first an entry for each, then their payloads in the same order.
//!
//! ```text
//!  0  lsn             u64  where the slice's record started in the log
//!  8  min_time        i64  microseconds
//! 16  max_time        i64  microseconds
//! 24  schema_version  u32
//! 28  rows            u32
//! 32  payload_len     u32
//! 36  encoding        u8
//! 37  reserved        3 bytes, zero
//! ```
//!
//! The index groups the extents by table: `groups u32`, then per group `table u128, extents u32` and its extents. Extents lie in
//! the order of the index from byte 4096 on, so that their places need not be stored.
//!
//! ```text
//!  0  bucket.start   i64
//!  8  bucket.width   i64
//! 16  generation     u64
//! 24  first_lsn      u64
//! 32  last_lsn       u64
//! 40  len            u32  bytes in the file
//! 44  slices         u32
//! 48  rows           u32
//! 52  payload_bytes  u32
//! 56  crc            u32  CRC32C of the extent's bytes
//! 60  reserved       u32  zero
//! ```
//!
//! The index's place, length and CRC are in the edit that adds the file; a file that no edit adds is not there. Integers are
//! little-endian. Named `s<shard, 3 digits>-<id, 12 digits>.lane`.

use std::convert::Infallible;

use bytes::Bytes;
use uuid::Uuid;

use crate::bucket::generation::Slice;
use crate::types::{Bucket, Incarnation, Lsn, NodeId, TableId};
use crate::wal::codec::Reader;
use crate::wal::header::{HeaderError, Layout};

/// Bytes before the first extent.
pub const HEADER_LEN: u64 = 4096;

/// The format that is written.
pub const VERSION: u32 = 1;

/// Most bytes of an extent of more than one slice; a single slice is as long as it is.
pub const MAX_EXTENT_BYTES: u32 = 64 << 20;

/// Bytes of a slice's entry in its extent.
pub const SLICE_ENTRY_LEN: usize = 40;

/// Bytes of an extent's entry in the index.
pub(super) const INDEX_ENTRY_LEN: usize = 64;

const LAYOUT: Layout = Layout { magic: *b"PNSTLAN1", version: VERSION, fields_len: 48, len: HEADER_LEN as usize };
const SUFFIX: &str = ".lane";

/// A lane file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The shard whose rows these are.
    pub shard: u32,
    /// Unique within the shard; grows.
    pub id: u64,
    /// The data directory that the file belongs to.
    pub node: NodeId,
    /// The start that wrote it.
    pub incarnation: Incarnation,
}

impl Header {
    /// The header page.
    pub fn encode(&self) -> Vec<u8> {
        LAYOUT.encode(&[
            &self.shard.to_le_bytes(),
            &self.id.to_le_bytes(),
            &self.node.0.as_u128().to_le_bytes(),
            &self.incarnation.0.to_le_bytes(),
        ])
    }

    /// Reads a header page.
    ///
    /// # Errors
    /// If it is damaged or of another format version.
    pub fn decode(page: &[u8]) -> Result<Self, HeaderError> {
        Self::read(LAYOUT.fields(page)?).ok_or(HeaderError::Damaged)
    }

    fn read(mut fields: Reader<'_>) -> Option<Self> {
        Some(Self {
            shard: fields.u32()?,
            id: fields.u64()?,
            node: NodeId(Uuid::from_u128(fields.u128()?)),
            incarnation: Incarnation(fields.u64()?),
        })
    }
}

/// The name of a shard's lane file.
pub fn file_name(shard: u32, id: u64) -> String {
    format!("s{shard:03}-{id:012}{SUFFIX}")
}

/// Shard and id that a lane file's name tells; none if it is not a lane file's name.
pub fn parse_file_name(name: &str) -> Option<(u32, u64)> {
    let (shard, id) = name.strip_prefix('s')?.strip_suffix(SUFFIX)?.split_once('-')?;
    let (shard, id) = (shard.parse().ok()?, id.parse().ok()?);
    // One name a file: signs and other numbers of zeros are somebody else's.
    (file_name(shard, id) == name).then_some((shard, id))
}

/// What the index says of one extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentEntry {
    /// The table.
    pub table: TableId,
    /// The bucket.
    pub bucket: Bucket,
    /// LSN of the generation's first record: its name.
    pub generation: Lsn,
    /// LSN of the first slice.
    pub first_lsn: Lsn,
    /// LSN of the last slice.
    pub last_lsn: Lsn,
    /// Where in the file it starts.
    pub offset: u64,
    /// Bytes in the file.
    pub len: u32,
    /// Slices.
    pub slices: u32,
    /// Rows.
    pub rows: u32,
    /// Bytes of the payloads.
    pub payload_bytes: u32,
    /// CRC32C of its bytes.
    pub crc: u32,
}

impl ExtentEntry {
    /// First byte behind the extent; `u64::MAX` if it were beyond.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.len))
    }

    /// Whether the fields agree with each other: what the index's reader demands, and its writer therefore too.
    pub fn is_sound(&self) -> bool {
        let len = u64::from(self.slices) * SLICE_ENTRY_LEN as u64 + u64::from(self.payload_bytes);
        self.slices > 0
            && self.bucket.width > 0
            && self.generation <= self.first_lsn
            && self.first_lsn <= self.last_lsn
            && len == u64::from(self.len)
            && (self.slices == 1 || self.len <= MAX_EXTENT_BYTES)
    }

    /// The slices in `bytes`, which were read where this entry says; their payloads share its memory. None if the bytes are not
    /// the ones that were written.
    pub fn decode(&self, bytes: Bytes) -> Option<Vec<Slice>> {
        if bytes.len() != self.len as usize || crc32c::crc32c(&bytes) != self.crc {
            return None;
        }
        let slices = decode_extent(bytes, self.slices)?;
        let rows: u64 = slices.iter().map(|slice| u64::from(slice.rows)).sum();
        let as_said = slices.first()?.lsn == self.first_lsn
            && slices.last()?.lsn == self.last_lsn
            && rows == u64::from(self.rows);
        as_said.then_some(slices)
    }
}

/// How many of `slices`, from the front, make one extent: at least one, unless there is none.
pub fn extent_slices(slices: &[Slice]) -> usize {
    let (mut bytes, mut rows) = (0_u64, 0_u64);
    let fits = |slice: &&Slice| {
        bytes += (SLICE_ENTRY_LEN + slice.payload.len()) as u64;
        rows += u64::from(slice.rows);
        bytes <= u64::from(MAX_EXTENT_BYTES) && rows <= u64::from(u32::MAX)
    };
    slices.iter().take_while(fits).count().max(1).min(slices.len())
}

/// A slice's entry in its extent. The payload has to be shorter than 4 GiB, as whatever comes out of the log is.
pub(super) fn encode_slice_entry(slice: &Slice) -> [u8; SLICE_ENTRY_LEN] {
    let payload_len = u32::try_from(slice.payload.len()).expect("should be shorter than a frame of the log");
    let mut entry = [0; SLICE_ENTRY_LEN];
    entry[0..8].copy_from_slice(&slice.lsn.0.to_le_bytes());
    entry[8..16].copy_from_slice(&slice.min_time.to_le_bytes());
    entry[16..24].copy_from_slice(&slice.max_time.to_le_bytes());
    entry[24..28].copy_from_slice(&slice.schema_version.to_le_bytes());
    entry[28..32].copy_from_slice(&slice.rows.to_le_bytes());
    entry[32..36].copy_from_slice(&payload_len.to_le_bytes());
    entry[36] = slice.encoding;
    entry
}

/// Appends an extent's bytes. The slices are of one generation, in LSN order, and together one extent ([`extent_slices`]).
pub fn encode_extent(slices: &[Slice], out: &mut Vec<u8>) {
    for slice in slices {
        out.extend_from_slice(&encode_slice_entry(slice));
    }
    for slice in slices {
        out.extend_from_slice(&slice.payload);
    }
}

/// Reads an extent of so many slices, whose payloads share the memory of `bytes`. None if the bytes are no such extent; whether
/// they are the ones that were written, the CRC in the index tells ([`ExtentEntry::decode`]).
pub fn decode_extent(bytes: Bytes, slices: u32) -> Option<Vec<Slice>> {
    let count = slices as usize;
    let entries_len = count.checked_mul(SLICE_ENTRY_LEN)?;
    // MUST BEFORE the allocation: the count may be anything, the entries are there.
    let mut reader = Reader::new(bytes.get(..entries_len)?);
    let mut at = entries_len;
    let mut found = Vec::with_capacity(count);
    let mut previous = Lsn(0);
    for _ in 0..count {
        let lsn = Lsn(reader.u64()?);
        let min_time = reader.i64()?;
        let max_time = reader.i64()?;
        let schema_version = reader.u32()?;
        let rows = reader.u32()?;
        let end = at.checked_add(reader.u32()? as usize)?;
        let encoding = reader.u8()?;
        if reader.take(3)? != [0; 3] || lsn < previous || end > bytes.len() {
            return None;
        }
        let payload = bytes.slice(at..end);
        (at, previous) = (end, lsn);
        found.push(Slice { lsn, schema_version, encoding, rows, min_time, max_time, payload });
    }
    (count > 0 && at == bytes.len()).then_some(found)
}

/// Hands over the bytes of the index in order, in small pieces. Extents of a table that follow each other make a group.
///
/// # Errors
/// What `put` reports.
pub(super) fn write_index<E>(entries: &[ExtentEntry], mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    let groups = || entries.chunk_by(|a, b| a.table == b.table);
    let narrow = |n: usize| u32::try_from(n).expect("should be fewer than memory holds");
    put(&narrow(groups().count()).to_le_bytes())?;
    for group in groups() {
        put(&group[0].table.0.as_u128().to_le_bytes())?;
        put(&narrow(group.len()).to_le_bytes())?;
        for entry in group {
            put(&encode_index_entry(entry))?;
        }
    }
    Ok(())
}

fn encode_index_entry(entry: &ExtentEntry) -> [u8; INDEX_ENTRY_LEN] {
    let mut bytes = [0; INDEX_ENTRY_LEN];
    bytes[0..8].copy_from_slice(&entry.bucket.start.to_le_bytes());
    bytes[8..16].copy_from_slice(&entry.bucket.width.to_le_bytes());
    bytes[16..24].copy_from_slice(&entry.generation.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&entry.first_lsn.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&entry.last_lsn.0.to_le_bytes());
    bytes[40..44].copy_from_slice(&entry.len.to_le_bytes());
    bytes[44..48].copy_from_slice(&entry.slices.to_le_bytes());
    bytes[48..52].copy_from_slice(&entry.rows.to_le_bytes());
    bytes[52..56].copy_from_slice(&entry.payload_bytes.to_le_bytes());
    bytes[56..60].copy_from_slice(&entry.crc.to_le_bytes());
    bytes
}

/// The index of extents that lie back to back from [`HEADER_LEN`] on, in this order; those of a table next to each other.
pub fn encode_index(entries: &[ExtentEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + entries.len() * INDEX_ENTRY_LEN);
    let written: Result<(), Infallible> = write_index(entries, |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    match written {
        Ok(()) => bytes,
    }
}

/// Calls `visit` for each extent, in file order. None if the bytes are no index: what was visited until then does not count.
/// The last extent's end is where the index starts; the caller compares.
pub fn visit_index(bytes: &[u8], mut visit: impl FnMut(ExtentEntry)) -> Option<()> {
    let mut reader = Reader::new(bytes);
    let mut offset = HEADER_LEN;
    for _ in 0..reader.u32()? {
        let table = TableId(Uuid::from_u128(reader.u128()?));
        let extents = reader.u32()?;
        if extents == 0 {
            return None;
        }
        for _ in 0..extents {
            let entry = decode_index_entry(Reader::new(reader.take(INDEX_ENTRY_LEN)?), table, offset)?;
            offset = offset.checked_add(u64::from(entry.len))?;
            visit(entry);
        }
    }
    reader.is_empty().then_some(())
}

pub(super) fn decode_index_entry(mut reader: Reader<'_>, table: TableId, offset: u64) -> Option<ExtentEntry> {
    let entry = ExtentEntry {
        table,
        bucket: Bucket { start: reader.i64()?, width: reader.i64()? },
        generation: Lsn(reader.u64()?),
        first_lsn: Lsn(reader.u64()?),
        last_lsn: Lsn(reader.u64()?),
        offset,
        len: reader.u32()?,
        slices: reader.u32()?,
        rows: reader.u32()?,
        payload_bytes: reader.u32()?,
        crc: reader.u32()?,
    };
    (reader.u32()? == 0 && entry.is_sound()).then_some(entry)
}

/// The extents of an index, in file order. None if the bytes are no index.
pub fn decode_index(bytes: &[u8]) -> Option<Vec<ExtentEntry>> {
    let mut entries = Vec::new();
    visit_index(bytes, |entry| entries.push(entry))?;
    Some(entries)
}

#[cfg(test)]
mod tests;
