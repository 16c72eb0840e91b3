//! An open loop at half of the peak rate: what checkpoints do to the latency of an ack.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_store::{Options, Store};
use rand::Rng;

use crate::kit::{Callers, closed_loop, fill, measured, open, slice, sum};

const PAIRS: u64 = 100_000;
const TICK: Duration = Duration::from_millis(1);
/// Latencies in microseconds; longer ones share the last place.
const LONGEST: usize = 2_000_000;

pub fn run() {
    let payload = Bytes::from(vec![0x5A; 256]);
    let dirs = [0, 1].map(|_| tempfile::tempdir().expect("should make a directory"));
    let without = Options { checkpoint_interval: None, checkpoint_bytes: u64::MAX / 4, ..Options::default() };
    let with = Options { checkpoint_interval: Some(Duration::from_secs(2)), ..Options::default() };
    let stores = [(&dirs[0], &without), (&dirs[1], &with)].map(|(dir, options)| {
        let store = Arc::new(open(dir.path(), options));
        fill(&store, PAIRS, &payload);
        store.checkpoint().expect("should checkpoint");
        store
    });
    let peak = closed_loop(Callers::Tasks, &stores[0], 256, PAIRS, &payload, measured());
    println!("peak {peak:.0} acks/s in a closed loop of 256; open loop at half of it");
    let mut quantiles = [[f64::MAX; 2]; 2];
    for _ in 0..3 {
        for (i, store) in stores.iter().enumerate() {
            let checkpoints = sum(store, |s| s.checkpoints);
            let latencies = open_loop(store, peak / 2.0, PAIRS, &payload);
            let at = |q: f64| quantile(&latencies, q);
            println!(
                "{}: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms; {} checkpoints",
                ["without checkpoints", "with checkpoints   "][i],
                at(0.5),
                at(0.99),
                at(0.999),
                at(1.0),
                sum(store, |s| s.checkpoints) - checkpoints,
            );
            quantiles[i] = [quantiles[i][0].min(at(0.99)), quantiles[i][1].min(at(0.999))];
        }
    }
    let ratio = |q: usize| quantiles[1][q] / quantiles[0][q];
    println!("with / without: p99 {:.2} (wanted: at most 1.5), p99.9 {:.2} (at most 3)", ratio(0), ratio(1));
}

/// Appends that begin at fixed times whether or not earlier ones are done, to random ones of so many pairs; counts of latencies from
/// when each was due.
pub fn open_loop(store: &Arc<Store>, rate: f64, pairs: u64, payload: &Bytes) -> Vec<u64> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("should start");
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..=LONGEST).map(|_| AtomicU64::new(0)).collect());
    let each = (rate * TICK.as_secs_f64()).round().max(1.0) as u64;
    let ticks = (measured().as_secs_f64() / TICK.as_secs_f64()) as u32;
    let started = Instant::now();
    for tick in 0..ticks {
        let due = started + TICK * tick;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        for _ in 0..each {
            let n = rand::rng().random_range(0..pairs);
            let pending = store.append(vec![slice(n, payload)]).expect("should be encodable");
            let counts = Arc::clone(&counts);
            runtime.spawn(async move {
                pending.wait().await.expect("should be durable");
                let micros = due.elapsed().as_micros() as usize;
                counts[micros.min(LONGEST)].fetch_add(1, Ordering::Relaxed);
            });
        }
    }
    let total = u64::from(ticks) * each;
    let deadline = Instant::now() + Duration::from_secs(60);
    let answered = || counts.iter().map(|c| c.load(Ordering::Relaxed)).sum::<u64>();
    while answered() < total {
        assert!(Instant::now() < deadline, "not everything was answered");
        std::thread::sleep(Duration::from_millis(20));
    }
    counts.iter().map(|c| c.load(Ordering::Relaxed)).collect()
}

/// Milliseconds.
pub fn quantile(counts: &[u64], q: f64) -> f64 {
    let total: u64 = counts.iter().sum();
    let rank = ((total as f64 * q).ceil() as u64).max(1);
    let mut seen = 0;
    let at = counts.iter().position(|count| {
        seen += count;
        seen >= rank
    });
    at.unwrap_or(0) as f64 / 1000.0
}
