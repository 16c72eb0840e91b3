//! What admission costs a post: everything between the request's head and its ack that is asked and counted.
//!
//! `cargo bench --bench admission`. To be held against the CPU time of a post, which `penstock bench append` tells.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use penstock::admission::{Admission, Backlog, Observed, Options, POST_OVERHEAD};
use penstock_store::{TableId, TableUsage};
use uuid::Uuid;

const TABLES: u128 = 1_000;

/// A node with some load, whose tables are known.
fn node() -> Arc<Admission> {
    let admission = Admission::new(Options::default().limits(1 << 30, Duration::ZERO));
    for number in 0..TABLES {
        let usage = Arc::new(TableUsage::default());
        usage.set(1_000, 100_000, 120_000);
        drop(admission.share(TableId(Uuid::from_u128(number)), "bench", || Some(usage)));
    }
    admission.observe(Observed { replay: 1 << 20, drain_rate: 50 << 20 });
    admission
}

/// As the server does it for a body of one piece.
fn post(admission: &Arc<Admission>, table: u128) {
    let backlog = Backlog { unflushed: 200 << 20, replay: 1 << 20 };
    let share = admission.share(TableId(Uuid::from_u128(table)), "bench", || None);
    let (mut lease, delay) = admission.lease(share, 0, backlog).expect("should have room");
    black_box(delay);
    lease.work(POST_OVERHEAD).expect("should have room");
    lease.would_grow_to(20_000, backlog).expect("should have room");
    lease.grow_to(20_000, backlog).expect("should have room");
    lease.work(80_000).expect("should have room");
    lease.work(90_000).expect("should have room");
    lease.grow_to(21_000, backlog).expect("should have room");
    lease.work(POST_OVERHEAD).expect("should have room");
    drop(black_box(lease));
}

fn admission(criterion: &mut Criterion) {
    let node = node();
    let mut table = 0;
    criterion.bench_function("a post", |bencher| {
        bencher.iter(|| {
            table = (table + 1) % TABLES;
            post(&node, table);
        });
    });
    // Others at the same counters meanwhile.
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let other = {
        let (node, stop) = (Arc::clone(&node), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                post(&node, 7);
            }
        })
    };
    criterion.bench_function("a post, another thread at it too", |bencher| {
        bencher.iter(|| {
            table = (table + 1) % TABLES;
            post(&node, table);
        });
    });
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    other.join().expect("should not panic");
}

criterion_group!(benches, admission);
criterion_main!(benches);
