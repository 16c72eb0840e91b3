//! The tables of this node, by name and by id, as every stage looks them up.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use penstock_store::TableId;

use super::{TableName, TableSpec};

/// A table and its newest definition, which says how rows of every version are read.
#[derive(Debug)]
pub struct Table {
    /// Never reused.
    pub id: TableId,
    /// The newest schema version.
    pub spec: TableSpec,
}

/// Name to table, id to table. Read by many threads, written when a table is made or gets columns.
#[derive(Debug, Default)]
pub struct Registry {
    by_name: DashMap<TableName, Arc<Table>>,
    by_id: DashMap<TableId, Arc<Table>>,
}

impl Registry {
    /// Makes a table known; one that is known under this name stays, and is returned.
    pub fn insert(&self, table: Table) -> Arc<Table> {
        match self.by_name.entry(table.spec.name.clone()) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(vacant) => {
                let table = Arc::new(table);
                self.by_id.insert(table.id, Arc::clone(&table));
                vacant.insert(Arc::clone(&table));
                table
            }
        }
    }

    /// Makes a later definition of a table known; an older one, or one of a table that is not known, changes nothing. Returns the
    /// table as it is known now.
    pub fn advance(&self, table: Table) -> Option<Arc<Table>> {
        let mut by_id = self.by_id.get_mut(&table.id)?;
        if by_id.spec.schema_version < table.spec.schema_version {
            let newer = Arc::new(table);
            *by_id = Arc::clone(&newer);
            drop(by_id);
            // MUST AFTER: rows are accepted under what the name says, and read under what the id says, which has to know at
            // least as much.
            self.by_name.insert(newer.spec.name.clone(), Arc::clone(&newer));
            return Some(newer);
        }
        Some(Arc::clone(&by_id))
    }

    /// The table of this name.
    pub fn by_name(&self, name: &TableName) -> Option<Arc<Table>> {
        self.by_name.get(name).map(|t| Arc::clone(&t))
    }

    /// The table of this id.
    pub fn by_id(&self, id: TableId) -> Option<Arc<Table>> {
        self.by_id.get(&id).map(|t| Arc::clone(&t))
    }

    /// All tables, by name.
    pub fn all(&self) -> Vec<Arc<Table>> {
        let mut tables: Vec<_> = self.by_name.iter().map(|t| Arc::clone(&t)).collect();
        tables.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        tables
    }
}
