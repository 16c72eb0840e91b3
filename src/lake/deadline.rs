//! A deadline for every call to the object store: a call that is not answered in time fails, so that a stalled
//! connection or a hung mount holds up one attempt and not the table. What was asked for may still happen later; the
//! commit protocol counts on that.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

#[cfg(test)]
mod tests;

/// The error below a call that was given up.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {limit:?}")]
pub(super) struct Exceeded {
    pub(super) limit: Duration,
}

impl Exceeded {
    fn error(limit: Duration) -> Error {
        Error::Generic { store: "deadline", source: Box::new(Self { limit }) }
    }
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| Err(Exceeded::error(limit)))
}

/// Each item has the deadline, not the whole stream: a long listing that makes progress is fine.
fn each_within<T: Send + 'static>(
    limit: Duration,
    items: impl Stream<Item = Result<T>> + Send + Unpin + 'static,
) -> BoxStream<'static, Result<T>> {
    stream::unfold(Some(items), move |items| async move {
        let mut items = items?;
        match tokio::time::timeout(limit, items.next()).await {
            Ok(item) => item.map(|item| (item, Some(items))),
            Err(_) => Some((Err(Exceeded::error(limit)), None)),
        }
    })
    // The kernel asks once more behind the end.
    .fuse()
    .boxed()
}

/// See the module.
#[derive(Debug)]
pub(super) struct Deadline {
    inner: Arc<dyn ObjectStore>,
    limit: Duration,
}

impl Deadline {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, limit: Duration) -> Self {
        Self { inner, limit }
    }
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deadline({}, {:?})", self.inner, self.limit)
    }
}

#[async_trait]
impl ObjectStore for Deadline {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        within(self.limit, self.inner.put_opts(location, payload, opts)).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let inner = within(self.limit, self.inner.put_multipart_opts(location, opts)).await?;
        Ok(Box::new(Upload { inner, limit: self.limit }) as Box<dyn MultipartUpload>)
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut result = within(self.limit, self.inner.get_opts(location, options)).await?;
        if let GetResultPayload::Stream(body) = result.payload {
            result.payload = GetResultPayload::Stream(each_within(self.limit, body));
        }
        Ok(result)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        within(self.limit, self.inner.get_ranges(location, ranges)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        each_within(self.limit, self.inner.delete_stream(locations))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        each_within(self.limit, self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        each_within(self.limit, self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        within(self.limit, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        within(self.limit, self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        within(self.limit, self.inner.rename_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    limit: Duration,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        Box::pin(within(self.limit, self.inner.put_part(data)))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        within(self.limit, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        within(self.limit, self.inner.abort()).await
    }
}
