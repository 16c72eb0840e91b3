//! Delta tables: what sealed generations are flushed into, and what queries read beside the log.
//!
//! In flow order:
//!
//! - [`stores`]: the object store behind a lake's URL; [`durable`], a local one that syncs, and [`deadline`], a limit on
//!   every call; [`proof`]: that the store can be committed to; [`examine`]: the same at length, for people;
//! - [`table`]: a handle per table; [`identity`] says which Delta table that is, on however many nodes; [`head`] is what commits
//!   know of it (version, [`definition`], our transactions), read by [`lean`] without the file list;
//! - [`data`]: sorted batches into Parquet files, uploaded and synced; [`orphans`]: the files of those that no commit refers to;
//! - [`commit`]: those files into the table's log, exactly once ([`entry`]: the log's bytes; [`patience`]: how long), and
//!   with them the columns that the table lacks for them ([`schema`]);
//! - [`confirm`]: whether that log is still the table's ([`anchor`]: an entry that vouches for those behind it), without which
//!   no row may leave our own log; [`undo`]: commits whose files are gone; [`fence`]: another process that writes as us;
//! - [`snapshot`]: the table as of a version, for queries;
//! - [`care`]: Delta checkpoints and log clean-up, behind the commits; [`retention`]: what the table's settings allow;
//! - [`tally`]: what all of these have cost.
//!
//! The log's create-only PUT is the only coordination with other writers, and the table's own `txn` actions are the only
//! truth about what is committed.
//!
//! Absent here: when to flush and what to do after a refusal (`flush`), Arrow schemas and schema versions (`schema`),
//! compaction.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use deltalake::logstore::{StorageConfig, default_logstore};
use object_store::ObjectStore;
use object_store::prefix::PrefixStore;
use penstock_store::{Incarnation, NodeId, TableId};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

use crate::schema::TableName;

mod anchor;
mod blocking;
mod care;
mod commit;
mod confirm;
mod data;
mod deadline;
mod definition;
mod durable;
mod entry;
mod error;
pub mod examine;
mod fence;
mod head;
mod identity;
mod lean;
mod orphans;
mod patience;
mod proof;
mod retention;
mod schema;
mod snapshot;
mod stores;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod undo;

pub use care::LogCare;
pub use commit::{Commit, Committed};
pub use data::{Announce, DataFiles, FileSettings, Uploading};
pub use entry::app_id;
pub use error::{Error, Kind};
pub use orphans::{Fate, Suspect};
pub use snapshot::Snapshot;
pub use table::{LakeTable, Stats};
pub use tally::Calls;

use care::Care;
use fence::Fence;
use patience::Patience;
use proof::Proof;
use stores::Stores;
use tally::Tally;

/// Where the lake is, and how it is reached.
#[derive(Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The directory of all tables: `file:///path`, `s3://bucket/prefix`, `az://container/prefix`,
    /// `abfss://container@account.dfs.core.windows.net/prefix` or `gs://bucket/prefix`; by default `lake` in the data directory.
    /// (`memory:///` keeps everything in memory, for tests.)
    pub url: Option<String>,
    /// Settings of the object store: `endpoint`, `region`, `access_key_id`, `secret_access_key`, `allow_http`, `account_name`,
    /// `account_key`, `service_account`, and all others that the `object_store` crate knows. What is not set comes from the
    /// `AWS_*`, `AZURE_*` or `GOOGLE_*` environment.
    /// Written out (as `Debug`) by name only.
    #[serde(serialize_with = "names_only", deserialize_with = "as_text")]
    pub storage: BTreeMap<String, String>,
    /// Limit on every call to the store; default 30s.
    #[serde(with = "humantime_serde")]
    pub call_timeout: Duration,
    /// How long a look at a table's log is good for: a commit behind a longer pause looks first. Default 60s. Tables whose
    /// `delta.logRetentionDuration` is not well above it are refused.
    #[serde(with = "humantime_serde")]
    pub head_ttl: Duration,
    /// Versions between two Delta checkpoints of a small table; large ones get theirs less often (`lake::care` says how). Default
    /// 20; 0 writes none, and then every open of a table reads its whole log.
    pub checkpoint_every: u64,
    /// Whether log entries that are older than a table's `delta.logRetentionDuration` (30 days if it says nothing) are
    /// removed, behind a checkpoint that was read back. Default true.
    pub clean_up: bool,
}

const HEAD_TTL: Duration = Duration::from_secs(60);

impl Default for Options {
    fn default() -> Self {
        Self {
            url: None,
            storage: BTreeMap::new(),
            call_timeout: Duration::from_secs(30),
            head_ttl: HEAD_TTL,
            checkpoint_every: 20,
            clean_up: true,
        }
    }
}

impl fmt::Debug for Options {
    /// Settings are shown by name only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("url", &self.url)
            .field("storage", &self.storage.keys().collect::<Vec<_>>())
            .field("call_timeout", &self.call_timeout)
            .field("head_ttl", &self.head_ttl)
            .field("checkpoint_every", &self.checkpoint_every)
            .field("clean_up", &self.clean_up)
            .finish()
    }
}

/// Which settings are secrets is not ours to guess.
fn names_only<S: Serializer>(storage: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(storage.len()))?;
    for key in storage.keys() {
        map.serialize_entry(key, "...")?;
    }
    map.end()
}

/// Every setting is text to the store, also where TOML takes it for a boolean or a number.
fn as_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Scalar {
        Boolean(bool),
        Integer(i64),
        Text(String),
    }
    let scalars = BTreeMap::<String, Scalar>::deserialize(deserializer)?;
    let text = |scalar| match scalar {
        Scalar::Boolean(value) => value.to_string(),
        Scalar::Integer(value) => value.to_string(),
        Scalar::Text(value) => value,
    };
    Ok(scalars.into_iter().map(|(key, scalar)| (key, text(scalar))).collect())
}

/// All tables of a lake, behind one client.
pub struct Lake {
    stores: Stores,
    proof: Arc<Proof>,
    patience: Patience,
    head_ttl: Duration,
    fence: Arc<Fence>,
    care: Arc<Care>,
    tally: Arc<Tally>,
    tables: DashMap<TableId, Arc<LakeTable>>,
}

impl fmt::Debug for Lake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lake({}, {} tables)", self.stores.url, self.tables.len())
    }
}

impl Lake {
    /// Builds the client, and makes the directory of a local lake. No call to an object store is made.
    ///
    /// # Errors
    /// Of kind `Settings`, or the directory could not be made.
    pub fn open(options: &Options, data_dir: &FilePath) -> Result<Self, Error> {
        let lake = Self::behind(Stores::open(options, data_dir)?, Patience::new(options.call_timeout));
        let care = Care::new(options.checkpoint_every, options.clean_up);
        Ok(Self { head_ttl: options.head_ttl, care, ..lake })
    }

    /// A lake on a store of the caller's, rooted where the URL's scheme is rooted: for stores with faults, or with delays. Nobody
    /// cares for the logs.
    ///
    /// # Errors
    /// The URL's path is not one of an object store.
    pub fn on(url: Url, store: Arc<dyn ObjectStore>, call_timeout: Duration) -> Result<Self, Error> {
        Ok(Self::behind(Stores::new(url, store, call_timeout)?, Patience::new(call_timeout)))
    }

    fn behind(stores: Stores, patience: Patience) -> Self {
        let proof = Proof::open(stores.clone());
        let (fence, care, tally, tables) = (Arc::default(), Care::new(0, false), Arc::default(), DashMap::new());
        Self { stores, proof, patience, head_ttl: HEAD_TTL, fence, care, tally, tables }
    }

    /// Says who writes, before anything is committed: from then on an entry of this start that this process did not put stops
    /// all tables.
    pub fn identify(&self, node: NodeId, incarnation: Incarnation) {
        self.fence.identify(node, incarnation);
    }

    #[cfg(test)]
    fn over(stores: Stores, patience: Patience) -> Self {
        let proof = Proof::assumed(stores.clone());
        Self { proof, ..Self::behind(stores, patience) }
    }

    /// The same lake, whose tables get Delta checkpoints and clean-up as [`Options`] has them.
    #[must_use]
    pub fn with_log_care(self, checkpoint_every: u64, clean_up: bool) -> Self {
        Self { care: Care::new(checkpoint_every, clean_up), ..self }
    }

    #[cfg(test)]
    fn with_care(self, care: Arc<Care>) -> Self {
        Self { care, ..self }
    }

    /// A lake in any store, for tests of what is above it.
    #[cfg(test)]
    pub(crate) fn in_store(store: Arc<dyn ObjectStore>, call_timeout: Duration) -> Self {
        let url = Url::parse("memory:///lake").expect("should be a URL");
        Self::over(Stores::new(url, store, call_timeout).expect("should be a lake"), Patience::new(call_timeout))
    }

    /// The directory of all tables; ends with a slash.
    pub fn url(&self) -> &Url {
        &self.stores.url
    }

    /// The table's handle, one for the life of the lake. Nothing is read: the table need not exist.
    pub fn table(&self, id: TableId, name: &TableName) -> Arc<LakeTable> {
        let table =
            self.tables.entry(id).or_insert_with(|| Arc::new(LakeTable::new(id, name.clone(), self.parts(name))));
        Arc::clone(&table)
    }

    fn parts(&self, name: &TableName) -> table::Parts {
        // Both parts of a name are plain ASCII words: they need no escaping in a path or URL.
        let mut url = self.stores.url.clone();
        url.set_path(&format!("{}{}/{}/", url.path(), name.namespace(), name.name()));
        let path = self.stores.prefix.clone().join(name.namespace()).join(name.name());
        let store: Arc<dyn ObjectStore> = Arc::new(PrefixStore::new(Arc::clone(&self.stores.store), path.clone()));
        table::Parts {
            log_store: default_logstore(
                Arc::clone(&store),
                Arc::clone(&self.stores.store),
                &url,
                &StorageConfig::default(),
            ),
            store,
            durable: self.stores.durable.as_ref().map(|durable| (Arc::clone(durable), path.join("_delta_log"))),
            patience: self.patience,
            head_ttl: self.head_ttl,
            fence: Arc::clone(&self.fence),
            care: Arc::clone(&self.care),
            tally: Arc::clone(&self.tally),
            proof: Arc::clone(&self.proof),
        }
    }

    /// Waits until no checkpoint and no clean-up runs, at most for `limit`: a process that ends has no need to cut one off. One
    /// that is cut off does no harm. There should be no more commits.
    pub async fn rest(&self, limit: Duration) {
        let tables: Vec<_> = self.tables.iter().map(|table| Arc::clone(&table.caretaker)).collect();
        let all = futures::future::join_all(tables.iter().map(|caretaker| caretaker.rest()));
        if tokio::time::timeout(limit, all).await.is_err() {
            tracing::info!("a checkpoint of a Delta log is cut off; a later commit writes it");
        }
    }

    /// Proves that the store can be written, and that it honours create-only PUTs, on which every commit relies. Once that is proven
    /// it is not asked again.
    ///
    /// # Errors
    /// [`Error::Unproven`] with the store's own error, or with [`Error::NoConditionalPut`].
    pub async fn probe(&self) -> Result<(), Error> {
        self.proof.ensure().await
    }

    /// What calls cost, and how often they were made again.
    pub fn calls(&self) -> Calls {
        self.tally.read()
    }

    /// Why nothing can be committed to any table; none if nothing is known to stand in the way.
    pub fn problem(&self) -> Option<String> {
        self.proof.problem().map(|problem| problem.to_string())
    }
}
