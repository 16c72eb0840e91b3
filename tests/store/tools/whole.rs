//! Several shards and lanes on a real file system, and what a repair must not forget.

use std::path::Path;
use std::sync::Arc;

use penstock_store::fs::{FileSystem, MemoryFileSystem, RealFileSystem};
use penstock_store::tools;
use penstock_store::{Options, ProducerId, Stamp, Store};

use super::{expect_sound, flip, repair};
use crate::kit::{append, bucket, define, open_memory, options, segments, slice, table};

#[test]
fn shards_and_lanes_on_a_real_file_system() {
    let temporary = tempfile::tempdir().expect("should be made");
    let dir = temporary.path().join("data");
    let lanes = vec![temporary.path().join("a"), temporary.path().join("b")];
    let fs: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let options = Options { shards: 2, lanes: lanes.clone(), ..options() };
    let open = || Store::open(Arc::clone(&fs), &dir, &options).expect("should open");
    let store = open();
    for n in [2, 3] {
        define(&store, table(n));
        for round in 0..3 {
            let row = vec![slice(table(n), bucket(0), vec![round; 100])];
            store.append(row).expect("should queue").wait_blocking().expect("should be durable");
            store.checkpoint().expect("should checkpoint");
        }
    }
    store.close().expect("should close");
    drop(store);
    let found = tools::inspect(&fs, &dir, &lanes).expect("should be readable");
    let files: Vec<_> = found.shards.iter().flat_map(|s| &s.lane_files).collect();
    // Small files are merged: one a shard.
    assert_eq!((found.shards.len(), files.len()), (2, 2));
    assert!(files.iter().all(|f| f.extents == 3 && f.live_extents == 3), "{files:#?}");
    assert!(tools::verify(&fs, &dir, &lanes).expect("should be checked").findings.is_empty());
    let mut bytes = std::fs::read(&files[0].path).expect("should be readable");
    bytes[4096 + 50] ^= 1;
    std::fs::write(&files[0].path, bytes).expect("should be written");
    let report = tools::repair(&fs, &dir, &lanes, false).expect("should be possible");
    assert_eq!((report.rows().len(), report.quarantined.len()), (1, 2), "{report:#?}");
    assert!(report.quarantined.iter().all(|p| p.starts_with(dir.join("quarantine")) && Path::exists(p)));
    assert!(tools::verify(&fs, &dir, &lanes).expect("should be checked").findings.is_empty());
    let store = open();
    assert_eq!(store.unflushed_rows(), 5);
    store.view(table(2)).generations.iter().for_each(|g| drop(g.slices().expect("should be readable")));
}

#[test]
fn repeats_are_known_as_such_after_a_repair_and_lost_rows_can_be_sent_again() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    let stamp = |sequence| Stamp { producer: ProducerId(9), epoch: 1, sequence };
    let send = |store: &Store, sequence: u64| {
        let row = vec![slice(table(1), bucket(0), format!("row {sequence}"))];
        store
            .append_stamped(stamp(sequence), row)
            .expect("should queue")
            .wait_blocking()
            .expect("should be durable")
            .lsn
    };
    let lsns: Vec<_> = (0..4).map(|sequence| send(&store, sequence)).collect();
    append(&store, "last");
    let killed = fs.crash_process();
    drop(store);
    // The record with sequence 2.
    flip(&killed, &segments(&killed)[0], 4096 + lsns[2].0 + 32 + 8 + 32 + 64 + 2);
    let report = repair(&killed).expect("should be possible");
    assert_eq!(report.rows().len(), 1, "{report:#?}");
    expect_sound(&killed);
    let store = open_memory(&killed);
    for sequence in [0, 1, 3] {
        assert_eq!(send(&store, sequence), lsns[sequence as usize]);
    }
    assert_eq!(store.unflushed_rows(), 4);
    assert!(send(&store, 2) > lsns[3]);
    assert_eq!(store.unflushed_rows(), 5);
}

/// Damage of any kind, anywhere: a repair either refuses and changes nothing, or what was acknowledged and is not reported as lost is
/// there exactly once, under its seal.
#[test]
fn random_damage_is_refused_or_repaired_without_a_silent_loss() {
    use rand::{Rng, SeedableRng};
    let healthy = super::mixed();
    let (mut repaired, mut refused) = (0, 0);
    for seed in 0..150 {
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        let fs = healthy.snapshot();
        for _ in 0..random.random_range(1..=2) {
            let at = 4096 + random.random_range(9 * 4096..14 * 4096_u64);
            let len = [1, 4, 64, 200, 4096, 8192][random.random_range(0..6)];
            let len = len.min(4096 + 14 * 4096 - at) as usize;
            let byte = if random.random_bool(0.5) { 0 } else { 0x5A };
            fs.overwrite(&segments(&fs)[0], at, &vec![byte; len]).expect("should be there");
        }
        let before = crate::kit::contents(&fs);
        let Ok(report) = repair(&fs) else {
            refused += 1;
            assert!(crate::kit::contents(&fs) == before, "seed {seed}: a refused repair changed files");
            continue;
        };
        repaired += 1;
        expect_sound(&fs);
        let kept = super::rows(&open_memory(&fs));
        let all = super::mixed_without(&[]);
        assert!(kept.iter().all(|row| all.contains(row)), "seed {seed}: {kept:?}");
        assert!(kept.windows(2).all(|pair| pair[0] != pair[1]), "seed {seed}: {kept:?}");
        assert!(kept.len() == all.len() || !report.losses.is_empty(), "seed {seed}: {kept:?}, {report:#?}");
    }
    assert!(repaired > 30 && refused > 10, "{repaired} repaired, {refused} refused");
}
