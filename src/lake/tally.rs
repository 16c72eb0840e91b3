//! What calls of the lake cost, and how often they had to be made again, over all tables.

use std::sync::atomic::{AtomicU64, Ordering};

use penstock_store::{Distribution, Histogram};

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) uploads: Histogram,
    pub(super) upload_retries: AtomicU64,
    pub(super) commit_retries: AtomicU64,
    pub(super) conflicts: AtomicU64,
}

/// What was counted since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls {
    /// Requests that brought a data file into the store, with their repeats.
    pub uploads: Distribution,
    /// Uploads that were made again.
    pub upload_retries: u64,
    /// Commits that were put again, because it was not known what had become of them.
    pub commit_retries: u64,
    /// Versions that somebody else had taken when we put ours.
    pub conflicts: u64,
}

impl Tally {
    pub(super) fn read(&self) -> Calls {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Calls {
            uploads: self.uploads.read(),
            upload_retries: count(&self.upload_retries),
            commit_retries: count(&self.commit_retries),
            conflicts: count(&self.conflicts),
        }
    }
}
