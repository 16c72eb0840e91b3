//! A log in memory, a lake in a directory, and tables between them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::Int64Type;
use deltalake::datafusion::prelude::SessionContext;
use penstock_store::fs::MemoryFileSystem;
use penstock_store::{Bucket, Define, Options as StoreOptions, Sealed, SliceInput, Store, TableId};
use tempfile::TempDir;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{Context, Flushed, Flusher, Options};
use crate::lake::{self, Lake};
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

pub struct Kit {
    pub fs: MemoryFileSystem,
    pub dir: Arc<TempDir>,
    pub store: Arc<Store>,
    pub lake: Arc<Lake>,
    pub registry: Arc<Registry>,
}

impl Kit {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("should make a directory");
        Self::over(MemoryFileSystem::new(), Arc::new(dir), Arc::new(Registry::default()))
    }

    fn over(fs: MemoryFileSystem, dir: Arc<TempDir>, registry: Arc<Registry>) -> Self {
        let options = StoreOptions { shards: 1, segment_bytes: 1 << 20, ..StoreOptions::default() };
        let store = Store::open(Arc::new(fs.clone()), Path::new("data"), &options).expect("should open the store");
        let lake = Lake::open(&lake::Options::default(), dir.path()).expect("should open the lake");
        Self { fs, dir, store: Arc::new(store), lake: Arc::new(lake), registry }
    }

    /// The process is killed and started again.
    pub fn restart(self) -> Self {
        let fs = self.fs.crash_process();
        Self::over(fs, Arc::clone(&self.dir), Arc::clone(&self.registry))
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
        };
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
        let slice = SliceInput {
            table,
            schema_version: 1,
            encoding: ENCODING_IPC,
            bucket: Bucket { start: hour * HOUR, width: HOUR },
            rows: u32::try_from(batch.num_rows()).expect("should fit"),
            min_time: 0,
            max_time: 0,
            payload: payload::encode(&batch).expect("should encode"),
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

    pub fn context(&self, options: Options) -> Arc<Context> {
        let (store, lake, registry) = (Arc::clone(&self.store), Arc::clone(&self.lake), Arc::clone(&self.registry));
        Arc::new(Context { store, lake, registry, options })
    }

    pub fn flusher(&self, options: Options) -> (Flusher, mpsc::UnboundedReceiver<Flushed>) {
        let (flushed, heard) = mpsc::unbounded_channel();
        let (store, lake, registry) = (Arc::clone(&self.store), Arc::clone(&self.lake), Arc::clone(&self.registry));
        let flusher = Flusher::start(store, lake, registry, options, || 0, flushed);
        (flusher.expect("should start"), heard)
    }

    pub fn unflushed_rows(&self, table: TableId) -> u64 {
        self.store.view(table).generations.iter().map(|g| g.totals().rows).sum()
    }

    /// Where the table's Delta log lies.
    pub fn log_dir(&self, table: TableId) -> PathBuf {
        let known = self.registry.by_id(table).expect("should be known");
        let location = self.lake.table(table, &known.spec.name).location();
        location.to_file_path().expect("should be a directory").join("_delta_log")
    }

    /// The table's numbers as a reader sees them who knows nothing of us.
    pub async fn numbers(&self, table: TableId) -> Vec<i64> {
        let known = self.registry.by_id(table).expect("should be known");
        let location = self.lake.table(table, &known.spec.name).location();
        let delta = deltalake::open_table(location).await.expect("should open the table");
        let session = SessionContext::new();
        session
            .register_table("t", delta.table_provider().await.expect("should be a provider"))
            .expect("should register");
        let rows = session.sql("select n from t order by n").await.expect("should plan").collect().await;
        let rows = rows.expect("should read");
        rows.iter().flat_map(|b| b.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
    }
}
