//! What a query reads, fixed at one moment.
//!
//! The order is the whole point. First the unflushed rows of *all* tables are pinned, then Delta snapshots no older than the
//! published versions are taken, and only then are those generations dropped that a snapshot contains, by their seal as it is now.
//! A generation that commits in between is in both and is filtered; in the other order it could be in neither.
//!
//! A table of which nothing is published yet may hold rows of earlier starts, so its log is read. If the lake cannot be reached then,
//! the query fails with that reason: an answer from the unflushed rows alone could be short without anybody noticing.

use std::sync::Arc;

use penstock_store::{GenerationView, NodeId, Store, TableView};

use super::Error;
use crate::lake::{self, Lake, Snapshot};
use crate::schema::registry::{Registry, Table};

/// One table as a query sees it.
#[derive(Debug, Clone)]
pub struct PinnedTable {
    pub table: Arc<Table>,
    /// None if nothing was ever flushed.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The generations that the snapshot does not contain.
    pub unflushed: Vec<GenerationView>,
}

/// The unflushed rows of all tables of a query: the first half of its view.
#[derive(Debug)]
pub struct Unflushed(Vec<(Arc<Table>, TableView)>);

impl Unflushed {
    /// Pins the unflushed rows of these tables.
    pub fn pin(store: &Store, registry: &Registry, tables: Vec<Arc<Table>>) -> Self {
        let pin = |table: Arc<Table>| {
            let view = store.view(table.id);
            // MUST AFTER the view: it may hold rows of a schema version that the table got since it was looked up, and only a
            // definition of that version can read them.
            (registry.by_id(table.id).unwrap_or(table), view)
        };
        Self(tables.into_iter().map(pin).collect())
    }

    /// Adds the snapshots, and drops what they contain. It consumes the first half, so that nothing is pinned the other way round.
    ///
    /// # Errors
    /// [`Error::Lake`] if a table's log cannot be read.
    pub async fn with_snapshots(self, lake: &Lake, node: NodeId) -> Result<Vec<PinnedTable>, Error> {
        let pins = self.0.into_iter().map(|(table, view)| async move {
            let pinned = pin(lake, node, Arc::clone(&table), view).await;
            pinned.map_err(|source| Error::Lake { table: table.spec.name.clone(), source: Box::new(source) })
        });
        futures::future::try_join_all(pins).await
    }
}

async fn pin(lake: &Lake, node: NodeId, table: Arc<Table>, view: TableView) -> Result<PinnedTable, lake::Error> {
    let lake_table = lake.table(table.id, &table.spec.name);
    // MUST AFTER the view: a generation that was gone from it was published before, and is asked for here.
    let snapshot = lake_table.snapshot(lake_table.published()).await?;
    let mut unflushed = Vec::with_capacity(view.generations.len());
    for generation in view.generations {
        let covered = match (&snapshot, generation.current_seal()) {
            (Some(snapshot), Some(seal)) => snapshot.committed(node, seal.incarnation).await? >= Some(seal.sequence),
            _ => false,
        };
        if !covered {
            unflushed.push(generation);
        }
    }
    Ok(PinnedTable { table, snapshot, unflushed })
}
