//! Delta tables: what sealed generations are flushed into, and what queries read beside the log.
//!
//! In flow order:
//!
//! - [`stores`]: the object store behind a lake's URL; [`durable`], a local one that syncs, and [`deadline`], a limit on
//!   every call;
//! - [`table`]: a handle per table; [`head`] is what commits know of it (version, [`definition`], our transactions);
//! - [`data`]: sorted batches into Parquet files, uploaded and synced; [`orphans`]: the files of those that no commit refers to;
//! - [`commit`]: those files into the table's log, exactly once ([`entry`]: the log's bytes; [`patience`]: how long);
//! - [`snapshot`]: the table as of a version, for queries.
//!
//! The log's create-only PUT is the only coordination with other writers, and the table's own `txn` actions are the only
//! truth about what is committed.
//!
//! Absent here: when to flush and what to do after a refusal (`flush`), Arrow schemas (`schema`), Delta checkpoints and
//! log clean-up, changing a table's schema.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use deltalake::logstore::{StorageConfig, default_logstore};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use penstock_store::TableId;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;
use uuid::Uuid;

use crate::schema::TableName;

mod blocking;
mod commit;
mod data;
mod deadline;
mod definition;
mod durable;
mod entry;
mod error;
mod head;
mod orphans;
mod patience;
mod schema;
mod snapshot;
mod stores;
mod table;
#[cfg(test)]
mod tests;

pub use commit::{Commit, Committed};
pub use data::{Announce, DataFiles, FileSettings, Uploading};
pub use entry::app_id;
pub use error::{Error, Kind};
pub use orphans::{Fate, Suspect};
pub use snapshot::Snapshot;
pub use table::{LakeTable, Stats};

use patience::Patience;
use stores::Stores;

/// Where the lake is, and how it is reached.
#[derive(Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The directory of all tables: `file:///path` or `s3://bucket/prefix`; by default `lake` in the data directory.
    /// (`memory:///` keeps everything in memory, for tests.)
    pub url: Option<String>,
    /// Settings of the object store: `endpoint`, `region`, `access_key_id`, `secret_access_key`, `allow_http`, and all
    /// others that the `object_store` crate knows. What is not set comes from the `AWS_*` environment.
    /// Written out (as `Debug`) by name only.
    #[serde(serialize_with = "names_only", deserialize_with = "as_text")]
    pub storage: BTreeMap<String, String>,
    /// Limit on every call to the store; default 30s.
    #[serde(with = "humantime_serde")]
    pub call_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { url: None, storage: BTreeMap::new(), call_timeout: Duration::from_secs(30) }
    }
}

impl fmt::Debug for Options {
    /// Settings are shown by name only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("url", &self.url)
            .field("storage", &self.storage.keys().collect::<Vec<_>>())
            .field("call_timeout", &self.call_timeout)
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
    patience: Patience,
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
        Ok(Self::over(Stores::open(options, data_dir)?, Patience::new(options.call_timeout)))
    }

    fn over(stores: Stores, patience: Patience) -> Self {
        Self { stores, patience, tables: DashMap::new() }
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
        }
    }

    /// Proves that the store can be written, and that it honours create-only PUTs, on which every commit relies.
    ///
    /// # Errors
    /// [`Error::NoConditionalPut`], or the store's own.
    pub async fn probe(&self) -> Result<(), Error> {
        let path: Path = self.stores.prefix.clone().join(format!("penstock-probe-{}", Uuid::new_v4()));
        let store = &self.stores.store;
        let put = || store.put_opts(&path, "penstock".into(), PutOptions::from(PutMode::Create));
        put().await.map_err(|error| Error::store("probing", &path, error))?;
        let again = put().await;
        let removed = store.delete(&path).await;
        match again {
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                removed.map_err(|error| Error::store("removing", &path, error))
            }
            Ok(_) => Err(Error::NoConditionalPut { url: self.stores.url.to_string() }),
            Err(error) => Err(Error::store("probing", &path, error)),
        }
    }
}
