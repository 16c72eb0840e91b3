//! The order of writes and syncs, in blocking calls.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use object_store::{Error, PutMode, PutOptions, PutPayload, Result};
use parking_lot::Mutex;

use super::barrier::Barrier;

/// Directories remembered as synced. Each costs a path; forgetting all of them costs syncs and nothing else.
const MAX_KNOWN: usize = 65_536;

/// What may lie at the target of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Replaced.
    Overwrite,
    /// Nothing, or the put fails.
    Create,
}

impl Mode {
    pub(super) fn of(opts: &PutOptions) -> Option<Self> {
        match opts.mode {
            _ if !opts.attributes.is_empty() => None,
            PutMode::Overwrite => Some(Self::Overwrite),
            PutMode::Create => Some(Self::Create),
            PutMode::Update(_) => None,
        }
    }
}

pub(super) fn failed(source: io::Error) -> Error {
    Error::Generic { store: "file", source: Box::new(source) }
}

/// The lake's directory, and what is known to be durable below it.
#[derive(Debug)]
pub(in crate::lake) struct Disk {
    root: PathBuf,
    barrier: Box<dyn Barrier>,
    /// Directories whose own name is synced, by inode: one that is removed and made again is new.
    known: Mutex<HashMap<PathBuf, u64>>,
    /// The first directory sync that failed.
    broken: OnceLock<String>,
}

impl Disk {
    /// `root` exists, and its own name is durable.
    pub(in crate::lake) fn new(root: PathBuf, barrier: impl Barrier) -> Self {
        Self { root, barrier: Box::new(barrier), known: Mutex::default(), broken: OnceLock::new() }
    }

    /// Whether something may be written at `path`.
    pub(super) fn check(&self, path: &Path) -> io::Result<()> {
        if let Some(reason) = self.broken.get() {
            return Err(io::Error::other(format!("an earlier sync failed, restart to recover: {reason}")));
        }
        if !path.starts_with(&self.root) {
            let reason = format!("{} lies outside the lake {}", path.display(), self.root.display());
            return Err(io::Error::new(ErrorKind::PermissionDenied, reason));
        }
        Ok(())
    }

    /// Writes a whole file.
    pub(super) fn put(&self, path: &Path, payload: &PutPayload, mode: Mode) -> Result<()> {
        self.check(path).map_err(failed)?;
        let staged = stage(path).map_err(failed)?;
        let placed = self.place(&staged, path, payload, mode);
        if placed.is_err() || mode == Mode::Create {
            // A leftover is hidden from listings and does no harm.
            let _ = fs::remove_file(&staged.path);
        }
        placed?;
        // MUST BEFORE the return: a file whose directory entry is lost with the power is lost with its rows, which our
        // log lets go of once the commit that refers to it has returned.
        self.sync_way_to(path).map_err(failed)
    }

    fn place(&self, staged: &Staged, path: &Path, payload: &PutPayload, mode: Mode) -> Result<()> {
        let mut file = &staged.file;
        payload.iter().try_for_each(|part| file.write_all(part)).map_err(failed)?;
        // MUST BEFORE the name shows it: a name may reach the disk before the bytes do, and a commit entry of zeros
        // makes the whole table unreadable.
        self.barrier.file(file, path).map_err(failed)?;
        match mode {
            Mode::Overwrite => fs::rename(&staged.path, path).map_err(failed),
            Mode::Create => fs::hard_link(&staged.path, path).map_err(|source| match source.kind() {
                ErrorKind::AlreadyExists => {
                    Error::AlreadyExists { path: path.display().to_string(), source: Box::new(source) }
                }
                _ => failed(source),
            }),
        }
    }

    /// Removes the files that were staged for `path` and never got its name, and syncs the directory.
    pub(super) fn remove_staged(&self, path: &Path) -> io::Result<()> {
        self.check(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let staged = [name.as_encoded_bytes(), b"#"].concat();
        let entries = match fs::read_dir(parent) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(&staged) {
                fs::remove_file(entry.path())?;
            }
        }
        self.sync_directory(parent)
    }

    /// Syncs a file that already has its name, then the way to it.
    pub(super) fn sync_placed(&self, path: &Path) -> Result<()> {
        self.check(path).map_err(failed)?;
        File::open(path).and_then(|file| self.barrier.file(&file, path)).map_err(failed)?;
        self.sync_way_to(path).map_err(failed)
    }

    /// Syncs the name of `path`, and of every directory between the root and it that is not known to be synced.
    pub(super) fn sync_way_to(&self, path: &Path) -> io::Result<()> {
        self.check(path)?;
        let parent = path.parent().unwrap_or(&self.root);
        // From the root down: a directory counts as known only when all above it do.
        let below_root: Vec<&Path> = parent.ancestors().take_while(|dir| *dir != self.root).collect();
        for directory in below_root.into_iter().rev() {
            let inode = fs::metadata(directory)?.ino();
            if self.known.lock().get(directory) == Some(&inode) {
                continue;
            }
            self.sync_directory(directory.parent().unwrap_or(&self.root))?;
            // MUST AFTER the sync: a directory remembered too early would never be synced, and a power cut would take
            // it with all the files in it.
            self.remember(directory, inode);
        }
        self.sync_directory(parent)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let directory = File::open(path)?;
        self.barrier.directory(&directory, path).inspect_err(|error| {
            // Final: the kernel may report a failed write-back once only, so a second sync that succeeds proves
            // nothing about the names that the first one lost.
            let _ = self.broken.set(format!("{}: {error}", path.display()));
        })
    }

    fn remember(&self, directory: &Path, inode: u64) {
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(directory.to_owned(), inode);
    }
}

struct Staged {
    file: File,
    path: PathBuf,
}

/// A new file beside `path`, under a name that `LocalFileSystem` hides from listings: `#` and digits.
fn stage(path: &Path) -> io::Result<Staged> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("#{}", rand::random::<u64>()));
    let staged = PathBuf::from(name);
    let open = || OpenOptions::new().write(true).create_new(true).open(&staged);
    let file = match (open(), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(parent)?;
            open()?
        }
        (opened, _) => opened?,
    };
    Ok(Staged { file, path: staged })
}

/// Makes the directory and syncs the names of all directories that had to be made for it; its own name in any case, as
/// a process that was killed in between may have made it.
pub(in crate::lake) fn create_directory(path: &Path, barrier: &impl Barrier) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|dir| !dir.exists()).collect();
    fs::create_dir_all(path)?;
    for made in missing.iter().rev().copied().chain([path]) {
        if let Some(parent) = made.parent() {
            barrier.directory(&File::open(parent)?, parent)?;
        }
    }
    Ok(())
}
