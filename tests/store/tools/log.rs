//! Damaged logs.

use penstock_store::fs::{Fault, FaultKind, FileSystem, MemoryFileSystem, Operation};
use penstock_store::tools::RepairError;
use penstock_store::tools::repair::Loss;

use super::{
    dry_run, expect_rows, expect_sound, files_with, flip, mixed, mixed_without, repair, rows, seal_bucket, verify,
};
use crate::kit::{self, append, bucket, contents, define, open_memory, refusal, segments, table};

/// The groups of the mixed store behind its checkpoint, with the row in each.
const GROUPS: [(u64, &str); 4] = [(9, "c1"), (10, "c2"), (12, "d0"), (13, "d1")];
const SEAL: u64 = 11;

/// Where a group begins in the segment.
fn at(group: u64) -> u64 {
    4096 + group * 4096
}

fn segment(fs: &MemoryFileSystem) -> std::path::PathBuf {
    segments(fs).pop().expect("should have a segment")
}

/// Plans an I/O error of some call, and of all of its kind after it.
pub fn fail_after(fs: &MemoryFileSystem, number: u32) {
    use Operation::{Allocate, Create, Remove, Rename, SyncData, SyncDir, Write};
    let operations = [Create, Write, SyncData, SyncDir, Rename, Remove, Allocate];
    let operation = operations[number as usize % operations.len()];
    let nth = u64::from(number) / operations.len() as u64 + 1;
    fs.fail(Fault { operation, nth, path_contains: None, error: FaultKind::Eio, sticky: true });
}

#[test]
fn a_record_whose_bytes_are_damaged_is_lost_and_no_other() {
    let healthy = mixed();
    // In the frame's header, the directory, the payload.
    for byte in [64, 64 + 33, 64 + 32 + 8, 64 + 32 + 60, 64 + 32 + 73] {
        for (group, row) in GROUPS {
            let fs = healthy.snapshot();
            flip(&fs, &segment(&fs), at(group) + byte);
            refusal(&fs);
            let before = contents(&fs);
            let planned = dry_run(&fs);
            assert!(planned.refusals.is_empty(), "{planned:#?}");
            assert!(contents(&fs) == before, "a dry run changed files");
            let report = repair(&fs).unwrap_or_else(|error| panic!("{row} at {byte}: {error}"));
            assert_eq!(report.losses, planned.losses);
            let [Loss::Log(stretch)] = &report.losses[..] else { panic!("{:#?}", report.losses) };
            assert_eq!((stretch.from.0, stretch.to.0), (group * 4096, (group + 1) * 4096));
            if byte == 64 {
                assert!(stretch.records.is_empty() && stretch.unknown.len() == 1, "{stretch:#?}");
            } else {
                assert!(stretch.unknown.is_empty() && stretch.records[0].kind == "slices", "{stretch:#?}");
            }
            if byte == 64 + 32 + 73 {
                let lost = report.rows();
                assert_eq!((lost[0].table, lost[0].bucket, lost[0].rows), (table(1), bucket(0), 1));
            }
            assert_eq!(fs.dump(&report.quarantined[0]).expect("a copy").len() as u64, 4096 + (1 << 16));
            expect_sound(&fs);
            expect_rows(&fs, &[row]);
        }
    }
}

#[test]
fn damage_that_concerns_no_row_loses_none() {
    let healthy = mixed();
    // Segment header, its padding; a group's header; padding behind a frame and behind a group; a Seal's body.
    let harmless =
        [17, 30, 74, 2000, at(9), at(10) + 9, at(12) + 40, at(9) + 64 + 107, at(9) + 3000, at(SEAL) + 64 + 50];
    for byte in harmless {
        let fs = healthy.snapshot();
        flip(&fs, &segment(&fs), byte);
        let report = repair(&fs).unwrap_or_else(|error| panic!("byte {byte}: {error}"));
        assert!(report.losses.is_empty() && !report.damaged.is_empty(), "byte {byte}: {report:#?}");
        expect_sound(&fs);
        expect_rows(&fs, &[]);
    }
}

#[test]
fn a_whole_page_is_given_up_where_the_next_seal_shows_that_none_is_missing() {
    for (group, row) in [GROUPS[0], GROUPS[1]] {
        let fs = mixed();
        fs.overwrite(&segment(&fs), at(group), &[0; 4096]).expect("should be there");
        let report = repair(&fs).expect("should be possible");
        let [Loss::Log(stretch)] = &report.losses[..] else { panic!("{:#?}", report.losses) };
        assert_eq!((stretch.unknown[0].1.0, stretch.records.len()), ((group + 1) * 4096, 0));
        expect_sound(&fs);
        expect_rows(&fs, &[row]);
    }
}

#[test]
fn where_a_seal_may_be_missing_nothing_is_repaired() {
    // The Seal itself, by its header; its whole page; a page behind which no Seal follows; two pages with the Seal.
    let damages: [(u64, usize); 4] = [(at(SEAL) + 64, 4), (at(SEAL), 4096), (at(12), 4096), (at(10), 8192)];
    for (from, len) in damages {
        let fs = mixed();
        fs.overwrite(&segment(&fs), from, &vec![0xAA; len]).expect("should be there");
        let before = contents(&fs);
        assert!(!dry_run(&fs).refusals.is_empty());
        let refused = repair(&fs);
        let Err(RepairError::Refused(why)) = refused else { panic!("{from}: {refused:#?}") };
        assert!(why.iter().any(|w| w.contains("a Seal of table")), "{why:?}");
        assert!(contents(&fs) == before, "a refused repair changed files");
        assert!(verify(&fs).errors().count() > 0);
    }
}

#[test]
fn a_lost_definition_is_refused_while_rows_need_it() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    append(&store, "x");
    let killed = fs.crash_process();
    drop(store);
    flip(&killed, &segment(&killed), at(0) + 64 + 40);
    let refused = repair(&killed);
    let Err(RepairError::Refused(why)) = refused else { panic!("{refused:#?}") };
    assert!(why[0].contains("definition"), "{why:?}");
}

#[test]
fn a_generation_whose_first_record_is_lost_keeps_its_seal_and_sequence() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    for row in ["a", "b", "c"] {
        append(&store, row);
    }
    let first = seal_bucket(&store, 0);
    append(&store, "d");
    let second = seal_bucket(&store, 0);
    std::thread::sleep(super::IDLE);
    let killed = fs.crash_process();
    drop(store);
    // The first record of both; the second one is then without any.
    flip(&killed, &segment(&killed), at(1) + 64 + 32 + 72);
    flip(&killed, &segment(&killed), at(5) + 64 + 32 + 72);
    let report = repair(&killed).expect("should be possible");
    assert_eq!(report.rows().len(), 2, "{report:#?}");
    expect_sound(&killed);
    let durable = 7 * 4096;
    let store = open_memory(&killed);
    assert!(store.status()[0].durable_lsn.0 >= durable);
    let kept = store.view(table(1));
    assert_eq!(kept.generations.len(), 1);
    let seal = kept.generations[0].current_seal().expect("should be sealed");
    assert_eq!(seal, first.seal);
    assert_eq!(rows(&store).len(), 2);
    let commit = penstock_store::Commit {
        table: table(1),
        incarnation: second.seal.incarnation,
        sequence: second.seal.sequence,
        version: 1,
    };
    store.commit(commit).wait_blocking().expect("should commit");
    assert!(rows(&store).is_empty());
}

#[test]
fn damage_in_earlier_segments_keeps_the_later_ones() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    for n in 0..40_u8 {
        append(&store, vec![n; 3000]);
    }
    seal_bucket(&store, 0);
    let killed = fs.crash_process();
    drop(store);
    let all = segments(&killed);
    assert!(all.len() >= 3);
    flip(&killed, &all[0], at(3) + 500);
    flip(&killed, &all[1], at(2) + 500);
    let durable = tools_end(&killed);
    let report = repair(&killed).expect("should be possible");
    assert_eq!((report.losses.len(), report.damaged.len(), report.rows().len()), (2, 2, 2));
    expect_sound(&killed);
    let store = open_memory(&killed);
    assert_eq!(rows(&store).len(), 38);
    assert!(rows(&store).iter().all(|(sequence, _)| *sequence == 1));
    assert!(store.status()[0].durable_lsn.0 >= durable);
}

fn tools_end(fs: &MemoryFileSystem) -> u64 {
    let dir = std::path::Path::new(kit::DIR);
    penstock_store::tools::inspect(&kit::shared(fs), dir, &[]).expect("should be readable").shards[0].end.0
}

#[test]
fn log_and_lane_damage_are_repaired_together() {
    let fs = mixed();
    flip(&fs, &files_with(&fs, ".lane")[0], 4096 + 39);
    flip(&fs, &segment(&fs), at(13) + 64 + 32 + 73);
    let report = repair(&fs).expect("should be possible");
    assert_eq!((report.losses.len(), report.rows().len()), (2, 2), "{report:#?}");
    expect_sound(&fs);
    expect_rows(&fs, &["b0", "b1", "d1"]);
}

#[test]
fn damage_below_the_checkpoint_needs_no_repair() {
    let fs = mixed();
    flip(&fs, &segment(&fs), at(3) + 64 + 40);
    assert!(dry_run(&fs).is_sound());
    expect_sound(&fs);
    expect_rows(&fs, &[]);
}

#[test]
fn a_destroyed_segment_header_is_refused() {
    let fs = mixed();
    fs.overwrite(&segment(&fs), 0, &[0; 512]).expect("should be there");
    let refused = repair(&fs);
    assert!(matches!(refused, Err(RepairError::Refused(_))), "{refused:#?}");
}

#[test]
fn a_torn_tail_is_left_to_the_next_start() {
    let fs = mixed();
    fs.overwrite(&segment(&fs), at(14), &[0; 4096]).expect("should be there");
    flip(&fs, &segment(&fs), at(13) + 64 + 32 + 73);
    let report = repair(&fs).expect("should be possible");
    assert!(report.is_sound() && report.losses.is_empty(), "{report:#?}");
    assert_eq!(rows(&open_memory(&fs)), mixed_without(&["d1"]));
}

#[test]
fn a_repair_that_loses_power_anywhere_can_be_repeated() {
    let damaged = mixed();
    flip(&damaged, &segment(&damaged), at(10) + 64 + 32 + 73);
    let mut failed = 0;
    for number in 0..84 {
        let fs = damaged.snapshot();
        fail_after(&fs, number);
        let first = repair(&fs);
        failed += u32::from(first.is_err());
        let fs = fs.crash(u64::from(number));
        if first.is_ok() {
            assert_eq!(verify(&fs).errors().count(), 0);
        }
        repair(&fs).unwrap_or_else(|error| panic!("fault {number}, {first:?}: {error}"));
        expect_sound(&fs);
        expect_rows(&fs, &["c2"]);
    }
    assert!(failed > 20, "only {failed} repairs failed");
}

#[test]
fn a_missing_file_of_the_log_is_refused() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    for n in 0..40_u8 {
        append(&store, vec![n; 3000]);
    }
    let killed = fs.crash_process();
    drop(store);
    for lost in segments(&killed) {
        let fs = killed.snapshot();
        fs.remove(&lost).expect("should be there");
        let refused = repair(&fs);
        assert!(matches!(refused, Err(RepairError::Refused(_))), "{}: {refused:#?}", lost.display());
    }
}
