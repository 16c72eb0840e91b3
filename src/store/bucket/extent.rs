//! Slices that a checkpoint moved into a lane file: where they lie, and reading them back.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::generation::Slice;
use crate::checkpoint::edit::LaneFileRef;
use crate::checkpoint::lane_file::{self, ExtentEntry};
use crate::fs::File;
use crate::wal::GROUP_ALIGN;

/// One lane file that is in use. It stays readable for as long as anybody holds it, also when its name is gone.
#[derive(Debug)]
pub struct LaneFile {
    /// As the manifest has it.
    pub reference: LaneFileRef,
    /// Its name.
    pub path: PathBuf,
    file: Arc<dyn File>,
    /// Extents of generations that are not committed.
    live_extents: AtomicU64,
    /// Their bytes.
    live_bytes: AtomicU64,
}

/// Some slices of one generation, in LSN order. A node has one of these for each part of a generation that a checkpoint has moved,
/// so its size is part of what a start needs: 32 bytes.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Where it lies.
    pub file: Arc<LaneFile>,
    /// Byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Slices.
    pub slices: u32,
    /// CRC32C of the bytes.
    pub crc: u32,
    /// Its place among the generation's extents: pages of log between the generation's first record and its own. Only extents of one
    /// file share a page.
    pub order: u32,
}

const _: () = assert!(size_of::<Extent>() <= 32);

impl LaneFile {
    /// A file of which nothing is in use yet.
    pub fn new(reference: LaneFileRef, path: PathBuf, file: Arc<dyn File>) -> Self {
        Self { reference, path, file, live_extents: AtomicU64::new(0), live_bytes: AtomicU64::new(0) }
    }

    /// Whether no live generation needs it.
    pub fn is_dead(&self) -> bool {
        self.live_extents.load(Ordering::Acquire) == 0
    }

    /// Bytes of extents of live generations.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Acquire)
    }

    /// Makes its bytes durable.
    ///
    /// # Errors
    /// The I/O error, which is final.
    pub fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Fills `buf` from byte `at` of the index on.
    ///
    /// # Errors
    /// The I/O error.
    pub(crate) fn read_index_part(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, self.reference.index_at + at)
    }

    /// The file's index, as it was written.
    ///
    /// # Errors
    /// The I/O error; `InvalidData` if it is damaged.
    pub fn read_index(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.reference.index_len).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, self.reference.index_at)?;
        if crc32c::crc32c(&bytes) != self.reference.index_crc {
            return Err(damaged(&self.path, self.reference.index_at, "the index does not match its checksum"));
        }
        Ok(bytes)
    }

    /// The bytes of one extent.
    ///
    /// # Errors
    /// The I/O error; `InvalidData` if they are damaged.
    pub fn read(&self, offset: u64, len: u32, crc: u32) -> io::Result<Bytes> {
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_at(&mut bytes, offset)?;
        if crc32c::crc32c(&bytes) != crc {
            return Err(damaged(&self.path, offset, "rows do not match their checksum"));
        }
        Ok(Bytes::from(bytes))
    }

    pub(super) fn add_live(&self, len: u32) {
        self.live_extents.fetch_add(1, Ordering::AcqRel);
        self.live_bytes.fetch_add(u64::from(len), Ordering::AcqRel);
    }

    pub(super) fn remove_live(&self, len: u32) {
        self.live_extents.fetch_sub(1, Ordering::AcqRel);
        self.live_bytes.fetch_sub(u64::from(len), Ordering::AcqRel);
    }
}

impl Extent {
    /// The extent that an index entry describes.
    pub fn new(file: &Arc<LaneFile>, entry: &ExtentEntry) -> Self {
        let pages = (entry.first_lsn.0 / GROUP_ALIGN).saturating_sub(entry.generation.0 / GROUP_ALIGN);
        Self {
            file: Arc::clone(file),
            offset: entry.offset,
            len: entry.len,
            slices: entry.slices,
            crc: entry.crc,
            order: u32::try_from(pages).unwrap_or(u32::MAX),
        }
    }

    /// Its slices. Their payloads share one buffer.
    ///
    /// # Errors
    /// The I/O error; `InvalidData` if the bytes are damaged.
    pub fn read(&self) -> io::Result<Vec<Slice>> {
        let bytes = self.file.read(self.offset, self.len, self.crc)?;
        lane_file::decode_extent(bytes, self.slices)
            .ok_or_else(|| damaged(&self.file.path, self.offset, "rows cannot be read"))
    }
}

fn damaged(path: &std::path::Path, offset: u64, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: damaged at byte {offset}: {what}", path.display()))
}
