//! Damaged lane files.

use penstock_store::fs::FileSystem;
use penstock_store::tools::repair::Loss;

use super::{dry_run, expect_rows, expect_sound, files_with, flip, mixed, repair, verify};
use crate::kit::{contents, table};

#[test]
fn of_a_damaged_extent_its_rows_are_lost_and_no_others() {
    let healthy = mixed();
    // Extents in the order of buckets and generations: b0 and b1, c0, e.
    let extents = [(4096, 2, ["b0", "b1"].as_slice()), (4096 + 84, 1, &["c0"]), (4096 + 84 + 42, 1, &["e"])];
    for (at, count, lost) in extents {
        let fs = healthy.snapshot();
        let lane = files_with(&fs, ".lane").remove(0);
        flip(&fs, &lane, at + 39);
        let before = contents(&fs);
        let planned = dry_run(&fs);
        assert!(contents(&fs) == before, "a dry run changed files");
        let report = repair(&fs).expect("should be possible");
        assert_eq!(report.losses, planned.losses);
        let rows = report.rows();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].table, rows[0].rows, rows[0].is_guess), (table(1), count, false));
        let copies: Vec<_> = report.quarantined.iter().map(|p| fs.dump(p).expect("should be there")).collect();
        assert_eq!(copies.len(), 2);
        assert!(
            before.iter().any(|(path, bytes)| path.ends_with(lane.file_name().expect("a name")) && *bytes == copies[0])
        );
        assert!(String::from_utf8_lossy(&copies[1]).contains(&format!(": {count} rows, LSN ")));
        expect_sound(&fs);
        expect_rows(&fs, lost);
    }
}

#[test]
fn a_damaged_header_loses_nothing() {
    let fs = mixed();
    flip(&fs, &files_with(&fs, ".lane")[0], 20);
    let report = repair(&fs).expect("should be possible");
    assert!(report.losses.is_empty() && report.damaged.len() == 1, "{report:#?}");
    expect_sound(&fs);
    expect_rows(&fs, &[]);
}

#[test]
fn a_file_without_an_index_or_without_all_of_itself_is_given_up() {
    let healthy = mixed();
    let lane = files_with(&healthy, ".lane").remove(0);
    let len = healthy.dump(&lane).expect("should be there").len() as u64;
    for damage in 0..3 {
        let fs = healthy.snapshot();
        match damage {
            0 => flip(&fs, &lane, len - 1),
            1 => fs.set_len(&lane, len - 1).expect("should be there"),
            _ => fs.remove(&lane).expect("should be there"),
        }
        let report = repair(&fs).expect("should be possible");
        assert!(
            matches!(&report.losses[..], [Loss::LaneFile { extents: 3, bytes, .. }] if *bytes == len),
            "{:#?}",
            report.losses
        );
        expect_sound(&fs);
        // The rows of generation 3 that the log has are still sealed as 3.
        expect_rows(&fs, &["b0", "b1", "c0", "e"]);
    }
}

#[test]
fn a_repair_that_loses_power_anywhere_can_be_repeated() {
    let healthy = mixed();
    let lane = files_with(&healthy, ".lane").remove(0);
    flip(&healthy, &lane, 4096 + 84 + 39);
    for seed in 0..20 {
        let fs = healthy.snapshot();
        super::log::fail_after(&fs, seed as u32);
        let first = repair(&fs);
        let fs = fs.crash(seed);
        if first.is_ok() {
            assert_eq!(verify(&fs).errors().count(), 0);
        }
        repair(&fs).expect("should be possible");
        expect_sound(&fs);
        expect_rows(&fs, &["c0"]);
    }
}
