//! A start after a crash: a million open generations, gigabytes unflushed. Each step is a process of its own, so that memory is that
//! of the start alone, and the crash is one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use bytes::Bytes;
use penstock_store::{Options, Store};

use crate::kit::{BUCKETS, fill, number, open, resident, slice, sum};

const FILL: &str = "restart-fill";
const LONG_LOG: &str = "restart-long-log";
const START: &str = "restart-start";

pub fn run() {
    let dir = tempfile::tempdir().expect("should make a directory");
    step(FILL, dir.path());
    // The first one warms the page cache, as a start after a crash of the process finds it.
    for _ in 0..2 {
        step(START, dir.path());
    }
    let dir = tempfile::tempdir().expect("should make a directory");
    println!("a log of small records that no checkpoint shortened:");
    step(LONG_LOG, dir.path());
    step(START, dir.path());
}

fn step(name: &str, dir: &Path) {
    let this = std::env::current_exe().expect("should know itself");
    let child = Command::new(this).arg(name).arg(dir).stdout(Stdio::inherit()).status();
    child.expect("should run");
}

/// One step in a process of its own; false if `step` is none.
pub fn child(step: &str, dir: &Path) -> bool {
    match step {
        FILL => filled(dir),
        LONG_LOG => long_log(dir),
        START => start(dir),
        _ => return false,
    }
    true
}

fn filled(dir: &Path) {
    let pairs = number("PENSTOCK_BENCH_PAIRS", 1_000_000);
    let bytes = number("PENSTOCK_BENCH_GIB", 4) << 30;
    let store = open(dir, &Options::default());
    let payload = Bytes::from(vec![0x5A; 256]);
    fill(&store, pairs, &payload);
    let each = (bytes / pairs / 4).max(256) as usize;
    let payload = Bytes::from(vec![0x5A; each]);
    let mut waiting = std::collections::VecDeque::new();
    // Table after table in each round, so that a generation gets its rows between several checkpoints.
    for n in (0..).map(|n| n % pairs.div_ceil(BUCKETS)) {
        if store.unflushed_bytes() >= bytes {
            break;
        }
        let pairs = n * BUCKETS..(n * BUCKETS + BUCKETS).min(pairs);
        waiting.push_back(store.append(pairs.map(|n| slice(n, &payload)).collect()).expect("should be encodable"));
        while waiting.len() > 16 {
            waiting.pop_front().expect("should have one").wait_blocking().expect("should be durable");
        }
    }
    waiting.into_iter().for_each(|w| {
        w.wait_blocking().expect("should be durable");
    });
    if number("PENSTOCK_BENCH_CHECKPOINT", 0) > 0 {
        store.checkpoint().expect("should checkpoint");
    }
    println!(
        "{} pairs, {} MiB unflushed, {} MiB of log behind the checkpoint, {} lane files; now the process dies",
        pairs,
        store.unflushed_bytes() >> 20,
        sum(&store, penstock_store::ShardStatus::replay_bytes) >> 20,
        sum(&store, |s| s.lane_files)
    );
    std::process::abort();
}

fn long_log(dir: &Path) {
    let options = Options { checkpoint_interval: None, checkpoint_bytes: u64::MAX / 4, ..Options::default() };
    let store = open(dir, &options);
    let payload = Bytes::from(vec![0x5A; 256]);
    fill(&store, 10_000, &payload);
    let mut waiting = std::collections::VecDeque::new();
    for n in 0..2_000_000_u64 {
        let pending = store.append(vec![slice(n.wrapping_mul(7919) % 10_000, &payload)]).expect("should be encodable");
        waiting.push_back(pending);
        while waiting.len() > 4096 {
            waiting.pop_front().expect("should have one").wait_blocking().expect("should be durable");
        }
    }
    waiting.into_iter().for_each(|w| {
        w.wait_blocking().expect("should be durable");
    });
    std::process::abort();
}

fn start(dir: &Path) {
    let before = resident();
    let began = Instant::now();
    let options = Options { checkpoint_interval: None, checkpoint_bytes: u64::MAX / 4, ..Options::default() };
    let store: Store = open(dir, &options);
    let took = began.elapsed();
    let memory = resident() - before;
    let report = store.recovery();
    let (mut generations, mut extents, mut slices) = (0_u64, 0_u64, 0_u64);
    for summary in store.summaries() {
        for generation in &summary.open {
            let (moved, in_memory) = generation.places();
            generations += 1;
            extents += moved as u64;
            slices += in_memory as u64;
        }
    }
    let replayed = report.bytes as f64 / (report.replay_micros.max(1)) as f64;
    let records = report.records as f64 / (report.replay_micros.max(1)) as f64;
    println!(
        "ready after {:.2} s: manifests and indexes {:.2} s, {} MiB of log {:.2} s ({replayed:.0} MB/s, {records:.2} million records/s)",
        took.as_secs_f64(),
        report.load_micros as f64 / 1e6,
        report.bytes >> 20,
        report.replay_micros as f64 / 1e6,
    );
    let allowed = 256 * generations + 32 * extents;
    println!(
        "{generations} generations, {extents} extents, {slices} slices in memory: {} MiB resident; {} MiB allowed for the first two, \
         and the replay's budget of {} MiB",
        memory >> 20,
        allowed >> 20,
        options.replay_bytes >> 20,
    );
    // Not closed: the next start finds what this one found.
    std::process::abort();
}
