//! Tables do not wait for each other: a store whose calls can be slow, and that counts them.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use penstock_store::TableId;

use crate::flush::kit::{Kit, on_demand};
use crate::flush::{FlushError, Flusher, MAX_AT_LAKE, Options};

const LONG: Duration = Duration::from_secs(60);

/// Waits before it writes.
#[derive(Debug, Default)]
struct Slow {
    inner: InMemory,
    /// Data files take this long.
    data: Mutex<Duration>,
    /// Log entries of tables whose name begins so take this long.
    log: Mutex<(String, Duration)>,
    uploading: AtomicUsize,
    most_uploading: AtomicUsize,
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slow")
    }
}

#[async_trait]
impl ObjectStore for Slow {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if location.as_ref().contains("_delta_log") {
            let (prefix, delay) = self.log.lock().clone();
            if location.as_ref().contains(&format!("/{prefix}")) {
                tokio::time::sleep(delay).await;
            }
            return self.inner.put_opts(location, payload, opts).await;
        }
        let uploading = self.uploading.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_uploading.fetch_max(uploading, Ordering::SeqCst);
        let delay = *self.data.lock();
        tokio::time::sleep(delay).await;
        let put = self.inner.put_opts(location, payload, opts).await;
        self.uploading.fetch_sub(1, Ordering::SeqCst);
        put
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

async fn tables(kit: &Kit, name: &str, count: usize) -> Vec<TableId> {
    let mut tables = Vec::new();
    for i in 0..count {
        tables.push(kit.table(&format!("{name}{i}")).await);
    }
    tables
}

async fn append(kit: &Kit, tables: &[TableId], round: i64) {
    for table in tables {
        kit.append(*table, round, 0..3).await;
    }
}

/// CF-2: one table's commits take long.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_whose_commits_take_long_delays_only_itself() {
    let store = Arc::new(Slow::default());
    let kit = Kit::in_store(Arc::clone(&store) as _);
    let (slow, good) = (tables(&kit, "slow", 1).await, tables(&kit, "good", 6).await);
    *store.log.lock() = ("slow".to_owned(), Duration::from_secs(30));
    append(&kit, &slow, 0).await;
    append(&kit, &slow, 1).await;
    let (flusher, _heard) = kit.flusher(Options { parallelism: 1, ..on_demand() });
    let error = flusher.flush(&slow, Duration::from_millis(500)).await.expect_err("should not be done");
    assert!(matches!(error, FlushError::Timeout { left: 2, .. }), "{error}");
    assert!(flusher.progress(slow[0]).committing);
    let began = Instant::now();
    for round in 0..5 {
        append(&kit, &good, round).await;
        flusher.flush(&good, LONG).await.expect("should flush");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(flusher.progress(slow[0]).committing, "it is at its first commit still");
}

/// More tables hang in a commit than may be at the lake at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_tables_do_not_use_up_the_lake() {
    let store = Arc::new(Slow::default());
    let kit = Kit::in_store(Arc::clone(&store) as _);
    let (hanging, good) = (tables(&kit, "hangs", MAX_AT_LAKE + 6).await, tables(&kit, "good", 1).await);
    *store.log.lock() = ("hangs".to_owned(), Duration::from_secs(600));
    append(&kit, &hanging, 0).await;
    let (flusher, _heard) = kit.flusher(on_demand());
    flusher.flush(&hanging, Duration::from_secs(1)).await.expect_err("should not be done");
    append(&kit, &good, 0).await;
    flusher.flush(&good, LONG).await.expect("should flush");
}

async fn most_uploading(kit: &Kit, store: &Slow, flusher: &Flusher, tables: &[TableId], round: i64) -> usize {
    append(kit, tables, round).await;
    append(kit, tables, round + 1).await;
    store.most_uploading.store(0, Ordering::SeqCst);
    flusher.flush(tables, LONG).await.expect("should flush");
    store.most_uploading.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread")]
async fn parallelism_changes_while_it_runs_and_counts_within_a_table_and_across() {
    let store = Arc::new(Slow::default());
    let kit = Kit::in_store(Arc::clone(&store) as _);
    let tables = tables(&kit, "t", 4).await;
    *store.data.lock() = Duration::from_millis(100);
    let (flusher, _heard) = kit.flusher(Options { parallelism: 1, ..on_demand() });
    assert_eq!(most_uploading(&kit, &store, &flusher, &tables, 0).await, 1);
    flusher.set_parallelism(6);
    let most = most_uploading(&kit, &store, &flusher, &tables, 10).await;
    assert!((4..=6).contains(&most), "{most}");
    // Both generations of one table.
    assert_eq!(most_uploading(&kit, &store, &flusher, &tables[..1], 20).await, 2);
    flusher.set_parallelism(0);
    assert_eq!((flusher.parallelism(), most_uploading(&kit, &store, &flusher, &tables, 30).await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_limits_uploads_and_one_always_goes() {
    let store = Arc::new(Slow::default());
    let kit = Kit::in_store(Arc::clone(&store) as _);
    let tables = tables(&kit, "t", 4).await;
    *store.data.lock() = Duration::from_millis(20);
    let options = Options { parallelism: 8, memory: bytesize::ByteSize(1), ..on_demand() };
    let (flusher, _heard) = kit.flusher(options);
    assert_eq!(most_uploading(&kit, &store, &flusher, &tables, 0).await, 1);
    let left: HashSet<u64> = tables.iter().map(|table| kit.unflushed_rows(*table)).collect();
    assert_eq!(left, HashSet::from([0]));
}

/// TZ-3: a backfill of more than a year of dates, and fresh rows of another table.
#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_writes_few_files_at_a_time_and_does_not_hold_up_fresh_rows() {
    const DAYS: i64 = 400;
    let store = Arc::new(Slow::default());
    let kit = Kit::in_store(Arc::clone(&store) as _);
    let (old, fresh) = (tables(&kit, "old", 1).await, tables(&kit, "fresh", 1).await);
    for day in 0..DAYS {
        append(&kit, &old, day * 24).await;
    }
    *store.data.lock() = Duration::from_millis(20);
    let (flusher, _heard) = kit.flusher(Options { parallelism: 2, ..on_demand() });
    let error = flusher.flush(&old, Duration::from_millis(500)).await.expect_err("should not be done");
    assert!(matches!(error, FlushError::Timeout { .. }), "{error}");
    append(&kit, &fresh, DAYS * 24).await;
    flusher.flush(&fresh, LONG).await.expect("should flush");
    let left = kit.unflushed_rows(old[0]);
    assert!(left > 0, "fresh rows waited for the whole backfill");
    flusher.flush(&old, LONG).await.expect("should flush");
    assert_eq!(kit.rows_in_lake(old[0]).await, 3 * DAYS as u64);
    assert!(store.most_uploading.load(Ordering::SeqCst) <= 2, "as many as may be uploaded at a time");
}
