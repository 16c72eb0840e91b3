//! One DataFusion session a query. All share one memory pool; each has its own names, so that a query sees one moment.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::CatalogProvider;
use datafusion::common::TableReference;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use futures::StreamExt;
use penstock_store::Store;
use tokio::sync::{mpsc, oneshot};

use super::Error;
use super::failure::{classify, text};
use super::names::{CATALOG, Names};
use super::statement;
use super::view::Unflushed;
use crate::lake::Lake;
use crate::schema::TableName;
use crate::schema::name::DEFAULT_NAMESPACE;
use crate::schema::registry::{Registry, Table};

/// What `SHOW TABLES` stands for here: people ask for their tables, not for those of information_schema.
const SHOW_TABLES: &str = "SELECT table_schema AS namespace, table_name AS \"table\" FROM information_schema.tables \
                           WHERE table_schema <> 'information_schema' ORDER BY 1, 2";

/// What queries read, and what they share.
#[derive(Debug)]
pub struct Sessions {
    store: Arc<Store>,
    lake: Arc<Lake>,
    registry: Arc<Registry>,
    runtime: Arc<RuntimeEnv>,
}

impl Sessions {
    /// Sessions that together may use `memory` bytes. Nothing is spilled to disk: the log's disk is not for queries, and a query
    /// that needs more gets an error which says so.
    ///
    /// # Errors
    /// If the runtime cannot be set up.
    pub fn new(store: Arc<Store>, lake: Arc<Lake>, registry: Arc<Registry>, memory: u64) -> Result<Self, Error> {
        let pool = FairSpillPool::new(usize::try_from(memory).unwrap_or(usize::MAX));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
            .build_arc()
            .map_err(|e| Error::Failed(e.to_string()))?;
        Ok(Self { store, lake, registry, runtime })
    }

    /// Runs one statement: tells the schema, then hands over batch by batch, no faster than they are taken. Ends early if nobody
    /// takes them any more.
    ///
    /// # Errors
    /// [`Error`]; what was handed over before is then not the whole result.
    pub async fn run(
        &self,
        sql: &str,
        schema: oneshot::Sender<SchemaRef>,
        batches: mpsc::Sender<RecordBatch>,
    ) -> Result<(), Error> {
        let mut stream = self.start(sql).await?;
        if schema.send(stream.schema()).is_err() {
            return Ok(());
        }
        while let Some(batch) = stream.next().await {
            if batches.send(batch.map_err(|e| classify(&e))?).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn start(&self, sql: &str) -> Result<SendableRecordBatchStream, Error> {
        let context = self.context();
        let state = context.state();
        let invalid = |error| Error::Invalid(text(&error));
        let dialect = state.config().options().sql_parser.dialect;
        statement::check_text(sql)?;
        let mut statement = state.sql_to_statement(sql, &dialect).map_err(invalid)?;
        statement::check_relations(&statement)?;
        if is_show_tables(&statement) {
            statement = state.sql_to_statement(SHOW_TABLES, &dialect).map_err(invalid)?;
        }
        let references = state.resolve_table_references(&statement).map_err(invalid)?;
        let unflushed = Unflushed::pin(&self.store, &self.registry, self.tables(&references));
        let pinned = unflushed.with_snapshots(&self.lake, self.store.node()).await?;
        let names: Arc<dyn CatalogProvider> = Arc::new(Names::new(&self.registry, pinned));
        context.register_catalog(CATALOG, names);
        let plan = state.statement_to_plan(statement).await.map_err(invalid)?;
        let read_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        read_only
            .verify_plan(&plan)
            .map_err(|e| Error::Invalid(format!("only statements that read are allowed here: {}", text(&e))))?;
        let frame = context.execute_logical_plan(plan).await.map_err(|e| classify(&e))?;
        frame.execute_stream().await.map_err(|e| classify(&e))
    }

    fn context(&self) -> SessionContext {
        let mut config = SessionConfig::new()
            .with_information_schema(true)
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOG, DEFAULT_NAMESPACE);
        let options = config.options_mut();
        options.execution.time_zone = Some("UTC".to_owned());
        options.execution.parquet.schema_force_view_types = false;
        // The Delta reader hands out dictionary keys, which a pushed-down IN list cannot compare with.
        options.optimizer.hash_join_inlist_pushdown_max_size = 0;
        options.optimizer.hash_join_inlist_pushdown_max_distinct_values = 0;
        SessionContext::new_with_config_rt(config, Arc::clone(&self.runtime))
    }

    fn tables(&self, references: &[TableReference]) -> Vec<Arc<Table>> {
        let mut tables: Vec<Arc<Table>> = Vec::new();
        for reference in references {
            let namespace = reference.schema().unwrap_or(DEFAULT_NAMESPACE);
            let Ok(name) = TableName::new(namespace, reference.table()) else { continue };
            if let Some(table) = self.registry.by_name(&name)
                && !tables.iter().any(|t| t.id == table.id)
            {
                tables.push(table);
            }
        }
        tables
    }
}

fn is_show_tables(statement: &DFStatement) -> bool {
    matches!(statement, DFStatement::Statement(inner) if matches!(**inner, SqlStatement::ShowTables { .. }))
}
