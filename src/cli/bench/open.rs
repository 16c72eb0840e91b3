//! The open loop: posts are due at fixed times, whatever became of those before them.
//!
//! A sender that waits for an answer before it sends again measures nothing while the server stands still, and one long pause counts
//! once (coordinated omission). Here a post's time begins when it was due. If all connections are busy then, it is sent late, and the
//! wait is its latency as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Error;
use super::load::Load;
use super::payload::now_micros;
use crate::cli::latency::Latencies;

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// From when a post was due to its acknowledgement; refused ones are not in it.
    pub latencies: Latencies,
    /// Posts that were due.
    pub due: u64,
    /// Posts acknowledged.
    pub posts: u64,
    /// Their rows.
    pub rows: u64,
    /// Posts refused with a time after which to come again. They are not sent again: the next ones are due.
    pub refused: u64,
    /// From the first post's time to the last one's end.
    pub elapsed: Duration,
}

/// Sends `rate` posts a second for `time`.
///
/// # Errors
/// The first failure that is no refusal for overload.
pub async fn run(load: &Load, rate: f64, time: Duration) -> Result<Outcome, crate::cli::Error> {
    let began = Instant::now();
    let next = Arc::new(AtomicU64::new(0));
    let due = (rate * time.as_secs_f64()).ceil().max(1.0) as u64;
    let mut tasks = JoinSet::new();
    for _ in 0..load.connections {
        tasks.spawn(connection(load.clone(), Schedule { began, rate, due }, Arc::clone(&next)));
    }
    let mut total = Outcome { due, ..Outcome::default() };
    while let Some(finished) = tasks.join_next().await {
        let outcome = finished.map_err(|e| Error::Task(e.to_string()))??;
        total.latencies.merge(&outcome.latencies);
        total.posts += outcome.posts;
        total.rows += outcome.rows;
        total.refused += outcome.refused;
    }
    total.elapsed = began.elapsed();
    Ok(total)
}

/// When posts are due.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    began: Instant,
    rate: f64,
    due: u64,
}

impl Schedule {
    fn time(&self, post: u64) -> Option<Instant> {
        (post < self.due).then(|| self.began + Duration::from_secs_f64(post as f64 / self.rate))
    }
}

async fn connection(load: Load, schedule: Schedule, next: Arc<AtomicU64>) -> Result<Outcome, crate::cli::Error> {
    let mut outcome = Outcome::default();
    loop {
        let post = next.fetch_add(1, Ordering::Relaxed);
        let Some(due) = schedule.time(post) else { return Ok(outcome) };
        // Not before it is due; rendered meanwhile, so that the server's time is measured and not ours.
        let body = load.payload.render(now_micros()).map_err(Error::Encode)?;
        tokio::time::sleep_until(due.into()).await;
        let table = &load.tables[post as usize % load.tables.len()];
        match load.client.append(table, load.payload.media_type(), body).await {
            Ok(reply) if reply.rows == load.payload.rows() => {
                outcome.latencies.record(due.elapsed());
                outcome.posts += 1;
                outcome.rows += reply.rows;
            }
            Ok(reply) => return Err(Error::Acknowledged { sent: load.payload.rows(), acked: reply.rows }.into()),
            Err(error) if error.retry_after().is_some() => outcome.refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
}
