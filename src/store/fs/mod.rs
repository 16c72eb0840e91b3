//! The file system, as the log sees it: a trait, the real one, and one in memory that loses power and fails on command.
//!
//! ```text
//!  the rest of the store -> dyn FileSystem, dyn File
//!                             |-- real     std + rustix; vectored: one loop for short writes
//!                             '-- memory   pages and directory entries are volatile until synced; faults by plan
//! ```
//!
//! Three rules that both keep, and that callers rely on:
//!
//! * **Data and entries become durable separately.** [`File::sync_data`] covers a file's bytes and length, never its
//!   name; [`FileSystem::sync_dir`] covers the names in one directory, never the bytes behind them and never the
//!   directory's own name in its parent (fsync(2): "does not necessarily ensure that the entry in the directory
//!   containing the file has also reached disk"). [`FileSystem::sync_fs`] covers all of it, on the whole device.
//! * **A failed sync is final.** Linux marks the pages whose write-back failed clean, so a second fdatasync has nothing
//!   to write and reports success, while the bytes are on no disk (Rebello et al., "Can Applications Recover from fsync
//!   Failures?", USENIX ATC 2020; PostgreSQL's "fsyncgate" of 2018). Whoever sees one stops, and recovers from disk.
//! * **Errors name the path** and the call; [`raw_os_error`] finds the code below, where `io::ErrorKind` has no word
//!   for it (EIO, EMFILE).
//!
//! Absent: renaming directories, removing one only if it is empty, hard and symbolic links, permissions, direct I/O,
//! memory maps, file times.

mod error;
mod memory;
mod real;
mod vectored;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

pub use error::{PathError, raw_os_error};
pub use memory::{Counters, Fault, FaultKind, MemoryFileSystem, Operation};
pub use real::RealFileSystem;

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Reads only; a write fails with EBADF.
    Read,
    /// Reads and writes; the file must exist.
    ReadWrite,
}

/// Directories and the names in them. Paths are used as given; nothing here knows the data directory.
pub trait FileSystem: Send + Sync + fmt::Debug + 'static {
    /// Creates `dir` and the missing directories above it. Each new one is volatile until its parent's
    /// [`sync_dir`](Self::sync_dir); so is everything in it, however well synced.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// The names in `dir` without its directories, sorted bytewise. `NotFound` if `dir` is missing; a name that is not
    /// UTF-8 is `InvalidData`, for no file of ours has one.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// The names of the directories in `dir`, sorted bytewise: what [`list`](Self::list) leaves out, with its errors.
    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Creates an empty file and opens it to read and write; `AlreadyExists` if the name is taken. The name is volatile
    /// until [`sync_dir`](Self::sync_dir).
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file; `NotFound` if it is missing.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Gives a file another name, atomically, replacing what had it. Volatile until [`sync_dir`](Self::sync_dir) of the
    /// directory, or of both if they differ. Handles stay valid.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name, which may come back after a power loss until [`sync_dir`](Self::sync_dir). Handles stay
    /// valid, and its space is in use until the last one is dropped.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with all that is in it; `Ok` if it is missing, `NotADirectory` if it is a file. On an error
    /// a part of it may be gone. Volatile until [`sync_dir`](Self::sync_dir) of the directory above: until then a power
    /// loss may bring it back, full, empty or in part. Handles stay valid, as after [`remove`](Self::remove).
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in `dir` durable: what was created, renamed or removed in it. Not the files' bytes, and not the
    /// name of `dir` itself.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes everything durable that is on the file system which `dir` lies on: the bytes, lengths and names of all
    /// files, those of other programs included (syncfs). One call for many files; it takes as long as the device needs
    /// for all that is dirty there, whoever wrote it. **An error is final**: see the module head. Which file it met is
    /// not known, and so all that were written since they were last synced are in doubt.
    ///
    /// Linux reports a failed write-back here from 5.8 on; before, `Ok` is no proof. It reports one once, so a syncfs
    /// of another program (`sync -f`) may take the report of a write-back that failed between two calls.
    fn sync_fs(&self, dir: &Path) -> io::Result<()>;

    /// Takes the exclusive, advisory lock on `path`, a file that is created if missing and never removed; `None` if it
    /// is held, by this process or another. Ends with the value or the process. [`lock_holder`] tells who holds it.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;

    /// Bytes that an unprivileged writer may still use on the device below `dir`.
    fn available_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// An open file, read and written by position; there is no shared cursor. Offsets and lengths are in bytes.
#[expect(clippy::len_without_is_empty, reason = "the length is I/O; nobody asks for emptiness alone")]
pub trait File: Send + Sync + fmt::Debug {
    /// Fills `buf` from `offset`; `UnexpectedEof` if the file ends before. Holes read as zeros.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` at `offset`, extending the file if need be. On an error some of it may have been written.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_vectored_at(&[IoSlice::new(buf)], offset)
    }

    /// Writes all of `bufs`, one behind the other, at `offset`; any number of them. On an error a part, from the front,
    /// may have been written.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Makes the bytes and the length durable (fdatasync). **An error is final**: see the module head.
    fn sync_data(&self) -> io::Result<()>;

    /// The length, written or not.
    fn len(&self) -> io::Result<u64>;

    /// Reserves space for the first `len` bytes and extends the file to `len` if it is shorter; new bytes read as
    /// zeros. Never shrinks. Where the file system cannot reserve, only the length changes and a later write may still
    /// meet ENOSPC.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Sets the length, cutting the file or extending it by a hole.
    fn truncate(&self, len: u64) -> io::Result<()>;
}

/// Removes a file if it is there, as what a crash left half-made may be. Volatile, as [`FileSystem::remove`] is.
///
/// # Errors
/// The I/O error.
pub fn remove_if_there(fs: &dyn FileSystem, path: &Path) -> io::Result<()> {
    match fs.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A held lock; dropping it releases it.
#[must_use = "dropping the lock releases it"]
pub trait Lock: Send + Sync + fmt::Debug {}

/// The process that took the lock on `path` last, as it wrote it there; `None` if that cannot be read. For error
/// messages only: the lock is what counts, the number is a hint.
pub fn lock_holder(fs: &dyn FileSystem, path: &Path) -> Option<u32> {
    let file = fs.open(path, OpenMode::Read).ok()?;
    let mut text = vec![0; usize::try_from(file.len().ok()?.min(PID_BYTES_MAX)).ok()?];
    file.read_exact_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text).ok()?.trim().parse().ok()
}

/// Longest lock file that is taken for a process id: ten digits and a line feed, in bytes.
const PID_BYTES_MAX: u64 = 11;
