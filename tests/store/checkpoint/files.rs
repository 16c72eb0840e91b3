//! The life of lane files: dropped when nothing in them is live, rewritten when little is, merged when there are many.

use bytes::Bytes;
use penstock_store::fs::MemoryFileSystem;
use penstock_store::{Options, Store};

use super::{append_rows, checkpoint, expect_rows, lane_files, open, open_with, options, places, row, rows};
use crate::kit::{self, append, bucket, commit, define, payloads, seal, slice, table};

fn flush(store: &Store) {
    let sealed = seal(store).expect("should seal");
    commit(store, &sealed).expect("should commit");
}

#[test]
fn a_dead_lane_file_is_dropped_and_unlinked() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    append_rows(&store, 0..20);
    checkpoint(&store);
    let dead = lane_files(&fs);
    assert_eq!(dead.len(), 1);
    flush(&store);
    append_rows(&store, 20..25);
    assert_eq!(lane_files(&fs), dead, "not before the edit that no longer has it");
    let report = checkpoint(&store);
    assert_eq!(report.files_dropped, 1);
    let kept = lane_files(&fs);
    assert!(kept.len() == 1 && kept != dead);
    let status = &store.status()[0];
    assert_eq!((status.lane_files, status.lane_bytes), (1, report.lane_bytes));
    assert!(status.lane_live_bytes > 0 && status.lane_live_bytes < status.lane_bytes);
    expect_rows(&fs, &options(), &rows(20..25), "one dropped");
    // The name may come back; the next start removes it.
    for seed in 0..16 {
        let fs = fs.snapshot().crash(seed);
        drop(open(&fs));
        assert_eq!(lane_files(&fs), kept, "power loss {seed}");
    }
}

#[test]
fn a_straggler_does_not_pin_a_file_that_is_mostly_dead() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    append_rows(&store, 0..20);
    let late = slice(table(1), bucket(1), "the straggler");
    store.append(vec![late]).expect("should queue").wait_blocking().expect("should be durable");
    checkpoint(&store);
    let pinned = lane_files(&fs);
    let view = store.view(table(1));
    flush(&store);
    let report = checkpoint(&store);
    assert_eq!((report.files_dropped, report.extents), (1, 1));
    assert!(report.lane_bytes < 10_000, "only what is live is copied");
    let copied = lane_files(&fs);
    assert!(copied.len() == 1 && copied != pinned);
    assert_eq!(payloads(&store, table(1)), ["the straggler"]);
    assert_eq!(places(&store, table(1)), (1, 0));
    let seen: usize = view.generations.iter().map(|g| g.slices().expect("should be readable").len()).sum();
    assert_eq!(seen, 21, "a view from before still reads the old file");
    expect_rows(&fs, &options(), &[Bytes::from("the straggler")], "rewritten");
    // The copy is as good as the first one: it can be sealed, committed and dropped.
    drop(store);
    let store = open(&fs);
    let open = &store.summaries()[0].open[0];
    let sealed = store.seal(table(1), bucket(1), open.first_lsn).wait_blocking().expect("should seal");
    commit(&store, &sealed.expect("should be open")).expect("should commit");
    assert_eq!(checkpoint(&store).files_dropped, 1);
    assert!(lane_files(&fs).is_empty());
}

#[test]
fn a_rewritten_generation_keeps_the_order_of_its_rows() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    let late = |n: usize| {
        let record = vec![slice(table(1), bucket(5), row(n, 40))];
        store.append(record).expect("should queue").wait_blocking().expect("should be durable");
    };
    // The straggler has an extent in each of several files, and a newer one in memory.
    for round in 0..4 {
        append_rows(&store, 0..10);
        late(round);
        checkpoint(&store);
        flush(&store);
    }
    late(4);
    let expected: Vec<Bytes> = (0..5).map(|n| row(n, 40)).collect();
    assert_eq!(payloads(&store, table(1)), expected);
    expect_rows(&fs, &options(), &expected, "before");
    checkpoint(&store);
    assert_eq!(payloads(&store, table(1)), expected);
    assert_eq!(lane_files(&fs).len(), 1);
    expect_rows(&fs, &options(), &expected, "rewritten");
}

#[test]
fn the_number_of_lane_files_stays_bounded() {
    for len in [40, 5000] {
        let options = Options { lane_files: 4, ..options() };
        let fs = MemoryFileSystem::new();
        let store = open_with(&fs, &options);
        define(&store, table(1));
        let mut expected = Vec::new();
        for n in 0..40 {
            expected.push(row(n, len));
            append(&store, row(n, len));
            checkpoint(&store);
            assert!(lane_files(&fs).len() <= 4, "{} files after {n}", lane_files(&fs).len());
        }
        assert_eq!(payloads(&store, table(1)), expected);
        expect_rows(&fs, &options, &expected, "merged");
        let sealed = seal(&store).expect("should seal");
        assert_eq!(sealed.generation.totals().slices, 40);
        commit(&store, &sealed).expect("should commit");
        checkpoint(&store);
        assert!(lane_files(&fs).is_empty(), "what was copied counts once");
    }
}

#[test]
fn a_wish_for_fewer_files_than_there_can_be_is_no_reason_to_stop() {
    for lane_files in 0..3 {
        let options = Options { lane_files, ..options() };
        let fs = MemoryFileSystem::new();
        let store = open_with(&fs, &options);
        define(&store, table(1));
        for n in 0..10 {
            append(&store, row(n, 3000));
            checkpoint(&store);
        }
        expect_rows(&fs, &options, &rows(0..10), &format!("{lane_files} files wanted"));
    }
}

#[test]
fn each_lane_gets_its_share_of_the_files() {
    let lanes: Vec<_> = ["/lane-a", "/lane-b/deep"].map(std::path::PathBuf::from).into();
    let options = Options { lanes, shards: 2, ..options() };
    let fs = MemoryFileSystem::new();
    let store = open_with(&fs, &options);
    let tables = [1, 2].map(table);
    assert_ne!(store.shard_of(tables[0]), store.shard_of(tables[1]));
    tables.iter().for_each(|t| define(&store, *t));
    for n in 0..4 {
        for t in tables {
            let record = vec![slice(t, bucket(0), row(n, 3000))];
            store.append(record).expect("should queue").wait_blocking().expect("should be durable");
        }
        assert_eq!(store.checkpoint().expect("should checkpoint").len(), 2);
    }
    let in_lane = |lane: &str| lane_files(&fs).iter().filter(|path| path.starts_with(lane)).count();
    assert_eq!((in_lane("lane-a"), in_lane("lane-b/deep")), (4, 4));
    for (which, fs) in super::aftermaths(&fs) {
        let store = open_with(&fs, &options);
        tables.iter().for_each(|t| assert_eq!(payloads(&store, *t), rows(0..4), "{which}"));
    }
    assert!(kit::contents(&fs).iter().all(|(path, _)| !path.starts_with("data/lanes")));
}
