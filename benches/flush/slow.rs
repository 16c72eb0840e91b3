//! An object store in memory whose calls take as long as they are told to, and are counted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

#[derive(Debug)]
pub struct Slow {
    inner: InMemory,
    every: Duration,
    /// Calls on a path that contains this take longer.
    slower: Mutex<Option<(String, Duration)>>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
}

impl Slow {
    pub fn new(every: Duration) -> Arc<Self> {
        Arc::new(Self { inner: InMemory::new(), every, slower: Mutex::default(), calls: Mutex::default() })
    }

    /// PUTs on a path that contains `part` take this long.
    pub fn delay(&self, part: &str, delay: Duration) {
        *self.slower.lock() = Some((part.to_owned(), delay));
    }

    /// Calls by kind.
    pub fn calls(&self) -> BTreeMap<&'static str, u64> {
        self.calls.lock().clone()
    }

    async fn call(&self, kind: &'static str, path: &str) {
        *self.calls.lock().entry(kind).or_default() += 1;
        let slower = self.slower.lock().clone().filter(|(part, _)| kind == "PUT" && path.contains(part.as_str()));
        let delay = slower.map_or(self.every, |(_, delay)| delay);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
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
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.call("multipart", location.as_ref()).await;
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.call(if options.head { "HEAD" } else { "GET" }, location.as_ref()).await;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        *self.calls.lock().entry("DELETE").or_default() += 1;
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        *self.calls.lock().entry("LIST").or_default() += 1;
        let (listed, every) = (self.inner.list(prefix), self.every);
        futures::stream::once(tokio::time::sleep(every))
            .flat_map(move |()| futures::stream::empty())
            .chain(listed)
            .boxed()
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
