//! Receiving bodies, within limits on size and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use futures::StreamExt;
use tokio::time::Instant;

use super::reply::ApiError;
use crate::engine::Engine;

/// Largest body of everything that is not rows, bytes.
const MAX_SMALL: u64 = 4 << 20;
/// Longest that any body may take, whatever the settings say.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);
/// How much of a refused body is read, and for how long.
const DISCARD_BYTES: usize = 64 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// The body of a request that carries no rows.
#[derive(Debug)]
pub struct Small(pub Bytes);

impl FromRequest<Arc<Engine>> for Small {
    type Rejection = ApiError;

    async fn from_request(request: Request, engine: &Arc<Engine>) -> Result<Self, ApiError> {
        let too_large = || {
            let message = format!("the body is over {MAX_SMALL} bytes");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
        };
        let deadline = deadline(engine);
        let (parts, body) = request.into_parts();
        let allow = |ask: Ask| if ask.bytes() > MAX_SMALL { Err(too_large()) } else { Ok(()) };
        receive(&parts.headers, body, deadline, allow).await.map(Self)
    }
}

/// When a body that begins now has to be here.
pub fn deadline(engine: &Engine) -> Instant {
    Instant::now() + engine.config().server.body_timeout.min(MAX_TIME)
}

/// What a body may be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// So many bytes are announced. None of them is here.
    Announced(u64),
    /// So many bytes are to be held.
    Hold(u64),
}

impl Ask {
    /// The bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Announced(bytes) | Self::Hold(bytes) => bytes,
        }
    }
}

/// Receives a body. `allow` is asked first about the announced length, then before more than so many bytes are held.
///
/// # Errors
/// What `allow` says, or that the body did not arrive.
pub async fn receive(
    headers: &HeaderMap,
    body: Body,
    deadline: Instant,
    mut allow: impl FnMut(Ask) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError> {
    let told = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    let mut stream = body.into_data_stream();
    let received = collect(&mut stream, told, deadline, &mut allow).await;
    if received.is_err() {
        discard_stream(headers, stream).await;
    }
    received
}

async fn collect(
    stream: &mut BodyDataStream,
    told: Option<u64>,
    deadline: Instant,
    allow: &mut impl FnMut(Ask) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError> {
    allow(Ask::Announced(told.unwrap_or(0)))?;
    let mut next = async || {
        let chunk = tokio::time::timeout_at(deadline, stream.next()).await.map_err(|_| {
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body did not arrive in time")
                .help("send smaller bodies, or raise server.body_timeout")
        })?;
        chunk.transpose().map_err(|e| ApiError::bad_request("broken_body", format!("the body broke off: {e}")))
    };
    // Most bodies come in one piece, and are then passed on without a copy.
    let Some(first) = next().await? else { return Ok(Bytes::new()) };
    allow(Ask::Hold(first.len() as u64))?;
    let Some(second) = next().await? else { return Ok(first) };
    // Addresses only: memory becomes ours as it is written to.
    let mut whole = Vec::with_capacity(told.and_then(|told| usize::try_from(told).ok()).unwrap_or(0));
    whole.extend_from_slice(&first);
    let mut chunk = Some(second);
    while let Some(more) = chunk {
        allow(Ask::Hold((whole.len() + more.len()) as u64))?;
        whole.extend_from_slice(&more);
        chunk = next().await?;
    }
    Ok(Bytes::from(whole))
}

/// Reads a body that is not wanted, within bounds: to a sender in the middle of it, a connection that is closed looks like an
/// outage, and the refusal is never seen. One that waits for a go-ahead (`Expect`) reads the refusal first.
pub async fn discard(headers: &HeaderMap, body: Body) {
    discard_stream(headers, body.into_data_stream()).await;
}

async fn discard_stream(headers: &HeaderMap, mut stream: BodyDataStream) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let mut left = DISCARD_BYTES;
    let reading = async {
        while let Some(Ok(chunk)) = stream.next().await
            && chunk.len() < left
        {
            left -= chunk.len();
        }
    };
    if tokio::time::timeout(DISCARD_TIME, reading).await.is_err() {
        tracing::debug!("a refused body did not end in time");
    }
}

#[cfg(test)]
mod tests;
