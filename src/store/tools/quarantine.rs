//! Copies of what was damaged, kept beside the data: `<data directory>/quarantine/<number>-<file name>`. Nothing reads them again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fs::{FileSystem, OpenMode, remove_if_there};

/// The directory's name in the data directory.
pub const DIR_NAME: &str = "quarantine";

const CHUNK: u64 = 1 << 20;

/// The quarantine of one repair: all its files begin with one number.
#[derive(Debug)]
pub struct Quarantine {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    number: u64,
}

impl Quarantine {
    /// Makes the directory, durably, if it is missing.
    ///
    /// # Errors
    /// The I/O error.
    pub fn open(fs: &Arc<dyn FileSystem>, data_dir: &Path) -> io::Result<Self> {
        let dir = data_dir.join(DIR_NAME);
        fs.create_dir_all(&dir)?;
        fs.sync_dir(data_dir)?;
        let number_of = |name: String| name.split_once('-').and_then(|(number, _)| number.parse::<u64>().ok());
        let number = fs.list(&dir)?.into_iter().filter_map(number_of).max().unwrap_or(0) + 1;
        Ok(Self { fs: Arc::clone(fs), dir, number })
    }

    /// Copies a file, durably; answers where it is now. What cannot be read is zeros in the copy.
    ///
    /// # Errors
    /// The I/O error.
    pub fn copy(&self, path: &Path) -> io::Result<PathBuf> {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let from = self.fs.open(path, OpenMode::Read)?;
        let len = from.len()?;
        self.write(&name, |to| {
            let mut chunk = vec![0; CHUNK as usize];
            let mut at = 0;
            while at < len {
                let part = &mut chunk[..(len - at).min(CHUNK) as usize];
                if let Err(error) = from.read_exact_at(part, at) {
                    tracing::warn!(path = %path.display(), offset = at, %error, "unreadable bytes are zeros in the copy");
                    part.fill(0);
                }
                to.write_all_at(part, at)?;
                at += part.len() as u64;
            }
            Ok(())
        })
    }

    /// Writes a text, durably; answers where it is.
    ///
    /// # Errors
    /// The I/O error.
    pub fn note(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        self.write(name, |to| to.write_all_at(text.as_bytes(), 0))
    }

    fn write(&self, name: &str, fill: impl FnOnce(&dyn crate::fs::File) -> io::Result<()>) -> io::Result<PathBuf> {
        let path = self.dir.join(format!("{:04}-{name}", self.number));
        remove_if_there(&*self.fs, &path)?;
        let to = self.fs.create(&path)?;
        fill(&*to)?;
        to.sync_data()?;
        self.fs.sync_dir(&self.dir)?;
        Ok(path)
    }
}
