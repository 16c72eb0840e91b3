//! Files that went with a table, and commits of ours that refer to them.
//!
//! Files are uploaded before their commit. If the table is dropped in between, they are gone; if another node makes it anew at once, and
//! has as many versions as the old one had, our PUT becomes a part of the new table, and refers to nothing: readers fail, and the
//! table's `txn` says that the rows are in. So whenever a log turns out not to be the one that was written to, the files of what
//! landed in it are looked for; where one is missing, the commits are taken back: one entry that removes their files and sets
//! `txn` back to where it stood. Their rows are still in our own log, and go in again.

use std::collections::BTreeMap;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::commit::Placed;
use super::head::Books;
use super::lean::Log;
use super::{Error, LakeTable, entry};

/// What matters of an `add`.
#[derive(Debug, Deserialize)]
struct File {
    path: String,
    #[serde(rename = "partitionValues")]
    partition: Value,
    size: i64,
}

impl LakeTable {
    /// Whether a data file of the table is there, by the path that an `add` has.
    pub(super) async fn has_file(&self, path: &str) -> Result<bool, Error> {
        // Writers differ in whether they encode what object stores take as it is.
        let spellings = [Path::parse(path).ok(), Path::from_url_path(path).ok()];
        for path in spellings.into_iter().flatten() {
            match self.parts.store.head(&path).await {
                Ok(_) => return Ok(true),
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(Error::store("looking for", &path, error)),
            }
        }
        Ok(false)
    }

    /// Takes back what landed in a log that is not the one that was written to, if a file of it is missing. Gives where the
    /// application ids stand then; none if nothing had to be done. The entry is the one behind the log's newest.
    pub(super) async fn undo(&self, books: &Books, log: &Log) -> Result<Option<BTreeMap<String, u64>>, Error> {
        let (mut removes, mut stood, mut missing) = (Vec::new(), BTreeMap::new(), false);
        for landed in books.landed.iter().filter(|l| l.version <= log.version && log.checkpoint < Some(l.version)) {
            let path = entry::path(landed.version);
            let read = async { self.parts.store.get(&path).await?.bytes().await };
            let bytes = match read.await {
                Ok(bytes) => bytes,
                Err(StoreError::NotFound { .. }) => continue,
                Err(error) => return Err(Error::store("reading", &path, error)),
            };
            if entry::Entry::parse(self.url().as_str(), landed.version, &bytes)?.commit != landed.id {
                continue;
            }
            for file in files(&bytes) {
                missing |= !self.has_file(&file.path).await?;
                removes.push(file);
            }
            stood.entry(landed.txn.app.clone()).or_insert(landed.before.unwrap_or(0));
        }
        if !missing {
            return Ok(None);
        }
        let id = Uuid::new_v4();
        let version = log.version + 1;
        tracing::warn!(table = %self.url(), version, "taking back commits of ours whose files went with a table that was dropped");
        let until = std::time::Instant::now() + self.parts.patience.whole;
        match self.place(version, &taking_back(id, &removes, &stood), id, until).await? {
            Placed::Landed => Ok(Some(stood)),
            Placed::Taken(_) => Err(self.lost_races(version)),
        }
    }
}

/// The data files that an entry adds.
fn files(bytes: &Bytes) -> Vec<File> {
    let actions = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    actions.filter_map(|action| serde_json::from_value(action.ok()?.get_mut("add")?.take()).ok()).collect()
}

fn taking_back(id: Uuid, removes: &[File], stood: &BTreeMap<String, u64>) -> Bytes {
    let now = entry::now_millis();
    let info = entry::info(id, "DELETE", json!({ "predicate": "files that are gone" }), false);
    let txns = stood.iter().map(|(app, version)| json!({ "txn": { "appId": app, "version": version } }));
    let removes = removes.iter().map(|file| {
        json!({ "remove": {
            "path": file.path,
            "deletionTimestamp": now,
            "dataChange": true,
            "extendedFileMetadata": true,
            "partitionValues": file.partition,
            "size": file.size,
        } })
    });
    entry::lines([info].into_iter().chain(txns).chain(removes))
}
