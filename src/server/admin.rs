//! Status, metrics, flush and checkpoint on demand, health.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderName};
use axum::response::Response;
use serde::Deserialize;

use super::body::Small;
use super::reply::{ApiError, json};
use crate::engine::status::Checkpointed;
use crate::engine::{Decision, Engine};
use crate::schema::TableName;
use crate::telemetry::metrics::CONTENT_TYPE;

/// Longest that a demanded flush may be waited for.
pub const MAX_FLUSH_WAIT: Duration = Duration::from_secs(600);

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FlushRequest {
    /// All tables, if none are named.
    tables: Option<Vec<TableName>>,
    #[serde(with = "humantime_serde")]
    timeout: Duration,
    /// For tables that are refused because the data directory is an older copy: "keep" or "drop".
    doubt: Option<Decision>,
}

impl Default for FlushRequest {
    fn default() -> Self {
        Self { tables: None, timeout: Duration::from_secs(60), doubt: None }
    }
}

pub async fn status(State(engine): State<Arc<Engine>>) -> Response {
    json(StatusCode::OK, &engine.status())
}

pub async fn flush(State(engine): State<Arc<Engine>>, Small(body): Small) -> Result<Response, ApiError> {
    let request = if body.is_empty() { Ok(FlushRequest::default()) } else { serde_json::from_slice(&body) };
    let request: FlushRequest = request.map_err(|e| {
        ApiError::bad_request("bad_request", format!("the request cannot be read: {e}"))
            .help(r#"for example {"tables":["cpu"],"timeout":"30s"}, or no body for all tables"#)
    })?;
    let tables = match request.tables {
        None => engine.registry().all(),
        Some(names) => {
            let find = |name: &TableName| engine.registry().by_name(name).ok_or_else(|| ApiError::unknown_table(name));
            names.iter().map(find).collect::<Result<Vec<_>, _>>()?
        }
    };
    let before: Vec<u64> = tables.iter().map(|t| engine.rows_flushed(t.id)).collect();
    let ids: Vec<_> = tables.iter().map(|t| t.id).collect();
    engine.flush_deciding(&ids, request.timeout.min(MAX_FLUSH_WAIT), request.doubt).await?;
    let done: Vec<_> = tables
        .iter()
        .zip(before)
        .map(|(table, before)| {
            serde_json::json!({
                "table": table.spec.name,
                "delta_version": engine.lake_table(table).published(),
                "rows_flushed": engine.rows_flushed(table.id).saturating_sub(before),
            })
        })
        .collect();
    Ok(json(StatusCode::OK, &serde_json::json!({ "tables": done })))
}

pub async fn checkpoint(State(engine): State<Arc<Engine>>) -> Result<Response, ApiError> {
    // Takes no settings; a body is let pass, as curl sends one with `-d ''`.
    let shards = engine.checkpoint().await?;
    Ok(json(StatusCode::OK, &Checkpointed { shards }))
}

/// For a Prometheus server.
pub async fn metrics(State(engine): State<Arc<Engine>>) -> ([(HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], engine.metrics())
}

pub async fn healthz() -> &'static str {
    "ok\n"
}

pub async fn readyz(State(engine): State<Arc<Engine>>) -> Result<&'static str, ApiError> {
    match engine.unready() {
        None => Ok("ready\n"),
        Some(reason) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", reason)),
    }
}
