//! The log's hot path: encoding a record, and making it durable.
//!
//! `group_commit` appends from some concurrent callers to a store on the real file system, in the temporary directory (`TMPDIR`
//! chooses another device); `bare_loop` does the same callers' work with nothing but a queue, one vectored write and `fdatasync`:
//! what the device and the kernel alone would allow. The two are only comparable within one run. Criterion's throughput is appends
//! a second.

use std::hint::black_box;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use penstock_store::fs::{FileSystem, RealFileSystem};
use penstock_store::wal::frame;
use penstock_store::wal::record::Record;
use penstock_store::{Bucket, Define, Options, SliceInput, Store, TableId};
use uuid::Uuid;

const TABLE: TableId = TableId(Uuid::from_u128(1));
const PAYLOAD_BYTES: usize = 256;
const CALLERS: [usize; 3] = [1, 16, 256];
const FILE_BYTES: u64 = 32 << 20;
const ALIGN: u64 = 4096;

fn slices(payload: &Bytes) -> Vec<SliceInput> {
    let bucket = Bucket { start: 0, width: 3_600_000_000 };
    let payload = payload.clone();
    vec![SliceInput {
        table: TABLE,
        schema_version: 1,
        encoding: 1,
        bucket,
        rows: 1,
        min_time: 0,
        max_time: 0,
        payload,
    }]
}

fn encoding(c: &mut Criterion) {
    let mut group = c.benchmark_group("encode");
    for len in [256, 4096, 64 << 10, 1 << 20] {
        let payload = Bytes::from(vec![0x5A; len]);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_with_input(BenchmarkId::new("record", len), &payload, |b, payload| {
            b.iter_batched(
                || Record::Slices(slices(payload).into()),
                |record| {
                    let mut encoded = record.encode().expect("should be encodable");
                    encoded.seal(penstock_store::Lsn(64), 7);
                    black_box(encoded)
                },
                criterion::BatchSize::SmallInput,
            );
        });
        group.bench_with_input(BenchmarkId::new("checksum", len), &payload, |b, payload| {
            b.iter(|| frame::body_crc([black_box(&payload[..])]));
        });
    }
    group.finish();
}

/// Lets `callers` threads make `total` calls between them, each waiting for its answer before the next.
fn closed_loop(callers: usize, total: u64, call: impl Fn() + Sync) -> Duration {
    let each = total.div_ceil(callers as u64);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| (0..each).for_each(|_| call()));
        }
    });
    // Rounded up above; the time is for what was asked.
    started.elapsed().mul_f64(total as f64 / (each * callers as u64) as f64)
}

fn group_commit(c: &mut Criterion) {
    let payload = Bytes::from(vec![0x5A; PAYLOAD_BYTES]);
    let mut group = c.benchmark_group("durable_append");
    group.sample_size(10).measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500));
    group.throughput(Throughput::Elements(1));
    for callers in CALLERS {
        let dir = tempfile::tempdir().expect("should make a directory");
        let store = open(dir.path());
        group.bench_function(BenchmarkId::new("group_commit", callers), |b| {
            b.iter_custom(|total| {
                closed_loop(callers, total, || {
                    let pending = store.append(slices(&payload)).expect("should queue");
                    pending.wait_blocking().expect("should be durable");
                })
            });
        });
        drop(store);
        let bare = Bare::start(dir.path());
        group.bench_function(BenchmarkId::new("bare_loop", callers), |b| {
            b.iter_custom(|total| {
                closed_loop(callers, total, || {
                    let (done, answer) = channel();
                    bare.queue.send((payload.clone(), done)).expect("should be running");
                    answer.recv().expect("should be answered");
                })
            });
        });
    }
    group.finish();
}

fn open(dir: &Path) -> Store {
    let options = Options { shards: 1, ..Options::default() };
    let store = Store::open(Arc::new(RealFileSystem), &dir.join("data"), &options).expect("should open");
    let define = Define { table: TABLE, schema_version: 1, body: Bytes::new() };
    store.define(define).expect("should queue").wait_blocking().expect("should be durable");
    store
}

/// A queue, and a thread that writes what has queued into a file that was written once, and syncs. It goes round in the file.
struct Bare {
    queue: Sender<(Bytes, Sender<()>)>,
}

impl Bare {
    fn start(dir: &Path) -> Self {
        let file = RealFileSystem.create(&dir.join("bare")).expect("should be made");
        file.write_all_at(&vec![0; FILE_BYTES as usize], 0).expect("should be written");
        file.sync_data().expect("should sync");
        let (queue, requests): (_, Receiver<(Bytes, Sender<()>)>) = channel();
        std::thread::spawn(move || {
            let mut at = 0;
            while let Ok(first) = requests.recv() {
                let group: Vec<_> = std::iter::once(first).chain(requests.try_iter()).collect();
                let parts: Vec<_> = group.iter().map(|(payload, _)| IoSlice::new(payload)).collect();
                let len = group.iter().map(|(payload, _)| payload.len() as u64).sum::<u64>().next_multiple_of(ALIGN);
                at = if at + len > FILE_BYTES { 0 } else { at };
                file.write_vectored_at(&parts, at).expect("should be written");
                file.sync_data().expect("should sync");
                at += len;
                for (_, done) in group {
                    done.send(()).expect("should be waited for");
                }
            }
        });
        Self { queue }
    }
}

criterion_group!(benches, encoding, group_commit);
criterion_main!(benches);
