//! A shard's tables. The owner thread applies records in LSN order, at run time and at recovery by the same code, so that both
//! reach the same grouping.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::generation::{Generation, SealInfo, Sealed};
use super::view::{GenerationView, TableView};
use crate::types::{Bucket, Lsn, SliceInput, TableId};
use crate::wal::record::{Commit, Define, Record, Seal};

/// One table of a shard.
#[derive(Debug, Default)]
struct Table {
    definition: Option<(Lsn, Define)>,
    open: BTreeMap<Bucket, Arc<Generation>>,
    /// In commit order, which is the order of their Seal records.
    sealed: VecDeque<Sealed>,
}

/// Everything durable and unflushed on one shard.
#[derive(Debug, Default)]
pub struct ShardState {
    /// Where the log begins that this is read from: records below were no longer needed.
    log_start: Lsn,
    tables: HashMap<TableId, Table>,
    /// First LSNs of all live generations and how many share each (one record may open several): the lowest one is what the log
    /// is still needed from.
    live: BTreeMap<Lsn, u32>,
    /// Where each table's newest definition lies.
    definitions: BTreeMap<Lsn, TableId>,
    unflushed_rows: u64,
    unflushed_bytes: u64,
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

impl ShardState {
    /// Nothing yet, of a log that begins at `log_start`.
    pub fn new(log_start: Lsn) -> Self {
        Self { log_start, ..Self::default() }
    }

    /// Applies one durable record that starts at `lsn`.
    ///
    /// # Errors
    /// If the record contradicts earlier ones; at recovery that is corruption.
    pub fn apply(&mut self, lsn: Lsn, record: Record) -> Result<Applied, ApplyError> {
        match record {
            Record::Slices(slices) => {
                for slice in slices {
                    self.push(lsn, slice);
                }
            }
            Record::Seal(seal) => return self.seal(lsn, &seal),
            Record::Commit(commit) => self.commit(&commit),
            Record::Define(define) => self.define(lsn, define),
        }
        Ok(Applied::Done)
    }

    fn push(&mut self, lsn: Lsn, slice: SliceInput) {
        let table_id = slice.table;
        let table = self.tables.entry(table_id).or_default();
        let bucket = slice.bucket;
        let generation = match table.open.entry(bucket) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                *self.live.entry(lsn).or_default() += 1;
                entry.insert(Arc::new(Generation::new(table_id, bucket, lsn)))
            }
        };
        self.unflushed_rows += u64::from(slice.rows);
        self.unflushed_bytes += slice.payload.len() as u64;
        generation.push(lsn, slice);
    }

    fn seal(&mut self, lsn: Lsn, seal: &Seal) -> Result<Applied, ApplyError> {
        let Some(table) = self.tables.get_mut(&seal.table) else { return Ok(Applied::Done) };
        // Its rows were flushed and their segments recycled: nothing is left to seal.
        let Some(generation) = table.open.get(&seal.bucket) else { return Ok(Applied::Done) };
        // A generation whose first segments were recycled is known by a later record than its name says; that name then lies below
        // the log's start. Anything else means that the rows are not those that were sealed.
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
        Ok(Applied::Sealed(sealed))
    }

    fn commit(&mut self, commit: &Commit) {
        let Some(table) = self.tables.get_mut(&commit.table) else { return };
        let mut kept = VecDeque::with_capacity(table.sealed.len());
        let mut gone = Vec::new();
        for sealed in table.sealed.drain(..) {
            let covered = sealed.seal.incarnation == commit.incarnation && sealed.seal.sequence <= commit.sequence;
            if covered { gone.push(sealed) } else { kept.push_back(sealed) }
        }
        table.sealed = kept;
        for sealed in gone {
            self.retire(&sealed.generation);
        }
    }

    fn retire(&mut self, generation: &Generation) {
        let totals = generation.totals();
        self.unflushed_rows -= totals.rows;
        self.unflushed_bytes -= totals.bytes;
        if let Entry::Occupied(mut count) = self.live.entry(generation.first_lsn) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn define(&mut self, lsn: Lsn, define: Define) {
        let table_id = define.table;
        let table = self.tables.entry(table_id).or_default();
        let newer = table.definition.as_ref().is_none_or(|(_, old)| old.schema_version <= define.schema_version);
        if newer {
            if let Some((old, _)) = table.definition.replace((lsn, define)) {
                self.definitions.remove(&old);
            }
            self.definitions.insert(lsn, table_id);
        }
    }

    /// The lowest LSN that a generation still needs; none if all rows are flushed.
    pub fn needed_from(&self) -> Option<Lsn> {
        self.live.first_key_value().map(|(lsn, _)| *lsn)
    }

    /// Definitions that lie below `lsn`, and would go with the segments below it.
    pub fn definitions_below(&self, lsn: Lsn) -> Vec<Define> {
        self.definitions
            .range(..lsn)
            .filter_map(|(_, id)| self.tables.get(id)?.definition.as_ref())
            .map(|(_, define)| define.clone())
            .collect()
    }

    /// A table that has rows and no definition, once a log has been read to its end. Not before: a definition that was carried
    /// forward lies behind rows that are older than it.
    pub fn undefined_table(&self) -> Option<TableId> {
        let undefined = |t: &Table| t.definition.is_none() && !(t.open.is_empty() && t.sealed.is_empty());
        self.tables.iter().find(|(_, t)| undefined(t)).map(|(id, _)| *id)
    }

    /// All definitions.
    pub fn definitions(&self) -> impl Iterator<Item = &Define> {
        self.tables.values().filter_map(|t| t.definition.as_ref()).map(|(_, define)| define)
    }

    /// The open generation of a bucket.
    pub fn open_generation(&self, table: TableId, bucket: Bucket) -> Option<&Arc<Generation>> {
        self.tables.get(&table)?.open.get(&bucket)
    }

    /// Rows and payload bytes that are not known to be in Delta.
    pub fn unflushed(&self) -> (u64, u64) {
        (self.unflushed_rows, self.unflushed_bytes)
    }

    /// Pins one table's generations.
    pub fn view(&self, table: TableId) -> TableView {
        let generations = self.tables.get(&table).map_or_else(Vec::new, |t| {
            t.sealed.iter().map(|s| &s.generation).chain(t.open.values()).map(GenerationView::new).collect()
        });
        TableView { table, generations }
    }

    /// The tables that have unflushed rows.
    pub fn summaries(&self) -> Vec<TableSummary> {
        self.tables
            .iter()
            .filter(|(_, t)| !t.open.is_empty() || !t.sealed.is_empty())
            .map(|(id, t)| TableSummary {
                table: *id,
                open: t.open.values().cloned().collect(),
                sealed: t.sealed.iter().cloned().collect(),
            })
            .collect()
    }
}
