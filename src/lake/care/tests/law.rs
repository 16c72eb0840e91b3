//! The pure decisions.

use crate::lake::care::law::*;

#[test]
fn the_interval_grows_with_the_table_so_that_the_cost_per_commit_does_not() {
    assert_eq!([0, 500, 1_000].map(|files| interval(10, files)), [10, 10, 10]);
    for files in [2_000_u64, 10_000, 100_000, 500_000] {
        let per_commit = files / interval(10, files);
        assert!((90..=110).contains(&per_commit), "{files} files: {per_commit} of them are rewritten per commit");
    }
    assert_eq!(interval(10, 10_000_000), 5_000);
    assert_eq!(interval(20_000, 10_000_000), 20_000);
}

#[test]
fn a_checkpoint_is_due_behind_the_interval_and_not_at_once_after_a_failure() {
    let at = |version| Standing { version, ..Standing::default() };
    assert!(!checkpoint_due(10, &at(8)));
    assert!(checkpoint_due(10, &at(9)), "versions 0 to 9 are ten");
    assert!(!checkpoint_due(0, &at(9_000)), "0 means never");
    let behind = |version| Standing { checkpoint: Some(9), files: 2_000, ..at(version) };
    assert!(!checkpoint_due(10, &behind(28)));
    assert!(checkpoint_due(10, &behind(29)));
    let failed = |version| Standing { failed_at: Some(40), ..behind(version) };
    assert!(!checkpoint_due(10, &failed(49)));
    assert!(checkpoint_due(10, &failed(50)));
    // Another writer's checkpoint may be ahead of what we know of the head.
    assert!(!checkpoint_due(10, &Standing { checkpoint: Some(100), ..at(50) }));
}

#[test]
fn a_log_is_listed_when_a_tenth_of_it_is_new() {
    assert!(clean_up_due(10, 9, None));
    let last = |files| Some(Listed { at: 100, files });
    assert!(!clean_up_due(10, 109, last(0)) && clean_up_due(10, 110, last(0)));
    assert!(!clean_up_due(10, 5_099, last(50_000)) && clean_up_due(10, 5_100, last(50_000)));
}

#[test]
fn files_are_known_by_their_whole_name() {
    let version = "00000000000000000007";
    for (rest, expected) in [
        ("json", Some((Role::Entry, 7))),
        ("checkpoint.parquet", Some((Role::Checkpoint, 7))),
        ("checkpoint.0000000001.0000000002.parquet", Some((Role::PartOfCheckpoint, 7))),
        ("checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet", Some((Role::PartOfCheckpoint, 7))),
        ("checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", Some((Role::PartOfCheckpoint, 7))),
        ("crc", Some((Role::Aside, 7))),
        ("00000000000000000031.compacted.json", Some((Role::Aside, 31))),
        ("json.tmp", None),
        ("checkpoint", None),
        ("checkpoint.1.2.parquet", None),
        ("parquet", None),
    ] {
        assert_eq!(role_of(&format!("{version}.{rest}")), expected, "{rest}");
    }
    for name in ["_last_checkpoint", "7.json", "0000000000000000000x.json", "99999999999999999999.json", "", "."] {
        assert_eq!(role_of(name), None, "{name}");
    }
}

/// Entries of these versions, the first `old` of them expired, and a checkpoint at each of `checkpoints`.
fn log(versions: std::ops::RangeInclusive<u64>, old: u64, checkpoints: &[u64]) -> Vec<LogFile> {
    let file = |version: u64, rest: &str, role| LogFile {
        name: format!("{version:020}.{rest}"),
        role,
        version,
        expired: version < old,
    };
    let entries = versions.map(|version| file(version, "json", Role::Entry));
    entries.chain(checkpoints.iter().map(|version| file(*version, "checkpoint.parquet", Role::Checkpoint))).collect()
}

#[test]
fn versions_inside_the_retention_and_the_last_one_before_it_stay_readable() {
    // Version 24 was the newest when the retention began.
    let all = log(0..=45, 25, &[9, 19, 29, 39]);
    assert_eq!(horizon(&all, 39), Some(19));
    let gone = removable(&all, 19);
    assert_eq!(gone.len(), 20, "the entries before 19 and the checkpoint at 9");
    assert!(gone.iter().all(|name| name.as_str() < "00000000000000000019"), "{gone:?}");
    assert!(gone.is_sorted(), "the oldest goes first");
    // A checkpoint at the bound itself is enough; one behind it is not.
    assert_eq!(horizon(&log(0..=45, 25, &[24, 39]), 39), Some(24));
    assert_eq!(horizon(&log(0..=45, 25, &[25, 39]), 39), None);
}

#[test]
fn nothing_goes_without_need_or_proof() {
    let checkpoints = [9, 19, 29];
    assert_eq!(horizon(&log(0..=30, 0, &checkpoints), 29), None, "nothing is expired");
    assert_eq!(horizon(&log(0..=40, 41, &checkpoints), 29), Some(29), "all is expired: the verified one");
    assert_eq!(horizon(&log(0..=60, 61, &[9, 19, 29, 59]), 29), Some(29), "59 was not verified");
    let mut parts = log(0..=40, 41, &[]);
    parts.push(LogFile {
        name: "00000000000000000019.checkpoint.0000000001.0000000002.parquet".to_owned(),
        role: Role::PartOfCheckpoint,
        version: 19,
        expired: true,
    });
    assert_eq!(horizon(&parts, 29), None, "a part is not a checkpoint");
    assert_eq!(removable(&parts, 20).len(), 21, "and goes with the version that it is of");
    // A file that is younger than its version's entry stays until it is expired itself.
    let mut late = log(0..=40, 41, &checkpoints);
    late[3].expired = false;
    assert!(!removable(&late, 29).contains(&late[3].name));
}
