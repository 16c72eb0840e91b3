//! Settings as they were read, with where each came from: defaults, then the file, then the environment, then the command line; the
//! later wins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use serde::{Deserialize, Serialize};

use super::tuning::KEYS;
use super::{Config, ENV_PREFIX, Error, STORAGE, STORAGE_ENV};

/// Where a setting comes from, the weakest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Nobody set it.
    #[default]
    Default,
    /// The configuration file.
    File,
    /// A change that was made while running, and kept ([`super::kept`]).
    Kept,
    /// `PENSTOCK_…`.
    Environment,
    /// `--set`.
    CommandLine,
    /// A change that was made while running; a restart forgets it.
    Running,
}

/// Settings, and where those come from that may change while the server runs.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    pub config: Config,
    sources: BTreeMap<&'static str, Source>,
}

impl From<Config> for Loaded {
    /// Settings that nobody read anywhere.
    fn from(config: Config) -> Self {
        Self { config, sources: BTreeMap::new() }
    }
}

impl Loaded {
    /// Reads the settings. `assignments` are keys (`section.key`) and values from the command line.
    ///
    /// # Errors
    /// An unreadable file, an unknown key, or a value that cannot be, with where it stands.
    pub fn load(file: Option<&Path>, assignments: &[(String, String)]) -> Result<Self, Error> {
        let layers = [
            (Source::Default, Figment::from(Serialized::defaults(Config::default()))),
            (Source::File, from_file(file)?),
            (Source::Environment, from_environment()),
            (Source::CommandLine, from_assignments(assignments)),
        ];
        let mut sources = BTreeMap::new();
        for (source, figment) in &layers {
            let set = KEYS.iter().filter(|key| figment.find_value(key.name).is_ok());
            sources.extend(set.map(|key| (key.name, *source)));
        }
        let figment = layers.into_iter().fold(Figment::new(), |all, (_, layer)| all.merge(layer));
        let config: Config = figment.extract().map_err(|e| Error::Settings(Box::new(e)))?;
        config.admission.validate()?;
        Ok(Self { config, sources })
    }

    /// Where a setting that may change while the server runs comes from.
    #[must_use]
    pub fn source(&self, key: &str) -> Source {
        self.sources.get(key).copied().unwrap_or_default()
    }

    /// Settings that differ from `other`'s and do not change while the server runs.
    #[must_use]
    pub fn fixed_differences(&self, other: &Self) -> Vec<String> {
        let [ours, theirs] = [self, other].map(|loaded| flat(&loaded.config));
        let is_fixed = |name: &String| KEYS.iter().all(|key| key.name != name);
        let mut differ: Vec<String> =
            names(&self.config).into_iter().filter(|n| ours.get(n) != theirs.get(n) && is_fixed(n)).collect();
        // Written by name only, as some are secrets.
        if self.config.lake.storage != other.config.lake.storage {
            differ.push("lake.storage".to_owned());
        }
        differ
    }
}

fn from_file(file: Option<&Path>) -> Result<Figment, Error> {
    let Some(file) = file else { return Ok(Figment::new()) };
    if !file.exists() {
        return Err(Error::Missing(PathBuf::from(file)));
    }
    Ok(Figment::from(Toml::file_exact(file)))
}

fn from_environment() -> Figment {
    // A setting has a section. Variables without one are read by the command line itself, or are somebody else's.
    let is_plain = |key: &str| key.contains("__") && !key.starts_with(STORAGE_ENV);
    let plain = Env::prefixed(ENV_PREFIX).filter(move |key| is_plain(&key.as_str().to_lowercase()));
    let mut figment = Figment::from(plain.split("__"));
    for (key, value) in std::env::vars() {
        let key = key.to_lowercase();
        let prefix = [&ENV_PREFIX.to_lowercase(), STORAGE_ENV].concat();
        if let Some(name) = key.strip_prefix(&prefix) {
            figment = figment.merge(Serialized::default(&[STORAGE, name].concat(), value));
        }
    }
    figment
}

fn from_assignments(assignments: &[(String, String)]) -> Figment {
    let mut figment = Figment::new();
    for (key, value) in assignments {
        let key = key.trim();
        if key.starts_with(STORAGE) {
            figment = figment.merge(Serialized::default(key, value));
            continue;
        }
        let value: figment::value::Value = value.parse().unwrap_or_else(|never| match never {});
        figment = figment.merge(Serialized::default(key, value));
    }
    figment
}

/// Every setting by its full name, but for those of the object store.
fn flat(config: &Config) -> BTreeMap<String, serde_json::Value> {
    let value = serde_json::to_value(config).unwrap_or_default();
    let mut flat = BTreeMap::new();
    for (section, inner) in value.as_object().into_iter().flatten() {
        match inner.as_object() {
            Some(inner) => flat.extend(inner.iter().map(|(key, value)| (format!("{section}.{key}"), value.clone()))),
            None => drop(flat.insert(section.clone(), inner.clone())),
        }
    }
    flat.retain(|name, _| !name.starts_with("lake.storage"));
    flat
}

/// The names of all settings, but for those of the object store.
pub(super) fn names(config: &Config) -> Vec<String> {
    flat(config).into_keys().collect()
}
