//! Everything behind the lock: names, files, locks, faults, space.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::Counters;
use super::fault::{FaultKind, Operation, Plan};
use super::image;
use super::inode::Inode;
use super::namespace::{InodeId, Namespace, normal};
use super::power::PowerLoss;

pub(super) struct State {
    pub(super) names: Namespace,
    pub(super) inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    pub(super) locks: BTreeSet<PathBuf>,
    pub(super) faults: Plan,
    pub(super) counters: Counters,
    /// Bytes that all files together may have.
    pub(super) capacity: u64,
    /// Set by a crash; every call fails from then on.
    pub(super) dead: bool,
}

impl State {
    pub(super) fn new() -> Self {
        Self::with(Namespace::new(), BTreeMap::new(), 0, u64::MAX)
    }

    fn with(names: Namespace, inodes: BTreeMap<InodeId, Inode>, next_inode: InodeId, capacity: u64) -> Self {
        let (locks, faults, counters) = (BTreeSet::new(), Plan::default(), Counters::default());
        Self { names, inodes, next_inode, locks, faults, counters, capacity, dead: false }
    }

    pub(super) fn alive(&self) -> io::Result<()> {
        if self.dead { Err(io::Error::other("the file system has crashed")) } else { Ok(()) }
    }

    /// The start of every call by path: it fails on a dead file system, or by plan.
    pub(super) fn admit(&mut self, operation: Operation, paths: &[&Path]) -> io::Result<()> {
        self.alive()?;
        self.faults.meet(operation, paths).map_or(Ok(()), |fault| Err(fault.error()))
    }

    /// The same for a handle, whose call may take a part of its effect before it fails.
    pub(super) fn admit_handle(
        &mut self,
        operation: Operation,
        opened_as: &Path,
        id: InodeId,
    ) -> io::Result<Option<FaultKind>> {
        self.alive()?;
        if self.faults.is_empty() {
            return Ok(None);
        }
        let name = self.names.files().into_iter().find(|(_, file)| *file == id).map(|(name, _)| name);
        let paths: Vec<_> = std::iter::once(opened_as).chain(name.as_deref()).collect();
        Ok(self.faults.meet(operation, &paths))
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<InodeId> {
        self.names.vacant(path)?;
        let id = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(id, Inode::default());
        self.names.link(path, id)?;
        Ok(id)
    }

    pub(super) fn inode(&mut self, id: InodeId) -> &mut Inode {
        self.inodes.get_mut(&id).expect("should be kept while it has a name or a handle")
    }

    /// The file at `path`, whatever became of the process.
    pub(super) fn at(&mut self, path: &Path) -> io::Result<&mut Inode> {
        let id = self.names.file(path)?;
        Ok(self.inode(id))
    }

    /// Writes up to `limit` bytes of `bufs`; if the device is full, those that fit, like the kernel.
    pub(super) fn write(&mut self, id: InodeId, bufs: &[IoSlice<'_>], offset: u64, limit: usize) -> io::Result<()> {
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        let end = image::end(offset, total)?;
        let fits = self.largest_len(id, end).saturating_sub(offset);
        let wanted = total.min(limit);
        let mut left = usize::try_from(fits).map_or(wanted, |fits| wanted.min(fits));
        let short = left < wanted;
        let mut at = offset;
        for buf in bufs {
            let part = &buf[..buf.len().min(left)];
            self.inode(id).write(part, at)?;
            at += part.len() as u64;
            left -= part.len();
        }
        self.counters.bytes_written += at - offset;
        if short { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    pub(super) fn set_len(&mut self, id: InodeId, len: u64) -> io::Result<()> {
        if i64::try_from(len).is_err() {
            return Err(ErrorKind::InvalidInput.into());
        }
        if self.largest_len(id, len) < len {
            return Err(Errno::NOSPC.into());
        }
        self.inode(id).set_len(len);
        Ok(())
    }

    /// What a file that wants to be `wanted` bytes long may be; at least what it is.
    fn largest_len(&mut self, id: InodeId, wanted: u64) -> u64 {
        let len = self.inode(id).len();
        if wanted <= len { len } else { wanted.min(len.saturating_add(self.available_bytes())) }
    }

    pub(super) fn available_bytes(&self) -> u64 {
        let named: BTreeSet<_> = self.names.named().collect();
        let in_use = self.inodes.iter().filter(|(id, inode)| inode.handles > 0 || named.contains(id));
        self.capacity.saturating_sub(in_use.map(|(_, inode)| inode.len()).sum())
    }

    /// Syncs everything. By plan it fails instead: the dirty pages of all files are clean then and not durable, and the
    /// names stay as volatile as they were.
    pub(super) fn sync_fs(&mut self, dir: &Path) -> io::Result<()> {
        self.alive()?;
        self.names.directory(&normal(dir)?)?;
        let admitted = self.admit(Operation::SyncFs, &[dir]);
        for inode in self.inodes.values_mut() {
            if admitted.is_ok() { inode.sync() } else { inode.whole_sync_failed() }
        }
        admitted?;
        self.names.sync_all();
        self.forget_unreachable();
        self.counters.fs_syncs += 1;
        Ok(())
    }

    /// Forgets the files that nobody can reach any more, not even after a crash.
    pub(super) fn forget_unreachable(&mut self) {
        let mut reachable = self.names.remembered();
        reachable.extend(self.names.named());
        self.inodes.retain(|id, inode| inode.handles > 0 || reachable.contains(id));
    }

    pub(super) fn after_power_loss(&self, seed: u64) -> Self {
        let mut power = PowerLoss::new(seed);
        let names = self.names.after_power_loss(&mut power);
        let files = names.files().into_iter();
        let left = files.map(|(_, id)| (id, self.inodes[&id].after_power_loss(&mut power))).collect();
        Self::with(names, left, self.next_inode, self.capacity)
    }

    pub(super) fn after_process_loss(&self) -> Self {
        let inodes = self.inodes.iter().map(|(id, inode)| (*id, inode.after_process_loss())).collect();
        let mut next = Self::with(self.names.clone(), inodes, self.next_inode, self.capacity);
        next.forget_unreachable();
        next
    }
}
