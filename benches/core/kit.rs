//! What the sections share: stores full of open generations, and callers.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_store::fs::RealFileSystem;
use penstock_store::{Bucket, Define, Distribution, Options, ShardStatus, SliceInput, Store, TableId};
use rand::Rng;
use uuid::Uuid;

/// Buckets that each table has open.
pub const BUCKETS: u64 = 100;

const HOUR: i64 = 3_600_000_000;

/// A number from the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// How long one measurement takes.
pub fn measured() -> Duration {
    Duration::from_secs(number("PENSTOCK_BENCH_SECONDS", 6))
}

/// Table number `n`; the ids are spread like random ones (splitmix64).
pub fn table(n: u64) -> TableId {
    let mix = |x: u64| {
        let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    };
    let seed = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    TableId(Uuid::from_u128(u128::from(mix(seed)) << 64 | u128::from(mix(!seed))))
}

/// One row for pair number `n`, in memory of its own as every post's is.
pub fn slice(n: u64, payload: &Bytes) -> SliceInput {
    let bucket = Bucket { start: (n % BUCKETS) as i64 * HOUR, width: HOUR };
    SliceInput {
        table: table(n / BUCKETS),
        schema_version: 1,
        encoding: 1,
        bucket,
        rows: 1,
        min_time: bucket.start,
        max_time: bucket.start,
        payload: Bytes::copy_from_slice(payload),
    }
}

/// A store in `dir`.
pub fn open(dir: &Path, options: &Options) -> Store {
    Store::open(Arc::new(RealFileSystem), &dir.join("data"), options).expect("should open")
}

/// Defines the tables of `pairs` (table, bucket) pairs, and opens a generation of each with one payload.
pub fn fill(store: &Store, pairs: u64, payload: &Bytes) {
    let tables = pairs.div_ceil(BUCKETS);
    let mut waiting = std::collections::VecDeque::new();
    for n in 0..tables {
        let define = Define { table: table(n), schema_version: 1, body: Bytes::from_static(b"{}") };
        waiting.push_back(store.define(define).expect("should be short"));
        let slices = (n * BUCKETS..(n * BUCKETS + BUCKETS).min(pairs)).map(|n| slice(n, payload)).collect();
        waiting.push_back(store.append(slices).expect("should be encodable"));
        while waiting.len() > 64 {
            waiting.pop_front().expect("should have one").wait_blocking().expect("should be durable");
        }
    }
    waiting.into_iter().for_each(|w| {
        w.wait_blocking().expect("should be durable");
    });
}

/// What a caller is.
#[derive(Debug, Clone, Copy)]
pub enum Callers {
    /// A thread each: the kernel switches between them, as between the connections of a blocking server.
    Threads,
    /// A task each, on two threads.
    Tasks,
}

/// Callers that each append, wait for the ack, and append again, to random pairs; answers acks a second.
pub fn closed_loop(
    kind: Callers,
    store: &Arc<Store>,
    callers: usize,
    pairs: u64,
    payload: &Bytes,
    time: Duration,
) -> f64 {
    match kind {
        Callers::Threads => of_threads(callers, time, || {
            let n = rand::rng().random_range(0..pairs);
            let pending = store.append(vec![slice(n, payload)]).expect("should be encodable");
            pending.wait_blocking().expect("should be durable");
        }),
        Callers::Tasks => of_tasks(store, callers, pairs, payload, time),
    }
}

/// So many threads that each make a call after the other; answers calls a second.
pub fn of_threads(callers: usize, time: Duration, call: impl Fn() + Sync) -> f64 {
    let started = Instant::now();
    let calls = std::thread::scope(|scope| {
        let of_one = || {
            let mut calls = 0_u64;
            while started.elapsed() < time {
                call();
                calls += 1;
            }
            calls
        };
        let threads: Vec<_> = (0..callers).map(|_| scope.spawn(of_one)).collect();
        threads.into_iter().map(|t| t.join().expect("should not panic")).sum::<u64>()
    });
    calls as f64 / started.elapsed().as_secs_f64()
}

fn of_tasks(store: &Arc<Store>, callers: usize, pairs: u64, payload: &Bytes, time: Duration) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("should start");
    let started = Instant::now();
    let acks: u64 = runtime.block_on(async {
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let (store, payload) = (Arc::clone(store), payload.clone());
                tokio::spawn(async move {
                    let mut acks = 0_u64;
                    while started.elapsed() < time {
                        let n = rand::rng().random_range(0..pairs);
                        let pending = store.append(vec![slice(n, &payload)]).expect("should be encodable");
                        pending.wait().await.expect("should be durable");
                        acks += 1;
                    }
                    acks
                })
            })
            .collect();
        let mut acks = 0;
        for task in tasks {
            acks += task.await.expect("should not panic");
        }
        acks
    });
    acks as f64 / started.elapsed().as_secs_f64()
}

/// Sum of a figure over the shards.
pub fn sum(store: &Store, figure: fn(&ShardStatus) -> u64) -> u64 {
    store.status().iter().map(figure).sum()
}

/// What each shard's owner did so far beside writing and syncing.
pub fn bookkeeping(store: &Store) -> Vec<Distribution> {
    store.status().into_iter().map(|s| s.bookkeeping).collect()
}

/// The longest piece of that since then, as text.
pub fn longest(store: &Store, since: &[Distribution]) -> String {
    let pieces = bookkeeping(store).into_iter().zip(since).map(|(now, then)| now.since(then).largest_within());
    match pieces.map(|longest| longest.unwrap_or(u64::MAX)).max() {
        Some(u64::MAX) => "over 500000 us".to_owned(),
        longest => format!("within {} us", longest.unwrap_or(0)),
    }
}

/// Resident bytes of this process.
pub fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("should be Linux");
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("should have a number");
    pages * 4096
}
