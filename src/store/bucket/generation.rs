//! The immutable set of slices that one seal closes. While it is open it only grows at its end, so that a reader who remembers how
//! many slices it had needs no copy. A checkpoint moves slices from memory into a lane file; their number and order stay.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::RwLock;

use super::extent::Extent;
use crate::checkpoint::lane_file::{ExtentEntry, SLICE_ENTRY_LEN};
use crate::types::{Bucket, Incarnation, Lsn, SliceInput, TableId};

/// A durable slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Where its record starts.
    pub lsn: Lsn,
    /// The definition that the payload was encoded with.
    pub schema_version: u32,
    /// The payload's encoding.
    pub encoding: u8,
    /// Rows in the payload.
    pub rows: u32,
    /// Smallest event time, microseconds.
    pub min_time: i64,
    /// Largest event time, microseconds.
    pub max_time: i64,
    /// The rows.
    pub payload: Bytes,
}

/// A generation's place in its table's commit order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealInfo {
    /// The start that sealed.
    pub incarnation: Incarnation,
    /// The place among the generations of the table that this start sealed, from 1.
    pub sequence: u64,
    /// LSN of the Seal record: the records before it are in, those after it are in the next generation.
    pub lsn: Lsn,
}

/// What a generation holds by now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Slices.
    pub slices: usize,
    /// Rows.
    pub rows: u64,
    /// Payload bytes.
    pub bytes: u64,
}

impl Totals {
    /// What a generation with these takes in memory, bytes: payloads, and what lies around them. A post of one row is mostly the
    /// latter. (A checkpoint frees most of it; it counts until the rows are in Delta all the same.)
    pub fn held(&self) -> u64 {
        GENERATION_OVERHEAD + self.slices as u64 * SLICE_OVERHEAD + self.bytes
    }
}

/// Memory of a slice beside its payload: its entry, with room to grow, and what lies around it in the buffer that it was read into.
pub const SLICE_OVERHEAD: u64 = 256;
/// Memory of a generation beside its slices: itself, its places in the table's maps and in what the next checkpoint takes.
pub const GENERATION_OVERHEAD: u64 = 512;

/// What is behind a generation's lock.
#[derive(Debug, Default)]
struct Content {
    /// What checkpoints moved, in LSN order; all of it before what is in memory.
    extents: Box<[Extent]>,
    /// What is in memory, in LSN order.
    slices: Vec<Slice>,
    /// The highest LSN of a slice.
    last_lsn: Lsn,
    rows: u64,
    bytes: u64,
    count: u32,
    /// The swap since which a checkpoint knows that there is something to move; see `ShardState`.
    dirty_since: u32,
}

impl Content {
    fn totals(&self) -> Totals {
        Totals { slices: self.count as usize, rows: self.rows, bytes: self.bytes }
    }

    /// Adds extents at the end, without room to spare: there are millions of these lists.
    fn extend(&mut self, more: impl ExactSizeIterator<Item = Extent>) {
        let mut extents = std::mem::take(&mut self.extents).into_vec();
        extents.reserve_exact(more.len());
        extents.extend(more);
        self.extents = extents.into_boxed_slice();
    }
}

/// One generation of one bucket.
#[derive(Debug)]
pub struct Generation {
    /// The table.
    pub table: TableId,
    /// The window of its rows.
    pub bucket: Bucket,
    /// LSN of its first record: its name within the shard.
    pub first_lsn: Lsn,
    /// When this process saw its first record; monotonic, so that a jump of the wall clock seals nothing.
    pub opened_at: Instant,
    content: RwLock<Content>,
    /// Its rows are in Delta, and its extents no longer count. Changes under the lock of `content`.
    retired: AtomicBool,
    /// Boxed: most generations are open.
    seal: OnceLock<Box<SealInfo>>,
}

/// A generation whose seal is durable.
#[derive(Debug, Clone)]
pub struct Sealed {
    /// Its rows.
    pub generation: Arc<Generation>,
    /// Its place.
    pub seal: SealInfo,
}

impl Generation {
    pub(crate) fn new(table: TableId, bucket: Bucket, first_lsn: Lsn) -> Self {
        Self {
            table,
            bucket,
            first_lsn,
            opened_at: Instant::now(),
            content: RwLock::default(),
            retired: AtomicBool::new(false),
            seal: OnceLock::new(),
        }
    }

    /// Looks once at each of some generations. A million lie far from each other in main memory: looked at together the processor
    /// waits for many at once, and without their locks, each of which it would wait for by itself.
    pub(crate) fn touch<'a>(generations: impl Iterator<Item = &'a Self>) {
        let look = |g: &Self| (g.opened_at, g.is_retired(), g.seal.get().is_some(), g.first_lsn);
        std::hint::black_box(generations.map(look).max());
    }

    /// Adds a slice at the end; true if it is the first one since the swap `since`.
    pub(super) fn push(&self, lsn: Lsn, input: SliceInput, since: u32) -> bool {
        let mut content = self.content.write();
        // Four thousand million slices are more than memory holds.
        content.count = content.count.saturating_add(1);
        content.last_lsn = lsn;
        content.rows += u64::from(input.rows);
        content.bytes += input.payload.len() as u64;
        let slices = &mut content.slices;
        if slices.len() == slices.capacity() {
            // A vector's own first step is four; most generations of a large node have fewer slices between two checkpoints. One
            // would have most of those that have two copied.
            slices.reserve_exact(slices.len().max(2));
        }
        slices.push(Slice {
            lsn,
            schema_version: input.schema_version,
            encoding: input.encoding,
            rows: input.rows,
            min_time: input.min_time,
            max_time: input.max_time,
            payload: input.payload,
        });
        std::mem::replace(&mut content.dirty_since, since) != since
    }

    pub(super) fn close(&self, seal: SealInfo) {
        self.seal.set(Box::new(seal)).expect("should be sealed once");
    }

    /// Its rows are in Delta: lane files need not be kept for it. Readers that have it keep what they have.
    pub(super) fn retire(&self) {
        let content = self.content.write();
        if !self.retired.swap(true, Ordering::Release) {
            content.extents.iter().for_each(|e| e.file.remove_live(e.len));
        }
    }

    /// Shows `read` the slices in memory whose records lie below `lsn`; none once it is retired. The owner waits for `read` if it has a
    /// slice to add here: if they make more than `most` bytes of extent, they are shared with the generation, and shown without its lock.
    pub(crate) fn with_memory_below<R>(&self, lsn: Lsn, most: usize, read: impl FnOnce(&[Slice]) -> R) -> R {
        let content = self.content.read();
        if self.is_retired() {
            return read(&[]);
        }
        let below = &content.slices[..content.slices.partition_point(|s| s.lsn < lsn)];
        if below.iter().map(|s| SLICE_ENTRY_LEN + s.payload.len()).sum::<usize>() <= most {
            return read(below);
        }
        let shared = below.to_vec();
        drop(content);
        read(&shared)
    }

    /// Puts extents in the place of as many slices, the first ones in memory. Nothing happens if it was retired meanwhile.
    ///
    /// MUST AFTER the barrier: the memory that goes here may be the only place that a reader has.
    pub(crate) fn install(&self, extents: impl ExactSizeIterator<Item = Extent>) {
        let mut content = self.content.write();
        if self.is_retired() {
            return;
        }
        let mut moved = 0;
        content.extend(extents.inspect(|extent| {
            moved += extent.slices as usize;
            extent.file.add_live(extent.len);
        }));
        if moved == content.slices.len() {
            content.slices = Vec::new();
        } else {
            content.slices.drain(..moved);
            content.slices.shrink_to_fit();
        }
    }

    /// Adds extents that the manifest knows, with what their index says of them.
    pub(crate) fn restore<'a>(&self, extents: impl Iterator<Item = (Extent, &'a ExtentEntry)>) {
        let mut content = self.content.write();
        let content = &mut *content;
        let (rows, bytes, count) = (&mut content.rows, &mut content.bytes, &mut content.count);
        let last_lsn = &mut content.last_lsn;
        let mut added: Vec<Extent> = Vec::new();
        for (extent, entry) in extents {
            *rows += u64::from(entry.rows);
            *bytes += u64::from(entry.payload_bytes);
            *count = count.saturating_add(entry.slices);
            *last_lsn = entry.last_lsn.max(*last_lsn);
            extent.file.add_live(extent.len);
            added.push(extent);
        }
        content.extend(added.into_iter());
        // Copies of old extents lie in newer files; of one file they come in order.
        if !content.extents.is_sorted_by_key(|e| e.order) {
            content.extents.sort_by_key(|e| e.order);
        }
    }

    /// Puts copies in the place of extents: `copies` has where each one was and where it is now.
    pub(crate) fn replace(&self, copies: impl IntoIterator<Item = (u64, u64, Extent)>) {
        let mut content = self.content.write();
        if self.is_retired() {
            return;
        }
        for (file, offset, copy) in copies {
            let place = content.extents.iter_mut().find(|e| e.file.reference.id == file && e.offset == offset);
            if let Some(place) = place {
                copy.file.add_live(copy.len);
                let old = std::mem::replace(place, copy);
                old.file.remove_live(old.len);
            }
        }
    }

    /// Whether it may have slices of the record at `lsn`; see [`super::Whereabouts`].
    pub(super) fn may_hold(&self, lsn: Lsn) -> bool {
        let content = self.content.read();
        if lsn < self.first_lsn || lsn > content.last_lsn {
            return false;
        }
        let in_memory = content.slices.first().is_some_and(|first| lsn >= first.lsn) || content.extents.is_empty();
        !in_memory || content.slices.binary_search_by_key(&lsn, |slice| slice.lsn).is_ok()
    }

    /// The LSNs of its first and its last record.
    pub fn span(&self) -> (Lsn, Lsn) {
        (self.first_lsn, self.content.read().last_lsn)
    }

    /// Whether its rows are in Delta.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// The seal, once it is durable.
    pub fn seal(&self) -> Option<SealInfo> {
        self.seal.get().map(|seal| **seal)
    }

    /// What it holds now.
    pub fn totals(&self) -> Totals {
        self.content.read().totals()
    }

    /// Extents, and slices in memory.
    pub fn places(&self) -> (usize, usize) {
        let content = self.content.read();
        (content.extents.len(), content.slices.len())
    }

    /// Where its first `count` slices are, in order.
    pub fn parts(&self, count: usize) -> Vec<Part> {
        let content = self.content.read();
        let mut left = count;
        let mut parts = Vec::new();
        for extent in content.extents.iter() {
            if left == 0 {
                return parts;
            }
            let take = left.min(extent.slices as usize);
            parts.push(Part::Moved { extent: extent.clone(), take });
            left -= take;
        }
        let in_memory = &content.slices[..left.min(content.slices.len())];
        if !in_memory.is_empty() {
            parts.push(Part::Memory(in_memory.to_vec()));
        }
        parts
    }

    /// Its first `count` slices; those in memory share it, those in lane files are read. Blocks.
    ///
    /// # Errors
    /// A lane file that cannot be read, or is damaged.
    pub fn slices(&self, count: usize) -> io::Result<Vec<Slice>> {
        let mut slices = Vec::new();
        for part in self.parts(count) {
            slices.extend(part.read()?);
        }
        Ok(slices)
    }
}

/// Some slices of a generation that are in one place.
#[derive(Debug, Clone)]
pub enum Part {
    /// In memory.
    Memory(Vec<Slice>),
    /// In a lane file.
    Moved {
        /// Where.
        extent: Extent,
        /// How many of its slices, from the front.
        take: usize,
    },
}

impl Part {
    /// About how many bytes reading it brings into memory.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Memory(slices) => slices.iter().map(|s| s.payload.len() as u64).sum(),
            Self::Moved { extent, .. } => u64::from(extent.len),
        }
    }

    /// Its slices. Blocks.
    ///
    /// # Errors
    /// A lane file that cannot be read, or is damaged.
    pub fn read(&self) -> io::Result<Vec<Slice>> {
        match self {
            Self::Memory(slices) => Ok(slices.clone()),
            Self::Moved { extent, take } => {
                let mut slices = extent.read()?;
                slices.truncate(*take);
                Ok(slices)
            }
        }
    }
}
