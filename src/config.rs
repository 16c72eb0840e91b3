//! The settings: defaults, then the file, then the environment, then the command line; the later wins.
//!
//! Each component owns its `Options`; here they are only composed. `config/penstock.toml` shows every key with its default; a test
//! holds the two together.
//!
//! - [`loaded`]: reads them, and knows where each comes from;
//! - [`tuning`]: those that may change while the server runs, and what they may be;
//! - [`layers`]: what was loaded, kept and changed, one upon the other; [`kept`]: changes that later starts have as well.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{admission, flush, ingest, lake, query};

pub mod kept;
pub mod layers;
pub mod loaded;
#[cfg(test)]
mod tests;
pub mod tuning;

pub use layers::Layers;
pub use loaded::{Loaded, Source};

/// Environment variables `PENSTOCK_<SECTION>__<KEY>` set `section.key`.
pub const ENV_PREFIX: &str = "PENSTOCK_";

/// Keys below this are text as they stand: a key id of `0042` is no number, and a secret of `1e5` neither.
const STORAGE: &str = "lake.storage.";
const STORAGE_ENV: &str = "lake__storage__";

/// The `[server]` settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Where HTTP is served. Default 127.0.0.1:8750. There are no tokens yet: keep it on loopback or behind a proxy that checks.
    pub listen: SocketAddr,
    /// Requests that are worked on at the same time; more wait in the kernel's queue. Default 1024.
    pub max_connections: usize,
    /// How long a request may take to arrive. Default 30s.
    #[serde(with = "humantime_serde")]
    pub body_timeout: std::time::Duration,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8750)),
            max_connections: 1024,
            body_timeout: std::time::Duration::from_secs(30),
        }
    }
}

/// The `[store]` settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// Logs, each with a thread of its own. Default 2. Fixed when the data directory is made; `penstock reshape` changes it.
    pub shards: u32,
    /// Data bytes of a log segment. Default 32 MiB. Fixed when the data directory is made.
    pub segment: bytesize::ByteSize,
    /// Most bytes that one sync covers. Default 4 MiB.
    pub group: bytesize::ByteSize,
    /// Most bytes that wait for a log's thread. Default 64 MiB.
    pub queue: bytesize::ByteSize,
    /// Directories for rows that a checkpoint moves out of the log, ideally one a device. Default: one in the data directory. Their
    /// number is fixed when the data directory is made; `penstock reshape` changes it.
    pub lanes: Vec<PathBuf>,
    /// Longest time between two checkpoints; 0s: only a long log, a demand or the end brings one. Default 10s.
    #[serde(with = "humantime_serde")]
    pub checkpoint_interval: std::time::Duration,
    /// Bytes of log behind the last checkpoint, per shard, at which the next one is due. Default 128 MiB.
    pub checkpoint_log: bytesize::ByteSize,
    /// How checkpointed rows are made durable: `auto`, `syncfs` or `fdatasync`. Default `auto`.
    pub barrier: Barrier,
    /// Most bytes of rows that a start keeps in memory while it reads the log. Default 512 MiB.
    pub replay_memory: bytesize::ByteSize,
    /// Posts with an `Idempotency-Key` that a log remembers, about 150 bytes each. Default 500000.
    pub keys: usize,
    /// How old a key is before another one may have its place; more keys than that are refused. Default 10m.
    #[serde(with = "humantime_serde")]
    pub key_age: std::time::Duration,
    /// Producers with numbered posts that a log remembers, by table; up to 32 KiB each. Default 10000.
    pub producers: usize,
    /// How long a producer is silent before another one may have its place. Default 7days.
    #[serde(with = "humantime_serde")]
    pub producer_idle: std::time::Duration,
}

/// Longest time between two checkpoints, whatever the settings say: times far beyond a clock's range are as good as never.
const MAX_INTERVAL: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 3600);

/// How checkpointed rows are made durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Barrier {
    /// What is cheaper.
    #[default]
    Auto,
    /// One call for the file system of a lane.
    SyncFs,
    /// One call for each file.
    FdataSync,
}

impl Default for Store {
    fn default() -> Self {
        let options = penstock_store::Options::default();
        Self {
            shards: options.shards,
            segment: bytesize::ByteSize(options.segment_bytes),
            group: bytesize::ByteSize(options.group_bytes as u64),
            queue: bytesize::ByteSize(options.queue_bytes as u64),
            lanes: Vec::new(),
            checkpoint_interval: options.checkpoint_interval.unwrap_or_default(),
            checkpoint_log: bytesize::ByteSize(options.checkpoint_bytes),
            barrier: Barrier::default(),
            replay_memory: bytesize::ByteSize(options.replay_bytes),
            keys: options.keys.max,
            key_age: options.keys.keep,
            producers: options.producers.max,
            producer_idle: options.producers.idle,
        }
    }
}

impl Store {
    /// The store's own options.
    pub fn options(&self) -> penstock_store::Options {
        let bytes = |size: bytesize::ByteSize| usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
        penstock_store::Options {
            shards: self.shards,
            segment_bytes: self.segment.as_u64(),
            group_bytes: bytes(self.group),
            queue_bytes: bytes(self.queue),
            lanes: self.lanes.clone(),
            checkpoint_interval: Some(self.checkpoint_interval.min(MAX_INTERVAL)).filter(|i| !i.is_zero()),
            checkpoint_bytes: self.checkpoint_log.as_u64(),
            barrier: match self.barrier {
                Barrier::Auto => penstock_store::Barrier::Auto,
                Barrier::SyncFs => penstock_store::Barrier::SyncFs,
                Barrier::FdataSync => penstock_store::Barrier::FdataSync,
            },
            replay_bytes: self.replay_memory.as_u64(),
            keys: penstock_store::KeyLimits { max: self.keys, keep: self.key_age },
            producers: penstock_store::ProducerLimits { max: self.producers, idle: self.producer_idle },
            ..penstock_store::Options::default()
        }
    }
}

/// Everything that can be set.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Log, catalog and the default lake. Default `./data`.
    pub data_dir: PathBuf,
    pub server: Server,
    pub store: Store,
    pub ingest: ingest::post::Options,
    pub admission: admission::Options,
    pub flush: flush::Options,
    pub lake: lake::Options,
    pub query: query::Options,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("data"),
            server: Server::default(),
            store: Store::default(),
            ingest: ingest::post::Options::default(),
            admission: admission::Options::default(),
            flush: flush::Options::default(),
            lake: lake::Options::default(),
            query: query::Options::default(),
        }
    }
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("configuration file {0} does not exist")]
    Missing(PathBuf),
    #[error("settings: {0}")]
    Settings(#[from] Box<figment::Error>),
    #[error(transparent)]
    Admission(#[from] admission::OptionsError),
}

impl Config {
    /// Reads the settings. `assignments` are keys (`section.key`) and values from the command line.
    ///
    /// # Errors
    /// An unreadable file, an unknown key, or a value that cannot be, with where it stands.
    pub fn load(file: Option<&Path>, assignments: &[(String, String)]) -> Result<Self, Error> {
        Ok(Loaded::load(file, assignments)?.config)
    }
}
