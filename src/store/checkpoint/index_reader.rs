//! A lane file's index, entry by entry in little memory; and those of many lane files together, so that what belongs to one
//! generation comes together: a start then looks each generation up once, and gives it all its extents at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;

use uuid::Uuid;

use super::lane_file::{self, ExtentEntry};
use crate::bucket::extent::LaneFile;
use crate::types::{Bucket, Lsn, TableId};
use crate::wal::codec::Reader;

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// Bytes before a table's entries: its id and their number.
const TABLE_LEN: usize = 20;

/// Reads one index.
#[derive(Debug)]
pub struct IndexReader {
    file: Arc<LaneFile>,
    chunk: Vec<u8>,
    /// Bytes of the chunk that were taken.
    taken: usize,
    /// Bytes of the index that were read.
    read: u64,
    crc: u32,
    tables: u32,
    table: TableId,
    /// Entries of the table that are left.
    entries: u32,
    /// Entries so far.
    count: u32,
    /// Where the next extent lies.
    offset: u64,
}

/// An index cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Its file.
    pub file: Arc<LaneFile>,
    /// Why.
    pub error: io::Error,
}

impl IndexReader {
    /// A reader at the beginning.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn new(file: Arc<LaneFile>) -> Result<Self, Unreadable> {
        let mut reader = Self {
            file,
            chunk: Vec::new(),
            taken: 0,
            read: 0,
            crc: 0,
            tables: 0,
            table: TableId(Uuid::nil()),
            entries: 0,
            count: 0,
            offset: lane_file::HEADER_LEN,
        };
        reader.tables = reader.take(4, |mut r| r.u32())?;
        Ok(reader)
    }

    /// The next entry; none at the end, where everything that was read has proved to be what was written.
    ///
    /// # Errors
    /// [`Unreadable`]; nothing that was read before counts then.
    pub fn next_entry(&mut self) -> Result<Option<ExtentEntry>, Unreadable> {
        if self.entries == 0 {
            if self.tables == 0 {
                return self.check_end().map(|()| None);
            }
            self.tables -= 1;
            let (table, entries) = self.take(TABLE_LEN, |mut r| Some((r.u128()?, r.u32()?)))?;
            if entries == 0 {
                return Err(self.damaged());
            }
            (self.table, self.entries) = (TableId(Uuid::from_u128(table)), entries);
        }
        self.entries -= 1;
        self.count += 1;
        let (table, offset) = (self.table, self.offset);
        let entry = self.take(lane_file::INDEX_ENTRY_LEN, |r| lane_file::decode_index_entry(r, table, offset))?;
        self.offset = entry.end();
        Ok(Some(entry))
    }

    fn take<T>(&mut self, len: usize, decode: impl FnOnce(Reader<'_>) -> Option<T>) -> Result<T, Unreadable> {
        if self.chunk.len() - self.taken < len {
            self.fill()?;
        }
        let bytes = self.chunk.get(self.taken..self.taken + len).and_then(|b| decode(Reader::new(b)));
        self.taken += len;
        bytes.ok_or_else(|| self.damaged())
    }

    fn fill(&mut self) -> Result<(), Unreadable> {
        self.chunk.drain(..self.taken);
        self.taken = 0;
        let kept = self.chunk.len();
        let reference = &self.file.reference;
        let more = (reference.index_len - self.read).min(CHUNK as u64) as usize;
        self.chunk.resize(kept + more, 0);
        let read = self.file.read_index_part(self.read, &mut self.chunk[kept..]);
        read.map_err(|error| Unreadable { file: Arc::clone(&self.file), error })?;
        self.crc = crc32c::crc32c_append(self.crc, &self.chunk[kept..]);
        self.read += more as u64;
        Ok(())
    }

    fn check_end(&self) -> Result<(), Unreadable> {
        let reference = &self.file.reference;
        let whole = self.read == reference.index_len
            && self.taken == self.chunk.len()
            && self.crc == reference.index_crc
            && self.count == reference.extents
            && self.offset == reference.index_at;
        if whole { Ok(()) } else { Err(self.damaged()) }
    }

    fn damaged(&self) -> Unreadable {
        let error = io::Error::new(io::ErrorKind::InvalidData, "the index is damaged");
        Unreadable { file: Arc::clone(&self.file), error }
    }
}

type Key = (TableId, Bucket, Lsn);

/// Reads the indexes of several files, calling `take` for runs of entries of one generation, each with its file. A generation comes as
/// one run if every index is in order, which is how they are written; in several otherwise.
///
/// # Errors
/// [`Unreadable`], or what `take` reports.
pub fn merge<E: From<Unreadable>>(
    files: &[Arc<LaneFile>],
    mut take: impl FnMut(&[(Arc<LaneFile>, ExtentEntry)]) -> Result<(), E>,
) -> Result<(), E> {
    let key = |e: &ExtentEntry| -> Key { (e.table, e.bucket, e.generation) };
    let mut readers = files.iter().map(|f| IndexReader::new(Arc::clone(f))).collect::<Result<Vec<_>, _>>()?;
    let mut heads: Vec<Option<ExtentEntry>> = vec![None; readers.len()];
    let mut order = BinaryHeap::new();
    for (n, reader) in readers.iter_mut().enumerate() {
        heads[n] = reader.next_entry()?;
        order.extend(heads[n].as_ref().map(|e| Reverse((key(e), n))));
    }
    let mut run: Vec<(Arc<LaneFile>, ExtentEntry)> = Vec::new();
    while let Some(Reverse((of, n))) = order.pop() {
        if run.first().is_some_and(|(_, e)| key(e) != of) {
            take(&run)?;
            run.clear();
        }
        // All that this file has of the generation.
        while let Some(entry) = heads[n].take_if(|e| key(e) == of) {
            run.push((Arc::clone(&files[n]), entry));
            heads[n] = readers[n].next_entry()?;
        }
        order.extend(heads[n].as_ref().map(|e| Reverse((key(e), n))));
    }
    if run.is_empty() { Ok(()) } else { take(&run) }
}

#[cfg(test)]
mod tests;
