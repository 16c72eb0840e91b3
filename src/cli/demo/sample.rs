//! What `/proc` says now. Counters become rates by comparison with the sample before.

use std::collections::HashMap;
use std::time::Instant;

use procfs::process::{Process, all_processes};
use procfs::{Current, Meminfo, ProcResult};

use super::telemetry::{DiskRow, MemoryRow, NetworkRow, Post, ProcessRow, Source};
use crate::cli::show;

/// Most processes in a sample.
const MAX_PROCESSES: usize = 4_096;
/// `/proc/diskstats` counts in sectors of this size, whatever the device's own are.
const SECTOR_BYTES: u64 = 512;

/// A process over its life; the kernel gives ids away again.
type ProcessKey = (i32, u64);

/// Takes samples.
#[derive(Debug)]
pub struct Sampler {
    host: String,
    ticks_per_second: f64,
    page_bytes: u64,
    before: Option<Counters>,
}

/// What the next sample is compared with.
#[derive(Debug, Default)]
struct Counters {
    at: Option<Instant>,
    cpu_ticks: HashMap<ProcessKey, u64>,
    disk_busy_ms: HashMap<String, u64>,
}

/// What the machine was doing at one moment.
#[derive(Debug, Default)]
pub struct Sample {
    pub processes: Vec<ProcessRow>,
    pub memory: Vec<MemoryRow>,
    pub disks: Vec<DiskRow>,
    pub network: Vec<NetworkRow>,
}

impl Sampler {
    /// Knows the machine, has not sampled yet.
    pub fn new() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "localhost".to_owned() } else { show::plain(host.trim()) };
        Self {
            host,
            ticks_per_second: procfs::ticks_per_second() as f64,
            page_bytes: procfs::page_size(),
            before: None,
        }
    }

    /// Samples everything; `ts` is the time the rows carry. Disks and network may be missing in a container: then
    /// there are no rows for them.
    pub fn sample(&mut self, ts: i64) -> ProcResult<Sample> {
        let before = self.before.take().unwrap_or_default();
        let mut now = Counters { at: Some(Instant::now()), ..Counters::default() };
        let seconds = before.at.map(|at| at.elapsed().as_secs_f64()).filter(|s| *s > 0.0);
        let sample = Sample {
            processes: self.processes(ts, seconds, &before, &mut now)?,
            memory: vec![self.memory(ts, &Meminfo::current()?)],
            disks: self.disks(ts, seconds, &before, &mut now),
            network: self.network(ts),
        };
        self.before = Some(now);
        Ok(sample)
    }

    fn processes(
        &self,
        ts: i64,
        seconds: Option<f64>,
        before: &Counters,
        now: &mut Counters,
    ) -> ProcResult<Vec<ProcessRow>> {
        let mut rows = Vec::new();
        // A process that ends while it is looked at is left out.
        for process in all_processes()?.flatten().take(MAX_PROCESSES) {
            if let Ok(row) = self.process(ts, seconds, &process, before, now) {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn process(
        &self,
        ts: i64,
        seconds: Option<f64>,
        process: &Process,
        before: &Counters,
        now: &mut Counters,
    ) -> ProcResult<ProcessRow> {
        let stat = process.stat()?;
        let io = process.io().ok();
        let key = (stat.pid, stat.starttime);
        let ticks = stat.utime + stat.stime;
        now.cpu_ticks.insert(key, ticks);
        let used = before.cpu_ticks.get(&key).map(|earlier| ticks.saturating_sub(*earlier) as f64);
        let cpu_percent = used.zip(seconds).map(|(ticks, seconds)| 100.0 * ticks / self.ticks_per_second / seconds);
        Ok(ProcessRow {
            ts,
            host: self.host.clone(),
            pid: stat.pid,
            name: show::plain(&stat.comm),
            state: stat.state.to_string(),
            cpu_percent: cpu_percent.map(hundredths),
            rss_bytes: stat.rss * self.page_bytes,
            threads: stat.num_threads,
            read_bytes: io.as_ref().map(|io| io.read_bytes),
            write_bytes: io.as_ref().map(|io| io.write_bytes),
        })
    }

    fn memory(&self, ts: i64, info: &Meminfo) -> MemoryRow {
        MemoryRow {
            ts,
            host: self.host.clone(),
            total_bytes: info.mem_total,
            available_bytes: info.mem_available,
            free_bytes: info.mem_free,
            cached_bytes: info.cached,
            dirty_bytes: info.dirty,
            swap_used_bytes: info.swap_total.saturating_sub(info.swap_free),
        }
    }

    fn disks(&self, ts: i64, seconds: Option<f64>, before: &Counters, now: &mut Counters) -> Vec<DiskRow> {
        let mut rows = Vec::new();
        for disk in procfs::diskstats().unwrap_or_default() {
            if disk.reads == 0 && disk.writes == 0 {
                continue;
            }
            let earlier = before.disk_busy_ms.get(&disk.name);
            let busy = earlier.map(|ms| disk.time_in_progress.saturating_sub(*ms) as f64 / 1_000.0);
            now.disk_busy_ms.insert(disk.name.clone(), disk.time_in_progress);
            rows.push(DiskRow {
                ts,
                host: self.host.clone(),
                device: disk.name,
                read_bytes: disk.sectors_read.saturating_mul(SECTOR_BYTES),
                write_bytes: disk.sectors_written.saturating_mul(SECTOR_BYTES),
                busy_percent: busy.zip(seconds).map(|(busy, seconds)| hundredths((100.0 * busy / seconds).min(100.0))),
            });
        }
        rows
    }

    fn network(&self, ts: i64) -> Vec<NetworkRow> {
        let interfaces = procfs::net::dev_status().unwrap_or_default();
        interfaces
            .into_values()
            .map(|interface| NetworkRow {
                ts,
                host: self.host.clone(),
                interface: interface.name.trim_end_matches(':').to_owned(),
                received_bytes: interface.recv_bytes,
                sent_bytes: interface.sent_bytes,
                errors: interface.recv_errs + interface.sent_errs,
                dropped: interface.recv_drop + interface.sent_drop,
            })
            .collect()
    }
}

impl Sample {
    /// The sample as posts: the processes in `parts` parts, so that several senders have something to do.
    pub fn posts(&self, parts: usize) -> Vec<Post> {
        let part = self.processes.len().div_ceil(parts.max(1)).max(1);
        let mut posts: Vec<Post> = self.processes.chunks(part).map(|rows| Post::new(Source::Processes, rows)).collect();
        posts.push(Post::new(Source::Memory, &self.memory));
        posts.push(Post::new(Source::Disks, &self.disks));
        posts.push(Post::new(Source::Network, &self.network));
        posts.retain(|post| post.rows > 0);
        posts
    }
}

/// The kernel counts in hundredths of a second: more digits would be noise.
fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
