//! One shard's manifest: a header, then edits in frames.
//!
//! ```text
//!  0  magic         8 bytes "PNSTEDT1"
//!  8  version       u32  1
//! 12  shard         u32
//! 16  number        u64  the file with the highest one counts
//! 24  node          u128
//! 40  salt          u64  random, new in each file; seeds every checksum in it
//! 48  snapshot_end  u64  everything below was durable before the file got its name
//! 56  crc           u32  CRC32C of bytes 0..56
//! 60  reserved      u32  zero
//! ```
//!
//! A frame, on a multiple of 8 bytes:
//!
//! ```text
//!  0  len  u32  bytes of the edit
//!  4  crc  u32  CRC32C of the salt (8 bytes), `len`, the frame's position in the file (u64) and the edit
//!  8  the edit, see `edit`; zeros up to the next multiple of 8
//! ```
//!
//! Zeros may follow the last frame: room that is kept for the next ones. Integers are little-endian. Named
//! `edits-<number, 12 digits>`.

use std::io;
use std::path::Path;

use uuid::Uuid;

use super::edit::{self, Edit};
use crate::error::OpenError;
use crate::fs::File;
use crate::types::NodeId;
use crate::wal::codec::Reader;
use crate::wal::header::{HeaderError, Layout};
use crate::wal::record::EncodeError;

/// Bytes before the first frame.
pub const HEADER_LEN: u64 = 64;

/// The format that is written.
pub const VERSION: u32 = 1;

/// Bytes of a frame before its edit.
pub const FRAME_HEAD_LEN: usize = 8;

/// Frames start on a multiple of this many bytes.
pub const FRAME_ALIGN: u64 = 8;

const LAYOUT: Layout = Layout { magic: *b"PNSTEDT1", version: VERSION, fields_len: 56, len: HEADER_LEN as usize };
const PREFIX: &str = "edits-";

/// Bytes that are read at once when a file is searched.
const SEARCH_BYTES: usize = 1 << 16;
/// What a search looks at before it takes a position for a frame: head and sequence.
const PROBE_BYTES: usize = FRAME_HEAD_LEN + 8;

/// A file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The shard whose manifest this is.
    pub shard: u32,
    /// The file with the highest one counts.
    pub number: u64,
    /// The data directory that the file belongs to.
    pub node: NodeId,
    /// Random, new in each file.
    pub salt: u64,
    /// First byte behind the frames that were durable before the file got its name.
    pub snapshot_end: u64,
}

impl Header {
    /// The header's bytes.
    pub fn encode(&self) -> Vec<u8> {
        LAYOUT.encode(&[
            &self.shard.to_le_bytes(),
            &self.number.to_le_bytes(),
            &self.node.0.as_u128().to_le_bytes(),
            &self.salt.to_le_bytes(),
            &self.snapshot_end.to_le_bytes(),
        ])
    }

    /// Reads a header.
    ///
    /// # Errors
    /// If it is damaged or of another format version.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        Self::read(LAYOUT.fields(bytes)?).ok_or(HeaderError::Damaged)
    }

    fn read(mut fields: Reader<'_>) -> Option<Self> {
        let header = Self {
            shard: fields.u32()?,
            number: fields.u64()?,
            node: NodeId(Uuid::from_u128(fields.u128()?)),
            salt: fields.u64()?,
            snapshot_end: fields.u64()?,
        };
        let sound = header.snapshot_end > HEADER_LEN && header.snapshot_end.is_multiple_of(FRAME_ALIGN);
        sound.then_some(header)
    }
}

/// The name of the file with this number.
pub fn file_name(number: u64) -> String {
    format!("{PREFIX}{number:012}")
}

/// The number that a file's name tells; none if it is not such a file's name.
pub fn parse_file_name(name: &str) -> Option<u64> {
    let number = name.strip_prefix(PREFIX)?.parse().ok()?;
    // One name a file: signs and other numbers of zeros are somebody else's.
    (file_name(number) == name).then_some(number)
}

/// A frame for this position of a file, with the padding behind it.
///
/// # Errors
/// If the edit could not be read back.
pub fn encode_frame(edit: &Edit, at: u64, salt: u64) -> Result<Vec<u8>, EncodeError> {
    let payload = edit.encode()?;
    let len = u32::try_from(payload.len()).expect("should be at most edit::MAX_LEN");
    let crc = crc32c::crc32c_append(crc_seed(salt, len, at), &payload);
    let mut frame = Vec::with_capacity(padded_len(len));
    frame.extend_from_slice(&len.to_le_bytes());
    frame.extend_from_slice(&crc.to_le_bytes());
    frame.extend_from_slice(&payload);
    frame.resize(padded_len(len), 0);
    Ok(frame)
}

/// The edit in an intact frame, padding included. None if it is none that this version knows.
pub fn decode_frame(frame: &[u8]) -> Option<Edit> {
    let mut reader = Reader::new(frame);
    let len = reader.u32()? as usize;
    reader.u32()?;
    Edit::decode(reader.take(len)?)
}

/// Checksum of what a frame is bound to, for the edit's bytes to be appended: what is copied to another place, or left over from
/// another file, does not verify.
fn crc_seed(salt: u64, len: u32, at: u64) -> u32 {
    let crc = crc32c::crc32c(&salt.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &len.to_le_bytes());
    crc32c::crc32c_append(crc, &at.to_le_bytes())
}

/// Bytes of a frame in the file.
fn padded_len(len: u32) -> usize {
    (FRAME_HEAD_LEN + len as usize).next_multiple_of(FRAME_ALIGN as usize)
}

/// An open file, of which frames are read.
#[derive(Debug, Clone, Copy)]
pub struct Frames<'a> {
    /// The file.
    pub file: &'a dyn File,
    /// Its salt.
    pub salt: u64,
    /// Its length, bytes.
    pub len: u64,
}

/// What bad bytes are followed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// A frame, at this position.
    Frame(u64),
    /// Nothing that was written: zeros.
    Zeros,
    /// Something, and no frame.
    Remains,
}

impl Frames<'_> {
    /// Reads the frame at a position into `frame`, padding included. False if there is none.
    ///
    /// # Errors
    /// The I/O error; nothing is to be concluded from it.
    pub fn read(&self, at: u64, frame: &mut Vec<u8>) -> io::Result<bool> {
        frame.clear();
        let mut head = [0; FRAME_HEAD_LEN];
        if self.len.saturating_sub(at) < FRAME_HEAD_LEN as u64 {
            return Ok(false);
        }
        self.file.read_exact_at(&mut head, at)?;
        // MUST BEFORE the allocation: the length may be anything, the file is as long as it is.
        let Some((len, crc)) = self.plausible(&head, at) else { return Ok(false) };
        frame.resize(padded_len(len), 0);
        self.file.read_exact_at(frame, at)?;
        let (payload, padding) = frame[FRAME_HEAD_LEN..].split_at(len as usize);
        let padding_ok = padding.iter().all(|b| *b == 0);
        Ok(padding_ok && crc32c::crc32c_append(crc_seed(self.salt, len, at), payload) == crc)
    }

    /// Length of the edit and checksum, if a frame with this head could be at this position.
    fn plausible(&self, head: &[u8], at: u64) -> Option<(u32, u32)> {
        let mut reader = Reader::new(head);
        let (len, crc) = (reader.u32()?, reader.u32()?);
        let long_enough = (edit::MIN_LEN..=edit::MAX_LEN).contains(&(len as usize));
        (long_enough && padded_len(len) as u64 <= self.len.saturating_sub(at)).then_some((len, crc))
    }

    /// Looks for a frame behind the position `from` where the edit with number `sequence` should be and is not. Memory: one chunk.
    /// Time: one reading, but for frames that have a sequence which could be there, and are not intact.
    ///
    /// # Errors
    /// The I/O error; nothing is to be concluded from it.
    pub fn search(&self, from: u64, sequence: u64) -> io::Result<Behind> {
        let smallest = padded_len(edit::MIN_LEN as u32) as u64;
        let mut chunk = Vec::with_capacity(SEARCH_BYTES + PROBE_BYTES);
        let zeros = vec![0; SEARCH_BYTES + PROBE_BYTES];
        let (mut start, mut remains) = (from, false);
        while start < self.len {
            // A little more than is stepped over: a frame's beginning is seen whole.
            let wanted = ((SEARCH_BYTES + PROBE_BYTES) as u64).min(self.len - start);
            chunk.resize(usize::try_from(wanted).expect("should be at most a chunk"), 0);
            self.file.read_exact_at(&mut chunk, start)?;
            let chunk_start = start;
            start += SEARCH_BYTES as u64;
            // Room that was kept is most of what is searched, and no frame begins with zeros.
            if chunk[..] == zeros[..chunk.len()] {
                continue;
            }
            remains = true;
            let step = FRAME_ALIGN as usize;
            for (at, probe) in (chunk_start..).step_by(step).zip(chunk.windows(PROBE_BYTES).step_by(step)) {
                let (head, rest) = probe.split_at(FRAME_HEAD_LEN);
                let Some((len, crc)) = self.plausible(head, at) else { continue };
                // Not more frames fit in between than that, so that bytes of an edit seldom pass for a frame.
                let ahead = Reader::new(rest).u64().and_then(|found| found.checked_sub(sequence));
                let could_be = ahead.is_some_and(|ahead| ahead > 0 && ahead <= (at - from) / smallest);
                if could_be && self.verifies(at, len, crc)? {
                    return Ok(Behind::Frame(at));
                }
            }
        }
        Ok(if remains { Behind::Remains } else { Behind::Zeros })
    }

    /// Whether the edit of so many bytes in the frame at `at` has this checksum; read in chunks.
    fn verifies(&self, at: u64, len: u32, crc: u32) -> io::Result<bool> {
        let mut sum = crc_seed(self.salt, len, at);
        let mut chunk = vec![0; SEARCH_BYTES.min(len as usize)];
        let (mut position, mut left) = (at + FRAME_HEAD_LEN as u64, len as usize);
        while left > 0 {
            let part = &mut chunk[..left.min(SEARCH_BYTES)];
            self.file.read_exact_at(part, position)?;
            sum = crc32c::crc32c_append(sum, part);
            position += part.len() as u64;
            left -= part.len();
        }
        Ok(sum == crc)
    }
}

/// Reads a file's header.
///
/// # Errors
/// A damaged header, another version, or the I/O error.
pub fn read_header(file: &dyn File, path: &Path) -> Result<Header, OpenError> {
    let reading = || OpenError::io(format!("reading {}", path.display()));
    let mut bytes = [0; HEADER_LEN as usize];
    let whole = file.len().map_err(reading())? >= HEADER_LEN;
    if whole {
        file.read_exact_at(&mut bytes, 0).map_err(reading())?;
    }
    let corrupt = |error: HeaderError| OpenError::Corrupt { path: path.to_owned(), offset: 0, what: error.to_string() };
    Header::decode(&bytes).map_err(corrupt)
}

#[cfg(test)]
mod tests;
