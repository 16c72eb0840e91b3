//! Moving slices from memory into one lane file, and live extents out of lane files that only they pin.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::edit::LaneFileRef;
use super::lane_file::{self, ExtentEntry};
use super::lane_writer::{DEFAULT_CHUNK_BYTES, LaneWriter};
use super::lanes::Lanes;
use super::pace::Pace;
use crate::bucket::extent::{Extent, LaneFile};
use crate::bucket::generation::Generation;
use crate::shard::Shared;
use crate::types::{Bucket, Incarnation, Lsn, NodeId, TableId};

/// Whose lane files these are.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// The shard.
    pub shard: u32,
    /// The data directory.
    pub node: NodeId,
    /// This start.
    pub incarnation: Incarnation,
}

/// Bytes of a generation that are written under its lock; the lock of one with more is let go first.
const SHOWN_BYTES: usize = 16 << 10;

/// Generations that are looked at together before they are needed one by one.
const TOUCHED_AT_ONCE: usize = 32;

/// One thing to write. There may be millions, most of them far from each other in memory: what they are sorted by is looked up once.
#[derive(Debug)]
struct Item {
    order: (TableId, Bucket, Lsn),
    generation: Arc<Generation>,
    /// An extent of an older lane file; none: what is in memory.
    copy: Option<Box<(Arc<LaneFile>, ExtentEntry)>>,
}

impl Item {
    fn new(generation: Arc<Generation>, copy: Option<Box<(Arc<LaneFile>, ExtentEntry)>>) -> Self {
        Self { order: (generation.table, generation.bucket, generation.first_lsn), generation, copy }
    }

    /// Tables together, as the index wants them; a generation's slices in the order in which they came.
    fn order(&self) -> (&(TableId, Bucket, Lsn), (u64, u64)) {
        // One record may reach over two extents: then they have the same LSN, and lie in order in one file.
        (&self.order, self.copy.as_ref().map_or((u64::MAX, 0), |copy| (copy.1.first_lsn.0, copy.1.offset)))
    }
}

/// Goes through `items`, some of whose generations are always touched ahead.
fn touched<T>(items: Vec<T>, generation: impl Fn(&T) -> &Generation) -> impl Iterator<Item = T> {
    let (mut items, mut ahead) = (items.into_iter(), 0_usize);
    std::iter::from_fn(move || {
        if ahead == 0 {
            ahead = items.len().min(TOUCHED_AT_ONCE);
            Generation::touch(items.as_slice()[..ahead].iter().map(&generation));
        }
        ahead = ahead.saturating_sub(1);
        items.next()
    })
}

/// A lane file that is written, and what lies in it; nothing of it is durable.
#[derive(Debug)]
pub struct Moved {
    /// The file.
    pub file: Arc<LaneFile>,
    /// Its extents.
    pub entries: Vec<ExtentEntry>,
    /// What each generation has in it.
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    generation: Arc<Generation>,
    /// Entries, in order.
    count: usize,
    /// For a copy: the file and the offset that it was copied from.
    from: Option<(u64, u64)>,
}

/// Why a lane file was not written.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// Nothing came of it; come again.
    #[error(transparent)]
    Undone(io::Error),
    /// Nothing came of it, and nothing will: an older lane file cannot be read.
    #[error("lane file {0}: {1}")]
    Unreadable(u64, io::Error),
    /// A sync failed.
    #[error(transparent)]
    Sync(io::Error),
}

/// What one lane file is to hold.
#[derive(Debug, Default)]
pub struct Load {
    items: Vec<Item>,
}

impl Load {
    /// Everything that the given generations have in memory below `checkpoint`; a generation may be given twice.
    pub fn new<'a>(generations: impl Iterator<Item = &'a Arc<Generation>>) -> Self {
        let live = generations.filter(|g| !g.is_retired());
        Self { items: live.map(|g| Item::new(Arc::clone(g), None)).collect() }
    }

    /// Adds what is live in an older lane file.
    ///
    /// # Errors
    /// If its index cannot be read.
    pub fn add_live_of(&mut self, file: &Arc<LaneFile>, shared: &Shared) -> io::Result<()> {
        let index = file.read_index()?;
        let mut entries = Vec::new();
        let read = lane_file::visit_index(&index, |entry| entries.push(entry));
        read.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a lane file's index cannot be read"))?;
        for of_table in entries.chunk_by(|a, b| a.table == b.table) {
            let live = shared.state.read().live(of_table[0].table);
            let live: HashMap<(Bucket, Lsn), Arc<Generation>> =
                live.into_iter().map(|g| ((g.bucket, g.first_lsn), g)).collect();
            for entry in of_table {
                if let Some(generation) = live.get(&(entry.bucket, entry.generation)) {
                    let generation = Arc::clone(generation);
                    self.items.push(Item::new(generation, Some(Box::new((Arc::clone(file), *entry)))));
                }
            }
        }
        Ok(())
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Writes all of it below `checkpoint` into a new lane file; none if nothing was left to write. A file that could not be
    /// finished is removed.
    ///
    /// # Errors
    /// [`MoveError`].
    pub fn write(
        mut self,
        lanes: &Lanes,
        identity: Identity,
        id: u64,
        checkpoint: Lsn,
        pace: &mut Pace<'_>,
    ) -> Result<Option<Moved>, MoveError> {
        self.items.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        self.items.dedup_by(|a, b| a.copy.is_none() && b.copy.is_none() && Arc::ptr_eq(&a.generation, &b.generation));
        let lane = lanes.choose(identity.shard, id);
        let path = lanes.path(identity.shard, lane, id).map_err(MoveError::Undone)?;
        let written = self.write_file(lanes, identity, (lane, id), &path, checkpoint, pace);
        match written {
            Ok(Some(moved)) => Ok(Some(moved)),
            failed => {
                // Half a file would keep the room that others need; what a crash leaves is removed at the next start.
                match lanes.fs().remove(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        tracing::debug!(path = %path.display(), %error, "a lane file that nobody needs was not removed");
                    }
                    _ => {}
                }
                match failed {
                    Err(MoveError::Undone(error)) if pace.sync_failed => Err(MoveError::Sync(error)),
                    failed => failed,
                }
            }
        }
    }

    fn write_file(
        self,
        lanes: &Lanes,
        identity: Identity,
        (lane, id): (u32, u64),
        path: &std::path::Path,
        checkpoint: Lsn,
        pace: &mut Pace<'_>,
    ) -> Result<Option<Moved>, MoveError> {
        let Identity { shard, node, incarnation } = identity;
        let file = lanes.fs().create(path).map_err(MoveError::Undone)?;
        let mut on_write = |bytes| pace.wrote(&*file, bytes);
        let header = lane_file::Header { shard, id, node, incarnation };
        let mut writer =
            LaneWriter::new(&*file, &header, DEFAULT_CHUNK_BYTES, &mut on_write).map_err(MoveError::Undone)?;
        let mut places = Vec::with_capacity(self.items.len());
        for Item { generation, copy, .. } in touched(self.items, |item| &item.generation) {
            let before = writer.extents();
            let from = match copy {
                None => {
                    writer.make_room(SHOWN_BYTES).map_err(MoveError::Undone)?;
                    let Generation { table, bucket, first_lsn, .. } = *generation;
                    let push = |slices: &[_]| writer.push(table, bucket, first_lsn, slices);
                    generation.with_memory_below(checkpoint, SHOWN_BYTES, push).map_err(MoveError::Undone)?;
                    None
                }
                Some(copy) => {
                    let (old, entry) = *copy;
                    let id = old.reference.id;
                    let bytes = old.read(entry.offset, entry.len, entry.crc);
                    let bytes = bytes.map_err(|e| MoveError::Unreadable(id, e))?;
                    writer.push_raw(entry, &bytes).map_err(MoveError::Undone)?;
                    Some((id, entry.offset))
                }
            };
            let added = writer.extents() - before;
            if added > 0 {
                places.push(Place { generation, count: added, from });
            }
        }
        if places.is_empty() {
            return Ok(None);
        }
        let written = writer.finish().map_err(MoveError::Undone)?;
        let reference = LaneFileRef {
            id,
            lane,
            index_at: written.index_at,
            index_len: written.index_len,
            index_crc: written.index_crc,
            extents: u32::try_from(written.entries.len()).map_err(|e| MoveError::Undone(io::Error::other(e)))?,
            bytes: written.bytes,
        };
        let file = Arc::new(LaneFile::new(reference, path.to_owned(), file));
        Ok(Some(Moved { file, entries: written.entries, places }))
    }
}

impl Moved {
    /// Lets readers find the rows in the lane file, and their memory go.
    ///
    /// MUST AFTER the barrier; and if the file is to count at the next start, after the edit.
    pub fn install(self) -> Arc<LaneFile> {
        let mut rest = self.entries.as_slice();
        for Place { generation, count, from } in touched(self.places, |place| &place.generation) {
            // Cut off here: a generation that was retired meanwhile takes none of its own.
            let (own, behind) = rest.split_at(count);
            rest = behind;
            let extents = own.iter().map(|e| Extent::new(&self.file, e));
            match from {
                None => generation.install(extents),
                Some((id, offset)) => generation.replace(extents.map(|e| (id, offset, e))),
            }
        }
        self.file
    }
}
