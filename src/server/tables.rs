//! `/v1/tables`: declare, list, show.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{ConnectInfo, FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::body::Small;
use super::listener::Peer;
use super::reply::{ApiError, json};
use crate::catalog::Cause;
use crate::engine::Engine;
use crate::ingest::declare::Declaration;
use crate::ingest::post::Declared;
use crate::schema::TableName;

/// What the path says where a table's name belongs.
#[derive(Debug)]
pub struct Named(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = path.map_err(|e| ApiError::bad_request("bad_table_name", e.body_text()))?;
        Ok(Self(text))
    }
}

pub async fn declare(
    State(engine): State<Arc<Engine>>,
    Extension(ConnectInfo(peer)): Extension<ConnectInfo<Peer>>,
    Named(table): Named,
    Small(body): Small,
) -> Result<Response, ApiError> {
    let name: TableName = table.parse()?;
    let declaration: Declaration = serde_json::from_slice(&body).map_err(|e| {
        ApiError::bad_request("bad_definition", format!("the definition cannot be read: {e}"))
            .help(r#"for example {"columns":[{"name":"ts","type":"timestamp","nullable":false},{"name":"v","type":"double"}]}"#)
    })?;
    let rules = engine.registry().by_name(&name).map(|table| table.spec.rules.clone());
    let spec = declaration
        .into_spec(name, rules)
        .map_err(|e| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_definition", e.to_string()))?;
    let (table, declared) = engine.ingest().declare(spec, Cause::Declaration.by(peer.0)).await?;
    let status = if declared == Declared::Created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json(status, &table.spec))
}

pub async fn list(State(engine): State<Arc<Engine>>) -> Response {
    let tables = engine.registry().all();
    let specs: Vec<_> = tables.iter().map(|t| &t.spec).collect();
    json(StatusCode::OK, &serde_json::json!({ "tables": specs }))
}

pub async fn show(State(engine): State<Arc<Engine>>, Named(table): Named) -> Result<Response, ApiError> {
    let name: TableName = table.parse()?;
    let table = engine.registry().by_name(&name).ok_or_else(|| ApiError::unknown_table(&name))?;
    let lake_table = engine.lake_table(&table);
    let stats = lake_table.stats().await?;
    Ok(json(
        StatusCode::OK,
        &serde_json::json!({
            "table": table.spec,
            "id": table.id.to_string(),
            "location": lake_table.location().to_string(),
            "delta_version": stats.version,
            "delta_rows": stats.rows,
            "delta_files": stats.files,
            "unflushed_rows": engine.unflushed_rows(table.id),
            "schema_versions": engine.schema_versions(table.id).await?,
        }),
    ))
}
