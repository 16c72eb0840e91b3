//! `penstock bench overload`: more than the server can take, for a while, by an open loop that does not slow down when it is refused;
//! and what the server holds meanwhile, and how soon it is well again.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::open;
use super::{OpenArgs, OwnServer};
use crate::cli::latency::Percentiles;
use crate::cli::show;

/// Settings beside the defaults: limits that such a load reaches within seconds.
const SETTINGS: [(&str, &str); 7] = [
    ("admission.max_unflushed", "128MiB"),
    ("admission.table_share", "1.0"),
    ("admission.namespace_share", "1.0"),
    ("admission.replay_budget", "1s"),
    ("flush.parallelism", "1"),
    ("flush.max_age", "2s"),
    ("flush.shutdown_timeout", "1ms"),
];
/// Between two looks at the server.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest wait for the server to take posts again.
const RECOVERY: Duration = Duration::from_secs(120);

/// The most that was seen of each figure while the load lasted.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Peaks {
    /// Memory of the process.
    pub resident_bytes: u64,
    /// Acknowledged and not in Delta, as the memory that it takes.
    pub unflushed_bytes: u64,
    /// Of posts on their way.
    pub in_flight_bytes: u64,
    /// Seconds that a restart would take.
    pub replay_estimate_seconds: f64,
}

/// The figures.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Rows a second that a closed loop brought through.
    pub sustained_rows_per_second: f64,
    /// Rows a second that were due then. Where all connections wait for answers, they are sent late.
    pub offered_rows_per_second: f64,
    /// Rows a second that were acknowledged of them.
    pub acknowledged_rows_per_second: f64,
    /// The part of the posts that was refused.
    pub refused: f64,
    /// Acks of those that were not, from when they were due.
    pub ack: Percentiles,
    /// What the server held at most.
    pub peaks: Peaks,
    /// `admission.max_unflushed`.
    pub limit_bytes: u64,
    /// From the end of the load to the first post that was taken at once.
    pub recovery_seconds: f64,
}

/// Measures.
///
/// # Errors
/// A server that does not run, or a post that fails otherwise than by a refusal.
pub async fn run(args: &OpenArgs) -> Result<Report, crate::cli::Error> {
    let server = OwnServer::start(args, &SETTINGS).await?;
    let load = server.load(args).await?;
    let before = load.run(args.time(), u64::MAX).await?;
    let sustained = before.posts as f64 / before.elapsed.as_secs_f64();
    let rate = sustained * args.factor;
    let mut peaks = Peaks::default();
    let looking = async {
        loop {
            let status = match load.client.status().await {
                Ok(status) => status,
                Err(error) => break error,
            };
            let store = &status.store;
            peaks.resident_bytes = peaks.resident_bytes.max(status.process.resident_bytes);
            peaks.unflushed_bytes = peaks.unflushed_bytes.max(store.unflushed_memory);
            peaks.in_flight_bytes = peaks.in_flight_bytes.max(status.admission.in_flight_bytes);
            let estimate = store.replay_estimate_seconds.unwrap_or_default();
            peaks.replay_estimate_seconds = peaks.replay_estimate_seconds.max(estimate);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let outcome = tokio::select! {
        outcome = open::run(&load, rate, args.time()) => outcome?,
        failed = looking => return Err(failed.into()),
    };
    let ended = Instant::now();
    while ended.elapsed() < RECOVERY {
        let one =
            open::run(&super::load::Load { connections: 1, ..load.clone() }, 1.0, Duration::from_millis(1)).await?;
        if one.refused == 0 {
            break;
        }
    }
    let recovery = ended.elapsed();
    let limit = load.client.status().await?.admission.limit_bytes;
    server.stop().await?;
    let (seconds, rows) = (outcome.elapsed.as_secs_f64(), f64::from(args.rows));
    Ok(Report {
        sustained_rows_per_second: sustained * rows,
        offered_rows_per_second: rate * rows,
        acknowledged_rows_per_second: outcome.rows as f64 / seconds,
        refused: outcome.refused as f64 / outcome.due as f64,
        ack: outcome.latencies.percentiles(),
        peaks,
        limit_bytes: limit,
        recovery_seconds: recovery.as_secs_f64(),
    })
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let [p50, p99, max] = [self.ack.p50_us, self.ack.p99_us, self.ack.max_us].map(show::micros);
        let peaks = &self.peaks;
        let unflushed = format!("{} of {}", show::bytes(peaks.unflushed_bytes), show::bytes(self.limit_bytes));
        let facts = show::facts([
            ("sustained", format!("{} rows/s, closed loop", show::rate(self.sustained_rows_per_second))),
            ("offered", format!("{} rows/s, open loop", show::rate(self.offered_rows_per_second))),
            ("acknowledged", format!("{} rows/s", show::rate(self.acknowledged_rows_per_second))),
            ("refused", format!("{:.1} % of the posts", self.refused * 100.0)),
            ("ack", format!("p50 {p50}, p99 {p99}, max {max}, from when they were due")),
            ("waiting at most", unflushed),
            ("in flight at most", show::bytes(peaks.in_flight_bytes)),
            ("memory at most", show::bytes(peaks.resident_bytes)),
            ("restart at most", format!("{:.2} s, as estimated", peaks.replay_estimate_seconds)),
            ("well again after", format!("{:.2} s", self.recovery_seconds)),
        ]);
        format!("{}\n", facts.trim_fmt())
    }
}
