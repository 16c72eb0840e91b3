//! What has changed on a shard since a checkpoint took the last such set. The owner adds to it as it applies records, and gives it
//! away whole, in one turn, together with the LSN up to which it speaks. Vectors only: a map that grows moves all it has, and the
//! owner would stand still for that.

use std::sync::Arc;

use super::generation::{Generation, Sealed};
use crate::types::{Incarnation, Lsn, Mark, TableId};
use crate::wal::record::Define;

/// How far a table's sequences of one incarnation have come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SealProgress {
    /// Highest sequence that was sealed.
    pub sealed: u64,
    /// Highest sequence that Delta is known to hold.
    pub committed: u64,
}

/// What has changed, oldest first.
#[derive(Debug, Default)]
pub struct Dirty {
    /// Generations that got slices.
    pub generations: Vec<Arc<Generation>>,
    /// Generations that were sealed.
    pub seals: Vec<Sealed>,
    /// New definitions.
    pub defines: Vec<Define>,
    /// Marks of durable records.
    pub marks: Vec<(TableId, Mark, Lsn)>,
    /// Sequences that moved; of one table and incarnation the last one counts.
    pub progress: Vec<(TableId, Incarnation, SealProgress)>,
}

impl Dirty {
    /// Whether a checkpoint would have nothing to say.
    pub fn is_empty(&self) -> bool {
        // A mark comes with slices.
        self.generations.is_empty() && self.seals.is_empty() && self.defines.is_empty() && self.progress.is_empty()
    }
}
