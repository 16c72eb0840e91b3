//! `POST /v1/tables/{table}/rows`.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{ConnectInfo, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use penstock_store::PostId;
use serde::Deserialize;

use super::body::{self, Ask};
use super::listener::Peer;
use super::receipts::{self, Until};
use super::repeat;
use super::reply::{self, ApiError, internal, json};
use super::tables::Named;
use crate::admission::Lease;
use crate::engine::Engine;
use crate::ingest::post::Post;
use crate::ingest::{ContentEncoding, Format, OnError};
use crate::schema::{TableName, TimeUnit};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Unit of epoch numbers, for a table that this post creates.
    time_unit: Option<String>,
    /// `accept` (good rows are taken, the default) or `abort` (all or none).
    on_error: Option<String>,
    /// What the reply waits for: `durable` (the default) or `committed`.
    wait: Option<Until>,
    /// For how long.
    timeout: Option<String>,
}

type ParametersResult = Result<Query<Parameters>, QueryRejection>;

/// What a post says about its body.
struct Request {
    table: TableName,
    format: Format,
    encoding: ContentEncoding,
    time_unit: Option<TimeUnit>,
    on_error: OnError,
    id: Option<PostId>,
    /// How long the reply waits for the rows to be in the table.
    patience: Option<Duration>,
}

impl Request {
    fn read(table: &str, parameters: ParametersResult, headers: &HeaderMap) -> Result<Self, ApiError> {
        let Query(parameters) = parameters.map_err(|e| ApiError::bad_request("bad_parameter", e.body_text()))?;
        let time_unit = parameters.time_unit.map(|unit| unit.parse::<TimeUnit>()).transpose();
        let time_unit = time_unit.map_err(|e| ApiError::bad_request("bad_parameter", e.to_string()))?;
        let on_error = parameters.on_error.map_or(Ok(OnError::default()), |text| text.parse());
        let on_error = on_error.map_err(|e| ApiError::bad_request("bad_parameter", e))?;
        let patience = receipts::patience(parameters.wait, parameters.timeout.as_deref())?;
        let (format, encoding, id) = (format(headers)?, encoding(headers)?, repeat::id(headers)?);
        Ok(Self { table: table.parse()?, format, encoding, time_unit, on_error, id, patience })
    }
}

pub async fn post(
    State(engine): State<Arc<Engine>>,
    Extension(ConnectInfo(peer)): Extension<ConnectInfo<Peer>>,
    Named(table): Named,
    parameters: ParametersResult,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let request = match Request::read(&table, parameters, &headers) {
        Ok(request) => request,
        Err(error) => {
            body::discard(&headers, body).await;
            return Err(error);
        }
    };
    let Request { table, format, encoding, time_unit, on_error, id, patience } = request;
    let (body, lease) = receive(&engine, &table, &headers, body).await?;
    let post = Post { table: table.clone(), format, encoding, time_unit, on_error, id, sender: peer.0, body };
    // A task of its own: if the client goes away, the lease has to cover the bytes for as long as they are worked on.
    let taking = Arc::clone(&engine);
    let work = tokio::spawn(async move { taking.ingest().post(post, lease).await });
    let accepted = work.await.map_err(|e| internal(format!("a post was not finished: {e}")))??;
    let mut told = serde_json::json!({
        "table": table,
        "rows": accepted.rows,
        "rejected": accepted.rejected_rows,
        "dead_letters": accepted.rejected.letters().len(),
        "errors": reply::row_errors(&accepted.rejected),
        "durability": "synced",
        "receipt": accepted.receipt.to_string(),
        "created": accepted.created,
    });
    let mut status = StatusCode::OK;
    if let Some(patience) = patience {
        // MUST NOT fail from here on: the rows are taken, and an error would have them sent again.
        status = match engine.final_standing(&accepted.receipt, patience).await {
            Ok(standing) => {
                told["state"] = serde_json::json!(standing.state);
                told["delta_version"] = standing.delta_version.into();
                told["message"] = receipts::message(&standing).into();
                receipts::status(true, &standing)
            }
            Err(error) => {
                tracing::warn!(%error, receipt = %accepted.receipt, "what became of a post is not known yet");
                told["message"] = format!("the rows are on disk; how far they are is not known: {error}").into();
                StatusCode::ACCEPTED
            }
        };
    }
    let mut response = json(status, &told);
    if accepted.repeated {
        // Not in the body: that is the first one's.
        response.headers_mut().insert(repeat::REPEATED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

fn format(headers: &HeaderMap) -> Result<Format, ApiError> {
    let unsupported = |message: String| {
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_type", message)
            .help("send Content-Type: application/x-ndjson, application/json or application/vnd.apache.arrow.stream")
    };
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Err(unsupported("the request has no Content-Type".to_owned()));
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    let shown: String = text.chars().take(100).collect();
    Format::from_content_type(&text).ok_or_else(|| unsupported(format!("Content-Type {shown:?} is not read here")))
}

fn encoding(headers: &HeaderMap) -> Result<ContentEncoding, ApiError> {
    let Some(value) = headers.get(header::CONTENT_ENCODING) else { return Ok(ContentEncoding::Identity) };
    let text = String::from_utf8_lossy(value.as_bytes());
    let shown: String = text.chars().take(100).collect();
    ContentEncoding::from_header(&text).ok_or_else(|| {
        let message = format!("Content-Encoding {shown:?} is not read here");
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_encoding", message)
            .help("send the body as it is, or with gzip or zstd")
    })
}

/// Receives the body under a lease, within the limits on size and time.
async fn receive(
    engine: &Engine,
    table: &TableName,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Bytes, Lease), ApiError> {
    let max = engine.ingest().options().max_body.as_u64();
    // Grows with what comes: a sender that announces much and sends little holds no room that others could use.
    let mut lease = match engine.lease(table, 0).await {
        Ok(lease) => lease,
        Err(refusal) => {
            body::discard(headers, body).await;
            return Err(refusal.into());
        }
    };
    let body = body::receive(headers, body, body::deadline(engine), |ask| {
        if ask.bytes() > max {
            let error =
                ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", format!("the body is over {max} bytes"));
            return Err(error.help("split the rows over several posts, or raise ingest.max_body"));
        }
        match ask {
            Ask::Announced(bytes) => Ok(engine.would_grow(&mut lease, bytes)?),
            Ask::Hold(bytes) => Ok(engine.grow(&mut lease, bytes)?),
        }
    });
    let body = body.await?;
    Ok((body, lease))
}
