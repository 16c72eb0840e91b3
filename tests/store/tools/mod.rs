//! The operator's tools on directories that are healthy, in use, and damaged.

mod inspect;
mod lane;
mod log;
mod verify;
mod whole;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use penstock_store::Store;
use penstock_store::fs::MemoryFileSystem;
use penstock_store::tools::{self, RepairError, RepairReport, VerifyReport};
use penstock_store::{Commit, Sealed};

use crate::kit::{DIR, append, bucket, commit, define, open_memory, seal, shared, slice, table};

/// Long enough for an idle owner to leave its mark.
const IDLE: std::time::Duration = std::time::Duration::from_millis(30);

fn verify(fs: &MemoryFileSystem) -> VerifyReport {
    tools::verify(&shared(fs), Path::new(DIR), &[]).expect("should be checked")
}

fn repair(fs: &MemoryFileSystem) -> Result<RepairReport, RepairError> {
    tools::repair(&shared(fs), Path::new(DIR), &[], false)
}

fn dry_run(fs: &MemoryFileSystem) -> RepairReport {
    tools::repair(&shared(fs), Path::new(DIR), &[], true).expect("should be planned")
}

fn flip(fs: &MemoryFileSystem, path: &Path, at: u64) {
    let byte = fs.dump(path).expect("should be there")[at as usize];
    fs.overwrite(path, at, &[byte ^ 0x10]).expect("should be there");
}

fn files_with(fs: &MemoryFileSystem, part: &str) -> Vec<PathBuf> {
    let files = fs.files().into_iter().filter(|p| p.to_string_lossy().contains(part));
    files.filter(|p| !p.starts_with("data/quarantine")).collect()
}

/// Payloads of a table with the sequence of their seal, 0 for open ones.
fn rows(store: &Store) -> Vec<(u64, Bytes)> {
    let view = store.view(table(1));
    let mut rows = Vec::new();
    for generation in &view.generations {
        let sequence = generation.current_seal().map_or(0, |s| s.sequence);
        rows.extend(generation.slices().expect("should be readable").into_iter().map(|s| (sequence, s.payload)));
    }
    rows.sort();
    rows
}

/// A store that was checkpointed once: committed and sealed rows in lane files, and sealed and open rows behind it in the log.
///
/// | rows | sequence | where |
/// |---|---|---|
/// | a | 1, committed | nowhere |
/// | b0, b1 | 2 | lane |
/// | c0 | 3 | lane, and log |
/// | c1, c2 | 3 | log |
/// | d0, d1 | open | log |
/// | e (bucket 1) | open | lane |
fn mixed() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    append(&store, "a");
    let first = seal(&store).expect("should seal");
    for row in ["b0", "b1"] {
        append(&store, row);
    }
    seal_bucket(&store, 0);
    commit(&store, &first).expect("should commit");
    append(&store, "c0");
    store
        .append(vec![slice(table(1), bucket(1), "e")])
        .expect("should queue")
        .wait_blocking()
        .expect("should be durable");
    store.checkpoint().expect("should checkpoint");
    for row in ["c1", "c2"] {
        append(&store, row);
    }
    seal_bucket(&store, 0);
    for row in ["d0", "d1"] {
        append(&store, row);
    }
    std::thread::sleep(IDLE);
    let killed = fs.crash_process();
    drop(store);
    killed
}

const MIXED: [(u64, &str); 8] = [(0, "d0"), (0, "d1"), (0, "e"), (2, "b0"), (2, "b1"), (3, "c0"), (3, "c1"), (3, "c2")];

fn seal_bucket(store: &Store, number: i64) -> Sealed {
    let view = store.view(table(1));
    let mut open = view.generations.iter().filter(|g| g.current_seal().is_none());
    let open = open.find(|g| g.generation().bucket == bucket(number)).expect("should have an open generation");
    let sealed = store.seal(table(1), bucket(number), open.generation().first_lsn).wait_blocking();
    sealed.expect("should be durable").expect("should still be open")
}

fn mixed_without(lost: &[&str]) -> Vec<(u64, Bytes)> {
    let kept = MIXED.iter().filter(|(_, row)| !lost.contains(row));
    let mut rows: Vec<_> = kept.map(|(sequence, row)| (*sequence, Bytes::from_static(row.as_bytes()))).collect();
    rows.sort();
    rows
}

/// The directory opens, has exactly these rows of the mixed store, goes on, seals and commits, and starts again.
fn expect_rows(fs: &MemoryFileSystem, lost: &[&str]) {
    let store = open_memory(fs);
    assert_eq!(rows(&store), mixed_without(lost), "without {lost:?}");
    append(&store, "f");
    let mut expected = mixed_without(lost);
    expected.push((0, Bytes::from_static(b"f")));
    expected.sort();
    assert_eq!(rows(&store), expected);
    let sealed = seal_bucket(&store, 0);
    commit(&store, &sealed).expect("should commit");
    // As the flush of the start before would have: everything that it sealed.
    if let Some(old) = store.view(table(1)).generations.iter().find_map(|g| g.current_seal()) {
        let commit = Commit { table: table(1), incarnation: old.incarnation, sequence: 3, version: 2 };
        store.commit(commit).wait_blocking().expect("should commit");
    }
    store.close().expect("should close");
    drop(store);
    let e = if lost.contains(&"e") { Vec::new() } else { vec![(0, Bytes::from_static(b"e"))] };
    assert_eq!(rows(&open_memory(fs)), e);
}

/// Nothing is wrong any more, a second repair does nothing, and a dry run neither.
fn expect_sound(fs: &MemoryFileSystem) {
    let report = verify(fs);
    assert_eq!(report.errors().count(), 0, "{report:#?}");
    let before = crate::kit::contents(fs);
    let again = repair(fs).expect("should be possible");
    assert!(again.is_sound() && again.actions.is_empty(), "{again:#?}");
    assert!(crate::kit::contents(fs) == before, "a second repair changed files");
}
