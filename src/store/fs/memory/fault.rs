//! Faults by plan: which call fails, when, and how.

use std::io;
use std::path::Path;

use rustix::io::Errno;

/// The calls that a [`Fault`] can meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `create` and `create_dir_all`.
    Create,
    /// `open` and `lock`.
    Open,
    /// `write_all_at` and `write_vectored_at`.
    Write,
    /// `sync_data`. Whatever the error, the dirty pages are clean and not durable afterwards.
    SyncData,
    /// `sync_dir`. The changes stay volatile.
    SyncDir,
    /// `sync_fs`. Whatever the error, the dirty pages of all files are clean and not durable afterwards; the changes of
    /// names stay volatile.
    SyncFs,
    /// `rename`.
    Rename,
    /// `remove` and `remove_dir_all`.
    Remove,
    /// `allocate` and `truncate`.
    Allocate,
    /// `read_exact_at`.
    Read,
    /// `list` and `list_dirs`.
    List,
}

/// How a call fails. Unless said otherwise it has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// An I/O error: the disk.
    Eio,
    /// No space left: the file system.
    Enospc,
    /// Too many open files: the process.
    Emfile,
    /// EIO after this many bytes: of a write they are written, of a read they are filled in, of a `sync_data` that many
    /// bytes of dirty pages (whole ones, lowest first) are durable.
    ShortThenError {
        /// Bytes that take effect.
        bytes: usize,
    },
}

/// One planned fault.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Which calls count.
    pub operation: Operation,
    /// Which of the matching calls from now on fails: 1 (or 0) is the next one.
    pub nth: u64,
    /// Only calls count whose path contains this text. A file is matched by the name it was opened with and by the one
    /// it has now; a rename by both.
    pub path_contains: Option<String>,
    /// How it fails.
    pub error: FaultKind,
    /// All matching calls from the nth on fail, rather than this one.
    pub sticky: bool,
}

impl FaultKind {
    pub(super) fn error(self) -> io::Error {
        match self {
            Self::Eio | Self::ShortThenError { .. } => Errno::IO.into(),
            Self::Enospc => Errno::NOSPC.into(),
            Self::Emfile => Errno::MFILE.into(),
        }
    }

    /// Bytes that take effect before the error.
    pub(super) fn effect_bytes(self) -> usize {
        match self {
            Self::ShortThenError { bytes } => bytes,
            Self::Eio | Self::Enospc | Self::Emfile => 0,
        }
    }
}

/// The faults still to come, each with the matching calls seen so far.
#[derive(Default)]
pub(super) struct Plan(Vec<(Fault, u64)>);

impl Plan {
    pub(super) fn add(&mut self, fault: Fault) {
        self.0.push((fault, 0));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts a call, and answers the fault it meets. Of several that are due the oldest wins; the others stay due.
    pub(super) fn meet(&mut self, operation: Operation, paths: &[&Path]) -> Option<FaultKind> {
        let mut due = None;
        for (index, (fault, seen)) in self.0.iter_mut().enumerate() {
            if fault.matches(operation, paths) {
                *seen += 1;
                if *seen >= fault.nth {
                    due = due.or(Some(index));
                }
            }
        }
        let index = due?;
        let fault = &self.0[index].0;
        let kind = fault.error;
        if !fault.sticky {
            self.0.remove(index);
        }
        Some(kind)
    }
}

impl Fault {
    fn matches(&self, operation: Operation, paths: &[&Path]) -> bool {
        let within = |text: &String| paths.iter().any(|path| path.to_string_lossy().contains(text.as_str()));
        self.operation == operation && self.path_contains.as_ref().is_none_or(within)
    }
}
