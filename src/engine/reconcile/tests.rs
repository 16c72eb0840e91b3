//! A start after each moment at which making a table can be cut off.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use penstock_store::fs::MemoryFileSystem;
use penstock_store::{Define, Options};
use uuid::Uuid;

use super::*;
use crate::ingest::post::{self, Declared};
use crate::schema::spec::Earlier;
use crate::schema::{ColumnSpec, ColumnType, EventTime};

struct Parts {
    fs: MemoryFileSystem,
    dir: tempfile::TempDir,
    store: Arc<Store>,
    catalog: Catalog,
}

fn spec(name: &str) -> TableSpec {
    TableSpec {
        name: name.parse().expect("should be a name"),
        schema_version: 1,
        columns: vec![ColumnSpec { name: "ts".into(), kind: ColumnType::Timestamp, nullable: false }],
        event_time: EventTime::Column { name: "ts".into(), unit: None },
        bucket_seconds: 3600,
        partition: Some("date".into()),
        sort: vec![],
        history: vec![],
        bloom: vec![],
        rules: crate::schema::Rules::default(),
    }
}

fn id() -> TableId {
    TableId(Uuid::new_v4())
}

fn open(fs: &MemoryFileSystem) -> Arc<Store> {
    let options = Options { shards: 1, segment_bytes: 1 << 20, ..Options::default() };
    Arc::new(Store::open(Arc::new(fs.clone()), Path::new("data"), &options).expect("should open"))
}

impl Parts {
    async fn new() -> Self {
        let (fs, dir) = (MemoryFileSystem::new(), tempfile::tempdir().expect("should make a directory"));
        let (store, catalog) = (open(&fs), Catalog::open(dir.path()).await.expect("should open"));
        Self { fs, dir, store, catalog }
    }

    async fn restart(self) -> Self {
        let fs = self.fs.crash(7);
        self.catalog.close().await;
        let catalog = Catalog::open(self.dir.path()).await.expect("should open");
        Self { store: open(&fs), fs, dir: self.dir, catalog }
    }

    /// The catalog is gone.
    async fn without_catalog(self) -> Self {
        self.catalog.close().await;
        let dir = tempfile::tempdir().expect("should make a directory");
        let catalog = Catalog::open(dir.path()).await.expect("should open");
        Self { dir, catalog, ..self }
    }

    async fn define(&self, id: TableId, spec: &TableSpec) {
        let body = Bytes::from(serde_json::to_vec(spec).expect("should be JSON"));
        let define = Define { table: id, schema_version: spec.schema_version, body };
        self.store.define(define).expect("should be a definition").wait().await.expect("should define");
    }

    fn ingest(&self, registry: &Arc<Registry>) -> Ingest {
        let (store, catalog) = (Arc::clone(&self.store), self.catalog.clone());
        Ingest::new(store, Arc::clone(registry), catalog, post::Options::default())
    }

    async fn reconcile(&self) -> Result<Arc<Registry>, Error> {
        let registry = Arc::new(Registry::default());
        reconcile(&self.store, &self.catalog, &registry, &self.ingest(&registry)).await?;
        Ok(registry)
    }

    /// All three know exactly this table.
    async fn agree_on(&self, id: TableId, spec: &TableSpec) {
        let registry = self.reconcile().await.expect("should fit together");
        assert_eq!(registry.all().iter().map(|t| t.id).collect::<Vec<_>>(), [id]);
        assert_eq!(&registry.by_name(&spec.name).expect("should be known").spec, spec);
        assert_eq!(self.catalog.tables().await.expect("should list"), [(id, spec.clone())]);
        assert_eq!(self.store.definitions().iter().map(|d| d.table).collect::<Vec<_>>(), [id]);
    }
}

#[tokio::test]
async fn cut_off_behind_the_catalog() {
    let (parts, id, spec) = (Parts::new().await, id(), spec("cpu"));
    parts.catalog.create_table(id, &spec, Cause::Declaration).await.expect("should create");
    let parts = parts.restart().await;
    parts.agree_on(id, &spec).await;
    parts.restart().await.agree_on(id, &spec).await;
}

#[tokio::test]
async fn cut_off_behind_the_log() {
    let (parts, id, spec) = (Parts::new().await, id(), spec("cpu"));
    parts.catalog.create_table(id, &spec, Cause::Declaration).await.expect("should create");
    parts.define(id, &spec).await;
    parts.restart().await.agree_on(id, &spec).await;
}

#[tokio::test]
async fn a_lost_catalog_is_filled_from_the_log() {
    let (parts, id, spec) = (Parts::new().await, id(), spec("cpu"));
    parts.define(id, &spec).await;
    parts.without_catalog().await.agree_on(id, &spec).await;
}

#[tokio::test]
async fn the_catalog_of_another_node_is_refused() {
    let (parts, ours, theirs, spec) = (Parts::new().await, id(), id(), spec("cpu"));
    parts.define(ours, &spec).await;
    parts.catalog.create_table(theirs, &spec, Cause::Declaration).await.expect("should create");
    let error = parts.reconcile().await.expect_err("should be refused");
    assert!(matches!(error, Error::Mismatch { catalog, log, .. } if (catalog, log) == (theirs, ours)));
}

#[tokio::test]
async fn two_tables_of_one_name_and_unreadable_definitions_are_refused() {
    let parts = Parts::new().await;
    for id in [id(), id()] {
        parts.define(id, &spec("cpu")).await;
    }
    // The catalog refuses the second one, if the registry did not.
    assert!(parts.reconcile().await.is_err());

    let parts = Parts::new().await;
    let define = Define { table: id(), schema_version: 1, body: Bytes::from_static(b"?") };
    parts.store.define(define).expect("should be a definition").wait().await.expect("should define");
    assert!(matches!(parts.reconcile().await, Err(Error::Definition(..))));
}

#[tokio::test]
async fn a_name_that_only_got_as_far_as_the_catalog_can_be_declared() {
    let (parts, id, cpu) = (Parts::new().await, id(), spec("cpu"));
    parts.catalog.create_table(id, &cpu, Cause::Declaration).await.expect("should create");
    let registry = Arc::new(Registry::default());
    let ingest = parts.ingest(&registry);
    let (table, created) = ingest.declare(cpu.clone(), Cause::Declaration).await.expect("should declare");
    assert_eq!((table.id, created), (id, Declared::Created));
    let (table, created) = ingest
        .declare(TableSpec { schema_version: 9, ..cpu.clone() }, Cause::Declaration)
        .await
        .expect("should be the same");
    assert_eq!((table.id, created), (id, Declared::Same));
    let other = TableSpec { bucket_seconds: 60, ..cpu.clone() };
    assert!(matches!(ingest.declare(other, Cause::Declaration).await, Err(CreateError::Differs { .. })));
    parts.agree_on(id, &cpu).await;
}

#[tokio::test]
async fn a_declaration_that_differs_from_what_is_in_the_catalog_alone_is_refused() {
    let (parts, id, cpu) = (Parts::new().await, id(), spec("cpu"));
    parts.catalog.create_table(id, &cpu, Cause::Declaration).await.expect("should create");
    let ingest = parts.ingest(&Arc::new(Registry::default()));
    let other = TableSpec { bucket_seconds: 60, ..cpu.clone() };
    assert!(matches!(ingest.declare(other, Cause::Declaration).await, Err(CreateError::Differs { .. })));
    parts.agree_on(id, &cpu).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_first_declarations_make_one_table() {
    let parts = Parts::new().await;
    let registry = Arc::new(Registry::default());
    let ingest = Arc::new(parts.ingest(&registry));
    let declaring = (0..16).map(|_| {
        let ingest = Arc::clone(&ingest);
        tokio::spawn(async move { ingest.declare(spec("cpu"), Cause::Declaration).await.expect("should declare") })
    });
    let declared = futures::future::try_join_all(declaring).await.expect("should end");
    assert_eq!(declared.iter().filter(|(_, declared)| *declared == Declared::Created).count(), 1);
    assert!(declared.iter().all(|(table, _)| table.id == declared[0].0.id));
    parts.agree_on(declared[0].0.id, &spec("cpu")).await;
}

fn wider(spec: &TableSpec, names: &[&str]) -> TableSpec {
    let added = names.iter().map(|n| ColumnSpec { name: (*n).to_owned(), kind: ColumnType::Long, nullable: true });
    TableSpec { columns: spec.columns.iter().cloned().chain(added).collect(), ..spec.clone() }
}

#[tokio::test]
async fn columns_that_were_added_are_there_after_a_restart() {
    let (parts, cpu) = (Parts::new().await, spec("cpu"));
    let registry = parts.reconcile().await.expect("should fit together");
    let ingest = parts.ingest(&registry);
    let (table, _) = ingest.declare(cpu.clone(), Cause::Declaration).await.expect("should declare");
    let (second, declared) = ingest.declare(wider(&cpu, &["a"]), Cause::Declaration).await.expect("should extend");
    assert_eq!((second.id, second.spec.schema_version, declared), (table.id, 2, Declared::Extended));
    let (third, _) = ingest.declare(wider(&cpu, &["b", "a"]), Cause::Declaration).await.expect("should extend");
    assert_eq!((third.spec.schema_version, &third.spec.history), (3, &vec![Earlier::of(1), Earlier::of(2)]));
    assert_eq!(registry.by_id(table.id).expect("should be known").spec, third.spec);
    let (same, declared) =
        ingest.declare(wider(&cpu, &["a", "b"]), Cause::Declaration).await.expect("should be the same");
    assert_eq!((&same.spec, declared), (&third.spec, Declared::Same));
    for narrower in [&cpu, &wider(&cpu, &["a"])] {
        let error =
            ingest.declare(narrower.clone(), Cause::Declaration).await.expect_err("should be refused").to_string();
        assert!(error.contains("column \"b\" is missing: a column cannot be dropped"), "{error}");
    }
    let versions = parts.catalog.schema_versions(table.id).await.expect("should list");
    assert_eq!(versions.iter().map(|v| (v.version, v.columns)).collect::<Vec<_>>(), [(1, 1), (2, 2), (3, 3)]);
    parts.restart().await.agree_on(table.id, &third.spec).await;
}

#[tokio::test]
async fn cut_off_between_the_log_and_the_catalog() {
    let (parts, id, cpu) = (Parts::new().await, id(), spec("cpu"));
    parts.catalog.create_table(id, &cpu, Cause::Declaration).await.expect("should create");
    parts.define(id, &cpu).await;
    let next = TableSpec { schema_version: 2, history: vec![Earlier::of(1)], ..wider(&cpu, &["a"]) };
    parts.define(id, &next).await;
    let parts = parts.restart().await;
    parts.agree_on(id, &next).await;
    parts.without_catalog().await.agree_on(id, &next).await;
}

#[tokio::test]
async fn a_catalog_ahead_of_the_log_gives_it_columns_and_one_of_another_line_is_corrected() {
    let (parts, id, cpu) = (Parts::new().await, id(), spec("cpu"));
    let next = TableSpec { schema_version: 2, history: vec![Earlier::of(1)], ..wider(&cpu, &["a"]) };
    parts.define(id, &cpu).await;
    parts.catalog.create_table(id, &next, Cause::Declaration).await.expect("should create");
    parts.agree_on(id, &next).await;
    let other =
        TableSpec { schema_version: 3, history: vec![Earlier::of(1), Earlier::of(2)], ..wider(&cpu, &["z", "y"]) };
    parts.catalog.put_definition(id, &other, Cause::Declaration).await.expect("should note");
    parts.agree_on(id, &next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_at_the_same_time_get_versions_of_their_own() {
    let parts = Parts::new().await;
    let registry = Arc::new(Registry::default());
    let ingest = Arc::new(parts.ingest(&registry));
    let cpu = spec("cpu");
    let (table, _) = ingest.declare(cpu.clone(), Cause::Declaration).await.expect("should declare");
    let declaring = (0..8).map(|_| {
        let (ingest, wanted) = (Arc::clone(&ingest), wider(&cpu, &["a"]));
        tokio::spawn(async move { ingest.declare(wanted, Cause::Declaration).await.expect("should declare").1 })
    });
    let declared = futures::future::try_join_all(declaring).await.expect("should end");
    assert_eq!(declared.iter().filter(|declared| **declared == Declared::Extended).count(), 1);
    parts
        .agree_on(table.id, &TableSpec { schema_version: 2, history: vec![Earlier::of(1)], ..wider(&cpu, &["a"]) })
        .await;
}
