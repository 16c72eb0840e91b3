//! One snapshot of the node's figures, as `/v1/status` shows it and as the command line reads it. A field that came later has a
//! default, so that a newer command line reads an older server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use penstock_store::{CheckpointReport, Report, ShardStatus};
use serde::{Deserialize, Serialize};

use super::Engine;
pub use super::replay_rate::Basis;
use crate::flush::MAX_AT_LAKE;
use crate::lake;

/// Answer to `GET /v1/status`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Id of the data directory.
    pub node: String,
    /// Id of this start.
    pub incarnation: String,
    /// The server's version.
    pub version: String,
    /// Seconds since the engine was ready.
    pub uptime_seconds: f64,
    /// Whether the server takes rows.
    pub ready: bool,
    /// Why not.
    pub reason: Option<String>,
    /// Root of the Delta tables.
    pub lake_url: String,
    /// Why nothing can be committed to any table, as far as it is known. Rows are taken all the same, within the limits.
    #[serde(default)]
    pub lake_problem: Option<String>,
    /// The server's process.
    pub process: Process,
    /// The logs.
    pub store: Store,
    /// What is let in.
    pub admission: Admission,
    /// The way to Delta.
    #[serde(default)]
    pub flush: Flush,
    /// What of the budgets is in use, and what there is.
    #[serde(default)]
    pub usage: Usage,
    /// Each table's backlog, by name.
    pub tables: Vec<Table>,
}

/// What the process has used.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Process {
    /// User and system time since its start.
    pub cpu_seconds: f64,
    /// Memory resident.
    pub resident_bytes: u64,
}

/// The logs, summed up and one by one. Counters begin with the start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Store {
    /// One entry for each shard.
    pub shards: Vec<Shard>,
    /// Records made durable.
    pub records: u64,
    /// Groups made durable.
    pub groups: u64,
    /// Syncs of the log: one for each group.
    pub syncs: u64,
    /// Bytes handed in by callers.
    pub payload_bytes: u64,
    /// Bytes written to disk for them, checkpoints included.
    pub written_bytes: u64,
    /// Bytes acknowledged and not flushed.
    pub unflushed_bytes: u64,
    /// Rows acknowledged and not flushed.
    pub unflushed_rows: u64,
    /// What those bytes take in memory until a checkpoint moves them, with what lies around each post's: this is what
    /// `admission.max_unflushed` bounds.
    #[serde(default)]
    pub unflushed_memory: u64,
    /// Log bytes that a restart would read.
    #[serde(default)]
    pub replay_bytes: u64,
    /// Weight of log a second and shard that recent starts have read, the slowest of them: bytes, and some more for each record. Before
    /// the first that had enough to read, half of what a test at this start found.
    #[serde(default)]
    pub replay_rate: Option<u64>,
    /// How that rate is known.
    #[serde(default)]
    pub replay_rate_basis: Basis,
    /// Seconds that a restart would take for them and for the manifests, at the middle one of those rates, or at what the test found.
    #[serde(default)]
    pub replay_estimate_seconds: Option<f64>,
    /// What this start has read.
    #[serde(default)]
    pub recovery: Recovery,
}

/// What a start has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Records of the log.
    pub records: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Milliseconds that all of it took.
    pub millis: u64,
    /// Milliseconds of it for manifests and the indexes of lane files.
    pub load_millis: u64,
    /// Milliseconds of it for the log.
    pub replay_millis: u64,
    /// Bytes that went into lane files because memory for them was not allowed.
    pub spilled_bytes: u64,
}

/// One log.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Shard {
    /// Its number.
    pub shard: u32,
    /// Everything below is on disk.
    pub durable_lsn: u64,
    /// A restart reads the log from here on.
    #[serde(default)]
    pub checkpoint_lsn: u64,
    /// Log bytes that a restart would read.
    #[serde(default)]
    pub replay_bytes: u64,
    /// Log bytes that are kept.
    pub retained_bytes: u64,
    /// Checkpoints since the start.
    #[serde(default)]
    pub checkpoints: u64,
    /// Lane files in use.
    #[serde(default)]
    pub lane_files: u64,
    /// Their bytes.
    #[serde(default)]
    pub lane_bytes: u64,
    /// Bytes in them of rows that are not flushed.
    #[serde(default)]
    pub lane_live_bytes: u64,
    /// Why the last checkpoint was put off.
    #[serde(default)]
    pub postponed: Option<String>,
    /// Why the log takes no more writes.
    pub poisoned: Option<String>,
}

/// What is let in.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Admission {
    /// Most bytes that may be unflushed.
    pub limit_bytes: u64,
    /// Bytes of posts that are not acknowledged yet.
    pub in_flight_bytes: u64,
    /// Posts refused since the start.
    pub refusals: u64,
    /// Posts held up since the start, for want of room, and then let in.
    #[serde(default)]
    pub delays: u64,
    /// Most log bytes that a restart may have to read.
    #[serde(default)]
    pub replay_limit_bytes: u64,
    /// Bytes that reach Delta a second, as last measured; 0 if none do.
    #[serde(default)]
    pub drain_rate: u64,
}

/// The way to Delta, all tables together.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Flush {
    /// Generations that may be encoded and uploaded at the same time.
    pub parallelism: usize,
    /// Tables that had something sealed lately.
    pub active_tables: usize,
    /// Milliseconds of an upload, encoding included; a moving average.
    pub upload_millis: Option<f64>,
    /// Milliseconds of a commit; a moving average.
    pub commit_millis: Option<f64>,
    /// Seconds in which every active table can be committed to once.
    pub round_seconds: Option<f64>,
    /// Why `flush.max_age` cannot be kept at this number of tables, and what would do.
    pub infeasible: Option<String>,
    /// Uploaded files that are in no commit, or not known to be.
    pub open_uploads: u64,
    /// Uploaded files that no commit referred to, removed since the start.
    pub orphans_removed: u64,
}

/// What of the budgets is in use, and what there is: sums over the tables and logs of the same look.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Cursor lag: payload bytes that are acknowledged and not in Delta.
    pub unflushed_bytes: u64,
    /// Rows of them.
    pub unflushed_rows: u64,
    /// Seconds that the oldest of them has waited; none if there are none.
    pub lag_seconds: Option<f64>,
    /// Bytes of posts that are received, decoded or queued: the larger of the body and its rows as the log has them.
    pub decode_bytes: u64,
    /// `admission.max_in_flight`.
    pub decode_limit_bytes: u64,
    /// Payload bytes of generations that are encoded and uploaded. Encoding takes up to three times as much memory.
    pub encode_bytes: u64,
    /// `flush.memory`.
    pub encode_limit_bytes: u64,
    /// Log bytes on disk.
    pub retained_log_bytes: u64,
    /// Lane files, bytes.
    pub lane_bytes: u64,
    /// Bytes in them of rows that are not in Delta.
    pub lane_live_bytes: u64,
    /// Log bytes that a restart would read.
    pub replay_bytes: u64,
    /// Seconds that this would take.
    pub replay_estimate_seconds: f64,
    /// Payload bytes that reach Delta a second, as last measured; 0 if none do.
    pub drain_rate: u64,
    /// The same figures of each namespace that has rows waiting, by name.
    pub namespaces: Vec<NamespaceUsage>,
    /// The file systems of the data directory and of the lanes.
    pub disks: Vec<Disk>,
}

/// What of a namespace waits for Delta.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceUsage {
    pub namespace: String,
    pub unflushed_bytes: u64,
    pub unflushed_rows: u64,
    pub lag_seconds: Option<f64>,
}

/// Where there is room.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// The directory.
    pub path: String,
    /// `data`, or `lane-0` and so on.
    pub of: String,
    /// Bytes that may still be used there; none if the system does not say.
    pub free_bytes: Option<u64>,
}

/// How a table's Delta log is cared for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogCare {
    /// The newest checkpoint of it that this start has written.
    pub checkpoint: Option<u64>,
    /// Log files that were removed behind checkpoints.
    pub removed: u64,
    /// Why the last try failed. Commits go on all the same.
    pub last_error: Option<String>,
}

impl From<lake::LogCare> for LogCare {
    fn from(care: lake::LogCare) -> Self {
        let lake::LogCare { checkpoint, removed, last_error } = care;
        Self { checkpoint, removed, last_error }
    }
}

/// One table's backlog.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Table {
    /// Its name.
    pub table: String,
    /// Generations that still take rows.
    pub open_generations: u64,
    /// Generations on their way into the Delta table.
    pub sealed_generations: u64,
    /// Rows not flushed.
    pub unflushed_rows: u64,
    /// Bytes not flushed.
    pub unflushed_bytes: u64,
    /// Version of the Delta table.
    pub delta_version: Option<u64>,
    /// The last failure to flush, if it is not over.
    pub last_error: Option<String>,
    /// Seconds since the oldest row that is not flushed came in, or was found at the start.
    #[serde(default)]
    pub lag_seconds: Option<f64>,
    /// Sealed generations that wait to be uploaded.
    #[serde(default)]
    pub waiting: u64,
    /// Generations that are being encoded or uploaded.
    #[serde(default)]
    pub uploading: u64,
    /// Generations whose files wait for their commit.
    #[serde(default)]
    pub ready: u64,
    /// Generations whose commit waits to be confirmed.
    #[serde(default)]
    pub landed: u64,
    /// A commit is being made, or the table is being asked what it holds.
    #[serde(default)]
    pub committing: bool,
    /// Seconds that the table still waits after a failure.
    #[serde(default)]
    pub paused_seconds: Option<f64>,
    /// When the last commit of this start was made, microseconds since the epoch.
    #[serde(default)]
    pub committed_at: Option<u64>,
    /// Commits since the start.
    #[serde(default)]
    pub commits: u64,
    /// Attempts to flush that failed since the start.
    #[serde(default)]
    pub failures: u64,
    /// The care of its Delta log.
    #[serde(default)]
    pub log_care: LogCare,
    /// Generations that could not be written and went to the dead letters since the start.
    #[serde(default)]
    pub dead_generations: u64,
    /// Their rows.
    #[serde(default)]
    pub dead_rows: u64,
    /// Posts that producers numbered and never sent, too far back to be taken any more; as far as this start has read.
    #[serde(default)]
    pub sequence_gaps: u64,
}

/// Answer to `POST /v1/checkpoint`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpointed {
    /// One entry for each shard.
    pub shards: Vec<Checkpoint>,
}

/// What a checkpoint of one shard did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The shard.
    pub shard: u32,
    /// A restart reads the log from here on.
    pub checkpoint_lsn: u64,
    /// Bytes of the lane file that was written; 0 if no rows were left to move.
    pub lane_bytes: u64,
    /// Extents in it: runs of rows of one bucket.
    pub extents: u64,
    /// Log segments that can be used again.
    pub segments_freed: u64,
    /// Older lane files that are not needed any more.
    pub files_dropped: u64,
    /// Milliseconds it took.
    pub millis: u64,
}

impl From<CheckpointReport> for Checkpoint {
    fn from(report: CheckpointReport) -> Self {
        Self {
            shard: report.shard,
            checkpoint_lsn: report.checkpoint.0,
            lane_bytes: report.lane_bytes,
            extents: report.extents,
            segments_freed: report.segments_freed,
            files_dropped: report.files_dropped,
            millis: report.micros.div_ceil(1_000),
        }
    }
}

impl From<Report> for Recovery {
    fn from(report: Report) -> Self {
        Self {
            records: report.records,
            log_bytes: report.bytes,
            millis: report.micros / 1_000,
            load_millis: report.load_micros / 1_000,
            replay_millis: report.replay_micros / 1_000,
            spilled_bytes: report.spilled,
        }
    }
}

impl From<ShardStatus> for Shard {
    fn from(status: ShardStatus) -> Self {
        Self {
            shard: status.shard,
            durable_lsn: status.durable_lsn.0,
            checkpoint_lsn: status.checkpoint_lsn.0,
            replay_bytes: status.replay_bytes(),
            retained_bytes: status.retained_bytes,
            checkpoints: status.checkpoints,
            lane_files: status.lane_files,
            lane_bytes: status.lane_bytes,
            lane_live_bytes: status.lane_live_bytes,
            postponed: status.postponed,
            poisoned: status.poisoned,
        }
    }
}

impl Engine {
    /// The figures now.
    pub fn status(&self) -> Status {
        let reason = self.unready();
        let (tables, shards) = (self.table_figures(), self.store.status());
        let usage = self.usage(&tables, &shards);
        Status {
            node: self.store.node().to_string(),
            incarnation: self.store.incarnation().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            ready: reason.is_none(),
            reason,
            lake_url: self.lake.url().to_string(),
            lake_problem: self.lake.problem(),
            process: process(),
            store: self.store_figures(&usage, shards),
            admission: Admission {
                limit_bytes: self.admission.limits().max_unflushed,
                in_flight_bytes: self.admission.in_flight(),
                refusals: self.admission.refusals(),
                delays: self.admission.delays().0,
                replay_limit_bytes: self.admission.limits().replay,
                drain_rate: self.admission.observed().drain_rate,
            },
            flush: self.flush_figures(),
            usage,
            tables,
        }
    }

    fn flush_figures(&self) -> Flush {
        let (load, parallelism, orphans) = (self.flusher.load(), self.flusher.parallelism(), self.flusher.orphans());
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        Flush {
            parallelism,
            active_tables: load.active_tables,
            upload_millis: load.upload.map(millis),
            commit_millis: load.commit.map(millis),
            round_seconds: load.round(parallelism, MAX_AT_LAKE).map(|round| round.as_secs_f64()),
            infeasible: load.infeasible(parallelism, MAX_AT_LAKE, self.layers.lock().config().flush.max_age),
            open_uploads: orphans.open,
            orphans_removed: orphans.removed,
        }
    }

    fn usage(&self, tables: &[Table], shards: &[ShardStatus]) -> Usage {
        let of_logs = |figure: fn(&ShardStatus) -> u64| shards.iter().map(figure).sum::<u64>();
        let (limits, observed) = (self.admission.limits(), self.admission.observed());
        let replay_bytes = of_logs(ShardStatus::replay_bytes);
        let mut usage = Usage {
            decode_bytes: self.admission.in_flight(),
            decode_limit_bytes: limits.max_in_flight,
            encode_bytes: self.flusher.encoding_bytes(),
            encode_limit_bytes: self.layers.lock().config().flush.memory.as_u64(),
            retained_log_bytes: of_logs(|s| s.retained_bytes),
            lane_bytes: of_logs(|s| s.lane_bytes),
            lane_live_bytes: of_logs(|s| s.lane_live_bytes),
            replay_bytes,
            replay_estimate_seconds: self.replay_estimate().as_secs_f64(),
            drain_rate: observed.drain_rate,
            disks: self.disks(),
            ..Usage::default()
        };
        let older = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        let mut namespaces: BTreeMap<&str, NamespaceUsage> = BTreeMap::new();
        for table in tables.iter().filter(|table| table.unflushed_rows > 0) {
            usage.unflushed_bytes += table.unflushed_bytes;
            usage.unflushed_rows += table.unflushed_rows;
            usage.lag_seconds = older(usage.lag_seconds, table.lag_seconds);
            let name = table.table.split_once('.').map_or("", |(namespace, _)| namespace);
            let of = namespaces.entry(name).or_default();
            of.unflushed_bytes += table.unflushed_bytes;
            of.unflushed_rows += table.unflushed_rows;
            of.lag_seconds = older(of.lag_seconds, table.lag_seconds);
        }
        let named = |(name, of): (&str, NamespaceUsage)| NamespaceUsage { namespace: name.to_owned(), ..of };
        usage.namespaces = namespaces.into_iter().map(named).collect();
        usage
    }

    fn disks(&self) -> Vec<Disk> {
        let lanes = self.store.lane_dirs().into_iter().enumerate().map(|(n, dir)| (format!("lane-{n}"), dir));
        let all = std::iter::once(("data".to_owned(), self.config.data_dir.clone())).chain(lanes);
        let disk = |(of, path): (String, std::path::PathBuf)| Disk {
            of,
            free_bytes: self.store.free_bytes(&path),
            path: path.display().to_string(),
        };
        all.map(disk).collect()
    }

    fn store_figures(&self, usage: &Usage, shards: Vec<ShardStatus>) -> Store {
        let sum = |figure: fn(&ShardStatus) -> u64| shards.iter().map(figure).sum();
        Store {
            records: sum(|s| s.records),
            groups: sum(|s| s.groups),
            syncs: sum(|s| s.groups),
            payload_bytes: sum(|s| s.payload_bytes),
            written_bytes: sum(|s| s.written_bytes),
            unflushed_bytes: usage.unflushed_bytes,
            unflushed_rows: usage.unflushed_rows,
            unflushed_memory: self.store.held_bytes(),
            replay_bytes: usage.replay_bytes,
            replay_rate: Some(self.replay_rate.bytes_per_second),
            replay_rate_basis: self.replay_rate.basis,
            replay_estimate_seconds: Some(usage.replay_estimate_seconds),
            recovery: self.store.recovery().into(),
            shards: shards.into_iter().map(Shard::from).collect(),
        }
    }

    fn table_figures(&self) -> Vec<Table> {
        let now = Instant::now();
        let mut figures: BTreeMap<_, Table> = BTreeMap::new();
        for table in self.registry.all() {
            let progress = self.flusher.progress(table.id);
            let lake_table = self.lake_table(&table);
            let delta_version = lake_table.published().max(progress.version);
            let since_epoch = |at: SystemTime| at.duration_since(UNIX_EPOCH).ok()?.as_micros().try_into().ok();
            let left = |until: Instant| until.saturating_duration_since(now);
            let figure = Table {
                table: table.spec.name.to_string(),
                delta_version,
                last_error: progress.last_error,
                waiting: progress.waiting,
                uploading: progress.uploading,
                ready: progress.ready,
                landed: progress.landed,
                committing: progress.committing,
                paused_seconds: progress.paused_until.map(left).filter(|l| !l.is_zero()).map(|l| l.as_secs_f64()),
                committed_at: progress.committed_at.and_then(since_epoch),
                commits: progress.commits,
                failures: progress.failures,
                log_care: lake_table.log_care().into(),
                dead_generations: progress.dead_generations,
                dead_rows: progress.dead_rows,
                sequence_gaps: self.store.producer_gaps(table.id),
                ..Table::default()
            };
            figures.insert(table.id, figure);
        }
        for summary in self.store.summaries() {
            let figure = figures.entry(summary.table).or_default();
            figure.open_generations = summary.open.len() as u64;
            figure.sealed_generations = summary.sealed.len() as u64;
            for generation in summary.open.iter().chain(summary.sealed.iter().map(|s| &s.generation)) {
                let totals = generation.totals();
                figure.unflushed_rows += totals.rows;
                figure.unflushed_bytes += totals.bytes;
                let age = now.saturating_duration_since(generation.opened_at).as_secs_f64();
                figure.lag_seconds = Some(figure.lag_seconds.map_or(age, |older| older.max(age)));
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
