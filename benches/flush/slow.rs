//! An object store in memory whose calls take as long as they are told to, and are counted. A listing costs by what it returns, as
//! with real stores: the one in memory below goes through all names, which would make every commit dearer than the one before.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

#[derive(Debug)]
pub struct Slow {
    inner: InMemory,
    names: Arc<Mutex<BTreeMap<Path, ObjectMeta>>>,
    every: Duration,
    /// Calls on a path that contains this take longer.
    slower: Mutex<Option<(String, Duration)>>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
}

impl Slow {
    pub fn new(every: Duration) -> Arc<Self> {
        let (names, slower, calls) = Default::default();
        Arc::new(Self { inner: InMemory::new(), names, every, slower, calls })
    }

    /// PUTs on a path that contains `part` take this long.
    pub fn delay(&self, part: &str, delay: Duration) {
        *self.slower.lock() = Some((part.to_owned(), delay));
    }

    /// Calls by kind.
    pub fn calls(&self) -> BTreeMap<&'static str, u64> {
        self.calls.lock().clone()
    }

    fn listed(&self, prefix: Option<&Path>, behind: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        *self.calls.lock().entry("LIST").or_default() += 1;
        let from = behind.map_or_else(|| Included(prefix.cloned().unwrap_or_default()), |path| Excluded(path.clone()));
        let names = self.names.lock();
        let below = |path: &Path| prefix.is_none_or(|prefix| path.prefix_matches(prefix) && path != prefix);
        // Names in a directory lie together, behind those that begin with its name and go on before a slash.
        let starts = |path: &Path| prefix.is_none_or(|prefix| path.as_ref().starts_with(prefix.as_ref()));
        let found = names.range((from, Unbounded)).take_while(|(path, _)| starts(path)).filter(|(path, _)| below(path));
        let found: Vec<_> = found.map(|(_, meta)| meta.clone()).collect();
        let every = self.every;
        futures::stream::once(async move { wait(every).await })
            .flat_map(move |()| futures::stream::iter(found.clone()).map(Ok))
            .boxed()
    }

    async fn call(&self, kind: &'static str, path: &str) {
        *self.calls.lock().entry(kind).or_default() += 1;
        let slower = self.slower.lock().clone().filter(|(part, _)| kind == "PUT" && path.contains(part.as_str()));
        let delay = slower.map_or(self.every, |(_, delay)| delay);
        wait(delay).await;
    }
}

async fn wait(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slow")
    }
}

#[async_trait]
impl ObjectStore for Slow {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.call("PUT", location.as_ref()).await;
        let put = self.inner.put_opts(location, payload, opts).await?;
        let meta = self.inner.head(location).await?;
        self.names.lock().insert(location.clone(), meta);
        Ok(put)
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        // Not named in listings: nothing here lists data files.
        self.call("multipart", location.as_ref()).await;
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.call(if options.head { "HEAD" } else { "GET" }, location.as_ref()).await;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        *self.calls.lock().entry("DELETE").or_default() += 1;
        let names = Arc::clone(&self.names);
        let gone = locations.inspect_ok(move |path| drop(names.lock().remove(path)));
        self.inner.delete_stream(gone.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, None)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.call("LIST", prefix.map_or("", AsRef::as_ref)).await;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.call("COPY", from.as_ref()).await;
        self.inner.copy_opts(from, to, options).await
    }
}
