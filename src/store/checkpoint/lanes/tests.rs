use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::fs::MemoryFileSystem;

const NODE: NodeId = NodeId(Uuid::from_u128(7));
const OTHER: NodeId = NodeId(Uuid::from_u128(8));

fn dirs() -> Vec<PathBuf> {
    ["/a/lane", "/b/lane"].map(PathBuf::from).into()
}

fn open(fs: &MemoryFileSystem, dirs: Vec<PathBuf>, node: NodeId) -> Result<Lanes, String> {
    Lanes::open(Arc::new(fs.clone()), dirs, node, Barrier::Auto).map_err(|e| e.to_string())
}

fn made() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    make(&fs, &dirs(), NODE).expect("should make lanes");
    fs
}

#[test]
fn what_was_made_is_there_after_a_power_loss() {
    for seed in 0..20 {
        let fs = made().crash(seed);
        assert_eq!(open(&fs, dirs(), NODE).expect("should open").count(), 2);
    }
}

#[test]
fn a_missing_mount_a_stranger_and_a_swap_are_told_apart() {
    let fs = made();
    assert!(open(&fs, dirs(), OTHER).expect_err("is another's").contains(&format!("of node {NODE}")));
    let swapped = dirs().into_iter().rev().collect();
    assert!(open(&fs, swapped, NODE).expect_err("is swapped").contains("this is lane 1"));
    let missing = vec![PathBuf::from("/a/lane"), PathBuf::from("/c")];
    assert!(open(&fs, missing, NODE).expect_err("is missing").contains("mounted"));
}

#[test]
fn any_changed_byte_of_a_guard_shows() {
    let bytes = encode_guard(NODE, 3);
    assert_eq!(decode_guard(&bytes), Ok((NODE, 3)));
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        assert!(decode_guard(&bytes).is_err(), "byte {at}");
        assert!(decode_guard(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn a_directory_with_rows_is_not_made_a_lane() {
    let fs = made();
    fs.create(&Path::new("/a/lane").join(lane_file::file_name(0, 1))).expect("should create");
    let refused = make(&fs, &dirs(), OTHER).expect_err("has rows");
    assert!(refused.to_string().contains("another data directory"));
    // What a first start that was cut short leaves, is not in the way of the next one.
    let fs = made();
    make(&fs, &dirs(), OTHER).expect("should make lanes again");
    assert!(open(&fs, dirs(), OTHER).is_ok());
}

#[test]
fn files_are_spread_and_ids_are_new() {
    let fs = made();
    let lanes = open(&fs, dirs(), NODE).expect("should open");
    assert_eq!([lanes.choose(0, 1), lanes.choose(0, 2), lanes.choose(1, 1), lanes.choose(1, 2)], [1, 0, 0, 1]);
    assert_eq!(lanes.next_id(0, 5).expect("should list"), 5);
    fs.create(&lanes.path(0, 1, 9).expect("should be a lane")).expect("should create");
    fs.create(&lanes.path(1, 0, 20).expect("should be a lane")).expect("should create");
    assert_eq!(lanes.next_id(0, 5).expect("should list"), 10);
    assert_eq!(lanes.list(0).expect("should list"), [(1, 9)]);
    assert!(lanes.path(0, 2, 1).is_err());
}
