//! Who answers: at first nobody but this file, which says how far the start is; then the API, on the same connections.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytesize::ByteSize;
use penstock_store::Progress;
use penstock_store::progress::Reading;
use tower_service::Service;

use super::reply::{ApiError, SHORTLY};
use super::{admin, body, routes};
use crate::engine::Engine;

/// Shut while the engine starts. Opened once.
#[derive(Debug)]
pub struct Gate {
    progress: Arc<Progress>,
    api: OnceLock<Router>,
}

impl Gate {
    /// A shut one, in front of a start that tells its progress there.
    pub fn new(progress: Arc<Progress>) -> Self {
        Self { progress, api: OnceLock::new() }
    }

    /// From now on every request goes to the engine. A second call changes nothing.
    pub fn open(&self, engine: Arc<Engine>) {
        // MUST be whole before it is set: a clone for each request should cost no more than a count.
        let _ = self.api.set(routes::router(engine).with_state(()));
    }
}

/// What the listener serves, before and after.
pub fn router(gate: Arc<Gate>) -> Router {
    Router::new().fallback(answer).with_state(gate)
}

async fn answer(State(gate): State<Arc<Gate>>, request: Request) -> Response {
    match gate.api.get() {
        Some(api) => api.clone().call(request).await.unwrap_or_else(|never| match never {}),
        None if request.uri().path() == "/healthz" => admin::healthz().await.into_response(),
        None => starting(&gate, request).await,
    }
}

async fn starting(gate: &Gate, request: Request) -> Response {
    let refusal = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "starting", message(gate.progress.reading()))
        .help("send the same request again after Retry-After; GET /readyz is 200 once the server is ready")
        .retry_after(SHORTLY);
    let (parts, rest) = request.into_parts();
    body::discard(&parts.headers, rest).await;
    refusal.into_response()
}

/// How far the start is, in words.
fn message(Reading { total, done }: Reading) -> String {
    let bytes = |n: u64| ByteSize::b(n).display().iec();
    match total {
        0 => "the server is starting".to_owned(),
        _ if done >= total => format!("starting: the log is read, {}", bytes(total)),
        _ => {
            let percent = u128::from(done) * 100 / u128::from(total);
            format!("reading the log: {} of {} ({percent} %)", bytes(done), bytes(total))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_how_far_the_start_is() {
        let said = |total, done| message(Reading { total, done });
        assert_eq!(said(0, 0), "the server is starting");
        assert_eq!(said(512 << 20, 120 << 20), "reading the log: 120.0 MiB of 512.0 MiB (23 %)");
        assert_eq!(said(512 << 20, 512 << 20), "starting: the log is read, 512.0 MiB");
    }
}
