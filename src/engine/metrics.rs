//! The figures of one moment under their metrics' names.

use std::ops::RangeInclusive;

use penstock_store::histogram::BOUNDS;
use penstock_store::{Distribution, PHASES, ShardStatus};

use super::Engine;
use super::status::{Basis, Status, Table};
use crate::admission::{Admission, Refusal};
use crate::flush;
use crate::lake::Calls;
use crate::telemetry::metrics::{self as names, Metric, Scrape, Value};

/// Tables that have series of their own. The others are summed up: a scrape must not grow with the number of tables.
pub const MAX_TABLES: usize = 100;
/// The label of what is summed up; no table's name has parentheses.
const OTHER: &str = "(other)";

impl Engine {
    /// The figures now, as a Prometheus server reads them.
    pub fn metrics(&self) -> String {
        let status = self.status();
        let mut scrape = Scrape::default();
        node(&mut scrape, &status);
        decisions(&mut scrape, &self.admission);
        for (reason, count) in self.ingest.rejected_rows() {
            scrape.add(names::REJECTED, &[reason], count);
        }
        for status in self.store.status() {
            shard(&mut scrape, &status);
        }
        flush(&mut scrape, &status, &self.flusher.figures(), &self.lake.calls());
        tables(&mut scrape, status.tables);
        scrape.into_text()
    }
}

fn node(scrape: &mut Scrape, status: &Status) {
    scrape.add(names::BUILD_INFO, &[&status.version], 1_u64);
    scrape.add(names::UPTIME, &[], status.uptime_seconds);
    scrape.add(names::READY, &[], status.ready);
    scrape.add(names::CPU, &[], status.process.cpu_seconds);
    scrape.add(names::RESIDENT, &[], status.process.resident_bytes);
    let store = &status.store;
    scrape.add(names::UNFLUSHED_ROWS, &[], store.unflushed_rows);
    scrape.add(names::UNFLUSHED_BYTES, &[], store.unflushed_bytes);
    scrape.add(names::RECOVERY, &[], store.recovery.millis as f64 / 1000.0);
    scrape.add(names::REPLAY_RATE, &[], store.replay_rate.unwrap_or_default());
    scrape.add(names::REPLAY_MEASURED, &[], store.replay_rate_basis == Basis::Measured);
    scrape.add(names::REPLAY_ESTIMATE, &[], status.usage.replay_estimate_seconds);
    scrape.add(names::LAG, &[], status.usage.lag_seconds.unwrap_or_default());
    scrape.add(names::IN_FLIGHT_LIMIT, &[], status.usage.decode_limit_bytes);
    for disk in &status.usage.disks {
        if let Some(free) = disk.free_bytes {
            scrape.add(names::DISK_FREE, &[&disk.of], free);
        }
    }
    scrape.add(names::ADMISSION_LIMIT, &[], status.admission.limit_bytes);
    scrape.add(names::IN_FLIGHT, &[], status.admission.in_flight_bytes);
    scrape.add(names::REPLAY_LIMIT, &[], status.admission.replay_limit_bytes);
    scrape.add(names::DRAIN_RATE, &[], status.admission.drain_rate);
    scrape.add(names::DELAYS, &[], status.admission.delays);
}

fn decisions(scrape: &mut Scrape, admission: &Admission) {
    scrape.add(names::ADMISSIONS, &[], admission.admissions());
    scrape.add(names::DELAY_SECONDS, &[], admission.delays().1.as_secs_f64());
    let counts = admission.refusals_by_reason();
    for reason in Refusal::CODES {
        let count = counts.iter().find(|(code, _)| *code == reason).map_or(0, |(_, count)| *count);
        scrape.add(names::REFUSALS, &[reason], count);
    }
}

fn shard(scrape: &mut Scrape, status: &ShardStatus) {
    let number = status.shard.to_string();
    let labels = [number.as_str()];
    for (phase, durations) in PHASES.iter().zip(&status.phases) {
        scrape.add(names::CHECKPOINT_PHASES, &[&number, phase], histogram(durations, SECONDS));
    }
    let figures: [(Metric, Value); 16] = [
        (names::LOG_RECORDS, status.records.into()),
        (names::LOG_GROUPS, status.groups.into()),
        (names::LOG_PAYLOAD, status.payload_bytes.into()),
        (names::LOG_WRITTEN, status.written_bytes.into()),
        (names::LOG_WRITE, seconds(status.write_micros).into()),
        (names::LOG_SYNC, histogram(&status.syncs, MOMENTS)),
        (names::LOG_GROUP_RECORDS, histogram(&status.group_records, RECORDS)),
        (names::LOG_BOOKKEEPING, histogram(&status.bookkeeping, MOMENTS)),
        (names::LOG_RETAINED, status.retained_bytes.into()),
        (names::LOG_REPLAY, status.replay_bytes().into()),
        (names::LOG_STOPPED, status.poisoned.is_some().into()),
        (names::CHECKPOINTS, status.checkpoints.into()),
        (names::CHECKPOINT_POSTPONED, status.postponed.is_some().into()),
        (names::LANE_FILES, status.lane_files.into()),
        (names::LANE_BYTES, status.lane_bytes.into()),
        (names::LANE_LIVE, status.lane_live_bytes.into()),
    ];
    for (metric, value) in figures {
        scrape.add(metric, &labels, value);
    }
}

fn flush(scrape: &mut Scrape, status: &Status, figures: &flush::Figures, lake: &Calls) {
    let durations = [
        (names::SEAL, &figures.seals),
        (names::ENCODE, &figures.encodes),
        (names::UPLOAD, &lake.uploads),
        (names::COMMIT, &figures.commits),
        (names::CONFIRM, &figures.confirms),
    ];
    for (metric, durations) in durations {
        scrape.add(metric, &[], histogram(durations, SECONDS));
    }
    for (reason, count) in &figures.sealed {
        scrape.add(names::SEALS, &[reason], *count);
    }
    for (step, count) in &figures.failures {
        scrape.add(names::FAILURES, &[step], *count);
    }
    scrape.add(names::RETRIES, &["upload"], lake.upload_retries);
    scrape.add(names::RETRIES, &["commit"], lake.commit_retries);
    scrape.add(names::CONFLICTS, &[], lake.conflicts);
    scrape.add(names::UPLOADED, &[], figures.uploads);
    scrape.add(names::UPLOADED_BYTES, &[], figures.uploaded_bytes);
    scrape.add(names::PARALLELISM, &[], status.flush.parallelism as u64);
    scrape.add(names::ENCODING, &[], status.usage.encode_bytes);
    scrape.add(names::ENCODING_LIMIT, &[], status.usage.encode_limit_bytes);
    scrape.add(names::HELD, &["parallelism"], figures.held_by_parallelism.as_secs_f64());
    scrape.add(names::HELD, &["memory"], figures.held_by_memory.as_secs_f64());
    scrape.add(names::OPEN_UPLOADS, &[], status.flush.open_uploads);
    scrape.add(names::ORPHANS, &[], status.flush.orphans_removed);
}

fn tables(scrape: &mut Scrape, mut tables: Vec<Table>) {
    scrape.add(names::TABLES, &[], tables.len() as u64);
    scrape.add(names::TABLES_FAILING, &[], tables.iter().filter(|t| t.last_error.is_some()).count() as u64);
    // By backlog; by name among equals, so that the choice does not flicker.
    tables.sort_by(|a, b| b.unflushed_bytes.cmp(&a.unflushed_bytes).then_with(|| a.table.cmp(&b.table)));
    let rest = tables.split_off(tables.len().min(MAX_TABLES));
    if !rest.is_empty() {
        let sum = |figure: fn(&Table) -> u64| rest.iter().map(figure).sum();
        tables.push(Table {
            table: OTHER.to_owned(),
            unflushed_rows: sum(|t| t.unflushed_rows),
            unflushed_bytes: sum(|t| t.unflushed_bytes),
            open_generations: sum(|t| t.open_generations),
            sealed_generations: sum(|t| t.sealed_generations),
            lag_seconds: rest.iter().filter_map(|t| t.lag_seconds).reduce(f64::max),
            ..Table::default()
        });
    }
    for table in &tables {
        let labels = [table.table.as_str()];
        scrape.add(names::TABLE_ROWS, &labels, table.unflushed_rows);
        scrape.add(names::TABLE_BYTES, &labels, table.unflushed_bytes);
        scrape.add(names::TABLE_OPEN, &labels, table.open_generations);
        scrape.add(names::TABLE_SEALED, &labels, table.sealed_generations);
        scrape.add(names::TABLE_LAG, &labels, table.lag_seconds.unwrap_or_default());
        if table.table != OTHER {
            // Who is among the others changes, and a sum of counters must not fall.
            scrape.add(names::TABLE_COMMITS, &labels, table.commits);
            scrape.add(names::TABLE_FAILURES, &labels, table.failures);
        }
        if let Some(version) = table.delta_version {
            scrape.add(names::TABLE_VERSION, &labels, version);
        }
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Which bounds of a distribution are shown, and how many of its units make one of the metric's.
#[derive(Debug, Clone)]
struct Scale {
    bounds: RangeInclusive<u64>,
    unit: f64,
}

/// 10 us to 5 s.
const MOMENTS: Scale = Scale { bounds: 10..=5_000_000, unit: 1e6 };
/// 1 ms to 100 s.
const SECONDS: Scale = Scale { bounds: 1_000..=100_000_000, unit: 1e6 };
const RECORDS: Scale = Scale { bounds: 1..=10_000, unit: 1.0 };

fn histogram(counted: &Distribution, scale: Scale) -> Value {
    let mut below = 0;
    let mut buckets = Vec::with_capacity(BOUNDS.len());
    for (bound, count) in BOUNDS.iter().zip(counted.counts) {
        // What is smaller than the smallest bound is within it.
        below += count;
        if scale.bounds.contains(bound) {
            buckets.push((*bound as f64 / scale.unit, std::mem::take(&mut below)));
        }
    }
    let beyond = below + counted.counts.last().copied().unwrap_or(0);
    Value::Histogram { buckets, beyond, sum: counted.sum as f64 / scale.unit }
}

#[cfg(test)]
mod tests;
