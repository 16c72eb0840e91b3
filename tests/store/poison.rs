//! A write or a sync fails: nothing staged is acknowledged, the first reason stays, reads go on, and a restart recovers from disk.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use penstock_store::fs::{Fault, FaultKind, FileSystem, MemoryFileSystem, Operation};
use penstock_store::{AppendError, Commit, Store};

use crate::hook::Hooked;
use crate::kit::{self, append, bucket, commit, define, open_memory, options, payloads, seal, table, try_append};

fn fail(fs: &MemoryFileSystem, operation: Operation, error: FaultKind) {
    fs.fail(Fault { operation, nth: 1, path_contains: Some(".seg".to_owned()), error, sticky: false });
}

fn with_rows(fs: &MemoryFileSystem) -> (Store, Vec<Bytes>) {
    let store = open_memory(fs);
    define(&store, table(1));
    let rows: Vec<Bytes> = (0..5_u8).map(|n| Bytes::from(vec![n; 100])).collect();
    for row in &rows {
        append(&store, row.clone());
    }
    (store, rows)
}

/// What fails, and whether the group may be on disk all the same.
const FAILURES: [(Operation, FaultKind); 5] = [
    (Operation::Write, FaultKind::Eio),
    (Operation::Write, FaultKind::ShortThenError { bytes: 5000 }),
    (Operation::Write, FaultKind::Enospc),
    (Operation::SyncData, FaultKind::Eio),
    (Operation::SyncData, FaultKind::ShortThenError { bytes: 4096 }),
];

#[test]
fn a_failed_write_or_sync_is_final() {
    for (operation, kind) in FAILURES {
        let fs = MemoryFileSystem::new();
        let (store, rows) = with_rows(&fs);
        let durable = store.status()[0].durable_lsn;
        fail(&fs, operation, kind);
        // The mark of an idle owner may be what meets the failed write; the answer is the same.
        let first = try_append(&store, vec![9; 9000]).expect_err("should fail");
        let AppendError::Poisoned { reason, .. } = &first else { panic!("{operation:?}: {first}") };
        assert!(reason.contains(".seg"), "{reason}");
        assert_eq!(try_append(&store, "later").expect_err("should be refused"), first, "the first reason stays");
        assert_eq!(seal(&store).expect_err("should be refused"), first);
        assert_eq!(store.poisoned(), Some(first.clone()));
        assert_eq!(store.status()[0].poisoned, Some(first.to_string()));
        assert_eq!(payloads(&store, table(1)), rows, "reads go on, and show what is durable");
        assert_eq!(store.status()[0].durable_lsn, durable);
        store.close().expect("should close: the manifest says how far the log is durable");
        drop(store);
        let store = open_memory(&fs);
        let found = payloads(&store, table(1));
        assert_eq!(found[..rows.len()], rows, "{operation:?} {kind:?}");
        assert!(found.len() <= rows.len() + 1);
        append(&store, "goes on");
    }
}

#[test]
fn what_a_failed_sync_left_in_the_page_cache_is_written_again_before_it_is_shown() {
    for seed in 0..60 {
        let fs = MemoryFileSystem::new();
        let (store, rows) = with_rows(&fs);
        fail(&fs, Operation::SyncData, FaultKind::Eio);
        try_append(&store, "in doubt").expect_err("should fail");
        drop(store);
        // The page cache still has the group, and no sync would write it. Shown to a reader, it has to survive.
        let store = open_memory(&fs);
        let shown = payloads(&store, table(1));
        assert_eq!(shown[..rows.len()], rows);
        assert_eq!(shown[rows.len()..], ["in doubt"]);
        let crashed = fs.crash(seed);
        drop(store);
        assert_eq!(payloads(&open_memory(&crashed), table(1)), shown, "seed {seed}");
    }
}

#[test]
fn a_failed_sync_and_a_power_loss_neither_lose_nor_repeat_what_was_acknowledged() {
    for seed in 0..60 {
        let fs = MemoryFileSystem::new();
        let (store, rows) = with_rows(&fs);
        fail(&fs, Operation::SyncData, FaultKind::ShortThenError { bytes: 4096 });
        try_append(&store, vec![9; 9000]).expect_err("should fail");
        let crashed = fs.crash(seed);
        drop(store);
        let found = payloads(&open_memory(&crashed), table(1));
        assert_eq!(found[..rows.len()], rows, "seed {seed}");
        assert!(found[rows.len()..].iter().all(|row| *row == vec![9; 9000]) && found.len() <= rows.len() + 1);
    }
}

#[test]
fn everybody_who_waits_is_answered() {
    let fs = MemoryFileSystem::new();
    let (store, _) = with_rows(&fs);
    fail(&fs, Operation::SyncData, FaultKind::Eio);
    let pending: Vec<_> = (0..500_u32)
        .map(|n| store.append(vec![kit::slice(table(1), bucket(0), n.to_le_bytes().to_vec())]).expect("should queue"))
        .collect();
    let seal = store.seal(table(1), bucket(0), store.view(table(1)).generations[0].generation().first_lsn);
    let incarnation = store.incarnation();
    let commit = store.commit(Commit { table: table(1), incarnation, sequence: 1, version: 1 });
    let poisoned = |error: AppendError| assert!(matches!(error, AppendError::Poisoned { .. }), "{error}");
    pending.into_iter().for_each(|p| poisoned(p.wait_blocking().expect_err("should fail")));
    poisoned(seal.wait_blocking().expect_err("should fail"));
    poisoned(commit.wait_blocking().expect_err("should fail"));
}

#[test]
fn a_failure_while_rolling_to_the_next_segment_is_final_too() {
    for operation in [Operation::Rename, Operation::SyncDir] {
        let fs = MemoryFileSystem::new();
        let store = open_memory(&fs);
        define(&store, table(1));
        fs.fail(Fault {
            operation,
            nth: 1,
            path_contains: Some("shard-000".to_owned()),
            error: FaultKind::Eio,
            sticky: false,
        });
        let mut acknowledged = 0;
        let error = loop {
            match try_append(&store, vec![1; 6000]) {
                Ok(_) => acknowledged += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, AppendError::Poisoned { .. }), "{operation:?}: {error}");
        assert!(acknowledged > 3);
        let crashed = fs.crash(7);
        drop(store);
        assert_eq!(payloads(&open_memory(&crashed), table(1)).len(), acknowledged, "{operation:?}");
    }
}

#[test]
fn a_failure_while_recycling_loses_nothing() {
    for operation in [Operation::Rename, Operation::SyncDir, Operation::Remove] {
        for seed in 0..20 {
            let fs = MemoryFileSystem::new();
            let store = open_memory(&fs);
            define(&store, table(1));
            for _ in 0..20 {
                append(&store, vec![1; 6000]);
            }
            let sealed = seal(&store).expect("should seal");
            append(&store, "kept");
            fs.fail(Fault {
                operation,
                nth: 1,
                path_contains: Some("shard-000".to_owned()),
                error: FaultKind::Eio,
                sticky: true,
            });
            commit(&store, &sealed).expect("should commit: the segments go afterwards");
            drop(store);
            fs.clear_faults();
            // The names that were not synced may come back, whatever has been written meanwhile under the others.
            let store = open_memory(&fs);
            assert_eq!(payloads(&store, table(1)), ["kept"], "{operation:?}");
            for _ in 0..20 {
                append(&store, vec![2; 6000]);
            }
            let crashed = fs.crash(seed);
            drop(store);
            assert_eq!(payloads(&open_memory(&crashed), table(1)).len(), 21, "{operation:?}, seed {seed}");
        }
    }
}

#[test]
fn a_panic_of_the_owner_answers_everybody() {
    let fs = MemoryFileSystem::new();
    let hooked: Arc<dyn FileSystem> = Hooked::shared(&fs, |call, _| {
        let in_owner = std::thread::current().name().is_some_and(|name| name.starts_with("penstock-log"));
        assert!(!(call == "write" && in_owner), "a fault of the test");
        Ok(())
    });
    let store = Store::open(hooked, Path::new(kit::DIR), &options()).expect("should open");
    let define = penstock_store::Define { table: table(1), schema_version: 1, body: Bytes::new() };
    let answer = store.define(define.clone()).expect("should queue").wait_blocking();
    assert!(matches!(answer, Err(AppendError::Poisoned { .. })), "{answer:?}");
    let answer = store.define(define).expect("should queue").wait_blocking();
    assert!(matches!(answer, Err(AppendError::Poisoned { .. })), "{answer:?}");
    assert!(store.poisoned().is_some());
    assert_eq!(payloads(&store, table(1)), Vec::<Bytes>::new());
}
