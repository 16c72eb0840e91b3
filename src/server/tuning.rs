//! `GET` and `PATCH /v1/tuning`: settings that change while the server runs; `GET /v1/tuning/explain`: which would help.

use std::io::ErrorKind;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::body::Small;
use super::reply::{ApiError, internal, json};
use crate::engine::Engine;
use crate::engine::tuning::{self, Patch, TuneError};

pub async fn show(State(engine): State<Arc<Engine>>) -> Response {
    json(StatusCode::OK, &engine.tuning())
}

pub async fn explain(State(engine): State<Arc<Engine>>) -> Response {
    json(StatusCode::OK, &engine.explain())
}

pub async fn change(State(engine): State<Arc<Engine>>, Small(body): Small) -> Result<Response, ApiError> {
    let patch: Patch = serde_json::from_slice(&body).map_err(|e| {
        ApiError::bad_request("bad_request", format!("the request cannot be read: {e}"))
            .help(r#"for example {"set":{"flush.parallelism":16,"admission.replay_budget":"20s"},"persist":true}"#)
    })?;
    Ok(json(StatusCode::OK, &tuning::tune(engine, patch).await?))
}

impl From<TuneError> for ApiError {
    fn from(error: TuneError) -> Self {
        let (code, help) = match &error {
            TuneError::Unknown(_) => {
                ("unknown_setting", "GET /v1/tuning, or `penstock tune`, shows what may be changed")
            }
            TuneError::Fixed(_) => ("fixed_setting", "GET /v1/tuning, or `penstock tune`, shows what may be changed"),
            TuneError::Value { .. } | TuneError::Contradiction(_) => ("bad_setting", "nothing was changed"),
            TuneError::Nothing => ("bad_request", r#"for example {"set":{"flush.parallelism":16}}"#),
        };
        Self::bad_request(code, error.to_string()).help(help)
    }
}

impl From<tuning::Error> for ApiError {
    fn from(error: tuning::Error) -> Self {
        let message = error.to_string();
        match error {
            tuning::Error::Tune(error) => error.into(),
            tuning::Error::NotKept { source, .. } if source.kind() == ErrorKind::StorageFull => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "no_space", message)
                    .help("make room, or change it until the next start only, without \"persist\"")
            }
            tuning::Error::NotKept { .. } | tuning::Error::Kept(_) => internal(message),
        }
    }
}
