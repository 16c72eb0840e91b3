//! A long log is read within a fixed memory: what does not fit is moved into lane files, which the next checkpoint takes over.

use std::path::PathBuf;

use bytes::Bytes;
use penstock_store::fs::{FaultKind, MemoryFileSystem, Operation};
use penstock_store::{Options, Progress, Store};

use super::try_open_with;
use super::{SEEDS, append_rows, checkpoint, expect_rows, fail, lane_files, open_with, options, places, row, rows};
use crate::kit::{self, bucket, commit, contents, define, payloads, seal, segments, slice, table};

const BUDGET: u64 = 40_000;

fn small() -> Options {
    Options { replay_bytes: BUDGET, ..options() }
}

/// A log that no checkpoint has shortened.
fn long_log() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    let store = open_with(&fs, &options());
    define(&store, table(1));
    append_rows(&store, 0..100);
    drop(store);
    fs
}

#[test]
fn a_long_log_is_replayed_within_its_memory() {
    let fs = long_log();
    let log = segments(&fs);
    let store = open_with(&fs, &small());
    let report = store.recovery();
    assert!(report.spilled > 200_000, "{report:?}");
    let (extents, in_memory) = places(&store, table(1));
    assert!(extents >= 7, "{extents}");
    assert!((in_memory as u64) * 3000 < BUDGET + 2 * 3000, "{in_memory} rows in memory");
    assert_eq!(payloads(&store, table(1)), rows(0..100));
    assert_eq!((store.unflushed_rows(), store.unflushed_bytes()), (100, 300_000));
    drop(store);
    assert_eq!(open_with(&fs, &options()).recovery().spilled, 0);
    assert!(segments(&fs).starts_with(&log), "nothing is recycled for it");
}

#[test]
fn what_was_spilled_is_replayed_again_until_a_checkpoint_takes_it_over() {
    let fs = long_log();
    expect_rows(&fs, &small(), &rows(0..100), "a long log");
    let store = open_with(&fs, &small());
    expect_rows(&fs, &small(), &rows(0..100), "spilled");
    append_rows(&store, 100..110);
    expect_rows(&fs, &small(), &rows(0..110), "spilled, and rows behind it");
    let spilled = lane_files(&fs);
    assert!(spilled.len() >= 7);
    let report = checkpoint(&store);
    assert!(report.lane_bytes < 2 * BUDGET, "only what was in memory is written: {report:?}");
    assert!(spilled.iter().all(|file| lane_files(&fs).contains(file)), "taken over as they are");
    assert_eq!(segments(&fs).len(), 1);
    expect_rows(&fs, &small(), &rows(0..110), "taken over");
    drop(store);
    let store = open_with(&fs, &small());
    assert_eq!((store.recovery().records, store.recovery().spilled), (0, 0));
    let sealed = seal(&store).expect("should seal");
    commit(&store, &sealed).expect("should commit");
    checkpoint(&store);
    assert!(lane_files(&fs).is_empty());
}

#[test]
fn a_later_start_reuses_no_name_and_leaves_no_file_behind() {
    let fs = long_log();
    let mut before: Vec<PathBuf> = Vec::new();
    for start in 0..4 {
        let store = open_with(&fs, &small());
        let now = lane_files(&fs);
        assert!(before.iter().all(|file| !now.contains(file)), "start {start}");
        assert_eq!(payloads(&store, table(1)), rows(0..100));
        before = now;
    }
}

#[test]
fn a_replay_that_is_cut_short_while_it_spills_is_begun_again() {
    let log = long_log();
    for operation in [Operation::Create, Operation::Write, Operation::SyncData, Operation::SyncDir] {
        for nth in [1, 2, 5] {
            let fs = log.snapshot();
            let path = if operation == Operation::SyncDir { "lanes/0" } else { ".lane" };
            let before = contents(&fs);
            let path_contains = Some(path.to_owned());
            let error = FaultKind::Eio;
            fs.fail(penstock_store::fs::Fault { operation, nth, path_contains, error, sticky: true });
            let what = format!("{operation:?} {nth}");
            try_open_with(&kit::shared(&fs), &small()).expect_err("should be refused");
            assert!(contents(&fs) == before, "{what}: a refused start changed files");
            fs.clear_faults();
            expect_rows(&fs, &small(), &rows(0..100), &what);
        }
    }
}

#[test]
fn a_refused_start_takes_what_it_spilled_away_again() {
    let fs = long_log();
    let last = segments(&fs).remove(3);
    let byte = fs.dump(&last).expect("should be there")[4096 + 200];
    fs.overwrite(&last, 4096 + 200, &[byte ^ 1]).expect("should be there");
    let before = contents(&fs);
    let error = try_open_with(&kit::shared(&fs), &small()).expect_err("should be refused");
    assert!(error.to_string().contains("damaged at byte"), "{error}");
    assert!(contents(&fs) == before, "a refused start changed files");
}

#[test]
fn a_full_disk_keeps_no_node_from_replaying_a_long_log() {
    let fs = long_log();
    fail(&fs, Operation::Write, ".lane", FaultKind::Enospc, true);
    let store = open_with(&fs, &small());
    assert_eq!(payloads(&store, table(1)), rows(0..100));
    assert_eq!(store.recovery().spilled, 0);
    fs.clear_faults();
    checkpoint(&store);
    expect_rows(&fs, &small(), &rows(0..100), "in memory after all");
}

#[test]
fn seals_and_commits_in_a_long_log_come_to_the_same_with_little_memory() {
    let fs = MemoryFileSystem::new();
    let store = open_with(&fs, &options());
    define(&store, table(1));
    append_rows(&store, 0..20);
    let first = seal(&store).expect("should seal");
    append_rows(&store, 20..40);
    let second = seal(&store).expect("should seal");
    append_rows(&store, 40..50);
    commit(&store, &first).expect("should commit");
    // Many buckets, and records that reach over two of them.
    for n in 0..40 {
        let record = [1, 2].map(|b| slice(table(1), bucket(b), row(1000 + n, 2000)));
        store.append(record.into()).expect("should queue").wait_blocking().expect("should be durable");
    }
    let facts = |store: &Store| -> Vec<(i64, Option<u64>, Vec<Bytes>)> {
        let views = store.view(table(1)).generations;
        let slices = |g: &penstock_store::GenerationView| g.slices().expect("should be readable");
        let fact = |g: &penstock_store::GenerationView| {
            let payloads = slices(g).into_iter().map(|s| s.payload).collect();
            (g.generation().bucket.start, g.current_seal().map(|s| s.sequence), payloads)
        };
        views.iter().map(fact).collect()
    };
    let expected = facts(&store);
    assert_eq!(expected.len(), 4);
    drop(store);
    for replay_bytes in [0, 1000, 10_000, BUDGET, u64::MAX] {
        let options = Options { replay_bytes, ..options() };
        let fs = fs.snapshot();
        for round in 0..3 {
            let store = open_with(&fs, &options);
            let what = format!("{replay_bytes} bytes, start {round}");
            assert!(facts(&store) == expected, "{what}");
            if round == 1 {
                checkpoint(&store);
                assert!(facts(&store) == expected, "{what}, checkpointed");
            }
        }
        for seed in 0..SEEDS {
            let store = open_with(&fs.snapshot().crash(seed), &options);
            assert!(facts(&store) == expected, "{replay_bytes} bytes, power loss {seed}");
            let seal = second.seal;
            let known = expected[0].1;
            assert_eq!(known, Some(seal.sequence));
            commit(&store, &second).expect("should commit");
            checkpoint(&store);
            assert!(facts(&store) == expected[1..]);
        }
    }
}

#[test]
fn rows_of_one_group_stay_in_order_when_what_was_spilled_is_merged() {
    let options = Options { replay_bytes: 0, lane_files: 6, ..options() };
    let fs = MemoryFileSystem::new();
    let store = open_with(&fs, &options);
    define(&store, table(1));
    // The first one of each page is the shorter one, whose file is merged before the other's.
    let expected: Vec<Bytes> = (0..40).map(|n| row(n, if n % 2 == 0 { 1600 } else { 2200 })).collect();
    let push = |row: &Bytes| store.append(vec![slice(table(1), bucket(0), row.clone())]).expect("should queue");
    let waiting: Vec<_> = expected.iter().map(push).collect();
    for pending in waiting {
        pending.wait_blocking().expect("should be durable");
    }
    drop(store);
    for start in 0..4 {
        let store = open_with(&fs, &options);
        assert!(payloads(&store, table(1)) == expected, "start {start}");
        checkpoint(&store);
        checkpoint(&store);
        assert!(payloads(&store, table(1)) == expected, "start {start}, checkpointed");
    }
}

#[test]
fn progress_is_told_and_comes_to_its_end() {
    let fs = long_log();
    let progress = Progress::new();
    let store = Store::open_telling(kit::shared(&fs), std::path::Path::new(kit::DIR), &small(), &progress);
    let report = store.expect("should open").recovery();
    let reading = progress.reading();
    assert_eq!(reading.done, reading.total);
    assert!(reading.total >= report.bytes && report.bytes > 300_000, "{reading:?} {report:?}");
}

#[test]
fn the_replay_rate_is_measured_by_a_long_replay_and_kept() {
    let options = Options { segment_bytes: 8 << 20, ..options() };
    let fs = MemoryFileSystem::new();
    let store = open_with(&fs, &options);
    define(&store, table(1));
    assert_eq!(store.replay_rate(), None);
    kit::append(&store, "short");
    drop(store);
    let store = open_with(&fs, &options);
    assert_eq!(store.replay_rate(), None, "too short to tell");
    for _ in 0..9 {
        kit::append(&store, vec![1; 2 << 20]);
    }
    drop(store);
    let store = open_with(&fs, &options);
    let rate = store.replay_rate().expect("should be measured");
    assert_eq!(store.recovery().rate, Some(rate));
    assert_eq!(store.expected_replay_rate(), Some(rate));
    checkpoint(&store);
    drop(store);
    for start in 0..6 {
        let store = open_with(&fs, &options);
        assert_eq!(store.recovery().rate, None);
        assert_eq!(store.replay_rate(), Some(rate), "start {start}: a short replay says nothing");
    }
}
