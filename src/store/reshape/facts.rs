//! What the old shards know, sorted by the shard that each table will live on.

use std::sync::Arc;

use super::ReshapeError;
use crate::bucket::generation::Generation;
use crate::bucket::keys::Keys;
use crate::bucket::producer::ProducerWindow;
use crate::bucket::state::{MarkLimits, ShardState};
use crate::bucket::{Facts, PARTS};
use crate::checkpoint::edit::{Counter, Edit, LaneFileRef, Part};
use crate::shard;
use crate::types::Lsn;

/// Bytes of an edit from which on the next one begins.
const EDIT_BYTES: usize = 8 << 20;
/// About the bytes of one item in an edit.
const ITEM_BYTES: usize = 64;
/// Bytes of one sequence that was seen of a producer.
const SEEN_BYTES: usize = 32;

/// What a shard has, for the comparison between what was to be written and what a start reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// Tables that are defined.
    pub tables: u64,
    /// Live generations.
    pub generations: u64,
    /// Their rows.
    pub rows: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Producers that are remembered.
    pub producers: u64,
    /// Keys that are remembered.
    pub keys: u64,
}

impl Contents {
    /// What a state has.
    pub fn of(state: &ShardState) -> Self {
        let (rows, bytes) = state.unflushed();
        Self {
            tables: state.definitions().count() as u64,
            generations: state.generations().count() as u64,
            rows,
            bytes,
            producers: state.producers().len() as u64,
            keys: state.keys().len() as u64,
        }
    }

    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.tables += other.tables;
        self.generations += other.generations;
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.producers += other.producers;
        self.keys += other.keys;
    }
}

/// What one new shard gets.
#[derive(Debug)]
pub(super) struct Share {
    /// What it will have.
    pub contents: Contents,
    /// Its generations, sorted: tables together.
    pub generations: Vec<Arc<Generation>>,
    edits: Vec<Edit>,
    /// About the bytes of the last edit.
    bytes: usize,
}

impl Share {
    fn new() -> Self {
        Self { contents: Contents::default(), generations: Vec::new(), edits: vec![Edit::default()], bytes: 0 }
    }

    /// The edit that has room for another item of so many bytes.
    fn room_for(&mut self, bytes: usize) -> &mut Edit {
        if self.bytes >= EDIT_BYTES {
            self.edits.push(Edit::default());
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.edits.last_mut().expect("should have an edit")
    }

    /// The snapshot of a shard whose log begins, empty, at `base`, with what is in these lane files.
    pub fn into_edits(self, base: Lsn, next_lane_file: u64, files: Vec<LaneFileRef>) -> Vec<Edit> {
        let mut edits = self.edits;
        for (sequence, edit) in (1..).zip(&mut edits) {
            edit.sequence = sequence;
            edit.part = if sequence == 1 { Part::SnapshotBegin } else { Part::SnapshotMore };
            (edit.checkpoint, edit.segment, edit.next_lane_file) = (base, base, next_lane_file);
        }
        edits[0].added = files;
        edits
    }
}

/// Sorts all that the states know. Everything in them lies below `base`.
///
/// # Errors
/// More producers on a new shard than it may remember: those that had to be forgotten could repeat what they sent, and it would be
/// taken twice. (Of keys the newest are remembered, as always.)
pub(super) fn sort(
    states: &[ShardState],
    shards: u32,
    base: Lsn,
    limits: MarkLimits,
) -> Result<Vec<Share>, ReshapeError> {
    let mut shares: Vec<Share> = (0..shards).map(|_| Share::new()).collect();
    for state in states {
        for part in 0..PARTS {
            let Facts { defines, generations, progress } = state.facts(part, base);
            for define in defines {
                let share = &mut shares[shard::of(define.table, shards) as usize];
                share.contents.tables += 1;
                share.room_for(ITEM_BYTES + define.body.len()).defines.push(define);
            }
            for fact in generations {
                let share = &mut shares[shard::of(fact.table, shards) as usize];
                share.room_for(ITEM_BYTES).generations.push(fact);
            }
            for (table, incarnation, p) in progress {
                let counter = Counter { table, incarnation, sealed: p.sealed, committed: p.committed };
                shares[shard::of(table, shards) as usize].room_for(ITEM_BYTES).counters.push(counter);
            }
        }
        for generation in state.generations() {
            let share = &mut shares[shard::of(generation.table, shards) as usize];
            let totals = generation.totals();
            share.contents.generations += 1;
            share.contents.rows += totals.rows;
            share.contents.bytes += totals.bytes;
            share.generations.push(Arc::clone(generation));
        }
        for (table, producer, epoch, window) in state.producers().entries() {
            let share = &mut shares[shard::of(table, shards) as usize];
            share.contents.producers += 1;
            let window = ProducerWindow::new(table, producer, epoch, window);
            share.room_for(ITEM_BYTES + SEEN_BYTES * window.seen.len()).producers.push(window);
        }
    }
    sort_keys(states, &mut shares, limits);
    let most_producers = limits.producers.max;
    for (number, share) in shares.iter_mut().enumerate() {
        if share.contents.producers > most_producers as u64 {
            return Err(ReshapeError::Refused(format!(
                "shard {number} would have to remember {} producers, and may remember {most_producers}; choose more shards, or \
                 let it remember more",
                share.contents.producers
            )));
        }
        share.generations.sort_unstable_by_key(|g| (g.table, g.bucket, g.first_lsn));
    }
    Ok(shares)
}

/// The keys that each new shard will remember, as it does it by itself.
fn sort_keys(states: &[ShardState], shares: &mut [Share], limits: MarkLimits) {
    let shards = u32::try_from(shares.len()).expect("should be at most MAX_SHARDS");
    let mut keys: Vec<Keys> = shares.iter().map(|_| Keys::new(limits.keys)).collect();
    let all = states.iter().map(ShardState::keys).flat_map(|known| (0..known.parts()).flat_map(|n| known.part(n)));
    all.for_each(|fact| keys[shard::of(fact.table, shards) as usize].record(fact));
    for (share, keys) in shares.iter_mut().zip(keys) {
        share.contents.keys += keys.len() as u64;
        for fact in (0..keys.parts()).flat_map(|part| keys.part(part)) {
            share.room_for(ITEM_BYTES).keys.push(fact);
        }
    }
}
