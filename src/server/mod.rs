//! HTTP: from a socket to the parts and back.
//!
//! - [`listener`]: accepts, within a limit;
//! - [`gate`]: says how far the start is, until there is an engine to ask;
//! - [`routes`]: which path goes where;
//! - [`body`]: receives, within limits;
//! - [`rows`]: posts; [`repeat`]: what makes them safe to repeat; [`receipts`]: what became of them; [`letters`]: rejected rows;
//! - [`tables`]: declarations; [`sql`]: queries and their formats; [`admin`]: status, flush, checkpoint, health; [`tuning`]: settings that change;
//! - [`reply`]: every refusal as a status, a code, a message and what to do about it.
//!
//! Absent here: tokens, TLS, gRPC, the Postgres wire.

mod admin;
mod body;
mod gate;
mod letters;
mod listener;
mod receipts;
mod repeat;
pub mod reply;
mod routes;
mod rows;
mod sql;
mod tables;
mod tuning;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use penstock_store::Progress;
use tokio::net::TcpListener;

pub use self::gate::Gate;

/// Longest that requests which have begun hold up a stop. A post takes milliseconds; what takes longer is a query, or a client that
/// does not read.
pub const DRAIN: Duration = Duration::from_secs(10);

/// A server that has its socket, and may have it before there is anything to serve.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    max_connections: usize,
    gate: Arc<Gate>,
}

impl Server {
    /// Takes the socket. Until the gate is opened, requests learn of the `progress` of the start, and that they should come again.
    ///
    /// # Errors
    /// If the address is taken or not ours.
    pub async fn bind(listen: SocketAddr, max_connections: usize, progress: Arc<Progress>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        Ok(Self { listener, max_connections, gate: Arc::new(Gate::new(progress)) })
    }

    /// What has to be opened once the engine is there.
    pub fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate)
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
        let listener = listener::Limited::new(self.listener, self.max_connections);
        let (stopping, mut stopped) = tokio::sync::watch::channel(false);
        let stop = async move {
            stop.await;
            stopping.send_replace(true);
        };
        let service = gate::router(self.gate).into_make_service_with_connect_info::<listener::Peer>();
        let serving = axum::serve(listener, service).with_graceful_shutdown(stop).into_future();
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
