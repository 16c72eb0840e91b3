//! The composition root: the only place where the parts meet.
//!
//! Start order: store (reads the log), catalog (brought into line with the log), lake, flush, query. Stop order is the reverse of what
//! can still produce work: senders first (`server`), then flush, then the store, then the catalog.
//!
//! - [`Engine`]: starts, holds and stops the parts;
//! - [`reconcile`]: brings catalog, log and registry to the same tables;
//! - [`proving`]: asks beside all that whether the lake can be committed to, which nobody waits for;
//! - [`history`]: notes commits in the catalog; [`receipts`]: what has become of acknowledged rows;
//! - [`journal`]: keeps uploads that are in no commit yet in the catalog;
//! - `pressure`: measures for admission, and checkpoints early where it asks for it;
//! - [`tuning`]: settings that change while it runs; [`explain`]: which of them would help now, from what is `measure`d;
//! - `replay_rate`: what is known of how fast a log is replayed;
//! - [`letters`]: dead letters, listed and replayed;
//! - [`status`]: one snapshot of their figures, as types of the HTTP API; `metrics`: the same for Prometheus;
//! - [`doctor`]: a lake examined without an engine.

pub mod doctor;
pub mod explain;
mod history;
mod journal;
pub mod letters;
mod measure;
mod metrics;
mod pressure;
mod proving;
pub mod receipts;
mod reconcile;
mod replay_rate;
pub mod status;
pub mod tuning;

use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_store::fs::RealFileSystem;
use penstock_store::{CheckpointError, OpenError, Progress, Store, TableId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::admission::{self, Admission, Backlog, POST_OVERHEAD};
use crate::catalog::{self, Catalog};
use crate::config::kept::KeptError;
use crate::config::{Config, Layers, Loaded};
use crate::flush::{FlushError, Flusher};
use crate::ingest::post::Ingest;
use crate::lake::{self, Lake};
use crate::query::{self, Sql};
use crate::schema::TableName;
use crate::schema::registry::{Registry, Table};
use journal::UploadJournal;
use measure::Notes;
use replay_rate::ReplayRate;

pub use crate::flush::Decision;

/// How long a stop waits for checkpoints of Delta logs, which the next commits would write as well.
const CARE_PATIENCE: Duration = Duration::from_secs(2);

/// How long a stop waits for the history of commits: it is for people, and the tables hold the truth.
const HISTORY_PATIENCE: Duration = Duration::from_secs(5);

/// Why the engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
    #[error(transparent)]
    Lake(#[from] lake::Error),
    #[error(transparent)]
    Kept(#[from] KeptError),
    #[error(transparent)]
    Query(#[from] query::Error),
    #[error(transparent)]
    Tables(#[from] reconcile::Error),
    #[error("starting threads: {0}")]
    Threads(#[from] std::io::Error),
    #[error("the opening thread ended: {0}")]
    Opening(#[from] tokio::task::JoinError),
}

/// All parts, running.
#[derive(Debug)]
pub struct Engine {
    /// As of the start.
    config: Config,
    /// The settings in force.
    layers: parking_lot::Mutex<Layers>,
    store: Arc<Store>,
    catalog: Catalog,
    lake: Arc<Lake>,
    registry: Arc<Registry>,
    replay_rate: ReplayRate,
    admission: Arc<Admission>,
    notes: parking_lot::Mutex<Notes>,
    eyes: Eyes,
    ingest: Ingest,
    flusher: Flusher,
    history: parking_lot::Mutex<Option<JoinHandle<()>>>,
    waiting: receipts::Waiting,
    proving: JoinHandle<()>,
    sql: Sql,
    /// Held while dead letters are replayed.
    replaying: tokio::sync::Mutex<()>,
    started: Instant,
}

/// What measures for admission, until it is told to stop.
#[derive(Debug)]
struct Eyes {
    stopping: watch::Sender<bool>,
    pressure: JoinHandle<()>,
}

impl Drop for Eyes {
    fn drop(&mut self) {
        self.pressure.abort();
    }
}

impl Engine {
    /// Opens the data directory and starts everything.
    ///
    /// # Errors
    /// [`StartError`]; nothing that was acknowledged is changed.
    pub async fn start(settings: impl Into<Loaded>) -> Result<Arc<Self>, StartError> {
        Self::start_telling(settings.into(), Arc::default()).await
    }

    /// As [`Self::start`], and tells meanwhile how much of the log has been read.
    ///
    /// Who drops this future gives the start up. The opening of the store goes on all the same, on a thread of its own, until it is
    /// done or the process ends; it can end anywhere.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_telling(settings: Loaded, progress: Arc<Progress>) -> Result<Arc<Self>, StartError> {
        let layers = tuning::layers(settings)?;
        let config = layers.config();
        let store = open_store(&config, progress).await?;
        let recovered = store.recovery();
        tracing::info!(
            node = %store.node(),
            records = recovered.records,
            bytes = recovered.bytes,
            spilled = recovered.spilled,
            millis = recovered.micros / 1000,
            "log read"
        );
        let catalog = Catalog::open(&config.data_dir).await?;
        let registry = Arc::new(Registry::default());
        let lake = Arc::new(Lake::open(&config.lake, &config.data_dir)?);
        let ingest = Ingest::new(Arc::clone(&store), Arc::clone(&registry), catalog.clone(), config.ingest.clone());
        reconcile::reconcile(&store, &catalog, &registry, &ingest).await?;
        let replay_rate = replay_rate::find(&store, config.store.shards).await;
        let admission = Admission::new(limits(&store, replay_rate, &config));
        let (stopping, stopped) = watch::channel(false);
        let pressure = pressure::watch(&store, &admission, stopped);
        let (flushed, heard) = mpsc::unbounded_channel();
        let flusher = Flusher::start(
            Arc::clone(&store),
            Arc::clone(&lake),
            Arc::clone(&registry),
            config.flush.clone(),
            Arc::new(UploadJournal::new(catalog.clone())),
            relief(&store, &admission),
            flushed,
        )?;
        let (noted, in_history) = watch::channel(0);
        let keeping = history::keep(catalog.clone(), heard, noted, config.flush.history);
        let history = parking_lot::Mutex::new(Some(tokio::spawn(keeping)));
        // The others of the connections are for those who do not wait.
        let waiting = receipts::Waiting::new(config.server.max_connections / 2, in_history);
        let sql = Sql::new(Arc::clone(&store), Arc::clone(&lake), Arc::clone(&registry), config.query.clone())?;
        let proving = tokio::spawn(proving::prove(Arc::clone(&lake)));
        let started = Instant::now();
        let eyes = Eyes { stopping, pressure };
        let engine = Arc::new(Self {
            config,
            layers: parking_lot::Mutex::new(layers),
            store,
            catalog,
            lake,
            registry,
            replay_rate,
            admission,
            notes: parking_lot::Mutex::default(),
            eyes,
            ingest,
            flusher,
            history,
            waiting,
            proving,
            sql,
            replaying: tokio::sync::Mutex::new(()),
            started,
        });
        measure::watch(&engine);
        Ok(engine)
    }

    /// The settings as of the start.
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn limits(&self, config: &Config) -> admission::policy::Limits {
        limits(&self.store, self.replay_rate, config)
    }

    /// Takes posts and declarations.
    pub fn ingest(&self) -> &Ingest {
        &self.ingest
    }

    /// Answers queries.
    pub fn sql(&self) -> &Sql {
        &self.sql
    }

    /// The tables.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A table's Delta side.
    pub fn lake_table(&self, table: &Table) -> Arc<lake::LakeTable> {
        self.lake.table(table.id, &table.spec.name)
    }

    /// The schema versions of a table, the first one first.
    ///
    /// # Errors
    /// The catalog's.
    pub async fn schema_versions(&self, table: TableId) -> Result<Vec<catalog::SchemaVersion>, catalog::Error> {
        self.catalog.schema_versions(table).await
    }

    /// A lease for a post of `bytes` to a table, once it was held up for as long as the node's load asks for.
    ///
    /// # Errors
    /// The refusal, with the time to wait.
    pub async fn lease(&self, table: &TableName, bytes: u64) -> Result<admission::Lease, admission::Refusal> {
        let share = self.registry.by_name(table).and_then(|table| {
            self.admission.share(table.id, table.spec.name.namespace(), || self.store.usage(table.id))
        });
        let (mut lease, delay) = self.admission.lease(share, bytes, self.backlog())?;
        lease.work(POST_OVERHEAD)?;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(lease)
    }

    /// Extends a lease to `bytes` in all.
    ///
    /// # Errors
    /// The refusal; the lease stays as it was.
    pub fn grow(&self, lease: &mut admission::Lease, bytes: u64) -> Result<(), admission::Refusal> {
        lease.grow_to(bytes, self.backlog())
    }

    /// Whether a lease could be extended to `bytes` in all.
    ///
    /// # Errors
    /// The refusal.
    pub fn would_grow(&self, lease: &mut admission::Lease, bytes: u64) -> Result<(), admission::Refusal> {
        lease.would_grow_to(bytes, self.backlog())
    }

    fn backlog(&self) -> Backlog {
        Backlog { unflushed: self.store.held_bytes(), replay: self.store.replay_weight() }
    }

    /// Seconds that a restart would read manifests and logs, as it is to be expected from the recent ones.
    pub fn replay_estimate(&self) -> Duration {
        let rate = self.replay_rate.expected.max(1);
        let log = Duration::from_secs_f64(self.store.replay_weight() as f64 / rate as f64);
        Duration::from_micros(self.store.recovery().load_micros) + log
    }

    /// Why the node should get no traffic; none if it is well.
    pub fn unready(&self) -> Option<String> {
        self.store.poisoned().map(|e| e.to_string())
    }

    /// Rows of a table that are not known to be in Delta.
    pub fn unflushed_rows(&self, table: TableId) -> u64 {
        self.store.view(table).generations.iter().map(|g| g.totals().rows).sum()
    }

    /// Rows of a table that were committed since the start.
    pub fn rows_flushed(&self, table: TableId) -> u64 {
        self.flusher.progress(table).rows_flushed
    }

    /// Seals what is open in these tables and waits until it is in Delta.
    ///
    /// # Errors
    /// If it takes longer than `timeout`, or the log has stopped.
    pub async fn flush(&self, tables: &[TableId], timeout: Duration) -> Result<(), FlushError> {
        self.flusher.flush(tables, timeout).await
    }

    /// The same, and says what is to become of rows that may be in a table already, because the data directory is an older copy.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub async fn flush_deciding(
        &self,
        tables: &[TableId],
        timeout: Duration,
        decision: Option<Decision>,
    ) -> Result<(), FlushError> {
        self.flusher.flush_deciding(tables, timeout, decision).await
    }

    /// Checkpoints every log now, and waits for it: afterwards a restart reads next to nothing of them.
    ///
    /// # Errors
    /// The first shard's reason. The others are checkpointed all the same.
    pub async fn checkpoint(&self) -> Result<Vec<status::Checkpoint>, CheckpointError> {
        let store = Arc::clone(&self.store);
        let done = tokio::task::spawn_blocking(move || store.checkpoint()).await;
        let done = done.unwrap_or_else(|error| Err(CheckpointError::Stopped(error.to_string())));
        Ok(done?.into_iter().map(Into::into).collect())
    }

    /// Flushes what it can in the time the settings allow, and closes. What is left is checkpointed: the next start goes on with it.
    pub async fn stop(&self) {
        let tables: Vec<TableId> = self.registry.all().iter().map(|t| t.id).collect();
        if self.store.poisoned().is_none()
            && let Err(error) = self.flusher.flush(&tables, self.config.flush.shutdown_timeout).await
        {
            tracing::warn!(%error, "stopping with rows that are not in Delta; the next start goes on with them");
        }
        self.flusher.stop().await;
        self.lake.rest(CARE_PATIENCE).await;
        self.eyes.stopping.send_replace(true);
        self.proving.abort();
        let history = self.history.lock().take();
        if let Some(history) = history
            && tokio::time::timeout(HISTORY_PATIENCE, history).await.is_err()
        {
            tracing::warn!("the catalog is slow; the last commits are missing from its history");
        }
        let store = Arc::clone(&self.store);
        match tokio::task::spawn_blocking(move || store.close()).await {
            Ok(Ok(())) => tracing::info!("log closed"),
            Ok(Err(error)) => tracing::error!(%error, "the manifest was not updated; the log is whole"),
            Err(error) => tracing::error!(%error, "closing the log"),
        }
        self.catalog.close().await;
    }
}

async fn open_store(config: &Config, progress: Arc<Progress>) -> Result<Arc<Store>, StartError> {
    let (dir, options) = (config.data_dir.clone(), config.store.options());
    let open = move || Store::open_telling(Arc::new(RealFileSystem), &dir, &options, &progress);
    Ok(Arc::new(tokio::task::spawn_blocking(open).await??))
}

/// The limits that the settings amount to, on this node.
fn limits(store: &Store, replay_rate: ReplayRate, config: &Config) -> admission::policy::Limits {
    let load = Duration::from_micros(store.recovery().load_micros);
    config.admission.limits(replay_rate.bytes_per_second, load)
}

fn relief(store: &Arc<Store>, admission: &Arc<Admission>) -> impl Fn() -> u64 + Send + Sync + 'static {
    let (store, admission) = (Arc::clone(store), Arc::clone(admission));
    move || admission::policy::relief_bytes(store.held_bytes(), &admission.limits())
}

#[cfg(test)]
mod tests;
