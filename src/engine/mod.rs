//! The composition root: the only place where the parts meet.
//!
//! Start order: store (reads the log), catalog (brought into line with the log), lake, flush, query. Stop order is the reverse of what
//! can still produce work: senders first (`server`), then flush, then the store, then the catalog.
//!
//! - [`Engine`]: starts, holds and stops the parts;
//! - [`reconcile`]: brings catalog, log and registry to the same tables;
//! - [`proving`]: asks beside all that whether the lake can be committed to, which nobody waits for;
//! - [`history`]: notes commits in the catalog;
//! - [`status`]: one snapshot of their figures, as types of the HTTP API;
//! - [`doctor`]: a lake examined without an engine.

pub mod doctor;
mod history;
mod proving;
mod reconcile;
pub mod status;

use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_store::fs::RealFileSystem;
use penstock_store::{CheckpointError, OpenError, Progress, Store, TableId};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::admission::{self, Admission, Limits};
use crate::catalog::{self, Catalog};
use crate::config::Config;
use crate::flush::{FlushError, Flusher};
use crate::ingest::post::Ingest;
use crate::lake::{self, Lake};
use crate::query::{self, Sql};
use crate::schema::registry::{Registry, Table};

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
    config: Config,
    store: Arc<Store>,
    catalog: Catalog,
    lake: Arc<Lake>,
    registry: Arc<Registry>,
    admission: Arc<Admission>,
    ingest: Ingest,
    flusher: Flusher,
    history: parking_lot::Mutex<Option<JoinHandle<()>>>,
    proving: JoinHandle<()>,
    sql: Sql,
    started: Instant,
}

impl Engine {
    /// Opens the data directory and starts everything.
    ///
    /// # Errors
    /// [`StartError`]; nothing that was acknowledged is changed.
    pub async fn start(config: Config) -> Result<Arc<Self>, StartError> {
        Self::start_telling(config, Arc::default()).await
    }

    /// As [`Self::start`], and tells meanwhile how much of the log has been read.
    ///
    /// Who drops this future gives the start up. The opening of the store goes on all the same, on a thread of its own, until it is
    /// done or the process ends; it can end anywhere.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_telling(config: Config, progress: Arc<Progress>) -> Result<Arc<Self>, StartError> {
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
        let admission = Admission::new(Limits {
            max_unflushed: config.admission.max_unflushed.as_u64(),
            max_in_flight: config.admission.max_in_flight.as_u64(),
        });
        let (flushed, heard) = mpsc::unbounded_channel();
        let flusher = Flusher::start(
            Arc::clone(&store),
            Arc::clone(&lake),
            Arc::clone(&registry),
            config.flush.clone(),
            relief(&store, &admission),
            flushed,
        )?;
        let history = parking_lot::Mutex::new(Some(tokio::spawn(history::keep(catalog.clone(), heard))));
        let sql = Sql::new(Arc::clone(&store), Arc::clone(&lake), Arc::clone(&registry), config.query.clone())?;
        let proving = tokio::spawn(proving::prove(Arc::clone(&lake)));
        let started = Instant::now();
        Ok(Arc::new(Self {
            config,
            store,
            catalog,
            lake,
            registry,
            admission,
            ingest,
            flusher,
            history,
            proving,
            sql,
            started,
        }))
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
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

    /// A lease for a post of `bytes`.
    ///
    /// # Errors
    /// The refusal, with the time to wait.
    pub fn lease(&self, bytes: u64) -> Result<admission::Lease, admission::Refusal> {
        self.admission.lease(bytes, self.store.unflushed_bytes())
    }

    /// Extends a lease to `bytes` in all.
    ///
    /// # Errors
    /// The refusal; the lease stays as it was.
    pub fn grow(&self, lease: &mut admission::Lease, bytes: u64) -> Result<(), admission::Refusal> {
        lease.grow_to(bytes, self.store.unflushed_bytes())
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

fn relief(store: &Arc<Store>, admission: &Arc<Admission>) -> impl Fn() -> u64 + Send + Sync + 'static {
    let (store, admission) = (Arc::clone(store), Arc::clone(admission));
    move || {
        let usage = admission::Usage { unflushed: store.unflushed_bytes(), in_flight: admission.in_flight() };
        admission::policy::relief_bytes(usage, admission.limits())
    }
}

#[cfg(test)]
mod tests;
