//! Whether the owner is ever kept from its log for longer the more tables there are: an open loop far below the peak, so that what is
//! measured is the work and not the wait for a processor, with a checkpoint every second and the summaries that flush asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_store::{Options, Store};

use crate::kit::{BUCKETS, bookkeeping, fill, number, open, sum};
use crate::pace::{open_loop, quantile};

const RATE: f64 = 10_000.0;
const FEW: u64 = 10_000;
/// The promised bound, microseconds.
const STALL: u64 = 5_000;
/// How often summaries are asked for at most, and the time between two askings in times that one takes: as flush does it.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_SHARE: u32 = 20;

pub fn run() {
    let many = number("PENSTOCK_BENCH_PAIRS", 1_000_000);
    let payload = Bytes::from(vec![0x5A; 256]);
    let options = Options { checkpoint_interval: Some(Duration::from_secs(1)), ..Options::default() };
    for pairs in [FEW, many, FEW, many] {
        let dir = tempfile::tempdir().expect("should make a directory");
        let store = Arc::new(open(dir.path(), &options));
        fill(&store, pairs, &payload);
        store.checkpoint().expect("should checkpoint");
        // What filling the store left to be cleared away is not what is asked about.
        looked_at(&store, || open_loop(&store, RATE, pairs, &payload));
        let (before, checkpoints) = (bookkeeping(&store), sum(&store, |s| s.checkpoints));
        let latencies = looked_at(&store, || open_loop(&store, RATE, pairs, &payload));
        let pieces: Vec<_> = bookkeeping(&store).into_iter().zip(&before).map(|(now, then)| now.since(then)).collect();
        let longest = pieces.iter().map(|p| p.largest_within().unwrap_or(u64::MAX)).max().unwrap_or(0);
        println!(
            "{pairs:>8} pairs of {:>6} tables, {RATE:.0} appends/s: {} pieces of bookkeeping, the longest within {longest} us, {} over {STALL} us; \
             {} checkpoints; ack p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
            pairs / BUCKETS,
            pieces.iter().map(|p| p.counts.iter().sum::<u64>()).sum::<u64>(),
            pieces.iter().map(|p| p.larger_than(STALL)).sum::<u64>(),
            sum(&store, |s| s.checkpoints) - checkpoints,
            quantile(&latencies, 0.5),
            quantile(&latencies, 0.99),
            quantile(&latencies, 1.0),
        );
    }
}

/// Does something while another thread asks for all summaries over and over.
fn looked_at<T>(store: &Arc<Store>, work: impl FnOnce() -> T) -> T {
    let done = Arc::new(AtomicBool::new(false));
    let looker = {
        let (store, done) = (Arc::clone(store), Arc::clone(&done));
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let began = Instant::now();
                assert!(!store.summaries().is_empty(), "should have open generations");
                std::thread::sleep(LOOK.max(began.elapsed() * LOOK_SHARE));
            }
        })
    };
    let result = work();
    done.store(true, Ordering::Relaxed);
    looker.join().expect("should not panic");
    result
}
