//! Log files whose bytes this process has had in its hands: entries that it wrote or read for a commit, and the last checkpoints.
//! The checkpoint that covers them need not fetch them again.
//!
//! What is kept says nothing about the log. A file is taken from here only where a listing, made since, shows the same name with
//! the tag that the store gave with those bytes: an entry that is gone, or was replaced, is not taken for ours. A store that gives no
//! tags (our own local one does not) is read.
//!
//! One memory for all tables, with a limit: the files that were noted first go first, and are read again when they are needed.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use object_store::path::Path;
use parking_lot::Mutex;

use crate::lake::anchor::plain_tag;

/// Most bytes that are kept, over all tables.
const MAX_BYTES: usize = 32 << 20;

/// Most of one file: a few large ones must not push out everybody's.
const MAX_FILE: usize = 1 << 20;

/// What a file costs besides its bytes.
const OVERHEAD: usize = 256;

#[derive(Debug)]
pub(in crate::lake) struct Memory {
    limit: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    files: HashMap<Path, File>,
    /// The names in the order in which they were noted.
    order: BTreeMap<u64, Path>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct File {
    number: u64,
    tag: String,
    bytes: Bytes,
}

impl Kept {
    fn remove(&mut self, location: &Path) -> Option<File> {
        let file = self.files.remove(location)?;
        self.order.remove(&file.number);
        self.bytes -= file.bytes.len() + OVERHEAD;
        Some(file)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::with_limit(MAX_BYTES)
    }
}

impl Memory {
    pub(super) fn with_limit(limit: usize) -> Self {
        Self { limit, kept: Mutex::default() }
    }

    /// Keeps what lies at `location`, from the store's root, under the tag that the store gave with it.
    pub(super) fn note(&self, location: Path, tag: Option<&str>, bytes: &Bytes) {
        let mut kept = self.kept.lock();
        kept.remove(&location);
        let Some(tag) = tag.map(plain_tag).filter(|_| bytes.len() <= MAX_FILE) else { return };
        let number = kept.next;
        kept.next += 1;
        kept.bytes += bytes.len() + OVERHEAD;
        kept.order.insert(number, location.clone());
        kept.files.insert(location, File { number, tag: tag.to_owned(), bytes: bytes.clone() });
        while kept.bytes > self.limit {
            let Some((_, oldest)) = kept.order.pop_first() else { return };
            kept.remove(&oldest);
        }
    }

    /// Gives up the bytes of `location`, if they are those that a listing shows with this tag. They are needed once.
    pub(super) fn take(&self, location: &Path, tag: &str) -> Option<Bytes> {
        let file = self.kept.lock().remove(location)?;
        (file.tag == plain_tag(tag)).then_some(file.bytes)
    }
}
