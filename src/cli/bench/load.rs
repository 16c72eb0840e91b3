//! The closed loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Error;
use super::payload::{Payload, now_micros};
use crate::cli::client::Client;
use crate::cli::latency::Latencies;
use crate::schema::TableName;

/// What is sent, and over how many connections.
#[derive(Debug, Clone)]
pub struct Load {
    pub client: Client,
    pub payload: Arc<Payload>,
    pub tables: Arc<[TableName]>,
    pub connections: u32,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// From the sending of a post to its acknowledgement; refused attempts are not in it.
    pub latencies: Latencies,
    pub posts: u64,
    pub rows: u64,
    /// Bytes of the bodies acknowledged.
    pub body_bytes: u64,
    /// Posts answered with 503; each was sent again after the pause asked for.
    pub refusals: u64,
    /// From the first post's start to the last one's end.
    pub elapsed: Duration,
}

impl Load {
    /// Sends for `time`, or until `max_posts` are sent. The first failure ends it.
    ///
    /// Connections are kept alive in the client's pool: with one post in flight for each task there are as many
    /// connections as tasks.
    pub async fn run(&self, time: Duration, max_posts: u64) -> Result<Outcome, crate::cli::Error> {
        let started = Instant::now();
        let budget = Arc::new(AtomicU64::new(max_posts));
        let mut tasks = JoinSet::new();
        for number in 0..self.connections {
            tasks.spawn(self.clone().connection(number as usize, started + time, Arc::clone(&budget)));
        }
        let mut total = Outcome::default();
        while let Some(finished) = tasks.join_next().await {
            // Returning drops the set, which ends the other tasks.
            let outcome = finished.map_err(|e| Error::Task(e.to_string()))??;
            total.latencies.merge(&outcome.latencies);
            total.posts += outcome.posts;
            total.rows += outcome.rows;
            total.body_bytes += outcome.body_bytes;
            total.refusals += outcome.refusals;
        }
        total.elapsed = started.elapsed();
        Ok(total)
    }

    async fn connection(
        self,
        number: usize,
        deadline: Instant,
        budget: Arc<AtomicU64>,
    ) -> Result<Outcome, crate::cli::Error> {
        let mut outcome = Outcome::default();
        let mut turn = number;
        while Instant::now() < deadline && take_one(&budget) {
            let table = &self.tables[turn % self.tables.len()];
            turn += 1;
            let body = self.payload.render(now_micros()).map_err(Error::Encode)?;
            loop {
                let sent = Instant::now();
                match self.client.append(table, self.payload.media_type(), body.clone()).await {
                    Ok(reply) if reply.rows == self.payload.rows() => {
                        outcome.latencies.record(sent.elapsed());
                        outcome.posts += 1;
                        outcome.rows += reply.rows;
                        outcome.body_bytes += body.len() as u64;
                        break;
                    }
                    Ok(reply) => {
                        return Err(Error::Acknowledged { sent: self.payload.rows(), acked: reply.rows }.into());
                    }
                    Err(error) => {
                        let Some(pause) = error.retry_after() else { return Err(error.into()) };
                        outcome.refusals += 1;
                        if Instant::now() + pause >= deadline {
                            return Ok(outcome);
                        }
                        tokio::time::sleep(pause).await;
                    }
                }
            }
        }
        Ok(outcome)
    }
}

/// Takes a post out of what is left to send.
fn take_one(budget: &AtomicU64) -> bool {
    budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}
