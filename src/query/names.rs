//! Names of a query: one catalog, a schema for each namespace, tables that the query pinned.
//!
//! All other tables can be looked at and not read: information_schema asks for every table's columns, which the definition alone
//! tells, without a call to the lake.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::provider::PinnedProvider;
use super::view::PinnedTable;
use crate::schema::TableName;
use crate::schema::arrow::table_arrow_schema;
use crate::schema::name::DEFAULT_NAMESPACE;
use crate::schema::registry::{Registry, Table};

/// The catalog's name in SQL.
pub const CATALOG: &str = "penstock";

type Pinned = HashMap<TableName, Arc<PinnedProvider>>;

/// The catalog of one query.
#[derive(Debug)]
pub struct Names {
    registry: Arc<Registry>,
    pinned: Arc<Pinned>,
}

#[derive(Debug)]
struct Namespace {
    name: String,
    registry: Arc<Registry>,
    pinned: Arc<Pinned>,
}

/// A table that the query does not read.
#[derive(Debug)]
struct Described(Arc<Table>);

impl Names {
    /// All tables by name, with the pinned ones to be read.
    pub fn new(registry: &Arc<Registry>, pinned: Vec<PinnedTable>) -> Self {
        let provider = |pinned: PinnedTable| (pinned.table.spec.name.clone(), Arc::new(PinnedProvider::new(pinned)));
        let pinned = Arc::new(pinned.into_iter().map(provider).collect());
        Self { registry: Arc::clone(registry), pinned }
    }
}

impl CatalogProvider for Names {
    fn schema_names(&self) -> Vec<String> {
        let tables = self.registry.all();
        let mut names: BTreeSet<&str> = tables.iter().map(|t| t.spec.name.namespace()).collect();
        names.insert(DEFAULT_NAMESPACE);
        names.into_iter().map(str::to_owned).collect()
    }

    /// One for every name: a namespace without tables has none to be found.
    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let (registry, pinned) = (Arc::clone(&self.registry), Arc::clone(&self.pinned));
        Some(Arc::new(Namespace { name: name.to_owned(), registry, pinned }))
    }
}

impl Namespace {
    fn find(&self, name: &str) -> Option<Arc<Table>> {
        self.registry.by_name(&TableName::new(&self.name, name).ok()?)
    }
}

#[async_trait]
impl SchemaProvider for Namespace {
    fn table_names(&self) -> Vec<String> {
        let tables = self.registry.all();
        let names = tables.iter().map(|t| &t.spec.name).filter(|name| name.namespace() == self.name);
        names.map(|name| name.name().to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(table) = self.find(name) else { return Ok(None) };
        let pinned = self.pinned.get(&table.spec.name);
        Ok(Some(match pinned {
            Some(pinned) => Arc::clone(pinned) as Arc<dyn TableProvider>,
            None => Arc::new(Described(table)),
        }))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        Ok(self.find(name).map(|_| TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.find(name).is_some()
    }
}

#[async_trait]
impl TableProvider for Described {
    fn schema(&self) -> SchemaRef {
        table_arrow_schema(&self.0.spec)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Every table that a statement names was pinned before planning, but for one made at that very moment.
        Err(DataFusionError::Plan(format!("table {} was made while the query began; run it again", self.0.spec.name)))
    }
}
