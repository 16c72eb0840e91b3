//! From what callers asked to the records of one group.
//!
//! What a staged record will change (a definition known, a seal sequence used) is kept beside the group until the group is durable:
//! a group that is refused for want of space leaves no trace, or later rows would be taken for defined by a record that the log
//! does not have.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use super::group;
use super::marks::{Judged, Marks};
use super::queue::{Answer, Appended, Request};
use super::record::{Encoded, Record, Seal};
use crate::bucket::Sealed;
use crate::bucket::state::{Applied, ShardState};
use crate::error::AppendError;
use crate::types::{Bucket, Incarnation, Lsn, TableId};

/// A record on its way into the log.
#[derive(Debug)]
pub struct Staged {
    /// What is said.
    pub record: Record,
    /// Its bytes.
    pub encoded: Encoded,
    /// Where it lies, once its group has a place.
    pub lsn: Lsn,
    /// Who waits for it.
    pub done: Done,
    /// Who sent the same again, and waits too.
    pub repeats: Vec<Answer<Appended>>,
}

/// Who waits for a record.
#[derive(Debug)]
pub enum Done {
    /// An append or a definition.
    Appended(Answer<Appended>),
    /// A seal.
    Sealed(Answer<Option<Sealed>>),
    /// A commit.
    Committed(Answer<()>),
}

/// The records of one sync, and what they will change.
#[derive(Debug, Default)]
pub struct Group {
    /// In the order of their LSNs.
    pub staged: Vec<Staged>,
    marks: Marks,
    defined: HashMap<TableId, u32>,
    sequences: HashMap<TableId, u64>,
    sealing: HashSet<(TableId, Bucket)>,
}

impl Group {
    /// Bytes that the group takes in the log, without the padding to 4 KiB.
    pub fn len(&self) -> usize {
        group::HEADER_LEN + self.staged.iter().map(|s| s.encoded.padded_len()).sum::<usize>()
    }

    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.staged.is_empty()
    }

    /// Whether any record has rows.
    pub fn has_rows(&self) -> bool {
        self.staged.iter().any(|s| matches!(s.record, Record::Slices(_)))
    }

    /// Turns a request into a record, or answers it at once.
    pub fn stage(&mut self, request: Request, shard: u32, incarnation: Incarnation, state: &ShardState) {
        match request {
            Request::Append { rows, encoded, done } => {
                let undefined = |s: &&crate::types::SliceInput| {
                    s.schema_version == 0 || s.schema_version > self.schema_version(state, s.table)
                };
                if let Some(slice) = rows.slices.iter().find(undefined) {
                    let error = AppendError::Undefined(slice.table, slice.schema_version);
                    return drop(done.send(Err(error)));
                }
                let judged = match (rows.mark, rows.slices.first()) {
                    (Some(mark), Some(first)) => {
                        self.marks.judge(first.table, mark, self.staged.len(), state, Instant::now())
                    }
                    _ => Judged::New,
                };
                match judged {
                    Judged::New => self.add(Record::Slices(rows), encoded, Done::Appended(done)),
                    Judged::Durable(seen) => drop(done.send(Ok(seen.answer(shard)))),
                    Judged::Staged(place) => self.staged[place].repeats.push(done),
                    Judged::Refused(error) => drop(done.send(Err(error))),
                }
            }
            Request::Define { define, encoded, done } => {
                let known = self.schema_version(state, define.table).max(define.schema_version);
                self.defined.insert(define.table, known);
                self.add(Record::Define(define), encoded, Done::Appended(done));
            }
            Request::Commit { commit, encoded, done } => {
                self.add(Record::Commit(commit), encoded, Done::Committed(done));
            }
            Request::Seal { table, bucket, generation, done } => {
                // Only what an earlier group made durable can be named. A second wish for the same generation finds it gone; in the
                // same group it would close whatever rows had come in between, which nobody asked for.
                let open = state.open_generation(table, bucket).map(|g| g.first_lsn);
                if open != Some(generation) || !self.sealing.insert((table, bucket)) {
                    drop(done.send(Ok(None)));
                    return;
                }
                let used = self.sequences.entry(table).or_insert_with(|| state.progress(table, incarnation).sealed);
                *used += 1;
                let sequence = *used;
                let seal = Seal { table, bucket, generation, incarnation, sequence };
                let encoded = Record::Seal(seal).encode().unwrap_or_else(|e| unreachable!("a seal is short: {e}"));
                self.add(Record::Seal(seal), encoded, Done::Sealed(done));
            }
            Request::Swap { .. } | Request::Release { .. } => unreachable!("a checkpoint's requests write no record"),
        }
    }

    /// The newest schema version of a table that is in the log before the group's next record.
    fn schema_version(&self, state: &ShardState, table: TableId) -> u32 {
        self.defined.get(&table).copied().unwrap_or_else(|| state.schema_version(table))
    }

    /// Adds a record.
    pub fn add(&mut self, record: Record, encoded: Encoded, done: Done) {
        self.staged.push(Staged { record, encoded, lsn: Lsn(0), done, repeats: Vec::new() });
    }

    /// Answers the records that have rows with an error, and keeps the others.
    pub fn refuse_rows(&mut self, error: &AppendError) {
        let (rows, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.staged).into_iter().partition(|s| matches!(s.record, Record::Slices(_)));
        self.staged = kept;
        rows.into_iter().for_each(|s| s.refuse(error));
    }

    /// Answers all records with an error.
    pub fn refuse(&mut self, error: &AppendError) {
        self.staged.drain(..).for_each(|s| s.refuse(error));
    }
}

impl Staged {
    fn refuse(self, error: &AppendError) {
        self.done.refuse(error.clone());
        self.repeats.into_iter().for_each(|done| drop(done.send(Err(error.clone()))));
    }
}

impl Done {
    /// Answers with what came of a durable, applied record. A caller that went away has its rows all the same.
    pub fn answer(self, shard: u32, lsn: Lsn, applied: Applied) {
        match (self, applied) {
            (Self::Appended(done), _) => drop(done.send(Ok(Appended { shard, lsn, repeat_of: None }))),
            (Self::Sealed(done), Applied::Sealed(sealed)) => drop(done.send(Ok(Some(sealed)))),
            (Self::Sealed(done), Applied::Done) => drop(done.send(Ok(None))),
            (Self::Committed(done), _) => drop(done.send(Ok(()))),
        }
    }

    /// Answers with an error.
    pub fn refuse(self, error: AppendError) {
        match self {
            Self::Appended(done) => drop(done.send(Err(error))),
            Self::Sealed(done) => drop(done.send(Err(error))),
            Self::Committed(done) => drop(done.send(Err(error))),
        }
    }
}
