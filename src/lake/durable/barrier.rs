//! The two kinds of sync, as a trait so that tests can count them and make them fail.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::Path;

/// Makes something durable.
pub(in crate::lake) trait Barrier: Debug + Send + Sync + 'static {
    /// The bytes and the length of an open file.
    fn file(&self, file: &File, path: &Path) -> io::Result<()>;
    /// The names in an open directory.
    fn directory(&self, directory: &File, path: &Path) -> io::Result<()>;
}

/// The real one.
#[derive(Debug)]
pub(in crate::lake) struct Fsync;

impl Barrier for Fsync {
    fn file(&self, file: &File, _path: &Path) -> io::Result<()> {
        file.sync_all()
    }

    fn directory(&self, directory: &File, _path: &Path) -> io::Result<()> {
        directory.sync_all()
    }
}
