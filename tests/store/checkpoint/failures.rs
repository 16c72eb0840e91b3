//! What fails before the barrier is put off and made good; what fails from the barrier on stops the shard, for it may have happened.

use std::path::{Path, PathBuf};

use penstock_store::fs::{FaultKind, MemoryFileSystem, Operation};
use penstock_store::{AppendError, Barrier, CheckpointError, Options, Store};

use super::{append_rows, broken, checkpoint, expect_rows, fail, lane_files, open, open_with, options, places};
use super::{postponed, row, rows, wait_until};
use crate::hook::Hooked;
use crate::kit::{self, append, commit, define, payloads, seal, segments, table, try_append};

fn with_rows(fs: &MemoryFileSystem, options: &Options) -> Store {
    let store = open_with(fs, options);
    define(&store, table(1));
    append_rows(&store, 0..30);
    store
}

/// The next attempt takes what this one would have, and what has come since.
fn recovers(fs: &MemoryFileSystem, store: &Store, what: &str) {
    assert_eq!(store.poisoned(), None, "{what}");
    append_rows(store, 30..40);
    assert_eq!(payloads(store, table(1)), rows(0..40), "{what}");
    assert!(lane_files(fs).is_empty(), "{what}: half a lane file keeps its room");
    expect_rows(fs, &options(), &rows(0..40), &format!("{what}, put off"));
    fs.clear_faults();
    fs.set_capacity(u64::MAX);
    let report = checkpoint(store);
    assert!(report.lane_bytes > 40 * 3000 && report.segments_freed > 0, "{what}: {report:?}");
    assert_eq!(store.status()[0].postponed, None, "{what}");
    assert_eq!(places(store, table(1)), (1, 0), "{what}");
    append_rows(store, 40..42);
    expect_rows(fs, &options(), &rows(0..42), &format!("{what}, made good"));
}

#[test]
fn a_lane_without_room_puts_it_off_until_there_is_some() {
    for operation in [Operation::Create, Operation::Write] {
        let fs = MemoryFileSystem::new();
        let store = with_rows(&fs, &options());
        fail(&fs, operation, ".lane", FaultKind::Enospc, true);
        for _ in 0..3 {
            let reason = postponed(&store);
            assert!(reason.contains("No space") && reason.contains(".lane"), "{reason}");
            assert_eq!(store.status()[0].postponed, Some(reason));
        }
        assert_eq!(places(&store, table(1)), (0, 30), "nothing was moved");
        recovers(&fs, &store, &format!("{operation:?}"));
    }
}

#[test]
fn a_full_disk_puts_it_off_until_there_is_room() {
    let fs = MemoryFileSystem::new();
    let store = with_rows(&fs, &options());
    let spares = || fs.files().iter().filter(|path| path.to_string_lossy().contains("spare-")).count();
    wait_until("the pool makes no files", || spares() == 2);
    std::thread::sleep(std::time::Duration::from_millis(5));
    let used: usize = fs.files().iter().map(|path| fs.dump(path).expect("should be there").len()).sum();
    fs.set_capacity(used as u64 + 10_000);
    assert!(postponed(&store).contains("No space"));
    recovers(&fs, &store, "a full disk");
}

#[test]
fn what_empties_a_full_disk_works_while_checkpoints_do_not() {
    let fs = MemoryFileSystem::new();
    let store = with_rows(&fs, &options());
    fail(&fs, Operation::Write, ".lane", FaultKind::Enospc, true);
    postponed(&store);
    let sealed = seal(&store).expect("should seal");
    commit(&store, &sealed).expect("should commit");
    // Nothing is left that would need a lane.
    let report = checkpoint(&store);
    assert!(report.lane_bytes == 0 && report.segments_freed > 0, "{report:?}");
    assert_eq!(segments(&fs).len(), 1);
    expect_rows(&fs, &options(), &[], "emptied");
}

#[test]
fn an_error_while_a_lane_file_is_written_puts_it_off() {
    for operation in [Operation::Create, Operation::Write] {
        for kind in [FaultKind::Eio, FaultKind::Emfile, FaultKind::ShortThenError { bytes: 5000 }] {
            let fs = MemoryFileSystem::new();
            let store = with_rows(&fs, &options());
            fail(&fs, operation, ".lane", kind, false);
            let reason = postponed(&store);
            assert_eq!(store.status()[0].postponed, Some(reason));
            recovers(&fs, &store, &format!("{operation:?} {kind:?}"));
        }
    }
}

#[test]
fn what_was_sealed_and_committed_between_two_attempts_is_right() {
    let fs = MemoryFileSystem::new();
    let store = with_rows(&fs, &options());
    fail(&fs, Operation::Write, ".lane", FaultKind::Eio, true);
    postponed(&store);
    let first = seal(&store).expect("should seal");
    append_rows(&store, 30..35);
    postponed(&store);
    let second = seal(&store).expect("should seal");
    append_rows(&store, 35..40);
    commit(&store, &first).expect("should commit");
    postponed(&store);
    fs.clear_faults();
    let report = checkpoint(&store);
    assert_eq!(report.extents, 2);
    assert!(report.lane_bytes < 20 * 3000, "what is in Delta by now is not written");
    expect_rows(&fs, &options(), &rows(30..40), "three attempts");
    commit(&store, &second).expect("should commit");
    expect_rows(&fs, &options(), &rows(35..40), "and a commit behind them");
}

#[test]
fn a_copy_that_cannot_be_made_leaves_the_old_lane_file() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    append_rows(&store, 0..20);
    let sealed = seal(&store).expect("should seal");
    append(&store, row(20, 40));
    checkpoint(&store);
    commit(&store, &sealed).expect("should commit");
    append_rows(&store, 21..22);
    let expected = [row(20, 40), row(21, 3000)];
    let pinned = lane_files(&fs);
    // Its index first, then its rows: each is tried once and then left alone, and new rows do not wait for it.
    fail(&fs, Operation::Read, ".lane", FaultKind::Eio, false);
    postponed(&store);
    assert_eq!(checkpoint(&store).extents, 1);
    assert_eq!(lane_files(&fs)[..1], pinned);
    assert_eq!(payloads(&store, table(1)), expected);
    expect_rows(&fs, &options(), &expected, "not copied");
    // The next process may be luckier.
    drop(store);
    let store = open(&fs);
    checkpoint(&store);
    assert!(!lane_files(&fs).contains(&pinned[0]));
    expect_rows(&fs, &options(), &expected, "copied after all");
}

/// The shard has stopped with this reason, for good, and serves what it has.
fn has_stopped(store: &Store, reason: &str) {
    let first = store.poisoned().expect("should have stopped");
    assert!(first.to_string().contains(reason), "{first}: {reason}");
    assert_eq!(try_append(store, "later").expect_err("should be refused"), first);
    assert!(matches!(&first, AppendError::Poisoned { .. }));
    let again = store.checkpoint().expect_err("should be refused");
    assert!(matches!(again, CheckpointError::Stopped(_)), "{again}");
    assert_eq!(store.poisoned(), Some(first.clone()), "the first reason stays");
    assert_eq!(store.status()[0].poisoned, Some(first.to_string()));
    assert_eq!(payloads(store, table(1)), rows(0..30), "reads go on");
}

#[test]
fn a_failed_barrier_stops_the_shard() {
    let eio = FaultKind::Eio;
    let part = FaultKind::ShortThenError { bytes: 8192 };
    let failures = [
        (Barrier::Auto, Operation::SyncData, ".lane", eio),
        (Barrier::Auto, Operation::SyncData, ".lane", part),
        (Barrier::Auto, Operation::SyncDir, "lanes/0", eio),
        (Barrier::FdataSync, Operation::SyncData, ".lane", eio),
        (Barrier::SyncFs, Operation::SyncFs, "lanes/0", eio),
        (Barrier::SyncFs, Operation::SyncData, ".lane", eio),
    ];
    for (barrier, operation, path, kind) in failures {
        let options = Options { barrier, ..options() };
        let fs = MemoryFileSystem::new();
        let store = with_rows(&fs, &options);
        fail(&fs, operation, path, kind, false);
        let reason = broken(&store);
        assert!(reason.contains("durable") && reason.contains("Input/output"), "{reason}");
        has_stopped(&store, &reason);
        let fs = fs.snapshot();
        drop(store);
        let what = format!("{barrier:?}: {operation:?} of {path} fails");
        expect_rows(&fs, &options, &rows(0..30), &what);
        let store = open_with(&fs, &options);
        assert!(lane_files(&fs).is_empty(), "{what}: nobody needs the file");
        checkpoint(&store);
        expect_rows(&fs, &options, &rows(0..30), &format!("{what}, and the next process checkpoints"));
    }
}

#[test]
fn a_failed_piece_of_the_barrier_while_the_file_is_written_stops_the_shard() {
    let fs = MemoryFileSystem::new();
    let interval = Some(std::time::Duration::from_millis(20));
    let options = Options { checkpoint_interval: interval, segment_bytes: 1 << 20, ..options() };
    let store = open_with(&fs, &options);
    define(&store, table(1));
    fail(&fs, Operation::SyncData, ".lane", FaultKind::Eio, false);
    // Longer than what is synced at once; not in one group, for an interval may end at any time.
    let large: Vec<_> = (0..6).map(|n| row(n, 700_000)).collect();
    let appended: Vec<_> = large.iter().filter(|row| try_append(&store, (*row).clone()).is_ok()).collect();
    wait_until("the shard goes on", || store.poisoned().is_some());
    let reason = store.poisoned().expect("should have stopped").to_string();
    assert!(reason.contains("durable"), "{reason}");
    let fs = fs.snapshot();
    drop(store);
    let found = payloads(&open_with(&fs, &options), table(1));
    assert!(appended.iter().all(|row| found.contains(row)));
}

#[test]
fn one_shards_failure_is_no_other_shards() {
    let fs = MemoryFileSystem::new();
    let options = Options { shards: 2, ..options() };
    let store = open_with(&fs, &options);
    define(&store, table(1));
    define(&store, table(2));
    append(&store, "a row");
    fail(&fs, Operation::SyncData, "s001-", FaultKind::Eio, true);
    assert_eq!(store.shard_of(table(1)), 1);
    assert!(matches!(store.checkpoint(), Err(CheckpointError::Broken(_))));
    let other = vec![crate::kit::slice(table(2), crate::kit::bucket(0), "goes on")];
    store.append(other).expect("should queue").wait_blocking().expect("should be durable");
    assert!(try_append(&store, "stopped").is_err());
    let status = store.status();
    assert_eq!((status[0].checkpoints, status[0].poisoned.is_some()), (1, false));
    assert_eq!((status[1].checkpoints, status[1].poisoned.is_some()), (0, true));
}

#[test]
fn a_lane_file_that_cannot_be_removed_is_removed_by_the_next_start() {
    let fs = MemoryFileSystem::new();
    let store = with_rows(&fs, &options());
    checkpoint(&store);
    let dead: Vec<PathBuf> = lane_files(&fs);
    let sealed = seal(&store).expect("should seal");
    commit(&store, &sealed).expect("should commit");
    fail(&fs, Operation::Remove, ".lane", FaultKind::Eio, false);
    assert_eq!(checkpoint(&store).files_dropped, 1);
    assert_eq!(lane_files(&fs), dead);
    // Its id stays taken, so that no other file can be mistaken for it.
    append_rows(&store, 30..35);
    checkpoint(&store);
    assert_eq!(lane_files(&fs).len(), 2);
    drop(store);
    let store = open(&fs);
    assert_eq!(lane_files(&fs).len(), 1);
    assert!(!lane_files(&fs).contains(&dead[0]));
    assert_eq!(payloads(&store, table(1)), rows(30..35));
}

#[test]
fn a_panic_stops_the_shard_and_leaves_nobody_waiting() {
    let fs = MemoryFileSystem::new();
    drop(with_rows(&fs, &options()));
    let hooked = Hooked::shared(&fs, |call, path| {
        assert!(!(call == "create" && path.extension().is_some_and(|e| e == "lane")), "a fault of the test");
        Ok(())
    });
    let store = Store::open(hooked, Path::new(kit::DIR), &options()).expect("should open");
    append_rows(&store, 30..40);
    for attempt in [store.checkpoint(), store.checkpoint()] {
        assert!(attempt.is_err(), "{attempt:?}");
    }
    let reason = store.poisoned().expect("should have stopped").to_string();
    assert!(reason.contains("panicked"), "{reason}");
    assert!(matches!(try_append(&store, "x"), Err(AppendError::Poisoned { .. })));
    assert_eq!(payloads(&store, table(1)), rows(0..40), "reads go on");
    // The thread is there to be asked, and to be stopped.
    store.close().expect("should close");
    drop(store);
    expect_rows(&fs, &options(), &rows(0..40), "after the panic");
}
