use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::fs::MemoryFileSystem;

fn manifests() -> impl Strategy<Value = Manifest> {
    let log =
        any::<(u64, u64)>().prop_map(|(durable, segment)| LogPosition { durable: Lsn(durable), segment: Lsn(segment) });
    let logs = proptest::collection::vec(log, 1..20);
    let start = (any::<u64>(), proptest::collection::vec(any::<u64>().prop_map(Lsn), 1..5))
        .prop_map(|(incarnation, firsts)| Start { incarnation: Incarnation(incarnation), firsts });
    let history = proptest::collection::vec(start, 0..5);
    (any::<u128>(), any::<[u64; 4]>(), any::<[u32; 2]>(), any::<[u64; 4]>(), logs, history).prop_map(
        |(node, numbers, [lanes, layout], replay_rates, logs, history)| {
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
                history,
            }
        },
    )
}

proptest! {
    #[test]
    fn reads_what_it_wrote(manifest in manifests()) {
        let bytes = manifest.encode();
        let history: usize = manifest.history.iter().map(Start::len).sum();
        prop_assert_eq!(bytes.len(), HEAD_LEN + BODY_LEN + LOG_LEN * manifest.logs.len() + history + CRC_LEN);
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
        history: Vec::new(),
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
    bytes[8] = 4;
    let error = Manifest::decode(&rechecked(bytes)).expect_err("should be refused");
    assert!(error.contains("format version 4"), "{error}");
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

fn begun(manifest: &mut Manifest, incarnation: u64, firsts: &[u64]) {
    manifest.incarnation = Incarnation(incarnation);
    manifest.begin(firsts.iter().copied().map(Lsn).collect());
}

fn empty() -> Manifest {
    Manifest {
        version: VERSION,
        node: NodeId(Uuid::nil()),
        incarnation: Incarnation(0),
        starts: 0,
        created_unix_ms: 0,
        segment_bytes: 0,
        lanes: 1,
        layout: 0,
        replay_rates: [0; REPLAY_RATES],
        logs: vec![LogPosition::default(); 2],
        history: Vec::new(),
    }
}

#[test]
fn a_start_of_another_directory_is_told_from_one_that_is_forgotten() {
    let mut manifest = empty();
    let asked = |manifest: &Manifest, incarnation| manifest.has_started(Incarnation(incarnation));
    assert_eq!(asked(&manifest, 1), None);
    begun(&mut manifest, 1, &[0, 0]);
    begun(&mut manifest, 2, &[0, 0]);
    begun(&mut manifest, 3, &[0, 80]);
    assert_eq!([1, 2, 3, 4].map(|i| asked(&manifest, i)), [Some(false), Some(true), Some(true), Some(false)]);
    manifest.history.remove(0);
    assert_eq!([2, 3].map(|i| asked(&manifest, i)), [None, Some(true)]);
}

#[test]
fn a_record_is_that_of_the_start_that_wrote_it_on_the_shard_of_that_time() {
    let mut manifest = empty();
    let table = |n| TableId(Uuid::from_u128(n));
    assert_eq!(manifest.origin(table(0), Lsn(u64::MAX)), None);
    begun(&mut manifest, 1, &[100, 50]);
    begun(&mut manifest, 2, &[200, 50]);
    begun(&mut manifest, 3, &[200, 80]);
    // Another number of shards, which begin behind all that were there.
    begun(&mut manifest, 4, &[1_000, 1_000, 1_000]);
    begun(&mut manifest, 5, &[1_000, 1_000, 1_300]);
    let origin = |n, lsn| manifest.origin(table(n), Lsn(lsn)).map(|(incarnation, shard)| (incarnation.0, shard));
    assert_eq!(
        [99, 100, 199, 200, 999].map(|lsn| origin(0, lsn)),
        [None, Some((1, 0)), Some((1, 0)), Some((3, 0)), Some((3, 0))]
    );
    assert_eq!([49, 50, 79, 80].map(|lsn| origin(1, lsn)), [None, Some((2, 1)), Some((2, 1)), Some((3, 1))]);
    // Table 5 was on the second of two, and is on the third of three.
    assert_eq!(
        [80, 999, 1_000, 1_299, 1_300].map(|lsn| origin(5, lsn)),
        [Some((3, 1)), Some((3, 1)), Some((4, 2)), Some((4, 2)), Some((5, 2))]
    );
}

#[test]
fn starts_that_wrote_nothing_and_the_oldest_of_thousands_are_forgotten() {
    let mut manifest = empty();
    for incarnation in 0..100 {
        begun(&mut manifest, incarnation, &[7, 7]);
    }
    assert_eq!(manifest.history.len(), 1);
    for start in 1..=10_000 {
        begun(&mut manifest, start, &[start * 10, 7]);
    }
    assert_eq!(manifest.history.len(), MAX_HISTORY_LEN / 32);
    assert_eq!(manifest.history.last().map(|start| start.incarnation), Some(Incarnation(10_000)));
    assert!((manifest.encode().len() as u64) < MAX_LEN);
}

#[test]
fn a_manifest_of_version_2_has_no_history() {
    let mut bytes = empty().encode();
    let crc_at = bytes.len() - CRC_LEN;
    let mut as_version_2 = |history: u8| {
        bytes[8] = 2;
        bytes[76] = history;
        let crc = crc32c::crc32c(&bytes[..crc_at]);
        bytes[crc_at..].copy_from_slice(&crc.to_le_bytes());
        Manifest::decode(&bytes)
    };
    assert_eq!(as_version_2(0), Ok(Manifest { version: 2, ..empty() }));
    assert!(as_version_2(1).is_err());
}
