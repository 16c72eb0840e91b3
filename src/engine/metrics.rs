//! The figures of one moment under their metrics' names.

use penstock_store::histogram::BOUNDS_MICROS;
use penstock_store::{Durations, ShardStatus};

use super::Engine;
use super::status::{Status, Table};
use crate::admission::{Admission, Refusal};
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
        for status in self.store.status() {
            shard(&mut scrape, &status);
        }
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
    // Before anything was measured there is no estimate, and none is made up.
    if let Some(rate) = store.replay_rate {
        scrape.add(names::REPLAY_RATE, &[], rate);
    }
    if let Some(estimate) = store.replay_estimate_seconds {
        scrape.add(names::REPLAY_ESTIMATE, &[], estimate);
    }
    scrape.add(names::ADMISSION_LIMIT, &[], status.admission.limit_bytes);
    scrape.add(names::IN_FLIGHT, &[], status.admission.in_flight_bytes);
    scrape.add(names::REPLAY_LIMIT, &[], status.admission.replay_limit_bytes);
    scrape.add(names::DRAIN_RATE, &[], status.admission.drain_rate);
    scrape.add(names::DELAYS, &[], status.admission.delays);
}

fn decisions(scrape: &mut Scrape, admission: &Admission) {
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
    let figures: [(Metric, Value); 15] = [
        (names::LOG_RECORDS, status.records.into()),
        (names::LOG_GROUPS, status.groups.into()),
        (names::LOG_PAYLOAD, status.payload_bytes.into()),
        (names::LOG_WRITTEN, status.written_bytes.into()),
        (names::LOG_WRITE, seconds(status.write_micros).into()),
        (names::LOG_SYNC, histogram(&status.syncs)),
        (names::LOG_BOOKKEEPING, histogram(&status.bookkeeping)),
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
            ..Table::default()
        });
    }
    for table in &tables {
        let labels = [table.table.as_str()];
        scrape.add(names::TABLE_ROWS, &labels, table.unflushed_rows);
        scrape.add(names::TABLE_BYTES, &labels, table.unflushed_bytes);
        scrape.add(names::TABLE_OPEN, &labels, table.open_generations);
        scrape.add(names::TABLE_SEALED, &labels, table.sealed_generations);
        if let Some(version) = table.delta_version {
            scrape.add(names::TABLE_VERSION, &labels, version);
        }
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn histogram(durations: &Durations) -> Value {
    let buckets = BOUNDS_MICROS.iter().zip(durations.counts).map(|(bound, count)| (seconds(*bound), count)).collect();
    let beyond = durations.counts.last().copied().unwrap_or(0);
    Value::Histogram { buckets, beyond, sum: seconds(durations.micros) }
}

#[cfg(test)]
mod tests;
