//! Accepts connections while fewer than the limit are open; the others wait in the kernel's queue. A connection on which nothing
//! moves does not count for ever: it is closed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// A listener with a limit on open connections.
#[derive(Debug)]
pub struct Limited {
    inner: TcpListener,
    permits: Arc<Semaphore>,
}

/// A connection that counts while it is open.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    reading: Patience,
    writing: Patience,
    _permit: Option<OwnedSemaphorePermit>,
}

/// How long a client may leave us with bytes that it does not read.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);
/// How long a connection may be silent in both directions: longer than a flush of [`super::admin::MAX_FLUSH_WAIT`]. A query that
/// has nothing to say for as long is cut off.
const READ_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Ends a wait that lasts too long. The timer is armed lazily: a wait that ends in time costs no more than looking at the clock.
#[derive(Debug)]
struct Patience {
    limit: Duration,
    since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    fn new(limit: Duration) -> Self {
        Self { limit, since: None, timer: Box::pin(tokio::time::sleep(limit)) }
    }

    /// Passes a poll's outcome on, and fails it if it has been pending for too long.
    fn watch<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.since = None;
            return poll;
        }
        let end = *self.since.get_or_insert_with(Instant::now) + self.limit;
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= end {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.timer.as_mut().reset(end);
        }
        Poll::Pending
    }
}

impl Connection {
    fn new(stream: TcpStream, permit: Option<OwnedSemaphorePermit>) -> Self {
        let (reading, writing) = (Patience::new(READ_PATIENCE), Patience::new(WRITE_PATIENCE));
        Self { stream, reading, writing, _permit: permit }
    }

    fn wrote(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if poll.is_ready() {
            self.reading.since = None;
        }
        self.writing.watch(cx, poll)
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

impl Connected<IncomingStream<'_, Limited>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Limited>) -> Self {
        Self(stream.remote_addr().ip())
    }
}

impl Limited {
    /// At most `limit` connections at a time.
    pub fn new(inner: TcpListener, limit: usize) -> Self {
        Self { inner, permits: Arc::new(Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS))) }
    }
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // The semaphore is never closed, so there always is a permit in the end.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        loop {
            match self.inner.accept().await {
                Ok((stream, address)) => {
                    // An ack is one small packet: it must not wait for a second one.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "TCP_NODELAY");
                    }
                    return (Connection::new(stream, permit), address);
                }
                Err(error) => {
                    // Out of descriptors, or the peer is gone already: neither may end the server.
                    tracing::debug!(%error, "accept");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.reading.watch(cx, poll)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.wrote(cx, poll)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.wrote(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;
