//! A start is cut short between any two calls, or one of its calls fails. The next one starts, with everything there.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use penstock_store::fs::{Fault, FaultKind, MemoryFileSystem, Operation};
use penstock_store::{CheckpointError, OpenError, Options, Store};

use crate::hook::{Countdown, Hooked};
use crate::kit::{self, append, commit, define, payloads, seal, table, try_append};

const SEEDS: u64 = 6;

fn options() -> Options {
    Options { shards: 2, ..kit::options() }
}

fn open(fs: &MemoryFileSystem) -> Result<Store, OpenError> {
    Store::open(kit::shared(fs), Path::new(kit::DIR), &options())
}

/// Opens, and fails every call of the opening thread from the `limit`th on. Listing changes nothing, and a first start lists a lot.
fn open_until(fs: &MemoryFileSystem, limit: u64) -> (Result<Store, OpenError>, u64) {
    let countdown = Countdown::of(limit);
    let asked = Arc::clone(&countdown);
    // The store's own threads go on meanwhile, as they do. Replaying threads have no name.
    let hooked = Hooked::shared(fs, move |call, _| {
        let is_owner = std::thread::current().name().is_some_and(|name| name.starts_with("penstock-"));
        if is_owner || call == "list" { Ok(()) } else { asked.ask() }
    });
    let opened = Store::open(hooked, Path::new(kit::DIR), &options());
    (opened, countdown.seen())
}

/// Several segments, generations in all states, and a last group whose sync failed.
fn used() -> (MemoryFileSystem, Vec<Bytes>) {
    let fs = MemoryFileSystem::new();
    let store = open(&fs).expect("should open");
    define(&store, table(2));
    define(&store, table(1));
    for round in 0..3_u8 {
        for n in 0..15_u8 {
            append(&store, vec![n + 100 * round; 3000]);
        }
        let sealed = seal(&store).expect("should seal");
        if round == 0 {
            commit(&store, &sealed).expect("should commit");
        }
    }
    append(&store, "acknowledged");
    let acknowledged = payloads(&store, table(1));
    fs.fail(Fault {
        operation: Operation::SyncData,
        nth: 1,
        path_contains: Some("shard-001".to_owned()),
        error: FaultKind::Eio,
        sticky: false,
    });
    try_append(&store, "in doubt").expect_err("should fail");
    drop(store);
    (fs.snapshot(), acknowledged)
}

fn check(fs: &MemoryFileSystem, acknowledged: &[Bytes], what: &str) {
    let store = open(fs).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = payloads(&store, table(1));
    assert!(found.starts_with(acknowledged), "{what}: acknowledged rows are lost");
    assert!(found[acknowledged.len()..].iter().all(|row| row == "in doubt"), "{what}");
    define(&store, table(1));
    append(&store, "afterwards");
}

#[test]
fn the_first_start_may_be_cut_short_anywhere() {
    let (opened, calls) = open_until(&MemoryFileSystem::new(), u64::MAX);
    drop(opened.expect("should open"));
    assert!(calls > 20);
    for limit in 0..calls {
        let fs = MemoryFileSystem::new();
        drop(open_until(&fs, limit));
        check(&fs.snapshot(), &[], &format!("after {limit} calls, the next process"));
        for seed in 0..SEEDS {
            check(&fs.snapshot().crash(seed), &[], &format!("after {limit} calls, power loss {seed}"));
        }
    }
}

#[test]
fn a_later_start_may_be_cut_short_anywhere() {
    let (log, acknowledged) = used();
    let (opened, calls) = open_until(&log.snapshot(), u64::MAX);
    drop(opened.expect("should open"));
    for limit in 0..calls {
        let fs = log.snapshot();
        drop(open_until(&fs, limit));
        check(&fs.snapshot(), &acknowledged, &format!("after {limit} calls, the next process"));
        for seed in 0..SEEDS {
            check(&fs.snapshot().crash(seed), &acknowledged, &format!("after {limit} calls, power loss {seed}"));
        }
    }
}

#[test]
fn two_starts_in_a_row_may_be_cut_short() {
    let (log, acknowledged) = used();
    let (_, calls) = open_until(&log.snapshot(), u64::MAX);
    for first in (0..calls).step_by(3) {
        let fs = log.snapshot();
        drop(open_until(&fs, first));
        let fs = fs.crash(first);
        for second in (0..calls).step_by(7) {
            let fs = fs.snapshot();
            drop(open_until(&fs, second));
            let what = format!("after {first} calls, then after {second}");
            check(&fs.crash(second), &acknowledged, &what);
        }
    }
}

#[test]
fn one_failing_call_is_never_taken_for_an_empty_directory() {
    let (log, acknowledged) = used();
    let (_, calls) = open_until(&log.snapshot(), u64::MAX);
    for failing in 0..calls + 10 {
        for code in [5, 24] {
            let fs = log.snapshot();
            let seen = Countdown::of(u64::MAX);
            let asked = Arc::clone(&seen);
            let hooked = Hooked::shared(&fs, move |_, _| {
                let is_owner = std::thread::current().name().is_some_and(|name| name.starts_with("penstock-"));
                if !is_owner {
                    asked.ask()?;
                    if asked.seen() == failing + 1 {
                        return Err(io::Error::from_raw_os_error(code));
                    }
                }
                Ok(())
            });
            let what = format!("call {failing} fails with {code}");
            match Store::open(hooked, Path::new(kit::DIR), &options()) {
                // What only prepares for later may fail.
                Ok(store) => assert!(payloads(&store, table(1)).starts_with(&acknowledged), "{what}"),
                Err(error) => {
                    assert!(matches!(error, OpenError::Io { .. }), "{what}: {error}");
                    assert!(code != 24 || error.to_string().contains("ulimit"), "{what}: {error}");
                }
            }
            check(&fs, &acknowledged, &what);
        }
    }
}

#[test]
fn a_read_error_while_replaying_changes_nothing() {
    let (log, acknowledged) = used();
    for operation in [Operation::Read, Operation::List, Operation::Open] {
        for nth in 1..60 {
            let fs = log.snapshot();
            let error = if nth % 2 == 0 { FaultKind::Eio } else { FaultKind::Emfile };
            fs.fail(Fault { operation, nth, path_contains: Some("shard-".to_owned()), error, sticky: true });
            let before = kit::contents(&fs);
            if let Err(error) = open(&fs) {
                assert!(matches!(error, OpenError::Io { .. }), "{operation:?} {nth}: {error}");
                // Later on a start replaces what was in doubt.
                if error.to_string().starts_with("reading") {
                    assert!(kit::contents(&fs) == before, "{operation:?} {nth}: a refused start changed files");
                }
            }
            fs.clear_faults();
            check(&fs, &acknowledged, &format!("{operation:?} {nth}"));
        }
    }
}

#[test]
fn a_start_that_fails_leaves_nobody_writing() {
    let (log, acknowledged) = used();
    let fs = log.snapshot();
    // The second shard's pool cannot list its directory: by then the first shard's owner runs.
    fs.fail(Fault {
        operation: Operation::List,
        nth: 3,
        path_contains: Some("shard-001".to_owned()),
        error: FaultKind::Emfile,
        sticky: false,
    });
    open(&fs).expect_err("should fail");
    let written = fs.counters();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(fs.counters(), written, "an owner goes on without the lock");
    check(&fs, &acknowledged, "afterwards");
}

#[test]
fn a_file_whose_new_name_was_not_synced_may_be_reused() {
    let fs = MemoryFileSystem::new();
    let store = kit::open_memory(&fs);
    define(&store, table(1));
    // A disk on which no more files can be made: the pool wants the segment back, when it is empty.
    let spares = || fs.files().iter().filter(|path| path.to_string_lossy().contains("spare-")).count();
    while spares() < 2 {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    let used: usize = fs.files().iter().map(|path| fs.dump(path).expect("should be there").len()).sum();
    fs.set_capacity(used as u64 + 20_000);
    for n in 0..18_u8 {
        append(&store, vec![n; 3000]);
    }
    let sealed = seal(&store).expect("should seal");
    append(&store, "kept");
    // The first segment is made a spare file, and the sync of the directory fails.
    fs.fail(Fault {
        operation: Operation::SyncDir,
        nth: 1,
        path_contains: Some("shard-000".to_owned()),
        error: FaultKind::Eio,
        sticky: false,
    });
    commit(&store, &sealed).expect("should commit");
    assert!(matches!(store.checkpoint(), Err(CheckpointError::Broken(_))));
    drop(store);
    fs.set_capacity(u64::MAX);
    // The only one that the next start can take: it still has its header.
    let is_spare = |path: &std::path::PathBuf| path.to_string_lossy().contains("spare-");
    let (recycled, others): (Vec<_>, Vec<_>) = fs
        .files()
        .into_iter()
        .filter(is_spare)
        .partition(|path| fs.dump(path).expect("should be there").starts_with(b"PNSTWAL1"));
    assert_eq!(recycled.len(), 1);
    for other in others {
        penstock_store::fs::FileSystem::remove(&fs, &other).expect("should be there");
    }
    for limit in 0..80 {
        let fs = fs.snapshot();
        let countdown = Countdown::of(limit);
        let hooked = Hooked::shared(&fs, move |_, _| countdown.ask());
        let opened = Store::open(hooked, Path::new(kit::DIR), &kit::options()).is_ok();
        for seed in 0..2 * SEEDS {
            let crashed = fs.snapshot().crash(seed);
            let store = kit::try_open_memory(&crashed).unwrap_or_else(|e| panic!("after {limit} calls, {seed}: {e}"));
            assert_eq!(payloads(&store, table(1)), ["kept"], "after {limit} calls, power loss {seed}");
        }
        if opened {
            return;
        }
    }
    panic!("the store never opened: not all of the start was tried");
}
