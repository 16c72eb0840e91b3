//! Exactly once on an object store that misbehaves: the log, the flush and the lake as they are, over `kit::rough`. Rows are posted
//! to many tables while calls are slow, refused, wrongly answered, not answered or carried out late; every second or so the process is
//! killed with all it had under way. In the end every acknowledged row is in its table once, by a replay of the logs from nothing
//! and by a reader from PyPI, and no file is left that no commit refers to.
//!
//! `PENSTOCK_SOAK_SEEDS=50` runs fifty seeds in place of a few; `PENSTOCK_TEST_SEED=7` one of them again, as far as the machine's
//! timing lets it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use penstock::flush::journal::MemoryJournal;
use penstock::flush::{Flusher, Options as FlushOptions};
use penstock::lake::Lake;
use penstock::schema::arrow::arrow_schema;
use penstock::schema::payload::{self, ENCODING_IPC};
use penstock::schema::registry::{Registry, Table};
use penstock::schema::{ColumnSpec, ColumnType, EventTime, TableSpec};
use penstock_store::fs::MemoryFileSystem;
use penstock_store::{Bucket as Window, Define, Options as StoreOptions, SliceInput, Store, TableId};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use url::Url;

use crate::kit::replay::{Objects, replay};
use crate::kit::rough::{Bucket, Rough, Weather};
use crate::kit::{self, python};

const SEEDS: u64 = 3;
const TABLES: usize = 12;
const LIVES: usize = 6;
const WRITERS: usize = 4;
/// Of one life of the process.
const LIFE: Range<u64> = 1_500..3_500;
/// Given up after this; short, so that a lost answer costs little of a life.
const CALL_TIMEOUT: Duration = Duration::from_millis(150);
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than any PUT is late.
const ORPHAN_AGE: Duration = Duration::from_secs(2);
/// 2026-03-01T23:00:00Z: the second hour is another date.
const FIRST_HOUR: i64 = 1_772_406_000_000_000;
const HOUR: i64 = 3_600_000_000;

#[derive(Debug, Default)]
struct Rows {
    acked: BTreeSet<i64>,
    /// Also those of which nobody knows what became.
    sent: BTreeSet<i64>,
}

type Ledger = Arc<Mutex<BTreeMap<usize, Rows>>>;

fn name(table: usize) -> String {
    format!("soak.t{table:02}")
}

fn spec(table: usize) -> TableSpec {
    let column = |name: &str, kind| ColumnSpec { name: name.into(), kind, nullable: false };
    TableSpec {
        name: name(table).parse().expect("should be a name"),
        schema_version: 1,
        columns: vec![column("ts", ColumnType::Timestamp), column("id", ColumnType::Long)],
        event_time: EventTime::Column { name: "ts".into(), unit: None },
        bucket_seconds: 3_600,
        partition: Some("date".into()),
        sort: vec![],
        history: vec![],
        bloom: vec![],
        rules: penstock::schema::Rules::default(),
    }
}

fn slice(table: &Table, hour: i64, ids: &[i64]) -> SliceInput {
    let start = FIRST_HOUR + hour * HOUR;
    let times =
        TimestampMicrosecondArray::from_iter_values(ids.iter().map(|id| start + id % HOUR)).with_timezone("UTC");
    let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(Int64Array::from(ids.to_vec()))];
    let batch = RecordBatch::try_new(arrow_schema(&table.spec), columns).expect("should be a batch");
    SliceInput {
        table: table.id,
        schema_version: 1,
        encoding: ENCODING_IPC,
        bucket: Window { start, width: HOUR },
        rows: u32::try_from(ids.len()).expect("should fit"),
        min_time: start,
        max_time: start,
        payload: payload::encode(&batch).expect("should encode"),
    }
}

/// One life of the process.
struct Life {
    store: Arc<Store>,
    registry: Arc<Registry>,
    connection: Arc<Rough>,
    flusher: Flusher,
}

impl Life {
    async fn begin(
        fs: &MemoryFileSystem,
        connection: Arc<Rough>,
        journal: &Arc<MemoryJournal>,
        options: FlushOptions,
    ) -> Self {
        let store_options = StoreOptions {
            segment_bytes: 1 << 20,
            checkpoint_interval: Some(Duration::from_millis(300)),
            ..StoreOptions::default()
        };
        let store = Store::open(Arc::new(fs.clone()), Path::new("data"), &store_options).expect("should open the log");
        let (store, registry) = (Arc::new(store), Arc::new(Registry::default()));
        for define in store.definitions() {
            let spec = serde_json::from_slice(&define.body).expect("should be a definition");
            registry.insert(Table { id: define.table, spec });
        }
        for spec in (0..TABLES).map(spec).filter(|spec| registry.by_name(&spec.name).is_none()) {
            let id = TableId(uuid::Uuid::new_v4());
            let body = serde_json::to_vec(&spec).expect("should be JSON").into();
            let define = store.define(Define { table: id, schema_version: 1, body }).expect("should take it");
            define.wait().await.expect("should define the table");
            registry.insert(Table { id, spec });
        }
        let url = Url::parse("memory:///lake").expect("should be a URL");
        let lake = Lake::on(url, Arc::clone(&connection) as _, CALL_TIMEOUT).expect("should be a lake");
        let (flushed, _) = tokio::sync::mpsc::unbounded_channel();
        let (ours, tables) = (Arc::clone(&store), Arc::clone(&registry));
        let journal = Arc::clone(journal) as _;
        let flusher =
            Flusher::start(ours, Arc::new(lake), tables, options, journal, || 0, flushed).expect("should start");
        Self { store, registry, connection, flusher }
    }

    /// Posts rows until it is told to stop, or the log is gone.
    async fn write(
        store: Arc<Store>,
        registry: Arc<Registry>,
        next: Arc<AtomicI64>,
        ledger: Ledger,
        stop: Arc<AtomicBool>,
        mut random: StdRng,
    ) {
        while !stop.load(Ordering::SeqCst) {
            let (number, hour) = (random.random_range(0..TABLES), random.random_range(0..2));
            let count = random.random_range(1..30);
            let first = next.fetch_add(count, Ordering::SeqCst);
            let ids: Vec<i64> = (first..first + count).collect();
            let table = registry.by_name(&spec(number).name).expect("should be known");
            ledger.lock().entry(number).or_default().sent.extend(&ids);
            let Ok(pending) = store.append(vec![slice(&table, hour, &ids)]) else { return };
            if pending.wait().await.is_err() {
                return;
            }
            ledger.lock().entry(number).or_default().acked.extend(&ids);
            tokio::time::sleep(Duration::from_micros(random.random_range(0..4_000))).await;
        }
    }

    /// SIGKILL, or a power cut, with whatever was under way.
    async fn die(self, fs: &MemoryFileSystem, random: &mut StdRng) -> MemoryFileSystem {
        self.connection.kill();
        let next = if random.random_bool(0.5) { fs.crash_process() } else { fs.crash(random.random()) };
        let rest = (self.flusher, self.store, self.registry);
        tokio::task::spawn_blocking(move || drop(rest)).await.expect("should be dropped");
        next
    }

    async fn flush(&self) {
        let tables: Vec<TableId> = self.registry.all().iter().map(|table| table.id).collect();
        let flushed = self.flusher.flush(&tables, PATIENCE).await;
        flushed.expect("should bring everything to the lake once the store behaves");
    }
}

fn restless() -> FlushOptions {
    let soon = Duration::from_millis(10);
    FlushOptions {
        parallelism: 8,
        grace: Duration::ZERO,
        max_age: soon,
        min_age: Duration::ZERO,
        confirm_delay: Duration::from_millis(50),
        orphan_age: ORPHAN_AGE,
        ..FlushOptions::default()
    }
}

/// What a run came to.
#[derive(Debug)]
struct Outcome {
    commits: u64,
    rows: usize,
    happened: BTreeMap<&'static str, u64>,
}

async fn soak(seed: u64) -> Outcome {
    println!("PENSTOCK_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    // It outlives every process, as the catalog does.
    let (bucket, ledger, journal) = (Bucket::new(), Ledger::default(), Arc::new(MemoryJournal::default()));
    let (mut fs, next) = (MemoryFileSystem::new(), Arc::new(AtomicI64::new(0)));
    for _ in 0..LIVES {
        let weather = Weather::draw(&mut random);
        let connection = Rough::new(&bucket, weather, random.random());
        let life = Life::begin(&fs, connection, &journal, restless()).await;
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                let (store, registry) = (Arc::clone(&life.store), Arc::clone(&life.registry));
                let (next, ledger, stop) = (Arc::clone(&next), Arc::clone(&ledger), Arc::clone(&stop));
                tokio::spawn(Life::write(store, registry, next, ledger, stop, StdRng::seed_from_u64(random.random())))
            })
            .collect();
        let length = random.random_range(LIFE);
        if random.random_bool(0.6) {
            let begins = random.random_range(0..length);
            tokio::time::sleep(Duration::from_millis(begins)).await;
            bucket.outage(Duration::from_millis(random.random_range(50..1_200)));
            tokio::time::sleep(Duration::from_millis(length - begins)).await;
        } else {
            tokio::time::sleep(Duration::from_millis(length)).await;
        }
        fs = life.die(&fs, &mut random).await;
        stop.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.await.expect("should not panic");
        }
    }
    let life = Life::begin(&fs, Rough::new(&bucket, Weather::mild(), random.random()), &journal, restless()).await;
    life.flush().await;
    // What was sent long ago may still arrive; it must not change anything any more.
    bucket.quiet().await;
    assert_eq!(life.store.unflushed_rows(), 0);
    // What is left lying goes once the store can be asked in peace: a look at a table reads all of its log.
    fs = life.die(&fs, &mut random).await;
    let life = Life::begin(&fs, Rough::new(&bucket, Weather::calm(), random.random()), &journal, restless()).await;
    life.flush().await;
    let swept = async {
        while !journal.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let swept = tokio::time::timeout(PATIENCE, swept).await;
    assert!(swept.is_ok(), "uploads that are not decided: {journal:?}");
    let happened = bucket.happened();
    let (commits, rows) = check(&bucket, &ledger).await;
    Outcome { commits, rows, happened }
}

/// All objects of the lake, by table.
async fn objects(bucket: &Bucket) -> BTreeMap<String, Objects> {
    let listed: Vec<_> = bucket.objects.list(None).try_collect().await.expect("should list");
    let mut tables: BTreeMap<String, Objects> = BTreeMap::new();
    for object in listed {
        let bytes = bucket.objects.get(&object.location).await.expect("should be there").bytes().await;
        let path = object.location.as_ref().strip_prefix("lake/").expect("should be in the lake");
        // What a killed probe leaves lies beside the tables.
        let Some((namespace, rest)) = path.split_once('/') else { continue };
        let (table, path) = rest.split_once('/').expect("should be in a table");
        let table = tables.entry(format!("{namespace}.{table}")).or_default();
        table.insert(path.to_owned(), bytes.expect("should read"));
    }
    tables
}

const READ: &str = r#"
import json, sys, os
import deltalake, pyarrow.compute as pc
found = {}
for table in sorted(os.listdir(sys.argv[1])):
    ids = deltalake.DeltaTable(os.path.join(sys.argv[1], table)).to_pyarrow_table(columns=["id"])["id"]
    found[table] = [len(ids), len(pc.unique(ids)), pc.sum(ids).as_py() or 0]
print(json.dumps(found))
"#;

/// Every acknowledged row once, others at most once. Tells the commits and the rows.
async fn check(bucket: &Bucket, ledger: &Ledger) -> (u64, usize) {
    let (mut commits, mut total, mut wanted) = (0, 0, BTreeMap::new());
    let tables = objects(bucket).await;
    for (number, rows) in &*ledger.lock() {
        let name = name(*number);
        let none = Objects::new();
        let objects = tables.get(&name).unwrap_or(&none);
        let table = replay(&name, objects);
        let orphans = table.orphans(objects);
        assert!(orphans.is_empty(), "{name} has files that no commit refers to: {orphans:?}");
        let found = table.longs(&name, objects, "id");
        let once: BTreeSet<i64> = found.iter().copied().collect();
        assert_eq!(once.len(), found.len(), "{name} has rows twice");
        let lost: Vec<_> = rows.acked.difference(&once).take(10).collect();
        assert!(lost.is_empty(), "{name} has lost acknowledged rows: {lost:?} ...");
        let strange: Vec<_> = once.difference(&rows.sent).take(10).collect();
        assert!(strange.is_empty(), "{name} has rows that nobody sent: {strange:?} ...");
        commits += table.version;
        total += found.len();
        let file = name.strip_prefix("soak.").expect("should be in the namespace").to_owned();
        wanted.insert(file, json!([found.len(), found.len(), found.iter().sum::<i64>()]));
    }
    if let Some(program) = python::with(&["deltalake", "pyarrow"]) {
        let dir = kit::directory();
        for (path, bytes) in tables.iter().flat_map(|(table, objects)| {
            let table = table.strip_prefix("soak.").expect("should be in the namespace");
            objects.iter().map(move |(path, bytes)| (dir_path(table, path), bytes))
        }) {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("should have a parent")).expect("should make a directory");
            std::fs::write(path, bytes).expect("should write");
        }
        let found = python::run(&program, READ, &[&dir.path().display().to_string()], &[]).await;
        assert_eq!(found, json!(wanted), "a reader from PyPI");
    }
    (commits, total)
}

fn dir_path(table: &str, path: &str) -> String {
    format!("{table}/{path}")
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("should be a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_row_is_in_its_table_once_whatever_the_store_does() {
    let seeds: Vec<u64> = match number("PENSTOCK_TEST_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("PENSTOCK_SOAK_SEEDS").unwrap_or(SEEDS)).map(|_| rand::random()).collect(),
    };
    let (mut commits, mut happened) = (0, BTreeMap::<&str, u64>::new());
    for seed in &seeds {
        let outcome = soak(*seed).await;
        println!("seed {seed}: {} rows in {} commits; {:?}", outcome.rows, outcome.commits, outcome.happened);
        commits += outcome.commits;
        outcome.happened.into_iter().for_each(|(what, often)| *happened.entry(what).or_default() += often);
    }
    // A store that behaves shows nothing.
    assert!(commits > 300 * seeds.len() as u64, "only {commits} commits");
    for what in ["PUT: 412 for its own retry", "PUT: carried out, no answer", "PUT: late"] {
        assert!(happened.get(what) > Some(&0), "{what} did not happen: {happened:?}");
    }
    assert!(happened.get("late PUT landed") > Some(&0), "no late PUT landed: {happened:?}");
}
