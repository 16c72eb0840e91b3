//! The table as of one version, file list included: for queries and statistics, not for commits.
//!
//! One snapshot is kept per table and advanced in place of opening the table again. Advancing lists the log behind the
//! kept version and costs time and memory in the number of files.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use deltalake::DeltaTableError;
use deltalake::kernel::EagerSnapshot;
use deltalake::logstore::LogStoreRef;
use deltalake::table::state::DeltaTableState;
use futures::StreamExt;
use parking_lot::Mutex;
use penstock_store::{Incarnation, NodeId};

use super::Error;
use super::entry::{Txn, app_id};

/// Versions whose `txn` actions are remembered, so that advancing a snapshot need not read them again.
const MAX_NOTES: usize = 256;

/// A table's state at one version. Cheap to clone behind its `Arc`; a query pins one.
pub struct Snapshot {
    state: DeltaTableState,
    eager: Arc<EagerSnapshot>,
    log_store: LogStoreRef,
    /// What was looked up: the sequence that an application id stands at in this version, if any.
    txns: Mutex<HashMap<String, Option<u64>>>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({} version {})", self.log_store.root_url(), self.version())
    }
}

impl Snapshot {
    fn new(state: DeltaTableState, log_store: LogStoreRef, txns: HashMap<String, Option<u64>>) -> Arc<Self> {
        let eager = Arc::new(state.snapshot().clone());
        Arc::new(Self { state, eager, log_store, txns: Mutex::new(txns) })
    }

    /// The Delta version.
    pub fn version(&self) -> u64 {
        self.state.version()
    }

    /// The file list, for a table provider.
    pub fn eager(&self) -> &Arc<EagerSnapshot> {
        &self.eager
    }

    /// The stores behind the table.
    pub fn log_store(&self) -> &LogStoreRef {
        &self.log_store
    }

    /// The highest seal sequence of the node's incarnation that this version holds; none if it holds no rows of it.
    ///
    /// # Errors
    /// The log could not be read.
    pub async fn committed(&self, node: NodeId, incarnation: Incarnation) -> Result<Option<u64>, Error> {
        self.txn(&app_id(node, incarnation)).await
    }

    /// The same, by application id. The first question about an id reads the log; the answer is kept, and carried on to
    /// later versions.
    pub(super) async fn txn(&self, app: &str) -> Result<Option<u64>, Error> {
        if let Some(known) = self.txns.lock().get(app) {
            return Ok(*known);
        }
        let read = self.eager.transaction_version(self.log_store.as_ref(), app).await;
        let version = read.map_err(|error| Error::delta("reading txn of", self.log_store.root_url(), error))?;
        let sequence = version.and_then(|version| u64::try_from(version).ok());
        self.txns.lock().insert(app.to_owned(), sequence);
        Ok(sequence)
    }

    /// Data files in this version.
    pub fn files(&self) -> usize {
        self.eager.log_data().num_files()
    }

    /// Rows in this version; none if a file came without statistics.
    pub fn rows(&self) -> Option<u64> {
        self.eager.log_data().iter().map(|file| file.num_records().and_then(|rows| u64::try_from(rows).ok())).sum()
    }
}

/// Keeps a table's newest snapshot.
pub(super) struct Snapshots {
    log_store: LogStoreRef,
    current: Mutex<Option<Arc<Snapshot>>>,
    /// One task advances, the others wait for its result.
    advance: tokio::sync::Mutex<()>,
    notes: Mutex<BTreeMap<u64, Vec<Txn>>>,
}

impl Snapshots {
    pub(super) fn new(log_store: LogStoreRef) -> Self {
        Self { log_store, current: Mutex::default(), advance: tokio::sync::Mutex::default(), notes: Mutex::default() }
    }

    /// Remembers what the entry of `version` says, which the caller has written or read.
    pub(super) fn note(&self, version: u64, txns: Vec<Txn>) {
        let mut notes = self.notes.lock();
        notes.insert(version, txns);
        if notes.len() > MAX_NOTES {
            notes.pop_first();
        }
    }

    /// The kept snapshot if it is no older than `at_least`, without a call to the store; else, and for `None` always,
    /// the newest version that the log lists. `None` if the table has no log.
    pub(super) async fn get(&self, at_least: Option<u64>) -> Result<Option<Arc<Snapshot>>, Error> {
        if let Some(kept) = self.kept(at_least) {
            return Ok(Some(kept));
        }
        let _turn = self.advance.lock().await;
        if let Some(kept) = self.kept(at_least) {
            return Ok(Some(kept));
        }
        let kept = self.current.lock().clone();
        let newest = match kept {
            Some(kept) => Some(self.advanced(&kept).await?),
            None => self.load(None).await?,
        };
        self.keep(newest, at_least)
    }

    /// The snapshot of one version, read from nothing.
    pub(super) async fn at(&self, version: u64, at_least: Option<u64>) -> Result<Option<Arc<Snapshot>>, Error> {
        let _turn = self.advance.lock().await;
        self.keep(self.load(Some(version)).await?, at_least)
    }

    fn keep(&self, newest: Option<Arc<Snapshot>>, at_least: Option<u64>) -> Result<Option<Arc<Snapshot>>, Error> {
        let reached = newest.as_ref().map(|snapshot| snapshot.version());
        if let Some(wanted) = at_least.filter(|wanted| reached < Some(*wanted)) {
            return Err(Error::LogEnds { location: self.log_store.root_url().to_string(), reached, wanted });
        }
        self.current.lock().clone_from(&newest);
        Ok(newest)
    }

    /// Drops the kept snapshot, so that the next one is read from nothing: the log may not be the one it was made of.
    pub(super) fn forget(&self) {
        *self.current.lock() = None;
        self.notes.lock().clear();
    }

    fn kept(&self, at_least: Option<u64>) -> Option<Arc<Snapshot>> {
        let at_least = at_least?;
        self.current.lock().as_ref().filter(|kept| kept.version() >= at_least).cloned()
    }

    async fn load(&self, version: Option<u64>) -> Result<Option<Arc<Snapshot>>, Error> {
        // MUST BEFORE the log is opened: the other way round, a table created in between would be a log that cannot be opened and
        // is not empty, which is a damaged one. Without a table delta-rs fails in more than one way; only an empty listing says
        // that there is none.
        if self.is_empty().await? {
            return Ok(None);
        }
        match DeltaTableState::try_new(self.log_store.as_ref(), version).await {
            Ok(state) => {
                let txns = self.noted(state.version());
                Ok(Some(Snapshot::new(state, Arc::clone(&self.log_store), txns)))
            }
            Err(DeltaTableError::NotATable(reason)) => {
                Err(Error::Corrupt { location: self.log_store.root_url().to_string(), reason })
            }
            Err(error) => Err(self.failed("opening", error)),
        }
    }

    async fn is_empty(&self) -> Result<bool, Error> {
        let store = self.log_store.object_store(None);
        match store.list(Some(self.log_store.log_path())).next().await {
            None | Some(Err(object_store::Error::NotFound { .. })) => Ok(true),
            Some(Ok(_)) => Ok(false),
            Some(Err(error)) => Err(Error::store("listing the log of", self.log_store.root_url(), error)),
        }
    }

    async fn advanced(&self, kept: &Arc<Snapshot>) -> Result<Arc<Snapshot>, Error> {
        let mut state = kept.state.clone();
        if let Err(error) = state.update(self.log_store.as_ref(), None).await {
            // Clean-up may have taken the entries between; what is there now can still be read from nothing.
            return self.load(None).await?.ok_or_else(|| self.failed("updating", error));
        }
        if state.version() == kept.version() {
            return Ok(Arc::clone(kept));
        }
        let txns = self.carried(kept, state.version());
        Ok(Snapshot::new(state, Arc::clone(&self.log_store), txns))
    }

    /// What the entries up to `version` that we wrote or read ourselves, without a gap before it, say of application ids: the newest of
    /// them is where its id stands. So a table can be read while its store cannot, if it has been read before.
    fn noted(&self, version: u64) -> HashMap<String, Option<u64>> {
        let notes = self.notes.lock();
        let mut txns = HashMap::new();
        for entry in (0..=version).rev().map_while(|version| notes.get(&version)) {
            for txn in entry {
                txns.entry(txn.app.clone()).or_insert_with(|| u64::try_from(txn.version).ok());
            }
        }
        txns
    }

    /// What is known about application ids at `version`, from what was known at the kept one and each entry between;
    /// nothing if one of those was neither written nor read by us.
    fn carried(&self, kept: &Snapshot, version: u64) -> HashMap<String, Option<u64>> {
        let mut notes = self.notes.lock();
        let mut txns = kept.txns.lock().clone();
        for between in kept.version() + 1..=version {
            let Some(entry) = notes.get(&between) else { return HashMap::new() };
            txns.extend(entry.iter().map(|txn| (txn.app.clone(), u64::try_from(txn.version).ok())));
        }
        *notes = notes.split_off(&(version + 1));
        txns
    }

    fn failed(&self, action: &'static str, error: DeltaTableError) -> Error {
        Error::delta(action, self.log_store.root_url(), error)
    }
}
