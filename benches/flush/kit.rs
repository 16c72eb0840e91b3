//! A log in memory, tables, and a flusher between them and a slow store.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use penstock::flush::journal::MemoryJournal;
use penstock::flush::{Flusher, Options};
use penstock::lake::Lake;
use penstock::schema::arrow::arrow_schema;
use penstock::schema::payload::{self, ENCODING_IPC};
use penstock::schema::registry::{Registry, Table};
use penstock::schema::{ColumnSpec, ColumnType, EventTime, TableSpec};
use penstock_store::fs::MemoryFileSystem;
use penstock_store::{Bucket, Define, Options as StoreOptions, SliceInput, Store, TableId};
use url::Url;

use crate::slow::Slow;

const HOUR: i64 = 3_600_000_000;
const ROWS: i64 = 100;
const LONG: Duration = Duration::from_secs(600);

pub struct Node {
    store: Arc<Store>,
    lake: Arc<Lake>,
    flusher: Flusher,
    tables: Vec<Arc<Table>>,
}

impl Node {
    /// With so many tables, each of which has a commit.
    pub async fn start(objects: Arc<Slow>, tables: usize, parallelism: usize) -> Self {
        let node = Self::open(objects, (0..tables).map(spec).collect(), parallelism).await;
        for number in 0..tables {
            node.append(number).await;
        }
        let all: Vec<TableId> = node.tables.iter().map(|table| table.id).collect();
        node.flusher.flush(&all, LONG).await.expect("should flush");
        node
    }

    /// With these tables, and log care as a server has it.
    pub async fn open(objects: Arc<Slow>, specs: Vec<TableSpec>, parallelism: usize) -> Self {
        let options = StoreOptions { segment_bytes: 4 << 20, ..StoreOptions::default() };
        let store = Store::open(Arc::new(MemoryFileSystem::new()), Path::new("data"), &options);
        let (store, registry) = (Arc::new(store.expect("should open the log")), Arc::new(Registry::default()));
        let mut made = Vec::with_capacity(specs.len());
        for spec in specs {
            let id = TableId(uuid::Uuid::new_v4());
            let body = serde_json::to_vec(&spec).expect("should be JSON").into();
            let define = store.define(Define { table: id, schema_version: 1, body }).expect("should take it");
            define.wait().await.expect("should define the table");
            made.push(registry.insert(Table { id, spec }));
        }
        let url = Url::parse("memory:///lake").expect("should be a URL");
        let lake = Lake::on(url, objects, Duration::from_secs(60)).expect("should be a lake");
        let care = penstock::lake::Options::default();
        let lake = Arc::new(lake.with_log_care(care.checkpoint_every, care.clean_up));
        let (flushed, _) = tokio::sync::mpsc::unbounded_channel();
        let options = Options { parallelism, min_age: LONG, max_age: LONG, grace: LONG, ..Options::default() };
        let (ours, theirs) = (Arc::clone(&store), Arc::clone(&lake));
        let journal = Arc::new(MemoryJournal::default());
        let flusher = Flusher::start(ours, theirs, registry, options, journal, || 0, flushed).expect("should start");
        Self { store, lake, flusher, tables: made }
    }

    /// A table's id.
    pub fn table(&self, number: usize) -> TableId {
        self.tables[number].id
    }

    /// Seals what is open in a table, and waits until it is in Delta.
    pub async fn flush(&self, number: usize) {
        self.flusher.flush(&[self.tables[number].id], LONG).await.expect("should flush");
    }

    /// Puts a slice into the log.
    pub async fn append_slice(&self, slice: SliceInput) {
        self.store.append(vec![slice]).expect("should be a record").wait().await.expect("should append");
    }

    /// Where a table lies in the lake.
    pub fn directory(number: usize) -> String {
        format!("bench/t{number}")
    }

    /// The Delta version of a table.
    pub async fn version(&self, number: usize) -> u64 {
        let table = &self.tables[number];
        self.lake.table(table.id, &table.spec.name).published().expect("should be flushed")
    }

    /// One generation after another in each of these tables; the times from seal to commit.
    pub async fn loops(&self, tables: &[usize], window: Duration) -> Vec<Duration> {
        let end = Instant::now() + window;
        let loops = tables.iter().map(|number| async move {
            let mut lags = Vec::new();
            while Instant::now() < end {
                self.append(*number).await;
                let began = Instant::now();
                self.flusher.flush(&[self.tables[*number].id], LONG).await.expect("should flush");
                if Instant::now() < end {
                    lags.push(began.elapsed());
                }
            }
            lags
        });
        futures::future::join_all(loops).await.concat()
    }

    /// So many commits of one generation each; the times from the demand to the confirmed commit. (That our own log notes it is
    /// put off until something else is written to it, and not waited for.)
    pub async fn flushes(&self, number: usize, commits: u64) -> Vec<Duration> {
        let mut published = self.lake.table(self.table(number), &self.tables[number].spec.name).watch_published();
        let mut lags = Vec::new();
        for _ in 0..commits {
            self.append(number).await;
            let (began, before) = (Instant::now(), *published.borrow());
            tokio::select! {
                () = self.flush(number) => {}
                seen = published.wait_for(|version| *version > before) => drop(seen.expect("should have a table")),
            }
            lags.push(began.elapsed());
        }
        lags
    }

    /// Waits until no log is cared for.
    pub async fn rest(&self) {
        self.lake.rest(LONG).await;
    }

    async fn append(&self, number: usize) {
        let table = &self.tables[number];
        let times = TimestampMicrosecondArray::from_iter_values(0..ROWS).with_timezone("UTC");
        let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(Int64Array::from_iter_values(0..ROWS))];
        let batch = RecordBatch::try_new(arrow_schema(&table.spec), columns).expect("should be a batch");
        let slice = SliceInput {
            table: table.id,
            schema_version: 1,
            encoding: ENCODING_IPC,
            bucket: Bucket { start: 0, width: HOUR },
            rows: u32::try_from(ROWS).expect("should fit"),
            min_time: 0,
            max_time: ROWS,
            payload: payload::encode(&batch).expect("should encode"),
        };
        self.append_slice(slice).await;
    }
}

fn spec(number: usize) -> TableSpec {
    let column = |name: &str, kind| ColumnSpec { name: name.into(), kind, nullable: false };
    TableSpec {
        name: format!("bench.t{number}").parse().expect("should be a name"),
        schema_version: 1,
        columns: vec![column("ts", ColumnType::Timestamp), column("n", ColumnType::Long)],
        event_time: EventTime::Column { name: "ts".into(), unit: None },
        bucket_seconds: 3_600,
        partition: Some("date".into()),
        sort: vec![],
        history: vec![],
        bloom: vec![],
        rules: penstock::schema::Rules::default(),
    }
}

/// The value below which this share lies.
pub fn percentile(values: &mut [Duration], share: f64) -> Duration {
    values.sort_unstable();
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}
