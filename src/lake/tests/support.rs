//! A table of measurements, lakes to put it in, and a store with faults.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use async_trait::async_trait;
use bytes::Bytes;
use deltalake::datafusion::prelude::SessionContext;
use deltalake::kernel::Add;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use penstock_store::{Bucket, Incarnation, NodeId, TableId};
use serde_json::Value;
use url::Url;
use uuid::Uuid;

use crate::lake::patience::Patience;
use crate::lake::stores::Stores;
use crate::lake::{Commit, Committed, Error, FileSettings, Lake, LakeTable, Options};
use crate::schema::arrow::{arrow_schema, with_partition};
use crate::schema::{ColumnSpec, ColumnType, EventTime, TableName, TableSpec};

pub const NODE: NodeId = NodeId(Uuid::from_u128(7));
pub const TABLE: TableId = TableId(Uuid::from_u128(42));
pub const NOW: Incarnation = Incarnation(0xbeef);
pub const DAY: i64 = 86_400_000_000;

pub fn name() -> TableName {
    "metrics.cpu".parse().expect("should be a name")
}

pub fn column(name: &str, kind: ColumnType, nullable: bool) -> ColumnSpec {
    ColumnSpec { name: name.into(), kind, nullable }
}

pub fn spec() -> TableSpec {
    TableSpec {
        name: name(),
        schema_version: 1,
        columns: vec![
            column("ts", ColumnType::Timestamp, false),
            column("host", ColumnType::String, true),
            column("load", ColumnType::Double, true),
        ],
        event_time: EventTime::Column { name: "ts".into(), unit: None },
        bucket_seconds: 3_600,
        partition: Some("date".into()),
        sort: vec!["host".into()],
        history: vec![],
        bloom: vec![],
        rules: crate::schema::Rules::default(),
    }
}

/// `rows` rows of the given day since 1970, the partition column included.
pub fn day_of_rows(spec: &TableSpec, day: i64, rows: u32) -> Vec<RecordBatch> {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(
            TimestampMicrosecondArray::from_iter_values((0..rows).map(|i| day * DAY + i64::from(i)))
                .with_timezone("UTC"),
        ),
        Arc::new(StringArray::from_iter((0..rows).map(|i| (i > 0).then(|| format!("host-{}", i % 5))))),
        Arc::new(Float64Array::from_iter_values((0..rows).map(f64::from))),
    ];
    let batch = RecordBatch::try_new(arrow_schema(spec), columns).expect("should be a batch");
    let bucket = Bucket { start: day * DAY, width: 3_600_000_000 };
    vec![with_partition(spec, &batch, bucket)]
}

pub async fn write(table: &LakeTable, day: i64, rows: u32) -> Vec<Add> {
    let batches = day_of_rows(&spec(), day, rows);
    let files = table.write_data(&spec(), batches, &FileSettings::default()).await.expect("should write");
    assert_eq!(files.rows, u64::from(rows));
    files.adds
}

pub async fn commit_as(
    table: &LakeTable,
    incarnation: Incarnation,
    sequences: std::ops::RangeInclusive<u64>,
    adds: &[Add],
) -> std::result::Result<Committed, Error> {
    let (first_sequence, sequence) = sequences.into_inner();
    table.commit(Commit { node: NODE, incarnation, first_sequence, sequence, spec: &spec(), adds }).await
}

/// Writes ten rows and commits them as sequence `sequence` of this incarnation.
pub async fn ten_rows(table: &LakeTable, sequence: u64) -> std::result::Result<Committed, Error> {
    let adds = write(table, 20_000, 10).await;
    commit_as(table, NOW, sequence..=sequence, &adds).await
}

pub fn landed(version: u64) -> Committed {
    Committed { version, adopted: false }
}

pub fn adopted(version: u64) -> Committed {
    Committed { version, adopted: true }
}

pub fn local(dir: &FilePath) -> Lake {
    Lake::open(&Options::default(), dir).expect("should open the lake")
}

/// Writes a Delta checkpoint of the newest version, as somebody outside.
pub async fn delta_rs_checkpoint(table: &LakeTable) {
    let mut delta = deltalake::DeltaTable::new(Arc::clone(&table.parts.log_store));
    delta.load().await.expect("should open the table");
    deltalake::checkpoints::create_checkpoint(&delta, None).await.expect("should write a checkpoint");
}

/// What a reader that knows nothing of us counts.
pub async fn rows_by_delta_rs(url: Url) -> i64 {
    let table = deltalake::open_table(url).await.expect("should open the table");
    count(table.table_provider().await.expect("should have a provider")).await
}

pub async fn count(provider: Arc<dyn deltalake::datafusion::catalog::TableProvider>) -> i64 {
    let session = SessionContext::new();
    session.register_table("t", provider).expect("should register");
    let batches = session.sql("select count(*) from t").await.expect("should plan").collect().await;
    let batches = batches.expect("should run");
    arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(batches[0].column(0)).value(0)
}

/// The actions of a log entry, by their names.
pub fn actions(bytes: &[u8], action: &str) -> Vec<Value> {
    serde_json::Deserializer::from_slice(bytes)
        .into_iter::<Value>()
        .filter_map(|line| line.expect("should be JSON").get(action).cloned())
        .collect()
}

/// What happens to a create-only PUT of a log entry.
#[derive(Debug)]
pub enum Fault {
    None,
    /// Nothing is written, and the answer says so.
    FailBefore,
    /// It is written, and the answer is an error.
    LoseAnswer,
    /// "Already exists", though nothing does.
    Conflict,
    /// Never answered; written or not.
    Hang {
        applied: bool,
    },
    /// Another writer is faster.
    Rival(String),
}

/// A store that obeys a script of faults, one per create-only PUT of a log entry; also `read_faults` reads of log entries
/// fail after a fault.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn ObjectStore>,
    script: Mutex<VecDeque<Fault>>,
    read_failures: AtomicUsize,
    list_failures: AtomicUsize,
    no_probes: AtomicBool,
    pub puts: AtomicUsize,
    pub gets: AtomicUsize,
    pub lists: AtomicUsize,
    /// Bytes of all answers to GETs.
    pub bytes: AtomicUsize,
}

pub const CALL_TIMEOUT: Duration = Duration::from_millis(200);

impl Faulty {
    /// A lake in memory behind a store with this script.
    pub fn lake(script: impl IntoIterator<Item = Fault>) -> (Lake, Arc<Self>) {
        Self::lake_over(Arc::new(InMemory::new()), script)
    }

    /// The same on objects that another lake may share.
    pub fn lake_over(inner: Arc<dyn ObjectStore>, script: impl IntoIterator<Item = Fault>) -> (Lake, Arc<Self>) {
        let store = Arc::new(Self {
            inner,
            script: Mutex::new(script.into_iter().collect()),
            read_failures: AtomicUsize::new(0),
            list_failures: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            no_probes: AtomicBool::new(false),
            puts: AtomicUsize::new(0),
            gets: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
        });
        let url = Url::parse("memory:///lake").expect("should be a URL");
        let stores = Stores::new(url, Arc::clone(&store) as _, CALL_TIMEOUT).expect("should be a lake");
        let patience = Patience { tries: 4, first_wait: Duration::from_millis(1), whole: Duration::from_secs(30) };
        (Lake::over(stores, patience), store)
    }

    pub fn then(&self, fault: Fault) {
        self.script.lock().push_back(fault);
    }

    /// The next reads of log entries fail.
    pub fn fail_reads(&self, count: usize) {
        self.read_failures.store(count, Ordering::SeqCst);
    }

    /// No more faults.
    pub fn calm(&self) {
        self.script.lock().clear();
        self.read_failures.store(0, Ordering::SeqCst);
        self.list_failures.store(0, Ordering::SeqCst);
    }

    /// The next listings fail.
    pub fn fail_lists(&self, count: usize) {
        self.list_failures.store(count, Ordering::SeqCst);
    }

    /// PUTs, GETs and LISTs so far.
    pub fn calls(&self) -> [usize; 3] {
        [&self.puts, &self.gets, &self.lists].map(|count| count.load(Ordering::SeqCst))
    }

    /// Removes entries as somebody outside.
    pub async fn remove_entries(&self, versions: impl IntoIterator<Item = u64>) {
        for version in versions {
            self.inner.delete(&Self::entry_path(version)).await.expect("should remove");
        }
    }

    /// Drops the table as somebody outside.
    pub async fn drop_table(&self) {
        let all: Vec<ObjectMeta> = self.inner.list(None).try_collect().await.expect("should list");
        for meta in all {
            self.inner.delete(&meta.location).await.expect("should remove");
        }
    }

    /// The entries that there are.
    pub async fn versions(&self) -> Vec<u64> {
        let all: Vec<ObjectMeta> = self.inner.list(None).try_collect().await.expect("should list");
        let name = |meta: &ObjectMeta| meta.location.filename().map(str::to_owned);
        let number = |name: String| name.strip_suffix(".json").and_then(|digits| digits.parse().ok());
        let mut versions: Vec<u64> = all.iter().filter_map(name).filter_map(number).collect();
        versions.sort_unstable();
        versions
    }

    /// PUTs of a probe fail.
    pub fn fail_probes(&self, fail: bool) {
        self.no_probes.store(fail, Ordering::SeqCst);
    }

    pub fn entry_path(version: u64) -> Path {
        Path::from(format!("lake/metrics/cpu/_delta_log/{version:020}.json"))
    }

    pub async fn entry(&self, version: u64) -> Option<Bytes> {
        match self.inner.get(&Self::entry_path(version)).await {
            Ok(found) => Some(found.bytes().await.expect("should read")),
            Err(_) => None,
        }
    }

    pub async fn put_entry(&self, version: u64, text: &str) {
        let text = Bytes::copy_from_slice(text.as_bytes());
        self.inner.put(&Self::entry_path(version), text.into()).await.expect("should put");
    }

    /// How many entries say that the sequence is in them.
    pub async fn entries_with(&self, app: &str, sequence: u64) -> usize {
        let mut found = 0;
        let mut version = 0;
        while let Some(bytes) = self.entry(version).await {
            let txns = actions(&bytes, "txn");
            found += txns.iter().filter(|txn| txn["appId"] == app && txn["version"] == sequence).count();
            version += 1;
        }
        found
    }

    pub fn is_entry(location: &Path) -> bool {
        location.as_ref().contains("_delta_log/") && location.as_ref().ends_with(".json")
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

fn broken() -> StoreError {
    StoreError::Generic { store: "faulty", source: "connection reset".into() }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        if location.as_ref().contains("penstock-probe-") && self.no_probes.load(Ordering::SeqCst) {
            return Err(broken());
        }
        let scripted = opts.mode == PutMode::Create && Self::is_entry(location);
        let fault = if scripted { self.script.lock().pop_front() } else { None };
        let put = self.inner.put_opts(location, payload, opts);
        match fault.unwrap_or(Fault::None) {
            Fault::None => put.await,
            Fault::FailBefore => Err(broken()),
            Fault::LoseAnswer => put.await.and(Err(broken())),
            Fault::Conflict => {
                Err(StoreError::AlreadyExists { path: location.to_string(), source: "409 Conflict".into() })
            }
            Fault::Hang { applied } => {
                if applied {
                    put.await?;
                }
                futures::future::pending().await
            }
            Fault::Rival(text) => {
                self.inner.put(location, Bytes::from(text).into()).await?;
                put.await
            }
        }
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        let left = |failures: usize| failures.checked_sub(1);
        if Self::is_entry(location) && self.read_failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok()
        {
            return Err(broken());
        }
        let found = self.inner.get_opts(location, options).await?;
        let bytes = usize::try_from(found.range.end - found.range.start).expect("should fit");
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        Ok(found)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        let left = |failures: usize| failures.checked_sub(1);
        if self.list_failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
            return futures::stream::once(async { Err(broken()) }).boxed();
        }
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// A store that takes every PUT, create-only ones of taken keys too.
#[derive(Debug, Default)]
pub struct Careless(InMemory);

impl fmt::Display for Careless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Careless")
    }
}

#[async_trait]
impl ObjectStore for Careless {
    async fn put_opts(&self, location: &Path, payload: PutPayload, _opts: PutOptions) -> Result<PutResult> {
        self.0.put_opts(location, payload, PutOptions::default()).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}
