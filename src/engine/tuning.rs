//! Settings that change while the engine runs: shown, changed, kept, read again. `config` says which ones and what they may be; here they
//! reach the parts.
//!
//! One change at a time, under one lock: kept first, as far as it is to be kept, then applied, then logged. What cannot be kept is not
//! applied either, so that nobody takes a change for one that survives a restart.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use penstock_store::fs::RealFileSystem;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Engine;
use crate::config::kept::{FILE_NAME, Kept, KeptError};
use crate::config::layers::{Changed, Layers};
use crate::config::tuning::{KEYS, Setting};
use crate::config::{Config, Loaded};

pub use crate::config::Source;
pub use crate::config::layers::Patch;
pub use crate::config::tuning::TuneError;

/// Why a change was not made. Everything is as it was.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Tune(#[from] TuneError),
    #[error("nothing was changed, as it cannot be kept in {}: {source}", path.display())]
    NotKept { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Kept(#[from] KeptError),
}

/// Answer to `GET /v1/tuning`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Every setting that may change, in the order of the configuration file.
    pub settings: Vec<Tunable>,
    /// Where changes are kept.
    pub file: String,
}

/// A setting that may change. Values are numbers, or text as in the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tunable {
    /// `section.key`, as in the configuration file.
    pub key: String,
    /// In force.
    pub value: Value,
    /// Who says so.
    pub source: Source,
    /// Kept for later starts.
    pub kept: Option<Value>,
    /// What it may be.
    pub allowed: String,
    /// What it is.
    pub what: String,
}

/// Answer to `PATCH /v1/tuning`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// Settings with another value now.
    pub changed: Vec<Change>,
    /// Whether it was written down for later starts.
    pub kept: bool,
    /// What will not be as one might think.
    pub notes: Vec<String>,
}

/// A setting with another value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub key: String,
    pub old: Value,
    pub new: Value,
}

impl From<Changed> for Change {
    fn from(changed: Changed) -> Self {
        Self { key: changed.key.to_owned(), old: plain(changed.old), new: plain(changed.new) }
    }
}

fn plain(setting: Setting) -> Value {
    serde_json::to_value(setting).unwrap_or_default()
}

/// What came of reading the configuration again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reread {
    /// Settings with another value now.
    pub changed: Vec<Changed>,
    /// Settings that are other ones than at the start, and take a restart.
    pub fixed: Vec<String>,
}

impl Engine {
    /// The settings that may change.
    pub fn tuning(&self) -> Tuning {
        let shown = self.layers.lock().shown();
        let tunable = |s: crate::config::layers::Shown| Tunable {
            key: s.key.name.to_owned(),
            value: plain(s.value),
            source: s.source,
            kept: s.kept.map(plain),
            allowed: s.key.allowed(),
            what: s.key.what.to_owned(),
        };
        Tuning { settings: shown.into_iter().map(tunable).collect(), file: self.kept_path().display().to_string() }
    }

    fn kept_path(&self) -> PathBuf {
        self.config.data_dir.join(FILE_NAME)
    }

    /// Changes settings, at once. Blocks while it is written down, where it is to be kept.
    ///
    /// # Errors
    /// [`Error`]; nothing was changed then.
    pub fn tune(&self, patch: &Patch) -> Result<Tuned, Error> {
        let mut layers = self.layers.lock();
        let next = layers.with(patch)?;
        if patch.persist {
            // MUST BEFORE it is applied: a change that is told to be kept, and is not, would be gone with the next start.
            let stored = next.kept().store(&RealFileSystem, &self.config.data_dir);
            stored.map_err(|source| Error::NotKept { path: self.kept_path(), source })?;
        }
        let notes = if patch.persist { overruled(&next, patch) } else { Vec::new() };
        let changed = self.turn_to(&mut layers, next, if patch.persist { "kept" } else { "until the next start" });
        Ok(Tuned { changed: changed.into_iter().map(Into::into).collect(), kept: patch.persist, notes })
    }

    /// Takes over settings that were read again, as a start with them would, as far as they may change. Changes that were not kept are
    /// forgotten. Reads what is kept; blocks meanwhile.
    ///
    /// # Errors
    /// [`Error`]; all settings are as they were then.
    pub fn reread(&self, loaded: Loaded) -> Result<Reread, Error> {
        let fixed = loaded.fixed_differences(&self.config.clone().into());
        let kept = Kept::load(&RealFileSystem, &self.config.data_dir)?;
        let mut layers = self.layers.lock();
        let next = layers.reread(loaded, kept)?;
        let changed = self.turn_to(&mut layers, next, "read again");
        Ok(Reread { changed, fixed })
    }

    fn turn_to(&self, layers: &mut Layers, next: Layers, how: &str) -> Vec<Changed> {
        let changed = layers.changes(&next);
        self.apply(&next.config());
        *layers = next;
        for Changed { key, old, new } in &changed {
            tracing::info!(key, %old, %new, how, "setting changed");
        }
        changed
    }

    /// Hands the settings that may change to the parts that have them.
    fn apply(&self, tuned: &Config) {
        // The others stay as they were at the start, whatever a file says by now.
        let mut config = self.config.clone();
        KEYS.iter().for_each(|key| key.put(&mut config, key.get(tuned)));
        self.admission.set_limits(self.limits(&config));
        let options = config.store.options();
        self.store.set_checkpoints(options.checkpoint_interval, options.checkpoint_bytes);
        self.flusher.retune(config.flush);
    }
}

/// What is kept by this change, and will not be in force at the next start.
fn overruled(layers: &Layers, patch: &Patch) -> Vec<String> {
    let ours = layers.overruled().into_iter().filter(|(key, _)| patch.set.contains_key(*key));
    let note = |(key, source)| {
        let by = if source == Source::Environment { "environment" } else { "command line" };
        format!("{key} is also set by the {by}, which wins at the next start")
    };
    ours.map(note).collect()
}

/// The layers that a start begins with.
pub(super) fn layers(loaded: Loaded) -> Result<Layers, KeptError> {
    let kept = Kept::load(&RealFileSystem, &loaded.config.data_dir)?;
    Ok(Layers::new(loaded, kept))
}

/// A change of a running engine, off the async threads.
///
/// # Errors
/// As [`Engine::tune`].
pub async fn tune(engine: Arc<Engine>, patch: Patch) -> Result<Tuned, Error> {
    let changed = tokio::task::spawn_blocking(move || engine.tune(&patch)).await;
    changed.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
