//! The operating system's file system. Linux: pwritev, fdatasync, syncfs, fallocate, flock, statvfs.

use std::fs;
use std::io::{self, ErrorKind, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::{Errno, retry_on_intr};

use super::error::context;
use super::vectored;
use super::{File, FileSystem, Lock, OpenMode};

/// The operating system's file system; stateless.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFileSystem;

impl FileSystem for RealFileSystem {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        context(fs::create_dir_all(dir), "create directory", dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        context(names(dir, |kind| !kind.is_dir()), "list", dir)
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        context(names(dir, |kind| kind.is_dir()), "list directories", dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(path);
        Ok(RealFile::shared(context(file, "create", path)?, path))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(mode == OpenMode::ReadWrite).open(path);
        Ok(RealFile::shared(context(file, "open", path)?, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        // Both names matter when it fails: the outer one is the target, the inner one the file.
        context(context(fs::rename(from, to), "from", from), "rename to", to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        context(fs::remove_file(path), "remove", path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => context(result, "remove directory", dir),
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        context(fs::File::open(dir).and_then(|dir| dir.sync_all()), "fsync directory", dir)
    }

    fn sync_fs(&self, dir: &Path) -> io::Result<()> {
        let dir_file = context(fs::File::open(dir), "syncfs", dir)?;
        context(retry_on_intr(|| rustix::fs::syncfs(&dir_file)), "syncfs", dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let lock = context(lock(path), "lock", path)?;
        Ok(lock.map(|lock| Box::new(lock) as Box<dyn Lock>))
    }

    fn available_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = context(retry_on_intr(|| rustix::fs::statvfs(dir)), "statvfs", dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// The names in `dir` of the kinds that are wanted, sorted.
fn names(dir: &Path, wanted: impl Fn(fs::FileType) -> bool) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if wanted(entry.file_type()?) {
            let not_text = |name| io::Error::new(ErrorKind::InvalidData, format!("the name {name:?} is not UTF-8"));
            names.push(entry.file_name().into_string().map_err(not_text)?);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn lock(path: &Path) -> io::Result<Option<RealLock>> {
    // Not truncated on open: until the lock is ours, the text in it is the holder's.
    let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    match retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        result => result?,
    }
    let pid = format!("{}\n", std::process::id());
    if let Err(error) = file.set_len(0).and_then(|()| file.write_all_at(pid.as_bytes(), 0)) {
        // The pid is a hint; a full disk must not keep a node from starting, for starting is how it gets emptied.
        tracing::debug!(%error, path = %path.display(), "the lock file does not name its holder");
    }
    Ok(Some(RealLock(file)))
}

#[derive(Debug)]
struct RealLock(fs::File);

impl Lock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // Closing is not enough: a child between fork and exec holds a copy of the descriptor, and with it the lock.
        // There is nothing to do about a failure, and closing releases the lock at the latest.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    path: PathBuf,
}

impl RealFile {
    fn shared(file: fs::File, path: &Path) -> Arc<dyn File> {
        Arc::new(Self { file, path: path.to_owned() })
    }
}

impl File for RealFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        context(self.file.read_exact_at(buf, offset), "read", &self.path)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let write = |bufs: &[IoSlice<'_>], offset| Ok(rustix::io::pwritev(&self.file, bufs, offset)?);
        context(vectored::write_all(bufs, offset, write), "write", &self.path)
    }

    fn sync_data(&self) -> io::Result<()> {
        context(retry_on_intr(|| rustix::fs::fdatasync(&self.file)), "fdatasync", &self.path)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(context(self.file.metadata(), "stat", &self.path)?.len())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let reserve = || retry_on_intr(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len));
        context(allocate(&self.file, len, reserve), "fallocate", &self.path)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        context(self.file.set_len(len), "truncate", &self.path)
    }
}

/// Reserves with `reserve`, or sets the length where the file system knows no reservation.
pub(super) fn allocate(file: &fs::File, len: u64, reserve: impl FnOnce() -> Result<(), Errno>) -> io::Result<()> {
    if len == 0 {
        return Ok(()); // EINVAL to the kernel, nothing to us
    }
    match reserve() {
        Err(Errno::OPNOTSUPP) => {
            tracing::debug!(len, "the file system cannot reserve space; only the length is set");
            if file.metadata()?.len() < len { file.set_len(len) } else { Ok(()) }
        }
        result => Ok(result?),
    }
}
