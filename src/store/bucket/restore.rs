//! A shard's tables as its manifest describes them, before the log is replayed on top; and the other way round, for a snapshot.

use std::sync::Arc;

use super::dirty::SealProgress;
use super::generation::{Generation, SealInfo, Sealed};
use super::keys::KeyFact;
use super::producer::ProducerWindow;
use super::state::ShardState;
use crate::types::{Bucket, Incarnation, Lsn, TableId};
use crate::wal::record::Define;

/// What a snapshot says of one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerationFact {
    /// The table.
    pub table: TableId,
    /// The bucket.
    pub bucket: Bucket,
    /// LSN of its first record.
    pub generation: Lsn,
    /// Its place, if it is sealed.
    pub seal: Option<SealInfo>,
}

/// What a snapshot says of some of a shard's tables.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Newest definitions.
    pub defines: Vec<Define>,
    /// Live generations.
    pub generations: Vec<GenerationFact>,
    /// How far sequences are.
    pub progress: Vec<(TableId, Incarnation, SealProgress)>,
}

impl ShardState {
    /// The facts of one of the parts, as of `checkpoint`: what has its first record behind it is not there, what was sealed behind
    /// it is open. Definitions, sequences and the end of a generation may run ahead of it: the log that is replayed says them
    /// again, to no effect.
    pub(crate) fn facts(&self, part: usize, checkpoint: Lsn) -> Facts {
        let mut facts = Facts::default();
        for (table, t) in self.tables.part(part) {
            facts.defines.extend(t.definition.clone());
            facts.progress.extend(t.all_progress().iter().map(|(i, p)| (table, *i, *p)));
            let below = t.generations().filter(|g| g.first_lsn < checkpoint);
            facts.generations.extend(below.map(|g| GenerationFact {
                table,
                bucket: g.bucket,
                generation: g.first_lsn,
                seal: g.seal().filter(|s| s.lsn < checkpoint),
            }));
        }
        facts
    }

    pub(crate) fn restore_define(&mut self, define: Define) {
        let table = self.tables.entry(define.table);
        if table.definition.as_ref().is_none_or(|old| old.schema_version <= define.schema_version) {
            table.definition = Some(define);
        }
    }

    pub(crate) fn restore_progress(&mut self, table: TableId, incarnation: Incarnation, progress: SealProgress) {
        self.tables.entry(table).advance(incarnation, progress);
    }

    pub(crate) fn restore_producer(&mut self, window: &ProducerWindow) {
        self.producers.restore(window);
    }

    pub(crate) fn restore_key(&mut self, fact: KeyFact) {
        self.keys.record(fact);
    }

    /// The open generation of this name; made if the bucket has none. None if the bucket's open generation is another one.
    pub(crate) fn restore_open(&mut self, table: TableId, bucket: Bucket, generation: Lsn) -> Option<Arc<Generation>> {
        let open = &mut self.tables.entry(table).open;
        let found = open.entry(bucket).or_insert_with(|| Arc::new(Generation::new(table, bucket, generation)));
        (found.first_lsn == generation).then(|| Arc::clone(found))
    }

    /// Adds sealed generations, and counts everything that was restored.
    pub(crate) fn finish_restore(&mut self, sealed: impl IntoIterator<Item = Sealed>) {
        for sealed in sealed {
            sealed.generation.close(sealed.seal);
            self.tables.entry(sealed.generation.table).sealed.push_back(sealed);
        }
        let (mut rows, mut bytes, mut held) = (0, 0, 0);
        for (_, table) in self.tables.iter_mut() {
            table.sealed.make_contiguous().sort_by_key(|s| s.seal.lsn);
            let (mut of_rows, mut of_bytes, mut of_held) = (0, 0, 0);
            for totals in table.generations().map(|g| g.totals()) {
                of_rows += totals.rows;
                of_bytes += totals.bytes;
                of_held += totals.held();
            }
            table.usage.set(of_rows, of_bytes, of_held);
            rows += of_rows;
            bytes += of_bytes;
            held += of_held;
        }
        self.unflushed_rows = rows;
        self.unflushed_bytes = bytes;
        self.held_bytes = held;
    }

    /// The live generations of one table, by what a lane file calls them.
    pub(crate) fn live(&self, table: TableId) -> Vec<Arc<Generation>> {
        self.tables.get(table).map_or_else(Vec::new, |t| t.generations().cloned().collect())
    }
}
