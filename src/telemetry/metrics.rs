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
    LOG_GROUP_RECORDS: Histogram "penstock_log_group_records" ["shard"] "Records that shared a sync of the log.";
    LOG_BOOKKEEPING: Histogram "penstock_log_bookkeeping_seconds" ["shard"]
        "What the log's thread did between writing and syncing: staging, applying, answering.";
    LOG_RETAINED: Gauge "penstock_log_retained_bytes" ["shard"] "Log bytes that are kept on disk.";
    LOG_REPLAY: Gauge "penstock_log_replay_bytes" ["shard"] "Log bytes that a restart would read.";
    LOG_STOPPED: Gauge "penstock_log_stopped" ["shard"] "1 if the log takes no more writes until a restart, else 0.";

    CHECKPOINTS: Counter "penstock_checkpoints_total" ["shard"] "Checkpoints.";
    CHECKPOINT_PHASES: Histogram "penstock_checkpoint_phase_seconds" ["shard", "phase"]
        "Phases of checkpoints: swap, write, barrier, edit, recycle.";
    CHECKPOINT_POSTPONED: Gauge "penstock_checkpoint_postponed" ["shard"] "1 if the last checkpoint was put off, else 0.";
    LANE_FILES: Gauge "penstock_lane_files" ["shard"] "Files with checkpointed rows.";
    LANE_BYTES: Gauge "penstock_lane_bytes" ["shard"] "Bytes of those files.";
    LANE_LIVE: Gauge "penstock_lane_live_bytes" ["shard"] "Bytes in them of rows that are not in Delta.";

    REPLAY_RATE: Gauge "penstock_replay_rate_bytes_per_second" []
        "The slowest replay of the log that recent starts have measured; before there is one, what a test at this start found.";
    REPLAY_MEASURED: Gauge "penstock_replay_rate_measured" [] "1 if a start has measured that rate, 0 if it is from a test.";
    REPLAY_ESTIMATE: Gauge "penstock_replay_estimate_seconds" [] "How long a restart would read the log, at that rate.";
    RECOVERY: Gauge "penstock_recovery_seconds" [] "How long this start took to recover.";

    UNFLUSHED_ROWS: Gauge "penstock_unflushed_rows" [] "Rows that are acknowledged and not known to be in Delta.";
    UNFLUSHED_BYTES: Gauge "penstock_unflushed_bytes" [] "Payload bytes of those rows.";
    LAG: Gauge "penstock_cursor_lag_seconds" [] "How long the oldest of those rows has waited; 0 if there are none.";
    ADMISSION_LIMIT: Gauge "penstock_admission_limit_bytes" [] "Most bytes that may be unflushed, those in flight included.";
    IN_FLIGHT: Gauge "penstock_admission_in_flight_bytes" [] "Bytes of posts that are not acknowledged yet.";
    IN_FLIGHT_LIMIT: Gauge "penstock_admission_in_flight_limit_bytes" [] "Most bytes of posts that are not acknowledged yet.";
    ADMISSIONS: Counter "penstock_admission_admissions_total" [] "Posts let in, at once or after a delay.";
    REPLAY_LIMIT: Gauge "penstock_admission_replay_limit_bytes" [] "Most log bytes that a restart may have to read.";
    DRAIN_RATE: Gauge "penstock_drain_rate_bytes_per_second" [] "Payload bytes that reach Delta a second; 0 if none do.";
    DELAYS: Counter "penstock_admission_delays_total" [] "Posts held up and then let in.";
    DELAY_SECONDS: Counter "penstock_admission_delay_seconds_total" [] "Time that those posts were held up.";
    REFUSALS: Counter "penstock_admission_refusals_total" ["reason"] "Posts refused for want of room.";

    DISK_FREE: Gauge "penstock_disk_free_bytes" ["disk"]
        "Bytes that may still be used where the data directory and the lanes are.";

    SEAL: Histogram "penstock_flush_seal_seconds" [] "From asking for the seal of a bucket until it was durable.";
    ENCODE: Histogram "penstock_flush_encode_seconds" []
        "Time of an encoding thread for one generation: decoding, sorting, encoding.";
    UPLOAD: Histogram "penstock_flush_upload_seconds" [] "Uploads of data files, their repeats included.";
    COMMIT: Histogram "penstock_flush_commit_seconds" [] "Commits that landed.";
    CONFIRM: Histogram "penstock_flush_confirm_seconds" [] "Looks at a table's log that confirmed commits.";
    SEALS: Counter "penstock_flush_seals_total" ["reason"] "Buckets sealed without a demand.";
    FAILURES: Counter "penstock_flush_failures_total" ["step"] "Steps of a flush that failed, and are tried again.";
    RETRIES: Counter "penstock_lake_retries_total" ["call"] "Calls to the lake that were made again at once.";
    CONFLICTS: Counter "penstock_lake_commit_conflicts_total" [] "Versions that another writer had taken.";
    UPLOADED: Counter "penstock_flush_generations_total" [] "Generations uploaded.";
    UPLOADED_BYTES: Counter "penstock_flush_payload_bytes_total" [] "Payload bytes of those.";
    PARALLELISM: Gauge "penstock_flush_parallelism" [] "Generations that may be encoded and uploaded at the same time.";
    ENCODING: Gauge "penstock_flush_encoding_bytes" []
        "Payload bytes that are encoded and uploaded; encoding takes up to three times as much memory.";
    ENCODING_LIMIT: Gauge "penstock_flush_encoding_limit_bytes" [] "Most of those.";
    HELD: Counter "penstock_flush_held_seconds_total" ["by"] "Time in which an upload waited only for this.";
    OPEN_UPLOADS: Gauge "penstock_flush_open_uploads" [] "Uploaded files that are in no commit, or not known to be.";
    ORPHANS: Counter "penstock_flush_orphans_removed_total" [] "Uploaded files that no commit referred to, removed.";
    REJECTED: Counter "penstock_rejected_rows_total" ["reason"] "Rows that their tables could not hold, by the reason's code.";

    TABLES: Gauge "penstock_tables" [] "Tables that are known.";
    TABLE_ROWS: Gauge "penstock_table_unflushed_rows" ["table"]
        "Rows that are not in Delta, of the tables with the largest backlogs; `(other)` is the rest together.";
    TABLE_BYTES: Gauge "penstock_table_unflushed_bytes" ["table"] "Payload bytes of those rows.";
    TABLE_OPEN: Gauge "penstock_table_open_generations" ["table"] "Generations that still take rows.";
    TABLE_SEALED: Gauge "penstock_table_sealed_generations" ["table"] "Generations on their way into Delta.";
    TABLE_VERSION: Gauge "penstock_table_delta_version" ["table"] "The newest Delta version known.";
    TABLE_LAG: Gauge "penstock_table_cursor_lag_seconds" ["table"] "How long the oldest row that is not in Delta has waited.";
    TABLE_COMMITS: Counter "penstock_table_commits_total" ["table"] "Commits, of the tables that have series of their own.";
    TABLE_FAILURES: Counter "penstock_table_flush_failures_total" ["table"]
        "Attempts to flush that failed, of the tables that have series of their own.";
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
