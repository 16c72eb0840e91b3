//! 256 callers, 256 bytes, checkpoints running as they do by default: ten thousand open pairs against a million. Once with a thread a caller, once with a
//! task a caller, where the processors do little else than append.

use std::sync::Arc;

use bytes::Bytes;
use penstock_store::{Options, Store};

use crate::kit::{Callers, bookkeeping, closed_loop, fill, longest, measured, number, open, sum};

const FEW: u64 = 10_000;

pub fn run() {
    let many = number("PENSTOCK_BENCH_PAIRS", 1_000_000);
    let payload = Bytes::from(vec![0x5A; 256]);
    let stores = [FEW, many].map(|pairs| {
        let dir = tempfile::tempdir().expect("should make a directory");
        let store = Arc::new(open(dir.path(), &Options::default()));
        fill(&store, pairs, &payload);
        store.checkpoint().expect("should checkpoint");
        (dir, store, pairs)
    });
    for kind in [Callers::Threads, Callers::Tasks] {
        compare(kind, &stores, &payload);
    }
}

fn compare(kind: Callers, stores: &[(tempfile::TempDir, Arc<Store>, u64); 2], payload: &Bytes) {
    let mut rates = [0.0_f64; 2];
    for round in 0..3 {
        for (i, (_, store, pairs)) in stores.iter().enumerate() {
            let (before, bookkept) = (owner_micros(store), bookkeeping(store));
            let groups = sum(store, |s| s.groups);
            let checkpoints = sum(store, |s| s.checkpoints);
            let rate = closed_loop(kind, store, 256, *pairs, payload, measured());
            let after = owner_micros(store);
            let owners = measured().as_micros() as f64 * store.status().len() as f64;
            let share = |n: usize| 100.0 * (after[n] - before[n]) as f64 / owners;
            println!(
                "{kind:?}, {pairs:>8} pairs, round {round}: {rate:>7.0} acks/s; of the owners' time {:.0} % sync, {:.0} % copy, {:.0} % bookkeeping; \
                 {:.0} acks a group; {} checkpoints; longest bookkeeping {}",
                share(0),
                share(1),
                share(2),
                rate * measured().as_secs_f64() / (sum(store, |s| s.groups) - groups) as f64,
                sum(store, |s| s.checkpoints) - checkpoints,
                longest(store, &bookkept),
            );
            rates[i] = rates[i].max(rate);
        }
    }
    println!("{kind:?}: best of {} pairs / best of {FEW}: {:.2} (wanted: 0.9)", stores[1].2, rates[1] / rates[0]);
}

/// What the owners spent on syncs, on write calls, on staging, applying and answering.
fn owner_micros(store: &Store) -> [u64; 3] {
    [sum(store, |s| s.syncs.sum), sum(store, |s| s.write_micros), sum(store, |s| s.bookkeeping.sum)]
}
