//! Settings that were changed while the server ran and are kept for later starts: `tuning.toml` in the data directory.
//!
//! Deliberately a commented TOML file and no binary one with a checksum: it is for people, too, who may read it, correct it or remove
//! it while the server is stopped. It is replaced as a whole (a new file, synced, renamed, the directory synced), so that a crash leaves
//! the old one or the new one; what does not read as written is refused at a start, by its key, and never skipped.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::{Format, Toml};
use penstock_store::fs::{FileSystem, OpenMode, remove_if_there};
use serde_json::Value;

use super::tuning::{KEYS, Key, Setting};

#[cfg(test)]
mod tests;

/// The file's name in the data directory.
pub const FILE_NAME: &str = "tuning.toml";
/// Where the next one is written.
const NEXT_FILE_NAME: &str = "tuning.toml.new";
/// The format that is written and read.
const VERSION: u64 = 1;
/// A file that is longer is none of ours, bytes.
const MAX_LEN: u64 = 64 << 10;

const HEAD: &str = "\
# Settings that were changed while the server ran, and kept (penstock tune --persist). They win over the configuration file; the
# environment and the command line win over them. `penstock tune --persist --reset KEY` takes one back; so does removing its line, or
# this file, while the server is stopped.
";

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    #[error("reading {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} cannot be used: {what}", path.display())]
    Invalid { path: PathBuf, what: String },
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept(BTreeMap<&'static str, Setting>);

impl Kept {
    /// A setting's value, if one is kept.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Setting> {
        self.0.get(key).copied()
    }

    /// Keeps a value, or none.
    pub fn put(&mut self, key: &'static str, value: Option<Setting>) {
        match value {
            Some(value) => drop(self.0.insert(key, value)),
            None => drop(self.0.remove(key)),
        }
    }

    /// The file's text.
    fn encode(&self) -> String {
        let mut text = format!("{HEAD}version = {VERSION}\n");
        for key in KEYS {
            let Some(value) = self.get(key.name) else { continue };
            // Infallible: a string takes everything.
            let _ = match value {
                Setting::Count(_) | Setting::Part(_) => writeln!(text, "{} = {value}", key.name),
                Setting::Size(_) | Setting::Time(_) => writeln!(text, "{} = \"{value}\"", key.name),
            };
        }
        text
    }

    /// Reads the file's text.
    fn decode(text: &str) -> Result<Self, String> {
        let value: Value = Figment::from(Toml::string(text)).extract().map_err(|error| error.to_string())?;
        let mut kept = Self::default();
        let mut version = None;
        for (section, inner) in value.as_object().into_iter().flatten() {
            let Some(inner) = inner.as_object() else {
                if section != "version" {
                    return Err(format!("there is no setting {section}"));
                }
                version = inner.as_u64();
                continue;
            };
            for (name, value) in inner {
                let key = Key::named(&format!("{section}.{name}")).map_err(|error| error.to_string())?;
                kept.put(key.name, Some(key.read(value).map_err(|error| error.to_string())?));
            }
        }
        match version {
            Some(VERSION) => Ok(kept),
            Some(other) => Err(format!("its version is {other}; this build reads version {VERSION}")),
            None => Err(format!("it does not say version = {VERSION}")),
        }
    }

    /// What is kept in a data directory; nothing if it has no such file.
    ///
    /// # Errors
    /// The I/O error, or what is wrong with the file.
    pub fn load(fs: &dyn FileSystem, dir: &Path) -> Result<Self, KeptError> {
        let path = dir.join(FILE_NAME);
        let reading = |source| KeptError::Io { path: path.clone(), source };
        let file = match fs.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            opened => opened.map_err(reading)?,
        };
        let invalid = |what| KeptError::Invalid { path: path.clone(), what };
        let len = file.len().map_err(reading)?;
        if len > MAX_LEN {
            return Err(invalid(format!("it has {len} bytes")));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0).map_err(reading)?;
        let text = String::from_utf8(bytes).map_err(|_| invalid("it is no text".to_owned()))?;
        Self::decode(&text).map_err(invalid)
    }

    /// Replaces the file; after a crash it is the old one or the new one, whole.
    ///
    /// # Errors
    /// The I/O error; the old file is in place then, or, if only the last sync failed, perhaps the new one.
    pub fn store(&self, fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
        let (path, next) = (dir.join(FILE_NAME), dir.join(NEXT_FILE_NAME));
        remove_if_there(fs, &next)?;
        let file = fs.create(&next)?;
        file.write_all_at(self.encode().as_bytes(), 0)?;
        // MUST BEFORE the rename: the name could reach the disk before the bytes, and the node would not start.
        file.sync_data()?;
        fs.rename(&next, &path)?;
        fs.sync_dir(dir)
    }
}
