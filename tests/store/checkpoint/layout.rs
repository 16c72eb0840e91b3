//! A start refuses what it cannot believe, and changes nothing then: lanes, lane files, the shards' manifests, and a log that lacks
//! what they leave to it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use penstock_store::fs::{FileSystem, MemoryFileSystem};
use penstock_store::{OpenError, Options, Store};

use super::{append_rows, checkpoint, expect_rows, lane_files, open, open_with, options, row, rows, try_open_with};
use crate::kit::{self, append, bucket, contents, define, payloads, seal, segments, slice, table};

const EDITS: &str = "/data/wal/shard-000/edits-000000000001";

/// Two lane files, and rows in the log behind the last checkpoint.
fn used(options: &Options) -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    let store = open_with(&fs, options);
    define(&store, table(1));
    append_rows(&store, 0..30);
    checkpoint(&store);
    seal(&store).expect("should seal");
    append_rows(&store, 30..40);
    checkpoint(&store);
    append_rows(&store, 40..45);
    settled(&fs, store)
}

/// Ends the store once it has left its mark.
fn settled(fs: &MemoryFileSystem, store: Store) -> MemoryFileSystem {
    std::thread::sleep(std::time::Duration::from_millis(20));
    drop(store);
    fs.snapshot()
}

fn refusal_with(fs: &MemoryFileSystem, options: &Options) -> OpenError {
    let before = contents(fs);
    let error = try_open_with(&kit::shared(fs), options).expect_err("should be refused");
    assert!(contents(fs) == before, "a refused start changed files: {error}");
    error
}

fn refusal(fs: &MemoryFileSystem) -> OpenError {
    refusal_with(fs, &options())
}

fn flip(fs: &MemoryFileSystem, path: &Path, at: u64) {
    let byte = fs.dump(path).expect("should be there")[at as usize];
    fs.overwrite(path, at, &[byte ^ 0x10]).expect("should be there");
}

#[test]
fn a_lane_without_its_guard_is_a_missing_mount() {
    let fs = used(&options());
    fs.remove(Path::new("/data/lanes/0/LANE")).expect("should be there");
    let error = refusal(&fs).to_string();
    assert!(error.contains("lanes/0") && error.contains("mounted"), "{error}");
    let fs = used(&options());
    fs.remove_dir_all(Path::new("/data/lanes")).expect("should be there");
    let error = refusal(&fs).to_string();
    assert!(error.contains("lanes/0") && error.contains("mounted"), "{error}");
}

#[test]
fn a_damaged_guard_and_another_nodes_lane_are_refused() {
    let guard = Path::new("/data/lanes/0/LANE");
    let fs = used(&options());
    for at in 0..fs.dump(guard).expect("should be there").len() as u64 {
        let fs = fs.snapshot();
        flip(&fs, guard, at);
        let error = refusal(&fs);
        assert!(matches!(&error, OpenError::Corrupt { path, .. } if path.ends_with("LANE")), "{error}");
    }
    let other = used(&options());
    fs.overwrite(guard, 0, &other.dump(guard).expect("should be there")).expect("should be there");
    let error = refusal(&fs);
    assert!(matches!(error, OpenError::Layout { .. }), "{error}");
}

#[test]
fn lanes_that_were_mixed_up_are_refused() {
    let lanes = |names: [&str; 2]| Options { lanes: names.map(PathBuf::from).into(), ..options() };
    let fs = used(&lanes(["/a", "/b"]));
    let error = refusal_with(&fs, &lanes(["/b", "/a"]));
    assert!(error.to_string().contains("lane 1"), "{error}");
    expect_rows(&fs, &lanes(["/a", "/b"]), &rows(0..45), "in order");
}

#[test]
fn a_changed_number_of_lanes_is_refused() {
    let fs = used(&options());
    let two = Options { lanes: vec!["/data/lanes/0".into(), "/more".into()], ..options() };
    let error = refusal_with(&fs, &two);
    assert!(matches!(error, OpenError::CountChanged { what: "lanes", stored: 1, configured: 2 }), "{error}");
    assert!(error.to_string().contains("1 lanes") && error.to_string().contains('2'), "{error}");
}

#[test]
fn lanes_may_be_mounted_elsewhere() {
    let at = |dir: &str| Options { lanes: vec![dir.into()], ..options() };
    let fs = used(&at("/here"));
    fs.create_dir_all(Path::new("/there")).expect("should be made");
    for name in fs.list(Path::new("/here")).expect("should be listed") {
        fs.rename(&Path::new("/here").join(&name), &Path::new("/there").join(&name)).expect("should move");
    }
    fs.sync_fs(Path::new("/")).expect("should sync");
    expect_rows(&fs, &at("/there"), &rows(0..45), "elsewhere");
}

#[test]
fn a_missing_or_short_lane_file_is_refused() {
    let used = used(&options());
    for lost in lane_files(&used) {
        let fs = used.snapshot();
        fs.remove(&lost).expect("should be there");
        let error = refusal(&fs).to_string();
        let name = lost.file_name().expect("should have a name").to_string_lossy().into_owned();
        assert!(error.contains(&name) && error.contains("missing"), "{error}");
        let fs = used.snapshot();
        let len = fs.dump(&lost).expect("should be there").len() as u64;
        fs.set_len(&lost, len - 1).expect("should be there");
        let error = refusal(&fs).to_string();
        assert!(error.contains(&name), "{error}");
    }
}

#[test]
fn a_lane_file_in_anothers_place_is_refused() {
    let fs = used(&options());
    let files = lane_files(&fs);
    let bytes = fs.dump(&files[0]).expect("should be there");
    fs.set_len(&files[1], 0).expect("should be there");
    fs.overwrite(&files[1], 0, &bytes).expect("should be there");
    refusal(&fs);
}

#[test]
fn a_damaged_index_is_refused_with_file_and_offset() {
    let used = used(&options());
    let file = lane_files(&used).remove(0);
    let bytes = used.dump(&file).expect("should be there");
    // One table's one extent: two counts, a table, an entry.
    let index_at = bytes.len() as u64 - (4 + 16 + 4 + 64);
    for at in index_at..bytes.len() as u64 {
        let fs = used.snapshot();
        flip(&fs, &file, at);
        let error = refusal(&fs);
        let OpenError::Corrupt { path, offset, .. } = &error else { panic!("byte {at}: {error}") };
        assert!(path.ends_with(file.file_name().expect("should have a name")), "{error}");
        assert_eq!(*offset, index_at, "{error}");
    }
    for at in (0..52).chain([52, 1000, 4095]) {
        let fs = used.snapshot();
        flip(&fs, &file, at);
        let error = refusal(&fs);
        assert!(matches!(error, OpenError::Corrupt { offset: 0, .. }), "byte {at}: {error}");
    }
}

#[test]
fn damaged_rows_do_not_keep_a_node_from_starting_and_are_not_served() {
    let fs = used(&options());
    let file = lane_files(&fs).remove(0);
    flip(&fs, &file, 4096 + 30 * 40 + 5000);
    let store = open(&fs);
    let read: Vec<_> = store.view(table(1)).generations.iter().map(|g| g.slices()).collect();
    assert_eq!(read.len(), 2);
    let error = read[0].as_ref().expect_err("should be damaged");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let text = error.to_string();
    assert!(text.contains(".lane") && text.contains("damaged at byte 4096"), "{text}");
    let others: Vec<Bytes> = read[1].as_ref().expect("should be readable").iter().map(|s| s.payload.clone()).collect();
    assert_eq!(others, rows(30..45));
    // Neither appends nor checkpoints stop for it.
    append_rows(&store, 45..50);
    checkpoint(&store);
    checkpoint(&store);
    assert!(store.view(table(1)).generations[0].slices().is_err());
    assert!(lane_files(&fs).contains(&file), "it is all that is left of them");
}

#[test]
fn damaged_rows_are_not_copied_and_hold_up_no_other() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    append_rows(&store, 0..20);
    let late = slice(table(1), bucket(1), "the straggler");
    store.append(vec![late]).expect("should queue").wait_blocking().expect("should be durable");
    let sealed = seal(&store).expect("should seal");
    checkpoint(&store);
    let file = lane_files(&fs).remove(0);
    let extent = fs.dump(&file).expect("should be there");
    let text = b"the straggler";
    let at = extent.windows(text.len()).position(|w| w == text).expect("should be there");
    flip(&fs, &file, at as u64);
    kit::commit(&store, &sealed).expect("should commit");
    append_rows(&store, 20..22);
    assert!(super::postponed(&store).contains("damaged at byte"));
    assert_eq!(checkpoint(&store).extents, 1, "the next one leaves it where it is");
    let store = {
        drop(store);
        open(&fs)
    };
    let views = store.view(table(1)).generations;
    let of = |n: i64| views.iter().find(|g| g.generation().bucket == bucket(n)).expect("should be there").slices();
    assert_eq!(of(0).expect("should be readable").len(), 2);
    assert_eq!(of(1).expect_err("should be damaged").kind(), ErrorKind::InvalidData);
}

#[test]
fn a_missing_manifest_of_a_shard_is_refused() {
    let fs = used(&options());
    fs.remove(Path::new(EDITS)).expect("should be there");
    let error = refusal(&fs).to_string();
    assert!(error.contains("shard-000") && error.contains("missing"), "{error}");
}

#[test]
fn a_damaged_manifest_of_a_shard_is_refused_unless_nobody_was_told_of_the_damaged_part() {
    let used = used(&options());
    let path = Path::new(EDITS);
    let bytes = used.dump(path).expect("should be there");
    let end = bytes.iter().rposition(|b| *b != 0).expect("should not be empty") as u64 + 1;
    let len_of = |at: u64| {
        let len = u32::from_le_bytes(bytes[at as usize..at as usize + 4].try_into().expect("should be four"));
        u64::from(len + 8).next_multiple_of(8)
    };
    let second = 64 + len_of(64);
    let last = second + len_of(second);
    let behind = last + len_of(last);
    assert!(behind >= end && behind < end + 16, "a snapshot and two edits");
    for at in (0..last).step_by(3) {
        let fs = used.snapshot();
        flip(&fs, path, at);
        let error = refusal(&fs);
        let OpenError::Corrupt { path: named, offset, .. } = &error else { panic!("byte {at}: {error}") };
        assert!(named.ends_with("edits-000000000001"), "{error}");
        let expected = [0, 64, second].into_iter().rfind(|start| *start <= at).expect("should be in one");
        assert_eq!(*offset, expected, "byte {at}: {error}");
    }
    // The last edit looks torn then; but the log says that it had been durable.
    for at in (last..end).step_by(7) {
        let fs = used.snapshot();
        flip(&fs, path, at);
        refusal(&fs);
    }
}

#[test]
fn a_torn_last_edit_of_which_nobody_was_told_is_cut_off() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    append_rows(&store, 0..30);
    checkpoint(&store);
    append_rows(&store, 30..60);
    let short = penstock_store::fs::FaultKind::ShortThenError { bytes: 100 };
    super::fail(&fs, penstock_store::fs::Operation::Write, "edits-", short, false);
    super::broken(&store);
    let fs = fs.snapshot();
    drop(store);
    let before = fs.dump(Path::new(EDITS)).expect("should be there");
    let store = open(&fs);
    let after = fs.dump(Path::new(EDITS)).expect("should be there");
    let used = |bytes: &[u8]| bytes.iter().rposition(|b| *b != 0).expect("should not be empty");
    assert!(used(&after) < used(&before), "nothing is appended behind bad bytes");
    append_rows(&store, 60..62);
    checkpoint(&store);
    expect_rows(&fs, &options(), &rows(0..62), "cut off");
}

#[test]
fn an_older_manifest_in_the_place_of_the_newest_is_refused() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    let mut older = Vec::new();
    for round in 0..3 {
        older.push(fs.dump(Path::new(EDITS)).expect("should be there"));
        append_rows(&store, round * 20..round * 20 + 20);
        checkpoint(&store);
    }
    let fs = settled(&fs, store);
    for (age, bytes) in older.iter().enumerate() {
        let fs = fs.snapshot();
        fs.set_len(Path::new(EDITS), 0).expect("should be there");
        fs.overwrite(Path::new(EDITS), 0, bytes).expect("should be there");
        let error = refusal(&fs).to_string();
        assert!(error.contains("invariant 9"), "before checkpoint {age}: {error}");
    }
}

#[test]
fn an_older_manifest_is_refused_also_when_little_was_written_since() {
    // No segment is gone that it would need: only the log's own word tells.
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    append_rows(&store, 0..1);
    checkpoint(&store);
    let older = fs.dump(Path::new(EDITS)).expect("should be there");
    append_rows(&store, 1..2);
    checkpoint(&store);
    let fs = settled(&fs, store);
    fs.overwrite(Path::new(EDITS), 0, &older).expect("should be there");
    let error = refusal(&fs).to_string();
    assert!(error.contains("invariant 9"), "{error}");
}

#[test]
fn a_log_that_lacks_what_the_checkpoint_needs_is_refused() {
    let used = used(&options());
    let needed = segments(&used);
    for lost in &needed {
        let fs = used.snapshot();
        fs.remove(lost).expect("should be there");
        refusal(&fs);
    }
    // Also when it is the one that the checkpoint lies in, and rows go on in the next one.
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    append_rows(&store, 0..10);
    checkpoint(&store);
    append_rows(&store, 10..60);
    let fs = settled(&fs, store);
    fs.remove(&segments(&fs)[0]).expect("should be there");
    refusal(&fs);
}

#[test]
fn lane_files_that_nobody_names_are_removed_by_a_start_and_others_never() {
    let fs = used(&options());
    let named = lane_files(&fs);
    // Also of a shard that there no longer is: a change of their number leaves such files if it is cut short.
    for name in ["s000-000000000099.lane", "s000-000000000000.lane", "s007-000000000001.lane"] {
        let file = fs.create(&Path::new("/data/lanes/0").join(name)).expect("should be made");
        file.write_all_at(b"half a lane file", 0).expect("should be written");
    }
    for name in ["lost+found", "s000-1.lane"] {
        fs.create(&Path::new("/data/lanes/0").join(name)).expect("should be made");
    }
    let store = open(&fs);
    let names = fs.list(Path::new("/data/lanes/0")).expect("should be listed");
    let others = ["LANE", "lost+found", "s000-1.lane"];
    let mut expected: Vec<_> = others.map(str::to_owned).into();
    let file_name = |path: &PathBuf| path.file_name().expect("should have a name").to_string_lossy().into_owned();
    expected.extend(named.iter().map(file_name));
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(payloads(&store, table(1)), rows(0..45));
    append(&store, row(45, 3000));
    checkpoint(&store);
    expect_rows(&fs, &options(), &rows(0..46), "cleared");
}

#[test]
fn a_lane_that_two_nodes_were_given_costs_neither_its_rows() {
    let at_lane = Options { lanes: vec!["/lane".into()], ..options() };
    let fs = MemoryFileSystem::new();
    let open = |dir: &str| Store::open(kit::shared(&fs), Path::new(dir), &at_lane);
    let first = open("/first").expect("should open");
    define(&first, table(1));
    append_rows(&first, 0..20);
    let guard = fs.dump(Path::new("/lane/LANE")).expect("should be there");
    // The lane is still empty: it looks like one whose first start was cut short.
    drop(open("/second").expect("should open"));
    checkpoint(&first);
    let files = lane_files(&fs);
    drop(first);
    drop(open("/second").expect("should open"));
    assert_eq!(lane_files(&fs), files, "another node's rows were removed");
    let error = open("/first").expect_err("should be refused");
    assert!(matches!(error, OpenError::Layout { .. }), "{error}");
    fs.overwrite(Path::new("/lane/LANE"), 0, &guard).expect("should be there");
    assert_eq!(payloads(&open("/first").expect("should open"), table(1)), rows(0..20));
}

#[test]
fn one_directory_cannot_be_two_lanes() {
    let twice = Options { lanes: vec!["/lane".into(), "/lane".into()], ..options() };
    let fs = MemoryFileSystem::new();
    let error = try_open_with(&kit::shared(&fs), &twice).expect_err("should be refused");
    assert!(matches!(error, OpenError::Layout { .. }), "{error}");
    drop(open_with(&fs, &Options { lanes: vec!["/lane".into()], ..options() }));
}
