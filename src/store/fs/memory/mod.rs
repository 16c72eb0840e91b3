//! A file system in memory that keeps what the kernel promises and nothing more: the peer of the real one for tests of
//! power loss, killed processes, failing calls and full disks.
//!
//! ```text
//!  call -> fault by plan? -> state: namespace (names, changes since sync_dir)
//!                                   inode (cached image, durable image, dirty and lost pages) -> image (pages, length)
//!  crash(seed) -> power: each change, page and length kept, dropped or torn
//! ```
//!
//! What it models, strictly where file systems differ:
//!
//! * [`sync_data`](File::sync_data) makes pages (4096 bytes) and length durable; until then a power loss keeps, drops
//!   or tears each page for itself, at 512-byte sectors, and takes any page boundary between the two lengths. A page
//!   that is dropped below a length that is kept leaves zeros.
//! * [`sync_fs`](FileSystem::sync_fs) makes everything durable: the pages and lengths of all files, and all names.
//! * After a failed `sync_data` the pages count as clean: a crash may still find them on disk, but a later successful
//!   sync does not make them durable, a `sync_fs` neither; writing them again does. A failed `sync_fs` does this to all
//!   files, and the next `sync_data` of each that lost something fails as well: the kernel keeps the error for each
//!   open file that has not seen it (errseq_t, Linux 4.13).
//! * Of the changes of names in a directory since its [`sync_dir`](FileSystem::sync_dir), a power loss keeps a prefix;
//!   each directory has its own, a rename between two is in both. A directory whose own name is lost takes its files
//!   along.
//! * [`remove_dir_all`](FileSystem::remove_dir_all) is a change for every name: of each directory below, and at last of
//!   the one above. A power loss may bring it back full, empty or in part, and the removal alone, once durable, takes
//!   along all that was left. A directory made again under the name is another one: the two never mix.
//! * A file is as large as its length, holes included; all files together fit into the capacity.
//!
//! The same calls, the same seed, the same outcome. Absent: write-back before a sync of bytes that are overwritten
//! before it as well (the sector is the old or the last one), clean pages that fall out of the cache after a failed
//! sync, damage to what is at rest (tests do that, with [`overwrite`](MemoryFileSystem::overwrite)), names that a
//! failed `sync_dir` or `sync_fs` loses for good, another order of removal below a directory than by name, a
//! `remove_dir_all` that fails half-way, and more than one device.

mod fault;
mod image;
mod inode;
mod namespace;
mod power;
mod state;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use self::namespace::{InodeId, normal};
use self::state::State;
use super::error::context;
use super::{File, FileSystem, Lock, OpenMode};

pub use fault::{Fault, FaultKind, Operation};

/// The file system in memory; see the module head. Clones are handles of the same one, a [`snapshot`](Self::snapshot)
/// is another one. Paths are absolute or relative to the same root, without `..`; only the root exists at first, and is
/// durable.
#[derive(Clone)]
pub struct MemoryFileSystem {
    state: Arc<Mutex<State>>,
}

/// What was done since the file system was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that writes put into files.
    pub bytes_written: u64,
    /// Successful `sync_data` calls.
    pub syncs: u64,
    /// Successful `sync_dir` calls.
    pub dir_syncs: u64,
    /// Successful `sync_fs` calls.
    pub fs_syncs: u64,
}

impl MemoryFileSystem {
    /// An empty one, of unlimited capacity.
    pub fn new() -> Self {
        Self::from_state(State::new())
    }

    fn from_state(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Sets how many bytes all files together may have. Below what they have, only extending them fails.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity = bytes;
    }

    /// Plans a fault, besides those planned before.
    pub fn fail(&self, fault: Fault) {
        self.state.lock().faults.add(fault);
    }

    /// Drops all faults still to come.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.state.lock().counters
    }

    /// The machine loses power: what the next start finds. `seed` decides about what was not synced. This file system,
    /// its handles and locks are dead. The new one has the same capacity, no faults, and counts from zero.
    #[must_use = "this file system is dead, the new one goes on"]
    pub fn crash(&self, seed: u64) -> Self {
        let mut state = self.state.lock();
        state.dead = true;
        Self::from_state(state.after_power_loss(seed))
    }

    /// The process is killed: all it wrote is there for the next one, and as volatile as before. Otherwise like
    /// [`crash`](Self::crash).
    #[must_use = "this file system is dead, the new one goes on"]
    pub fn crash_process(&self) -> Self {
        let mut state = self.state.lock();
        state.dead = true;
        Self::from_state(state.after_process_loss())
    }

    /// A deep copy, volatile parts included; without locks, handles and faults. `fs.snapshot().crash(seed)` tries a
    /// seed and leaves `fs` alive.
    pub fn snapshot(&self) -> Self {
        Self::from_state(self.state.lock().after_process_loss())
    }

    /// The paths of all files, relative to the root, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.state.lock().names.files().into_iter().map(|(path, _)| path).collect()
    }

    /// All bytes of a file, as a process reads them. Meets no fault; works on a dead file system, as the two below do.
    pub fn dump(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.state.lock();
        context(normal(path).and_then(|path| state.at(&path)?.to_vec()), "dump", path)
    }

    /// Damages a file: the bytes change in the cache and on disk alike. Extends it if need be.
    pub fn overwrite(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        let damage = |path: PathBuf| state.at(&path)?.damage(|image| image.write(bytes, offset).map(drop));
        context(normal(path).and_then(damage), "overwrite", path)
    }

    /// Cuts or extends a file, in the cache and on disk alike.
    pub fn set_len(&self, path: &Path, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let damage = |path: PathBuf| {
            state.at(&path)?.damage(|image| {
                image.set_len(len);
                Ok(())
            })
        };
        context(normal(path).and_then(damage), "set length", path)
    }

    /// One call by path: with the path in its kept form, unless it fails by plan; the error names call and path.
    fn call<T>(
        &self,
        operation: Operation,
        call: &'static str,
        path: &Path,
        body: impl FnOnce(&mut State, &Path) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.state.lock();
        let result = state.admit(operation, &[path]).and_then(|()| body(&mut state, &normal(path)?));
        context(result, call, path)
    }

    fn handle(&self, state: &mut State, id: InodeId, path: &Path, mode: OpenMode) -> Arc<dyn File> {
        state.inode(id).handles += 1;
        Arc::new(MemoryFile { fs: self.clone(), id, path: path.to_owned(), mode })
    }
}

impl Default for MemoryFileSystem {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFileSystem").finish_non_exhaustive()
    }
}

impl FileSystem for MemoryFileSystem {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.call(Operation::Create, "create directory", dir, |state, dir| state.names.create_dir_all(dir))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.call(Operation::List, "list", dir, |state, dir| state.names.list(dir))
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.call(Operation::List, "list directories", dir, |state, dir| state.names.list_dirs(dir))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.call(Operation::Create, "create", path, |state, key| {
            let id = state.create(key)?;
            Ok(self.handle(state, id, path, OpenMode::ReadWrite))
        })
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.call(Operation::Open, "open", path, |state, key| {
            let id = state.names.file(key)?;
            Ok(self.handle(state, id, path, mode))
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let renamed = state.admit(Operation::Rename, &[from, to]);
        let renamed = renamed.and_then(|()| state.names.rename(&normal(from)?, &normal(to)?));
        context(context(renamed, "from", from), "rename to", to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::Remove, "remove", path, |state, path| state.names.unlink(path))
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.call(Operation::Remove, "remove directory", dir, |state, dir| {
            state.names.remove_dir_all(dir)?;
            state.forget_unreachable();
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.call(Operation::SyncDir, "fsync directory", dir, |state, dir| {
            state.names.sync_dir(dir)?;
            state.forget_unreachable();
            state.counters.dir_syncs += 1;
            Ok(())
        })
    }

    fn sync_fs(&self, dir: &Path) -> io::Result<()> {
        context(self.state.lock().sync_fs(dir), "syncfs", dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.call(Operation::Open, "lock", path, |state, path| {
            let id = if state.names.vacant(path).is_ok() { state.create(path)? } else { state.names.file(path)? };
            if !state.locks.insert(path.to_owned()) {
                return Ok(None);
            }
            // A process id that is the same in every run; as with the real one, a full disk leaves it out.
            let _ = state.set_len(id, 0).and_then(|()| state.write(id, &[IoSlice::new(b"1\n")], 0, usize::MAX));
            Ok(Some(Box::new(MemoryLock { fs: self.clone(), path: path.to_owned() }) as Box<dyn Lock>))
        })
    }

    fn available_bytes(&self, dir: &Path) -> io::Result<u64> {
        let state = self.state.lock();
        let dir_exists = || state.names.directory(&normal(dir)?);
        context(state.alive().and_then(|()| dir_exists()).map(|()| state.available_bytes()), "statvfs", dir)
    }
}

#[derive(Debug)]
struct MemoryLock {
    fs: MemoryFileSystem,
    path: PathBuf,
}

impl Lock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.fs.state.lock().locks.remove(&self.path);
    }
}

#[derive(Debug)]
struct MemoryFile {
    fs: MemoryFileSystem,
    id: InodeId,
    path: PathBuf,
    mode: OpenMode,
}

impl MemoryFile {
    /// One call on the handle. `body` gets how many bytes may take effect: all of them, or as many as the planned fault
    /// leaves; its error, if it has one, comes before the fault's.
    fn call(
        &self,
        operation: Operation,
        call: &'static str,
        body: impl FnOnce(&mut State, Option<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.fs.state.lock();
        let result = state.admit_handle(operation, &self.path, self.id).and_then(|fault| {
            body(&mut state, fault.map(|fault| fault.effect_bytes()))?;
            fault.map_or(Ok(()), |fault| Err(fault.error()))
        });
        context(result, call, &self.path)
    }

    fn writable(&self) -> io::Result<()> {
        if self.mode == OpenMode::ReadWrite { Ok(()) } else { Err(Errno::BADF.into()) }
    }
}

impl File for MemoryFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.call(Operation::Read, "read", |state, limit| {
            let len = buf.len().min(limit.unwrap_or(usize::MAX));
            state.inode(self.id).read(&mut buf[..len], offset)
        })
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.call(Operation::Write, "write", |state, limit| {
            self.writable()?;
            state.write(self.id, bufs, offset, limit.unwrap_or(usize::MAX))
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.call(Operation::SyncData, "fdatasync", |state, limit| {
            match limit {
                Some(reached) => state.inode(self.id).sync_failed(reached),
                None => {
                    let inode = state.inode(self.id);
                    inode.sync();
                    // What was lost stays lost, though what was written since is durable.
                    if inode.take_unreported() {
                        return Err(Errno::IO.into());
                    }
                    state.counters.syncs += 1;
                }
            }
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.fs.state.lock();
        context(state.alive().map(|()| state.inode(self.id).len()), "stat", &self.path)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.call(Operation::Allocate, "fallocate", |state, limit| {
            self.writable()?;
            let grows = len > state.inode(self.id).len() && limit.is_none();
            if grows { state.set_len(self.id, len) } else { Ok(()) }
        })
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.call(Operation::Allocate, "truncate", |state, limit| {
            self.writable()?;
            if limit.is_none() { state.set_len(self.id, len) } else { Ok(()) }
        })
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut state = self.fs.state.lock();
        state.inode(self.id).handles -= 1;
        if state.inode(self.id).handles == 0 {
            state.forget_unreachable();
        }
    }
}
