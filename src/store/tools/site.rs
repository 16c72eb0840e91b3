//! A stopped node's data directory, held so that no server starts meanwhile.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::OpenError;
use crate::fs::{self, FileSystem, Lock, OpenMode};
use crate::manifest::{self, Manifest};
use crate::options;
use crate::store::LOCK_FILE;

/// A data directory that is locked.
#[derive(Debug)]
pub struct Site {
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    /// The data directory.
    pub dir: PathBuf,
    /// The lanes' directories, in their order.
    pub lane_dirs: Vec<PathBuf>,
    _lock: Box<dyn Lock>,
}

impl Site {
    /// Locks the data directory. No lanes are those of a node that was given none.
    ///
    /// # Errors
    /// [`OpenError::Locked`] while a server runs; no data directory; or an I/O error.
    pub fn open(fs: &Arc<dyn FileSystem>, dir: &Path, lanes: &[PathBuf]) -> Result<Self, OpenError> {
        // MUST BEFORE the lock, which makes its file: a directory that is none of ours stays as it is.
        let has_wal = |names: Vec<String>| names.iter().any(|name| name == "wal" || name.starts_with("wal-"));
        if fs.open(&dir.join(manifest::FILE_NAME), OpenMode::Read).is_err()
            && !fs.list_dirs(dir).map_err(OpenError::io(format!("reading {}", dir.display()))).map(has_wal)?
        {
            let what = "this is not a data directory: it has neither a manifest nor a log".to_owned();
            return Err(OpenError::Layout { path: dir.to_owned(), what });
        }
        let lock_path = dir.join(LOCK_FILE);
        let lock = fs.lock(&lock_path).map_err(OpenError::io(format!("locking {}", dir.display())))?;
        let Some(lock) = lock else {
            return Err(OpenError::Locked { holder: fs::lock_holder(&**fs, &lock_path), path: dir.to_owned() });
        };
        let lane_dirs = options::lane_dirs(dir, lanes);
        Ok(Self { fs: Arc::clone(fs), dir: dir.to_owned(), lane_dirs, _lock: lock })
    }

    /// The node's manifest.
    ///
    /// # Errors
    /// It is missing, damaged, of the version before lanes, or of a node with another number of lanes.
    pub fn manifest(&self) -> Result<Manifest, OpenError> {
        let path = self.dir.join(manifest::FILE_NAME);
        let layout = |what: &str| OpenError::Layout { path: path.clone(), what: what.to_owned() };
        let found =
            Manifest::load(&*self.fs, &self.dir)?.ok_or_else(|| layout("the manifest is missing; restore it"))?;
        if found.version == manifest::VERSION_1 {
            return Err(layout("a directory of format version 1; a start of this build brings it to the present one"));
        }
        let configured = u32::try_from(self.lane_dirs.len()).unwrap_or(u32::MAX);
        if found.lanes != configured {
            return Err(OpenError::CountChanged { what: "lanes", stored: found.lanes, configured });
        }
        Ok(found)
    }
}
