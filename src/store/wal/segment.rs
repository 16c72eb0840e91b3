//! One log file: a header page, then groups. Its first data byte is its base LSN; its content ends where the next segment begins.
//!
//! ```text
//!  0  magic        8 bytes "PNSTWAL1"
//!  8  version      u32  1
//! 12  shard        u32
//! 16  base_lsn     u64
//! 24  salt         u64  random, new at each use of the file; seeds every checksum in it
//! 32  capacity     u64  bytes behind the header page
//! 40  node         u128
//! 56  incarnation  u64  the start that wrote this header
//! 64  kept_from    u64  segments that end at or below this LSN may be gone
//! 72  crc          u32  CRC32C of bytes 0..72
//!      zeros up to 4096
//! ```
//!
//! Named `<base LSN, 20 digits>.seg`; a file that waits for its next use is named `spare-<n>`, and nothing in it counts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::codec::Reader;
use super::header::{HeaderError, Layout};
use crate::fs::{File, FileSystem};
use crate::types::{Incarnation, Lsn, NodeId};

/// Bytes before the first group.
pub const HEADER_LEN: u64 = 4096;

/// Smallest regular segment, data bytes.
pub const MIN_SEGMENT_BYTES: u64 = 1 << 16;

/// The format that is written.
pub const VERSION: u32 = 1;

const LAYOUT: Layout = Layout { magic: *b"PNSTWAL1", version: VERSION, fields_len: 72, len: HEADER_LEN as usize };
const SUFFIX: &str = ".seg";

/// A segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The shard whose log this is.
    pub shard: u32,
    /// LSN of the first data byte.
    pub base: Lsn,
    /// Random, new at each use of the file.
    pub salt: u64,
    /// Data bytes.
    pub capacity: u64,
    /// The data directory whose log this is.
    pub node: NodeId,
    /// The start that wrote this header.
    pub incarnation: Incarnation,
    /// Segments that end at or below may be gone.
    pub kept_from: Lsn,
}

impl Header {
    /// The header page.
    pub fn encode(&self) -> Vec<u8> {
        LAYOUT.encode(&[
            &self.shard.to_le_bytes(),
            &self.base.0.to_le_bytes(),
            &self.salt.to_le_bytes(),
            &self.capacity.to_le_bytes(),
            &self.node.0.as_u128().to_le_bytes(),
            &self.incarnation.0.to_le_bytes(),
            &self.kept_from.0.to_le_bytes(),
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
            base: Lsn(fields.u64()?),
            salt: fields.u64()?,
            capacity: fields.u64()?,
            node: NodeId(Uuid::from_u128(fields.u128()?)),
            incarnation: Incarnation(fields.u64()?),
            kept_from: Lsn(fields.u64()?),
        })
    }
}

/// The name of the segment that starts at `base`.
pub fn file_name(base: Lsn) -> String {
    format!("{:020}{SUFFIX}", base.0)
}

/// The base LSN that a segment's name tells; none if it is not a segment's name.
pub fn parse_file_name(name: &str) -> Option<Lsn> {
    let digits = name.strip_suffix(SUFFIX)?;
    let valid = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    if valid { digits.parse().ok().map(Lsn) } else { None }
}

/// An open segment.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The file's header.
    pub header: Header,
    /// The file's name.
    pub path: PathBuf,
    /// The file.
    pub file: Arc<dyn File>,
}

impl Segment {
    /// Where in the file a log position lies.
    pub fn offset_of(&self, lsn: Lsn) -> u64 {
        HEADER_LEN + (lsn.0 - self.header.base.0)
    }

    /// First LSN that does not fit any more.
    pub fn limit(&self) -> Lsn {
        Lsn(self.header.base.0.saturating_add(self.header.capacity))
    }
}

/// Turns a preallocated file into the segment that its header describes. `content` (whole groups) is in it before it has its name,
/// so that a crash leaves either both or neither.
///
/// # Errors
/// The I/O error; what is durable then is for a restart to find out.
pub fn activate(
    fs: &dyn FileSystem,
    dir: &Path,
    header: Header,
    spare: &Path,
    file: Arc<dyn File>,
    content: &[u8],
) -> io::Result<Segment> {
    if !content.is_empty() {
        file.write_all_at(content, HEADER_LEN)?;
    }
    file.write_all_at(&header.encode(), 0)?;
    // MUST BEFORE the rename: a name whose header is not on disk is a segment that recovery refuses.
    file.sync_data()?;
    let path = dir.join(file_name(header.base));
    fs.rename(spare, &path)?;
    // MUST BEFORE the first ack in it: without its directory entry the file is not found again.
    fs.sync_dir(dir)?;
    Ok(Segment { header, path, file })
}

/// Where the logs of all shards lie; a change of their number makes a new directory.
pub fn wal_dir(data_dir: &Path, layout: u32) -> PathBuf {
    data_dir.join(if layout == 0 { "wal".to_owned() } else { format!("wal-{layout}") })
}

/// The layout whose logs a directory of the data directory has; none if its name is not that of one.
pub fn parse_wal_dir(name: &str) -> Option<u32> {
    let layout = name.strip_prefix("wal")?.strip_prefix('-').map_or(Some(0), |digits| digits.parse().ok())?;
    // One name a layout: `wal-0`, `wal-01` and `walnut` are somebody else's.
    wal_dir(Path::new(""), layout).to_str().is_some_and(|own| own == name).then_some(layout)
}

/// Where the segments of a shard lie, and its manifest.
pub fn shard_dir(data_dir: &Path, layout: u32, shard: u32) -> PathBuf {
    wal_dir(data_dir, layout).join(format!("shard-{shard:03}"))
}

#[cfg(test)]
mod tests;
