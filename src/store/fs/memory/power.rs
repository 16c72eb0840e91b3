//! What a power loss leaves of what was not synced: decided by a seed.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::image::{PAGE_BYTES, Page};

/// The unit that a disk writes whole, in bytes. Disks with 4096-byte sectors tear less; the model is the stricter one.
const SECTOR_BYTES: usize = 512;

const SECTORS: usize = PAGE_BYTES / SECTOR_BYTES;

/// The end of a page that was written and not synced.
pub(super) enum Fate {
    Kept,
    Dropped,
    Torn(Sectors),
}

/// Which sectors of a torn page are the new ones.
pub(super) struct Sectors([bool; SECTORS]);

/// Each page, length and directory change is drawn for itself, under a mood that the seed draws first: without it,
/// files of many pages would never be seen all kept or all gone, and those are the two commonest ends.
pub(super) struct PowerLoss {
    rng: StdRng,
    /// Probability that something is kept.
    keep: f64,
    /// Probability that a page is torn rather than kept or dropped.
    torn: f64,
}

impl PowerLoss {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let keep = [0.0, 0.1, 0.5, 0.9, 1.0][rng.random_range(0..5)];
        let torn = [0.0, 0.1, 0.3][rng.random_range(0..3)];
        Self { rng, keep, torn }
    }

    pub(super) fn page(&mut self) -> Fate {
        if self.rng.random_bool(self.torn) {
            Fate::Torn(Sectors(self.rng.random()))
        } else if self.keep() {
            Fate::Kept
        } else {
            Fate::Dropped
        }
    }

    /// Whether one directory change made it, given that those before it in its directory did.
    pub(super) fn keep(&mut self) -> bool {
        self.rng.random_bool(self.keep)
    }

    /// The length on disk: the synced one, the last one, or one that a write-back in between would have left.
    pub(super) fn length(&mut self, durable: u64, cached: u64) -> u64 {
        if durable == cached || self.keep() {
            return cached;
        }
        let page = PAGE_BYTES as u64;
        let between = durable.next_multiple_of(page)..cached;
        if between.is_empty() || !self.keep() {
            return durable;
        }
        self.rng.random_range(between) / page * page
    }
}

impl Sectors {
    pub(super) fn mix(&self, old: Option<&Page>, new: Option<&Page>) -> Page {
        let mut page = *old.unwrap_or(&[0; PAGE_BYTES]);
        let new = new.unwrap_or(&[0; PAGE_BYTES]);
        let sectors = page.chunks_exact_mut(SECTOR_BYTES).zip(new.chunks_exact(SECTOR_BYTES));
        for ((old, new), _) in sectors.zip(self.0).filter(|(_, written)| *written) {
            old.copy_from_slice(new);
        }
        page
    }
}
