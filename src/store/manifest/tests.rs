use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::fs::MemoryFileSystem;

fn manifests() -> impl Strategy<Value = Manifest> {
    let log =
        any::<(u64, u64)>().prop_map(|(durable, segment)| LogPosition { durable: Lsn(durable), segment: Lsn(segment) });
    let logs = proptest::collection::vec(log, 1..20);
    (any::<u128>(), any::<[u64; 4]>(), any::<[u32; 2]>(), any::<[u64; 4]>(), logs).prop_map(
        |(node, numbers, [lanes, layout], replay_rates, logs)| {
            let [incarnation, starts, created_unix_ms, segment_bytes] = numbers;
            Manifest {
                version: VERSION,
                node: NodeId(Uuid::from_u128(node)),
                incarnation: Incarnation(incarnation),
                starts,
                created_unix_ms,
                segment_bytes,
                lanes,
                layout,
                replay_rates,
                logs,
            }
        },
    )
}

proptest! {
    #[test]
    fn reads_what_it_wrote(manifest in manifests()) {
        let bytes = manifest.encode();
        prop_assert_eq!(bytes.len(), HEAD_LEN + BODY_LEN + LOG_LEN * manifest.logs.len() + CRC_LEN);
        prop_assert_eq!(Manifest::decode(&bytes), Ok(manifest));
    }

    #[test]
    fn any_changed_byte_shows(manifest in manifests(), at: prop::sample::Index, by in 1..=255_u8) {
        let mut bytes = manifest.encode();
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        prop_assert!(Manifest::decode(&bytes).is_err());
    }

    #[test]
    fn any_cut_and_any_addition_shows(manifest in manifests(), at: prop::sample::Index) {
        let mut bytes = manifest.encode();
        prop_assert!(Manifest::decode(&bytes[..at.index(bytes.len())]).is_err());
        bytes.push(0);
        prop_assert!(Manifest::decode(&bytes).is_err());
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(Manifest::decode(&bytes));
    }
}

fn manifest(starts: u64) -> Manifest {
    Manifest {
        version: VERSION,
        node: NodeId(Uuid::from_u128(1)),
        incarnation: Incarnation(2),
        starts,
        created_unix_ms: 3,
        segment_bytes: 1 << 16,
        lanes: 0,
        layout: 0,
        replay_rates: [0; REPLAY_RATES],
        logs: vec![LogPosition::default(); 2],
    }
}

fn rechecked(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - CRC_LEN;
    let crc = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn another_version_is_named() {
    let mut bytes = manifest(1).encode();
    bytes[8] = 3;
    let error = Manifest::decode(&rechecked(bytes)).expect_err("should be refused");
    assert!(error.contains("format version 3"), "{error}");
}

#[test]
fn of_the_recent_replay_rates_the_lowest_is_feared_and_the_middle_one_expected() {
    let rates = |rates: &[u64]| {
        let mut manifest = manifest(1);
        rates.iter().for_each(|rate| manifest.add_replay_rate(*rate));
        (manifest.replay_rate(), manifest.middle_replay_rate())
    };
    assert_eq!(rates(&[]), (None, None));
    assert_eq!(rates(&[7]), (Some(7), Some(7)));
    assert_eq!(rates(&[9, 7]), (Some(7), Some(7)));
    assert_eq!(rates(&[9, 7, 8]), (Some(7), Some(8)));
    assert_eq!(rates(&[1, 9, 7, 8, 6]), (Some(6), Some(7)), "the oldest is forgotten");
}

#[test]
fn a_number_of_shards_that_cannot_be_is_damage() {
    for shards in [0_u32, 3, MAX_SHARDS + 1] {
        let mut bytes = manifest(1).encode();
        bytes[68..72].copy_from_slice(&shards.to_le_bytes());
        assert!(Manifest::decode(&rechecked(bytes)).is_err(), "{shards}");
    }
}

#[test]
fn a_store_that_is_cut_short_leaves_the_old_one_or_the_new_one() {
    use crate::fs::{Fault, FaultKind, Operation};
    let dir = Path::new("/data");
    for seed in 0..40 {
        for (step, operation) in
            [Operation::Open, Operation::Write, Operation::SyncData, Operation::Rename, Operation::SyncDir]
                .into_iter()
                .enumerate()
        {
            let fs = MemoryFileSystem::new();
            fs.create_dir_all(dir).expect("should be made");
            fs.sync_dir(Path::new("/")).expect("should sync");
            manifest(1).store(&fs, dir).expect("should be stored");
            fs.fail(Fault { operation, nth: 1, path_contains: None, error: FaultKind::Eio, sticky: true });
            manifest(2).store(&fs, dir).expect_err("should fail");
            let fs = fs.crash(seed);
            let found = Manifest::load(&fs, dir).expect("should be whole").expect("should be there");
            assert!(found.starts == 1 || step == 4 && found.starts == 2);
            manifest(3).store(&fs, dir).expect("should be stored");
            let found = Manifest::load(&fs.crash(seed), dir).expect("should be whole").expect("should be there");
            assert_eq!(found.starts, 3);
        }
    }
}

#[test]
fn a_full_disk_has_room_for_the_next_one() {
    let fs = MemoryFileSystem::new();
    let dir = Path::new("/data");
    fs.create_dir_all(dir).expect("should be made");
    manifest(1).store(&fs, dir).expect("should be stored");
    fs.set_capacity(0);
    manifest(2).store(&fs, dir).expect("should be stored on a full disk");
    fs.set_capacity(u64::MAX);
    manifest(3).store(&fs, dir).expect("should be stored");
    assert_eq!(Manifest::load(&fs, dir).expect("should be whole"), Some(manifest(3)));
}
