//! A log in memory, a lake in a directory, and tables between them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::Int64Type;
use async_trait::async_trait;
use bytes::Bytes;
use deltalake::datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use penstock_store::fs::MemoryFileSystem;
use penstock_store::{Bucket, Define, Options as StoreOptions, Sealed, SliceInput, Store, TableId};
use tempfile::TempDir;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::journal::{Journal, JournalError, Upload};
use super::permits::Memory;
use super::sweep::Sweep;
use super::{Context, Flushed, Flusher, Live, Options, job};
use crate::lake::{self, DataFiles, Lake};
use crate::schema::arrow::arrow_schema;
use crate::schema::payload::{self, ENCODING_IPC};
use crate::schema::registry::{Registry, Table};
use crate::schema::{ColumnSpec, ColumnType, EventTime, TableSpec};

const HOUR: i64 = 3_600_000_000;

/// Seals nothing by itself.
pub fn on_demand() -> Options {
    let never = Duration::from_secs(3600);
    Options { min_age: never, max_age: never, ..Options::default() }
}

/// A journal that outlives its process.
#[derive(Debug, Default)]
pub struct FragileJournal {
    pub uploads: Mutex<Vec<Upload>>,
    /// It takes nothing more.
    pub broken: AtomicBool,
}

#[async_trait]
impl Journal for FragileJournal {
    async fn begin(&self, uploads: &[Upload]) -> Result<(), JournalError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(Arc::new(std::io::Error::other("the catalog's disk is full")));
        }
        self.uploads.lock().extend_from_slice(uploads);
        Ok(())
    }

    async fn end(&self, uploads: &[Upload]) -> Result<(), JournalError> {
        self.uploads.lock().retain(|known| !uploads.iter().any(|ended| ended.path == known.path));
        Ok(())
    }

    async fn open(&self) -> Result<Vec<Upload>, JournalError> {
        Ok(self.uploads.lock().clone())
    }
}

pub struct Kit {
    pub fs: MemoryFileSystem,
    pub dir: Arc<TempDir>,
    pub store: Arc<Store>,
    pub lake: Arc<Lake>,
    pub registry: Arc<Registry>,
    pub journal: Arc<FragileJournal>,
}

impl Kit {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("should make a directory");
        Self::over(MemoryFileSystem::new(), Arc::new(dir), Arc::default(), Arc::default())
    }

    /// The lake is in memory: as on an object store, and unlike in a directory, a commit waits to be confirmed.
    pub fn remote() -> Self {
        let options = lake::Options { url: Some("memory:///lake".to_owned()), ..lake::Options::default() };
        let lake = Lake::open(&options, Path::new("/")).expect("should open the lake");
        Self { lake: Arc::new(lake), ..Self::new() }
    }

    /// Another data directory, with the same lake and the same tables.
    pub fn with_data(&self, fs: MemoryFileSystem) -> Self {
        Self::over(fs, Arc::clone(&self.dir), Arc::clone(&self.registry), Arc::default())
    }

    /// The lake is in this store.
    pub fn in_store(store: Arc<dyn ObjectStore>) -> Self {
        let lake = Arc::new(Lake::in_store(store, Duration::from_secs(600)));
        Self { lake, ..Self::new() }
    }

    fn over(fs: MemoryFileSystem, dir: Arc<TempDir>, registry: Arc<Registry>, journal: Arc<FragileJournal>) -> Self {
        let options = StoreOptions { shards: 1, segment_bytes: 1 << 20, ..StoreOptions::default() };
        let store = Store::open(Arc::new(fs.clone()), Path::new("data"), &options).expect("should open the store");
        let lake = Lake::open(&lake::Options::default(), dir.path()).expect("should open the lake");
        Self { fs, dir, store: Arc::new(store), lake: Arc::new(lake), registry, journal }
    }

    /// The process is killed and started again.
    pub fn restart(self) -> Self {
        let fs = self.fs.crash_process();
        Self::over(fs, Arc::clone(&self.dir), Arc::clone(&self.registry), Arc::clone(&self.journal))
    }

    pub async fn table(&self, name: &str) -> TableId {
        let column = |name: &str, kind| ColumnSpec { name: name.into(), kind, nullable: false };
        let spec = TableSpec {
            name: name.parse().expect("should be a name"),
            schema_version: 1,
            columns: vec![column("ts", ColumnType::Timestamp), column("n", ColumnType::Long)],
            event_time: EventTime::Column { name: "ts".into(), unit: None },
            bucket_seconds: 3_600,
            partition: Some("date".into()),
            sort: vec![],
            history: vec![],
            bloom: vec![],
            rules: crate::schema::Rules::default(),
        };
        self.define(spec).await
    }

    pub async fn define(&self, spec: TableSpec) -> TableId {
        let id = TableId(Uuid::new_v4());
        let body = serde_json::to_vec(&spec).expect("should be JSON").into();
        let define = self.store.define(Define { table: id, schema_version: 1, body }).expect("should be a definition");
        define.wait().await.expect("should define");
        self.registry.insert(Table { id, spec });
        id
    }

    /// Appends rows with these numbers to the bucket of an hour.
    pub async fn append(&self, table: TableId, hour: i64, numbers: std::ops::Range<i64>) {
        let known = self.registry.by_id(table).expect("should be known");
        let times = numbers.clone().map(|i| hour * HOUR + i.rem_euclid(HOUR));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC")),
            Arc::new(Int64Array::from_iter_values(numbers)),
        ];
        let batch = RecordBatch::try_new(arrow_schema(&known.spec), columns).expect("should be a batch");
        self.append_batch(table, hour, &batch).await;
    }

    /// Appends rows as one slice.
    pub async fn append_batch(&self, table: TableId, hour: i64, batch: &RecordBatch) {
        let slice = SliceInput {
            table,
            schema_version: 1,
            encoding: ENCODING_IPC,
            bucket: Bucket { start: hour * HOUR, width: HOUR },
            rows: u32::try_from(batch.num_rows()).expect("should fit"),
            min_time: 0,
            max_time: 0,
            payload: payload::encode(batch).expect("should encode"),
        };
        self.store.append(vec![slice]).expect("should be a record").wait().await.expect("should append");
    }

    /// Appends a row that nobody can read: its encoding is not known.
    pub async fn append_unreadable(&self, table: TableId, hour: i64) {
        let slice = SliceInput {
            table,
            schema_version: 1,
            encoding: 99,
            bucket: Bucket { start: hour * HOUR, width: HOUR },
            rows: 1,
            min_time: 0,
            max_time: 0,
            payload: Bytes::from_static(b"?"),
        };
        self.store.append(vec![slice]).expect("should be a record").wait().await.expect("should append");
    }

    /// Seals the open generations of a table, by bucket.
    pub async fn seal(&self, table: TableId) -> Vec<Sealed> {
        let mut sealed = Vec::new();
        for view in self.store.view(table).generations {
            let generation = view.generation();
            if generation.seal().is_none() {
                let seal = self.store.seal(table, generation.bucket, generation.first_lsn).wait().await;
                sealed.extend(seal.expect("should seal"));
            }
        }
        sealed
    }

    /// Uploads one generation, and commits nothing.
    pub async fn upload(&self, context: &Context, sealed: &Sealed) -> Result<DataFiles, job::Error> {
        let memory = Memory::new(Arc::default());
        let mut room = memory.take(1, 1 << 20).expect("should be room");
        job::upload(context, sealed, &mut room).await
    }

    pub fn context(&self, options: Options) -> Arc<Context> {
        let (store, lake, registry) = (Arc::clone(&self.store), Arc::clone(&self.lake), Arc::clone(&self.registry));
        let sweep = Sweep::new(Arc::clone(&self.journal) as _, options.orphan_age);
        Arc::new(Context {
            store,
            lake,
            registry,
            options: Live::new(options),
            sweep,
            requests: None,
            panics: Mutex::default(),
        })
    }

    pub fn flusher(&self, options: Options) -> (Flusher, mpsc::UnboundedReceiver<Flushed>) {
        let (flushed, heard) = mpsc::unbounded_channel();
        let (store, lake, registry) = (Arc::clone(&self.store), Arc::clone(&self.lake), Arc::clone(&self.registry));
        let journal = Arc::clone(&self.journal) as _;
        let flusher = Flusher::start(store, lake, registry, options, journal, || 0, flushed);
        (flusher.expect("should start"), heard)
    }

    pub fn unflushed_rows(&self, table: TableId) -> u64 {
        self.store.view(table).generations.iter().map(|g| g.totals().rows).sum()
    }

    /// The handle on the table.
    pub fn lake_table(&self, table: TableId) -> Arc<lake::LakeTable> {
        let known = self.registry.by_id(table).expect("should be known");
        self.lake.table(table, &known.spec.name)
    }

    /// Drops the table as somebody outside.
    pub async fn drop_table(&self, table: TableId) {
        let snapshot = self.lake_table(table).snapshot(None).await.expect("should read").expect("should be there");
        let store = snapshot.log_store().object_store(None);
        let all: Vec<_> = store.list(None).try_collect().await.expect("should list");
        for meta in all {
            store.delete(&meta.location).await.expect("should remove");
        }
    }

    /// Rows of the table's newest version, by its statistics.
    pub async fn rows_in_lake(&self, table: TableId) -> u64 {
        let snapshot = self.lake_table(table).snapshot(None).await.expect("should read");
        snapshot.map_or(0, |snapshot| snapshot.rows().expect("should have statistics"))
    }

    /// Where the table's Delta log lies.
    pub fn log_dir(&self, table: TableId) -> PathBuf {
        let known = self.registry.by_id(table).expect("should be known");
        let location = self.lake.table(table, &known.spec.name).location();
        location.to_file_path().expect("should be a directory").join("_delta_log")
    }

    /// The table's data files that are in its directory, whether a version refers to them or not; and what is left of unfinished ones.
    pub fn data_files(&self, table: TableId) -> Vec<PathBuf> {
        let root = self.log_dir(table).parent().expect("should have a parent").to_owned();
        let list = |dir: &Path| -> Vec<PathBuf> {
            let entries =
                std::fs::read_dir(dir).map(|entries| entries.map(|e| e.expect("should list").path()).collect());
            entries.unwrap_or_default()
        };
        let partitions = list(&root).into_iter().filter(|dir| !dir.ends_with("_delta_log"));
        partitions.flat_map(|dir| list(&dir)).collect()
    }

    /// The data files that the newest version refers to.
    pub async fn live_files(&self, table: TableId) -> usize {
        let known = self.registry.by_id(table).expect("should be known");
        let lake = Lake::open(&lake::Options::default(), self.dir.path()).expect("should open the lake");
        let snapshot = lake.table(table, &known.spec.name).snapshot(None).await.expect("should read");
        snapshot.map_or(0, |snapshot| snapshot.files())
    }

    /// The table's numbers as a reader sees them who knows nothing of us.
    pub async fn numbers(&self, table: TableId) -> Vec<i64> {
        let known = self.registry.by_id(table).expect("should be known");
        let location = self.lake.table(table, &known.spec.name).location();
        let rows = read(location, "select n from t order by n").await;
        rows.iter().flat_map(|b| b.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
    }
}

/// What a reader that knows nothing of us finds in the table `t`.
pub async fn read(location: url::Url, sql: &str) -> Vec<RecordBatch> {
    let delta = deltalake::open_table(location).await.expect("should open the table");
    let session = SessionContext::new();
    session.register_table("t", delta.table_provider().await.expect("should be a provider")).expect("should register");
    session.sql(sql).await.expect("should plan").collect().await.expect("should read")
}
