//! What is the same after a restart, and what is new.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_store::fs::{FileSystem, MemoryFileSystem, RealFileSystem};
use penstock_store::{AppendError, Commit, Define, Lsn, Options, Store};

use crate::kit::{
    self, append, bucket, commit, define, open_memory, options, payloads, seal, slice, table, try_append,
};

#[test]
fn counts_and_positions_continue() {
    let fs = MemoryFileSystem::new();
    let mut incarnations = HashSet::new();
    let mut last = Lsn(0);
    let mut node = None;
    for round in 0..8_u8 {
        let store = open_memory(&fs);
        assert!(incarnations.insert(store.incarnation()));
        assert_eq!(*node.get_or_insert(store.node()), store.node());
        assert_eq!(store.unflushed_rows(), u64::from(round) * 2);
        assert!(store.status()[0].durable_lsn >= last);
        if round == 0 {
            define(&store, table(1));
        }
        for _ in 0..2 {
            let lsn = append(&store, vec![round; 10]).lsn;
            assert!(lsn > last, "positions never repeat");
            last = lsn;
        }
        if round % 2 == 0 {
            store.close().expect("should close");
            store.close().expect("should close twice");
            assert_eq!(try_append(&store, "late"), Err(AppendError::Closed));
        }
    }
}

#[test]
fn seals_keep_their_order_and_their_rows_over_restarts() {
    let fs = MemoryFileSystem::new();
    let mut sealed = Vec::new();
    for start in 0..4_u64 {
        let store = open_memory(&fs);
        let summary = store.summaries();
        let found: Vec<_> = summary.iter().flat_map(|s| &s.sealed).map(|s| (s.seal, s.generation.totals())).collect();
        assert_eq!(found, sealed);
        if start == 0 {
            define(&store, table(1));
        }
        for sequence in 1..=3_u64 {
            for n in 0..sequence {
                append(&store, n.to_le_bytes().to_vec());
            }
            let seal = seal(&store).expect("should seal");
            assert_eq!((seal.seal.incarnation, seal.seal.sequence), (store.incarnation(), sequence));
            assert_eq!(seal.generation.totals().rows, sequence);
            sealed.push((seal.seal, seal.generation.totals()));
        }
    }
    // Commits free what they name and nothing else: the sequence counts within the start that sealed.
    let store = open_memory(&fs);
    let second = sealed[3].0.incarnation;
    store.commit(Commit { table: table(1), incarnation: second, sequence: 2, version: 9 }).wait_blocking().expect("ok");
    drop(store);
    let store = open_memory(&fs);
    let left: Vec<_> = store.summaries()[0].sealed.iter().map(|s| s.seal).collect();
    let expected: Vec<_> = sealed.iter().map(|s| s.0).filter(|s| s.incarnation != second || s.sequence > 2).collect();
    assert_eq!(left, expected);
}

#[test]
fn a_seal_is_given_once() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    let first = append(&store, "a").lsn;
    let wish = || store.seal(table(1), bucket(0), first);
    // All at once, with rows between them that a second seal must not close.
    let (one, row) = (wish(), store.append(vec![slice(table(1), bucket(0), "b")]).expect("should queue"));
    let (two, three) = (wish(), wish());
    let answers: Vec<_> =
        [one, two, three].into_iter().map(|p| p.wait_blocking().expect("should be answered")).collect();
    row.wait_blocking().expect("should be durable");
    let given: Vec<_> = answers.into_iter().flatten().collect();
    assert_eq!(given.len(), 1);
    assert_eq!(given[0].generation.first_lsn, first);
    assert_eq!(seal(&store).expect("should seal").seal.sequence, 2, "no sequence is skipped");
    assert!(store.seal(table(9), bucket(0), first).wait_blocking().expect("should be answered").is_none());
}

#[test]
fn a_clean_end_leaves_nothing_in_doubt() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    append(&store, "a");
    store.close().expect("should close");
    drop(store);
    let report = open_memory(&fs).recovery();
    assert_eq!((report.records, report.bytes, report.rewritten, report.torn), (0, 0, 0, 0));
}

#[test]
fn idle_restarts_use_no_room() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    drop(store);
    let count = || fs.files().iter().filter(|p| p.starts_with("data/wal")).count();
    drop(open_memory(&fs));
    let files = count();
    for _ in 0..10 {
        let store = open_memory(&fs);
        assert_eq!(store.definitions().len(), 1);
        store.close().expect("should close");
    }
    assert!(count() <= files + 1, "{} files", count());
}

#[test]
fn definitions_survive_the_recycling_of_their_segments() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    let defines: Vec<Define> = (1..30_u32)
        .map(|n| Define { table: table(u128::from(n)), schema_version: n, body: Bytes::from(vec![n as u8; 5000]) })
        .collect();
    for define in &defines {
        store.define(define.clone()).expect("should queue").wait_blocking().expect("should be durable");
    }
    for _ in 0..10 {
        for _ in 0..10 {
            append(&store, vec![1; 6000]);
        }
        let sealed = seal(&store).expect("should seal");
        commit(&store, &sealed).expect("should commit");
        store.checkpoint().expect("should checkpoint");
    }
    assert!(store.status()[0].durable_lsn > Lsn(600_000) && kit::segments(&fs).len() < 3);
    let crashed = fs.crash(3);
    drop(store);
    let store = open_memory(&crashed);
    let mut found = store.definitions();
    found.sort_by_key(|d| d.table);
    assert_eq!(found, defines);
    assert_eq!(payloads(&store, table(1)).len(), 0);
}

#[test]
fn a_generation_that_was_recycled_in_part_stays_committed() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    // Rows over three segments; the commit frees all but the one that is written to.
    for n in 0..50_u8 {
        append(&store, vec![n; 3000]);
    }
    let sealed = seal(&store).expect("should seal");
    for _ in 0..3 {
        append(&store, "next generation");
    }
    commit(&store, &sealed).expect("should commit");
    append(&store, "next generation");
    store.checkpoint().expect("should checkpoint");
    assert!(!kit::segments(&fs).iter().any(|s| s.ends_with("00000000000000000000.seg")), "nothing was recycled");
    for seed in 0..20 {
        let store = open_memory(&fs.snapshot().crash(seed));
        assert_eq!(payloads(&store, table(1)), ["next generation"; 4]);
        assert_eq!(store.summaries()[0].sealed.len(), 0);
    }
}

#[test]
fn the_first_record_of_a_start_may_be_larger_than_a_segment() {
    let fs = MemoryFileSystem::new();
    drop({
        let store = open_memory(&fs);
        define(&store, table(1));
        store
    });
    for round in 1..4_u8 {
        let store = open_memory(&fs);
        // The segment of the start is still empty: the record's own one takes over its name.
        append(&store, vec![round; 200_000]);
        append(&store, vec![round; 10]);
        if round == 2 {
            let sealed = seal(&store).expect("should seal");
            commit(&store, &sealed).expect("should commit");
            append(&store, vec![round; 200_000]);
        }
        let expected = payloads(&store, table(1));
        drop(store);
        assert_eq!(payloads(&open_memory(&fs), table(1)), expected, "round {round}");
    }
}

#[test]
fn groups_are_cut_to_the_size_of_a_segment() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    let pending: Vec<_> = (0..200_u32)
        .map(|n| store.append(vec![slice(table(1), bucket(0), vec![n as u8; 2000])]).expect("should queue"))
        .collect();
    for pending in pending {
        pending.wait_blocking().expect("should be durable");
    }
    let is_regular = |len: usize| len == (1 << 16) + 4096;
    assert!(kit::segments(&fs).iter().all(|s| is_regular(fs.dump(s).expect("should be there").len())));
}

#[test]
fn records_that_could_not_be_read_back_are_refused() {
    let store = open_memory(&MemoryFileSystem::new());
    define(&store, table(1));
    let mut bad = slice(table(1), bucket(0), "x");
    bad.bucket.width = 0;
    assert!(matches!(store.append(vec![bad]), Err(AppendError::Encode(_))));
    assert!(matches!(store.append(Vec::new()), Err(AppendError::Encode(_))));
    let small = Options { max_record_bytes: 1000, ..options() };
    let store = Store::open(kit::shared(&MemoryFileSystem::new()), Path::new(kit::DIR), &small).expect("should open");
    let answer = store.append(vec![slice(table(1), bucket(0), vec![0; 1000])]);
    assert!(matches!(answer, Err(AppendError::TooLarge { max: 1000, .. })));
}

#[test]
fn a_full_queue_refuses_and_drains() {
    let fs = MemoryFileSystem::new();
    let small = Options { queue_bytes: 20_000, ..options() };
    let store = Store::open(kit::shared(&fs), Path::new(kit::DIR), &small).expect("should open");
    define(&store, table(1));
    let mut taken = 0;
    for _ in 0..3 {
        let pending: Vec<_> = (0..500)
            .map(|_| store.append(vec![slice(table(1), bucket(0), vec![0; 1000])]).expect("should be answered"))
            .collect();
        for pending in pending {
            match pending.wait_blocking() {
                Ok(_) => taken += 1,
                Err(error) => assert_eq!(error, AppendError::QueueFull),
            }
        }
        // No byte is left behind in the accounting: an empty queue takes rows again.
        append(&store, "room");
    }
    assert_eq!(payloads(&store, table(1)).len(), taken + 3);
}

#[test]
fn a_commit_alone_is_durable_soon() {
    let store = open_memory(&MemoryFileSystem::new());
    define(&store, table(1));
    append(&store, "a");
    let sealed = seal(&store).expect("should seal");
    let started = Instant::now();
    commit(&store, &sealed).expect("should commit");
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_new_directory_is_durable_with_all_that_lead_to_it() {
    for dir in ["/data", "/a/b/c/data", "data", "a/b/data"] {
        for seed in 0..30 {
            let fs = MemoryFileSystem::new();
            let store = Store::open(kit::shared(&fs), Path::new(dir), &options()).expect("should open");
            define(&store, table(1));
            append(&store, "a");
            let crashed = fs.crash(seed);
            drop(store);
            let store = Store::open(kit::shared(&crashed), Path::new(dir), &options()).expect("should open again");
            assert_eq!(payloads(&store, table(1)), ["a"], "{dir}, seed {seed}");
        }
    }
}

#[test]
fn the_real_file_system_does_the_same() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let fs: std::sync::Arc<dyn FileSystem> = std::sync::Arc::new(RealFileSystem);
    let data = dir.path().join("some/where");
    let open = || Store::open(std::sync::Arc::clone(&fs), &data, &options()).expect("should open");
    let mut expected = Vec::new();
    for round in 0..4_u8 {
        let store = open();
        if round == 0 {
            define(&store, table(1));
        }
        assert_eq!(payloads(&store, table(1)), expected);
        for n in 0..30_u8 {
            append(&store, vec![n ^ round; 3000]);
        }
        if round == 1 {
            let sealed = seal(&store).expect("should seal");
            commit(&store, &sealed).expect("should commit");
            append(&store, vec![0; 100_000]);
        }
        expected = payloads(&store, table(1));
    }
}

#[test]
fn the_word_that_segments_are_gone_keeps_its_place() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    for n in 0..40_u8 {
        append(&store, vec![n; 3000]);
    }
    let sealed = seal(&store).expect("should seal");
    commit(&store, &sealed).expect("should commit");
    store.checkpoint().expect("should checkpoint");
    assert_eq!(kit::segments(&fs).len(), 1, "nothing is recycled");
    let published = store.status()[0].durable_lsn;
    for seed in 0..30 {
        let store = open_memory(&fs.snapshot().crash(seed));
        assert!(store.status()[0].durable_lsn >= published, "seed {seed}: the end of the log went back");
        append(&store, "afterwards");
    }
}
