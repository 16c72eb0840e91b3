//! One Delta table: what is known of its head, and the answers that do not write.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deltalake::logstore::LogStoreRef;
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use penstock_store::{Incarnation, NodeId, TableId};
use tokio::sync::watch;
use url::Url;

use super::Error;
use super::care::{Care, Caretaker};
use super::durable::Durable;
use super::entry::{APP_PREFIX, app_id};
use super::fence::Fence;
use super::head::{Books, State};
use super::identity::Identity;
use super::lean;
use super::patience::Patience;
use super::proof::Proof;
use super::snapshot::{Snapshot, Snapshots};
use super::tally::Tally;
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
    /// How long a look at the head is good for.
    pub(super) head_ttl: Duration,
    pub(super) fence: Arc<Fence>,
    pub(super) care: Arc<Care>,
    pub(super) tally: Arc<Tally>,
    /// Of the whole lake.
    pub(super) proof: Arc<Proof>,
}

/// A handle on one Delta table. All methods may be called from many tasks; commits wait for each other.
pub struct LakeTable {
    pub(super) identity: Arc<Identity>,
    pub(super) parts: Parts,
    /// The commit lock, around what a commit needs to know.
    pub(super) books: tokio::sync::Mutex<Books>,
    pub(super) snapshots: Snapshots,
    published: watch::Sender<Option<u64>>,
    /// What the table says of [`FileSettings::stats_columns`](super::FileSettings), as of the newest head; outside of the commit lock,
    /// as uploads do not wait for commits.
    pub(super) stats_columns: Mutex<Option<String>>,
    pub(super) caretaker: Arc<Caretaker>,
}

impl fmt::Debug for LakeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LakeTable({} {} at {})", self.identity.name(), self.identity.own(), self.url())
    }
}

impl LakeTable {
    pub(super) fn new(id: TableId, name: TableName, parts: Parts) -> Self {
        let snapshots = Snapshots::new(Arc::clone(&parts.log_store));
        let identity = Arc::new(Identity::new(id, name));
        let caretaker = Caretaker::new(Arc::clone(&identity), &parts);
        let (books, published) = (Default::default(), watch::Sender::new(None));
        Self { identity, parts, books, snapshots, published, stats_columns: Mutex::default(), caretaker }
    }

    /// Where the table lies; ends with a slash.
    pub fn location(&self) -> Url {
        self.url().clone()
    }

    pub(super) fn url(&self) -> &Url {
        self.parts.log_store.root_url()
    }

    /// Whether to confirm costs next to nothing, so that nobody need wait for more commits to share it.
    pub fn is_local(&self) -> bool {
        self.parts.durable.is_some()
    }

    /// The highest committed sequence of each of the node's incarnations, in the order asked for; `None` where the table
    /// holds no rows of it. A later [`commit`](Self::commit) may move only the incarnation it is for. All of it is
    /// confirmed: the rows may leave our log.
    ///
    /// The first contact reads the log; from then on the answer is known, unless a commit was left unsettled or is not
    /// confirmed.
    ///
    /// # Errors
    /// The log could not be read, or the table is not one that we may append to; `Stale`, as [`confirm`](Self::confirm).
    pub async fn resolve(&self, incarnations: &[Incarnation], node: NodeId) -> Result<Vec<Option<u64>>, Error> {
        // Whoever commits has asked this first; on a store that is not fit nothing is to be uploaded either.
        self.parts.proof.ensure().await?;
        let mut books = self.books.lock().await;
        self.parts.fence.check()?;
        self.confirmed(&mut books).await?;
        let State::Known(head) = &books.state else { return Ok(vec![None; incarnations.len()]) };
        Ok(incarnations.iter().map(|incarnation| head.txn(&app_id(node, *incarnation))).collect())
    }

    /// Every application id of the node that the table holds rows of, whatever start, with its sequence. As of the head;
    /// nothing before first contact.
    pub async fn standings(&self, node: NodeId) -> Vec<(String, u64)> {
        let books = self.books.lock().await;
        let State::Known(head) = &books.state else { return Vec::new() };
        let prefix = format!("{APP_PREFIX}{node}/");
        let ours = head.txns().filter(|(app, _)| app.starts_with(&prefix));
        ours.map(|(app, sequence)| (app.clone(), sequence)).collect()
    }

    /// Makes what is visible in the log durable, where the store does not do that itself.
    pub(super) async fn settle(&self) -> Result<(), Error> {
        let Some((durable, log)) = &self.parts.durable else { return Ok(()) };
        durable.settle(log).await.map_err(|error| Error::store("syncing", log, error))
    }

    /// The newest version known to hold everything that was confirmed. `None` before first contact, and while the table has
    /// no log. Grows, as long as nobody takes versions away: a table that was dropped or set back begins again.
    pub fn published(&self) -> Option<u64> {
        *self.published.borrow()
    }

    /// The same, to wait on.
    pub fn watch_published(&self) -> watch::Receiver<Option<u64>> {
        self.published.subscribe()
    }

    /// MUST AFTER the version is confirmed: with a checkpoint over a commit that turns out to be in a hole, or in a table that
    /// was made anew without its files, the commit could not be taken back.
    pub(super) fn publish(&self, version: u64) {
        self.caretaker.committed(version);
        self.published.send_if_modified(|published| {
            let newer = *published < Some(version);
            if newer {
                *published = Some(version);
            }
            newer
        });
    }

    /// The log was replaced: what was published is not in it.
    pub(super) fn republish(&self, version: Option<u64>) {
        self.published.send_replace(version);
    }

    /// A snapshot no older than `at_least`: the kept one where that is enough, without a call to the store. With `None`
    /// the log is listed and the newest version returned, other writers' commits included. `None` if the table has no
    /// log yet.
    ///
    /// # Errors
    /// The log could not be read, or the table there is not ours.
    pub async fn snapshot(&self, at_least: Option<u64>) -> Result<Option<Arc<Snapshot>>, Error> {
        let found = match self.newest(at_least).await {
            // A version that was confirmed is gone: somebody has set the table back, or made it anew. What is there now is
            // the table; to ask for the version again would fail for ever.
            Err(Error::LogEnds { reached, .. }) if at_least <= self.published() => {
                self.snapshots.forget();
                let found = self.newest(None).await?;
                tracing::warn!(table = %self.url(), reached, published = at_least, "the log was set back by somebody else");
                self.republish(found.as_ref().map(|snapshot| snapshot.version()));
                found
            }
            found => found?,
        };
        let Some(snapshot) = found else { return Ok(None) };
        let metadata = snapshot.eager().metadata();
        if let Err(refused) = self.identity.accept(self.url().as_str(), metadata.id(), metadata.name()) {
            self.snapshots.forget();
            return Err(refused);
        }
        Ok(Some(snapshot))
    }

    /// The newest version that can be read: delta-rs reads no log that has a gap, and a PUT into a hole leaves one until it is
    /// removed.
    async fn newest(&self, at_least: Option<u64>) -> Result<Option<Arc<Snapshot>>, Error> {
        match self.snapshots.get(at_least).await {
            Err(error @ Error::Delta { .. }) => match lean::end_before_gap(&self.parts).await? {
                Some(version) => self.snapshots.at(version, at_least).await,
                None => Err(error),
            },
            found => found,
        }
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
