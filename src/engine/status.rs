//! One snapshot of the node's figures, as `/v1/status` shows it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Engine;

/// The whole of it.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    pub node: String,
    pub incarnation: String,
    pub version: &'static str,
    pub uptime_seconds: f64,
    pub ready: bool,
    pub reason: Option<String>,
    pub lake_url: String,
    pub process: Process,
    pub store: Store,
    pub admission: Admission,
    pub tables: Vec<Table>,
}

/// What the process has used.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Process {
    /// User and system time.
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
}

/// The logs, summed up and one by one.
#[derive(Debug, Clone, Serialize)]
pub struct Store {
    pub shards: Vec<Shard>,
    pub records: u64,
    pub groups: u64,
    /// One for each group.
    pub syncs: u64,
    pub payload_bytes: u64,
    pub written_bytes: u64,
    pub unflushed_bytes: u64,
    pub unflushed_rows: u64,
}

/// One log.
#[derive(Debug, Clone, Serialize)]
pub struct Shard {
    pub shard: u32,
    pub durable_lsn: u64,
    pub retained_bytes: u64,
    pub poisoned: Option<String>,
}

/// What is let in.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Admission {
    pub limit_bytes: u64,
    pub in_flight_bytes: u64,
    pub refusals: u64,
}

/// One table.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Table {
    pub table: String,
    pub open_generations: usize,
    pub sealed_generations: usize,
    pub unflushed_rows: u64,
    pub unflushed_bytes: u64,
    pub delta_version: Option<u64>,
    pub last_error: Option<String>,
}

impl Engine {
    /// The figures now.
    pub fn status(&self) -> Status {
        let shards = self.store.status();
        let sum = |figure: fn(&penstock_store::ShardStatus) -> u64| shards.iter().map(figure).sum();
        let reason = self.unready();
        Status {
            node: self.store.node().to_string(),
            incarnation: self.store.incarnation().to_string(),
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            ready: reason.is_none(),
            reason,
            lake_url: self.lake.url().to_string(),
            process: process(),
            store: Store {
                records: sum(|s| s.records),
                groups: sum(|s| s.groups),
                syncs: sum(|s| s.groups),
                payload_bytes: sum(|s| s.payload_bytes),
                written_bytes: sum(|s| s.written_bytes),
                unflushed_bytes: sum(|s| s.unflushed_bytes),
                unflushed_rows: sum(|s| s.unflushed_rows),
                shards: shards
                    .iter()
                    .map(|s| Shard {
                        shard: s.shard,
                        durable_lsn: s.durable_lsn.0,
                        retained_bytes: s.retained_bytes,
                        poisoned: s.poisoned.clone(),
                    })
                    .collect(),
            },
            admission: Admission {
                limit_bytes: self.admission.limits().max_unflushed,
                in_flight_bytes: self.admission.in_flight(),
                refusals: self.admission.refusals(),
            },
            tables: self.table_figures(),
        }
    }

    fn table_figures(&self) -> Vec<Table> {
        let mut figures: BTreeMap<_, Table> = BTreeMap::new();
        for table in self.registry.all() {
            let progress = self.flusher.progress(table.id);
            let delta_version = self.lake_table(&table).published().max(progress.version);
            let name = table.spec.name.to_string();
            let figure = Table { table: name, delta_version, last_error: progress.last_error, ..Table::default() };
            figures.insert(table.id, figure);
        }
        for summary in self.store.summaries() {
            let figure = figures.entry(summary.table).or_default();
            figure.open_generations = summary.open.len();
            figure.sealed_generations = summary.sealed.len();
            for generation in summary.open.iter().chain(summary.sealed.iter().map(|s| &s.generation)) {
                let totals = generation.totals();
                figure.unflushed_rows += totals.rows;
                figure.unflushed_bytes += totals.bytes;
            }
        }
        let mut tables: Vec<Table> = figures.into_values().collect();
        tables.sort_by(|a, b| a.table.cmp(&b.table));
        tables
    }
}

/// What the kernel says of this process; zeros where it does not say.
#[cfg(target_os = "linux")]
fn process() -> Process {
    let read = || -> procfs::ProcResult<Process> {
        let stat = procfs::process::Process::myself()?.stat()?;
        let cpu_seconds = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
        Ok(Process { cpu_seconds, resident_bytes: stat.rss * procfs::page_size() })
    };
    read().unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn process() -> Process {
    Process::default()
}
