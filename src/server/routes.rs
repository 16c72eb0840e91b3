//! Which path goes where.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use super::{admin, letters, receipts, rows, sql, tables, tuning};
use crate::engine::Engine;
use crate::server::reply::ApiError;

/// The whole API.
pub fn router(engine: Arc<Engine>) -> Router {
    Router::new()
        .route("/v1/tables/{table}/rows", post(rows::post))
        .route("/v1/tables/{table}", get(tables::show).put(tables::declare))
        .route("/v1/tables", get(tables::list))
        .route("/v1/receipts/{receipt}", get(receipts::show))
        .route("/v1/dead-letters", get(letters::list))
        .route("/v1/dead-letters/replay", post(letters::replay))
        .route("/v1/dead-letters/{id}", get(letters::show))
        .route("/v1/sql", post(sql::query))
        .route("/v1/status", get(admin::status))
        .route("/v1/flush", post(admin::flush))
        .route("/v1/checkpoint", post(admin::checkpoint))
        .route("/v1/tuning", get(tuning::show).patch(tuning::change))
        .route("/v1/tuning/explain", get(tuning::explain))
        .route("/metrics", get(admin::metrics))
        .route("/healthz", get(admin::healthz))
        .route("/readyz", get(admin::readyz))
        .fallback(async || ApiError::not_found("no_such_path", "there is nothing at this path"))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .with_state(engine)
}
