//! A file without its name: what processes see (the page cache) and what is on disk.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::image::{Image, PAGE_BYTES, page_end};
use super::power::{Fate, PowerLoss};

#[derive(Clone, Default)]
pub(super) struct Inode {
    /// What reads return.
    cached: Image,
    /// What is on disk for certain.
    durable: Image,
    /// Pages that the next sync writes.
    dirty: BTreeSet<u64>,
    /// Pages that a failed sync marked clean: perhaps on disk, and no later sync writes them, unless they are written
    /// again.
    lost: BTreeSet<u64>,
    /// The next sync makes the length durable as it is.
    length_dirty: bool,
    /// Something was lost by a sync of the whole file system: nobody has told that to this file's users yet.
    unreported: bool,
    /// Open handles of this process.
    pub(super) handles: u64,
}

impl Inode {
    pub(super) fn len(&self) -> u64 {
        self.cached.len()
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.cached.read(buf, offset)
    }

    pub(super) fn to_vec(&self) -> io::Result<Vec<u8>> {
        self.cached.to_vec()
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let len = self.cached.len();
        if let Some(pages) = self.cached.write(bytes, offset)? {
            self.touch(pages);
        }
        self.length_dirty |= self.cached.len() != len;
        Ok(())
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.length_dirty |= self.cached.len() != len;
        let changed = self.cached.set_len(len);
        self.touch(changed);
    }

    fn touch(&mut self, pages: impl IntoIterator<Item = u64>) {
        for page in pages {
            self.lost.remove(&page);
            self.dirty.insert(page);
        }
    }

    pub(super) fn sync(&mut self) {
        for page in std::mem::take(&mut self.dirty) {
            self.write_back(page);
        }
        if std::mem::take(&mut self.length_dirty) {
            self.durable.set_len(self.cached.len());
        }
    }

    /// A sync that fails after `reached` bytes of the dirty pages got to disk. The others are clean from now on.
    pub(super) fn sync_failed(&mut self, reached: usize) {
        let mut dirty = std::mem::take(&mut self.dirty).into_iter();
        for page in dirty.by_ref().take(reached / PAGE_BYTES) {
            self.write_back(page);
        }
        self.lost.extend(dirty);
        self.length_dirty = false;
    }

    /// A failed sync of the whole file system: its caller is told, and besides whoever syncs this file next.
    pub(super) fn whole_sync_failed(&mut self) {
        self.unreported |= !self.dirty.is_empty() || self.length_dirty;
        self.sync_failed(0);
    }

    /// Whether the next sync has to tell that something was lost; once.
    pub(super) fn take_unreported(&mut self) -> bool {
        std::mem::take(&mut self.unreported)
    }

    /// A page on disk counts as part of the file: the length on disk grows to cover it.
    fn write_back(&mut self, page: u64) {
        self.durable.set_page(page, self.cached.page(page).cloned());
        let covered = page_end(page).min(self.cached.len());
        if covered > self.durable.len() {
            self.durable.set_len(covered);
        }
    }

    /// Changes what is in the cache and on disk alike: damage, not a write.
    pub(super) fn damage(&mut self, mut change: impl FnMut(&mut Image) -> io::Result<()>) -> io::Result<()> {
        change(&mut self.cached)?;
        change(&mut self.durable)
    }

    /// The file as a new process finds it after the machine lost power; all of it is durable then.
    pub(super) fn after_power_loss(&self, power: &mut PowerLoss) -> Self {
        let mut disk = self.durable.clone();
        for &page in self.dirty.union(&self.lost) {
            let new = self.cached.page(page).cloned();
            match power.page() {
                Fate::Kept => disk.set_page(page, new),
                Fate::Dropped => {}
                Fate::Torn(sectors) => {
                    let old = disk.page(page).cloned();
                    disk.set_page(page, Some(Arc::new(sectors.mix(old.as_deref(), new.as_deref()))));
                }
            }
        }
        // At the longer length first, so that set_len drops the kept pages that the chosen one leaves out.
        let (durable, cached) = (self.durable.len(), self.cached.len());
        if cached > durable {
            disk.set_len(cached);
        }
        disk.set_len(power.length(durable, cached));
        Self { cached: disk.clone(), durable: disk, ..Self::default() }
    }

    /// The file as the next process finds it after this one was killed: the page cache is the kernel's and survives. Of errors that
    /// nobody asked for it is not told: the stricter case, for it believes what it reads.
    pub(super) fn after_process_loss(&self) -> Self {
        Self { handles: 0, unreported: false, ..self.clone() }
    }
}
