//! A store in memory whose log files fail, are damaged and grow old on demand; and tables without data files.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use deltalake::kernel::Add;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use url::Url;

use crate::lake::care::Care;
use crate::lake::care::law::{Role, role_of};
use crate::lake::patience::Patience;
use crate::lake::stores::Stores;
use crate::lake::tests::support::*;
use crate::lake::{Lake, LakeTable};

/// What becomes of the PUTs of files whose path ends so.
#[derive(Debug, Clone)]
pub(super) enum Put {
    /// An error, and nothing is written.
    Fail,
    /// An error though it is written.
    LoseAnswer,
    /// The first half is written, and the answer is fine.
    Cut,
    /// Something else is written, and the answer is fine.
    Replace(Bytes),
}

#[derive(Debug, Default)]
pub(super) struct Rig {
    inner: InMemory,
    puts: Mutex<Option<(&'static str, Put)>>,
    /// A file that somebody else is faster with.
    rival: Mutex<Option<(String, Bytes)>>,
    /// Log files of lower versions are a hundred days old.
    pub(super) old_below: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) lists: AtomicU64,
    pub(super) heads: AtomicU64,
    /// Reads of entries among them.
    pub(super) entry_reads: AtomicU64,
    /// Reads of pointers to checkpoints now, and the most there were at a time.
    pointer_reads: AtomicU64,
    pub(super) most_pointer_reads: AtomicU64,
}

pub(super) const LOG: &str = "lake/metrics/cpu/_delta_log";

impl Rig {
    pub(super) fn lake(self: &Arc<Self>, every: u64) -> Lake {
        self.lake_with(Care::new(every, true))
    }

    pub(super) fn lake_with(self: &Arc<Self>, care: Arc<Care>) -> Lake {
        let url = Url::parse("memory:///lake").expect("should be a URL");
        let stores = Stores::new(url, Arc::clone(self) as _, CALL_TIMEOUT * 50).expect("should be a lake");
        let patience = Patience { tries: 4, first_wait: Duration::from_millis(1), whole: Duration::from_secs(30) };
        Lake::over(stores, patience).with_care(care)
    }

    pub(super) fn meets(&self, suffix: &'static str, put: Put) {
        *self.puts.lock() = Some((suffix, put));
    }

    /// Somebody else puts the file of this name just before we do.
    pub(super) fn appears_before_put(&self, name: &str, bytes: Bytes) {
        *self.rival.lock() = Some((name.to_owned(), bytes));
    }

    pub(super) fn is_well(&self) {
        *self.puts.lock() = None;
    }

    /// Makes the log files of lower versions old.
    pub(super) fn age(&self, below: u64) {
        self.old_below.store(below, Ordering::SeqCst);
    }

    /// The names in the log.
    pub(super) async fn log(&self) -> BTreeSet<String> {
        let found = self.inner.list(Some(&Path::from(LOG))).map(|meta| {
            let location = meta.expect("should list").location;
            location.filename().expect("should have a name").to_owned()
        });
        found.collect().await
    }

    pub(super) async fn entries(&self) -> Vec<u64> {
        let roles = self.log().await.into_iter().filter_map(|name| role_of(&name));
        roles.filter(|(role, _)| *role == Role::Entry).map(|(_, version)| version).collect()
    }

    pub(super) async fn read(&self, name: &str) -> Option<Bytes> {
        let found = self.inner.get(&Path::from(format!("{LOG}/{name}"))).await.ok()?;
        Some(found.bytes().await.expect("should read"))
    }

    pub(super) async fn remove(&self, name: &str) {
        self.inner.delete(&Path::from(format!("{LOG}/{name}"))).await.expect("should remove");
    }

    pub(super) async fn write(&self, name: &str, bytes: Bytes) {
        self.inner.put(&Path::from(format!("{LOG}/{name}")), bytes.into()).await.expect("should put");
    }
}

pub(super) fn checkpoint(version: u64) -> String {
    format!("{version:020}.checkpoint.parquet")
}

/// An action for a file that nobody looks into.
pub(super) fn some_file() -> Add {
    serde_json::from_value(serde_json::json!({
        "path": format!("date=2024-10-04/{}.parquet", uuid::Uuid::new_v4()),
        "partitionValues": { "date": "2024-10-04" },
        "size": 1_000,
        "modificationTime": 1_728_000_000_000_i64,
        "dataChange": true,
        "stats": r#"{"numRecords":10}"#,
    }))
    .expect("should be an action")
}

/// Commits one file under the sequence, and waits until what that has brought on is done.
pub(super) async fn commit_one(table: &LakeTable, sequence: u64) {
    commit_as(table, NOW, sequence..=sequence, &[some_file()]).await.expect("should commit");
    at_rest(table).await;
}

/// Confirms what was committed, and waits for the table's background task.
pub(super) async fn at_rest(table: &LakeTable) {
    table.confirm().await.expect("should be confirmed");
    tokio::time::timeout(Duration::from_secs(60), table.caretaker.rest()).await.expect("should come to rest");
}

impl fmt::Display for Rig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rig")
    }
}

fn broken() -> StoreError {
    StoreError::Generic { store: "rig", source: "connection reset".into() }
}

#[async_trait]
impl ObjectStore for Rig {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let rival = self.rival.lock().take_if(|(name, _)| location.filename() == Some(name));
        if let Some((_, bytes)) = rival {
            self.inner.put(location, bytes.into()).await?;
        }
        let fate = self.puts.lock().clone().filter(|(suffix, _)| location.as_ref().ends_with(suffix));
        let payload = match fate {
            None => payload,
            Some((_, Put::Fail)) => return Err(broken()),
            Some((_, Put::LoseAnswer)) => {
                return self.inner.put_opts(location, payload, opts).await.and(Err(broken()));
            }
            Some((_, Put::Cut)) => {
                let bytes = Bytes::from(payload);
                bytes.slice(..bytes.len() / 2).into()
            }
            Some((_, Put::Replace(bytes))) => bytes.into(),
        };
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let role = location.filename().and_then(role_of).map(|(role, _)| role);
        self.heads.fetch_add(u64::from(options.head), Ordering::SeqCst);
        self.entry_reads.fetch_add(u64::from(role == Some(Role::Entry) && !options.head), Ordering::SeqCst);
        if location.as_ref().contains("/date=") {
            // A commit asks for the files that it refers to; all are there.
            self.inner.put(location, "not read".into()).await?;
        }
        if location.filename() == Some("_last_checkpoint") {
            let now = self.pointer_reads.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_pointer_reads.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.pointer_reads.fetch_sub(1, Ordering::SeqCst);
        }
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        // One request for up to a thousand names, as in S3.
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.lists.fetch_add(1, Ordering::SeqCst);
        let below = self.old_below.load(Ordering::SeqCst);
        let aged = move |meta: Result<ObjectMeta>| {
            let mut meta = meta?;
            let version = meta.location.filename().and_then(role_of);
            if version.is_some_and(|(_, version)| version < below) {
                meta.last_modified = (std::time::SystemTime::now() - Duration::from_secs(100 * 86_400)).into();
            }
            Ok(meta)
        };
        self.inner.list(prefix).map(aged).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
