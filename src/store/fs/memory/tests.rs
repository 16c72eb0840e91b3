//! What the memory model promises by itself: power loss, killed processes, faults, space.

mod whole;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use super::super::raw_os_error;
use super::*;

/// Enough for every mood of a power loss to come up many times.
const SEEDS: std::ops::Range<u64> = 0..200;

fn path(name: &str) -> &Path {
    Path::new(name)
}

/// A durable, empty file.
fn durable(fs: &MemoryFileSystem, name: &str) -> Arc<dyn File> {
    let file = fs.create(path(name)).unwrap();
    fs.sync_dir(path("/")).unwrap();
    file
}

fn synced(fs: &MemoryFileSystem, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = durable(fs, name);
    file.write_all_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    file
}

fn fault(operation: Operation, nth: u64, error: FaultKind) -> Fault {
    Fault { operation, nth, path_contains: None, error, sticky: false }
}

/// What a file can be after a power loss, over all seeds; `None` where its name is gone.
fn outcomes(fs: &MemoryFileSystem, name: &str) -> BTreeSet<Option<Vec<u8>>> {
    SEEDS.map(|seed| fs.snapshot().crash(seed).dump(path(name)).ok()).collect()
}

fn names(fs: &MemoryFileSystem) -> BTreeSet<Vec<String>> {
    SEEDS.map(|seed| fs.snapshot().crash(seed).list(path("/")).unwrap()).collect()
}

fn code<T>(result: io::Result<T>) -> Option<i32> {
    raw_os_error(&result.map(drop).expect_err("should fail"))
}

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.map(drop).expect_err("should fail").kind()
}

#[test]
fn synced_bytes_survive_every_power_loss() {
    let fs = MemoryFileSystem::new();
    let file = synced(&fs, "a", &[1; 10_000]);
    file.write_all_at(&[2; 10_000], 10_000).unwrap();
    for seed in SEEDS {
        let after = fs.snapshot().crash(seed).dump(path("a")).unwrap();
        assert_eq!(after[..10_000], [1; 10_000], "seed {seed}");
        assert!(after[10_000..].iter().all(|byte| [0, 2].contains(byte)), "seed {seed}");
    }
}

#[test]
fn unsynced_pages_are_kept_dropped_or_torn_at_sectors() {
    let fs = MemoryFileSystem::new();
    let file = synced(&fs, "a", &[1; 8192]);
    file.write_all_at(&[2; 8192], 0).unwrap();
    let outcomes = outcomes(&fs, "a");
    let mut pages = BTreeSet::new();
    for bytes in outcomes.into_iter().flatten() {
        assert!(bytes.chunks(512).all(|sector| sector == [1; 512] || sector == [2; 512]));
        pages.insert(bytes.chunks(4096).map(|page| (page == [1; 4096], page == [2; 4096])).collect::<Vec<_>>());
    }
    // Old, new, torn: each page for itself.
    assert_eq!(pages.len(), 9);
}

#[test]
fn an_unsynced_length_is_the_old_one_the_new_one_or_a_page_in_between() {
    let fs = MemoryFileSystem::new();
    let file = synced(&fs, "a", &[1; 100]);
    file.write_all_at(&[2; 9000], 100).unwrap();
    let lengths: BTreeSet<_> = outcomes(&fs, "a").into_iter().flatten().map(|bytes| bytes.len()).collect();
    assert_eq!(lengths, BTreeSet::from([100, 4096, 8192, 9100]));
    assert!(outcomes(&fs, "a").into_iter().flatten().any(|bytes| bytes.len() == 9100 && bytes[5000..] == [0; 4100]));
    file.sync_data().unwrap();
    file.truncate(50).unwrap();
    let lengths: BTreeSet<_> = outcomes(&fs, "a").into_iter().flatten().map(|bytes| bytes.len()).collect();
    assert_eq!(lengths, BTreeSet::from([50, 9100]));
    file.sync_data().unwrap();
    assert!(outcomes(&fs, "a").into_iter().flatten().all(|bytes| bytes.len() == 50));
    file.allocate(20_000).unwrap();
    file.sync_data().unwrap();
    assert!(outcomes(&fs, "a").into_iter().flatten().all(|bytes| bytes.len() == 20_000));
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let fs = MemoryFileSystem::new();
    synced(&fs, "a", &[1; 50_000]).write_all_at(&[2; 80_000], 0).unwrap();
    let outcome = |seed| fs.snapshot().crash(seed).dump(path("a")).unwrap();
    assert!((0..50).all(|seed| outcome(seed) == outcome(seed)));
    assert!(outcomes(&fs, "a").len() > 50);
}

#[test]
fn a_synced_file_without_a_synced_entry_may_vanish() {
    let fs = MemoryFileSystem::new();
    let file = fs.create(path("a")).unwrap();
    file.write_all_at(b"synced", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(outcomes(&fs, "a"), BTreeSet::from([None, Some(b"synced".to_vec())]));
    fs.sync_dir(path("/")).unwrap();
    assert_eq!(outcomes(&fs, "a"), BTreeSet::from([Some(b"synced".to_vec())]));
}

#[test]
fn a_directory_takes_its_files_along() {
    let fs = MemoryFileSystem::new();
    fs.create_dir_all(path("/data/0")).unwrap();
    fs.create(path("/data/0/a")).unwrap().sync_data().unwrap();
    fs.sync_dir(path("/data/0")).unwrap();
    assert!(outcomes(&fs, "/data/0/a").contains(&None), "neither /data nor /data/0 is durable in its parent");
    fs.sync_dir(path("/data")).unwrap();
    assert!(outcomes(&fs, "/data/0/a").contains(&None), "/data is not durable");
    for seed in SEEDS {
        let after = fs.snapshot().crash(seed);
        if after.list(path("/data")).is_err() {
            after.create_dir_all(path("/data/0")).unwrap();
            assert_eq!(after.files(), [""; 0].map(path), "what was lost does not come back with its directory");
        }
    }
    fs.sync_dir(path("/")).unwrap();
    assert_eq!(outcomes(&fs, "/data/0/a"), BTreeSet::from([Some(Vec::new())]));
}

#[test]
fn changes_of_names_are_lost_from_the_end() {
    let fs = MemoryFileSystem::new();
    synced(&fs, "old", b"old");
    fs.create(path("new")).unwrap();
    fs.rename(path("old"), path("older")).unwrap();
    fs.remove(path("new")).unwrap();
    let expected: [&[&str]; 4] = [&["old"], &["new", "old"], &["new", "older"], &["older"]];
    assert_eq!(names(&fs), expected.map(|names| names.iter().map(|name| name.to_string()).collect()).into());
    fs.sync_dir(path("/")).unwrap();
    assert_eq!(names(&fs), BTreeSet::from([vec!["older".to_owned()]]));
}

#[test]
fn a_file_that_was_replaced_or_removed_may_come_back() {
    let fs = MemoryFileSystem::new();
    synced(&fs, "current", b"one");
    synced(&fs, "next", b"two");
    fs.rename(path("next"), path("current")).unwrap();
    let both = BTreeSet::from([Some(b"one".to_vec()), Some(b"two".to_vec())]);
    assert_eq!(outcomes(&fs, "current"), both);
    fs.sync_dir(path("/")).unwrap();
    fs.remove(path("current")).unwrap();
    assert_eq!(outcomes(&fs, "current"), BTreeSet::from([None, Some(b"two".to_vec())]));
}

#[test]
fn a_rename_between_directories_is_one_change() {
    let fs = MemoryFileSystem::new();
    fs.create_dir_all(path("x")).unwrap();
    fs.create_dir_all(path("y")).unwrap();
    fs.sync_dir(path("/")).unwrap();
    fs.create(path("x/a")).unwrap();
    fs.sync_dir(path("x")).unwrap();
    fs.rename(path("x/a"), path("y/b")).unwrap();
    fs.create(path("y/c")).unwrap();
    let found = |fs: &MemoryFileSystem| (fs.dump(path("x/a")).is_ok(), fs.dump(path("y/b")).is_ok());
    let outcomes: BTreeSet<_> = SEEDS.map(|seed| found(&fs.snapshot().crash(seed))).collect();
    assert_eq!(outcomes, BTreeSet::from([(true, false), (false, true)]));
    for seed in SEEDS {
        let after = fs.snapshot().crash(seed);
        assert!(after.dump(path("y/c")).is_err() || found(&after) == (false, true), "of y it is a prefix, seed {seed}");
    }
    fs.sync_dir(path("y")).unwrap();
    fs.sync_dir(path("x")).unwrap();
    assert!(SEEDS.into_iter().all(|seed| found(&fs.snapshot().crash(seed)) == (false, true)));
    // The target's sync takes along what the rename stands on in the other directory.
    fs.create(path("x/d")).unwrap();
    fs.rename(path("x/d"), path("y/d")).unwrap();
    fs.sync_dir(path("y")).unwrap();
    assert!(SEEDS.into_iter().all(|seed| fs.snapshot().crash(seed).files() == ["y/b", "y/c", "y/d"].map(path)));
}

#[test]
fn a_failed_sync_is_final_for_the_pages_it_lost() {
    let fs = MemoryFileSystem::new();
    let file = synced(&fs, "a", &[1; 8192]);
    file.write_all_at(&[2; 4096], 0).unwrap();
    fs.fail(fault(Operation::SyncData, 1, FaultKind::Eio));
    assert_eq!(code(file.sync_data()), Some(5));
    file.sync_data().unwrap();
    assert_eq!(fs.dump(path("a")).unwrap()[..4096], [2; 4096], "the cache has it");
    let first_page = |fs: &MemoryFileSystem| -> BTreeSet<_> {
        outcomes(fs, "a").into_iter().map(|bytes| bytes.expect("should be there")[..4096].to_vec()).collect()
    };
    let outcomes = first_page(&fs);
    assert!(outcomes.contains(&vec![1; 4096]), "it may be lost");
    assert!(outcomes.contains(&vec![2; 4096]), "it may be on disk all the same");
    // A killed process does not change that.
    let fs = fs.crash_process();
    let file = fs.open(path("a"), OpenMode::ReadWrite).unwrap();
    file.sync_data().unwrap();
    assert!(first_page(&fs).contains(&vec![1; 4096]));
    // Any byte that is written again makes its whole page dirty.
    file.write_all_at(&[2], 17).unwrap();
    file.sync_data().unwrap();
    assert_eq!(first_page(&fs), BTreeSet::from([vec![2; 4096]]));
}

#[test]
fn a_failed_sync_is_final_for_the_length_it_lost() {
    let fs = MemoryFileSystem::new();
    let file = synced(&fs, "a", &[1; 100]);
    let lengths = || -> BTreeSet<_> { outcomes(&fs, "a").into_iter().flatten().map(|bytes| bytes.len()).collect() };
    file.write_all_at(&[2; 5000], 100).unwrap();
    fs.fail(fault(Operation::SyncData, 1, FaultKind::Eio));
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    assert_eq!(lengths(), BTreeSet::from([100, 4096, 5100]));
    // Bytes that are written again and synced are in the file.
    file.write_all_at(&[2], 5000).unwrap();
    file.sync_data().unwrap();
    assert_eq!(lengths(), BTreeSet::from([5100]));
}

#[test]
fn a_failed_sync_may_reach_some_pages() {
    let fs = MemoryFileSystem::new();
    let file = synced(&fs, "a", &[1; 8192]);
    file.write_all_at(&[2; 8192], 0).unwrap();
    fs.fail(fault(Operation::SyncData, 1, FaultKind::ShortThenError { bytes: 4096 }));
    assert!(file.sync_data().is_err());
    let outcomes = outcomes(&fs, "a");
    assert!(outcomes.iter().flatten().all(|bytes| bytes[..4096] == [2; 4096]));
    assert!(outcomes.iter().flatten().any(|bytes| bytes[4096..] == [1; 4096]));
}

#[test]
fn a_killed_process_loses_nothing_and_makes_nothing_durable() {
    let fs = MemoryFileSystem::new();
    let file = synced(&fs, "a", b"one");
    file.write_all_at(b"two", 0).unwrap();
    fs.create(path("b")).unwrap();
    let after = fs.crash_process();
    assert_eq!(after.dump(path("a")).unwrap(), b"two");
    assert_eq!(after.list(path("/")).unwrap(), ["a", "b"]);
    assert!(outcomes(&after, "a").contains(&Some(b"one".to_vec())));
    assert!(outcomes(&after, "b").contains(&None));
    after.open(path("a"), OpenMode::Read).unwrap().sync_data().unwrap();
    assert_eq!(outcomes(&after, "a"), BTreeSet::from([Some(b"two".to_vec())]));
}

#[test]
fn a_crash_ends_handles_and_locks() {
    for crash in [|fs: &MemoryFileSystem| fs.crash(1), MemoryFileSystem::crash_process] {
        let fs = MemoryFileSystem::new();
        let file = synced(&fs, "a", b"x");
        let lock = fs.lock(path("LOCK")).unwrap();
        fs.sync_dir(path("/")).unwrap();
        let after = crash(&fs);
        assert!(file.write_all_at(b"y", 0).is_err() && file.sync_data().is_err() && file.len().is_err());
        assert!(fs.list(path("/")).is_err() && fs.create(path("b")).is_err());
        let held = after.lock(path("LOCK")).unwrap();
        assert!(held.is_some());
        drop((lock, file));
        assert!(after.lock(path("LOCK")).unwrap().is_none(), "the old lock's end is not the new one's");
        assert_eq!(after.dump(path("a")).unwrap(), b"x");
        assert_eq!(fs.dump(path("a")).unwrap(), b"x");
        after.set_capacity(100);
        after.remove(path("a")).unwrap();
        after.remove(path("LOCK")).unwrap();
        assert_eq!(after.available_bytes(path("/")).unwrap(), 100, "no handle of old holds space");
    }
}

#[test]
fn faults_come_at_the_nth_matching_call_and_once() {
    let fs = MemoryFileSystem::new();
    let (a, b) = (durable(&fs, "a.wal"), durable(&fs, "b.lane"));
    fs.fail(Fault { path_contains: Some(".wal".to_owned()), ..fault(Operation::Write, 2, FaultKind::Enospc) });
    a.write_all_at(b"1", 0).unwrap();
    b.write_all_at(b"1", 0).unwrap();
    b.write_all_at(b"2", 0).unwrap();
    a.sync_data().unwrap();
    let error = a.write_all_at(b"2", 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(error.to_string(), "write a.wal: No space left on device (os error 28)");
    assert_eq!(fs.dump(path("a.wal")).unwrap(), b"1", "nothing was written");
    a.write_all_at(b"3", 0).unwrap();
}

#[test]
fn sticky_faults_stay_until_they_are_cleared() {
    let fs = MemoryFileSystem::new();
    durable(&fs, "a");
    fs.fail(Fault { sticky: true, ..fault(Operation::Open, 2, FaultKind::Emfile) });
    let open = || fs.open(path("a"), OpenMode::Read);
    open().unwrap();
    assert_eq!((code(open()), code(open()), code(fs.lock(path("LOCK")))), (Some(24), Some(24), Some(24)));
    fs.clear_faults();
    open().unwrap();
}

#[test]
fn every_operation_can_fail_and_then_has_no_effect() {
    let fs = MemoryFileSystem::new();
    let file = synced(&fs, "a", b"kept");
    let calls: [(Operation, &dyn Fn() -> io::Result<()>); 15] = [
        (Operation::Create, &|| fs.create(path("b")).map(drop)),
        (Operation::Create, &|| fs.create_dir_all(path("c"))),
        (Operation::Open, &|| fs.open(path("a"), OpenMode::Read).map(drop)),
        (Operation::Write, &|| file.write_all_at(b"lost", 0)),
        (Operation::SyncData, &|| file.sync_data()),
        (Operation::SyncDir, &|| fs.sync_dir(path("/"))),
        (Operation::SyncFs, &|| fs.sync_fs(path("/"))),
        (Operation::Rename, &|| fs.rename(path("a"), path("b"))),
        (Operation::Remove, &|| fs.remove(path("a"))),
        (Operation::Remove, &|| fs.remove_dir_all(path("/"))),
        (Operation::Allocate, &|| file.allocate(100)),
        (Operation::Allocate, &|| file.truncate(1)),
        (Operation::Read, &|| file.read_exact_at(&mut [0], 0)),
        (Operation::List, &|| fs.list(path("/")).map(drop)),
        (Operation::List, &|| fs.list_dirs(path("/")).map(drop)),
    ];
    let before = fs.counters();
    for (operation, call) in calls {
        fs.fail(fault(operation, 1, FaultKind::Eio));
        assert_eq!(code(call()), Some(5), "{operation:?}");
        assert_eq!(fs.files(), [path("a")], "{operation:?}");
        assert_eq!(fs.dump(path("a")).unwrap(), b"kept", "{operation:?}");
    }
    assert_eq!(fs.counters(), before);
}

#[test]
fn a_short_write_or_read_does_a_part_and_fails() {
    let fs = MemoryFileSystem::new();
    let file = synced(&fs, "a", b"......");
    fs.fail(fault(Operation::Write, 1, FaultKind::ShortThenError { bytes: 3 }));
    let bufs = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
    assert_eq!(code(file.write_vectored_at(&bufs, 1)), Some(5));
    assert_eq!(fs.dump(path("a")).unwrap(), b".abc..");
    fs.fail(fault(Operation::Read, 1, FaultKind::ShortThenError { bytes: 2 }));
    let mut buf = [0; 4];
    assert_eq!(code(file.read_exact_at(&mut buf, 1)), Some(5));
    assert_eq!(&buf, b"ab\0\0");
}

#[test]
fn faults_find_a_file_by_its_old_and_its_new_name() {
    let fs = MemoryFileSystem::new();
    let file = durable(&fs, "spare");
    fs.rename(path("spare"), path("segment")).unwrap();
    for name in ["spare", "segment"] {
        fs.fail(Fault { path_contains: Some(name.to_owned()), ..fault(Operation::SyncData, 1, FaultKind::Eio) });
        assert!(file.sync_data().is_err());
    }
    fs.fail(Fault { path_contains: Some("to".to_owned()), ..fault(Operation::Rename, 1, FaultKind::Eio) });
    assert!(fs.rename(path("segment"), path("to")).is_err());
}

#[test]
fn a_full_disk_takes_what_fits_and_recovers_with_space() {
    let fs = MemoryFileSystem::new();
    fs.set_capacity(10_000);
    let file = durable(&fs, "a");
    file.allocate(8000).unwrap();
    assert_eq!(fs.available_bytes(path("/")).unwrap(), 2000);
    assert_eq!(kind(file.allocate(10_001)), ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 8000);
    file.write_all_at(&[1; 8000], 0).unwrap();
    assert_eq!(kind(file.write_all_at(&[2; 5000], 7000)), ErrorKind::StorageFull);
    assert_eq!(fs.dump(path("a")).unwrap(), [vec![1; 7000], vec![2; 3000]].concat());
    file.write_all_at(&[3; 10_000], 0).unwrap();
    let other = durable(&fs, "b");
    assert_eq!(kind(other.write_all_at(b"x", 0)), ErrorKind::StorageFull);
    fs.set_capacity(10_001);
    other.write_all_at(b"x", 0).unwrap();
    // A removed file's space is free once its last handle is gone, and the capacity outlives a crash.
    fs.remove(path("a")).unwrap();
    assert_eq!(fs.available_bytes(path("/")).unwrap(), 0);
    drop(file);
    assert_eq!(fs.available_bytes(path("/")).unwrap(), 10_000);
    let after = fs.crash_process();
    assert_eq!(kind(after.open(path("b"), OpenMode::ReadWrite).unwrap().allocate(10_002)), ErrorKind::StorageFull);
}

#[test]
fn a_full_disk_can_still_be_locked() {
    let fs = MemoryFileSystem::new();
    fs.set_capacity(0);
    assert!(fs.lock(path("LOCK")).unwrap().is_some());
}

#[test]
fn counts_bytes_and_syncs() {
    let fs = MemoryFileSystem::new();
    synced(&fs, "a", &[1; 300]).write_vectored_at(&[IoSlice::new(b"ab"), IoSlice::new(b"c")], 0).unwrap();
    fs.sync_fs(path("/")).unwrap();
    assert_eq!(fs.counters(), Counters { bytes_written: 303, syncs: 1, dir_syncs: 1, fs_syncs: 1 });
}

#[test]
fn damage_is_durable_and_a_snapshot_is_apart() {
    let fs = MemoryFileSystem::new();
    synced(&fs, "a", &[1; 5000]);
    let other = fs.snapshot();
    fs.overwrite(path("a"), 4095, &[9, 9]).unwrap();
    fs.set_len(path("a"), 4097).unwrap();
    let damaged = [vec![1; 4095], vec![9, 9]].concat();
    assert_eq!(outcomes(&fs, "a"), BTreeSet::from([Some(damaged)]));
    assert_eq!(other.dump(path("a")).unwrap(), [1; 5000]);
    assert_eq!(kind(fs.dump(path("missing"))), ErrorKind::NotFound);
    assert_eq!(kind(fs.dump(path("../a"))), ErrorKind::InvalidInput);
}

#[test]
fn files_out_of_reach_are_forgotten() {
    let fs = MemoryFileSystem::new();
    for _ in 0..100 {
        synced(&fs, "a", &[1; 5000]);
        fs.remove(path("a")).unwrap();
        fs.sync_dir(path("/")).unwrap();
    }
    assert_eq!(fs.state.lock().inodes.len(), 0);
}
