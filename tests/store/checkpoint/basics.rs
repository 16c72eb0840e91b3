//! What a checkpoint moves, what it leaves, and when it comes.

use std::time::Duration;

use bytes::Bytes;
use penstock_store::fs::MemoryFileSystem;
use penstock_store::{Barrier, Options};

use super::{
    append_rows, checkpoint, expect_rows, lane_files, open, open_with, options, places, row, rows, wait_until,
};
use crate::kit::{append, bucket, commit, define, payloads, seal, segments, slice, table};

#[test]
fn rows_are_whole_and_in_order_after_a_checkpoint_and_a_power_loss() {
    for barrier in [Barrier::Auto, Barrier::SyncFs, Barrier::FdataSync] {
        let options = Options { barrier, ..options() };
        let fs = MemoryFileSystem::new();
        let store = open_with(&fs, &options);
        define(&store, table(1));
        append_rows(&store, 0..50);
        assert!(segments(&fs).len() > 2);
        let report = checkpoint(&store);
        assert!(report.lane_bytes > 150_000 && report.extents == 1, "{report:?}");
        assert_eq!(report.checkpoint, store.status()[0].durable_lsn);
        assert_eq!(payloads(&store, table(1)), rows(0..50));
        expect_rows(&fs, &options, &rows(0..50), "checkpointed");
        append_rows(&store, 50..60);
        expect_rows(&fs, &options, &rows(0..60), "rows behind the checkpoint");
        checkpoint(&store);
        append_rows(&store, 60..61);
        expect_rows(&fs, &options, &rows(0..61), "two checkpoints");
    }
}

#[test]
fn everything_of_a_slice_survives_not_only_its_payload() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    define(&store, table(2));
    let mut odd = slice(table(1), bucket(-7), "odd");
    (odd.encoding, odd.rows, odd.min_time, odd.max_time) = (9, 17, i64::MIN, i64::MAX);
    let mut empty = slice(table(2), bucket(3), "");
    empty.rows = 0;
    let record = vec![odd, empty, slice(table(2), bucket(3), "the same record")];
    store.append(record).expect("should queue").wait_blocking().expect("should be durable");
    let all = |store: &penstock_store::Store| -> Vec<_> {
        let views = [1, 2].map(|n| store.view(table(n)).generations);
        let views = views.into_iter().flatten();
        views.map(|g| (g.generation().bucket, g.totals(), g.slices().expect("should be readable"))).collect()
    };
    let before = all(&store);
    let unflushed = (store.unflushed_rows(), store.unflushed_bytes());
    checkpoint(&store);
    assert_eq!(all(&store), before);
    drop(store);
    let store = open(&fs);
    assert_eq!(all(&store), before);
    assert_eq!((store.unflushed_rows(), store.unflushed_bytes()), unflushed);
    assert_eq!(store.definitions().len(), 2);
}

#[test]
fn memory_is_released_at_the_checkpoint() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    append_rows(&store, 0..10);
    assert_eq!(places(&store, table(1)), (0, 10));
    checkpoint(&store);
    assert_eq!(places(&store, table(1)), (1, 0));
    append_rows(&store, 10..12);
    assert_eq!(places(&store, table(1)), (1, 2));
    drop(store);
    assert_eq!(places(&open(&fs), table(1)), (1, 2), "a start reads the log, and leaves in the lanes what is there");
}

#[test]
fn a_pinned_view_reads_its_rows_whatever_becomes_of_them() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    append_rows(&store, 0..5);
    let in_memory = store.view(table(1));
    append_rows(&store, 5..6);
    checkpoint(&store);
    let moved = store.view(table(1));
    append_rows(&store, 6..8);
    let partly = store.view(table(1));
    let read = |view: &penstock_store::TableView| -> Vec<Bytes> {
        let slices = view.generations.iter().flat_map(|g| g.slices().expect("should be readable"));
        slices.map(|s| s.payload).collect()
    };
    let check = |what: &str| {
        assert_eq!(read(&in_memory), rows(0..5), "{what}");
        assert_eq!(read(&moved), rows(0..6), "{what}");
        assert_eq!(read(&partly), rows(0..8), "{what}");
    };
    check("open");
    let sealed = seal(&store).expect("should seal");
    checkpoint(&store);
    check("sealed");
    commit(&store, &sealed).expect("should commit");
    check("committed");
    assert_eq!(checkpoint(&store).files_dropped, 2);
    assert!(lane_files(&fs).is_empty());
    check("unlinked");
    assert!(payloads(&store, table(1)).is_empty());
}

#[test]
fn what_is_flushed_before_a_checkpoint_is_never_written_and_its_log_is_recycled() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    append_rows(&store, 0..60);
    let sealed = seal(&store).expect("should seal");
    commit(&store, &sealed).expect("should commit");
    let before = segments(&fs).len();
    let report = checkpoint(&store);
    assert_eq!((report.lane_bytes, report.extents, report.files_dropped), (0, 0, 0));
    assert_eq!(report.segments_freed as usize, before - 1);
    assert_eq!(segments(&fs).len(), 1);
    assert!(lane_files(&fs).is_empty());
    expect_rows(&fs, &options(), &[], "flushed");
}

#[test]
fn a_checkpoint_with_nothing_new_writes_no_lane_file() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    append_rows(&store, 0..10);
    checkpoint(&store);
    let files = lane_files(&fs);
    for _ in 0..3 {
        let report = checkpoint(&store);
        assert_eq!((report.lane_bytes, report.extents, report.files_dropped), (0, 0, 0));
    }
    assert_eq!(lane_files(&fs), files);
    drop(store);
    let store = open(&fs);
    assert_eq!(checkpoint(&store).lane_bytes, 0, "a restart makes nothing new");
    assert_eq!(lane_files(&fs), files);
}

#[test]
fn a_restart_after_close_reads_no_log() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    append_rows(&store, 0..40);
    store.close().expect("should close");
    drop(store);
    let store = open(&fs);
    let report = store.recovery();
    assert_eq!((report.records, report.bytes, report.rewritten, report.torn), (0, 0, 0, 0));
    assert_eq!(payloads(&store, table(1)), rows(0..40));
    append(&store, row(40, 3000));
    assert_eq!(payloads(&store, table(1)), rows(0..41));
}

#[test]
fn the_interval_brings_a_checkpoint_by_itself() {
    let fs = MemoryFileSystem::new();
    let options = Options { checkpoint_interval: Some(Duration::from_millis(10)), ..options() };
    let store = open_with(&fs, &options);
    define(&store, table(1));
    for round in 0..3 {
        append_rows(&store, round * 10..round * 10 + 10);
        wait_until("no checkpoint came", || places(&store, table(1)).1 == 0);
        wait_until("the log stays", || store.status()[0].replay_bytes() == 0);
    }
    // Nothing new: no checkpoint, and no edit, however many intervals go by.
    let checkpoints = store.status()[0].checkpoints;
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(store.status()[0].checkpoints, checkpoints);
    expect_rows(&fs, &options, &rows(0..30), "on its own");
}

#[test]
fn a_long_log_brings_a_checkpoint_by_itself() {
    let fs = MemoryFileSystem::new();
    let options = Options { checkpoint_bytes: 100_000, ..options() };
    let store = open_with(&fs, &options);
    define(&store, table(1));
    append_rows(&store, 0..10);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(store.status()[0].checkpoints, 0, "the log is short");
    append_rows(&store, 10..200);
    wait_until("no checkpoint came", || store.status()[0].replay_bytes() < 100_000 + 8192);
    assert!(store.status()[0].checkpoints > 0);
    wait_until("segments stay", || segments(&fs).len() <= 4);
    let status = store.status().remove(0);
    let phases = status.phases.each_ref().map(penstock_store::Distribution::count);
    assert!(phases[0] > 0 && phases.iter().all(|count| *count == phases[0] || *count + 1 == phases[0]), "{phases:?}");
    assert_eq!((status.group_records.count(), status.group_records.sum), (status.groups, status.records));
    expect_rows(&fs, &options, &rows(0..200), "a long log");
}

#[test]
fn the_length_and_the_interval_change_while_nobody_writes() {
    let fs = MemoryFileSystem::new();
    let options = options();
    let store = open_with(&fs, &options);
    define(&store, table(1));
    append_rows(&store, 0..50);
    store.set_checkpoints(None, u64::MAX);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(store.status()[0].checkpoints, 0, "the log is short enough");
    // The log is too long from now on, though nothing is written.
    store.set_checkpoints(None, 10_000);
    wait_until("no checkpoint came", || store.status()[0].checkpoints == 1);
    append_rows(&store, 50..52);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(store.status()[0].checkpoints, 1, "the log is short again");
    // An interval where there was none, counted from the last checkpoint.
    store.set_checkpoints(Some(Duration::from_millis(50)), u64::MAX);
    wait_until("no checkpoint came", || store.status()[0].checkpoints == 2);
    expect_rows(&fs, &options, &rows(0..52), "with other settings");
}

#[test]
fn sealed_generations_come_back_in_their_commit_order() {
    let fs = MemoryFileSystem::new();
    let mut expected = Vec::new();
    for start in 0..3 {
        let store = open(&fs);
        define(&store, table(1));
        // Not in the order of the buckets, of the tables or of the first rows.
        for n in [3, 1, 2, 0] {
            for b in 0..4 {
                let record = vec![slice(table(1), bucket((b + n) % 4), row(n as usize, 100))];
                store.append(record).expect("should queue").wait_blocking().expect("should be durable");
            }
            let summary = store.summaries().remove(0);
            let chosen = summary.open.iter().find(|g| g.bucket == bucket(n)).expect("should be open");
            let sealed = store.seal(table(1), chosen.bucket, chosen.first_lsn).wait_blocking().expect("should seal");
            expected.push(sealed.expect("should be open").seal);
            if n % 2 == start % 2 {
                checkpoint(&store);
            }
        }
        let seals = |store: &penstock_store::Store| -> Vec<_> {
            store.summaries().remove(0).sealed.into_iter().map(|s| s.seal).collect()
        };
        assert_eq!(seals(&store), expected);
        for seed in 0..4 {
            assert_eq!(seals(&open(&fs.snapshot().crash(seed))), expected, "start {start}, power loss {seed}");
        }
        checkpoint(&store);
        assert_eq!(seals(&open(&fs.snapshot())), expected, "start {start}, checkpointed");
    }
}
