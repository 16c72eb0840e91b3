//! What holds between a shard's manifest, its lane files and its log. Checked whenever an edit is written and whenever one is read.
//!
//! 1. Edits are numbered without gaps.
//! 2. A checkpoint never goes back.
//! 3. A lane file's id is new when it is added, and below the next one; what is dropped was there.
//! 4. An extent lies wholly below the checkpoint that moved it.
//! 5. A generation begins below the checkpoint, before its Seal record, which lies below the checkpoint too.
//! 6. A bucket has at most one open generation.
//! 7. No more is committed of a table than was sealed.
//! 8. Extents of a generation do not overlap; only those of one lane file may share a record.
//! 9. The log begins at or below the checkpoint, and never said that more of it may be gone.
//!
//! Without 4, 8 and 9 a record would be recovered twice or not at all; without 3 a file could be unlinked that rows lie in.

use std::collections::BTreeMap;

use super::edit::{Edit, LaneFileRef, Part};
use super::lane_file::ExtentEntry;
use crate::types::Lsn;

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invariant {number} is broken: {what}")]
pub struct Violation {
    /// Its number in the list above.
    pub number: u8,
    /// What was found.
    pub what: String,
}

/// What edits are checked against: what those before said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// Of the last edit.
    pub sequence: u64,
    /// Of the last edit.
    pub checkpoint: Lsn,
    /// Of the last edit.
    pub segment: Lsn,
    /// Id of the next lane file.
    pub next_lane_file: u64,
    /// Lane files that count.
    pub files: BTreeMap<u64, LaneFileRef>,
}

/// Makes a violation.
pub(crate) fn broken(number: u8, what: impl Into<String>) -> Violation {
    Violation { number, what: what.into() }
}

impl Image {
    /// Takes an edit over, if it may follow.
    ///
    /// # Errors
    /// The first invariant that does not hold; nothing is taken over then.
    pub fn follow(&mut self, edit: &Edit) -> Result<(), Violation> {
        let mut next = self.clone_for(edit);
        if self.sequence != 0 && edit.sequence != self.sequence + 1 {
            return Err(broken(1, format!("edit {} follows edit {}", edit.sequence, self.sequence)));
        }
        if edit.checkpoint < self.checkpoint {
            return Err(broken(2, format!("from LSN {} to LSN {}", self.checkpoint, edit.checkpoint)));
        }
        if edit.next_lane_file < self.next_lane_file {
            return Err(broken(3, format!("next lane file {} after {}", edit.next_lane_file, self.next_lane_file)));
        }
        for id in &edit.dropped {
            if next.remove(id).is_none() {
                return Err(broken(3, format!("lane file {id} is dropped, but not there")));
            }
        }
        for added in &edit.added {
            let is_new = edit.part != Part::Delta || added.id >= self.next_lane_file;
            if !is_new || added.id >= edit.next_lane_file || next.insert(added.id, *added).is_some() {
                return Err(broken(3, format!("lane file {} is added", added.id)));
            }
        }
        for fact in &edit.generations {
            let sealed_below = fact.seal.is_none_or(|s| fact.generation < s.lsn && s.lsn < edit.checkpoint);
            if fact.generation >= edit.checkpoint || !sealed_below {
                let what = format!("generation {} at checkpoint {}", fact.generation, edit.checkpoint);
                return Err(broken(5, what));
            }
        }
        if let Some(counter) = edit.counters.iter().find(|c| c.committed > c.sealed) {
            let (committed, sealed) = (counter.committed, counter.sealed);
            return Err(broken(7, format!("table {}: {committed} of {sealed}", counter.table)));
        }
        self.sequence = edit.sequence;
        self.checkpoint = edit.checkpoint;
        self.segment = edit.segment;
        self.next_lane_file = edit.next_lane_file;
        self.files = next;
        Ok(())
    }

    fn clone_for(&self, edit: &Edit) -> BTreeMap<u64, LaneFileRef> {
        if edit.part == Part::SnapshotBegin { BTreeMap::new() } else { self.files.clone() }
    }
}

/// Checks the extents of one lane file against the checkpoint that wrote it (4).
///
/// # Errors
/// The first extent that reaches too far.
pub fn check_extents(entries: &[ExtentEntry], checkpoint: Lsn) -> Result<(), Violation> {
    match entries.iter().find(|e| e.last_lsn >= checkpoint) {
        Some(e) => Err(broken(4, format!("rows up to LSN {} at checkpoint {checkpoint}", e.last_lsn))),
        None => Ok(()),
    }
}

/// Checks that extents of one generation, each with its lane file's id, do not overlap (8); in any order.
///
/// # Errors
/// The first one that begins before another one's end.
pub fn check_overlap(extents: impl Iterator<Item = (u64, ExtentEntry)>) -> Result<(), Violation> {
    let mut spans: Vec<_> = extents.map(|(file, e)| (e.first_lsn, e.last_lsn, file)).collect();
    spans.sort_unstable();
    let overlap = |pair: &&[(Lsn, Lsn, u64)]| {
        let [(_, end, file), (begin, _, other)] = pair[..] else { return false };
        end > begin || end == begin && file != other
    };
    match spans.windows(2).find(overlap) {
        Some(pair) => Err(broken(8, format!("extents of LSN {} and {} overlap", pair[0].0, pair[1].0))),
        None => Ok(()),
    }
}

/// Checks that the log has what a checkpoint leaves to it, by the bases of its segments, and has not said that it may lack more
/// (9).
///
/// # Errors
/// If a segment is missing, or the manifest is older than the log.
pub fn check_log(bases: &[Lsn], kept_from: Lsn, image: &Image) -> Result<(), Violation> {
    let checkpoint = image.checkpoint;
    // The segment that the checkpoint lies in; if it ended there, the next one is as good.
    if !bases.contains(&image.segment) && !bases.contains(&checkpoint) {
        let what = format!("the log segment from LSN {} is missing, the checkpoint is at {checkpoint}", image.segment);
        return Err(broken(9, what));
    }
    if kept_from > checkpoint {
        return Err(broken(
            9,
            format!("the log needs nothing below LSN {kept_from}, the checkpoint is at {checkpoint}"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
