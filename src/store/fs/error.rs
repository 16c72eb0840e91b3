//! An I/O error with the call and the path that met it. The kind stays, so callers match on it as usual.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What an [`io::Error`] of this module carries inside. Shown as `fdatasync data/0/7.wal: Input/output error (os error
/// 5)`.
#[derive(Debug)]
pub struct PathError {
    /// The call, by its usual name.
    pub call: &'static str,
    /// The path as the caller gave it; of a handle, the path it was opened with.
    pub path: PathBuf,
    /// What the call answered.
    pub cause: io::Error,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.call, self.path.display(), self.cause)
    }
}

/// The cause is part of the text, so it is no `source` as well: a printed chain would say it twice.
impl std::error::Error for PathError {}

/// The operating system's code, also from below a [`PathError`] (`io::Error::raw_os_error` answers `None` there).
pub fn raw_os_error(error: &io::Error) -> Option<i32> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<PathError>());
    inner.map_or_else(|| error.raw_os_error(), |inner| raw_os_error(&inner.cause))
}

/// Adds call and path to a failed result.
pub(super) fn context<T, E: Into<io::Error>>(result: Result<T, E>, call: &'static str, path: &Path) -> io::Result<T> {
    result.map_err(|cause| {
        let cause = cause.into();
        io::Error::new(cause.kind(), PathError { call, path: path.to_owned(), cause })
    })
}
