//! A full disk: rows are refused, what empties the disk goes on, and when there is room again so do the rows.

use std::path::Path;
use std::time::{Duration, Instant};

use penstock_store::fs::{FileSystem, MemoryFileSystem};
use penstock_store::{AppendError, Store};

use crate::kit::{self, append, bucket, commit, define, open_memory, payloads, seal, slice, table, try_append};

const SEGMENT_FILE: u64 = (1 << 16) + 4096;

fn used(fs: &MemoryFileSystem) -> u64 {
    fs.files().iter().map(|path| fs.dump(path).map_or(0, |bytes| bytes.len() as u64)).sum()
}

/// Until the pool has made its files.
fn settle(fs: &MemoryFileSystem) {
    let spare = |path: &std::path::PathBuf| path.to_string_lossy().contains("spare-");
    let deadline = Instant::now() + Duration::from_secs(5);
    while fs.files().iter().filter(|path| spare(path)).count() < 2 {
        assert!(Instant::now() < deadline, "the pool makes no files");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(5));
}

/// Appends until it is refused; answers how many rows were taken.
fn fill(store: &Store) -> u64 {
    for taken in 0..10_000 {
        match try_append(store, vec![7; 3000]) {
            Ok(_) => {}
            Err(AppendError::NoSpace(_)) => return taken,
            Err(error) => panic!("a full disk is no reason for: {error}"),
        }
    }
    panic!("the disk never gets full");
}

fn recovers(store: &Store) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match try_append(store, "there is room again") {
            Ok(_) => return,
            Err(AppendError::NoSpace(_)) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => panic!("appends do not recover: {error}"),
        }
    }
}

#[test]
fn rows_are_refused_while_seals_and_commits_go_on_and_empty_the_disk() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    append(&store, "first");
    settle(&fs);
    fs.set_capacity(used(&fs) + 3 * SEGMENT_FILE);
    let taken = fill(&store);
    assert!(taken > 40, "{taken} rows until the disk was full");
    assert_eq!(store.poisoned(), None);
    assert_eq!(payloads(&store, table(1)).len() as u64, taken + 1);
    // A definition goes on as well: it may be what an empty table is made of.
    define(&store, table(2));
    let sealed = seal(&store).expect("should seal on a full disk");
    assert_eq!(sealed.generation.totals().rows, taken + 1);
    commit(&store, &sealed).expect("should commit on a full disk");
    assert_eq!(store.unflushed_rows(), 0);
    recovers(&store);
    assert!(fill(&store) > 40, "the log gave its room back");
}

#[test]
fn appends_recover_by_themselves_when_space_returns() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    settle(&fs);
    fs.set_capacity(used(&fs));
    let taken = fill(&store);
    assert!(matches!(try_append(&store, vec![7; 3000]), Err(AppendError::NoSpace(_))));
    fs.set_capacity(u64::MAX);
    recovers(&store);
    drop(store);
    assert_eq!(payloads(&open_memory(&fs), table(1)).len() as u64, taken + 1);
}

#[test]
fn rows_never_use_up_the_room_of_the_seals() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    settle(&fs);
    fs.set_capacity(used(&fs));
    let mut rows = fill(&store);
    // Small groups until the segment is full and the reserve is in use: it is large, and none of it is for rows.
    for n in 1..=300 {
        let opened = kit::segments(&fs).len();
        define(&store, table(1000 + n));
        if kit::segments(&fs).len() > opened {
            break;
        }
        // Whatever still fits beside a whole reserve may be taken.
        rows += fill(&store);
    }
    assert_eq!(fill(&store), 0, "rows went into the reserve");
    let small = store.append(vec![slice(table(1), bucket(0), "x")]).expect("should queue").wait_blocking();
    assert!(matches!(small, Err(AppendError::NoSpace(_))), "{small:?}");
    let sealed = seal(&store).expect("should seal from the reserve");
    assert_eq!(sealed.generation.totals().rows, rows);
    commit(&store, &sealed).expect("should commit from the reserve");
    recovers(&store);
}

#[test]
fn a_definition_that_found_no_room_leaves_no_trace() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    settle(&fs);
    fs.set_capacity(used(&fs));
    // Large ones, each in a segment of its own, for which there is no room.
    let body = bytes::Bytes::from(vec![b'x'; 100_000]);
    let large = penstock_store::Define { table: table(1), schema_version: 1, body };
    let answer = store.define(large).expect("should queue").wait_blocking();
    assert!(matches!(answer, Err(AppendError::NoSpace(_))), "{answer:?}");
    let answer = try_append(&store, "rows of an unknown table");
    assert!(matches!(answer, Err(AppendError::Undefined(..))), "{answer:?}");
    fs.set_capacity(u64::MAX);
    define(&store, table(1));
    append(&store, "known now");
    let killed = fs.crash_process();
    drop(store);
    assert_eq!(payloads(&open_memory(&killed), table(1)), ["known now"]);
}

#[test]
fn a_large_record_without_room_is_refused_and_takes_nothing() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    settle(&fs);
    let before = used(&fs);
    fs.set_capacity(before + 10_000);
    for _ in 0..3 {
        let answer = try_append(&store, vec![1; 200_000]);
        assert!(matches!(answer, Err(AppendError::NoSpace(_))), "{answer:?}");
    }
    append(&store, "a small one fits");
    // The manifest may have taken a little of what was left.
    assert!(used(&fs) <= before + 10_000);
    assert!(!fs.files().iter().any(|path| path.ends_with("oversized")));
}

#[test]
fn a_node_starts_on_a_full_disk() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    append(&store, "a row");
    settle(&fs);
    drop(store);
    fs.set_capacity(used(&fs));
    for _ in 0..5 {
        let store = open_memory(&fs);
        // The log says more at each start, so each start needs another segment.
        assert_eq!(payloads(&store, table(1)).len(), 1);
        drop(store);
    }
    let store = open_memory(&fs);
    let sealed = seal(&store).expect("should seal");
    commit(&store, &sealed).expect("should commit");
    store.close().expect("should have room for the manifest");
}

#[test]
fn what_a_crash_left_half_made_is_cleared_away() {
    let fs = MemoryFileSystem::new();
    drop(open_memory(&fs));
    let dir = Path::new(kit::DIR).join("wal/shard-000");
    for (name, len) in [("oversized", 500_000), ("starting", 70_000), ("spare-77", 12), ("spare-78", 0)] {
        let file = fs.create(&dir.join(name)).expect("should be made");
        file.truncate(len).expect("should grow");
    }
    let store = open_memory(&fs);
    settle(&fs);
    let room = penstock_store::checkpoint::edits::ROOM;
    assert!(used(&fs) < 5 * SEGMENT_FILE + 2 * room, "{} bytes", used(&fs));
    let names = fs.list(&dir).expect("should be listed");
    assert!(!names.iter().any(|n| n == "oversized" || n == "starting"), "{names:?}");
    drop(store);
}

#[test]
fn a_start_on_a_full_disk_without_a_spare_segment_takes_a_short_one() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    append(&store, "first");
    settle(&fs);
    // As if seals and commits had used them up.
    let fs = fs.crash_process();
    drop(store);
    let is_spare = |path: &&std::path::PathBuf| path.to_string_lossy().contains("spare-");
    for path in fs.files().iter().filter(is_spare) {
        fs.remove(path).expect("should be removed");
    }
    fs.set_capacity(used(&fs) + 8 * 4096);
    assert!(kit::try_open_memory(&fs).is_err(), "not even a short one");
    fs.set_capacity(used(&fs) + 20 * 4096);
    let store = open_memory(&fs);
    assert_eq!(payloads(&store, table(1)).len(), 1);
    assert!(matches!(try_append(&store, "a row"), Err(AppendError::NoSpace(_))));
    let sealed = seal(&store).expect("should seal on a full disk");
    commit(&store, &sealed).expect("should commit on a full disk");
    fs.set_capacity(u64::MAX);
    recovers(&store);
    drop(store);
    assert_eq!(payloads(&open_memory(&fs), table(1)).len(), 1);
}
