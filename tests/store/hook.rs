//! A file system that asks before each call: to count, to wait, or to fail from some call on.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use penstock_store::fs::{File, FileSystem, Lock, MemoryFileSystem, OpenMode};

/// Asked with the call's name and path; an error is the call's answer.
type Ask = dyn Fn(&'static str, &Path) -> io::Result<()> + Send + Sync;

/// Calls that change nothing are not asked about, but for opening, listing and reading.
#[derive(Clone)]
pub struct Hooked {
    inner: MemoryFileSystem,
    ask: Arc<Ask>,
}

impl Hooked {
    pub fn shared(
        inner: &MemoryFileSystem,
        ask: impl Fn(&'static str, &Path) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<dyn FileSystem> {
        Arc::new(Self { inner: inner.clone(), ask: Arc::new(ask) })
    }

    fn file(&self, file: Arc<dyn File>, path: &Path) -> Arc<dyn File> {
        Arc::new(HookedFile { file, path: path.to_owned(), ask: Arc::clone(&self.ask) })
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

impl FileSystem for Hooked {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        (self.ask)("create_dir_all", dir)?;
        self.inner.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        (self.ask)("list", dir)?;
        self.inner.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        (self.ask)("create", path)?;
        self.inner.create(path).map(|file| self.file(file, path))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        (self.ask)("open", path)?;
        self.inner.open(path, mode).map(|file| self.file(file, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.ask)("rename", to)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        (self.ask)("remove", path)?;
        self.inner.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        (self.ask)("sync_dir", dir)?;
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        (self.ask)("lock", path)?;
        self.inner.lock(path)
    }

    fn available_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.inner.available_bytes(dir)
    }
}

struct HookedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    ask: Arc<Ask>,
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl File for HookedFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        (self.ask)("read", &self.path)?;
        self.file.read_exact_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        (self.ask)("write", &self.path)?;
        self.file.write_vectored_at(bufs, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        (self.ask)("sync_data", &self.path)?;
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        (self.ask)("allocate", &self.path)?;
        self.file.allocate(len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        (self.ask)("truncate", &self.path)?;
        self.file.truncate(len)
    }
}

/// Calls seen so far; from the `limit`th on all fail.
#[derive(Debug, Default)]
pub struct Countdown {
    seen: AtomicU64,
    limit: AtomicU64,
}

impl Countdown {
    pub fn of(limit: u64) -> Arc<Self> {
        Arc::new(Self { seen: AtomicU64::new(0), limit: AtomicU64::new(limit) })
    }

    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::SeqCst)
    }

    pub fn ask(&self) -> io::Result<()> {
        let seen = self.seen.fetch_add(1, Ordering::SeqCst);
        if seen >= self.limit.load(Ordering::SeqCst) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }
}

/// A door that threads wait at while it is shut.
#[derive(Debug, Default)]
pub struct Gate {
    /// Shut, and how many wait.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    pub fn pass(&self) {
        let mut state = self.state.lock().expect("should not be poisoned");
        state.1 += 1;
        self.changed.notify_all();
        while state.0 {
            state = self.changed.wait(state).expect("should not be poisoned");
        }
        state.1 -= 1;
    }

    pub fn shut(&self) {
        self.state.lock().expect("should not be poisoned").0 = true;
    }

    pub fn open(&self) {
        self.state.lock().expect("should not be poisoned").0 = false;
        self.changed.notify_all();
    }

    /// Until somebody waits at the door.
    pub fn await_visitor(&self) {
        let mut state = self.state.lock().expect("should not be poisoned");
        while state.1 == 0 {
            state = self.changed.wait(state).expect("should not be poisoned");
        }
    }
}
