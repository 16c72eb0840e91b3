//! Every byte that was written is checked.

use penstock_store::fs::{FileSystem, MemoryFileSystem};
use penstock_store::tools::Severity;

use super::{files_with, flip, mixed, verify};
use crate::kit::{append, contents, define, open_memory, segments, table};

#[test]
fn a_healthy_directory_is_clean_and_unchanged() {
    let fs = mixed();
    let before = contents(&fs);
    let report = verify(&fs);
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    let checked = report.checked;
    assert_eq!((checked.groups, checked.records, checked.extents), (14, 14, 3));
    // Manifest, guard, edits, one segment, one lane file.
    assert_eq!(checked.files, 5);
    assert!(contents(&fs) == before);
    // And after a start that went on.
    let store = open_memory(&fs);
    append(&store, "more");
    store.close().expect("should close");
    drop(store);
    let report = verify(&fs);
    assert_eq!(report.errors().count(), 0, "{:#?}", report.findings);
}

/// Flips each of the bytes of a file in turn; each one has to be found in that file, unless `is_room` says that it means nothing.
fn sweep(fs: &MemoryFileSystem, part: &str, bytes: std::ops::Range<u64>, severity: Option<Severity>) {
    let path = files_with(fs, part).pop().expect("should be there");
    let name = path.file_name().expect("should have a name");
    for at in bytes {
        let damaged = fs.snapshot();
        flip(&damaged, &path, at);
        let report = verify(&damaged);
        let found = report.findings.iter().find(|f| f.path.ends_with(name) || f.path.ends_with("lanes/0"));
        let found = found.unwrap_or_else(|| panic!("byte {at} of {part}: {:#?}", report.findings));
        assert!(severity.is_none_or(|s| s == found.severity), "byte {at} of {part}: {found:#?}");
        assert!(found.offset.is_none_or(|offset| offset <= at), "byte {at} of {part}: {found:#?}");
    }
}

#[test]
fn every_byte_of_the_manifests_and_the_guard_is_checked() {
    let fs = mixed();
    let len = |part: &str| fs.dump(&files_with(&fs, part)[0]).expect("should be there").len() as u64;
    let manifest = files_with(&fs, "MANIFEST").remove(0);
    for at in 0..len("MANIFEST") {
        let damaged = fs.snapshot();
        flip(&damaged, &manifest, at);
        let report = verify(&damaged);
        assert_eq!(report.errors().count(), 1, "byte {at}: {:#?}", report.findings);
    }
    sweep(&fs, "lanes/0/LANE", 0..len("lanes/0/LANE"), Some(Severity::Error));
    let edits = fs.dump(&files_with(&fs, "edits-")[0]).expect("should be there");
    let used = edits.iter().rposition(|b| *b != 0).expect("should have bytes") as u64;
    // The snapshot is below what the header says was durable; the last edit may be a torn one.
    sweep(&fs, "edits-", 0..64 + 8 + 60, Some(Severity::Error));
    sweep(&fs, "edits-", 64 + 8 + 60..used + 1, None);
}

#[test]
fn every_byte_of_a_lane_file_is_checked() {
    let fs = mixed();
    let len = fs.dump(&files_with(&fs, ".lane")[0]).expect("should be there").len() as u64;
    sweep(&fs, ".lane", 0..len, Some(Severity::Error));
}

#[test]
fn every_byte_of_a_segment_is_checked() {
    let fs = mixed();
    let (header, checkpoint, end) = (4096, 4096 + 9 * 4096, 4096 + 14 * 4096);
    for at in (76..header).step_by(101).chain(0..76) {
        sweep(&fs, ".seg", at..at + 1, Some(Severity::Error));
    }
    // Nobody needs what lies below the checkpoint, and it is checked all the same.
    for page in (header..checkpoint).step_by(4096) {
        for at in (page..page + 200).step_by(9) {
            sweep(&fs, ".seg", at..at + 1, Some(Severity::Note));
        }
        sweep(&fs, ".seg", page + 3001..page + 3002, Some(Severity::Note));
    }
    for page in (checkpoint..end).step_by(4096) {
        // All of a group with rows, and of a Seal; the others are like them.
        let step = if [9, 11].contains(&(page / 4096 - 1)) { 1 } else { 7 };
        for at in (page..page + 260).step_by(step) {
            sweep(&fs, ".seg", at..at + 1, Some(Severity::Error));
        }
        sweep(&fs, ".seg", page + 3001..page + 3002, Some(Severity::Error));
    }
}

#[test]
fn orphans_are_notes() {
    let fs = mixed();
    let lane = files_with(&fs, ".lane").remove(0);
    let orphan = fs.create(&lane.with_file_name("s000-000000000099.lane")).expect("should be made");
    orphan.write_all_at(b"left by a crash", 0).expect("should be written");
    let report = verify(&fs);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert_eq!(report.findings[0].severity, Severity::Note);
}

#[test]
fn what_is_missing_is_an_error() {
    for part in [".lane", ".seg", "LANE", "edits-"] {
        let fs = mixed();
        fs.remove(&files_with(&fs, part)[0]).expect("should be there");
        let report = verify(&fs);
        assert!(report.errors().count() > 0, "{part}: {:#?}", report.findings);
    }
}

#[test]
fn a_torn_tail_is_a_note() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    append(&store, vec![b'x'; 6000]);
    let killed = fs.crash_process();
    drop(store);
    let segment = segments(&killed).remove(0);
    killed.overwrite(&segment, 4096 + 2 * 4096, &[0; 4096]).expect("should be there");
    let report = verify(&killed);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert_eq!(report.findings[0].severity, Severity::Note);
}
