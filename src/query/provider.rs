//! A pinned table for DataFusion: the Delta scan and the unflushed rows, one below the other, with the table's own schema.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::scalar::ScalarValue;
use deltalake::delta_datafusion::{DeltaScanNext, TableProviderBuilder};

use super::unflushed;
use super::view::PinnedTable;
use crate::schema::TableSpec;
use crate::schema::arrow::table_arrow_schema;

/// One table at the moment that the query pinned.
#[derive(Debug)]
pub struct PinnedProvider {
    pinned: PinnedTable,
    spec: Arc<TableSpec>,
    schema: SchemaRef,
}

impl PinnedProvider {
    /// The provider of a pinned table.
    pub fn new(pinned: PinnedTable) -> Self {
        let spec = Arc::new(pinned.table.spec.clone());
        let schema = table_arrow_schema(&spec);
        Self { pinned, spec, schema }
    }

    /// The flushed rows, if there are any, with the columns of `wanted` in its order.
    async fn scan_delta(
        &self,
        state: &dyn Session,
        wanted: &SchemaRef,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(snapshot) = &self.pinned.snapshot else { return Ok(None) };
        let builder: TableProviderBuilder = DeltaScanNext::builder();
        let delta = builder
            .with_log_store(Arc::clone(snapshot.log_store()))
            .with_eager_snapshot(Arc::clone(snapshot.eager()))
            .build()
            .await?;
        let stored = delta.schema();
        let projection: Vec<usize> = wanted.fields().iter().filter_map(|f| stored.index_of(f.name()).ok()).collect();
        // A column that the table does not have yet, or in a narrower type, says nothing about files: it is asked above the scan.
        let same = |name: &str| match (stored.field_with_name(name), self.schema.field_with_name(name)) {
            (Ok(theirs), Ok(ours)) => {
                theirs.data_type().equals_datatype(ours.data_type()) || !is_number(ours.data_type())
            }
            _ => false,
        };
        let known = |filter: &&Expr| filter.column_refs().iter().all(|column| same(column.name()));
        let filters: Vec<Expr> = filters.iter().filter(known).cloned().collect();
        let scan = delta.scan(state, Some(&projection), &filters, limit).await?;
        fit(scan, wanted).map(Some)
    }
}

/// Of the types that are stored, the ones that may become wider. (Text and dates come back as views and dictionaries.)
fn is_number(kind: &DataType) -> bool {
    matches!(kind, DataType::Int64 | DataType::Float64)
}

/// Gives a scan the names, order and types of `wanted`: readers may deliver views and dictionaries, or lack a column.
fn fit(scan: Arc<dyn ExecutionPlan>, wanted: &SchemaRef) -> Result<Arc<dyn ExecutionPlan>> {
    let found = scan.schema();
    if found.fields() == wanted.fields() {
        return Ok(scan);
    }
    let mut columns: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::with_capacity(wanted.fields().len());
    for field in wanted.fields() {
        let expr: Arc<dyn PhysicalExpr> = match found.index_of(field.name()) {
            Ok(at) => {
                let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), at));
                if found.field(at).data_type() == field.data_type() {
                    column
                } else {
                    Arc::new(CastExpr::new(column, field.data_type().clone(), None))
                }
            }
            Err(_) => Arc::new(Literal::new(ScalarValue::try_from(field.data_type())?)),
        };
        columns.push((expr, field.name().clone()));
    }
    Ok(Arc::new(ProjectionExec::try_new(columns, scan)?))
}

#[async_trait]
impl TableProvider for PinnedProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // Filters only skip files; every row is looked at again above the scan.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wanted = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => Arc::clone(&self.schema),
        };
        // A limit may stop a side early only if no filter above it takes rows away.
        let limit = limit.filter(|_| filters.is_empty());
        let mut sides = Vec::with_capacity(2);
        sides.extend(self.scan_delta(state, &wanted, filters, limit).await?);
        let target = state.config().target_partitions();
        let shares = unflushed::partitions(&self.spec, &self.pinned.unflushed, target);
        if !shares.is_empty() {
            let scan =
                StreamingTableExec::try_new(Arc::clone(&self.schema), shares, projection, Vec::new(), false, limit)?;
            sides.push(fit(Arc::new(scan), &wanted)?);
        }
        match sides.len() {
            0 => Ok(Arc::new(EmptyExec::new(wanted))),
            1 => Ok(sides.remove(0)),
            _ => UnionExec::try_new(sides),
        }
    }
}
