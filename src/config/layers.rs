//! Settings while the server runs: what was loaded, what was kept of earlier changes, and what was changed since the start.
//!
//! A change of a running server wins over everything until the next start. One that is kept wins over the configuration file at
//! later starts, and not over the environment and the command line: who starts a server by hand has the last word.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Config;
use super::kept::Kept;
use super::loaded::{Loaded, Source};
use super::tuning::{KEYS, Key, Setting, TuneError, contradiction};

#[cfg(test)]
mod tests;

/// What is to change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Patch {
    /// Values by key; null takes a change back.
    pub set: BTreeMap<String, Value>,
    /// Whether it is to hold at later starts, too.
    pub persist: bool,
}

/// A setting that has another value now.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Changed {
    pub key: &'static str,
    pub old: Setting,
    pub new: Setting,
}

/// A setting, as it is shown.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    pub key: &'static Key,
    pub value: Setting,
    pub source: Source,
    /// What is kept for the next start, also where something stronger wins.
    pub kept: Option<Setting>,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Layers {
    base: Loaded,
    kept: Kept,
    running: BTreeMap<&'static str, Setting>,
}

impl Layers {
    /// As a start has them.
    #[must_use]
    pub fn new(base: Loaded, kept: Kept) -> Self {
        Self { base, kept, running: BTreeMap::new() }
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> Config {
        let mut config = self.base.config.clone();
        KEYS.iter().for_each(|key| key.put(&mut config, self.show(key).value));
        config
    }

    /// What is kept for later starts.
    #[must_use]
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// The settings that may change, in the order of the file.
    #[must_use]
    pub fn shown(&self) -> Vec<Shown> {
        KEYS.iter().map(|key| self.show(key)).collect()
    }

    fn show(&self, key: &'static Key) -> Shown {
        let (kept, source) = (self.kept.get(key.name), self.base.source(key.name));
        let (value, source) = match (self.running.get(key.name), kept) {
            (Some(value), _) => (*value, Source::Running),
            (None, Some(value)) if source < Source::Kept => (value, Source::Kept),
            _ => (key.get(&self.base.config), source),
        };
        Shown { key, value, source, kept }
    }

    /// With a change made.
    ///
    /// # Errors
    /// [`TuneError`]; nothing of the change holds then.
    pub fn with(&self, patch: &Patch) -> Result<Self, TuneError> {
        if patch.set.is_empty() {
            return Err(TuneError::Nothing);
        }
        let mut next = self.clone();
        for (name, value) in &patch.set {
            let key = Key::named(name)?;
            let value = if value.is_null() { None } else { Some(key.read(value)?) };
            next.running.remove(key.name);
            if patch.persist {
                next.kept.put(key.name, value);
            }
            if let Some(value) = value.filter(|value| next.show(key).value != *value) {
                next.running.insert(key.name, value);
            }
        }
        self.checked(next)
    }

    /// As a start with these settings would have it: what was changed and not kept is forgotten.
    ///
    /// # Errors
    /// [`TuneError`]; all stays as it is.
    pub fn reread(&self, base: Loaded, kept: Kept) -> Result<Self, TuneError> {
        self.checked(Self::new(base, kept))
    }

    fn checked(&self, next: Self) -> Result<Self, TuneError> {
        let changes = self.changes(&next);
        for change in &changes {
            Key::named(change.key)?.check(change.new)?;
        }
        let changed: Vec<&str> = changes.iter().map(|change| change.key).collect();
        let contradiction = contradiction(&next.config(), &changed);
        contradiction.map_or(Ok(next), |what| Err(TuneError::Contradiction(what)))
    }

    /// What is another value there.
    #[must_use]
    pub fn changes(&self, next: &Self) -> Vec<Changed> {
        let pairs = KEYS.iter().map(|key| (key.name, self.show(key).value, next.show(key).value));
        pairs.filter(|(_, old, new)| old != new).map(|(key, old, new)| Changed { key, old, new }).collect()
    }

    /// Kept settings that the next start will not have, because something stronger sets them as well.
    #[must_use]
    pub fn overruled(&self) -> Vec<(&'static str, Source)> {
        let strong = |key: &Key| Some(self.base.source(key.name)).filter(|source| *source > Source::Kept);
        KEYS.iter().filter(|k| self.kept.get(k.name).is_some()).filter_map(|k| Some((k.name, strong(k)?))).collect()
    }
}
