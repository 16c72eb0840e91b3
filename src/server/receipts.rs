//! `GET /v1/receipts/{receipt}`, and what a post that waits is answered.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;
use serde::Deserialize;

use super::reply::{ApiError, json};
use super::tables::Named;
use crate::engine::Engine;
use crate::engine::receipts::{MAX_WAIT, ReceiptError, Standing, State as Stage};
use crate::ingest::Receipt;

/// The rows that a query has to see.
pub const RECEIPT: HeaderName = HeaderName::from_static("penstock-receipt");

/// How long somebody waits who does not say.
const WAIT: Duration = Duration::from_secs(60);

/// What may be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// The rows are on disk, as they are with every ack.
    Durable,
    /// The rows are in the table.
    Committed,
}

/// Whether, and for how long, a request waits.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    wait: Option<Until>,
    timeout: Option<String>,
}

type ParametersResult = Result<Query<Parameters>, QueryRejection>;

/// How long to wait for a commit; none: not at all.
///
/// # Errors
/// 400 for a time that is none.
pub fn patience(wait: Option<Until>, timeout: Option<&str>) -> Result<Option<Duration>, ApiError> {
    let timeout = timeout.map(humantime::parse_duration).transpose().map_err(|e| {
        ApiError::bad_request("bad_parameter", format!("the timeout cannot be read: {e}"))
            .help("for example timeout=30s")
    })?;
    Ok((wait == Some(Until::Committed)).then(|| timeout.unwrap_or(WAIT).min(MAX_WAIT)))
}

/// The status of an answer to somebody who waited: 202 where the wait was in vain.
pub fn status(waited: bool, standing: &Standing) -> StatusCode {
    if waited && !standing.is_final() { StatusCode::ACCEPTED } else { StatusCode::OK }
}

/// What a person wants to know beside the state.
pub fn message(standing: &Standing) -> Option<&'static str> {
    match standing {
        Standing { state: Stage::Durable | Stage::Sealed, .. } => {
            Some("the rows are on disk and on their way to the table; ask again, there is nothing to send again")
        }
        Standing { state: Stage::Committed, delta_version: None } => Some("committed; the version is no longer known"),
        Standing { state: Stage::Committed, .. } => None,
        Standing { state: Stage::DeadLettered, .. } => Some(
            "some of the rows, or of those that came with them, could not be written and are in the namespace's dead_letters",
        ),
    }
}

pub async fn show(
    State(engine): State<Arc<Engine>>,
    Named(text): Named,
    parameters: ParametersResult,
) -> Result<Response, ApiError> {
    let Query(parameters) = parameters.map_err(|e| ApiError::bad_request("bad_parameter", e.body_text()))?;
    let patience = patience(parameters.wait, parameters.timeout.as_deref())?;
    let receipt = parse(&text)?;
    let standing = match patience {
        Some(patience) => engine.final_standing(&receipt, patience).await?,
        None => engine.standing(&receipt).await?,
    };
    let table = engine.registry().by_id(receipt.table).map(|table| table.spec.name.clone());
    Ok(json(
        status(patience.is_some(), &standing),
        &serde_json::json!({
            "receipt": text,
            "table": table,
            "state": standing.state,
            "durable": true,
            "sealed": standing.state != Stage::Durable,
            "committed": standing.is_final(),
            "delta_version": standing.delta_version,
            "message": message(&standing),
        }),
    ))
}

/// The receipt that a request names in its headers; none if it names none.
///
/// # Errors
/// 400 for a text that is none.
pub fn named(headers: &HeaderMap) -> Result<Option<Receipt>, ApiError> {
    let text = headers.get(RECEIPT).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    text.map(|text| parse(&text)).transpose()
}

/// Reads a receipt.
///
/// # Errors
/// 400 for a text that is none.
pub fn parse(text: &str) -> Result<Receipt, ApiError> {
    text.parse().map_err(|error: crate::ingest::receipt::NotAReceipt| {
        let shown: String = text.chars().take(100).collect();
        ApiError::bad_request("bad_receipt", format!("{error}: {shown:?}"))
            .help("take the text from the field \"receipt\" of the reply to a post, as it is")
    })
}

impl From<ReceiptError> for ApiError {
    fn from(error: ReceiptError) -> Self {
        let message = error.to_string();
        match error {
            ReceiptError::OtherNode { .. } => Self::not_found("receipt_of_another_node", message)
                .help("ask the node that gave it; its rows are here once they are in the table"),
            ReceiptError::UnknownStart(_) => Self::not_found("unknown_receipt", message).help(
                "the data directory may be an older copy of the one that gave it: look for the rows in the table before sending them again",
            ),
            ReceiptError::Catalog(error) => error.into(),
        }
    }
}
