//! Checkpoints: rows move from the log into lane files, and nothing of that can be seen, whatever fails on the way.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_store::fs::{Fault, FaultKind, FileSystem, MemoryFileSystem, Operation};
use penstock_store::{CheckpointError, CheckpointReport, OpenError, Options, Store, TableId};

use crate::kit;

mod basics;
mod cut_short;
mod failures;
mod files;
mod layout;
mod manifest;
mod meanwhile;
mod replay;

/// Power losses that are tried, each with another part of what was not synced.
const SEEDS: u64 = 6;

/// Checkpoints come on demand only.
fn options() -> Options {
    Options { checkpoint_interval: None, ..kit::options() }
}

fn try_open_with(fs: &Arc<dyn FileSystem>, options: &Options) -> Result<Store, OpenError> {
    Store::open(Arc::clone(fs), Path::new(kit::DIR), options)
}

fn open_with(fs: &MemoryFileSystem, options: &Options) -> Store {
    try_open_with(&kit::shared(fs), options).expect("should open")
}

fn open(fs: &MemoryFileSystem) -> Store {
    open_with(fs, &options())
}

/// The report of the only shard.
fn checkpoint(store: &Store) -> CheckpointReport {
    store.checkpoint().expect("should checkpoint")[0]
}

fn postponed(store: &Store) -> String {
    match store.checkpoint() {
        Err(CheckpointError::Postponed(reason)) => reason,
        other => panic!("should be put off: {other:?}"),
    }
}

fn broken(store: &Store) -> String {
    match store.checkpoint() {
        Err(CheckpointError::Broken(reason)) => reason,
        other => panic!("should stop the shard: {other:?}"),
    }
}

fn with_extension(fs: &MemoryFileSystem, extension: &str) -> Vec<PathBuf> {
    fs.files().into_iter().filter(|path| path.extension().is_some_and(|e| e == extension)).collect()
}

fn lane_files(fs: &MemoryFileSystem) -> Vec<PathBuf> {
    with_extension(fs, "lane")
}

/// A row that tells its number and fills its bytes with it.
fn row(number: usize, len: usize) -> Bytes {
    let mut bytes = format!("{number:06} ").into_bytes();
    bytes.resize(len.max(bytes.len()), number as u8);
    bytes.into()
}

/// Appends rows of 3000 bytes to table 1, bucket 0, over several segments.
fn append_rows(store: &Store, numbers: std::ops::Range<usize>) {
    for n in numbers {
        kit::append(store, row(n, 3000));
    }
}

fn rows(numbers: std::ops::Range<usize>) -> Vec<Bytes> {
    numbers.map(|n| row(n, 3000)).collect()
}

/// Extents, and slices in memory, of all generations of a table.
fn places(store: &Store, table: TableId) -> (usize, usize) {
    let places = store.view(table).generations.into_iter().map(|g| g.generation().places());
    places.fold((0, 0), |(extents, slices), (e, s)| (extents + e, slices + s))
}

fn fail(fs: &MemoryFileSystem, operation: Operation, path: &str, error: FaultKind, sticky: bool) {
    fs.fail(Fault { operation, nth: 1, path_contains: Some(path.to_owned()), error, sticky });
}

/// What the next process finds, and what it finds after each of several power losses.
fn aftermaths(fs: &MemoryFileSystem) -> impl Iterator<Item = (String, MemoryFileSystem)> {
    let next = ("the next process".to_owned(), fs.snapshot());
    let fs = fs.snapshot();
    std::iter::once(next).chain((0..SEEDS).map(move |seed| (format!("power loss {seed}"), fs.snapshot().crash(seed))))
}

/// Starts from everything that may be left, and finds exactly these rows of table 1; the first time also once more.
fn expect_rows(fs: &MemoryFileSystem, options: &Options, expected: &[Bytes], what: &str) {
    for (which, fs) in aftermaths(fs) {
        expect_rows_at_start(&fs, options, expected, &format!("{what}, {which}"));
        if which == "the next process" {
            expect_rows_at_start(&fs.crash(0), options, expected, &format!("{what}, {which} loses power"));
        }
    }
}

fn expect_rows_at_start(fs: &MemoryFileSystem, options: &Options, expected: &[Bytes], what: &str) {
    let store = try_open_with(&kit::shared(fs), options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = kit::payloads(&store, kit::table(1));
    assert!(found == expected, "{what}: {} rows instead of {}", found.len(), expected.len());
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
