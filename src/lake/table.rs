//! One Delta table: what is known of its head, and the answers that do not write.

use std::fmt;
use std::sync::Arc;

use deltalake::logstore::LogStoreRef;
use object_store::ObjectStore;
use object_store::path::Path;
use penstock_store::{Incarnation, NodeId, TableId};
use tokio::sync::watch;
use url::Url;

use super::Error;
use super::definition::Definition;
use super::durable::Durable;
use super::entry::app_id;
use super::head::{Head, State};
use super::identity::Identity;
use super::patience::Patience;
use super::proof::Proof;
use super::snapshot::{Snapshot, Snapshots};
use crate::schema::TableName;

/// How large a table is, at the newest version known to hold our commits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// The Delta version; none if the table has no log yet.
    pub version: Option<u64>,
    /// Data files.
    pub files: u64,
    /// Rows; none if a file of another writer came without statistics.
    pub rows: Option<u64>,
}

/// The stores of one table.
pub(super) struct Parts {
    pub(super) log_store: LogStoreRef,
    /// Rooted at the table.
    pub(super) store: Arc<dyn ObjectStore>,
    /// Present on a local lake, with the directory of the table's log.
    pub(super) durable: Option<(Arc<Durable>, Path)>,
    pub(super) patience: Patience,
    /// Of the whole lake.
    pub(super) proof: Arc<Proof>,
}

/// A handle on one Delta table. All methods may be called from many tasks; commits wait for each other.
pub struct LakeTable {
    pub(super) identity: Identity,
    pub(super) parts: Parts,
    /// The commit lock, around what a commit needs to know.
    pub(super) head: tokio::sync::Mutex<State>,
    pub(super) snapshots: Snapshots,
    published: watch::Sender<Option<u64>>,
}

impl fmt::Debug for LakeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LakeTable({} {} at {})", self.identity.name(), self.identity.own(), self.url())
    }
}

impl LakeTable {
    pub(super) fn new(id: TableId, name: TableName, parts: Parts) -> Self {
        let snapshots = Snapshots::new(Arc::clone(&parts.log_store));
        let head = tokio::sync::Mutex::new(State::Unknown);
        let identity = Identity::new(id, name);
        Self { identity, parts, head, snapshots, published: watch::Sender::new(None) }
    }

    /// Where the table lies; ends with a slash.
    pub fn location(&self) -> Url {
        self.url().clone()
    }

    pub(super) fn url(&self) -> &Url {
        self.parts.log_store.root_url()
    }

    /// The highest committed sequence of each of the node's incarnations, in the order asked for; `None` where the table
    /// holds no rows of it. A later [`commit`](Self::commit) may move only the incarnation it is for.
    ///
    /// The first contact reads the log; from then on the answer is known, unless a commit was left unsettled.
    ///
    /// # Errors
    /// The log could not be read, or the table is not one that we may append to.
    pub async fn resolve(&self, incarnations: &[Incarnation], node: NodeId) -> Result<Vec<Option<u64>>, Error> {
        // Whoever commits has asked this first; on a store that is not fit nothing is to be uploaded either.
        self.parts.proof.ensure().await?;
        let mut state = self.head.lock().await;
        self.open_head(&mut state).await?;
        let mut committed = Vec::with_capacity(incarnations.len());
        for incarnation in incarnations {
            committed.push(match &mut *state {
                State::Known(head) => self.committed(head, &app_id(node, *incarnation)).await?,
                State::Missing | State::Unknown => None,
            });
        }
        Ok(committed)
    }

    /// Reads the head of the log, if it is not known.
    pub(super) async fn open_head(&self, state: &mut State) -> Result<(), Error> {
        if !matches!(state, State::Unknown) {
            return Ok(());
        }
        let Some(snapshot) = self.snapshots.get(None).await? else {
            *state = State::Missing;
            return Ok(());
        };
        let location = self.url().as_str();
        let definition = definition(location, &snapshot)?;
        if let Err(refused) = definition.check_table(location, &self.identity) {
            self.snapshots.forget();
            return Err(refused);
        }
        // MUST BEFORE anybody believes the log: an entry that a killed process left visible may still be lost with the
        // power, and the rows it covers would be dropped from our log as committed.
        self.settle().await?;
        self.publish(snapshot.version());
        *state = State::Known(Box::new(Head::new(snapshot.version(), definition, false)));
        Ok(())
    }

    /// Where an application id stands at the head.
    pub(super) async fn committed(&self, head: &mut Head, app: &str) -> Result<Option<u64>, Error> {
        if let Some(known) = head.txn(app) {
            return Ok(known);
        }
        let sequence = match self.snapshots.get(Some(head.version)).await? {
            Some(snapshot) => snapshot.txn(app).await?,
            None => None,
        };
        head.learn(app, sequence);
        Ok(sequence)
    }

    /// Makes what is visible in the log durable, where the store does not do that itself.
    pub(super) async fn settle(&self) -> Result<(), Error> {
        let Some((durable, log)) = &self.parts.durable else { return Ok(()) };
        durable.settle(log).await.map_err(|error| Error::store("syncing", log, error))
    }

    /// The newest version known to hold everything that was reported committed; only grows. `None` before first contact,
    /// and while the table has no log.
    pub fn published(&self) -> Option<u64> {
        *self.published.borrow()
    }

    /// The same, to wait on.
    pub fn watch_published(&self) -> watch::Receiver<Option<u64>> {
        self.published.subscribe()
    }

    pub(super) fn publish(&self, version: u64) {
        self.published.send_if_modified(|published| {
            let newer = *published < Some(version);
            if newer {
                *published = Some(version);
            }
            newer
        });
    }

    /// A snapshot no older than `at_least`: the kept one where that is enough, without a call to the store. With `None`
    /// the log is listed and the newest version returned, other writers' commits included. `None` if the table has no
    /// log yet.
    ///
    /// # Errors
    /// The log could not be read, or the table there is not ours.
    pub async fn snapshot(&self, at_least: Option<u64>) -> Result<Option<Arc<Snapshot>>, Error> {
        let Some(snapshot) = self.snapshots.get(at_least).await? else { return Ok(None) };
        let metadata = snapshot.eager().metadata();
        if let Err(refused) = self.identity.accept(self.url().as_str(), metadata.id(), metadata.name()) {
            self.snapshots.forget();
            return Err(refused);
        }
        Ok(Some(snapshot))
    }

    /// How large the table is.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot).
    pub async fn stats(&self) -> Result<Stats, Error> {
        let Some(snapshot) = self.snapshot(self.published()).await? else {
            return Ok(Stats { rows: Some(0), ..Stats::default() });
        };
        let files = u64::try_from(snapshot.files()).unwrap_or(u64::MAX);
        Ok(Stats { version: Some(snapshot.version()), files, rows: snapshot.rows() })
    }
}

fn definition(location: &str, snapshot: &Snapshot) -> Result<Definition, Error> {
    let corrupt =
        |error: serde_json::Error| Error::Corrupt { location: location.to_owned(), reason: error.to_string() };
    let protocol = serde_json::to_value(snapshot.eager().protocol()).and_then(serde_json::from_value);
    let metadata = serde_json::to_value(snapshot.eager().metadata()).and_then(serde_json::from_value);
    Definition::new(location, protocol.map_err(corrupt)?, metadata.map_err(corrupt)?)
}
