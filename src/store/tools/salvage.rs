//! The rows of a shard that are intact, put together by the code that a start uses; and whether that is provably right.
//!
//! **The danger** is a Seal that was lost without a trace: rows that it closed would count as open, would be sealed anew under another
//! sequence, and would be in the lake twice if it has them already. So a stretch of which nothing is known is accepted only if no Seal
//! can have been in it: because it is too short for one, because no table had an open generation before it, or because each such
//! table's next Seal of the same start has the next sequence. Everything else is refused.
//!
//! A Commit that was lost is learnt again from the lake. Rows that were lost can be sent again: their stamps are lost with them.

use std::collections::HashMap;
use std::path::PathBuf;

use bytes::Bytes;

use super::walk::{self, Damage, End, Event, Part};
use crate::bucket::PARTS;
use crate::bucket::state::ShardState;
use crate::error::OpenError;
use crate::types::{Bucket, Incarnation, Lsn, TableId};
use crate::wal::frame;
use crate::wal::record::{Record, Seal};

/// What is lost of the log, in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostStretch {
    /// The segment.
    pub path: PathBuf,
    /// First damaged byte in it.
    pub offset: u64,
    /// First LSN concerned.
    pub from: Lsn,
    /// First LSN behind.
    pub to: Lsn,
    /// What was found.
    pub what: String,
    /// Records whose header is intact.
    pub records: Vec<LostRecord>,
    /// Stretches of which nothing is known: from, and first LSN behind.
    pub unknown: Vec<(Lsn, Lsn)>,
}

/// A record that is lost; `slices` as its damaged bytes read, which may be wrong or none at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRecord {
    /// Where it starts.
    pub lsn: Lsn,
    /// Bytes in the log.
    pub len: u32,
    /// The record's kind: `slices`, `seal`, `commit`, `define` or `unknown`.
    pub kind: &'static str,
    /// Table, bucket and rows of its slices.
    pub slices: Vec<(TableId, Bucket, u32)>,
}

/// What came of it.
#[derive(Debug)]
pub struct Salvaged {
    /// All that is intact.
    pub state: ShardState,
    /// Damage behind the checkpoint.
    pub stretches: Vec<LostStretch>,
    /// Where the log ends; what is kept of a torn group lies below.
    pub end: Lsn,
    /// Why it is not provably right to go on with this; empty if it is.
    pub refusals: Vec<String>,
    /// Whether nothing was wrong behind the checkpoint.
    pub is_sound: bool,
}

/// The name of a record's kind.
pub fn kind_name(kind: u8) -> &'static str {
    match kind {
        1 => "slices",
        2 => "seal",
        3 => "commit",
        4 => "define",
        _ => "unknown",
    }
}

/// A damaged stretch as it is reported.
pub fn stretch(damage: &Damage) -> LostStretch {
    let record = |lost: &walk::LostFrame| {
        let slices = match lost.guess() {
            Some(Record::Slices(rows)) => rows.slices.iter().map(|s| (s.table, s.bucket, s.rows)).collect(),
            _ => Vec::new(),
        };
        LostRecord { lsn: lost.header.lsn, len: lost.header.len, kind: kind_name(lost.header.kind), slices }
    };
    LostStretch {
        path: damage.path.clone(),
        offset: damage.offset,
        from: damage.from,
        to: damage.to,
        what: damage.what.clone(),
        records: damage.lost.iter().map(record).collect(),
        unknown: damage.unknown.clone(),
    }
}

/// So many zeros, in memory that all who ask share.
fn zeros(shared: &mut Bytes, len: usize) -> Bytes {
    if shared.len() < len {
        *shared = Bytes::from(vec![0; len.next_power_of_two()]);
    }
    shared.slice(..len)
}

/// What is to happen before a record is applied: making room in memory.
pub type Before<'a> = dyn FnMut(Lsn, &mut ShardState) -> Result<(), OpenError> + 'a;

/// Applies every intact record from `checkpoint` on to `state`. Without `payloads` they are replaced by zeros that
/// share their memory: for figures.
///
/// # Errors
/// An I/O error, a record of a newer build, or what `before` reports.
pub fn salvage(
    state: ShardState,
    parts: &[Part],
    checkpoint: Lsn,
    known_durable: Lsn,
    payloads: bool,
    before: &mut Before<'_>,
) -> Result<Salvaged, OpenError> {
    let mut work = Work {
        checkpoint,
        payloads,
        zeros: Bytes::new(),
        out: Salvaged { state, stretches: Vec::new(), end: checkpoint, refusals: Vec::new(), is_sound: true },
        pending: HashMap::new(),
        unknown: (Lsn(0), Incarnation(0)),
        holes: Vec::new(),
    };
    let end = walk::walk(parts, known_durable, &mut |event| work.take(event, before))?;
    Ok(work.finish(end))
}

/// What shows that no Seal of a table was lost.
#[derive(Clone, Copy)]
struct Pending {
    /// The next Seal has to have this sequence,
    next: u64,
    /// and there has to be one at or behind this LSN.
    until: Lsn,
}

struct Work {
    checkpoint: Lsn,
    payloads: bool,
    /// What all payloads share if they are not kept.
    zeros: Bytes,
    out: Salvaged,
    /// Tables of which a Seal may have been lost, by the start that would have written it.
    pending: HashMap<(TableId, Incarnation), Pending>,
    /// Where the last unknown stretch ends that may have had a Seal, and by which start it was written.
    unknown: (Lsn, Incarnation),
    /// What is lost, by LSN.
    holes: Vec<(Lsn, Lsn)>,
}

impl Work {
    fn take(&mut self, event: Event<'_>, before: &mut Before<'_>) -> Result<(), OpenError> {
        match event {
            Event::Damage(damage) if damage.to > self.checkpoint => self.damage(damage),
            Event::Record(_, lsn, _, record) if lsn >= self.checkpoint => {
                before(lsn, &mut self.out.state)?;
                self.record(lsn, record);
            }
            Event::InDoubt(_, lsn, header, record) if lsn >= self.checkpoint => self.in_doubt(lsn, header, record),
            _ => {}
        }
        Ok(())
    }

    fn damage(&mut self, damage: &Damage) {
        self.out.is_sound = false;
        self.out.stretches.push(stretch(damage));
        if !damage.loses {
            return;
        }
        self.holes.push((damage.from, damage.to));
        if !damage.may_hide_seal {
            return;
        }
        let until = damage.unknown.last().map_or(damage.to, |(_, to)| *to);
        self.unknown = (until, damage.incarnation);
        let summaries: Vec<_> = (0..PARTS)
            .flat_map(|part| self.out.state.unflushed_tables(part))
            .filter_map(|table| self.out.state.summary(table))
            .collect();
        for summary in summaries.iter().filter(|s| !s.open.is_empty()) {
            self.doubt(summary.table);
            if damage.may_be_older {
                self.refuse_seal(summary.table);
            }
        }
    }

    fn doubt(&mut self, table: TableId) {
        let (until, incarnation) = self.unknown;
        let next = self.out.state.progress(table, incarnation).sealed + 1;
        self.pending.entry((table, incarnation)).or_insert(Pending { next, until }).until = until;
    }

    fn in_doubt(&mut self, lsn: Lsn, header: &frame::Header, record: Record) {
        // As a start does: rows of a torn group whose definition was torn too are left out; nobody was told that they are kept.
        if let Record::Slices(rows) = &record
            && rows.slices.iter().any(|s| s.schema_version > self.out.state.schema_version(s.table))
        {
            return;
        }
        let end = lsn.0 + frame::padded_len(header.len as usize) as u64;
        self.out.end = self.out.end.max(Lsn(crate::wal::align_group(end)));
        self.record(lsn, record);
    }

    fn record(&mut self, lsn: Lsn, mut record: Record) {
        match &mut record {
            Record::Slices(rows) => {
                for slice in &mut rows.slices {
                    if lsn < self.unknown.0 {
                        self.doubt(slice.table);
                    }
                    if slice.schema_version > self.out.state.schema_version(slice.table) {
                        self.refuse(format!(
                            "LSN {lsn}: rows of table {} with schema version {}, whose definition is lost",
                            slice.table, slice.schema_version
                        ));
                    }
                    if !self.payloads {
                        slice.payload = zeros(&mut self.zeros, slice.payload.len());
                    }
                }
            }
            Record::Seal(seal) => self.seal(lsn, seal),
            Record::Commit(commit) => {
                let key = (commit.table, commit.incarnation);
                if self.pending.get(&key).is_some_and(|pending| commit.sequence >= pending.next) {
                    self.refuse_seal(commit.table);
                }
            }
            Record::Define(_) => {}
        }
        if let Err(contradiction) = self.out.state.apply(lsn, record) {
            self.refuse(format!("LSN {lsn}: {contradiction}"));
        }
    }

    /// The generation whose first record is lost goes by its first one that is left. Its members are the same.
    fn seal(&mut self, lsn: Lsn, seal: &mut Seal) {
        let key = (seal.table, seal.incarnation);
        if let Some(pending) = self.pending.get_mut(&key) {
            let expected = std::mem::replace(&mut pending.next, seal.sequence + 1);
            let settled = lsn >= pending.until;
            if expected != seal.sequence {
                self.refuse_seal(seal.table);
            }
            if settled {
                self.pending.remove(&key);
            }
        }
        let Some(open) = self.out.state.open_generation(seal.table, seal.bucket) else { return };
        let is_lost = self.holes.iter().any(|(from, to)| (*from..*to).contains(&seal.generation));
        if open.first_lsn > seal.generation && is_lost && seal.generation < lsn {
            seal.generation = open.first_lsn;
        }
    }

    fn refuse(&mut self, what: String) {
        const MOST: usize = 100;
        if self.out.refusals.len() < MOST && !self.out.refusals.contains(&what) {
            self.out.refusals.push(what);
        }
    }

    fn refuse_seal(&mut self, table: TableId) {
        self.refuse(format!(
            "a Seal of table {table} may have been lost: it cannot be told which of its open rows the lake has already"
        ));
    }

    fn finish(mut self, end: End) -> Salvaged {
        let left: Vec<TableId> = std::mem::take(&mut self.pending).into_keys().map(|(table, _)| table).collect();
        left.into_iter().for_each(|table| self.refuse_seal(table));
        if let Some(table) = self.out.state.undefined_table() {
            self.refuse(format!("rows of table {table} are left, but its definition is lost"));
        }
        if end.goes_on {
            self.refuse(format!("the log from LSN {} on is missing: the file that it goes on in; restore it", end.end));
            self.out.is_sound = false;
        }
        self.out.end = self.out.end.max(end.end);
        self.out
    }
}
