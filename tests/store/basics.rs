//! Append, read, seal, commit, reopen.

use std::path::Path;
use std::sync::Arc;

use penstock_store::fs::{FileSystem, MemoryFileSystem, RealFileSystem};
use penstock_store::{AppendError, Commit, OpenError, Options, Store};

use crate::kit::{append, bucket, define, open, options, payloads, seal, slice, table};

fn memory() -> Arc<dyn FileSystem> {
    Arc::new(MemoryFileSystem::new())
}

#[test]
fn acknowledged_rows_are_readable_and_survive_a_restart() {
    let fs = memory();
    let store = open(&fs);
    define(&store, table(1));
    for n in 0..100_u32 {
        let record = vec![slice(table(1), bucket(0), n.to_le_bytes().to_vec())];
        store.append(record).expect("should queue").wait_blocking().expect("should be durable");
    }
    let before = payloads(&store, table(1));
    assert_eq!(before.len(), 100);
    drop(store);
    let store = open(&fs);
    assert_eq!(payloads(&store, table(1)), before);
    assert_eq!(store.recovery().records, 101);
}

#[test]
fn rows_need_a_definition_first() {
    let store = open(&memory());
    let answer = store.append(vec![slice(table(1), bucket(0), "x")]).expect("should queue").wait_blocking();
    assert_eq!(answer, Err(AppendError::Undefined(table(1), 1)));
}

#[test]
fn a_seal_fixes_membership_and_a_commit_frees_the_log() {
    let fs = memory();
    let store = open(&fs);
    define(&store, table(1));
    for round in 1..=40_u64 {
        for _ in 0..5 {
            let record = vec![slice(table(1), bucket(0), vec![7; 3000])];
            store.append(record).expect("should queue").wait_blocking().expect("should be durable");
        }
        let open_generation = store.view(table(1)).generations[0].generation().clone();
        let sealed = store.seal(table(1), bucket(0), open_generation.first_lsn).wait_blocking();
        let sealed = sealed.expect("should be durable").expect("should still be open");
        assert_eq!((sealed.seal.sequence, sealed.generation.totals().rows), (round, 5));
        let again = store.seal(table(1), bucket(0), open_generation.first_lsn).wait_blocking();
        assert!(again.expect("should be answered").is_none());
        let commit = Commit { table: table(1), incarnation: sealed.seal.incarnation, sequence: round, version: round };
        store.commit(commit).wait_blocking().expect("should be durable");
        assert_eq!(store.unflushed_rows(), 0);
    }
    let lane_bytes: u64 = store.checkpoint().expect("should checkpoint").iter().map(|c| c.lane_bytes).sum();
    assert_eq!(lane_bytes, 0, "what is in Delta is not written again");
    let retained = store.status()[0].retained_bytes;
    assert!(retained <= 2 * (1 << 16), "retained {retained} bytes");
    drop(store);
    // The definition outlives its segment.
    let store = open(&fs);
    assert_eq!(store.definitions().len(), 1);
    assert_eq!(payloads(&store, table(1)).len(), 0);
    store
        .append(vec![slice(table(1), bucket(0), "x")])
        .expect("should queue")
        .wait_blocking()
        .expect("should be durable");
}

#[test]
fn after_an_orderly_end_a_start_reads_no_log_though_a_commit_was_waiting_for_company() {
    let fs = memory();
    let store = open(&fs);
    define(&store, table(1));
    append(&store, "x");
    let sealed = seal(&store).expect("should seal");
    let (incarnation, sequence) = (sealed.seal.incarnation, sealed.seal.sequence);
    let waiting = store.commit(Commit { table: table(1), incarnation, sequence, version: 1 });
    store.close().expect("should close");
    waiting.wait_blocking().expect("should be durable");
    drop(store);
    let store = open(&fs);
    assert_eq!((store.recovery().bytes, payloads(&store, table(1)).len()), (0, 0));
}

#[test]
fn a_second_store_on_the_directory_is_refused() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let fs: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let first = Store::open(Arc::clone(&fs), dir.path(), &options()).expect("should open");
    let error = Store::open(Arc::clone(&fs), dir.path(), &options()).expect_err("should be refused");
    assert!(matches!(error, OpenError::Locked { holder: Some(pid), .. } if pid == std::process::id()), "{error}");
    drop(first);
    Store::open(fs, dir.path(), &options()).expect("should open again");
}

#[test]
fn a_changed_shard_count_is_refused() {
    let fs = memory();
    drop(open(&fs));
    let changed = Options { shards: 3, ..options() };
    let error = Store::open(fs, Path::new("/data"), &changed).expect_err("should be refused");
    assert!(matches!(error, OpenError::CountChanged { stored: 1, configured: 3, .. }), "{error}");
}

#[test]
fn a_record_larger_than_a_segment_gets_one_of_its_own() {
    let fs = memory();
    let store = open(&fs);
    define(&store, table(1));
    let large = vec![1; 300_000];
    for payload in [vec![0; 10], large.clone(), vec![2; 10]] {
        store
            .append(vec![slice(table(1), bucket(0), payload)])
            .expect("should queue")
            .wait_blocking()
            .expect("should be durable");
    }
    drop(store);
    let store = open(&fs);
    let found = payloads(&store, table(1));
    assert_eq!(found.iter().map(|p| p.len()).collect::<Vec<_>>(), [10, 300_000, 10]);
    assert_eq!(found[1], large);
}
