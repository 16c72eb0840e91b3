//! A file system that asks before each call: to count, to wait, or to fail from some call on; or that tells after each one.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use penstock_store::fs::{File, FileSystem, Lock, MemoryFileSystem, OpenMode};

/// Asked with the call's name and path; an error is the call's answer.
type Ask = dyn Fn(&'static str, &Path) -> io::Result<()> + Send + Sync;

/// Told once a call has succeeded, and in the middle of a write.
type Told = dyn Fn(&'static str, &Path) + Send + Sync;

/// Calls that change nothing are not asked about, but for opening, listing and reading.
#[derive(Clone)]
pub struct Hooked {
    inner: Arc<dyn FileSystem>,
    ask: Arc<Ask>,
    told: Option<Arc<Told>>,
}

impl Hooked {
    pub fn shared(
        inner: &MemoryFileSystem,
        ask: impl Fn(&'static str, &Path) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<dyn FileSystem> {
        Arc::new(Self { inner: Arc::new(inner.clone()), ask: Arc::new(ask), told: None })
    }

    /// Also tells. Writes are made in two halves, with a `write half` told in between.
    pub fn telling(
        inner: Arc<dyn FileSystem>,
        ask: impl Fn(&'static str, &Path) -> io::Result<()> + Send + Sync + 'static,
        told: impl Fn(&'static str, &Path) + Send + Sync + 'static,
    ) -> Arc<dyn FileSystem> {
        Arc::new(Self { inner, ask: Arc::new(ask), told: Some(Arc::new(told)) })
    }

    fn file(&self, file: Arc<dyn File>, path: &Path) -> Arc<dyn File> {
        Arc::new(HookedFile { file, path: path.to_owned(), ask: Arc::clone(&self.ask), told: self.told.clone() })
    }

    fn around<T>(&self, call: &'static str, path: &Path, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        around(&*self.ask, self.told.as_deref(), call, path, run)
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

impl FileSystem for Hooked {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.around("create_dir_all", dir, || self.inner.create_dir_all(dir))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.around("list", dir, || self.inner.list(dir))
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.around("list_dirs", dir, || self.inner.list_dirs(dir))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.around("create", path, || self.inner.create(path).map(|file| self.file(file, path)))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.around("open", path, || self.inner.open(path, mode).map(|file| self.file(file, path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.around("rename", to, || self.inner.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.around("remove", path, || self.inner.remove(path))
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.around("remove_dir_all", dir, || self.inner.remove_dir_all(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.around("sync_dir", dir, || self.inner.sync_dir(dir))
    }

    fn sync_fs(&self, dir: &Path) -> io::Result<()> {
        self.around("sync_fs", dir, || self.inner.sync_fs(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.around("lock", path, || self.inner.lock(path))
    }

    fn available_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.inner.available_bytes(dir)
    }
}

struct HookedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    ask: Arc<Ask>,
    told: Option<Arc<Told>>,
}

fn around<T>(
    ask: &Ask,
    told: Option<&Told>,
    call: &'static str,
    path: &Path,
    run: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    ask(call, path)?;
    let done = run()?;
    if let Some(told) = told {
        told(call, path);
    }
    Ok(done)
}

impl HookedFile {
    fn around<T>(&self, call: &'static str, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        around(&*self.ask, self.told.as_deref(), call, &self.path, run)
    }
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl File for HookedFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.around("read", || self.file.read_exact_at(buf, offset))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.around("write", || {
            let Some(told) = &self.told else { return self.file.write_vectored_at(bufs, offset) };
            let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
            let (first, second) = bytes.split_at(bytes.len() / 2);
            self.file.write_all_at(first, offset)?;
            told("write half", &self.path);
            self.file.write_all_at(second, offset + first.len() as u64)
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.around("sync_data", || self.file.sync_data())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.around("allocate", || self.file.allocate(len))
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.around("truncate", || self.file.truncate(len))
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
        let state = self.state.lock().expect("should not be poisoned");
        let patience = Duration::from_secs(20);
        let waited = self.changed.wait_timeout_while(state, patience, |state| state.1 == 0);
        // Without the lock: a panic under it would poison the door for those who come.
        let nobody_came = waited.expect("should not be poisoned").1.timed_out();
        assert!(!nobody_came, "nobody comes to the door");
    }
}
