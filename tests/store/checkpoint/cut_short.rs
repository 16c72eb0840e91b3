//! A checkpoint is cut short at any call, or one of its calls fails. Nothing is lost, and nothing comes twice.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use penstock_store::fs::{FileSystem, MemoryFileSystem};
use penstock_store::{Appended, Barrier, CheckpointError, Options, ProducerId, Stamp, Store};

use super::{append_rows, expect_rows, expect_rows_at_start, options, row, try_open_with};
use crate::hook::{Countdown, Hooked};
use crate::kit::{self, append, bucket, commit, define, payloads, seal, slice, table};

const STAMP: Stamp = Stamp { producer: ProducerId(7), epoch: 1, sequence: 3 };

/// Two lanes, so that the barrier of a spilled or rewritten file may touch both.
fn two_lanes() -> Options {
    Options { lanes: vec!["/lane-a".into(), "/lane-b".into()], ..options() }
}

fn stamped(store: &Store) -> Appended {
    let record = vec![slice(table(1), bucket(0), "stamped")];
    let answer = store.append_stamped(STAMP, record).expect("should queue").wait_blocking();
    // Where the record lies, whichever attempt it is.
    Appended { repeat_of: None, ..answer.expect("should be durable") }
}

/// A shard with everything a checkpoint can meet: a dead lane file, one with a straggler, a live one, generations in all states,
/// definitions, a stamp, and a log of several segments behind the last checkpoint. With its rows, and the stamp's receipt.
fn used(options: &Options) -> (MemoryFileSystem, Vec<Bytes>, Appended) {
    let fs = MemoryFileSystem::new();
    let store = try_open_with(&kit::shared(&fs), options).expect("should open");
    let commit_all = |sealed| commit(&store, &sealed).expect("should commit");
    define(&store, table(1));
    append_rows(&store, 0..10);
    let dead = seal(&store).expect("should seal");
    store.checkpoint().expect("should checkpoint");
    append_rows(&store, 10..30);
    let mostly_dead = seal(&store).expect("should seal");
    append(&store, row(30, 40));
    store.checkpoint().expect("should checkpoint");
    append_rows(&store, 31..35);
    let receipt = stamped(&store);
    seal(&store).expect("should seal");
    append_rows(&store, 35..40);
    store.checkpoint().expect("should checkpoint");
    commit_all(dead);
    commit_all(mostly_dead);
    append_rows(&store, 40..80);
    seal(&store).expect("should seal");
    define(&store, table(2));
    append_rows(&store, 80..85);
    let rows = payloads(&store, table(1));
    assert_eq!(rows.len(), 5 + 1 + 5 + 40 + 5);
    // Until the mark is left.
    std::thread::sleep(std::time::Duration::from_millis(10));
    drop(store);
    (fs.snapshot(), rows, receipt)
}

/// What the calls of one checkpoint go through.
struct Calls {
    armed: AtomicBool,
    /// From the first failure on every call of every thread fails: the machine is dead.
    deadly: bool,
    dead: AtomicBool,
    countdown: Arc<Countdown>,
    /// Rather than from the limit on: the one call.
    only: Option<u64>,
}

impl Calls {
    fn ask(&self) -> io::Result<()> {
        if self.dead.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        // Lanes are synced by threads without a name.
        let counts = std::thread::current().name().is_none_or(|name| name.starts_with("penstock-ckpt"));
        if !counts || !self.armed.load(Ordering::SeqCst) {
            return Ok(());
        }
        let answer = self.countdown.ask();
        if let Some(only) = self.only {
            return if self.countdown.seen() == only + 1 { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) };
        }
        if answer.is_err() && self.deadly {
            self.dead.store(true, Ordering::SeqCst);
        }
        answer
    }
}

/// Checkpoints, with calls that fail from the `limit`th on, or that one alone; answers what came of it, and how many calls there were.
fn checkpoint_until(
    fs: &MemoryFileSystem,
    options: &Options,
    limit: u64,
    only: bool,
) -> (Result<(), CheckpointError>, u64, Store) {
    let calls = Arc::new(Calls {
        armed: AtomicBool::new(false),
        deadly: !only,
        dead: AtomicBool::new(false),
        countdown: Countdown::of(if only { u64::MAX } else { limit }),
        only: only.then_some(limit),
    });
    let asked = Arc::clone(&calls);
    let hooked: Arc<dyn FileSystem> = Hooked::shared(fs, move |_, _| asked.ask());
    let store = try_open_with(&hooked, options).expect("should open");
    calls.armed.store(true, Ordering::SeqCst);
    let outcome = store.checkpoint().map(drop);
    calls.armed.store(false, Ordering::SeqCst);
    (outcome, calls.countdown.seen(), store)
}

fn check(fs: &MemoryFileSystem, options: &Options, rows: &[Bytes], receipt: Appended, what: &str) {
    expect_rows(fs, options, rows, what);
    let fs = fs.snapshot().crash(99);
    let store = try_open_with(&kit::shared(&fs), options).expect("should open");
    assert_eq!(stamped(&store), receipt, "{what}: a repeat is taken for new");
    assert_eq!(store.definitions().len(), 2, "{what}");
    store.checkpoint().unwrap_or_else(|error| panic!("{what}: the next checkpoint: {error}"));
    assert_eq!(payloads(&store, table(1)), rows, "{what}");
    expect_rows_at_start(&fs.crash(98), options, rows, &format!("{what}, and the next checkpoint"));
}

#[test]
fn a_checkpoint_may_be_cut_short_anywhere() {
    for barrier in [Barrier::Auto, Barrier::SyncFs] {
        let options = Options { barrier, ..two_lanes() };
        let (used, rows, receipt) = used(&options);
        let (outcome, calls, store) = checkpoint_until(&used.snapshot(), &options, u64::MAX, false);
        outcome.expect("should checkpoint");
        drop(store);
        assert!(calls > 10, "{calls} calls");
        for limit in 0..=calls {
            let fs = used.snapshot();
            let (_, _, store) = checkpoint_until(&fs, &options, limit, false);
            let fs = fs.snapshot();
            drop(store);
            check(&fs, &options, &rows, receipt, &format!("{barrier:?}, after {limit} calls"));
        }
    }
}

#[test]
fn any_call_of_a_checkpoint_may_fail() {
    let options = two_lanes();
    let (used, rows, receipt) = used(&options);
    let (_, calls, store) = checkpoint_until(&used.snapshot(), &options, u64::MAX, false);
    drop(store);
    let mut seen = (0, 0, 0);
    for failing in 0..calls {
        let what = format!("call {failing} fails");
        let fs = used.snapshot();
        let (outcome, _, store) = checkpoint_until(&fs, &options, failing, true);
        assert_eq!(payloads(&store, table(1)), rows, "{what}: rows can be read");
        let mut expected = rows.clone();
        match outcome {
            Ok(()) | Err(CheckpointError::Postponed(_)) => {
                assert_eq!(store.poisoned(), None, "{what}");
                append(&store, "afterwards");
                expected.push(Bytes::from("afterwards"));
                expect_rows(&fs, &options, &expected, &what);
                store.checkpoint().unwrap_or_else(|error| panic!("{what}, the next one: {error}"));
                assert_eq!(payloads(&store, table(1)), expected, "{what}");
            }
            // Stopped: what the start had left to recycle was what failed.
            Err(CheckpointError::Broken(_) | CheckpointError::Stopped(_)) => {
                assert!(store.poisoned().is_some(), "{what}");
                kit::try_append(&store, "afterwards").expect_err("should be refused");
            }
        }
        match outcome {
            Ok(()) => seen.0 += 1,
            Err(CheckpointError::Postponed(_)) => seen.1 += 1,
            Err(_) => seen.2 += 1,
        }
        let fs = fs.snapshot();
        drop(store);
        check(&fs, &options, &expected, receipt, &what);
    }
    // Names that are not removed; lane files that are not written; barrier, manifest and recycling.
    assert!(seen.0 >= 1 && seen.1 >= 2 && seen.2 >= 4, "{seen:?}");
}
