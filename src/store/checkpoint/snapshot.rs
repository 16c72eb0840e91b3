//! All of a shard's state at its checkpoint, as edits that begin a new manifest file.

use std::collections::HashMap;

use super::edit::{Counter, Edit, Part};
use super::invariants::Image;
use crate::bucket::keys::KeyFact;
use crate::bucket::producer::{ProducerWindow, Seen};
use crate::bucket::{Facts, PARTS};
use crate::shard::Shared;
use crate::types::{Lsn, Mark, PostId, ProducerId, Stamp, TableId};

/// Bytes from which on the next edit begins.
const EDIT_BYTES: usize = 8 << 20;
/// Producers that are copied while the owner waits.
const PRODUCERS_AT_ONCE: usize = 64;

/// The edits of a snapshot that follows `image`. Read part by part: the owner goes on meanwhile, and never waits for all of it.
///
/// MUST AFTER the rows below the checkpoint are in lane files: the generations that it lists are looked for there.
pub fn edits(shared: &Shared, image: &Image) -> Vec<Edit> {
    let begin = |sequence: u64, part: Part| Edit {
        sequence,
        part,
        checkpoint: image.checkpoint,
        segment: image.segment,
        next_lane_file: image.next_lane_file,
        ..Edit::default()
    };
    let mut edit = begin(image.sequence + 1, Part::SnapshotBegin);
    edit.added = image.files.values().copied().collect();
    let mut edits = Vec::new();
    for part in 0..PARTS {
        let Facts { defines, generations, progress } = shared.state.read().facts(part, image.checkpoint);
        edit.defines.extend(defines);
        edit.generations.extend(generations);
        edit.counters.extend(progress.into_iter().map(|(table, incarnation, p)| Counter {
            table,
            incarnation,
            sealed: p.sealed,
            committed: p.committed,
        }));
        if edit.encoded_len() >= EDIT_BYTES {
            let next = begin(edit.sequence + 1, Part::SnapshotMore);
            edits.push(std::mem::replace(&mut edit, next));
        }
    }
    let known: Vec<_> =
        shared.state.read().producers().entries().map(|(table, producer, ..)| (table, producer)).collect();
    for keys in known.chunks(PRODUCERS_AT_ONCE) {
        let state = shared.state.read();
        edit.producers.extend(keys.iter().filter_map(|(table, producer)| {
            let (epoch, window) = state.producers().get(*table, *producer)?;
            let mut window = ProducerWindow::new(*table, *producer, epoch, window);
            // Records behind the checkpoint are replayed.
            window.seen.retain(|(_, record)| record.lsn < image.checkpoint);
            Some(window)
        }));
        drop(state);
        if edit.encoded_len() >= EDIT_BYTES {
            let next = begin(edit.sequence + 1, Part::SnapshotMore);
            edits.push(std::mem::replace(&mut edit, next));
        }
    }
    let parts = shared.state.read().keys().parts();
    for part in 0..parts {
        let state = shared.state.read();
        edit.keys.extend(state.keys().part(part).filter(|fact| fact.record.lsn < image.checkpoint));
        drop(state);
        if edit.encoded_len() >= EDIT_BYTES {
            let next = begin(edit.sequence + 1, Part::SnapshotMore);
            edits.push(std::mem::replace(&mut edit, next));
        }
    }
    edits.push(edit);
    edits
}

/// What new marks add to the keys that the manifest knows.
pub fn keyed<'a>(marks: impl Iterator<Item = &'a (TableId, Mark, Lsn)>) -> Vec<KeyFact> {
    let fact = |(table, mark, lsn): &(TableId, Mark, Lsn)| match mark.id {
        PostId::Key(key) => {
            Some(KeyFact { table: *table, key, record: Seen { lsn: *lsn, note: mark.note }, at: mark.at })
        }
        PostId::Sequence(_) => None,
    };
    marks.filter_map(fact).collect()
}

/// What new marks add to what the manifest knows of their producers.
pub fn stamped<'a>(shared: &Shared, marks: impl Iterator<Item = &'a (TableId, Mark, Lsn)>) -> Vec<ProducerWindow> {
    let mut windows: HashMap<(TableId, ProducerId), ProducerWindow> = HashMap::new();
    for (table, mark, lsn) in marks {
        let PostId::Sequence(Stamp { producer, epoch, sequence }) = mark.id else { continue };
        let empty = || ProducerWindow { table: *table, producer, epoch, floor: 0, seen: Vec::new() };
        let window = windows.entry((*table, producer)).or_insert_with(empty);
        if epoch > window.epoch {
            *window = empty();
        }
        if epoch == window.epoch {
            window.seen.push((sequence, Seen { lsn: *lsn, note: mark.note }));
        }
    }
    let mut windows: Vec<_> = windows.into_values().collect();
    for windows in windows.chunks_mut(PRODUCERS_AT_ONCE) {
        let state = shared.state.read();
        for window in windows {
            // How far it has come by now; if it is ahead of the checkpoint, so will the replay be.
            let known =
                state.producers().get(window.table, window.producer).filter(|(epoch, _)| *epoch == window.epoch);
            window.floor = known.map_or(0, |(_, known)| known.floor());
            window.seen.retain(|(sequence, _)| *sequence >= window.floor);
            window.seen.sort_unstable();
        }
    }
    windows
}

/// The snapshot of a shard of which everything lies in the log from `checkpoint` on.
pub fn empty(checkpoint: Lsn) -> Vec<Edit> {
    vec![Edit {
        sequence: 1,
        part: Part::SnapshotBegin,
        checkpoint,
        segment: checkpoint,
        next_lane_file: 1,
        ..Edit::default()
    }]
}
