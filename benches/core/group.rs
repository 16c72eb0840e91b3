//! Group commit against a bare loop, and with a sync that takes 5 ms.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_store::fs::{FileSystem, RealFileSystem};
use penstock_store::{Options, Store};
use tokio::sync::oneshot;

use crate::kit::{Callers, closed_loop, fill, measured, of_threads, open, sum};
use crate::slow::SlowSync;

const CALLERS: usize = 256;
const PAIRS: u64 = 1_000;
const FILE_BYTES: u64 = 32 << 20;
const ALIGN: u64 = 4096;

pub fn run() {
    let payload = Bytes::from(vec![0x5A; 256]);
    let dir = tempfile::tempdir().expect("should make a directory");
    let store = Arc::new(open(dir.path(), &Options::default()));
    fill(&store, PAIRS, &payload);
    for kind in [Callers::Threads, Callers::Tasks] {
        let (mut ours, mut bare) = (0.0_f64, 0.0_f64);
        for _ in 0..3 {
            ours = ours.max(closed_loop(kind, &store, CALLERS, PAIRS, &payload, measured()));
            bare = bare.max(bare_loop(kind, dir.path(), store.status().len(), &payload));
        }
        println!("{CALLERS} {kind:?}: {ours:.0} acks/s, a bare loop {bare:.0}: {:.2} (wanted: 0.7)", ours / bare);
    }
    let slow = tempfile::tempdir().expect("should make a directory");
    let delay = Duration::from_millis(5);
    let slow_fs = Arc::new(SlowSync(delay));
    let store = Store::open(slow_fs, &slow.path().join("data"), &Options::default()).expect("should open");
    let store = Arc::new(store);
    fill(&store, PAIRS, &payload);
    let (groups, records) = (sum(&store, |s| s.groups), sum(&store, |s| s.records));
    closed_loop(Callers::Tasks, &store, CALLERS, PAIRS, &payload, measured());
    let shared = (sum(&store, |s| s.records) - records) as f64 / (sum(&store, |s| s.groups) - groups) as f64;
    let callers = CALLERS as f64 / store.status().len() as f64;
    println!(
        "with a sync of 5 ms: {shared:.0} acks share one of {callers:.0} callers a shard: {:.2} (wanted: 0.45)",
        shared / callers
    );
}

type Request = (Bytes, oneshot::Sender<()>);

/// As many queues and threads as the store has shards, each with one vectored write and one fdatasync for what has queued, and the
/// same callers: what the device and the kernel allow. Goes round in files that were written once.
fn bare_loop(kind: Callers, dir: &Path, shards: usize, payload: &Bytes) -> f64 {
    let queues: Vec<std::sync::mpsc::Sender<Request>> = (0..shards)
        .map(|n| {
            let path = dir.join(format!("bare-{n}"));
            let file = RealFileSystem
                .create(&path)
                .or_else(|_| RealFileSystem.open(&path, penstock_store::fs::OpenMode::ReadWrite));
            let file = file.expect("should be made");
            file.write_all_at(&vec![0; FILE_BYTES as usize], 0).expect("should be written");
            file.sync_data().expect("should sync");
            let (queue, requests) = std::sync::mpsc::channel::<Request>();
            std::thread::spawn(move || {
                let mut at = 0;
                while let Ok(first) = requests.recv() {
                    let group: Vec<_> = std::iter::once(first).chain(requests.try_iter()).collect();
                    let parts: Vec<_> = group.iter().map(|(payload, _)| IoSlice::new(payload)).collect();
                    let len = group.iter().map(|(p, _)| p.len() as u64).sum::<u64>().next_multiple_of(ALIGN);
                    at = if at + len > FILE_BYTES { 0 } else { at };
                    file.write_vectored_at(&parts, at).expect("should be written");
                    file.sync_data().expect("should sync");
                    at += len;
                    for (_, done) in group {
                        done.send(()).expect("should be waited for");
                    }
                }
            });
            queue
        })
        .collect();
    if matches!(kind, Callers::Threads) {
        let turn = AtomicUsize::new(0);
        return of_threads(CALLERS, measured(), || {
            let (done, answer) = oneshot::channel();
            let queue = &queues[turn.fetch_add(1, Ordering::Relaxed) % shards];
            queue.send((payload.clone(), done)).expect("should be running");
            answer.blocking_recv().expect("should be answered");
        });
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("should start");
    let (started, time) = (Instant::now(), measured());
    let acks: u64 = runtime.block_on(async {
        let tasks: Vec<_> = (0..CALLERS)
            .map(|n| {
                let (queue, payload) = (queues[n % shards].clone(), payload.clone());
                tokio::spawn(async move {
                    let mut acks = 0_u64;
                    while started.elapsed() < time {
                        let (done, answer) = oneshot::channel();
                        queue.send((payload.clone(), done)).expect("should be running");
                        answer.await.expect("should be answered");
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
