//! HTTP: from a socket to the parts and back.
//!
//! - [`listener`]: accepts, within a limit;
//! - [`routes`]: which path goes where;
//! - [`body`]: receives, within limits;
//! - [`rows`]: posts; [`tables`]: declarations; [`sql`]: queries and their formats; [`admin`]: status, flush, health;
//! - [`reply`]: every refusal as a status, a code, a message and what to do about it.
//!
//! Absent here: tokens, TLS, gRPC, the Postgres wire.

mod admin;
mod body;
mod listener;
pub mod reply;
mod routes;
mod rows;
mod sql;
mod tables;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::engine::Engine;

/// Longest that requests which have begun hold up a stop. A post takes milliseconds; what takes longer is a query, or a client that
/// does not read.
pub const DRAIN: Duration = Duration::from_secs(10);

/// A server that has its socket.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    engine: Arc<Engine>,
}

impl Server {
    /// Takes the socket.
    ///
    /// # Errors
    /// If the address is taken or not ours.
    pub async fn bind(engine: Arc<Engine>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(engine.config().server.listen).await?;
        Ok(Self { listener, engine })
    }

    /// Where it listens; tells the port if 0 was asked for.
    ///
    /// # Errors
    /// The socket's.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is done, then finishes the requests that have begun, as far as that takes no longer than [`DRAIN`].
    ///
    /// # Errors
    /// The socket's.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        let listener = listener::Limited::new(self.listener, self.engine.config().server.max_connections);
        let (stopping, mut stopped) = tokio::sync::watch::channel(false);
        let stop = async move {
            stop.await;
            stopping.send_replace(true);
        };
        let serving = axum::serve(listener, routes::router(self.engine)).with_graceful_shutdown(stop).into_future();
        let drained = async {
            if stopped.wait_for(|stopped| *stopped).await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            served = serving => served,
            () = drained => {
                tracing::warn!("some requests are not finished; stopping all the same");
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
