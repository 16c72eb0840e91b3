//! Segments that are ready for use, made off the owner's thread.
//!
//! A file is preallocated *and written once*: a sync into written blocks is about twice as fast as one into fresh blocks, because
//! the file system has no extent to convert. One file of the pool is the reserve: only groups without rows may take it, and rows
//! are written only while it is there, so that a full disk can still record the seals and commits that empty it.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::segment::HEADER_LEN;
use crate::fs::{File, FileSystem, OpenMode, remove_if_there};

/// Files kept for groups without rows.
const RESERVE: usize = 1;
/// Files kept ready beside the reserve.
const READY: usize = 1;
/// Pause after a failed preallocation.
const RETRY_EVERY: Duration = Duration::from_millis(500);
const ZERO_CHUNK: usize = 1 << 20;
const LEFTOVER_NAMES: [&str; 2] = [STARTING_NAME, super::owner::OVERSIZED_NAME];
const SPARE_PREFIX: &str = "spare-";
/// What a start calls a segment that it makes for itself, until it has its name.
const STARTING_NAME: &str = "starting";

/// A preallocated file without a header.
#[derive(Debug)]
pub struct Spare {
    /// Its name for now.
    pub path: PathBuf,
    /// The file, as long as a segment.
    pub file: Arc<dyn File>,
}

#[derive(Debug, Default)]
struct Inner {
    ready: Vec<Spare>,
    /// Files that a segment was recycled into; they need no zeros.
    recycled: VecDeque<PathBuf>,
    /// Why the last attempt to make a file failed; none once all files are there.
    failed: Option<String>,
    next_name: u64,
    stopping: bool,
}

#[derive(Debug)]
struct Shared {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    /// File length, header page included.
    file_len: u64,
    /// Most files that are kept for later uses.
    keep: usize,
    inner: Mutex<Inner>,
    changed: Condvar,
}

/// The ready segments of one shard, and the thread that makes them.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// There is no segment, and none can be made now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no log segment can be preallocated: {0}")]
pub struct NoSegment(pub String);

impl Pool {
    /// Takes over the spare files in `dir` that have the right length, and starts filling up. Of the files that are given back it
    /// keeps up to `keep`: as many as one checkpoint frees, for a file that is made anew has to be written twice.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn start(fs: Arc<dyn FileSystem>, dir: &Path, capacity: u64, keep: usize) -> io::Result<Self> {
        let file_len = HEADER_LEN + capacity;
        let mut inner = Inner::default();
        for name in fs.list(dir)? {
            if LEFTOVER_NAMES.contains(&name.as_str()) {
                // What a crash or a full disk left half-made keeps the room that others need.
                fs.remove(&dir.join(name))?;
            } else if let Some(number) = spare_number(&name) {
                inner.next_name = inner.next_name.max(number.saturating_add(1));
                inner.recycled.push_back(dir.join(name));
            }
        }
        let shared = Arc::new(Shared {
            fs,
            dir: dir.to_owned(),
            file_len,
            keep,
            inner: Mutex::new(inner),
            changed: Condvar::new(),
        });
        let worker = EndNoticed(Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("penstock-prealloc".to_owned());
        let thread = thread.spawn(move || worker.0.fill_until_stopped())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// A file for the next segment; waits while one is being made.
    ///
    /// # Errors
    /// [`NoSegment`] while the disk has no room; with `reserve` only once the reserve is used up too.
    pub fn take(&self, reserve: bool) -> Result<Spare, NoSegment> {
        let left = if reserve { 0 } else { RESERVE };
        let mut inner = self.wait_for(left + 1)?;
        let spare = inner.ready.remove(0);
        self.shared.changed.notify_all();
        Ok(spare)
    }

    /// Whether rows may be written at all; waits while the reserve is being made.
    ///
    /// MUST BEFORE rows go into a segment that was the reserve: they could fill it, and the seals and commits that would empty the
    /// disk would have no place left.
    ///
    /// # Errors
    /// [`NoSegment`] while the disk has no room for the reserve.
    pub fn check_reserve(&self) -> Result<(), NoSegment> {
        self.wait_for(RESERVE).map(drop)
    }

    fn wait_for(&self, files: usize) -> Result<MutexGuard<'_, Inner>, NoSegment> {
        let mut inner = self.shared.inner.lock();
        loop {
            if inner.ready.len() >= files {
                return Ok(inner);
            }
            if let Some(reason) = &inner.failed {
                return Err(NoSegment(reason.clone()));
            }
            self.shared.changed.wait(&mut inner);
        }
    }

    /// Gives back segments whose content is no longer needed: paths and file lengths. Not on the owner's thread: a directory is
    /// synced.
    ///
    /// # Errors
    /// If a file can be neither renamed nor removed, or the directory not synced.
    pub fn recycle(&self, segments: impl IntoIterator<Item = (PathBuf, u64)>) -> io::Result<()> {
        let mut spares = Vec::new();
        for (path, len) in segments {
            let name = {
                let mut inner = self.shared.inner.lock();
                let wanted = spares.len() + inner.ready.len() + inner.recycled.len() < self.shared.keep;
                (wanted && len == self.shared.file_len).then(|| {
                    inner.next_name += 1;
                    format!("{SPARE_PREFIX}{}", inner.next_name - 1)
                })
            };
            match name {
                Some(name) => {
                    let spare = self.shared.dir.join(name);
                    self.shared.fs.rename(&path, &spare)?;
                    spares.push(spare);
                }
                None => self.shared.fs.remove(&path)?,
            }
        }
        // MUST BEFORE the files are written again: if an old name came back over new content, the log would seem damaged.
        self.shared.fs.sync_dir(&self.shared.dir)?;
        self.shared.inner.lock().recycled.extend(spares);
        self.shared.changed.notify_all();
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.inner.lock().stopping = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the preallocating thread panicked");
        }
    }
}

/// Tells the owner if the thread is gone: it would wait for a file for ever.
struct EndNoticed(Arc<Shared>);

impl Drop for EndNoticed {
    fn drop(&mut self) {
        self.0.inner.lock().failed = Some("the preallocating thread has ended".to_owned());
        self.0.changed.notify_all();
    }
}

/// A file for the segment in which a start goes on: a spare one if there is one, for a full disk must not keep a node from starting.
///
/// # Errors
/// The I/O error; without a spare file, also if the disk is full.
pub fn claim(fs: &dyn FileSystem, dir: &Path, capacity: u64) -> io::Result<Spare> {
    let file_len = HEADER_LEN + capacity;
    // MUST BEFORE a spare file is written: the one that was cut short may have given it its name without a sync, and a segment's name
    // that comes back over other content is a log that seems damaged.
    fs.sync_dir(dir)?;
    for name in fs.list(dir)?.iter().filter(|name| spare_number(name).is_some()) {
        let path = dir.join(name);
        let file = fs.open(&path, OpenMode::ReadWrite)?;
        if file.len()? == file_len {
            return Ok(Spare { path, file });
        }
    }
    let path = dir.join(STARTING_NAME);
    remove_if_there(fs, &path)?;
    let file = fs.create(&path)?;
    file.allocate(file_len)?;
    Ok(Spare { path, file })
}

fn spare_number(name: &str) -> Option<u64> {
    name.strip_prefix(SPARE_PREFIX)?.parse().ok()
}

impl Shared {
    fn fill_until_stopped(&self) {
        let mut inner = self.inner.lock();
        while !inner.stopping {
            if inner.ready.len() >= READY + RESERVE {
                self.changed.wait(&mut inner);
                continue;
            }
            let recycled = inner.recycled.pop_front();
            let name = inner.next_name;
            inner.next_name += u64::from(recycled.is_none());
            drop(inner);
            let made = match recycled {
                Some(path) => self.reuse(path),
                None => self.make(&self.dir.join(format!("{SPARE_PREFIX}{name}"))).map(Some),
            };
            inner = self.inner.lock();
            match made {
                Ok(Some(spare)) => {
                    inner.ready.push(spare);
                    if inner.ready.len() > RESERVE && inner.failed.take().is_some() {
                        tracing::info!(dir = %self.dir.display(), "log segments can be preallocated again");
                    }
                    self.changed.notify_all();
                }
                Ok(None) => {}
                Err(error) => {
                    if inner.failed.is_none() {
                        tracing::warn!(dir = %self.dir.display(), %error, "no log segment can be preallocated; appends are refused");
                    }
                    inner.failed = Some(error.to_string());
                    self.changed.notify_all();
                    self.changed.wait_for(&mut inner, RETRY_EVERY);
                }
            }
        }
    }

    /// A file left over from an earlier use; one of another length is of no use.
    fn reuse(&self, path: PathBuf) -> io::Result<Option<Spare>> {
        let file = self.fs.open(&path, OpenMode::ReadWrite)?;
        if file.len()? == self.file_len {
            return Ok(Some(Spare { path, file }));
        }
        self.fs.remove(&path)?;
        Ok(None)
    }

    fn make(&self, path: &Path) -> io::Result<Spare> {
        let file = self.fs.create(path)?;
        let filled = file.allocate(self.file_len).and_then(|()| self.write_zeros(&*file));
        match filled {
            Ok(()) => Ok(Spare { path: path.to_owned(), file }),
            Err(error) => {
                // Half a file would keep the room that others need.
                if let Err(remove) = self.fs.remove(path) {
                    tracing::warn!(path = %path.display(), error = %remove, "a half-made log segment stays behind");
                }
                Err(error)
            }
        }
    }

    fn write_zeros(&self, file: &dyn File) -> io::Result<()> {
        let zeros = vec![0; ZERO_CHUNK];
        let mut at = 0;
        while at < self.file_len {
            let len = (self.file_len - at).min(ZERO_CHUNK as u64) as usize;
            file.write_all_at(&zeros[..len], at)?;
            at += len as u64;
        }
        file.sync_data()
    }
}
