//! Every metric's name, and the text that a Prometheus server scrapes.
//!
//! What is measured lives with whoever measures it; a scrape reads those figures and gives them the names here. Names end in their
//! unit, counters in `_total`, as Prometheus has it. Times are seconds, sizes bytes.
//!
//! Text format 0.0.4: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// The content type of a scrape's text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric as those who scrape see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric {
    /// With its unit.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
}

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Only grows, from 0 at the start.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values by size.
    Histogram,
}

macro_rules! metrics {
    ($($constant:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: Metric =
                Metric { name: $name, help: $help, kind: Kind::$kind, labels: &[$($label),*] };
        )*
        /// All of them.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    BUILD_INFO: Gauge "penstock_build_info" ["version"] "Always 1; the version is in the label.";
    UPTIME: Gauge "penstock_uptime_seconds" [] "Time since the server was ready.";
    READY: Gauge "penstock_ready" [] "1 if the server takes rows, else 0.";
    CPU: Counter "process_cpu_seconds_total" [] "User and system time of the process.";
    RESIDENT: Gauge "process_resident_memory_bytes" [] "Resident memory of the process.";

    LOG_RECORDS: Counter "penstock_log_records_total" ["shard"] "Records made durable.";
    LOG_GROUPS: Counter "penstock_log_groups_total" ["shard"] "Groups made durable; each is one sync.";
    LOG_PAYLOAD: Counter "penstock_log_payload_bytes_total" ["shard"] "Payload bytes made durable.";
    LOG_WRITTEN: Counter "penstock_log_written_bytes_total" ["shard"] "Bytes passed to write calls, checkpoints included.";
    LOG_WRITE: Counter "penstock_log_write_seconds_total" ["shard"] "Time that the log's thread spent in write calls.";
    LOG_SYNC: Histogram "penstock_log_sync_seconds" ["shard"] "Syncs of the log.";
    LOG_BOOKKEEPING: Histogram "penstock_log_bookkeeping_seconds" ["shard"]
        "What the log's thread did between writing and syncing: staging, applying, answering.";
    LOG_RETAINED: Gauge "penstock_log_retained_bytes" ["shard"] "Log bytes that are kept on disk.";
    LOG_REPLAY: Gauge "penstock_log_replay_bytes" ["shard"] "Log bytes that a restart would read.";
    LOG_STOPPED: Gauge "penstock_log_stopped" ["shard"] "1 if the log takes no more writes until a restart, else 0.";

    CHECKPOINTS: Counter "penstock_checkpoints_total" ["shard"] "Checkpoints.";
    CHECKPOINT_POSTPONED: Gauge "penstock_checkpoint_postponed" ["shard"] "1 if the last checkpoint was put off, else 0.";
    LANE_FILES: Gauge "penstock_lane_files" ["shard"] "Files with checkpointed rows.";
    LANE_BYTES: Gauge "penstock_lane_bytes" ["shard"] "Bytes of those files.";
    LANE_LIVE: Gauge "penstock_lane_live_bytes" ["shard"] "Bytes in them of rows that are not in Delta.";

    REPLAY_RATE: Gauge "penstock_replay_rate_bytes_per_second" []
        "The slowest replay of the log that recent starts have measured.";
    REPLAY_ESTIMATE: Gauge "penstock_replay_estimate_seconds" [] "How long a restart would read the log, at that rate.";
    RECOVERY: Gauge "penstock_recovery_seconds" [] "How long this start took to recover.";

    UNFLUSHED_ROWS: Gauge "penstock_unflushed_rows" [] "Rows that are acknowledged and not known to be in Delta.";
    UNFLUSHED_BYTES: Gauge "penstock_unflushed_bytes" [] "Payload bytes of those rows.";
    ADMISSION_LIMIT: Gauge "penstock_admission_limit_bytes" [] "Most bytes that may be unflushed, those in flight included.";
    IN_FLIGHT: Gauge "penstock_admission_in_flight_bytes" [] "Bytes of posts that are not acknowledged yet.";
    REPLAY_LIMIT: Gauge "penstock_admission_replay_limit_bytes" [] "Most log bytes that a restart may have to read.";
    DRAIN_RATE: Gauge "penstock_drain_rate_bytes_per_second" [] "Payload bytes that reach Delta a second; 0 if none do.";
    DELAYS: Counter "penstock_admission_delays_total" [] "Posts held up and then let in.";
    DELAY_SECONDS: Counter "penstock_admission_delay_seconds_total" [] "Time that those posts were held up.";
    REFUSALS: Counter "penstock_admission_refusals_total" ["reason"] "Posts refused for want of room.";

    TABLES: Gauge "penstock_tables" [] "Tables that are known.";
    TABLE_ROWS: Gauge "penstock_table_unflushed_rows" ["table"]
        "Rows that are not in Delta, of the tables with the largest backlogs; `(other)` is the rest together.";
    TABLE_BYTES: Gauge "penstock_table_unflushed_bytes" ["table"] "Payload bytes of those rows.";
    TABLE_OPEN: Gauge "penstock_table_open_generations" ["table"] "Generations that still take rows.";
    TABLE_SEALED: Gauge "penstock_table_sealed_generations" ["table"] "Generations on their way into Delta.";
    TABLE_VERSION: Gauge "penstock_table_delta_version" ["table"] "The newest Delta version known.";
    TABLES_FAILING: Gauge "penstock_tables_failing" [] "Tables whose last attempt to flush failed.";
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// Any number.
    Real(f64),
    /// Counts by upper bound, not summed up, and what is beyond the last bound; the sum of all values.
    Histogram {
        /// Upper bound and count.
        buckets: Vec<(f64, u64)>,
        /// Count of what is larger.
        beyond: u64,
        /// Of all values.
        sum: f64,
    },
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

/// The figures of one moment.
#[derive(Debug, Default)]
pub struct Scrape {
    families: BTreeMap<Metric, Vec<(Vec<String>, Value)>>,
}

impl Scrape {
    /// Adds a value; `labels` are those that the metric has, in its order.
    pub fn add(&mut self, metric: Metric, labels: &[&str], value: impl Into<Value>) {
        debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        self.families.entry(metric).or_default().push((labels, value.into()));
    }

    /// The text.
    pub fn into_text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).unwrap_or_else(|e| unreachable!("a string takes all: {e}"));
        text
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, samples) in &self.families {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            // The encoder adds a counter's ending.
            let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
            let mut family = encoder.encode_descriptor(name, metric.help, None, kind)?;
            for (values, value) in samples {
                let labels: Vec<(&str, &str)> =
                    metric.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
                encode(metric.kind, value, family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn encode(kind: Kind, value: &Value, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Whole(value)) => encoder.encode_counter::<NoLabelSet, _, u64>(value, None),
        (Kind::Counter, Value::Real(value)) => encoder.encode_counter::<NoLabelSet, _, u64>(value, None),
        (_, Value::Whole(value)) => encoder.encode_gauge(value),
        (_, Value::Real(value)) => encoder.encode_gauge(value),
        (_, Value::Histogram { buckets, beyond, sum }) => {
            let count = buckets.iter().map(|(_, count)| count).sum::<u64>() + beyond;
            encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
        }
    }
}

#[cfg(test)]
mod tests;
