//! `penstock bench latency`: what flush, checkpoints and scraping cost the ack's tail, at half of the peak load.
//!
//! The peak is measured in the same run by a closed loop. Then an open loop at half of it, in turn against a server that flushes,
//! checkpoints and is scraped, and one that does none of these; each on a directory of its own.

use std::time::Duration;

use serde::Serialize;

use super::open;
use super::{OpenArgs, OwnServer};
use crate::cli::latency::{Latencies, Percentiles};
use crate::cli::show;

/// Between two scrapes: more often than any Prometheus asks.
const SCRAPE_EVERY: Duration = Duration::from_secs(1);

/// Settings of the server that only writes its log.
const QUIET: [(&str, &str); 8] = [
    ("flush.max_age", "24h"),
    ("flush.min_age", "24h"),
    ("flush.seal_bytes", "1TiB"),
    ("store.checkpoint_interval", "0s"),
    ("store.checkpoint_log", "1TiB"),
    ("admission.max_unflushed", "1TiB"),
    ("admission.replay_budget", "24h"),
    ("flush.shutdown_timeout", "1ms"),
];
/// And of the one that does everything, beside the defaults: rows reach Delta while it is measured.
const BUSY: [(&str, &str); 3] =
    [("flush.max_age", "2s"), ("store.checkpoint_interval", "2s"), ("flush.shutdown_timeout", "1ms")];

/// The figures.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Posts a second that a closed loop reached.
    pub peak_posts_per_second: f64,
    /// Posts a second of the measurement: half of it.
    pub posts_per_second: f64,
    /// Rows a post.
    pub rows_per_post: u32,
    /// Acks with flush, checkpoints and scraping.
    pub busy: Percentiles,
    /// Acks with the log alone.
    pub quiet: Percentiles,
    /// Posts refused in all; none are to be.
    pub refused: u64,
    /// The busy p99 over the quiet one.
    pub p99_ratio: f64,
}

/// Measures.
///
/// # Errors
/// A server that does not run, or a post that fails.
pub async fn run(args: &OpenArgs) -> Result<Report, crate::cli::Error> {
    let peak = {
        let server = OwnServer::start(args, &BUSY).await?;
        let load = server.load(args).await?;
        load.run(Duration::from_secs(1), u64::MAX).await?;
        let outcome = load.run(args.time(), u64::MAX).await?;
        server.stop().await?;
        outcome.posts as f64 / outcome.elapsed.as_secs_f64()
    };
    let (rate, mut busy, mut quiet, mut refused) = (peak / 2.0, Latencies::default(), Latencies::default(), 0);
    for _ in 0..args.rounds {
        for (latencies, settings, scraped) in [(&mut busy, &BUSY[..], true), (&mut quiet, &QUIET[..], false)] {
            let server = OwnServer::start(args, settings).await?;
            let load = server.load(args).await?;
            open::run(&load, rate, Duration::from_secs(1)).await?;
            let scraping = async {
                loop {
                    tokio::time::sleep(SCRAPE_EVERY).await;
                    if let Err(error) = load.client.metrics().await {
                        break error;
                    }
                }
            };
            let outcome = if scraped {
                tokio::select! {
                    outcome = open::run(&load, rate, args.time()) => outcome?,
                    failed = scraping => return Err(failed.into()),
                }
            } else {
                open::run(&load, rate, args.time()).await?
            };
            latencies.merge(&outcome.latencies);
            refused += outcome.refused;
            server.stop().await?;
        }
    }
    let (busy, quiet) = (busy.percentiles(), quiet.percentiles());
    Ok(Report {
        peak_posts_per_second: peak,
        posts_per_second: rate,
        rows_per_post: args.rows,
        busy,
        quiet,
        refused,
        p99_ratio: busy.p99_us as f64 / quiet.p99_us.max(1) as f64,
    })
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let ack = |ack: &Percentiles| {
            let [p50, p99, p999, max] = [ack.p50_us, ack.p99_us, ack.p999_us, ack.max_us].map(show::micros);
            format!("p50 {p50}, p99 {p99}, p99.9 {p999}, max {max} ({} posts)", show::count(ack.count))
        };
        let facts = show::facts([
            ("peak", format!("{} posts/s of {} rows", show::rate(self.peak_posts_per_second), self.rows_per_post)),
            ("load", format!("{} posts/s, open loop", show::rate(self.posts_per_second))),
            ("everything on", ack(&self.busy)),
            ("log alone", ack(&self.quiet)),
            ("p99 ratio", format!("{:.2}", self.p99_ratio)),
            ("refused", show::count(self.refused)),
        ]);
        format!("{}\n", facts.trim_fmt())
    }
}
