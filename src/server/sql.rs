//! `POST /v1/sql`: one statement in, rows out in the format that `Accept` asks for.
//!
//! The first batch is awaited before the reply begins, so that a query which fails early gets a status; one that fails later breaks
//! the connection off, and no client takes half a result for a whole one.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;

use super::body::Small;
use super::receipts;
use super::reply::ApiError;
use crate::engine::Engine;
use crate::query;

mod format;

use format::{Format, Writer};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    sql: String,
    /// A receipt whose rows the query has to see.
    receipt: Option<String>,
}

pub async fn query(
    State(engine): State<Arc<Engine>>,
    headers: HeaderMap,
    Small(body): Small,
) -> Result<Response, ApiError> {
    let started = Instant::now();
    let format = Format::from_accept(&headers)?;
    let Request { sql, receipt } = request(&headers, &body)?;
    let told = receipt.map(|text| receipts::parse(&text)).transpose()?;
    for receipt in receipts::named(&headers)?.iter().chain(&told) {
        // What this node has acknowledged every query sees that begins later: it only has to be ours.
        engine.check_visible(receipt)?;
    }
    let mut query = engine.sql().query(&sql).await?;
    let first = query.next().await?;
    let writer = Writer::new(format, Arc::clone(&query.schema), started);
    let run = Run { query, writer: Some(writer), next: first };
    let stream = futures::stream::try_unfold(run, Run::step);
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    Ok(response)
}

fn request(headers: &HeaderMap, body: &Bytes) -> Result<Request, ApiError> {
    let content_type = headers.get(header::CONTENT_TYPE).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let essence = content_type.as_deref().map_or("", |c| c.split(';').next().unwrap_or("").trim());
    match essence {
        "application/json" => serde_json::from_slice(body).map_err(|e| {
            ApiError::bad_request("bad_request", format!("the request cannot be read: {e}"))
                .help(r#"for example {"sql":"select count(*) from cpu"}"#)
        }),
        "text/plain" | "application/sql" | "" => String::from_utf8(body.to_vec())
            .map(|sql| Request { sql, receipt: None })
            .map_err(|_| ApiError::bad_request("bad_request", "the statement is not UTF-8")),
        other => {
            let shown: String = other.chars().take(100).collect();
            let message = format!("Content-Type {shown:?} is not read here");
            Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_type", message)
                .help("send application/json with {\"sql\":\"...\"}, or the statement as text/plain"))
        }
    }
}

/// A reply on its way.
struct Run {
    query: query::Query,
    /// None once the end has been written.
    writer: Option<Writer>,
    next: Option<RecordBatch>,
}

/// Why a reply broke off.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Query(#[from] query::Error),
    #[error(transparent)]
    Write(#[from] ArrowError),
}

impl Run {
    async fn step(mut self) -> Result<Option<(Bytes, Self)>, Broken> {
        let Some(mut writer) = self.writer.take() else { return Ok(None) };
        let Some(batch) = self.next.take() else {
            return Ok(Some((writer.finish()?, self)));
        };
        let bytes = writer.batch(&batch)?;
        self.next = self.query.next().await.inspect_err(|error| tracing::warn!(%error, "a query broke off"))?;
        self.writer = Some(writer);
        Ok(Some((bytes, self)))
    }
}

/// Name and type of each column, for replies that tell them.
fn columns(schema: &SchemaRef) -> serde_json::Value {
    let column =
        |f: &Arc<arrow::datatypes::Field>| serde_json::json!({ "name": f.name(), "type": f.data_type().to_string() });
    schema.fields().iter().map(column).collect()
}
