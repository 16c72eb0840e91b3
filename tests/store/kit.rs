//! What the store's tests share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use penstock_store::fs::{FileSystem, MemoryFileSystem};
use penstock_store::{AppendError, Appended, Bucket, Commit, Define, OpenError, Options, Sealed, SliceInput};
use penstock_store::{Store, TableId};
use uuid::Uuid;

/// Where every test in memory keeps its data.
pub const DIR: &str = "/data";

/// Small segments, so that tests roll and recycle.
pub fn options() -> Options {
    Options { shards: 1, segment_bytes: 1 << 16, ..Options::default() }
}

pub fn try_open(fs: &Arc<dyn FileSystem>) -> Result<Store, OpenError> {
    Store::open(Arc::clone(fs), Path::new(DIR), &options())
}

pub fn open(fs: &Arc<dyn FileSystem>) -> Store {
    try_open(fs).expect("should open")
}

pub fn shared(fs: &MemoryFileSystem) -> Arc<dyn FileSystem> {
    Arc::new(fs.clone())
}

pub fn open_memory(fs: &MemoryFileSystem) -> Store {
    open(&shared(fs))
}

pub fn try_open_memory(fs: &MemoryFileSystem) -> Result<Store, OpenError> {
    try_open(&shared(fs))
}

pub fn table(number: u128) -> TableId {
    TableId(Uuid::from_u128(number))
}

pub fn bucket(number: i64) -> Bucket {
    Bucket { start: number * 3_600_000_000, width: 3_600_000_000 }
}

pub fn slice(table: TableId, bucket: Bucket, payload: impl Into<Bytes>) -> SliceInput {
    SliceInput {
        table,
        schema_version: 1,
        encoding: 1,
        bucket,
        rows: 1,
        min_time: bucket.start,
        max_time: bucket.start,
        payload: payload.into(),
    }
}

pub fn try_append(store: &Store, payload: impl Into<Bytes>) -> Result<Appended, AppendError> {
    store.append(vec![slice(table(1), bucket(0), payload)])?.wait_blocking()
}

/// One row of table 1, bucket 0.
pub fn append(store: &Store, payload: impl Into<Bytes>) -> Appended {
    try_append(store, payload).expect("should be durable")
}

pub fn define(store: &Store, table: TableId) {
    let define = Define { table, schema_version: 1, body: Bytes::from_static(b"{}") };
    store.define(define).expect("should be accepted").wait_blocking().expect("should be durable");
}

/// Seals what is open of table 1, bucket 0.
pub fn seal(store: &Store) -> Result<Sealed, AppendError> {
    let view = store.view(table(1));
    let open = view.generations.iter().find(|g| g.current_seal().is_none()).expect("should have an open generation");
    let sealed = store.seal(table(1), bucket(0), open.generation().first_lsn).wait_blocking()?;
    Ok(sealed.expect("should still be open"))
}

pub fn commit(store: &Store, sealed: &Sealed) -> Result<(), AppendError> {
    let (incarnation, sequence) = (sealed.seal.incarnation, sealed.seal.sequence);
    store.commit(Commit { table: table(1), incarnation, sequence, version: 1 }).wait_blocking()
}

/// All payloads of a table that are not in Delta, in LSN order within each generation.
pub fn payloads(store: &Store, table: TableId) -> Vec<Bytes> {
    store
        .view(table)
        .generations
        .iter()
        .flat_map(|g| g.slices().expect("should be readable"))
        .map(|s| s.payload)
        .collect()
}

/// The log files of the first shard, oldest first.
pub fn segments(fs: &MemoryFileSystem) -> Vec<PathBuf> {
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|e| e == "seg");
    fs.files().into_iter().filter(|path| is_segment(path) && path.starts_with("data/wal/shard-000")).collect()
}

/// Every file with its bytes, but for the lock, which every start writes.
pub fn contents(fs: &MemoryFileSystem) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs.files().into_iter().filter(|path| !path.ends_with("LOCK"));
    files.map(|path| (path.clone(), fs.dump(&path).expect("should be there"))).collect()
}

/// Refuses to start, and leaves every byte as it was.
pub fn refusal(fs: &MemoryFileSystem) -> OpenError {
    let before = contents(fs);
    let error = try_open_memory(fs).expect_err("should be refused");
    assert!(contents(fs) == before, "a refused start changed files: {error}");
    error
}
