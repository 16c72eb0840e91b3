//! Brings catalog, log and registry to the same tables. The log wins: it says what its rows are.
//!
//! A table is made in this order: catalog, Define in the log, first rows. After a crash behind the first step the catalog alone knows
//! it, and the log gets its definition now; behind the second one nothing is missing. A catalog that was lost or restored from
//! an older copy gets back what the log knows.

use std::collections::HashMap;

use penstock_store::{Store, TableId};

use crate::catalog::{self, Catalog};
use crate::ingest::post::{CreateError, Ingest};
use crate::schema::registry::{Registry, Table};
use crate::schema::{TableName, TableSpec};

/// Why the tables do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the log holds a definition of table {0} that cannot be read: {1}")]
    Definition(TableId, serde_json::Error),
    #[error(
        "the catalog and the log know table {name} under different ids ({catalog} and {log}); the catalog is not this log's: move it \
         away to have it rebuilt"
    )]
    Mismatch { name: TableName, catalog: TableId, log: TableId },
    #[error("the log knows two tables {name}: {first} and {second}")]
    Twice { name: TableName, first: TableId, second: TableId },
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
    #[error(transparent)]
    Define(#[from] CreateError),
}

/// Fills the registry, and adds to catalog and log what only the other one knows.
///
/// # Errors
/// [`Error`]; what was added until then is right all the same.
pub async fn reconcile(store: &Store, catalog: &Catalog, registry: &Registry, ingest: &Ingest) -> Result<(), Error> {
    let known: HashMap<TableId, TableSpec> = catalog.tables().await?.into_iter().collect();
    let names: HashMap<&TableName, TableId> = known.iter().map(|(id, spec)| (&spec.name, *id)).collect();
    for define in store.definitions() {
        let log = define.table;
        let spec: TableSpec = serde_json::from_slice(&define.body).map_err(|e| Error::Definition(log, e))?;
        if let Some(catalog) = names.get(&spec.name).copied().filter(|id| *id != log) {
            return Err(Error::Mismatch { name: spec.name, catalog, log });
        }
        if !known.contains_key(&log) {
            tracing::warn!(table = %spec.name, "the log knows a table that the catalog has forgotten; added again");
            catalog.create_table(log, &spec).await?;
        }
        let first = registry.insert(Table { id: log, spec });
        if first.id != log {
            return Err(Error::Twice { name: first.spec.name.clone(), first: first.id, second: log });
        }
    }
    for (id, spec) in known {
        if registry.by_id(id).is_none() {
            ingest.define(id, &spec).await?;
            registry.insert(Table { id, spec });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
