//! A shard's tables. The owner thread applies records in LSN order, at run time and at recovery by the same code, so that both
//! reach the same grouping.

use std::collections::VecDeque;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use super::dirty::{Dirty, SealProgress};
use super::generation::{GENERATION_OVERHEAD, Generation, SLICE_OVERHEAD, SealInfo, Sealed};
use super::keys::{KeyFact, KeyLimits, Keys};
use super::producer::{ProducerLimits, Producers, Seen, Verdict};
use super::tables::{PARTS, SealHistory, Tables};
use super::usage::TableUsage;
use super::view::{GenerationView, TableView};
use crate::types::{Bucket, Incarnation, Lsn, Mark, PostId, SliceInput, TableId};
use crate::wal::record::{Commit, Define, Record, Seal};

/// Everything durable and unflushed on one shard.
#[derive(Debug)]
pub struct ShardState {
    /// Where the log begins that this is read from: what lies below is in `restored` generations, or was no longer needed.
    log_start: Lsn,
    pub(super) tables: Tables,
    pub(super) producers: Producers,
    pub(super) keys: Keys,
    dirty: Dirty,
    /// Counts the swaps of `dirty`, from 1, so that a generation knows whether it is in the present set.
    swaps: u32,
    pub(super) unflushed_rows: u64,
    pub(super) unflushed_bytes: u64,
    /// What those rows take in memory; see `Totals::held`.
    pub(super) held_bytes: u64,
    /// Payload bytes that commits took away since this was made.
    flushed_bytes: u64,
    /// Memory that the slices applied since this was made took, moved or not.
    bytes_applied: u64,
}

/// How much is remembered to know repeats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MarkLimits {
    /// Of producers.
    pub producers: ProducerLimits,
    /// Of keys.
    pub keys: KeyLimits,
}

/// A record that contradicts what the log said before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// A seal of other rows than the open ones.
    #[error("a seal of table {table} names generation {named}, but the bucket's open generation is {open}")]
    WrongGeneration {
        /// The table.
        table: TableId,
        /// The generation that the seal names.
        named: Lsn,
        /// The generation that is open.
        open: Lsn,
    },
}

/// What applying a record brought about.
#[derive(Debug)]
pub enum Applied {
    /// Nothing to tell.
    Done,
    /// The generation that the record sealed.
    Sealed(Sealed),
}

/// What is known of one table's unflushed rows.
#[derive(Debug, Clone)]
pub struct TableSummary {
    /// The table.
    pub table: TableId,
    /// Open generations, by bucket.
    pub open: Vec<Arc<Generation>>,
    /// Sealed generations, in commit order.
    pub sealed: Vec<Sealed>,
}

impl Default for ShardState {
    fn default() -> Self {
        Self::new(Lsn(0))
    }
}

impl ShardState {
    /// Nothing yet, of a log that is read from `log_start` on.
    pub fn new(log_start: Lsn) -> Self {
        Self {
            log_start,
            tables: Tables::default(),
            producers: Producers::new(ProducerLimits::default(), Instant::now()),
            keys: Keys::new(KeyLimits::default()),
            dirty: Dirty::default(),
            swaps: 1,
            unflushed_rows: 0,
            unflushed_bytes: 0,
            held_bytes: 0,
            flushed_bytes: 0,
            bytes_applied: 0,
        }
    }

    /// Applies one durable record that starts at `lsn`.
    ///
    /// # Errors
    /// If the record contradicts earlier ones; at recovery that is corruption.
    pub fn apply(&mut self, lsn: Lsn, record: Record) -> Result<Applied, ApplyError> {
        match record {
            Record::Slices(rows) => {
                if let (Some(mark), Some(first)) = (rows.mark, rows.slices.first()) {
                    self.remember(first.table, mark, lsn);
                    self.dirty.marks.push((first.table, mark, lsn));
                }
                for slice in rows.slices {
                    self.push(lsn, slice);
                }
            }
            Record::Seal(seal) => return self.seal(lsn, &seal),
            Record::Commit(commit) => self.commit(&commit),
            Record::Define(define) => self.define(define),
        }
        Ok(Applied::Done)
    }

    /// Looks once at what applying `records` will need. With a million open pairs all of it comes from main memory: looked up step by
    /// step for all records, the processor waits for many at once; applied one by one, for each step of each.
    pub fn touch<'a>(&self, records: impl Iterator<Item = &'a Record>) {
        let slices = records.flat_map(|record| match record {
            Record::Slices(rows) => rows.slices.as_slice(),
            _ => &[],
        });
        let tables: Vec<_> = slices.filter_map(|s| Some((self.tables.get(s.table)?, s.bucket))).collect();
        let generations: Vec<_> = tables.iter().filter_map(|(table, bucket)| table.open.get(bucket)).collect();
        Generation::touch(generations.into_iter().map(|g| &**g));
    }

    /// Notes a durable record as one whose repeats are known.
    pub(crate) fn remember(&mut self, table: TableId, mark: Mark, lsn: Lsn) {
        let record = Seen { lsn, note: mark.note };
        match mark.id {
            PostId::Sequence(stamp) => drop(self.producers.record(table, stamp, record, Instant::now())),
            PostId::Key(key) => self.keys.record(KeyFact { table, key, record, at: mark.at }),
        }
    }

    fn push(&mut self, lsn: Lsn, slice: SliceInput) {
        let table_id = slice.table;
        let table = self.tables.entry(table_id);
        let bucket = slice.bucket;
        let bytes = slice.payload.len() as u64;
        let mut held = bytes + SLICE_OVERHEAD;
        self.bytes_applied += held;
        let generation = match table.open.entry(bucket) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                held += GENERATION_OVERHEAD;
                entry.insert(Arc::new(Generation::new(table_id, bucket, lsn)))
            }
        };
        self.unflushed_rows += u64::from(slice.rows);
        self.unflushed_bytes += bytes;
        self.held_bytes += held;
        table.usage.add(u64::from(slice.rows), bytes, held);
        if generation.push(lsn, slice, self.swaps) {
            self.dirty.generations.push(Arc::clone(generation));
        }
    }

    fn seal(&mut self, lsn: Lsn, seal: &Seal) -> Result<Applied, ApplyError> {
        let table = self.tables.entry(seal.table);
        let progress = table.advance(seal.incarnation, SealProgress { sealed: seal.sequence, committed: 0 });
        self.dirty.progress.push((seal.table, seal.incarnation, progress));
        // Its rows were flushed and their segments recycled: nothing is left to seal.
        let Some(generation) = table.open.get(&seal.bucket) else { return Ok(Applied::Done) };
        // Slices that were in Delta when a checkpoint came are in neither lane file nor log. What is left of their generation is known
        // by a later record than its name says; that name then lies below the log's start. Anything else means that the rows are not
        // those that were sealed.
        let cut_off = seal.generation < self.log_start && generation.first_lsn >= self.log_start;
        if generation.first_lsn != seal.generation && !cut_off {
            return Err(ApplyError::WrongGeneration {
                table: seal.table,
                named: seal.generation,
                open: generation.first_lsn,
            });
        }
        let generation = table.open.remove(&seal.bucket).expect("should be the generation just looked at");
        let info = SealInfo { incarnation: seal.incarnation, sequence: seal.sequence, lsn };
        generation.close(info);
        let sealed = Sealed { generation, seal: info };
        table.sealed.push_back(sealed.clone());
        self.dirty.seals.push(sealed.clone());
        Ok(Applied::Sealed(sealed))
    }

    fn commit(&mut self, commit: &Commit) {
        let table = self.tables.entry(commit.table);
        let progress =
            table.advance(commit.incarnation, SealProgress { sealed: commit.sequence, committed: commit.sequence });
        self.dirty.progress.push((commit.table, commit.incarnation, progress));
        let covered = |s: &Sealed| s.seal.incarnation == commit.incarnation && s.seal.sequence <= commit.sequence;
        let (gone, kept) = std::mem::take(&mut table.sealed).into_iter().partition(covered);
        table.sealed = kept;
        let gone: VecDeque<Sealed> = gone;
        for sealed in gone {
            let totals = sealed.generation.totals();
            self.unflushed_rows -= totals.rows;
            self.unflushed_bytes -= totals.bytes;
            self.held_bytes -= totals.held();
            self.flushed_bytes += totals.bytes;
            table.usage.remove(totals.rows, totals.bytes, totals.held());
            sealed.generation.retire();
        }
    }

    fn define(&mut self, define: Define) {
        let table = self.tables.entry(define.table);
        let newer = table.definition.as_ref().is_none_or(|old| old.schema_version <= define.schema_version);
        if newer {
            self.dirty.defines.push(define.clone());
            table.definition = Some(define);
        }
    }

    /// Where the log is read from.
    pub(crate) fn set_log_start(&mut self, lsn: Lsn) {
        self.log_start = lsn;
    }

    /// Gives away what has changed since the last time. O(1): the owner calls it between two groups.
    pub(crate) fn take_dirty(&mut self) -> Dirty {
        self.swaps = self.swaps.wrapping_add(1);
        std::mem::take(&mut self.dirty)
    }

    /// The generations that got slices since the last time.
    pub(crate) fn touched(&self) -> Vec<Arc<Generation>> {
        self.dirty.generations.clone()
    }

    /// Whether anything has changed since the last time.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Memory that the slices applied since this was made took, bytes; what is in memory is at most this without what was moved.
    pub(crate) fn bytes_applied(&self) -> u64 {
        self.bytes_applied
    }

    /// A table that has rows and no definition, once a log has been read to its end.
    pub fn undefined_table(&self) -> Option<TableId> {
        let undefined =
            |t: &super::tables::Table| t.definition.is_none() && !(t.open.is_empty() && t.sealed.is_empty());
        self.tables.iter().find(|(_, t)| undefined(t)).map(|(id, _)| id)
    }

    /// All definitions.
    pub fn definitions(&self) -> impl Iterator<Item = &Define> {
        self.tables.iter().filter_map(|(_, t)| t.definition.as_ref())
    }

    /// The newest schema version of a table; 0 if it is not known.
    pub fn schema_version(&self, table: TableId) -> u32 {
        self.tables.get(table).and_then(|t| t.definition.as_ref()).map_or(0, |d| d.schema_version)
    }

    /// How far a table's sequences of an incarnation are.
    pub fn progress(&self, table: TableId, incarnation: Incarnation) -> SealProgress {
        self.tables.get(table).map_or_else(SealProgress::default, |t| t.progress(incarnation))
    }

    /// What is remembered of the starts that sealed rows of a table.
    pub fn seal_history(&self, table: TableId) -> SealHistory {
        let unknown = || SealHistory { starts: Vec::new(), complete: true };
        self.tables.get(table).map_or_else(unknown, super::tables::Table::seal_history)
    }

    /// Which stamped records are durable.
    pub fn producers(&self) -> &Producers {
        &self.producers
    }

    /// Which records with a key are durable.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// What is known of an identity, from records that are durable; `at` in seconds since the epoch.
    pub fn check(&self, table: TableId, id: PostId, at: u32) -> Verdict {
        match id {
            PostId::Sequence(stamp) => self.producers.check(table, stamp, Instant::now()),
            PostId::Key(key) => self.keys.check(table, key, at),
        }
    }

    /// Sets how much is remembered to know repeats. Before anything is restored or applied.
    pub(crate) fn limit_marks(&mut self, limits: MarkLimits) {
        self.producers = Producers::new(limits.producers, Instant::now());
        self.keys = Keys::new(limits.keys);
    }

    /// The open generation of a bucket.
    pub fn open_generation(&self, table: TableId, bucket: Bucket) -> Option<&Arc<Generation>> {
        self.tables.get(table)?.open.get(&bucket)
    }

    /// Rows and payload bytes that are not known to be in Delta.
    pub fn unflushed(&self) -> (u64, u64) {
        (self.unflushed_rows, self.unflushed_bytes)
    }

    /// What they take in memory, with slices and generations.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Payload bytes that are known to be in Delta since this was made.
    pub fn flushed_bytes(&self) -> u64 {
        self.flushed_bytes
    }

    /// A table's figures, kept up for as long as the table is known; none before its first record.
    pub fn usage(&self, table: TableId) -> Option<Arc<TableUsage>> {
        self.tables.get(table).map(|t| Arc::clone(&t.usage))
    }

    /// Pins one table's generations.
    pub fn view(&self, table: TableId) -> TableView {
        let generations =
            self.tables.get(table).map_or_else(Vec::new, |t| t.generations().map(GenerationView::new).collect());
        TableView { table, generations }
    }

    /// The tables of one of [`PARTS`] parts that have unflushed rows. By part, so that the owner never waits for all of them.
    pub fn unflushed_tables(&self, part: usize) -> Vec<TableId> {
        self.tables.part(part).filter(|(_, t)| !t.is_flushed()).map(|(table, _)| table).collect()
    }

    /// A table's unflushed generations; none if it has none.
    pub fn summary(&self, table: TableId) -> Option<TableSummary> {
        let t = self.tables.get(table).filter(|t| !t.is_flushed())?;
        let (open, sealed) = (t.open.values().cloned().collect(), t.sealed.iter().cloned().collect());
        Some(TableSummary { table, open, sealed })
    }

    /// All generations there are.
    pub fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        (0..PARTS).flat_map(|part| self.tables.part(part)).flat_map(|(_, t)| t.generations())
    }
}
