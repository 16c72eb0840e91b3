//! The stamps of the records of one group, which is not durable yet: a repeat of one of them waits for the same sync.

use std::collections::HashMap;
use std::time::Instant;

use crate::bucket::producer::{Producers, Verdict, WINDOW};
use crate::error::AppendError;
use crate::types::{Lsn, ProducerId, Stamp, TableId};

/// What a stamp means for the group.
#[derive(Debug, PartialEq, Eq)]
pub enum Stamped {
    /// The record is to be staged.
    New,
    /// It is durable, and lies there.
    Durable(Lsn),
    /// It is in the group, at this place.
    Staged(usize),
    /// It is refused.
    Refused(AppendError),
}

/// One producer's stamps of its newest epoch in the group.
#[derive(Debug, Default)]
struct Staged {
    epoch: u32,
    highest: u64,
    /// Where in the group each one is.
    places: HashMap<u64, usize>,
}

/// The stamps in one group.
#[derive(Debug, Default)]
pub struct Stamps {
    staged: HashMap<(TableId, ProducerId), Staged>,
    /// Producers among them that are not remembered yet.
    joining: usize,
}

impl Stamps {
    /// What a stamp means, after those before it in the group; a new one is noted as to be staged at `place`.
    pub fn judge(
        &mut self,
        table: TableId,
        stamp: Stamp,
        place: usize,
        producers: &Producers,
        now: Instant,
    ) -> Stamped {
        let key = (table, stamp.producer);
        let refused = |error| Stamped::Refused(error);
        if let Some(staged) = self.staged.get(&key) {
            if stamp.epoch < staged.epoch {
                return refused(AppendError::Fenced { newest: staged.epoch });
            }
            if stamp.epoch == staged.epoch {
                if let Some(place) = staged.places.get(&stamp.sequence) {
                    return Stamped::Staged(*place);
                }
                if stamp.sequence.saturating_add(WINDOW) <= staged.highest {
                    return refused(AppendError::UnknownSequence(stamp.sequence));
                }
            }
        }
        match producers.check(table, stamp, now) {
            Verdict::Repeat(lsn) => return Stamped::Durable(lsn),
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
        Stamped::New
    }

    /// Whether the group has something of an epoch of which nothing is durable.
    fn begins(&self, key: (TableId, ProducerId), epoch: u32, producers: &Producers) -> bool {
        self.staged.get(&key).is_some_and(|staged| staged.epoch == epoch)
            && producers.get(key.0, key.1).is_none_or(|(durable, _)| durable < epoch)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::bucket::producer::ProducerLimits;

    const TABLE: TableId = TableId(Uuid::from_u128(1));

    fn stamp(producer: u128, epoch: u32, sequence: u64) -> Stamp {
        Stamp { producer: ProducerId(producer), epoch, sequence }
    }

    #[test]
    fn a_repeat_in_the_group_waits_for_the_first_one() {
        let now = Instant::now();
        let producers = Producers::new(ProducerLimits::default(), now);
        let mut stamps = Stamps::default();
        let mut judge = |stamp, place| stamps.judge(TABLE, stamp, place, &producers, now);
        assert_eq!(judge(stamp(1, 0, 5), 0), Stamped::New);
        assert_eq!(judge(stamp(1, 0, 4), 1), Stamped::New, "out of order is not a repeat");
        assert_eq!(judge(stamp(1, 0, 5), 2), Stamped::Staged(0));
        assert_eq!(judge(stamp(2, 0, 5), 2), Stamped::New, "another producer's");
        assert_eq!(judge(stamp(1, 1, 5), 3), Stamped::New, "another epoch");
        assert_eq!(judge(stamp(1, 0, 6), 4), Stamped::Refused(AppendError::Fenced { newest: 1 }));
        assert_eq!(judge(stamp(1, 1, 5), 4), Stamped::Staged(3));
        assert_eq!(judge(stamp(1, 1, 900), 4), Stamped::New);
        assert_eq!(judge(stamp(1, 1, 1500), 5), Stamped::New);
        assert_eq!(judge(stamp(1, 1, 476), 6), Stamped::Refused(AppendError::UnknownSequence(476)));
        assert_eq!(judge(stamp(1, 1, 477), 6), Stamped::New);
    }

    #[test]
    fn places_are_promised_once() {
        let now = Instant::now();
        let limits = ProducerLimits { max: 2, ..ProducerLimits::default() };
        let mut producers = Producers::new(limits, now);
        producers.record(TABLE, stamp(1, 0, 0), Lsn(1), now);
        let mut stamps = Stamps::default();
        let mut judge = |stamp, place| stamps.judge(TABLE, stamp, place, &producers, now);
        assert_eq!(judge(stamp(1, 0, 0), 0), Stamped::Durable(Lsn(1)));
        assert_eq!(judge(stamp(2, 0, 0), 0), Stamped::New);
        assert_eq!(judge(stamp(3, 0, 0), 1), Stamped::Refused(AppendError::TooManyProducers));
        assert_eq!(judge(stamp(2, 0, 1), 1), Stamped::New);
    }
}
