//! Bytes passed to write calls for one byte of payload: log, lane files and manifests, without the zeros that new segments are made of.

use std::sync::Arc;

use bytes::Bytes;
use penstock_store::{Commit, Options, Store};

use crate::kit::{Callers, closed_loop, fill, measured, open, sum};

const PAIRS: u64 = 1_000;

pub fn run() {
    let payload = Bytes::from(vec![0x5A; 1024]);
    for callers in [64, 256] {
        let mut ratios = [0.0; 2];
        for (i, ratio) in ratios.iter_mut().enumerate() {
            let dir = tempfile::tempdir().expect("should make a directory");
            let options = Options { checkpoint_interval: None, checkpoint_bytes: u64::MAX / 4, ..Options::default() };
            let store = Arc::new(open(dir.path(), &options));
            fill(&store, PAIRS, &payload);
            store.checkpoint().expect("should checkpoint");
            let written = |store: &Store| (sum(store, |s| s.written_bytes), sum(store, |s| s.payload_bytes));
            let before = written(&store);
            closed_loop(Callers::Threads, &store, callers, PAIRS, &payload, measured() / 2);
            if i == 0 {
                flush(&store);
            }
            store.checkpoint().expect("should checkpoint");
            let after = written(&store);
            *ratio = (after.0 - before.0) as f64 / (after.1 - before.1) as f64;
        }
        println!(
            "{callers} callers of 1 KiB: {:.2} when flushed before the checkpoint (wanted: at most 1.3), {:.2} when checkpointed (2.4)",
            ratios[0], ratios[1]
        );
    }
}

/// Seals and commits everything, as if it were in Delta.
fn flush(store: &Store) {
    for summary in store.summaries() {
        let mut last = None;
        for open in &summary.open {
            let sealed =
                store.seal(open.table, open.bucket, open.first_lsn).wait_blocking().expect("should be durable");
            last = sealed.or(last);
        }
        if let Some(last) = last {
            let (incarnation, sequence) = (last.seal.incarnation, last.seal.sequence);
            let commit = Commit { table: summary.table, incarnation, sequence, version: 1 };
            store.commit(commit).wait_blocking().expect("should be durable");
        }
    }
}
