//! Keeping a replay within its memory: what does not fit goes into lane files, from which it is read like any checkpointed row. No
//! manifest names these files yet; the first checkpoint does, and until then the log has all of it.

use std::io;
use std::sync::Arc;

use crate::bucket::extent::LaneFile;
use crate::bucket::state::ShardState;
use crate::checkpoint::lanes::Lanes;
use crate::checkpoint::moving::{Identity, Load, MoveError};
use crate::checkpoint::pace::Pace;
use crate::checkpoint::trigger::Trigger;
use crate::types::Lsn;
use crate::wal::GROUP_ALIGN;

/// What one shard's replay has moved out of memory.
#[derive(Debug)]
pub struct Spill<'a> {
    lanes: &'a Lanes,
    identity: Identity,
    next_id: u64,
    budget: u64,
    /// `ShardState::bytes_applied` when memory was empty.
    emptied_at: u64,
    /// Page of the log that the last record was in.
    page: u64,
    /// What was moved; no manifest names it.
    files: Vec<Arc<LaneFile>>,
}

impl<'a> Spill<'a> {
    /// Nothing yet; rows may take `budget` bytes of memory.
    pub fn new(lanes: &'a Lanes, identity: Identity, next_id: u64, budget: u64) -> Self {
        // What is just being read, what is being written, and what the allocator keeps of it, comes on top.
        let budget = budget / 2;
        Self { lanes, identity, next_id, budget, emptied_at: 0, page: 0, files: Vec::new() }
    }

    /// Called before the record at `lsn` is applied.
    ///
    /// # Errors
    /// The I/O error; the start is refused, and nothing is lost.
    pub fn before(&mut self, lsn: Lsn, state: &mut ShardState) -> io::Result<()> {
        let page = lsn.0 / GROUP_ALIGN;
        let same_page = std::mem::replace(&mut self.page, page) == page;
        // Not within a page: extents are ordered by the pages that they begin in.
        if same_page || state.bytes_applied() - self.emptied_at < self.budget {
            return Ok(());
        }
        self.emptied_at = state.bytes_applied();
        let touched = state.touched();
        let trigger = Trigger::default();
        let mut pace = Pace::new(&trigger, None);
        let moved = match Load::new(touched.iter()).write(self.lanes, self.identity, self.next_id, lsn, &mut pace) {
            Ok(moved) => moved,
            // A node on a full disk has to start, because that is how the disk gets emptied.
            Err(MoveError::Undone(error)) if error.kind() == io::ErrorKind::StorageFull => {
                tracing::warn!(%error, "the log has more rows than the replay may keep in memory, and no lane has room");
                return Ok(());
            }
            Err(MoveError::Undone(error) | MoveError::Unreadable(_, error) | MoveError::Sync(error)) => {
                return Err(error);
            }
        };
        if let Some(moved) = moved {
            self.next_id += 1;
            // MUST BEFORE the barrier: a start that is refused because of it removes the file.
            self.files.push(Arc::clone(&moved.file));
            self.lanes.barrier(&[Arc::clone(&moved.file)])?;
            tracing::info!(
                shard = self.identity.shard,
                bytes = moved.file.reference.bytes,
                "the log has more rows than the replay may keep in memory; some were moved to a lane"
            );
            moved.install();
        }
        Ok(())
    }

    /// Bytes moved.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.reference.bytes).sum()
    }

    /// The files, in order.
    pub fn into_files(self) -> Vec<Arc<LaneFile>> {
        self.files
    }

    /// Removes the files of a start that is refused.
    pub fn discard(self) {
        for file in self.files {
            if let Err(error) = self.lanes.fs().remove(&file.path) {
                tracing::debug!(path = %file.path.display(), %error, "a lane file that nobody needs was not removed");
            }
        }
    }
}
