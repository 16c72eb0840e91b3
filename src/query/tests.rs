//! A log in memory, a lake in a directory, and rows in both.

mod limits;
mod statements;
mod views;

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::json::ReaderBuilder;
use arrow::util::display::array_value_to_string;
use penstock_store::fs::MemoryFileSystem;
use penstock_store::{Bucket, Define, Options as StoreOptions, SliceInput, Store, TableId};
use uuid::Uuid;

use super::{Error, Options, Sql};
use crate::lake::{self, Commit, FileSettings, Lake};
use crate::schema::arrow::{arrow_schema, with_partition};
use crate::schema::payload::{self, ENCODING_IPC};
use crate::schema::registry::{Registry, Table};
use crate::schema::versions::Change;
use crate::schema::{ColumnSpec, EventTime, TableSpec};

const DAY: i64 = 86_400_000_000;

pub struct Kit {
    pub dir: tempfile::TempDir,
    pub store: Arc<Store>,
    pub lake: Arc<Lake>,
    pub registry: Arc<Registry>,
    pub sql: Sql,
}

impl Kit {
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    pub fn with(options: Options) -> Self {
        let dir = tempfile::tempdir().expect("should make a directory");
        let store = StoreOptions { shards: 2, segment_bytes: 1 << 20, ..StoreOptions::default() };
        let store = Store::open(Arc::new(MemoryFileSystem::new()), Path::new("data"), &store);
        let store = Arc::new(store.expect("should open the store"));
        let lake = Arc::new(Lake::open(&lake::Options::default(), dir.path()).expect("should open the lake"));
        let registry = Arc::new(Registry::default());
        let sql = Sql::new(Arc::clone(&store), Arc::clone(&lake), Arc::clone(&registry), options);
        Self { dir, store, lake, registry, sql: sql.expect("should start") }
    }

    /// A table of day buckets with the columns `ts` and those named in `columns`, as in `"n long, host string"`.
    pub async fn table(&self, name: &str, columns: &str) -> Arc<Table> {
        let column = |text: &str| {
            let (name, kind) = text.trim().split_once(' ').expect("should be a name and a type");
            ColumnSpec { name: name.to_owned(), kind: kind.parse().expect("should be a type"), nullable: name != "ts" }
        };
        let columns = std::iter::once("ts timestamp").chain(columns.split(';')).map(column).collect();
        let spec = TableSpec {
            name: name.parse().expect("should be a name"),
            schema_version: 1,
            columns,
            event_time: EventTime::Column { name: "ts".into(), unit: None },
            bucket_seconds: 86_400,
            partition: Some("date".into()),
            sort: vec![],
            history: vec![],
            bloom: vec![],
            rules: crate::schema::Rules::default(),
        };
        let id = TableId(Uuid::new_v4());
        let body = serde_json::to_vec(&spec).expect("should be JSON").into();
        let define = self.store.define(Define { table: id, schema_version: 1, body }).expect("should be a definition");
        define.wait().await.expect("should define");
        self.registry.insert(Table { id, spec })
    }

    /// Gives the table more columns or wider types, as [`table`](Self::table) takes them.
    pub async fn extend(&self, table: &Table, columns: &str) -> Arc<Table> {
        let mut wanted = table.spec.clone();
        for column in columns.split(';').map(|text| {
            let (name, kind) = text.trim().split_once(' ').expect("should be a name and a type");
            ColumnSpec { name: name.to_owned(), kind: kind.parse().expect("should be a type"), nullable: true }
        }) {
            match wanted.columns.iter_mut().find(|there| there.name == column.name) {
                Some(there) => *there = column,
                None => wanted.columns.push(column),
            }
        }
        let Change::Next(spec) = table.spec.change_to(&wanted) else { panic!("should be a change") };
        let spec = *spec;
        let body = serde_json::to_vec(&spec).expect("should be JSON").into();
        let define = Define { table: table.id, schema_version: spec.schema_version, body };
        let define = self.store.define(define).expect("should be a definition");
        define.wait().await.expect("should define");
        self.registry.advance(Table { id: table.id, spec }).expect("should be known")
    }

    /// Appends rows, given as JSON without their `ts`, to a day since 1970.
    pub async fn append(&self, table: &Table, day: i64, rows: &str) {
        let lines: String = rows
            .lines()
            .enumerate()
            .map(|(i, row)| row.replacen('{', &format!(r#"{{"ts":{},"#, day * DAY + i as i64), 1))
            .collect();
        let mut reader = ReaderBuilder::new(arrow_schema(&table.spec)).build(lines.as_bytes()).expect("should read");
        let batch = reader.next().expect("should have rows").expect("should be rows");
        let slice = SliceInput {
            table: table.id,
            schema_version: table.spec.schema_version,
            encoding: ENCODING_IPC,
            bucket: Bucket { start: day * DAY, width: DAY },
            rows: u32::try_from(batch.num_rows()).expect("should fit"),
            min_time: 0,
            max_time: 0,
            payload: payload::encode(&batch).expect("should encode"),
        };
        self.store.append(vec![slice]).expect("should be a record").wait().await.expect("should append");
    }

    /// Seals what is open and puts it into the Delta log, where it is not confirmed yet. The rows stay in the store.
    pub async fn land(&self, table: &Table) -> penstock_store::Commit {
        let lake_table = self.lake.table(table.id, &table.spec.name);
        let (mut batches, mut sequences) = (Vec::new(), Vec::new());
        for view in self.store.view(table.id).generations {
            let generation = view.generation();
            if generation.seal().is_some() {
                continue;
            }
            let seal = self.store.seal(table.id, generation.bucket, generation.first_lsn).wait().await;
            sequences.extend(seal.expect("should seal").map(|s| s.seal.sequence));
            for slice in view.slices().expect("should be readable") {
                let (schema, version) = (arrow_schema(&table.spec), slice.schema_version);
                let batch = payload::decode_as(&table.spec, &schema, version, slice.encoding, &slice.payload);
                batches.push(with_partition(&table.spec, &batch.expect("should decode"), generation.bucket));
            }
        }
        let files = lake_table.write_data(&table.spec, batches, &FileSettings::default()).await.expect("should write");
        let (first_sequence, sequence) = (sequences[0], sequences[sequences.len() - 1]);
        let (node, incarnation) = (self.store.node(), self.store.incarnation());
        let commit = Commit { node, incarnation, first_sequence, sequence, spec: &table.spec, adds: &files.adds };
        let version = lake_table.commit(commit).await.expect("should commit").version;
        penstock_store::Commit { table: table.id, incarnation, sequence, version }
    }

    /// The same, and it is confirmed. The rows stay in the store as well.
    pub async fn commit(&self, table: &Table) -> penstock_store::Commit {
        let landed = self.land(table).await;
        self.lake.table(table.id, &table.spec.name).confirm().await.expect("should confirm");
        landed
    }

    /// The same, and the rows leave the store.
    pub async fn flush(&self, table: &Table) {
        let commit = self.commit(table).await;
        self.store.commit(commit).wait().await.expect("should record");
    }

    pub async fn run(&self, sql: &str) -> Result<Vec<RecordBatch>, Error> {
        let mut query = self.sql.query(sql).await?;
        let mut batches = Vec::new();
        while let Some(batch) = query.next().await? {
            batches.push(batch);
        }
        Ok(batches)
    }

    /// The result as text: values of a row with spaces between, rows with `|`.
    pub async fn ask(&self, sql: &str) -> String {
        let batches = self.run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let row = |batch: &RecordBatch, row: usize| {
            let value = |column: &arrow::array::ArrayRef| array_value_to_string(column, row).expect("should be text");
            batch.columns().iter().map(value).collect::<Vec<_>>().join(" ")
        };
        let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |at| row(batch, at)));
        rows.collect::<Vec<_>>().join("|")
    }
}
