//! The figures of a measurement.

use serde::Serialize;

use super::load::Outcome;
use super::{AppendArgs, BodyFormat};
use crate::cli::client::Status;
use crate::cli::latency::Percentiles;
use crate::cli::show;

/// What was sent, how fast, and what it cost the server. Server figures are differences of its counters over the
/// measurement, so other clients of the same server are in them.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Connections, each with one post in flight.
    pub connections: u32,
    /// Rows a post.
    pub rows_per_post: u32,
    /// Tables posted to.
    pub tables: u32,
    /// `ndjson` or `arrow`.
    pub format: &'static str,
    /// Length of the measurement.
    pub seconds: f64,
    /// Rows acknowledged.
    pub rows: u64,
    /// Posts acknowledged.
    pub posts: u64,
    /// Posts answered with 503, and sent again.
    pub refusals: u64,
    /// Rows acknowledged a second.
    pub rows_per_second: f64,
    /// Posts acknowledged a second.
    pub posts_per_second: f64,
    /// Bytes of bodies acknowledged a second.
    pub body_bytes_per_second: f64,
    /// Time from post to acknowledgement.
    pub ack: Percentiles,
    /// The server's CPU time for a million rows, in seconds.
    pub cpu_seconds_per_million_rows: f64,
    /// Bytes the log wrote for each byte handed to it; none if nothing was counted.
    pub written_per_payload_byte: Option<f64>,
    /// Bytes the log wrote for each byte of the bodies.
    pub written_per_body_byte: f64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Records a sync covered on average; none if there was no sync.
    pub records_per_sync: Option<f64>,
}

impl Report {
    /// `before` and `after` are the server's counters around the measurement.
    pub fn new(args: &AppendArgs, outcome: &Outcome, before: &Status, after: &Status) -> Self {
        let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
        let cpu = after.process.cpu_seconds - before.process.cpu_seconds;
        let delta = |of: fn(&Status) -> u64| of(after).saturating_sub(of(before));
        let written = delta(|s| s.store.written_bytes) as f64;
        let payload = delta(|s| s.store.payload_bytes) as f64;
        let records = delta(|s| s.store.records) as f64;
        let syncs = delta(|s| s.store.syncs);
        Self {
            connections: args.connections,
            rows_per_post: args.rows,
            tables: args.tables,
            format: match args.format {
                BodyFormat::Ndjson => "ndjson",
                BodyFormat::Arrow => "arrow",
            },
            seconds,
            rows: outcome.rows,
            posts: outcome.posts,
            refusals: outcome.refusals,
            rows_per_second: outcome.rows as f64 / seconds,
            posts_per_second: outcome.posts as f64 / seconds,
            body_bytes_per_second: outcome.body_bytes as f64 / seconds,
            ack: outcome.latencies.percentiles(),
            cpu_seconds_per_million_rows: cpu * 1e6 / outcome.rows.max(1) as f64,
            written_per_payload_byte: (payload > 0.0).then(|| written / payload),
            written_per_body_byte: written / outcome.body_bytes.max(1) as f64,
            syncs,
            records_per_sync: (syncs > 0).then(|| records / syncs as f64),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let ratio = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"));
        let ack = &self.ack;
        let facts = show::facts([
            (
                "load",
                format!(
                    "{} connections, {} rows a post as {}, {} table(s), {:.1} s",
                    self.connections, self.rows_per_post, self.format, self.tables, self.seconds
                ),
            ),
            ("rows/s", format!("{} ({} rows)", show::rate(self.rows_per_second), show::count(self.rows))),
            ("posts/s", format!("{} ({} posts)", show::rate(self.posts_per_second), show::count(self.posts))),
            ("body bytes/s", show::bytes(self.body_bytes_per_second as u64)),
            (
                "ack",
                format!(
                    "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
                    show::micros(ack.p50_us),
                    show::micros(ack.p90_us),
                    show::micros(ack.p99_us),
                    show::micros(ack.p999_us),
                    show::micros(ack.max_us)
                ),
            ),
            ("CPU", format!("{:.2} s per million rows (server)", self.cpu_seconds_per_million_rows)),
            (
                "written",
                format!(
                    "{} bytes per payload byte, {:.2} per body byte",
                    ratio(self.written_per_payload_byte),
                    self.written_per_body_byte
                ),
            ),
            ("syncs", format!("{} ({} records each)", show::count(self.syncs), ratio(self.records_per_sync))),
            ("refusals", show::count(self.refusals)),
        ]);
        format!("{}\n", facts.trim_fmt())
    }
}
