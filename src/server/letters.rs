//! `/v1/dead-letters`: list, show, replay.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use super::body::Small;
use super::reply::{ApiError, json};
use crate::engine::Engine;
use crate::engine::letters::{Error, MAX_SHOWN, Wanted};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    namespace: Option<String>,
    table: Option<String>,
    code: Option<String>,
    /// `pending` (the default) or `all`.
    state: Option<String>,
    limit: Option<usize>,
}

impl Parameters {
    fn wanted(self) -> Result<Wanted, ApiError> {
        let all = match self.state.as_deref() {
            None | Some("pending") => false,
            Some("all") => true,
            Some(_) => return Err(ApiError::bad_request("bad_parameter", "state is pending or all")),
        };
        let default = Wanted::default();
        let namespace = namespace_of(self.namespace, self.table.as_deref());
        let limit = self.limit.unwrap_or(default.limit);
        Ok(Wanted {
            namespace: namespace.unwrap_or(default.namespace),
            table: self.table,
            code: self.code,
            all,
            limit,
            ids: vec![],
        })
    }
}

/// A table's full name says the namespace, too.
fn namespace_of(namespace: Option<String>, table: Option<&str>) -> Option<String> {
    namespace.or_else(|| table?.split_once('.').map(|(namespace, _)| namespace.to_owned()))
}

pub async fn list(
    State(engine): State<Arc<Engine>>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(parameters) = parameters.map_err(|e| ApiError::bad_request("bad_parameter", e.body_text()))?;
    let letters = engine.letters(&parameters.wanted()?).await?;
    Ok(json(StatusCode::OK, &serde_json::json!({ "letters": letters })))
}

pub async fn show(
    State(engine): State<Arc<Engine>>,
    id: Result<Path<String>, PathRejection>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Path(id) = id.map_err(|e| ApiError::bad_request("bad_parameter", e.body_text()))?;
    let Query(parameters) = parameters.map_err(|e| ApiError::bad_request("bad_parameter", e.body_text()))?;
    let wanted = Wanted { ids: vec![id.clone()], all: true, ..parameters.wanted()? };
    match engine.letters(&wanted).await?.into_iter().next() {
        Some(letter) => Ok(json(StatusCode::OK, &letter)),
        None => Err(ApiError::not_found("unknown_letter", format!("{} has no dead letter {id}", wanted.namespace))
            .help("GET /v1/dead-letters?namespace= lists those of a namespace")),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Replay {
    namespace: Option<String>,
    table: Option<String>,
    code: Option<String>,
    ids: Vec<String>,
    limit: Option<usize>,
}

pub async fn replay(State(engine): State<Arc<Engine>>, Small(body): Small) -> Result<Response, ApiError> {
    let request = if body.is_empty() { Ok(Replay::default()) } else { serde_json::from_slice(&body) };
    let Replay { namespace, table, code, ids, limit } = request.map_err(|e| {
        ApiError::bad_request("bad_request", format!("the request cannot be read: {e}"))
            .help(r#"for example {"table":"cpu"}, or no body for all letters of the namespace `default`"#)
    })?;
    let namespace = namespace_of(namespace, table.as_deref()).unwrap_or_else(|| Wanted::default().namespace);
    let wanted = Wanted { namespace, table, code, ids, all: false, limit: limit.unwrap_or(MAX_SHOWN) };
    // A task of its own: what was begun is brought to its end, also if the client goes away.
    let work = tokio::spawn(async move { engine.replay_letters(&wanted).await });
    let outcome = work.await.map_err(|e| super::reply::internal(format!("a replay was not finished: {e}")))??;
    Ok(json(StatusCode::OK, &outcome))
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::Wanted(message) => Self::bad_request("bad_parameter", message),
            Error::Query(error) => error.into(),
            Error::Post(error) => error.into(),
        }
    }
}
