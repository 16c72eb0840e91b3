//! Which stamped records are durable, so that a repeat is known as one.
//!
//! ```text
//!            floor                               highest
//!   Unknown    |  Repeat(lsn) if seen, else New    |   New
//!  ------------+-----------------------------------+----------> sequence
//!              |<-------- at most WINDOW --------->|
//! ```
//!
//! **The rule** is that a repeat is never taken for new: where nothing certain is remembered, the answer is that nothing is known,
//! and the producer goes on in a new epoch, having found out by itself what of the old one arrived. The one exception is bought by
//! not keeping every producer forever: one that was forgotten and then repeats, in the same epoch, a sequence below [`WINDOW`] looks
//! like one that begins. [`ProducerLimits::idle`] therefore has to be longer than any producer goes on retrying.
//!
//! **Deterministic.** The state is a function of the durable records, in LSN order, and of [`ProducerLimits::max`]. Clocks only
//! decide whether a new producer is let in ([`Producers::check`]), never what a record that is durable does: so a replay from a
//! checkpoint, at whatever pace, comes to the state that the records were accepted with. That is why idle producers are forgotten
//! when their place is needed and not before, and why the longest idle one is that whose newest record has the lowest LSN.
//!
//! Pure values: whoever applies records holds them under its own lock, and passes the time in.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::types::{Lsn, Note, ProducerId, Stamp, TableId};
use crate::wal::queue::Appended;

/// Sequences that are remembered exactly per (table, producer, epoch), counted down from the highest.
pub const WINDOW: u64 = 1024;

/// A durable record, as its repeats are told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// Where it lies.
    pub lsn: Lsn,
    /// What is remembered of it.
    pub note: Note,
}

impl Seen {
    /// What a repeat is answered.
    pub fn answer(self, shard: u32) -> Appended {
        Appended { shard, lsn: self.lsn, repeat_of: Some(self.note) }
    }
}

/// Of which nothing but the place is known.
impl From<Lsn> for Seen {
    fn from(lsn: Lsn) -> Self {
        Self { lsn, note: Note::default() }
    }
}

/// What is known of a stamp, or of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Not seen: to be appended.
    New,
    /// Durable since that record.
    Repeat(Seen),
    /// Too long ago, or of a producer that is not remembered: it may be durable or not. To be refused; a new epoch goes on.
    Unknown,
    /// Of an epoch that a newer one has replaced. To be refused.
    Fenced {
        /// The epoch that holds.
        newest: u32,
    },
    /// There is no place for another producer. To be refused; a later attempt may find one.
    TooMany,
}

/// What is remembered of one (table, producer, epoch). Takes memory, 32 bytes each, for what was seen only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    /// Below it nothing is known; from it on, everything.
    floor: u64,
    /// By sequence, the highest last; none below the floor.
    seen: VecDeque<(u64, Seen)>,
}

impl Window {
    /// What is known of a sequence: [`Verdict::New`], [`Verdict::Repeat`] or [`Verdict::Unknown`]. A producer of which nothing was
    /// seen has to begin below [`WINDOW`]: one that goes on further up has sent what is not remembered.
    pub fn check(&self, sequence: u64) -> Verdict {
        let Some(highest) = self.highest() else {
            return if sequence < WINDOW { Verdict::New } else { Verdict::Unknown };
        };
        if sequence > highest {
            return Verdict::New;
        }
        if sequence < self.floor {
            return Verdict::Unknown;
        }
        match self.find(sequence) {
            Ok(at) => Verdict::Repeat(self.seen[at].1),
            Err(_) => Verdict::New,
        }
    }

    /// Remembers a durable record, and returns how many sequences fell below the window without having been seen. What arrives below
    /// the window is not remembered, and stays counted; of one that is seen already the first record is kept.
    pub fn insert(&mut self, sequence: u64, record: impl Into<Seen>) -> u64 {
        let record = record.into();
        match self.highest() {
            // What the producer sent before is not remembered: it is neither new nor missing.
            None if sequence >= WINDOW => self.floor = sequence,
            Some(highest) if sequence <= highest => {
                if sequence >= self.floor
                    && let Err(at) = self.find(sequence)
                {
                    self.seen.insert(at, (sequence, record));
                }
                return 0;
            }
            _ => {}
        }
        let floor = lowest(sequence).max(self.floor);
        let mut gaps = floor - self.floor;
        // MUST BEFORE the push: a full window would grow to twice its size for one entry.
        while self.seen.pop_front_if(|(old, _)| *old < floor).is_some() {
            gaps -= 1;
        }
        self.floor = floor;
        self.seen.push_back((sequence, record));
        gaps
    }

    /// Takes over what another window of the same epoch knows.
    fn merge(&mut self, floor: u64, seen: &[(u64, Seen)]) {
        let highest = seen.iter().map(|(sequence, _)| *sequence).chain(self.highest()).max();
        self.floor = self.floor.max(floor).max(highest.map_or(0, lowest));
        let both = self.seen.iter().chain(seen);
        let mut both: Vec<_> = both.copied().filter(|(sequence, _)| *sequence >= self.floor).collect();
        both.sort_unstable();
        both.dedup_by_key(|(sequence, _)| *sequence);
        self.seen = both.into();
    }

    /// The sequence below which nothing is known.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The sequences that were seen, ascending, and their records.
    pub fn seen(&self) -> impl ExactSizeIterator<Item = (u64, Seen)> {
        self.seen.iter().copied()
    }

    fn highest(&self) -> Option<u64> {
        self.seen.back().map(|(sequence, _)| *sequence)
    }

    fn find(&self, sequence: u64) -> Result<usize, usize> {
        self.seen.binary_search_by_key(&sequence, |(seen, _)| *seen)
    }
}

/// The lowest sequence of the window that ends with `highest`.
fn lowest(highest: u64) -> u64 {
    highest.saturating_sub(WINDOW - 1)
}

/// One window, as a checkpoint keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerWindow {
    /// The table.
    pub table: TableId,
    /// Who sends.
    pub producer: ProducerId,
    /// The newest epoch.
    pub epoch: u32,
    /// Below it nothing is known. Not always what the highest sequence says: less is known of a producer that was forgotten in
    /// between.
    pub floor: u64,
    /// Sequences, ascending, and their records.
    pub seen: Vec<(u64, Seen)>,
}

impl ProducerWindow {
    /// What `window` knows.
    pub fn new(table: TableId, producer: ProducerId, epoch: u32, window: &Window) -> Self {
        Self { table, producer, epoch, floor: window.floor(), seen: window.seen().collect() }
    }
}

/// How many producers are remembered, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerLimits {
    /// (table, producer) pairs per shard. Each takes up to [`WINDOW`] times 32 bytes.
    pub max: usize,
    /// How long a producer has to be silent before another may have its place.
    pub idle: Duration,
}

impl Default for ProducerLimits {
    /// 10 000 for 7 days.
    fn default() -> Self {
        Self { max: 10_000, idle: Duration::from_secs(7 * 24 * 60 * 60) }
    }
}

type Key = (TableId, ProducerId);

/// One producer's newest epoch at one table.
#[derive(Debug)]
struct Entry {
    epoch: u32,
    window: Window,
    /// The newest record in the window: the entry's place in the order of eviction.
    newest: Lsn,
    /// When that record was applied; for one that was restored, when this node started.
    used: Instant,
}

/// The producers of one shard.
#[derive(Debug)]
pub struct Producers {
    limits: ProducerLimits,
    started: Instant,
    entries: HashMap<Key, Entry>,
    /// All entries by [`Entry::newest`]: the longest idle one first.
    by_use: BTreeSet<(Lsn, Key)>,
    gaps: HashMap<TableId, u64>,
}

impl Producers {
    /// None yet. Restored ones count as used at `started`: how long they were silent before is not known.
    pub fn new(limits: ProducerLimits, started: Instant) -> Self {
        Self { limits, started, entries: HashMap::new(), by_use: BTreeSet::new(), gaps: HashMap::new() }
    }

    /// What is known of a stamp, from records that are durable. Of one that is both too late and too many, that it is
    /// [`Verdict::Unknown`]: waiting would not help it.
    pub fn check(&self, table: TableId, stamp: Stamp, now: Instant) -> Verdict {
        match self.entries.get(&(table, stamp.producer)) {
            Some(entry) if stamp.epoch < entry.epoch => Verdict::Fenced { newest: entry.epoch },
            Some(entry) if stamp.epoch == entry.epoch => entry.window.check(stamp.sequence),
            Some(_) => Window::default().check(stamp.sequence),
            None => match Window::default().check(stamp.sequence) {
                Verdict::New if !self.has_room(1, now) => Verdict::TooMany,
                verdict => verdict,
            },
        }
    }

    /// Whether there is a place for `joining` producers that are not remembered yet, without forgetting one that was used within
    /// [`ProducerLimits::idle`]. [`Self::check`] asks for one; records that are not durable yet may have been promised others.
    pub fn has_room(&self, joining: usize, now: Instant) -> bool {
        let over = (self.entries.len() + joining).saturating_sub(self.limits.max);
        let idle = |(_, key): &(Lsn, Key)| {
            self.entries.get(key).is_some_and(|e| now.saturating_duration_since(e.used) > self.limits.idle)
        };
        over <= self.entries.len() && self.by_use.iter().take(over).all(idle)
    }

    /// Applies a durable record, and returns how many sequences it pushed below the window unseen. Records come in the order of
    /// their LSNs, live and in a replay. Never fails, since nothing can be done about a durable record: that of an older epoch changes
    /// nothing; a producer beyond [`ProducerLimits::max`] takes the place of the longest idle one, however short a time that is
    /// (only if [`Self::has_room`] was not asked, or the limit was lowered since).
    pub fn record(&mut self, table: TableId, stamp: Stamp, record: impl Into<Seen>, now: Instant) -> u64 {
        let record = record.into();
        let lsn = record.lsn;
        let key = (table, stamp.producer);
        let entry = self.entries.entry(key).or_insert_with(|| Entry::new(stamp.epoch, lsn, now));
        if stamp.epoch < entry.epoch {
            return 0;
        }
        if stamp.epoch > entry.epoch {
            entry.epoch = stamp.epoch;
            entry.window = Window::default();
        }
        let gaps = entry.window.insert(stamp.sequence, record);
        // Only what the window took counts as use: a checkpoint keeps no more, and has to give the same order.
        if entry.window.check(stamp.sequence) == Verdict::Repeat(record) {
            self.by_use.remove(&(entry.newest, key));
            entry.newest = entry.newest.max(lsn);
            entry.used = now;
            self.by_use.insert((entry.newest, key));
        }
        if gaps > 0 {
            let sum = self.gaps.entry(table).or_default();
            *sum = sum.saturating_add(gaps);
        }
        self.evict();
        gaps
    }

    /// Takes over what a checkpoint kept, in any order, before the records behind it are replayed. What is known of the same epoch is
    /// merged; a newer epoch replaces an older one, an older one is ignored.
    pub fn restore(&mut self, saved: &ProducerWindow) {
        let mut window = Window::default();
        window.merge(saved.floor, &saved.seen);
        let key = (saved.table, saved.producer);
        let known = self.entries.get(&key);
        if window.highest().is_none() || known.is_some_and(|entry| entry.epoch > saved.epoch) {
            return;
        }
        if let Some(same) = known.filter(|entry| entry.epoch == saved.epoch) {
            window.merge(same.window.floor, &Vec::from(same.window.seen.clone()));
        }
        let newest = window.seen().map(|(_, record)| record.lsn).max().unwrap_or_default();
        let used = known.map_or(self.started, |entry| entry.used);
        let entry = Entry { epoch: saved.epoch, window, newest, used };
        if let Some(old) = self.entries.insert(key, entry) {
            self.by_use.remove(&(old.newest, key));
        }
        self.by_use.insert((newest, key));
        self.evict();
    }

    fn evict(&mut self) {
        while self.entries.len() > self.limits.max
            && let Some((_, key)) = self.by_use.pop_first()
        {
            self.entries.remove(&key);
        }
    }

    /// The newest epoch of a producer, and its window.
    pub fn get(&self, table: TableId, producer: ProducerId) -> Option<(u32, &Window)> {
        self.entries.get(&(table, producer)).map(|entry| (entry.epoch, &entry.window))
    }

    /// All that is remembered, for a checkpoint: table, producer, newest epoch and its window; the longest idle first.
    pub fn entries(&self) -> impl Iterator<Item = (TableId, ProducerId, u32, &Window)> {
        self.by_use.iter().filter_map(|(_, key)| {
            let entry = self.entries.get(key)?;
            Some((key.0, key.1, entry.epoch, &entry.window))
        })
    }

    /// Sequences of a table that fell below their window unseen, in the records applied since the start (a replay's too). Those that
    /// were open when a newer epoch came, or when the producer was forgotten, are not among them.
    pub fn gaps(&self, table: TableId) -> u64 {
        self.gaps.get(&table).copied().unwrap_or(0)
    }

    /// (table, producer) pairs that are remembered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Entry {
    fn new(epoch: u32, newest: Lsn, used: Instant) -> Self {
        Self { epoch, window: Window::default(), newest, used }
    }
}

#[cfg(test)]
mod tests;
