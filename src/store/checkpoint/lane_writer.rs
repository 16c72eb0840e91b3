//! Writing a lane file: one sequential stream in chunks, whose pace the caller sets. Nothing is synced here, and no name is made
//! durable: the caller's barrier does that, and after it the edit says where the index is.

use std::io::{self, ErrorKind};

use super::lane_file::{self, ExtentEntry, Header};
use crate::bucket::generation::Slice;
use crate::fs::File;
use crate::types::{Bucket, Lsn, TableId};

/// Bytes that are written at once, unless the caller says otherwise.
pub const DEFAULT_CHUNK_BYTES: usize = 1 << 20;

const PAGE: usize = 4096;

/// What is told after each write: how many bytes it had. An error ends the writing.
pub type Pace<'a> = dyn FnMut(u64) -> io::Result<()> + 'a;

/// A lane file being written. After an error the file is of no use.
pub struct LaneWriter<'a> {
    file: &'a dyn File,
    pace: &'a mut Pace<'a>,
    chunk: usize,
    /// Bytes behind `written` that are not in the file yet; shorter than a chunk.
    buffer: Vec<u8>,
    /// Bytes in the file.
    written: u64,
    entries: Vec<ExtentEntry>,
}

/// A lane file that is written, and not durable yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its extents, in file order.
    pub entries: Vec<ExtentEntry>,
    /// Where the index starts.
    pub index_at: u64,
    /// Bytes of the index.
    pub index_len: u64,
    /// CRC32C of the index.
    pub index_crc: u32,
    /// Bytes of the file.
    pub bytes: u64,
}

impl std::fmt::Debug for LaneWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let extents = self.entries.len();
        f.debug_struct("LaneWriter").field("written", &self.written).field("extents", &extents).finish_non_exhaustive()
    }
}

impl<'a> LaneWriter<'a> {
    /// Starts the file, which has to be empty, writing `chunk` bytes at once.
    ///
    /// # Errors
    /// The I/O error, or what `pace` reports.
    pub fn new(file: &'a dyn File, header: &Header, chunk: usize, pace: &'a mut Pace<'a>) -> io::Result<Self> {
        let chunk = chunk.max(1);
        let buffer = Vec::with_capacity(chunk);
        let mut writer = Self { file, pace, chunk, buffer, written: 0, entries: Vec::new() };
        writer.put(&header.encode())?;
        Ok(writer)
    }

    /// Extents so far.
    pub fn extents(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of the file so far, buffered ones included.
    pub fn len_bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Sees to it that the next `bytes` that are added do not reach the file, so that the caller may hold a lock meanwhile; less than a
    /// chunk.
    ///
    /// # Errors
    /// The I/O error, or what `pace` reports.
    pub fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        // Whole pages: part of one would be written twice.
        let whole = self.buffer.len() - self.buffer.len() % PAGE;
        if whole == 0 || self.buffer.len() + bytes < self.chunk {
            return Ok(());
        }
        let mut full = std::mem::take(&mut self.buffer);
        self.write(&full[..whole])?;
        full.drain(..whole);
        self.buffer = full;
        Ok(())
    }

    /// Adds slices of one generation, in LSN order, as one extent or several; none for no slices. Those of a table belong
    /// together.
    ///
    /// # Errors
    /// The I/O error, what `pace` reports, or `InvalidInput` for what could not be read back.
    pub fn push(&mut self, table: TableId, bucket: Bucket, generation: Lsn, slices: &[Slice]) -> io::Result<()> {
        let mut rest = slices;
        while !rest.is_empty() {
            let (extent, behind) = rest.split_at(lane_file::extent_slices(rest));
            self.push_extent(table, bucket, generation, extent)?;
            rest = behind;
        }
        Ok(())
    }

    fn push_extent(&mut self, table: TableId, bucket: Bucket, generation: Lsn, slices: &[Slice]) -> io::Result<()> {
        let unreadable = || io::Error::new(ErrorKind::InvalidInput, "an extent that could not be read back");
        let (Some(first), Some(last)) = (slices.first(), slices.last()) else { return Ok(()) };
        let payload_bytes: usize = slices.iter().map(|slice| slice.payload.len()).sum();
        let len = payload_bytes + slices.len() * lane_file::SLICE_ENTRY_LEN;
        let mut entry = ExtentEntry {
            table,
            bucket,
            generation,
            first_lsn: first.lsn,
            last_lsn: last.lsn,
            offset: self.len_bytes(),
            len: u32::try_from(len).map_err(|_| unreadable())?,
            slices: u32::try_from(slices.len()).map_err(|_| unreadable())?,
            rows: slices.iter().map(|slice| slice.rows).sum(),
            payload_bytes: u32::try_from(payload_bytes).map_err(|_| unreadable())?,
            crc: 0,
        };
        // MUST BEFORE it gets into the file: an extent that decoding refuses keeps the node from ever starting again.
        if !entry.is_sound() || !slices.is_sorted_by_key(|slice| slice.lsn) {
            return Err(unreadable());
        }
        for slice in slices {
            let bytes = lane_file::encode_slice_entry(slice);
            entry.crc = crc32c::crc32c_append(entry.crc, &bytes);
            self.put(&bytes)?;
        }
        for slice in slices {
            entry.crc = crc32c::crc32c_append(entry.crc, &slice.payload);
            self.put(&slice.payload)?;
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Adds an extent of another lane file as it is. Its offset is the only thing that changes.
    ///
    /// # Errors
    /// The I/O error, what `pace` reports, or `InvalidData` if the bytes are not the entry's.
    pub fn push_raw(&mut self, entry: ExtentEntry, bytes: &[u8]) -> io::Result<()> {
        let intact = bytes.len() == entry.len as usize && crc32c::crc32c(bytes) == entry.crc && entry.is_sound();
        // MUST BEFORE it is copied: the file that has it is dropped afterwards, and with it the chance to read it again.
        if !intact {
            return Err(io::Error::new(ErrorKind::InvalidData, "an extent is not what its index says"));
        }
        let offset = self.len_bytes();
        self.put(bytes)?;
        self.entries.push(ExtentEntry { offset, ..entry });
        Ok(())
    }

    /// Writes the index and what is left. What comes back belongs into the edit, after the barrier.
    ///
    /// # Errors
    /// The I/O error, or what `pace` reports.
    pub fn finish(mut self) -> io::Result<Written> {
        let entries = std::mem::take(&mut self.entries);
        let index_at = self.len_bytes();
        let mut index_crc = 0;
        lane_file::write_index(&entries, |piece| {
            index_crc = crc32c::crc32c_append(index_crc, piece);
            self.put(piece)
        })?;
        let bytes = self.len_bytes();
        if !self.buffer.is_empty() {
            let last = std::mem::take(&mut self.buffer);
            self.write(&last)?;
        }
        Ok(Written { entries, index_at, index_len: bytes - index_at, index_crc, bytes })
    }

    /// Appends bytes: whole chunks from where they lie, the others by way of the buffer, so that none is copied twice.
    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.buffer.is_empty() && bytes.len() >= self.chunk {
                let (whole, rest) = bytes.split_at(self.chunk);
                self.write(whole)?;
                bytes = rest;
                continue;
            }
            let (head, rest) = bytes.split_at(bytes.len().min(self.chunk - self.buffer.len()));
            self.buffer.extend_from_slice(head);
            bytes = rest;
            if self.buffer.len() == self.chunk {
                let mut full = std::mem::take(&mut self.buffer);
                self.write(&full)?;
                full.clear();
                self.buffer = full;
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.written)?;
        self.written += bytes.len() as u64;
        (self.pace)(bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests;
