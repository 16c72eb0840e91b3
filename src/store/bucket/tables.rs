//! A shard's tables by id, in parts: a map that grows moves all its entries at once, and whoever reads all of them holds the lock
//! for all of them. By part, neither makes the owner wait longer the more tables there are (up to about ten million).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::dirty::SealProgress;
use super::generation::{Generation, Sealed};
use super::usage::TableUsage;
use crate::types::{Bucket, Incarnation, TableId};
use crate::wal::record::Define;

/// Parts of the map.
pub const PARTS: usize = 256;

/// Incarnations of a table whose progress is kept although Delta has all that they sealed.
const INCARNATIONS_KEPT: usize = 4;

/// One table of a shard.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) definition: Option<Define>,
    pub(super) open: BTreeMap<Bucket, Arc<Generation>>,
    /// In commit order, which is the order of their Seal records.
    pub(super) sealed: VecDeque<Sealed>,
    /// Shared with those who ask without the lock.
    pub(super) usage: Arc<TableUsage>,
    /// Oldest first.
    progress: Vec<(Incarnation, SealProgress)>,
}

/// What is remembered of the starts that sealed rows of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SealHistory {
    /// How far each start's sequences came, oldest first.
    pub starts: Vec<(Incarnation, SealProgress)>,
    /// Whether no start is missing: older ones are forgotten once Delta has all that they sealed.
    pub complete: bool,
}

#[derive(Debug)]
pub(super) struct Tables {
    parts: Vec<HashMap<TableId, Table, BuildHasherDefault<IdHasher>>>,
}

/// Table ids are random and made by us: their own bits are the hash. A keyed one is a tenth of what applying a small record takes.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            // Multiplied, so that the bits that chose shard and part are not those that choose the place.
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| HashMap::default()).collect() }
    }
}

/// The id is random; its low half chooses the shard, so the part goes by its high one.
fn part_of(table: TableId) -> usize {
    (table.0.as_u128() >> 120) as usize % PARTS
}

impl Tables {
    pub(super) fn get(&self, table: TableId) -> Option<&Table> {
        self.parts[part_of(table)].get(&table)
    }

    pub(super) fn entry(&mut self, table: TableId) -> &mut Table {
        self.parts[part_of(table)].entry(table).or_default()
    }

    pub(super) fn part(&self, part: usize) -> impl Iterator<Item = (TableId, &Table)> {
        self.parts[part].iter().map(|(id, table)| (*id, table))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TableId, &Table)> {
        (0..PARTS).flat_map(|part| self.part(part))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (TableId, &mut Table)> {
        self.parts.iter_mut().flat_map(HashMap::iter_mut).map(|(id, table)| (*id, table))
    }
}

impl Table {
    /// All generations: the sealed ones in commit order, then the open ones.
    pub(super) fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        self.sealed.iter().map(|s| &s.generation).chain(self.open.values())
    }

    /// Whether nothing of it waits for Delta.
    pub(super) fn is_flushed(&self) -> bool {
        self.open.is_empty() && self.sealed.is_empty()
    }

    /// How far the table's sequences of an incarnation are.
    pub(super) fn progress(&self, incarnation: Incarnation) -> SealProgress {
        self.progress.iter().find(|(i, _)| *i == incarnation).map_or_else(SealProgress::default, |(_, p)| *p)
    }

    /// Notes that sequences of an incarnation have come as far as `to`, and answers how far they are.
    pub(super) fn advance(&mut self, incarnation: Incarnation, to: SealProgress) -> SealProgress {
        if let Some((_, known)) = self.progress.iter_mut().find(|(i, _)| *i == incarnation) {
            known.sealed = known.sealed.max(to.sealed);
            known.committed = known.committed.max(to.committed);
            return *known;
        }
        if self.progress.len() >= INCARNATIONS_KEPT {
            // Commits go in seal order: what lies before the newest start that has committed is in Delta, all of it. From that one
            // on nothing is forgotten, or a directory that was restored, and may commit nothing, would after some starts no
            // longer know where its seals had ended.
            let settled = self.progress.iter().rposition(|(_, p)| p.committed > 0).unwrap_or(0);
            let needed = |i: Incarnation| self.sealed.iter().any(|s| s.seal.incarnation == i);
            if let Some(unneeded) = self.progress[..settled].iter().position(|(i, _)| !needed(*i)) {
                self.progress.remove(unneeded);
            }
        }
        self.progress.push((incarnation, to));
        to
    }

    /// All of it.
    pub(super) fn all_progress(&self) -> &[(Incarnation, SealProgress)] {
        &self.progress
    }

    /// The same, and whether it is all there ever was.
    pub(super) fn seal_history(&self) -> SealHistory {
        SealHistory { starts: self.progress.clone(), complete: self.progress.len() < INCARNATIONS_KEPT }
    }
}
