use object_store::ObjectMeta;
use object_store::path::Path;

use super::layout::Layout;

fn listed(names: &[&str]) -> Vec<ObjectMeta> {
    let meta = |name: &&str| ObjectMeta {
        location: Path::from(format!("_delta_log/{name}")),
        last_modified: Default::default(),
        size: 1,
        e_tag: None,
        version: None,
    };
    names.iter().map(meta).collect()
}

fn entry(version: u64) -> String {
    format!("{version:020}.json")
}

fn layout(entries: &[u64], others: &[String]) -> (Option<u64>, Option<u64>, Vec<u64>) {
    let names: Vec<String> = entries.iter().map(|v| entry(*v)).chain(others.iter().cloned()).collect();
    let layout = Layout::of(listed(&names.iter().map(String::as_str).collect::<Vec<_>>()));
    (layout.version, layout.checkpoint.map(|(at, _)| at), layout.beyond)
}

fn single(version: u64) -> String {
    format!("{version:020}.checkpoint.parquet")
}

fn part(version: u64, number: u32, of: u32) -> String {
    format!("{version:020}.checkpoint.{number:010}.{of:010}.parquet")
}

#[test]
fn a_log_begins_at_zero_or_behind_a_checkpoint() {
    assert_eq!(layout(&[], &[]), (None, None, vec![]));
    assert_eq!(layout(&[0, 1, 2], &[]), (Some(2), None, vec![]));
    assert_eq!(layout(&[3, 4], &[]), (None, None, vec![3, 4]));
    assert_eq!(layout(&[3, 4], &[single(2)]), (Some(4), Some(2), vec![]));
    assert_eq!(layout(&[], &[single(2)]), (Some(2), Some(2), vec![]));
    assert_eq!(layout(&[0, 1, 2, 3], &[single(1), single(3)]), (Some(3), Some(3), vec![]));
}

#[test]
fn what_lies_behind_a_gap_is_no_part_of_it() {
    assert_eq!(layout(&[0, 1, 4, 5], &[]), (Some(1), None, vec![4, 5]));
    assert_eq!(layout(&[0, 1, 7], &[single(3)]), (Some(3), Some(3), vec![7]));
    assert_eq!(layout(&[7], &[single(3)]), (Some(3), Some(3), vec![7]));
}

#[test]
fn a_checkpoint_counts_if_it_is_whole() {
    assert_eq!(layout(&[0, 1, 2, 3], &[part(3, 1, 2), single(1)]), (Some(3), Some(1), vec![]));
    assert_eq!(layout(&[2, 3], &[part(3, 1, 2), part(3, 2, 2)]), (Some(3), Some(3), vec![]));
    // Of two writers that split it otherwise.
    assert_eq!(layout(&[2, 3], &[part(3, 1, 3), part(3, 1, 2), part(3, 2, 2)]), (Some(3), Some(3), vec![]));
    assert_eq!(layout(&[0], &[part(0, 0, 0)]), (Some(0), None, vec![]));
    let unique = format!("{:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", 3);
    assert_eq!(layout(&[4], &[unique]), (Some(4), Some(3), vec![]));
}

#[test]
fn names_that_mean_nothing_here_are_passed_over() {
    let names = [
        "00000000000000000009.crc",
        "00000000000000000001.00000000000000000009.compacted.json",
        "_last_checkpoint",
        "_sidecars/00000000000000000009.checkpoint.0000000001.0000000001.parquet",
        "_staged_commits/00000000000000000009.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        "_staged_commits/00000000000000000009.json",
        "9.json",
        "0000000000000000000x.json",
        "99999999999999999999.json",
        "\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}",
    ];
    assert_eq!(layout(&[0], &names.map(str::to_owned)), (Some(0), None, vec![]));
}
