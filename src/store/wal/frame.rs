//! One record in the log.
//!
//! ```text
//!  0  len       u32  whole frame with this header, without the padding to 8 bytes behind it
//!  4  head_crc  u32  CRC32C of the segment's salt (8 bytes), `len` and bytes 8..32
//!  8  lsn       u64  where this frame starts
//! 16  kind      u8   see `record`
//! 17  version   u8   of the body's encoding
//! 18  reserved  u16  zero
//! 20  dir_len   u32  bytes of the directory behind the header; the payloads follow it
//! 24  body_crc  u32  CRC32C of everything behind the header
//! 28  reserved  u32  zero
//! ```
//!
//! The two checksums split the work: the caller checksums the body, in parallel with others; the owner thread, which alone knows
//! LSN and salt, seals 24 bytes. A frame is valid only where its LSN equals the position it is read at and its salt is that of
//! the segment, so nothing left over in a recycled segment can verify. All integers are little-endian.

use super::codec::Reader;
use crate::types::Lsn;

/// Bytes of a frame's header.
pub const HEADER_LEN: usize = 32;

/// Frames start on a multiple of this many bytes.
pub const FRAME_ALIGN: usize = 8;

const HEAD_CRC_FROM: usize = 8;

/// A frame's header, as read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the frame with this header, without the padding behind it.
    pub len: u32,
    /// Where the frame starts.
    pub lsn: Lsn,
    /// What the record says.
    pub kind: u8,
    /// Of the body's encoding.
    pub version: u8,
    /// Bytes of the directory.
    pub dir_len: u32,
    /// CRC32C of everything behind the header.
    pub body_crc: u32,
}

/// CRC32C of a record's body, given in parts.
pub fn body_crc<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    parts.into_iter().fold(0, crc32c::crc32c_append)
}

/// A frame's length with the padding behind it.
pub fn padded_len(len: usize) -> usize {
    len.next_multiple_of(FRAME_ALIGN)
}

/// Writes a header into the first [`HEADER_LEN`] bytes of `frame`.
pub fn write_header(frame: &mut [u8], header: &Header, salt: u64) {
    frame[0..4].copy_from_slice(&header.len.to_le_bytes());
    frame[8..16].copy_from_slice(&header.lsn.0.to_le_bytes());
    frame[16] = header.kind;
    frame[17] = header.version;
    frame[18..20].fill(0);
    frame[20..24].copy_from_slice(&header.dir_len.to_le_bytes());
    frame[24..28].copy_from_slice(&header.body_crc.to_le_bytes());
    frame[28..32].fill(0);
    // The length is covered too: it is what a scan steps by.
    let crc = salted_crc(salt, header.len, &frame[HEAD_CRC_FROM..HEADER_LEN]);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn salted_crc(salt: u64, len: u32, rest: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&salt.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &len.to_le_bytes());
    crc32c::crc32c_append(crc, rest)
}

/// Reads the header of a frame that should start at `expected`; none if these bytes are not such a frame.
pub fn read_header(bytes: &[u8], expected: Lsn, salt: u64) -> Option<Header> {
    let mut reader = Reader::new(bytes.get(..HEADER_LEN)?);
    let len = reader.u32()?;
    let head_crc = reader.u32()?;
    let lsn = Lsn(reader.u64()?);
    let kind = reader.u8()?;
    let version = reader.u8()?;
    let _reserved = reader.u16()?;
    let dir_len = reader.u32()?;
    let body_crc = reader.u32()?;
    let sound = head_crc == salted_crc(salt, len, &bytes[HEAD_CRC_FROM..HEADER_LEN])
        && lsn == expected
        && len as usize >= HEADER_LEN
        && dir_len as usize <= len as usize - HEADER_LEN;
    sound.then_some(Header { len, lsn, kind, version, dir_len, body_crc })
}

#[cfg(test)]
mod tests;
