//! Writes a Delta checkpoint, and reads it back.
//!
//! The kernel writes it: it replays the log in batches, so that neither the file list nor the file is in memory. What it
//! wrote is then read by other code ([`contents`](super::contents)) and compared with what the log says without it.

use std::sync::Arc;

use bytes::Bytes;
use deltalake::kernel::Snapshot;
use deltalake::logstore::{LogStore, LogStoreRef, StorageConfig, default_logstore};
use deltalake::{DeltaResult, DeltaTableError};
use futures::StreamExt;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt};
use serde::Deserialize;

use super::View;
use super::cached::{Cached, CheckpointPut};
use super::contents::{self, Contents, Txns, Unread};
use super::memory::Memory;
use crate::lake::Error;
use crate::lake::definition::Definition;
use crate::lake::entry::{self, Entry};
use crate::lake::retention::Properties;

/// The pointer to the newest checkpoint, as far as it matters here.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hint {
    pub(super) version: u64,
    #[serde(default)]
    parts: Option<u64>,
    #[serde(default)]
    size_in_bytes: Option<u64>,
    #[serde(default)]
    pub(super) num_of_add_files: Option<u64>,
    #[serde(default)]
    v2_checkpoint: Option<serde_json::Value>,
}

impl Hint {
    /// Whether it points to one file under the classic name, with everything in it.
    fn is_whole(&self) -> bool {
        self.parts.is_none() && self.v2_checkpoint.is_none()
    }
}

/// A checkpoint that was read back and says what the log says.
#[derive(Debug, Clone)]
pub(super) struct Verified {
    pub(super) version: u64,
    pub(super) files: u64,
    /// Where our application ids stand there.
    pub(super) txns: Txns,
    /// The table's properties there.
    pub(super) properties: Properties,
}

pub(super) fn path(version: u64) -> Path {
    Path::from_iter(["_delta_log".to_owned(), format!("{version:020}.checkpoint.parquet")])
}

pub(super) fn hint_path() -> Path {
    Path::from_iter(["_delta_log", "_last_checkpoint"])
}

/// The table's stores behind a memory of what was read.
pub(super) struct Remembering {
    cached: Arc<Cached>,
    /// Rooted at the table.
    pub(super) store: Arc<dyn ObjectStore>,
    log_store: LogStoreRef,
}

/// What the log says at a version, read without a checkpoint of that version.
struct Expected {
    snapshot: Snapshot,
    read: Remembering,
    /// None if the entries since the last checkpoint do not say it alone.
    txns: Option<Txns>,
    files: u64,
}

impl View {
    /// What points to the newest checkpoint. What cannot be parsed is taken for none, as readers take it.
    pub(super) async fn hint(&self, read: &Remembering) -> Result<Option<(Hint, Bytes)>, Error> {
        let path = hint_path();
        let read = async { read.store.get(&path).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok().map(|hint| (hint, bytes))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::store("reading", &path, error)),
        }
    }

    /// Writes the checkpoint of `version` and compares it with the log. `before` is the pointer as it is, which was read through
    /// `read`, `known` the last checkpoint that was verified. None if another writer was faster.
    ///
    /// # Errors
    /// The store's own, or [`Error::Checkpoint`] if what is there now does not say what the log says. Then nothing may be
    /// removed behind it. A file of ours that is wrong is taken back: every reader would start from it.
    pub(super) async fn checkpoint(
        &self,
        version: u64,
        read: Remembering,
        before: Option<(Hint, Bytes)>,
        known: Option<&Verified>,
    ) -> Result<Option<Verified>, Error> {
        let wrong = |reason: String| Error::Checkpoint { location: self.location(), version, reason };
        let expected = self.expected(version, read, before.as_ref().map(|(hint, _)| hint), known).await?;
        let path = path(version);
        let written = write(&expected.snapshot, expected.read.log_store.as_ref()).await;
        let ours = match (written, expected.read.cached.checkpoint_put()) {
            (Ok(()), put) => put == Some(CheckpointPut::Ours),
            (Err(_), Some(CheckpointPut::Late)) => return Ok(None),
            (Err(error), _) => return Err(self.failed("checkpointing", error)),
        };

        // Nothing of it was read before.
        let fresh = self.remembering(None)?;
        let problems = match contents::read(&fresh.store, &path).await {
            Ok(found) => match self.problems(version, &expected, &found)? {
                problems if problems.is_empty() => {
                    self.check_hint(version, &fresh, &found).await?.map_or(Ok(()), |reason| Err(wrong(reason)))?;
                    let verified = self.opened(&fresh, expected, found).await?;
                    // The next checkpoint is built on it.
                    fresh.cached.note_checkpoint(&self.root()?.parts().chain(path.parts()).collect(), &self.memory);
                    return Ok(Some(verified));
                }
                problems => problems,
            },
            Err(Unread::Store(error)) => return Err(error),
            Err(Unread::Damaged(reason)) => vec![reason],
        };
        if ours {
            self.take_back(version, before.map(|(_, bytes)| bytes)).await?;
        }
        Err(wrong(problems.join("; ")))
    }

    /// The table opened as any reader opens it, without its files: at the checkpoint now.
    async fn opened(&self, fresh: &Remembering, expected: Expected, found: Contents) -> Result<Verified, Error> {
        let version = expected.snapshot.version();
        let wrong = |reason: &str| Error::Checkpoint { location: self.location(), version, reason: reason.to_owned() };
        let reader = open(fresh.log_store.as_ref(), version).await.map_err(|error| self.failed("opening", error))?;
        let same = reader.protocol() == expected.snapshot.protocol()
            && reader.metadata() == expected.snapshot.metadata()
            && reader.version() == version;
        if !same {
            return Err(wrong("a reader that opens the table there sees another protocol or other metadata"));
        }
        let Some(_) = expected.txns else {
            let reason = "the checkpoint before it has a form that is not read here, so that its transaction ids cannot \
                          be compared; the next one can be";
            return Err(wrong(reason));
        };
        let properties = found.metadata.properties().clone();
        Ok(Verified { version, files: found.files, txns: found.txns, properties })
    }

    async fn expected(
        &self,
        version: u64,
        read: Remembering,
        hint: Option<&Hint>,
        known: Option<&Verified>,
    ) -> Result<Expected, Error> {
        let failed = |error| self.failed("reading the log of", error);
        let snapshot = open(read.log_store.as_ref(), version).await.map_err(failed)?;
        // MUST BEFORE anything is written: a table that another has dropped and made again here is not ours to look after.
        let definition = Definition::of(&self.location(), snapshot.protocol(), snapshot.metadata())?;
        definition.check_table(&self.location(), &self.identity)?;
        let files = count_files(&snapshot, read.log_store.as_ref()).await.map_err(failed)?;
        let txns = match hint {
            Some(hint) if known.is_some_and(|known| known.version == hint.version) => {
                known.map(|known| (hint.version + 1, known.txns.clone()))
            }
            Some(hint) if hint.is_whole() => match contents::read(&read.store, &self::path(hint.version)).await {
                Ok(contents) => Some((hint.version + 1, contents.txns)),
                Err(Unread::Store(error)) => return Err(error),
                Err(Unread::Damaged(reason)) => {
                    return Err(Error::Checkpoint { location: self.location(), version: hint.version, reason });
                }
            },
            Some(_) => None,
            None => Some((0, Txns::new())),
        };
        let txns = match txns {
            Some((from, txns)) => self.replay(&read.store, from..=version, txns).await?,
            None => None,
        };
        Ok(Expected { snapshot, read, txns, files })
    }

    /// With a `memory`, files that are in it, and in the log as they are in it, are not read.
    pub(super) fn remembering(&self, memory: Option<&Arc<Memory>>) -> Result<Remembering, Error> {
        let cached = Arc::new(Cached::new(self.log_store.root_object_store(None), memory.cloned()));
        let root: Arc<dyn ObjectStore> = Arc::clone(&cached) as _;
        let store: Arc<dyn ObjectStore> = Arc::new(PrefixStore::new(Arc::clone(&root), self.root()?));
        let url = self.log_store.root_url();
        let log_store = default_logstore(Arc::clone(&store), root, url, &StorageConfig::default());
        Ok(Remembering { cached, store, log_store })
    }

    /// Carries the transaction ids on over the entries of these versions. None if one of them is missing.
    async fn replay(
        &self,
        store: &Arc<dyn ObjectStore>,
        versions: std::ops::RangeInclusive<u64>,
        mut txns: Txns,
    ) -> Result<Option<Txns>, Error> {
        for version in versions {
            let path = entry::path(version);
            let read = async { store.get(&path).await?.bytes().await };
            let bytes = match read.await {
                Ok(bytes) => bytes,
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(Error::store("reading", &path, error)),
            };
            txns = contents::ours(txns, Entry::parse(&self.location(), version, &bytes)?.txns);
        }
        Ok(Some(txns))
    }

    /// What the file says otherwise than the log.
    fn problems(&self, version: u64, expected: &Expected, found: &Contents) -> Result<Vec<String>, Error> {
        let log = Definition::of(&self.location(), expected.snapshot.protocol(), expected.snapshot.metadata())?;
        let mut problems = Vec::new();
        if !log.is_of(&found.protocol, &found.metadata) {
            problems.push(format!("its protocol or metadata is not that of version {version}"));
        }
        if found.files != expected.files {
            problems.push(format!("it has {} data files and the log {}", found.files, expected.files));
        }
        if let Some(txns) = &expected.txns
            && *txns != found.txns
        {
            let missing = txns.iter().find(|(app, version)| found.txns.get(*app) != Some(version));
            let (app, version) = missing.unzip();
            problems.push(format!("its transaction ids are not the log's (first: {app:?} at {version:?})"));
        }
        Ok(problems)
    }

    /// Whether the pointer says what was written. One that points to a newer checkpoint is another writer's.
    async fn check_hint(&self, version: u64, fresh: &Remembering, found: &Contents) -> Result<Option<String>, Error> {
        let Some((hint, _)) = self.hint(fresh).await? else {
            return Ok(Some("nothing points to it: `_last_checkpoint` is missing".to_owned()));
        };
        let same = |claimed: Option<u64>, is: u64| claimed.is_none_or(|claimed| claimed == is);
        let right = hint.version > version
            || hint.version == version
                && same(hint.size_in_bytes, found.bytes)
                && same(hint.num_of_add_files, found.files);
        Ok((!right).then(|| {
            let Hint { version, size_in_bytes, num_of_add_files, .. } = hint;
            format!(
                "`_last_checkpoint` says version {version}, {size_in_bytes:?} bytes and {num_of_add_files:?} files, and the \
                 file has {} and {}",
                found.bytes, found.files
            )
        }))
    }

    /// Removes a checkpoint of ours that is wrong. The entries that it stands for are all there: nothing is removed behind a
    /// checkpoint that was not verified.
    async fn take_back(&self, version: u64, pointer: Option<Bytes>) -> Result<(), Error> {
        let hint = hint_path();
        // MUST BEFORE the file goes: a reader that follows the pointer to a file that is gone may fail.
        let moved = match (self.hint(&self.remembering(None)?).await?, pointer) {
            (Some((now, _)), _) if now.version != version => Ok(()),
            (_, Some(bytes)) => self.store.put(&hint, bytes.into()).await.map(drop),
            (_, None) => self.store.delete(&hint).await,
        };
        match moved {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(Error::store("restoring", &hint, error)),
        }
        let path = path(version);
        match self.store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::store("removing", &path, error)),
        }
    }

    pub(super) fn failed(&self, action: &'static str, error: DeltaTableError) -> Error {
        Error::delta(action, self.log_store.root_url(), error)
    }
}

/// The table as of a version, without its files.
async fn open(log_store: &dyn LogStore, version: u64) -> DeltaResult<Snapshot> {
    Snapshot::try_new(log_store, Some(version)).await
}

/// Counts without keeping: batch by batch.
async fn count_files(snapshot: &Snapshot, log_store: &dyn LogStore) -> DeltaResult<u64> {
    let scan = snapshot.scan_builder().with_skip_stats(true).build()?;
    let mut batches = scan.scan_metadata(log_store.engine(None));
    let mut files = 0;
    while let Some(batch) = batches.next().await {
        let batch = batch?.scan_files;
        let selected = batch.selection_vector();
        // Rows behind the end of the vector are selected.
        let beyond = batch.data().len() - selected.len();
        files += selected.iter().filter(|selected| **selected).count() + beyond;
    }
    Ok(u64::try_from(files).unwrap_or(u64::MAX))
}

/// Writes the checkpoint of the snapshot's version, unless one is there. The kernel's snapshot is what a scan is built on.
async fn write(snapshot: &Snapshot, log_store: &dyn LogStore) -> DeltaResult<()> {
    let kernel = Arc::clone(snapshot.scan_builder().build()?.snapshot());
    let engine = log_store.engine(None);
    let written = tokio::task::spawn_blocking(move || kernel.checkpoint(engine.as_ref(), None).map(drop)).await;
    written.map_err(|error| DeltaTableError::Generic(error.to_string()))?.map_err(DeltaTableError::from)
}
