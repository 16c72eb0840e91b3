//! The directories that lane files go to, ideally one a device.
//!
//! Each has a file `LANE`, the mount guard: a directory without it is a mount point without its device, and taking it for an empty
//! lane would lose what lies on the device.
//!
//! ```text
//!  0  magic    8 bytes "PNSTLNID"
//!  8  version  u32  1
//! 12  lane     u32
//! 16  node     u128
//! 32  crc      u32  CRC32C of bytes 0..32
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::edit::LaneFileRef;
use super::lane_file;
use crate::bucket::extent::LaneFile;
use crate::error::OpenError;
use crate::fs::{FileSystem, OpenMode, remove_if_there};
use crate::types::NodeId;
use crate::wal::codec::Reader;

/// The mount guard's file name.
pub const GUARD_NAME: &str = "LANE";

/// Most lanes of a node.
pub const MAX_LANES: usize = 64;

const MAGIC: [u8; 8] = *b"PNSTLNID";
const VERSION: u32 = 1;
const FIELDS_LEN: usize = 32;
const GUARD_LEN: usize = FIELDS_LEN + 4;

/// How written lane files are made durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Barrier {
    /// `fdatasync`: a checkpoint writes one file, and `syncfs` would wait for what others write to the device as well.
    #[default]
    Auto,
    /// `syncfs` of the lane, and then `fdatasync` of the files, which has nothing left to write: the kernel tells a failed
    /// write-back to the first one who asks, so that another process's `syncfs` may have taken the report for the device.
    SyncFs,
    /// `fdatasync` of the files, and of their directory.
    FdataSync,
}

/// A node's lanes.
#[derive(Debug)]
pub struct Lanes {
    fs: Arc<dyn FileSystem>,
    dirs: Vec<PathBuf>,
    barrier: Barrier,
}

/// The guard's bytes.
pub fn encode_guard(node: NodeId, lane: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(GUARD_LEN);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&lane.to_le_bytes());
    bytes.extend_from_slice(&node.0.as_u128().to_le_bytes());
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Whose lane a guard says this is.
///
/// # Errors
/// What is wrong with the bytes.
pub fn decode_guard(bytes: &[u8]) -> Result<(NodeId, u32), String> {
    let damaged = || "the lane's guard file is damaged".to_owned();
    let mut reader = Reader::new(bytes);
    let magic = reader.take(MAGIC.len()).ok_or_else(damaged)?;
    let version = reader.u32().ok_or_else(damaged)?;
    let lane = reader.u32().ok_or_else(damaged)?;
    let node = NodeId(Uuid::from_u128(reader.u128().ok_or_else(damaged)?));
    let crc = reader.u32().ok_or_else(damaged)?;
    if magic != MAGIC || crc != crc32c::crc32c(&bytes[..FIELDS_LEN]) || !reader.is_empty() {
        return Err(damaged());
    }
    if version != VERSION {
        return Err(format!("format version {version}; this build reads version {VERSION}"));
    }
    Ok((node, lane))
}

impl Lanes {
    /// The lanes of an existing node, whose guards are read.
    ///
    /// # Errors
    /// A lane whose guard is missing, damaged or another node's, or an I/O error.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        dirs: Vec<PathBuf>,
        node: NodeId,
        barrier: Barrier,
    ) -> Result<Self, OpenError> {
        for (lane, dir) in (0..).zip(&dirs) {
            check_guard(&*fs, dir, node, lane)?;
        }
        Ok(Self { fs, dirs, barrier })
    }

    /// Lanes that are not there yet: for a data directory from before there were any.
    pub fn unmade(fs: Arc<dyn FileSystem>, dirs: Vec<PathBuf>, barrier: Barrier) -> Self {
        Self { fs, dirs, barrier }
    }

    /// Makes them.
    ///
    /// # Errors
    /// As [`make`].
    pub fn make(&self, node: NodeId) -> Result<(), OpenError> {
        make(&*self.fs, &self.dirs, node)
    }

    /// The number of lanes.
    pub fn count(&self) -> u32 {
        u32::try_from(self.dirs.len()).expect("should be at most MAX_LANES")
    }

    /// The lane that a shard's next file goes to: in turn, each shard beginning with another one.
    pub fn choose(&self, shard: u32, id: u64) -> u32 {
        ((u64::from(shard) + id) % u64::from(self.count())) as u32
    }

    /// Where a file lies.
    ///
    /// # Errors
    /// If there is no such lane.
    pub fn path(&self, shard: u32, lane: u32, id: u64) -> io::Result<PathBuf> {
        let dir = self.dirs.get(lane as usize);
        let dir = dir.ok_or_else(|| io::Error::other(format!("there is no lane {lane}")))?;
        Ok(dir.join(lane_file::file_name(shard, id)))
    }

    /// Opens a file that the manifest knows.
    ///
    /// # Errors
    /// The file is missing, too short, damaged or another's, or cannot be read.
    pub fn open_file(&self, shard: u32, node: NodeId, reference: LaneFileRef) -> Result<LaneFile, OpenError> {
        let reading = || OpenError::io(format!("reading a lane file of shard {shard}"));
        let path = self.path(shard, reference.lane, reference.id).map_err(reading())?;
        let layout = |what: String| OpenError::Layout { path: path.clone(), what };
        let file = match self.fs.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(layout("the manifest says that rows lie here, but the file is missing; restore it".into()));
            }
            opened => opened.map_err(reading())?,
        };
        let len = file.len().map_err(reading())?;
        let end = reference.index_at.checked_add(reference.index_len);
        if len < reference.bytes || end.is_none_or(|end| end > reference.bytes) {
            return Err(layout(format!("{len} bytes long, but {} were written; restore it", reference.bytes)));
        }
        let mut page = vec![0; lane_file::HEADER_LEN.min(len) as usize];
        file.read_exact_at(&mut page, 0).map_err(reading())?;
        let corrupt = |what: String| OpenError::Corrupt { path: path.clone(), offset: 0, what };
        let header = lane_file::Header::decode(&page).map_err(|e| corrupt(e.to_string()))?;
        if (header.node, header.shard, header.id) != (node, shard, reference.id) {
            return Err(layout(format!("file {} of node {}, shard {}", header.id, header.node, header.shard)));
        }
        Ok(LaneFile::new(reference, path, file))
    }

    /// Whether a file is another node's, by a header that is sound. What a crash left half-written is nobody's.
    ///
    /// # Errors
    /// The I/O error.
    pub fn is_anothers(&self, path: &Path, node: NodeId) -> io::Result<bool> {
        let file = self.fs.open(path, OpenMode::Read)?;
        let mut page = vec![0; lane_file::HEADER_LEN.min(file.len()?) as usize];
        file.read_exact_at(&mut page, 0)?;
        Ok(lane_file::Header::decode(&page).is_ok_and(|header| header.node != node))
    }

    /// The ids and lanes of all files of a shard, in use or not.
    ///
    /// # Errors
    /// The I/O error.
    pub fn list(&self, shard: u32) -> io::Result<Vec<(u32, u64)>> {
        let all = self.list_all()?.into_iter();
        Ok(all.filter(|(_, of, _)| *of == shard).map(|(lane, _, id)| (lane, id)).collect())
    }

    /// The lanes, shards and ids of all lane files, in use or not.
    ///
    /// # Errors
    /// The I/O error.
    pub fn list_all(&self) -> io::Result<Vec<(u32, u32, u64)>> {
        let mut found = Vec::new();
        for (lane, dir) in (0..).zip(&self.dirs) {
            let files = self.fs.list(dir)?.into_iter().filter_map(|name| lane_file::parse_file_name(&name));
            found.extend(files.map(|(shard, id)| (lane, shard, id)));
        }
        Ok(found)
    }

    /// An id that no file of a shard has, at least `least`.
    ///
    /// # Errors
    /// The I/O error.
    pub fn next_id(&self, shard: u32, least: u64) -> io::Result<u64> {
        Ok(self.list(shard)?.into_iter().map(|(_, id)| id + 1).fold(least, u64::max))
    }

    /// Makes written files durable, bytes and names: lanes in parallel.
    ///
    /// # Errors
    /// The I/O error, which is final: the files may be on disk all the same, or not.
    pub fn barrier(&self, files: &[Arc<LaneFile>]) -> io::Result<()> {
        let touched = |lane: u32| files.iter().filter(move |f| f.reference.lane == lane);
        let lanes = (0..self.count()).filter(|lane| touched(*lane).next().is_some());
        let sync = |lane: u32| {
            let dir = &self.dirs[lane as usize];
            if self.barrier == Barrier::SyncFs {
                self.fs.sync_fs(dir)?;
            }
            touched(lane).try_for_each(|f| f.sync_data())?;
            self.fs.sync_dir(dir)
        };
        let lanes: Vec<u32> = lanes.collect();
        if let [lane] = lanes[..] {
            return sync(lane);
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = lanes.iter().map(|lane| scope.spawn(|| sync(*lane))).collect();
            threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    /// The file system that the lanes are on.
    pub fn fs(&self) -> &Arc<dyn FileSystem> {
        &self.fs
    }
}

/// Checks a lane's guard.
///
/// # Errors
/// It is missing, damaged or another node's, or an I/O error.
pub(crate) fn check_guard(fs: &dyn FileSystem, dir: &Path, node: NodeId, lane: u32) -> Result<(), OpenError> {
    let Some((of, number)) = read_guard(fs, dir)? else {
        let what = "the lane's guard file is missing; is the file system mounted?".to_owned();
        return Err(OpenError::Layout { path: dir.to_owned(), what });
    };
    if (of, number) != (node, lane) {
        let what = format!("this is lane {number} of node {of}, not lane {lane} of node {node}");
        return Err(OpenError::Layout { path: dir.join(GUARD_NAME), what });
    }
    Ok(())
}

/// Whose lane a directory is, and which one; none if it is nobody's, or not there.
///
/// # Errors
/// A damaged guard, or an I/O error.
pub(crate) fn read_guard(fs: &dyn FileSystem, dir: &Path) -> Result<Option<(NodeId, u32)>, OpenError> {
    let path = &dir.join(GUARD_NAME);
    let reading = || OpenError::io(format!("reading {}", path.display()));
    let file = match fs.open(path, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(reading())?,
    };
    // One byte more than there should be: a longer file is damaged.
    let len = file.len().map_err(reading())?.min(GUARD_LEN as u64 + 1);
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0).map_err(reading())?;
    let corrupt = |what| OpenError::Corrupt { path: path.clone(), offset: 0, what };
    decode_guard(&bytes).map(Some).map_err(corrupt)
}

/// Makes the lanes of a new node, durably. A directory that has lane files is somebody's; one with a guard only is what a first
/// start left that was cut short.
///
/// # Errors
/// A directory that is in use, or an I/O error.
pub fn make(fs: &dyn FileSystem, dirs: &[PathBuf], node: NodeId) -> Result<(), OpenError> {
    for (lane, dir) in (0..).zip(dirs) {
        let making = || OpenError::io(format!("making the lane {}", dir.display()));
        fs.create_dir_all(dir).map_err(making())?;
        let names = fs.list(dir).map_err(making())?;
        if names.iter().any(|name| lane_file::parse_file_name(name).is_some()) {
            let what = "this lane has rows of another data directory, or of one whose manifest is missing".to_owned();
            return Err(OpenError::Layout { path: dir.clone(), what });
        }
        write_guard(fs, dir, node, lane).map_err(making())?;
        super::super::first_start::sync_ancestors(fs, dir).map_err(making())?;
    }
    Ok(())
}

/// Writes a lane's guard, durably, whole or not at all.
///
/// # Errors
/// The I/O error.
pub fn write_guard(fs: &dyn FileSystem, dir: &Path, node: NodeId, lane: u32) -> io::Result<()> {
    let next = dir.join("LANE.new");
    remove_if_there(fs, &next)?;
    let file = fs.create(&next)?;
    file.write_all_at(&encode_guard(node, lane), 0)?;
    file.sync_data()?;
    fs.rename(&next, &dir.join(GUARD_NAME))?;
    fs.sync_dir(dir)
}

#[cfg(test)]
mod tests;
