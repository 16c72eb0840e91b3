//! What a data directory is: which node, how many shards, which start. Rewritten as a whole, rarely.
//!
//! ```text
//!  0  magic             8 bytes "PNSTMAN1"
//!  8  version           u32  3
//! 12  body_len          u32
//! 16  node              u128
//! 32  incarnation       u64  of the newest start
//! 40  starts            u64
//! 48  created_unix_ms   u64
//! 56  segment_bytes     u64  data bytes of a regular log segment
//! 64  lanes             u32
//! 68  shards            u32
//! 72  layout            u32  counts the changes of the number of shards; names the directories
//! 76  history           u32  starts that are remembered
//! 80  replay_rates      4 x u64  weight of log a second and shard of recent starts, newest first; 0: not measured
//!112  per shard         u64  durable_lsn: all below was durable when this was written
//!                       u64  segment_lsn: base of the segment that was written to then
//!     per start         u64  incarnation; the oldest start first
//!                       u32  shards
//!                       u32  reserved, zero
//!                       u64  per shard: what this start wrote lies from this LSN on
//!  .. crc               u32  CRC32C of everything before it
//!  .. zeros             up to the next multiple of 4096, from version 3 on
//! ```
//!
//! Version 2 has no history; the place of its count is zero there. Version 1 also lacks what lies between `shards` and the shards'
//! entries, and has no lanes and no manifest of each shard: its log holds
//! everything. It is read, and the first start of this build makes what it lacks.
//!
//! The next manifest is written into `MANIFEST.new`, which is kept with room for it: a node on a full disk has to start, because
//! that is how the disk gets emptied.

use std::io;
use std::path::Path;

use uuid::Uuid;

use crate::error::OpenError;
use crate::fs::{FileSystem, OpenMode};
use crate::shard;
use crate::types::{Incarnation, Lsn, NodeId, TableId};
use crate::wal::codec::Reader;

/// The manifest's file name.
pub const FILE_NAME: &str = "MANIFEST";

/// Where the next manifest is written.
const NEXT_FILE_NAME: &str = "MANIFEST.new";

/// Most shards of a node.
pub const MAX_SHARDS: u32 = 1024;

/// The format that is written.
pub const VERSION: u32 = 3;

/// Formats that are read as well.
pub(crate) const VERSION_1: u32 = 1;
const VERSION_2: u32 = 2;

const MAGIC: [u8; 8] = *b"PNSTMAN1";
const HEAD_LEN: usize = 16;
/// Bytes of the body before the shards' entries.
const BODY_LEN: usize = 96;
/// Bytes of one shard's entry.
const LOG_LEN: usize = 16;
/// Bytes of a start that is remembered, without those of its shards.
const START_LEN: usize = 16;
const FIRST_LEN: usize = 8;
/// Most bytes of all starts that are remembered: thousands, with a few shards.
const MAX_HISTORY_LEN: usize = 128 << 10;
const CRC_LEN: usize = 4;
/// The file's length is a multiple of this.
const PAGE: usize = 4096;
const MAX_LEN: u64 = 1 << 20;

/// Starts whose replay rate is remembered.
pub const REPLAY_RATES: usize = 4;

/// The manifest's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The format that it was read in.
    pub version: u32,
    /// Which data directory this is.
    pub node: NodeId,
    /// The newest start.
    pub incarnation: Incarnation,
    /// Starts so far.
    pub starts: u64,
    /// Milliseconds since the epoch.
    pub created_unix_ms: u64,
    /// Data bytes of a regular log segment.
    pub segment_bytes: u64,
    /// Checkpoint directories; 0 in a data directory of version 1.
    pub lanes: u32,
    /// Counts the changes of the number of shards; names the directories.
    pub layout: u32,
    /// Weight of log a second and shard that recent starts replayed, newest first; 0: not measured. See `replay_cost`.
    pub replay_rates: [u64; REPLAY_RATES],
    /// One entry a shard.
    pub logs: Vec<LogPosition>,
    /// Starts that wrote something, the oldest first, the newest one last. The oldest are forgotten when there are thousands.
    pub history: Vec<Start>,
}

/// From where on the log was written by one start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Which one.
    pub incarnation: Incarnation,
    /// The first LSN of each shard, of as many as there were then.
    pub firsts: Vec<Lsn>,
}

impl Start {
    fn len(&self) -> usize {
        START_LEN + FIRST_LEN * self.firsts.len()
    }
}

/// How far a shard's log was when the manifest was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Everything below was durable.
    pub durable: Lsn,
    /// Base of the segment that was written to; it exists for as long as no later one is the first.
    pub segment: Lsn,
}

impl Manifest {
    /// The number of shards.
    pub fn shards(&self) -> u32 {
        u32::try_from(self.logs.len()).expect("should be at most MAX_SHARDS")
    }

    /// Refuses other numbers than the data directory has. A data directory of version 1 has no number of lanes yet.
    ///
    /// # Errors
    /// The first number that is another one.
    pub fn check_counts(&self, shards: u32, lanes: usize) -> Result<(), OpenError> {
        let changed = |what, stored, configured| Err(OpenError::CountChanged { what, stored, configured });
        if self.shards() != shards {
            return changed("shards", self.shards(), shards);
        }
        let lanes = u32::try_from(lanes).unwrap_or(u32::MAX);
        if self.lanes != lanes && self.version != VERSION_1 {
            return changed("lanes", self.lanes, lanes);
        }
        Ok(())
    }

    /// Begins the history of this start: what it writes lies from `firsts` on. One before it that wrote nothing is forgotten.
    pub fn begin(&mut self, firsts: Vec<Lsn>) {
        self.history.retain(|start| start.firsts != firsts);
        self.history.push(Start { incarnation: self.incarnation, firsts });
        let mut len: usize = self.history.iter().map(Start::len).sum();
        let forgotten = self.history.iter().take_while(|start| {
            let is_over = len > MAX_HISTORY_LEN;
            len -= start.len();
            is_over
        });
        self.history.drain(..forgotten.count());
    }

    /// Whether an incarnation that wrote something is a start of this data directory; none if it may be one that is forgotten.
    pub fn has_started(&self, incarnation: Incarnation) -> Option<bool> {
        if self.history.iter().any(|start| start.incarnation == incarnation) {
            return Some(true);
        }
        // From the first byte of the log on, all that wrote are there.
        let is_whole = self.history.first().is_some_and(|start| start.firsts.iter().all(|first| *first == Lsn(0)));
        is_whole.then_some(false)
    }

    /// The start that wrote a table's record at an LSN, and the shard that it was on then; none if that start is not remembered.
    pub fn origin(&self, table: TableId, lsn: Lsn) -> Option<(Incarnation, u32)> {
        self.history.iter().rev().find_map(|start| {
            let shard = shard::of(table, u32::try_from(start.firsts.len()).ok()?);
            (lsn >= *start.firsts.get(shard as usize)?).then_some((start.incarnation, shard))
        })
    }

    /// The lowest of the recent replay rates; none if no start has measured one.
    pub fn replay_rate(&self) -> Option<u64> {
        self.replay_rates.iter().copied().filter(|rate| *rate > 0).min()
    }

    /// The middle one of the recent replay rates, the lower of two.
    pub fn middle_replay_rate(&self) -> Option<u64> {
        let mut rates: Vec<u64> = self.replay_rates.iter().copied().filter(|rate| *rate > 0).collect();
        rates.sort_unstable();
        rates.get(rates.len().checked_sub(1)? / 2).copied()
    }

    /// Remembers a start's replay rate.
    pub fn add_replay_rate(&mut self, rate: u64) {
        self.replay_rates.rotate_right(1);
        self.replay_rates[0] = rate;
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.node.0.as_u128().to_le_bytes());
        body.extend_from_slice(&self.incarnation.0.to_le_bytes());
        body.extend_from_slice(&self.starts.to_le_bytes());
        body.extend_from_slice(&self.created_unix_ms.to_le_bytes());
        body.extend_from_slice(&self.segment_bytes.to_le_bytes());
        body.extend_from_slice(&self.lanes.to_le_bytes());
        body.extend_from_slice(&self.shards().to_le_bytes());
        body.extend_from_slice(&self.layout.to_le_bytes());
        let history = u32::try_from(self.history.len()).expect("should be bounded in bytes");
        body.extend_from_slice(&history.to_le_bytes());
        self.replay_rates.iter().for_each(|rate| body.extend_from_slice(&rate.to_le_bytes()));
        for log in &self.logs {
            body.extend_from_slice(&log.durable.0.to_le_bytes());
            body.extend_from_slice(&log.segment.0.to_le_bytes());
        }
        for start in &self.history {
            body.extend_from_slice(&start.incarnation.0.to_le_bytes());
            body.extend_from_slice(
                &u32::try_from(start.firsts.len()).expect("should be at most MAX_SHARDS").to_le_bytes(),
            );
            body.extend_from_slice(&[0; 4]);
            start.firsts.iter().for_each(|first| body.extend_from_slice(&first.0.to_le_bytes()));
        }
        let mut bytes = Vec::with_capacity(HEAD_LEN + body.len() + 4);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(body.len()).expect("should be short").to_le_bytes());
        bytes.extend_from_slice(&body);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the file's bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let damaged = || "the manifest is damaged".to_owned();
        let mut head = Reader::new(bytes);
        if head.take(MAGIC.len()).ok_or_else(damaged)? != MAGIC {
            return Err("this is not a Penstock manifest".to_owned());
        }
        let version = head.u32().ok_or_else(damaged)?;
        let body_len = head.u32().ok_or_else(damaged)? as usize;
        let covered = bytes.get(..HEAD_LEN + body_len).ok_or_else(damaged)?;
        let stored = Reader::new(&bytes[covered.len()..]).u32().ok_or_else(damaged)?;
        let rest = bytes.get(covered.len() + CRC_LEN..).ok_or_else(damaged)?;
        let padded = bytes.len() == pad(covered.len() + CRC_LEN) && rest.iter().all(|byte| *byte == 0);
        if stored != crc32c::crc32c(covered) || !(rest.is_empty() || padded) {
            return Err(damaged());
        }
        if !(VERSION_1..=VERSION).contains(&version) {
            return Err(format!("format version {version}; this build reads versions {VERSION_1} to {VERSION}"));
        }
        Self::decode_body(&covered[HEAD_LEN..], version).ok_or_else(damaged)
    }

    fn decode_body(body: &[u8], version: u32) -> Option<Self> {
        let mut reader = Reader::new(body);
        let node = NodeId(Uuid::from_u128(reader.u128()?));
        let incarnation = Incarnation(reader.u64()?);
        let starts = reader.u64()?;
        let created_unix_ms = reader.u64()?;
        let segment_bytes = reader.u64()?;
        let lanes = reader.u32()?;
        let shards = reader.u32()?;
        if shards == 0 || shards > MAX_SHARDS {
            return None;
        }
        let (mut layout, mut starts_known, mut replay_rates) = (0, 0, [0; REPLAY_RATES]);
        if version != VERSION_1 {
            layout = reader.u32()?;
            starts_known = reader.u32()?;
            if version == VERSION_2 && starts_known != 0 {
                return None;
            }
            for rate in &mut replay_rates {
                *rate = reader.u64()?;
            }
        }
        let mut log = || Some(LogPosition { durable: Lsn(reader.u64()?), segment: Lsn(reader.u64()?) });
        let logs = (0..shards).map(|_| log()).collect::<Option<Vec<_>>>()?;
        let history = (0..starts_known).map(|_| take_start(&mut reader)).collect::<Option<Vec<_>>>()?;
        reader.is_empty().then_some(Self {
            node,
            incarnation,
            starts,
            created_unix_ms,
            segment_bytes,
            lanes,
            layout,
            replay_rates,
            logs,
            history,
            version,
        })
    }

    /// Reads the manifest of a data directory; none if it has none.
    ///
    /// # Errors
    /// A damaged manifest, or an I/O error.
    pub fn load(fs: &dyn FileSystem, dir: &Path) -> Result<Option<Self>, OpenError> {
        let path = dir.join(FILE_NAME);
        let reading = || OpenError::io(format!("reading {}", path.display()));
        let file = match fs.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(reading())?,
        };
        let len = file.len().map_err(reading())?;
        if len > MAX_LEN {
            return Err(OpenError::Corrupt { path, offset: 0, what: format!("a manifest of {len} bytes") });
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0).map_err(reading())?;
        Self::decode(&bytes).map(Some).map_err(|what| OpenError::Corrupt { path: path.clone(), offset: 0, what })
    }

    /// Replaces the manifest; after a crash it is the old one or the new one, whole.
    ///
    /// # Errors
    /// The I/O error.
    pub fn store(&self, fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
        // A longer history takes no more of the disk, up to the next page: on a full one there would be none.
        let mut bytes = self.encode();
        bytes.resize(pad(bytes.len()), 0);
        let next = dir.join(NEXT_FILE_NAME);
        let file = match fs.open(&next, OpenMode::ReadWrite) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs.create(&next)?,
            opened => opened?,
        };
        file.write_all_at(&bytes, 0)?;
        file.truncate(bytes.len() as u64)?;
        // MUST BEFORE the rename: the name could reach the disk before the bytes, and the node would not know itself.
        file.sync_data()?;
        fs.rename(&next, &dir.join(FILE_NAME))?;
        fs.sync_dir(dir)?;
        self.keep_room(fs, &next);
        Ok(())
    }

    /// Prepares the file that the next manifest is written into. Without room now, the next one needs room then.
    fn keep_room(&self, fs: &dyn FileSystem, next: &Path) {
        let history: usize = self.history.iter().map(Start::len).sum();
        // With another start in it.
        let next_start = START_LEN + FIRST_LEN * self.logs.len();
        let len = pad(HEAD_LEN + BODY_LEN + LOG_LEN * self.logs.len() + history + next_start + CRC_LEN) as u64;
        if let Err(error) = fs.create(next).and_then(|file| file.allocate(len)) {
            tracing::warn!(path = %next.display(), %error, "no room is kept for the next manifest");
        }
    }
}

/// Bytes in the file.
fn pad(len: usize) -> usize {
    len.next_multiple_of(PAGE)
}

fn take_start(reader: &mut Reader<'_>) -> Option<Start> {
    let incarnation = Incarnation(reader.u64()?);
    let shards = reader.u32()?;
    if shards == 0 || shards > MAX_SHARDS || reader.u32()? != 0 {
        return None;
    }
    let firsts = (0..shards).map(|_| reader.u64().map(Lsn)).collect::<Option<Vec<_>>>()?;
    Some(Start { incarnation, firsts })
}

#[cfg(test)]
mod tests;
