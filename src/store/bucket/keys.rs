//! Which posts that carry a key of their own are durable, so that a repeat is known as one.
//!
//! Keys have no order, so there is no window: the newest [`KeyLimits::max`] of a shard are remembered, whoever sent them, in the order
//! of their records. One that is forgotten and then comes again is taken for new. So that this is no surprise, nothing is forgotten
//! before it is [`KeyLimits::keep`] old: where that would be needed, the newcomer is refused, and may come again.
//!
//! **Deterministic**, as [`super::producer`] is: what is remembered is a function of the durable records and of [`KeyLimits::max`]; the
//! time decides only whether a newcomer is let in. It is the time in the records, so that a restart does not make all keys young.
//!
//! In parts, each with its share of the places: a map that grows moves all that it has, and the owner would stand still meanwhile.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::producer::{Seen, Verdict};
use crate::types::{Lsn, PostKey, TableId};

/// Places that make a part of their own: somewhat fewer than a map of 4096 holds.
const PART_PLACES: usize = 3500;
/// Most parts.
const MAX_PARTS: usize = 256;

/// How many keys are remembered, and for how long at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLimits {
    /// (table, key) pairs per shard. Each takes about 150 bytes.
    pub max: usize,
    /// How old a key has to be before another may have its place.
    pub keep: Duration,
}

impl Default for KeyLimits {
    /// 500 000, for 10 minutes at least.
    fn default() -> Self {
        Self { max: 500_000, keep: Duration::from_secs(600) }
    }
}

/// One key, as a checkpoint keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyFact {
    /// The table.
    pub table: TableId,
    /// The post.
    pub key: PostKey,
    /// Its record.
    pub record: Seen,
    /// When it was sent, seconds since the epoch.
    pub at: u32,
}

type Key = (TableId, PostKey);

#[derive(Debug, Default)]
struct Part {
    known: HashMap<Key, (Seen, u32)>,
    /// By LSN, the lowest first: the one that is forgotten first.
    by_age: VecDeque<(Lsn, Key)>,
}

/// The keys of one shard.
#[derive(Debug)]
pub struct Keys {
    limits: KeyLimits,
    parts: Vec<Part>,
}

impl Keys {
    /// None yet.
    pub fn new(limits: KeyLimits) -> Self {
        let parts = (limits.max / PART_PLACES).clamp(1, MAX_PARTS);
        Self { limits, parts: (0..parts).map(|_| Part::default()).collect() }
    }

    /// What is known of a key: [`Verdict::New`], [`Verdict::Repeat`] or [`Verdict::TooMany`]. `now` in seconds since the epoch.
    pub fn check(&self, table: TableId, key: PostKey, now: u32) -> Verdict {
        match self.parts[self.part_of(key)].known.get(&(table, key)) {
            Some((record, _)) => Verdict::Repeat(*record),
            None if self.has_room(key, 1, now) => Verdict::New,
            None => Verdict::TooMany,
        }
    }

    /// Whether there is a place for `joining` keys of the part that `key` is in, without forgetting one that is younger than
    /// [`KeyLimits::keep`]. [`Self::check`] asks for one; records that are not durable yet may have been promised others.
    pub fn has_room(&self, key: PostKey, joining: usize, now: u32) -> bool {
        let part = &self.parts[self.part_of(key)];
        let over = (part.known.len() + joining).saturating_sub(self.places());
        let is_old = |(_, key): &(Lsn, Key)| {
            let at = part.known.get(key).map_or(0, |(_, at)| *at);
            u64::from(now.saturating_sub(at)) > self.limits.keep.as_secs()
        };
        over <= part.by_age.len() && part.by_age.iter().take(over).all(is_old)
    }

    /// Applies a durable record. A key that is known has a new record now: it had been forgotten when that one was let in.
    pub fn record(&mut self, fact: KeyFact) {
        let places = self.places();
        let part = self.part_of(fact.key);
        let part = &mut self.parts[part];
        let key = (fact.table, fact.key);
        let lsn = fact.record.lsn;
        if let Some((old, _)) = part.known.get(&key) {
            if old.lsn >= lsn {
                return;
            }
            if let Ok(at) = part.by_age.binary_search(&(old.lsn, key)) {
                part.by_age.remove(at);
            }
        }
        part.known.insert(key, (fact.record, fact.at));
        // What a checkpoint kept may come in any order; all else comes in that of the LSNs.
        match part.by_age.back() {
            Some(newest) if *newest > (lsn, key) => {
                let at = part.by_age.partition_point(|other| *other < (lsn, key));
                part.by_age.insert(at, (lsn, key));
            }
            _ => part.by_age.push_back((lsn, key)),
        }
        while part.known.len() > places
            && let Some((_, oldest)) = part.by_age.pop_front()
        {
            part.known.remove(&oldest);
        }
    }

    /// Parts of the memory, to be looked at one by one.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// What one part remembers, the oldest first.
    pub fn part(&self, part: usize) -> impl Iterator<Item = KeyFact> {
        let part = &self.parts[part];
        part.by_age.iter().filter_map(|(_, key)| {
            let (record, at) = part.known.get(key)?;
            Some(KeyFact { table: key.0, key: key.1, record: *record, at: *at })
        })
    }

    /// (table, key) pairs that are remembered.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.known.len()).sum()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Places in each part.
    fn places(&self) -> usize {
        self.limits.max.div_ceil(self.parts.len())
    }

    /// The part that a key is in.
    pub fn part_of(&self, key: PostKey) -> usize {
        // The key is a hash, its bits are as good as any.
        (key.0 >> 64) as usize % self.parts.len()
    }
}

#[cfg(test)]
mod tests;
