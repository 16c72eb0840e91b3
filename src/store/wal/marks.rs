//! The marks of the records of one group, which is not durable yet: a repeat of one of them waits for the same sync.

use std::collections::HashMap;
use std::time::Instant;

use crate::bucket::keys::Keys;
use crate::bucket::producer::{Producers, Seen, Verdict, WINDOW};
use crate::bucket::state::ShardState;
use crate::error::AppendError;
use crate::types::{Mark, PostId, PostKey, ProducerId, Stamp, TableId};

/// What a mark means for the group.
#[derive(Debug, PartialEq, Eq)]
pub enum Judged {
    /// The record is to be staged.
    New,
    /// It is durable.
    Durable(Seen),
    /// It is in the group, at this place.
    Staged(usize),
    /// It is refused.
    Refused(AppendError),
}

/// Where in the group a record is, and of what it was made.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: usize,
    digest: u64,
}

impl Place {
    fn repeat(self, digest: u64) -> Judged {
        if self.digest == digest { Judged::Staged(self.at) } else { Judged::Refused(AppendError::Reused) }
    }
}

/// One producer's stamps of its newest epoch in the group.
#[derive(Debug, Default)]
struct Staged {
    epoch: u32,
    highest: u64,
    /// Where in the group each one is.
    places: HashMap<u64, Place>,
}

/// The marks in one group.
#[derive(Debug, Default)]
pub struct Marks {
    staged: HashMap<(TableId, ProducerId), Staged>,
    /// Producers among them that are not remembered yet.
    joining: usize,
    keys: HashMap<(TableId, PostKey), Place>,
    /// Keys among them, which are all new, by the part of the memory that they will be in.
    joining_keys: HashMap<usize, usize>,
}

impl Marks {
    /// What a mark means, after those before it in the group; a new one is noted as to be staged at `place`.
    pub fn judge(&mut self, table: TableId, mark: Mark, place: usize, state: &ShardState, now: Instant) -> Judged {
        let place = Place { at: place, digest: mark.note.digest };
        let judged = match mark.id {
            PostId::Sequence(stamp) => self.stamp(table, stamp, place, state.producers(), now),
            PostId::Key(key) => self.key(table, key, mark.at, place, state.keys()),
        };
        match judged {
            Judged::Durable(seen) if seen.note.digest != mark.note.digest => Judged::Refused(AppendError::Reused),
            judged => judged,
        }
    }

    fn key(&mut self, table: TableId, key: PostKey, now: u32, place: Place, keys: &Keys) -> Judged {
        if let Some(staged) = self.keys.get(&(table, key)) {
            return staged.repeat(place.digest);
        }
        let joining = self.joining_keys.entry(keys.part_of(key)).or_default();
        match keys.check(table, key, now) {
            Verdict::Repeat(seen) => Judged::Durable(seen),
            Verdict::New if keys.has_room(key, *joining + 1, now) => {
                *joining += 1;
                self.keys.insert((table, key), place);
                Judged::New
            }
            _ => Judged::Refused(AppendError::TooManyKeys),
        }
    }

    fn stamp(&mut self, table: TableId, stamp: Stamp, place: Place, producers: &Producers, now: Instant) -> Judged {
        let key = (table, stamp.producer);
        let refused = |error| Judged::Refused(error);
        if let Some(staged) = self.staged.get(&key) {
            if stamp.epoch < staged.epoch {
                return refused(AppendError::Fenced { newest: staged.epoch });
            }
            if stamp.epoch == staged.epoch {
                if let Some(staged) = staged.places.get(&stamp.sequence) {
                    return staged.repeat(place.digest);
                }
                if stamp.sequence.saturating_add(WINDOW) <= staged.highest {
                    return refused(AppendError::UnknownSequence(stamp.sequence));
                }
            }
        }
        match producers.check(table, stamp, now) {
            Verdict::Repeat(seen) => return Judged::Durable(seen),
            // The epoch begins in this group: what the group has of it is all there is, and how far it is was looked at above.
            Verdict::Unknown if self.begins(key, stamp.epoch, producers) => {}
            Verdict::Unknown => return refused(AppendError::UnknownSequence(stamp.sequence)),
            Verdict::Fenced { newest } => return refused(AppendError::Fenced { newest }),
            Verdict::TooMany => return refused(AppendError::TooManyProducers),
            Verdict::New => {}
        }
        if !self.staged.contains_key(&key) && producers.get(table, stamp.producer).is_none() {
            if !producers.has_room(self.joining + 1, now) {
                return refused(AppendError::TooManyProducers);
            }
            self.joining += 1;
        }
        let staged = self.staged.entry(key).or_default();
        if stamp.epoch > staged.epoch {
            *staged = Staged { epoch: stamp.epoch, ..Staged::default() };
        }
        staged.highest = staged.highest.max(stamp.sequence);
        staged.places.insert(stamp.sequence, place);
        Judged::New
    }

    /// Whether the group has something of an epoch of which nothing is durable.
    fn begins(&self, key: (TableId, ProducerId), epoch: u32, producers: &Producers) -> bool {
        self.staged.get(&key).is_some_and(|staged| staged.epoch == epoch)
            && producers.get(key.0, key.1).is_none_or(|(durable, _)| durable < epoch)
    }
}

#[cfg(test)]
mod tests;
