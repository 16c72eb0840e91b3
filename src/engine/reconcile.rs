//! Brings catalog, log and registry to the same tables. The log wins: it says what its rows are.
//!
//! A table is made in this order: catalog, Define in the log, first rows. After a crash behind the first step the catalog alone knows
//! it, and the log gets its definition now; behind the second one nothing is missing. A table gets columns in the other order: Define,
//! then catalog, which may be behind after a crash. A catalog that was lost or restored from an older copy gets back what the log
//! knows; one that is ahead of the log on the log's own line gives the log the columns that it lacks.

use std::collections::HashMap;

use penstock_store::{Store, TableId};

use crate::catalog::{self, Catalog, Cause};
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
        let spec = agreed(log, spec, known.get(&log), catalog, ingest).await?;
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

/// The definition of a table that the log knows, once the catalog has the same.
async fn agreed(
    id: TableId,
    log: TableSpec,
    known: Option<&TableSpec>,
    catalog: &Catalog,
    ingest: &Ingest,
) -> Result<TableSpec, Error> {
    match known {
        None => {
            tracing::warn!(table = %log.name, "the log knows a table that the catalog has forgotten; added again");
            catalog.create_table(id, &log, Cause::Log).await?;
        }
        Some(known) if *known == log => {}
        Some(known)
            if known.schema_version > log.schema_version && known.at(log.schema_version).as_ref() == Some(&log) =>
        {
            ingest.define(id, known).await?;
            return Ok(known.clone());
        }
        Some(known) => {
            let (ours, theirs) = (log.schema_version, known.schema_version);
            tracing::warn!(table = %log.name, log = ours, catalog = theirs, "the catalog's definition is not the log's; corrected");
            catalog.put_definition(id, &log, Cause::Log).await?;
        }
    }
    Ok(log)
}

#[cfg(test)]
mod tests;
