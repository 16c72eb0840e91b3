//! Ctrl-C and SIGTERM as a number that only grows, so that each part of a command can wait for its own threshold.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Counts requests to stop. The first Ctrl-C asks to finish early; the second one, and SIGTERM, to leave at once.
#[derive(Debug, Clone)]
pub struct Interrupts {
    count: watch::Receiver<u32>,
}

/// Finish early, with a report.
pub const FINISH: u32 = 1;
/// Leave at once.
pub const LEAVE: u32 = 2;

impl Interrupts {
    /// From here on the signals no longer end the process by themselves. Needs a runtime.
    pub fn listen() -> io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        let hangup = signal(SignalKind::hangup())?;
        let (sender, count) = watch::channel(0);
        tokio::spawn(count_signals(interrupt, terminate, hangup, sender));
        Ok(Self { count })
    }

    /// Waits until the count is at least `level`.
    pub async fn reached(&self, level: u32) {
        let mut count = self.count.clone();
        if count.wait_for(|n| *n >= level).await.is_err() {
            // The counting task is gone, and with it every signal: never reached.
            std::future::pending::<()>().await;
        }
    }
}

async fn count_signals(mut interrupt: Signal, mut terminate: Signal, mut hangup: Signal, count: watch::Sender<u32>) {
    loop {
        let weight = tokio::select! {
            _ = interrupt.recv() => FINISH,
            _ = terminate.recv() => LEAVE,
            _ = hangup.recv() => LEAVE,
            () = count.closed() => return,
        };
        count.send_modify(|n| *n = n.saturating_add(weight));
    }
}
