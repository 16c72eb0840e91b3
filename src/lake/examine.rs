//! A lake's store examined step by step, for people: the probe and more of it, then a small table written, committed and read back
//! by the code that does it for every table. Everything happens in a directory of its own, which is removed in the end.
//!
//! Not a conformance suite: it finds stores that are set up wrongly, or that cannot do what a commit needs. A store that fails
//! only under load, or now and then, passes.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use penstock_store::{Bucket, Incarnation, NodeId, TableId};
use uuid::Uuid;

use super::patience::Patience;
use super::proof::{create, create_twice};
use super::stores::Stores;
use super::{Commit, Error, FileSettings, Lake, Options};
use crate::schema::arrow::{arrow_schema, with_partition};
use crate::schema::{ColumnSpec, ColumnType, EventTime, TableSpec};

#[cfg(test)]
mod tests;

/// Create-only PUTs of one key at the same time.
const RACERS: usize = 8;
const ROWS: i64 = 1_000;
/// 2026-01-01T00:00:00Z, in microseconds.
const TIME: i64 = 1_767_225_600_000_000;
const HOUR: i64 = 3_600_000_000;

/// One thing that was tried.
#[derive(Debug)]
pub struct Step {
    /// What.
    pub name: &'static str,
    /// How long it took.
    pub took: Duration,
    /// What was found, in words.
    pub outcome: Result<String, Error>,
}

/// Examines the store of these settings, and tells each step as it ends. A failed one is the last but for the clean-up.
pub async fn examine(options: &Options, data_dir: &FilePath, tell: &mut (dyn FnMut(Step) + Send)) {
    let began = Instant::now();
    let opened = open(options, data_dir);
    let took = began.elapsed();
    let stores = match opened {
        Ok(stores) => stores,
        Err(error) => return tell(Step { name: "settings", took, outcome: Err(error) }),
    };
    tell(Step { name: "settings", took, outcome: Ok(stores.store.to_string()) });
    let mut examination = Examination { stores: stores.clone(), patience: Patience::new(options.call_timeout), tell };
    examination.run().await;
    examination.step("clean up", remove_all(&stores)).await;
}

/// The store, rooted at a directory that nobody else uses.
fn open(options: &Options, data_dir: &FilePath) -> Result<Stores, Error> {
    let stores = Stores::open(options, data_dir)?;
    if stores.url.scheme() == "memory" {
        let reason = "it is this process's memory: there is nothing to examine";
        return Err(Error::Url { url: stores.url.to_string(), reason });
    }
    Ok(stores.below(&format!("penstock-doctor-{}", Uuid::new_v4())))
}

struct Examination<'a> {
    stores: Stores,
    patience: Patience,
    tell: &'a mut (dyn FnMut(Step) + Send),
}

impl Examination<'_> {
    /// Every step but the last; ends at the first that fails.
    async fn run(&mut self) -> Option<()> {
        let stores = self.stores.clone();
        self.step("create-only PUT", refuses(&stores)).await?;
        self.step("race for one key", race(&stores)).await?;
        self.step("list", list(&stores)).await?;
        let (node, patience) = (NodeId(Uuid::new_v4()), self.patience);
        let table = TableId(Uuid::new_v4());
        self.step("commit a table", commit_twice(&stores, patience, node, table)).await?;
        self.step("read it back", read_back(&stores, patience, node, table)).await
    }

    async fn step(&mut self, name: &'static str, work: impl Future<Output = Result<String, Error>>) -> Option<()> {
        let began = Instant::now();
        let outcome = work.await;
        let done = outcome.is_ok();
        (self.tell)(Step { name, took: began.elapsed(), outcome });
        done.then_some(())
    }
}

async fn refuses(stores: &Stores) -> Result<String, Error> {
    create_twice(stores, &stores.prefix.clone().join("twice")).await?;
    Ok("a second one of the same key is refused, and changes nothing".to_owned())
}

pub(super) async fn race(stores: &Stores) -> Result<String, Error> {
    let path = stores.prefix.clone().join("race");
    let outcomes = futures::future::join_all((0..RACERS).map(|_| create(stores, &path, "racer"))).await;
    let mut winners = 0;
    for outcome in outcomes {
        match outcome {
            Ok(()) => winners += 1,
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
            Err(error) => return Err(Error::store("creating", &path, error)),
        }
    }
    if winners != 1 {
        return Err(Error::NotAtomic { url: stores.url.to_string(), winners, racers: RACERS });
    }
    Ok(format!("1 of {RACERS} writers at once wins"))
}

async fn list(stores: &Stores) -> Result<String, Error> {
    let mut found = names(stores).await?;
    found.sort_unstable();
    let wanted: Vec<Path> = ["race", "twice"].map(|name| stores.prefix.clone().join(name)).into();
    if found != wanted {
        let reason = format!("a listing right after two PUTs shows {found:?} in place of {wanted:?}");
        return Err(Error::Corrupt { location: stores.url.to_string(), reason });
    }
    Ok("shows at once what was written".to_owned())
}

async fn names(stores: &Stores) -> Result<Vec<Path>, Error> {
    let listed = stores.store.list(Some(&stores.prefix)).map_ok(|object| object.location).try_collect().await;
    listed.map_err(|error| Error::store("listing", &stores.prefix, error))
}

fn spec() -> TableSpec {
    let column = |name: &str, kind| ColumnSpec { name: name.into(), kind, nullable: false };
    TableSpec {
        name: "doctor.rows".parse().expect("should be a name"),
        schema_version: 1,
        columns: vec![column("ts", ColumnType::Timestamp), column("n", ColumnType::Long)],
        event_time: EventTime::Column { name: "ts".into(), unit: None },
        bucket_seconds: 3_600,
        partition: Some("date".into()),
        sort: vec![],
        history: vec![],
        bloom: vec![],
        rules: crate::schema::Rules::default(),
    }
}

fn rows(spec: &TableSpec) -> Result<RecordBatch, arrow::error::ArrowError> {
    let times = TimestampMicrosecondArray::from_iter_values((0..ROWS).map(|i| TIME + i)).with_timezone("UTC");
    let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(Int64Array::from_iter_values(0..ROWS))];
    let batch = RecordBatch::try_new(arrow_schema(spec), columns)?;
    Ok(with_partition(spec, &batch, Bucket { start: TIME, width: HOUR }))
}

const INCARNATION: Incarnation = Incarnation(1);

/// Creates the table and commits twice, as a flush does.
async fn commit_twice(stores: &Stores, patience: Patience, node: NodeId, id: TableId) -> Result<String, Error> {
    let spec = spec();
    let table = Lake::behind(stores.clone(), patience).table(id, &spec.name);
    for sequence in 1..=2 {
        let batch = rows(&spec).map_err(|source| Error::Rows { table: spec.name.to_string(), source })?;
        let files = table.write_data(&spec, vec![batch], &FileSettings::default()).await?;
        let commit = Commit {
            node,
            incarnation: INCARNATION,
            first_sequence: sequence,
            sequence,
            spec: &spec,
            adds: &files.adds,
        };
        table.commit(commit).await?;
    }
    Ok(format!("{} rows in 2 commits", 2 * ROWS))
}

/// As another process would find it.
async fn read_back(stores: &Stores, patience: Patience, node: NodeId, id: TableId) -> Result<String, Error> {
    let table = Lake::behind(stores.clone(), patience).table(id, &spec().name);
    let corrupt = |reason: String| Error::Corrupt { location: table.location().to_string(), reason };
    let committed = table.resolve(&[INCARNATION], node).await?;
    if committed != [Some(2)] {
        return Err(corrupt(format!("its log says that {committed:?} is committed in place of [Some(2)]")));
    }
    let Some(snapshot) = table.snapshot(None).await? else {
        return Err(corrupt("its log is not there".to_owned()));
    };
    let paths: Vec<Path> = snapshot.eager().log_data().iter().map(|file| file.object_store_path()).collect();
    let mut found = 0;
    for path in paths {
        let read = async { table.parts.store.get(&path).await?.bytes().await };
        let bytes = read.await.map_err(|error| Error::store("reading", &path, error))?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).and_then(ParquetRecordBatchReaderBuilder::build);
        for batch in reader.map_err(|error| corrupt(format!("{path}: {error}")))? {
            found += batch.map_err(|error| corrupt(format!("{path}: {error}")))?.num_rows();
        }
    }
    if i64::try_from(found) != Ok(2 * ROWS) {
        return Err(corrupt(format!("it has {found} rows in place of {}", 2 * ROWS)));
    }
    Ok(format!("{found} rows in version {}", snapshot.version()))
}

async fn remove_all(stores: &Stores) -> Result<String, Error> {
    let names = names(stores).await?;
    let count = names.len();
    let names = futures::stream::iter(names.into_iter().map(Ok)).boxed();
    let removed: Result<Vec<Path>, _> = stores.store.delete_stream(names).try_collect().await;
    removed.map_err(|error| Error::store("removing what is in", &stores.prefix, error))?;
    // Object stores have no directories, file systems keep empty ones.
    if let (Some(_), Ok(path)) = (&stores.durable, stores.url.to_file_path())
        && path.exists()
    {
        std::fs::remove_dir_all(&path).map_err(|source| Error::Directory { path, source })?;
    }
    Ok(format!("{count} objects removed"))
}

/// What a person can do about a failed step.
pub fn advice(error: &Error) -> &'static str {
    match error {
        Error::Unproven(error) => advice(error),
        Error::Url { .. } => {
            "lake.url is \"file:///path\", \"s3://bucket/path\", \"az://container/path\" or \"gs://bucket/path\""
        }
        Error::Settings(_) => {
            "the keys of [lake.storage] are those of the object_store crate; what is missing there comes from the AWS_*, AZURE_* or \
             GOOGLE_* environment"
        }
        Error::Directory { .. } => "the directory has to be writable for the user that runs the server",
        Error::NoConditionalPut { .. } | Error::NotAtomic { .. } => {
            "use a store, or a version of it, that honours `If-None-Match: *`; nothing is committed to this one"
        }
        Error::Timeout { .. } => {
            "is the endpoint right, and reachable from here? If the store is slow, raise lake.call_timeout"
        }
        Error::Store { source, .. } => stores_advice(source),
        _ => "run it again; if it fails in the same way, the store does not keep what it was given",
    }
}

fn stores_advice(error: &object_store::Error) -> &'static str {
    use object_store::Error as Store;
    match error {
        Store::Unauthenticated { .. } | Store::PermissionDenied { .. } => {
            "the credentials are wrong, or may not do this: reading, writing, listing and deleting are needed"
        }
        Store::NotFound { .. } => {
            "the bucket or container has to exist; is its name right, and the endpoint or account?"
        }
        Store::AlreadyExists { .. } | Store::Precondition { .. } => {
            "run it again: an answer was lost on the way, it seems"
        }
        Store::NotImplemented { .. } | Store::NotSupported { .. } => "the store cannot do this; use another one",
        _ => "is the endpoint right, and reachable from here? Are the region and the credentials those of this store?",
    }
}
