//! What one sync covers. A group starts on a 4 KiB boundary with this header; its frames follow, then zeros to the next boundary.
//!
//! ```text
//!  0  magic        4 bytes "PNSG"
//!  4  crc          u32  CRC32C of the segment's salt (8 bytes) and bytes 8..64
//!  8  lsn          u64  where this group starts
//! 16  durable_lsn  u64  everything below was known to be durable when this was written
//! 24  len          u32  bytes with this header, without the padding to 4 KiB
//! 28  frames       u32
//! 32  kind         u8   1 group, 2 mark, 3 onward
//! 33  reserved     7 bytes, zero
//! 40  kept_from    u64  segments that end at or below this LSN may be gone
//! 48  reserved     16 bytes, zero
//! ```
//!
//! Two kinds have no frames, and are not synced when they are written:
//!
//! - a **mark**, which an idle owner leaves where the next group will start. It tells a later scan that the last group had been
//!   synced, so that damage in it is corruption and not a torn tail. The next group overwrites it;
//! - **onward**, the last thing in a segment once the next one has its name: if the newest file is missing, that shows.
//!
//! A group without frames was written for its `kept_from` alone, by builds that had no checkpoint: it is read, and no longer written.

use super::codec::Reader;
use crate::types::Lsn;

/// Bytes of a group's header.
pub const HEADER_LEN: usize = 64;

const MAGIC: [u8; 4] = *b"PNSG";
const CRC_FROM: usize = 8;

/// Whether frames follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Frames follow.
    Group,
    /// Everything below was durable when the owner was idle; the next group will be here.
    Mark,
    /// Everything below was durable when the log went on in another segment.
    Onward,
}

/// A group's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Where the group starts.
    pub lsn: Lsn,
    /// Everything below was known to be durable.
    pub durable_lsn: Lsn,
    /// Segments that end at or below may be gone.
    pub kept_from: Lsn,
    /// Bytes with this header, without the padding to 4 KiB.
    pub len: u32,
    /// Frames that follow.
    pub frames: u32,
    /// What this is.
    pub kind: Kind,
}

impl Header {
    /// A mark, or the word that the log goes on elsewhere: everything below `lsn` is durable.
    pub fn note(kind: Kind, lsn: Lsn, kept_from: Lsn) -> Self {
        Self { lsn, durable_lsn: lsn, kept_from, len: HEADER_LEN as u32, frames: 0, kind }
    }

    /// The header's bytes, for a segment with this salt.
    pub fn encode(&self, salt: u64) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.lsn.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.durable_lsn.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.frames.to_le_bytes());
        bytes[32] = match self.kind {
            Kind::Group => 1,
            Kind::Mark => 2,
            Kind::Onward => 3,
        };
        bytes[40..48].copy_from_slice(&self.kept_from.0.to_le_bytes());
        let crc = salted_crc(salt, &bytes[CRC_FROM..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of a group that should start at `expected`; none if these bytes are not such a header.
    pub fn decode(bytes: &[u8], expected: Lsn, salt: u64) -> Option<Self> {
        let bytes = bytes.get(..HEADER_LEN)?;
        let mut reader = Reader::new(bytes);
        // The magic first: a scan asks every page, and most have none.
        if reader.take(MAGIC.len())? != MAGIC || reader.u32()? != salted_crc(salt, &bytes[CRC_FROM..]) {
            return None;
        }
        let lsn = Lsn(reader.u64()?);
        let durable_lsn = Lsn(reader.u64()?);
        let len = reader.u32()?;
        let frames = reader.u32()?;
        let kind = match reader.u8()? {
            1 => Kind::Group,
            2 => Kind::Mark,
            3 => Kind::Onward,
            _ => return None,
        };
        reader.take(7)?;
        let kept_from = Lsn(reader.u64()?);
        let sound = lsn == expected && durable_lsn <= lsn && kept_from <= lsn && len as usize >= HEADER_LEN;
        sound.then_some(Self { lsn, durable_lsn, kept_from, len, frames, kind })
    }
}

fn salted_crc(salt: u64, rest: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), rest)
}

#[cfg(test)]
mod tests;
