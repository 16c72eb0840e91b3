//! The shard's manifest fails: full, it waits; failed, the shard stops, and the next start is right whether or not the edit got to
//! the disk.

use std::collections::BTreeSet;

use bytes::Bytes;
use penstock_store::fs::{FaultKind, MemoryFileSystem, Operation};
use penstock_store::{Define, Store};

use super::{
    SEEDS, append_rows, broken, checkpoint, expect_rows, expect_rows_at_start, fail, lane_files, open, options,
    postponed, rows,
};
use super::{row, with_extension};
use crate::kit::{append, commit, define, payloads, seal, segments, table, try_append};

fn with_rows(fs: &MemoryFileSystem) -> Store {
    let store = open(fs);
    define(&store, table(1));
    append_rows(&store, 0..30);
    store
}

#[test]
fn a_failed_edit_stops_the_shard_and_either_outcome_is_right_at_the_next_start() {
    let failures = [
        (Operation::Write, FaultKind::Eio),
        (Operation::Write, FaultKind::Enospc),
        (Operation::Write, FaultKind::ShortThenError { bytes: 20 }),
        (Operation::Write, FaultKind::ShortThenError { bytes: 1 << 20 }),
        (Operation::SyncData, FaultKind::Eio),
        (Operation::SyncData, FaultKind::ShortThenError { bytes: 1 << 20 }),
    ];
    let mut outcomes = BTreeSet::new();
    for (operation, kind) in failures {
        let what = format!("{operation:?} {kind:?}");
        let fs = MemoryFileSystem::new();
        let store = with_rows(&fs);
        checkpoint(&store);
        append_rows(&store, 30..60);
        let before = store.status()[0].checkpoint_lsn;
        let kept = segments(&fs);
        fail(&fs, operation, "edits-", kind, false);
        let reason = broken(&store);
        assert!(reason.contains("manifest"), "{reason}");
        let first = store.poisoned().expect("should have stopped");
        assert_eq!(try_append(&store, "later").expect_err("should be refused"), first, "{what}");
        assert!(first.to_string().contains(&reason), "{first}");
        assert_eq!(payloads(&store, table(1)), rows(0..60), "{what}");
        assert_eq!(segments(&fs), kept, "{what}: nothing is recycled without the proof");
        assert_eq!(lane_files(&fs).len(), 2, "{what}: nothing is removed that the edit may name");
        let fs = fs.snapshot();
        drop(store);
        expect_rows(&fs, &options(), &rows(0..60), &what);
        for seed in 0..2 * SEEDS {
            let fs = fs.snapshot().crash(seed);
            let store = open(&fs);
            let is_there = store.status()[0].checkpoint_lsn > before;
            outcomes.insert(is_there);
            assert_eq!(lane_files(&fs).len(), 1 + usize::from(is_there), "{what} {seed}");
            // What was read from the page cache only has been made sure: it does not go away any more.
            append_rows(&store, 60..62);
            checkpoint(&store);
            append_rows(&store, 62..63);
            let what = format!("{what} {seed}, and on");
            expect_rows_at_start(&fs.snapshot().crash(seed), &options(), &rows(0..63), &what);
        }
    }
    assert_eq!(outcomes.len(), 2, "both outcomes have to be tried: {outcomes:?}");
}

#[test]
fn an_edit_that_only_the_page_cache_has_is_not_relied_on_before_it_is_written_again() {
    let fs = MemoryFileSystem::new();
    let store = with_rows(&fs);
    fail(&fs, Operation::SyncData, "edits-", FaultKind::Eio, false);
    broken(&store);
    let fs = fs.crash_process();
    drop(store);
    // The next process reads the edit, and recycles the log on its word.
    let store = open(&fs);
    assert_eq!(store.recovery().records, 0, "the edit is there");
    super::wait_until("segments stay", || segments(&fs).len() == 1);
    assert_eq!(payloads(&store, table(1)), rows(0..30));
    for seed in 0..4 * SEEDS {
        let fs = fs.snapshot().crash(seed);
        assert_eq!(payloads(&open(&fs), table(1)), rows(0..30), "power loss {seed}");
    }
}

#[test]
fn a_manifest_without_room_puts_it_off() {
    let fs = MemoryFileSystem::new();
    let store = with_rows(&fs);
    // Longer than the room that is kept.
    let body = Bytes::from(vec![b'x'; 1_500_000]);
    let long = Define { table: table(2), schema_version: 1, body };
    store.define(long.clone()).expect("should queue").wait_blocking().expect("should be durable");
    fail(&fs, Operation::Allocate, "edits-", FaultKind::Enospc, true);
    let kept = segments(&fs);
    for _ in 0..2 {
        let reason = postponed(&store);
        assert!(reason.contains("No space"), "{reason}");
        assert_eq!(store.status()[0].postponed, Some(reason));
        assert_eq!((segments(&fs), lane_files(&fs)), (kept.clone(), Vec::new()));
    }
    append_rows(&store, 30..32);
    expect_rows(&fs, &options(), &rows(0..32), "put off");
    fs.clear_faults();
    assert_eq!(checkpoint(&store).extents, 1);
    expect_rows(&fs, &options(), &rows(0..32), "made good");
    drop(store);
    let store = open(&fs);
    assert!(store.definitions().contains(&long));
}

#[test]
fn edits_go_on_when_there_is_no_room_but_what_was_kept() {
    let fs = MemoryFileSystem::new();
    let store = with_rows(&fs);
    let sealed = seal(&store).expect("should seal");
    commit(&store, &sealed).expect("should commit");
    fail(&fs, Operation::Allocate, "edits-", FaultKind::Enospc, true);
    for n in 0..20 {
        append(&store, row(n, 3000));
        checkpoint(&store);
    }
    expect_rows(&fs, &options(), &rows(0..20), "from the room that was kept");
}

/// A definition that makes the manifest long.
fn define_long(store: &Store, schema_version: u32) {
    let define = Define { table: table(3), schema_version, body: Bytes::from(vec![b'x'; 900_000]) };
    store.define(define).expect("should queue").wait_blocking().expect("should be durable");
}

/// Definitions until the manifest is begun anew.
fn until_renewed(fs: &MemoryFileSystem, store: &Store) -> u32 {
    let manifests = || -> Vec<_> {
        let files = fs.files().into_iter();
        files.filter(|path| path.to_string_lossy().contains("edits-")).collect()
    };
    let first = manifests();
    for version in 1..20 {
        define_long(store, version);
        if store.checkpoint().is_err() || manifests() != first {
            assert_eq!(manifests().len(), 1, "the older one is removed");
            return version;
        }
    }
    panic!("the manifest only grows");
}

#[test]
fn a_long_manifest_is_begun_anew_with_all_that_counts() {
    let fs = MemoryFileSystem::new();
    let store = with_rows(&fs);
    let sealed = seal(&store).expect("should seal");
    append_rows(&store, 30..40);
    checkpoint(&store);
    seal(&store).expect("should seal");
    append_rows(&store, 40..45);
    let newest = until_renewed(&fs, &store);
    expect_rows(&fs, &options(), &rows(0..45), "begun anew");
    commit(&store, &sealed).expect("should commit");
    append_rows(&store, 45..50);
    checkpoint(&store);
    expect_rows(&fs, &options(), &rows(30..50), "and on");
    drop(store);
    let store = open(&fs);
    let known = store.definitions().into_iter().find(|d| d.table == table(3));
    assert_eq!(known.expect("should be known").schema_version, newest);
    assert_eq!(with_extension(&fs, "new").len(), 1, "only what the node's next manifest is written into");
}

#[test]
fn a_manifest_that_cannot_be_begun_anew_for_want_of_room_goes_on_as_it_is() {
    let fs = MemoryFileSystem::new();
    let store = with_rows(&fs);
    fail(&fs, Operation::Write, "edits.new", FaultKind::Enospc, true);
    for version in 1..10 {
        define_long(&store, version);
        checkpoint(&store);
    }
    assert_eq!(store.poisoned(), None);
    expect_rows(&fs, &options(), &rows(0..30), "as it is");
    fs.clear_faults();
    until_renewed(&fs, &store);
    expect_rows(&fs, &options(), &rows(0..30), "begun anew");
}

#[test]
fn a_new_manifest_that_fails_stops_the_shard_and_either_one_is_right() {
    for (operation, path) in [
        (Operation::Write, "edits.new"),
        (Operation::SyncData, "edits.new"),
        (Operation::Rename, "edits.new"),
        (Operation::SyncDir, "shard-000"),
        (Operation::Remove, "edits-000000000001"),
    ] {
        let what = format!("{operation:?} of {path} fails");
        let fs = MemoryFileSystem::new();
        let store = with_rows(&fs);
        for version in 1..=5 {
            define_long(&store, version);
            if version < 5 {
                checkpoint(&store);
            }
        }
        // Its first use by this checkpoint is for the new manifest.
        fail(&fs, operation, path, FaultKind::Eio, true);
        assert!(broken(&store).contains("manifest"), "{what}");
        assert!(store.poisoned().is_some(), "{what}");
        let fs = fs.snapshot();
        drop(store);
        expect_rows(&fs, &options(), &rows(0..30), &what);
    }
}
