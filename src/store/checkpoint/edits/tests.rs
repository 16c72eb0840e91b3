use uuid::Uuid;

use super::*;
use crate::checkpoint::edit::{LaneFileRef, MIN_LEN};
use crate::fs::{Fault, FaultKind, MemoryFileSystem, Operation};
use crate::types::Lsn;

const DIR: &str = "/wal";
const SHARD: u32 = 3;
const SEEDS: u64 = 40;

fn node() -> NodeId {
    NodeId(Uuid::from_u128(1))
}

fn edit(sequence: u64, part: Part) -> Edit {
    let id = sequence;
    let file = LaneFileRef { id, lane: 1, index_at: 4096, index_len: 5, index_crc: 6, extents: 7, bytes: 8 };
    Edit { sequence, part, checkpoint: Lsn(sequence), added: vec![file], dropped: vec![u64::MAX], ..Edit::default() }
}

fn delta(sequence: u64) -> Edit {
    edit(sequence, Part::Delta)
}

/// Sequences of a snapshot of two parts that ends with `last`.
fn snapshot(last: u64) -> [Edit; 2] {
    [edit(last - 1, Part::SnapshotBegin), edit(last, Part::SnapshotMore)]
}

fn dir() -> &'static Path {
    Path::new(DIR)
}

fn new_fs() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    fs.create_dir_all(dir()).expect("should be made");
    fs.sync_dir(Path::new("/")).expect("should sync");
    fs
}

fn create(fs: &MemoryFileSystem, number: u64, last: u64) -> Result<EditLog, AppendFailed> {
    EditLog::create(fs, dir(), SHARD, node(), number, &snapshot(last))
}

fn created(fs: &MemoryFileSystem) -> EditLog {
    create(fs, 1, 2).expect("should be created")
}

fn load(fs: &MemoryFileSystem) -> Result<(EditLog, Vec<Edit>), OpenError> {
    let mut edits = Vec::new();
    let log = EditLog::load(fs, dir(), SHARD, node(), |edit| {
        edits.push(edit);
        Ok(())
    })?;
    Ok((log.expect("should be there"), edits))
}

fn sequences(fs: &MemoryFileSystem) -> Vec<u64> {
    load(fs).expect("should be whole").1.iter().map(|edit| edit.sequence).collect()
}

fn fail(fs: &MemoryFileSystem, operation: Operation, error: FaultKind) {
    fs.fail(Fault { operation, nth: 1, path_contains: None, error, sticky: true });
}

/// A file with a snapshot (1, 2) and the edits 3, 4, 5, and where each of its five frames starts, and the end.
fn with_five_edits() -> (MemoryFileSystem, PathBuf, Vec<u64>) {
    let fs = new_fs();
    let mut log = created(&fs);
    let first_len = edit_file::encode_frame(&snapshot(2)[0], HEADER_LEN, 0).expect("should be encodable").len();
    let mut starts = vec![HEADER_LEN, HEADER_LEN + first_len as u64, log.len_bytes()];
    for sequence in 3..=5 {
        log.append(&delta(sequence)).expect("should be appended");
        starts.push(log.len_bytes());
    }
    (fs, log.path().to_owned(), starts)
}

#[test]
fn what_is_created_and_appended_is_loaded() {
    let (fs, path, starts) = with_five_edits();
    assert!(EditLog::load(&new_fs(), dir(), SHARD, node(), |_| Ok(())).expect("should be none").is_none());
    for seed in 0..SEEDS {
        let fs = fs.snapshot().crash(seed);
        let (mut log, edits) = load(&fs).expect("should be whole");
        let [first, second] = snapshot(2);
        assert_eq!(edits, [first, second, delta(3), delta(4), delta(5)]);
        assert_eq!((log.number(), log.sequence(), log.path()), (1, 5, &*path));
        assert_eq!((log.snapshot_bytes(), log.len_bytes()), (starts[2], starts[5]));
        log.make_sure(&fs).expect("should be made sure");
        log.append(&delta(6)).expect("should be appended");
        assert_eq!(sequences(&fs.crash(seed)), [1, 2, 3, 4, 5, 6]);
    }
}

#[test]
fn the_last_edit_cut_at_any_byte_is_a_torn_tail() {
    let (fs, path, starts) = with_five_edits();
    let whole = fs.dump(&path).expect("should be there");
    let (start, end) = (starts[4] as usize, starts[5] as usize);
    for at in start..end {
        for rest in [0, 0xff, 0xa5_u8] {
            // With the room behind it, and without.
            for len in [whole.len(), end, at] {
                let fs = fs.snapshot();
                let mut torn = whole.clone();
                torn[at..end].fill(rest);
                if torn == whole && len >= end {
                    continue;
                }
                fs.overwrite(&path, 0, &torn[..end]).expect("should be damaged");
                fs.set_len(&path, len as u64).expect("should be cut");
                let (mut log, edits) = load(&fs).unwrap_or_else(|error| panic!("cut at {at}, {rest}: {error}"));
                assert_eq!(edits.len(), 4, "cut at {at}");
                assert_eq!(log.len_bytes(), start as u64);
                log.make_sure(&fs).expect("should be made sure");
                log.append(&delta(5)).expect("should be appended");
                let behind = &fs.dump(&path).expect("should be there")[end..end + 4096];
                assert!(behind.iter().all(|b| *b == 0), "nothing of the torn one is left behind the new one");
                assert_eq!(sequences(&fs.crash(at as u64)), [1, 2, 3, 4, 5]);
            }
        }
    }
}

#[test]
fn any_damage_before_the_last_edit_is_corruption() {
    let (fs, path, starts) = with_five_edits();
    let whole = fs.dump(&path).expect("should be there");
    for at in 0..starts[4] {
        for by in [1, 0x80, 0xff_u8] {
            let fs = fs.snapshot();
            fs.overwrite(&path, at, &[whole[at as usize] ^ by]).expect("should be damaged");
            let frame = starts.iter().copied().filter(|start| *start <= at).max().unwrap_or(0);
            match load(&fs) {
                Err(OpenError::Corrupt { path: found, offset, .. }) => {
                    assert_eq!((found, offset), (path.clone(), frame))
                }
                other => panic!("byte {at}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_lost_stretch_before_the_last_edit_is_corruption() {
    let (fs, path, starts) = with_five_edits();
    for (from, to) in [(2, 3), (2, 4), (3, 4)] {
        let fs = fs.snapshot();
        let zeros = vec![0; (starts[to] - starts[from]) as usize];
        fs.overwrite(&path, starts[from], &zeros).expect("should be damaged");
        let error = load(&fs).expect_err("should be refused");
        assert!(error.to_string().contains(&format!("follows at byte {}", starts[to])), "{error}");
    }
}

#[test]
fn a_snapshot_is_never_a_torn_tail() {
    let fs = new_fs();
    let log = created(&fs);
    for at in HEADER_LEN..log.snapshot_bytes() {
        let fs = fs.snapshot();
        fs.set_len(log.path(), at).expect("should be cut");
        assert!(matches!(load(&fs), Err(OpenError::Corrupt { .. })), "cut at {at}");
    }
}

#[test]
fn an_edit_out_of_place_is_refused() {
    let fs = new_fs();
    let refused = |edits: &[Edit]| {
        let refused = EditLog::create(&fs, dir(), SHARD, node(), 1, edits).expect_err("should be refused");
        assert!(matches!(refused, AppendFailed::Broken(error) if error.kind() == ErrorKind::InvalidInput));
        assert!(fs.files().is_empty());
    };
    refused(&[]);
    refused(&[edit(0, Part::SnapshotBegin)]);
    refused(&[edit(1, Part::SnapshotMore)]);
    refused(&[delta(1)]);
    refused(&[edit(1, Part::SnapshotBegin), delta(2)]);
    refused(&[edit(1, Part::SnapshotBegin), edit(2, Part::SnapshotBegin)]);
    refused(&[edit(1, Part::SnapshotBegin), edit(3, Part::SnapshotMore)]);
    let mut log = created(&fs);
    let before = fs.dump(log.path()).expect("should be there");
    for wrong in [delta(2), delta(4), edit(3, Part::SnapshotBegin), edit(3, Part::SnapshotMore)] {
        log.append(&wrong).expect_err("should be refused");
    }
    assert_eq!(fs.dump(log.path()).expect("should be there"), before);
    log.append(&delta(3)).expect("should be appended");
}

#[test]
fn what_was_written_out_of_place_is_corruption() {
    let (fs, path, starts) = with_five_edits();
    let header = edit_file::read_header(&*fs.open(&path, OpenMode::Read).expect("should open"), &path);
    let salt = header.expect("should be sound").salt;
    for wrong in [delta(4), edit(3, Part::SnapshotBegin)] {
        let fs = fs.snapshot();
        let frame = edit_file::encode_frame(&wrong, starts[2], salt).expect("should be encodable");
        fs.overwrite(&path, starts[2], &frame).expect("should be damaged");
        assert!(matches!(load(&fs), Err(OpenError::Corrupt { offset, .. }) if offset == starts[2]));
    }
}

#[test]
fn what_the_visitor_refuses_is_reported_with_its_position() {
    let (fs, _, starts) = with_five_edits();
    let visit = |edit: Edit| if edit.sequence == 4 { Err("not this one".to_owned()) } else { Ok(()) };
    let error = EditLog::load(&fs, dir(), SHARD, node(), visit).expect_err("should be refused");
    assert!(
        matches!(error, OpenError::Corrupt { offset, ref what, .. } if offset == starts[3] && what == "not this one")
    );
}

#[test]
fn another_shards_or_nodes_or_number_is_refused() {
    let fs = new_fs();
    let log = created(&fs);
    let other = NodeId(Uuid::from_u128(2));
    for (shard, node) in [(SHARD + 1, node()), (SHARD, other)] {
        let error = EditLog::load(&fs, dir(), shard, node, |_| Ok(())).expect_err("should be refused");
        assert!(matches!(error, OpenError::Layout { .. }));
    }
    fs.rename(log.path(), &dir().join(edit_file::file_name(2))).expect("should be renamed");
    assert!(matches!(load(&fs), Err(OpenError::Layout { .. })));
}

#[test]
fn a_creation_that_is_cut_short_leaves_the_old_file_or_the_new_one() {
    let steps = [Operation::Create, Operation::Write, Operation::SyncData, Operation::Rename, Operation::SyncDir];
    for operation in steps {
        for (nth, seed) in (0..SEEDS).flat_map(|seed| (1..=3).map(move |nth| (nth, seed))) {
            let fs = new_fs();
            let mut old = created(&fs);
            old.append(&delta(3)).expect("should be appended");
            fs.fail(Fault { operation, nth, path_contains: None, error: FaultKind::Eio, sticky: true });
            let made = create(&fs, 2, 5).is_ok();
            assert!(nth > 1 || !made);
            let fs = fs.crash(seed);
            let found = sequences(&fs);
            let may_be_new = made || operation == Operation::SyncDir;
            assert!(
                found == [4, 5] && may_be_new || found == [1, 2, 3] && !made,
                "{operation:?} {nth} {seed}: {found:?}"
            );
            // What was left is in nobody's way.
            let (mut log, _) = load(&fs).expect("should be whole");
            log.make_sure(&fs).expect("should be made sure");
            log.remove_older(&fs).expect("should be removed");
            let mut next = create(&fs, log.number() + 1, 7).expect("should be created");
            next.remove_older(&fs).expect("should be removed");
            next.append(&delta(8)).expect("should be appended");
            let fs = fs.crash(seed);
            assert_eq!(sequences(&fs), [6, 7, 8]);
            assert_eq!(fs.files(), [next.path().strip_prefix("/").expect("should be absolute")]);
        }
    }
}

#[test]
fn a_full_disk_leaves_the_old_file_as_it_was() {
    let fs = new_fs();
    let mut old = created(&fs);
    fail(&fs, Operation::Write, FaultKind::Enospc);
    assert!(matches!(create(&fs, 2, 4), Err(AppendFailed::NoSpace(_))));
    fs.clear_faults();
    assert_eq!(fs.files().len(), 1, "the space is given back");
    old.append(&delta(3)).expect("should be appended");
    assert_eq!(sequences(&fs), [1, 2, 3]);
}

#[test]
fn a_full_disk_takes_edits_into_the_room_that_was_kept() {
    let fs = new_fs();
    let mut log = created(&fs);
    fs.set_capacity(0);
    let mut next = 3;
    let refused = loop {
        match log.append(&delta(next)) {
            Ok(()) => next += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, AppendFailed::NoSpace(_)), "{refused}");
    assert!(log.len_bytes() - log.snapshot_bytes() + 2 * MIN_LEN as u64 + 100 > ROOM);
    // A start on the full disk has what is left, and does without.
    let (mut log, _) = load(&fs).expect("should be whole");
    log.make_sure(&fs).expect("should be made sure");
    assert!(matches!(log.append(&delta(next)), Err(AppendFailed::NoSpace(_))));
    fs.set_capacity(u64::MAX);
    log.append(&delta(next)).expect("should be appended");
    let fs = fs.crash(1);
    assert_eq!(sequences(&fs).last(), Some(&next));
}

#[test]
fn a_start_on_a_full_disk_keeps_the_room() {
    let (fs, ..) = with_five_edits();
    fs.set_capacity(0);
    let fs = fs.crash(7);
    let (mut log, _) = load(&fs).expect("should be whole");
    log.make_sure(&fs).expect("should be made sure");
    for sequence in 6..1000 {
        log.append(&delta(sequence)).expect("should be appended");
    }
}

#[test]
fn the_last_room_is_used_up_to_its_end() {
    let fs = new_fs();
    let mut log = created(&fs);
    fs.set_capacity(log.snapshot_bytes() + ROOM + 4096);
    while log.append(&delta(log.sequence() + 1)).is_ok() {}
    let file_len = fs.dump(log.path()).expect("should be there").len() as u64;
    assert!(file_len > log.snapshot_bytes() + ROOM + 4096 - 128, "{file_len}");
}

/// A log whose edit 3 failed to sync, so that it is in the page cache only.
fn with_a_failed_sync() -> MemoryFileSystem {
    let fs = new_fs();
    let mut log = created(&fs);
    fail(&fs, Operation::SyncData, FaultKind::Eio);
    assert!(matches!(log.append(&delta(3)), Err(AppendFailed::Broken(_))));
    fs.clear_faults();
    assert!(matches!(log.append(&delta(3)), Err(AppendFailed::Broken(_))), "it stays broken");
    log.make_sure(&fs).expect_err("should stay broken");
    log.remove_older(&fs).expect_err("should stay broken");
    fs.crash_process()
}

#[test]
fn an_edit_whose_sync_failed_is_made_sure_before_it_counts() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let fs = with_a_failed_sync();
        assert_eq!(sequences(&fs), [1, 2, 3], "the page cache has it");
        // A sync alone has nothing to write: the pages are clean.
        let file = fs.open(&dir().join(edit_file::file_name(1)), OpenMode::ReadWrite).expect("should open");
        file.sync_data().expect("should sync");
        lost += u64::from(sequences(&fs.snapshot().crash(seed)) == [1, 2]);
        let (mut log, _) = load(&fs).expect("should be whole");
        log.make_sure(&fs).expect("should be made sure");
        assert_eq!(sequences(&fs.crash(seed)), [1, 2, 3]);
    }
    assert!(lost > 0, "the test shows nothing");
}

#[test]
fn nothing_is_done_before_it_is_made_sure() {
    let fs = with_a_failed_sync();
    let (mut log, _) = load(&fs).expect("should be whole");
    assert!(matches!(log.append(&delta(4)), Err(AppendFailed::Broken(_))));
    log.remove_older(&fs).expect_err("should be refused");
    fail(&fs, Operation::SyncData, FaultKind::Eio);
    log.make_sure(&fs).expect_err("should fail");
    fs.clear_faults();
    log.make_sure(&fs).expect_err("should stay broken");
    let (mut log, _) = load(&fs).expect("should be whole");
    log.make_sure(&fs).expect("should be made sure");
    log.make_sure(&fs).expect("should have nothing to do");
    log.append(&delta(4)).expect("should be appended");
}

#[test]
fn a_name_that_was_not_durable_is_made_so() {
    for seed in 0..SEEDS {
        let fs = new_fs();
        created(&fs);
        fail(&fs, Operation::SyncDir, FaultKind::Eio);
        assert!(matches!(create(&fs, 2, 4), Err(AppendFailed::Broken(_))));
        fs.clear_faults();
        let fs = fs.crash_process();
        let (mut log, edits) = load(&fs).expect("should be whole");
        assert_eq!((log.number(), edits.len()), (2, 2));
        log.make_sure(&fs).expect("should be made sure");
        log.append(&delta(5)).expect("should be appended");
        assert_eq!(sequences(&fs.crash(seed)), [3, 4, 5]);
    }
}

#[test]
fn an_append_that_is_cut_short_is_there_or_not() {
    for (seed, bytes) in (0..SEEDS).flat_map(|seed| [0, 1, 8, 40, 100].map(|bytes| (seed, bytes))) {
        let fs = new_fs();
        let mut log = created(&fs);
        log.append(&delta(3)).expect("should be appended");
        fail(&fs, Operation::Write, FaultKind::ShortThenError { bytes });
        assert!(matches!(log.append(&delta(4)), Err(AppendFailed::Broken(_))));
        let fs = fs.crash(seed);
        let (mut log, edits) = load(&fs).expect("should be whole");
        assert_eq!(edits.len(), 3);
        log.make_sure(&fs).expect("should be made sure");
        log.append(&delta(4)).expect("should be appended");
        assert_eq!(sequences(&fs.crash(seed)), [1, 2, 3, 4]);
    }
}

#[test]
fn nothing_is_concluded_from_a_failed_read() {
    let (fs, ..) = with_five_edits();
    for nth in 1..=11 {
        fs.fail(Fault { operation: Operation::Read, nth, path_contains: None, error: FaultKind::Eio, sticky: false });
        assert!(matches!(load(&fs), Err(OpenError::Io { .. })), "read {nth}");
        fs.clear_faults();
    }
}
