//! The head of a log, read without its file list: version, protocol, metadata and our `txn`s.
//!
//! One LIST from the last checkpoint on, three columns of the checkpoint, and the entries behind it. Deliberately not
//! the kernel's lazy snapshot: it replays the log once for each application id asked for, and only for ids that one can
//! name. Here one pass finds all ids of ours, also those of a start that this data directory does not know of, which
//! gives away that it was copied; and the same LIST gives the marks that later looks at the log are compared with.
//!
//! - [`layout`]: which of the names in a log make up its newest version; a pure function;
//! - [`columns`]: what of a checkpoint concerns us.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};
use serde::Deserialize;
use uuid::Uuid;

use super::Error;
use super::anchor::{Anchor, Mark, list_from};
use super::definition::{Definition, Metadata, Protocol};
use super::entry::{self, Entry};
use super::head::{Landed, collect};
use super::table::Parts;

mod columns;
mod layout;
#[cfg(test)]
mod tests;

use layout::Layout;

/// Entries that are read at the same time.
const READS: usize = 16;
/// How often a log that changes while it is read is begun anew.
const TRIES: u32 = 5;

/// What there is.
#[derive(Debug)]
pub(super) struct Reading {
    /// None if there is no table.
    pub(super) log: Option<Log>,
    /// Entries behind the log's end: a version before them is missing.
    pub(super) beyond: Vec<u64>,
}

/// A log's newest version.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) version: u64,
    /// The version of its checkpoint: entries up to it need not be there, and do not count.
    pub(super) checkpoint: Option<u64>,
    pub(super) definition: Definition,
    /// All application ids of ours.
    pub(super) txns: HashMap<String, u64>,
    pub(super) tip: Anchor,
    /// The entries that were listed.
    pub(super) marks: BTreeMap<u64, Mark>,
    /// Entries that carry the application id that was asked about, and who says to have written them.
    pub(super) live: Vec<(u64, Option<Uuid>)>,
}

impl Log {
    /// Whether the sequence of a commit that landed is in the table.
    pub(super) fn holds(&self, landed: &Landed) -> bool {
        u64::try_from(landed.txn.version)
            .is_ok_and(|wanted| self.txns.get(&landed.txn.app).is_some_and(|at| *at >= wanted))
    }
}

/// Why a reading is no good.
enum Failed {
    /// The log changed meanwhile.
    Moved,
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Reads the head. `live` is the application id whose entries are to be told.
///
/// # Errors
/// The store failed, or what is there is no log that can be read.
pub(super) async fn read(parts: &Parts, live: Option<&str>) -> Result<Reading, Error> {
    for _ in 0..TRIES {
        match (Reader { parts, live }).read().await {
            Ok(reading) => return Ok(reading),
            Err(Failed::Error(error)) => return Err(error),
            Err(Failed::Moved) => {}
        }
    }
    Err(corrupt(parts, format!("the log changed while it was read, {TRIES} times over")))
}

/// The newest version of a log that has entries behind a gap; none if it has no gap, or no version before it.
///
/// # Errors
/// The store failed.
pub(super) async fn end_before_gap(parts: &Parts) -> Result<Option<u64>, Error> {
    match (Reader { parts, live: None }).layout().await {
        Ok(layout) => Ok(layout.version.filter(|_| !layout.beyond.is_empty())),
        Err(Failed::Error(error)) => Err(error),
        Err(Failed::Moved) => Ok(None),
    }
}

struct Reader<'a> {
    parts: &'a Parts,
    live: Option<&'a str>,
}

impl Reader<'_> {
    async fn read(&self) -> Result<Reading, Failed> {
        let layout = self.layout().await?;
        if let Some(first) = layout.beyond.first() {
            // A listing is no moment: the entry before may have come behind it.
            let missing = layout.version.map_or(0, |version| version + 1);
            debug_assert!(*first > missing);
            if self.get(&entry::path(missing)).await?.is_some() {
                return Err(Failed::Moved);
            }
        }
        let Some(version) = layout.version else { return Ok(Reading { log: None, beyond: layout.beyond }) };

        let mut fold = Fold::default();
        if let Some((at, files)) = &layout.checkpoint {
            for file in files {
                let rows = self.checkpoint(file).await?;
                // Most parts have nothing but files; an entry without a line would be damage.
                if !rows.is_empty() {
                    fold.add(Entry::parse(&self.location(), *at, &rows)?);
                }
            }
        }
        let behind = layout.checkpoint.as_ref().map_or(0, |(at, _)| at + 1)..=version;
        let entries = futures::stream::iter(behind).map(|version| async move {
            let bytes = self.get(&entry::path(version)).await?.ok_or(Failed::Moved)?;
            Ok::<_, Failed>((version, Entry::parse(&self.location(), version, &bytes)?))
        });
        let mut entries = std::pin::pin!(entries.buffered(READS));
        while let Some((version, entry)) = entries.try_next().await? {
            if self.live.is_some_and(|live| entry.txns.iter().any(|txn| txn.app == live)) {
                fold.live.push((version, entry.commit));
            }
            fold.add(entry);
        }
        let (Some(protocol), Some(metadata)) = (fold.protocol, fold.metadata) else {
            return Err(corrupt(self.parts, "the log has no protocol and metaData".to_owned()).into());
        };
        let log = Log {
            version,
            checkpoint: layout.checkpoint.map(|(at, _)| at),
            definition: Definition::new(&self.location(), protocol, metadata)?,
            txns: fold.txns,
            tip: Anchor { version, mark: layout.entries.get(&version).cloned() },
            marks: layout.entries,
            live: fold.live,
        };
        Ok(Reading { log: Some(log), beyond: layout.beyond })
    }

    async fn layout(&self) -> Result<Layout, Failed> {
        let hint = self.hint().await?;
        let layout = Layout::of(self.list(hint).await?);
        // The hint may be of a table that was here before, or its checkpoint may be gone.
        if hint == 0 || layout.checkpoint.is_some() {
            return Ok(layout);
        }
        Ok(Layout::of(self.list(0).await?))
    }

    async fn list(&self, from: u64) -> Result<Vec<ObjectMeta>, Failed> {
        match list_from(self.parts, from).try_collect().await {
            Ok(listed) => Ok(listed),
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(Error::store("listing the log of", self.location(), error).into()),
        }
    }

    /// The version of the last checkpoint, according to a file that is only a hint.
    async fn hint(&self) -> Result<u64, Failed> {
        #[derive(Deserialize)]
        struct Hint {
            version: u64,
        }
        let found = self.get(&Path::from("_delta_log/_last_checkpoint")).await?;
        let hint = found.and_then(|bytes| serde_json::from_slice::<Hint>(&bytes).ok());
        Ok(hint.map_or(0, |hint| hint.version))
    }

    async fn checkpoint(&self, file: &ObjectMeta) -> Result<Bytes, Failed> {
        if file.location.as_ref().ends_with(".json") {
            return self.get(&file.location).await?.ok_or(Failed::Moved);
        }
        match columns::read(Arc::clone(&self.parts.store), file).await {
            Ok(rows) => Ok(rows),
            Err(error) if error.is_missing() => Err(Failed::Moved),
            Err(error) => Err(error.into_lake(&file.location).into()),
        }
    }

    async fn get(&self, path: &Path) -> Result<Option<Bytes>, Failed> {
        let read = async { self.parts.store.get(path).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::store("reading", path, error).into()),
        }
    }

    fn location(&self) -> String {
        self.parts.log_store.root_url().to_string()
    }
}

/// What the entries say when they are read one behind the other.
#[derive(Default)]
struct Fold {
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    txns: HashMap<String, u64>,
    live: Vec<(u64, Option<Uuid>)>,
}

impl Fold {
    fn add(&mut self, entry: Entry) {
        self.protocol = entry.protocol.or(self.protocol.take());
        self.metadata = entry.metadata.or(self.metadata.take());
        collect(&mut self.txns, &entry.txns);
    }
}

fn corrupt(parts: &Parts, reason: String) -> Error {
    Error::Corrupt { location: parts.log_store.root_url().to_string(), reason }
}
