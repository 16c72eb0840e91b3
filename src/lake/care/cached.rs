//! Log files that are read once for several purposes: a checkpoint needs each entry behind the last one, and that one, to
//! open the table, to write the new file and to know what must be in it. They never change, so the second read can be the
//! first. Readers of Parquet ask for a few kilobytes at a time, again for each column: a small file is fetched whole.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use parking_lot::Mutex;

use super::law::{Role, role_of};

/// Most bytes that are kept; more are read again.
const MAX_BYTES: u64 = 32 << 20;

/// Checkpoints up to this size are fetched whole.
const MAX_WHOLE: u64 = 4 << 20;

/// Over the whole store, for the length of one checkpoint.
#[derive(Debug)]
pub(super) struct Cached {
    inner: Arc<dyn ObjectStore>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    files: HashMap<Path, (ObjectMeta, Bytes)>,
    bytes: u64,
    /// What listings have said of checkpoints.
    sizes: HashMap<Path, u64>,
}

impl Kept {
    fn has_room_for(&self, bytes: u64) -> bool {
        self.bytes.saturating_add(bytes) <= MAX_BYTES
    }

    fn note_size(&mut self, meta: &ObjectMeta) {
        if role(&meta.location) == Some(Role::Checkpoint) {
            self.sizes.insert(meta.location.clone(), meta.size);
        }
    }
}

fn role(location: &Path) -> Option<Role> {
    location.filename().and_then(role_of).map(|(role, _)| role)
}

/// Whether the answer depends on nothing but the file's bytes.
fn is_plain(options: &GetOptions) -> bool {
    options.version.is_none()
        && options.if_match.is_none()
        && options.if_none_match.is_none()
        && options.if_modified_since.is_none()
        && options.if_unmodified_since.is_none()
}

impl Cached {
    pub(super) fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, kept: Arc::default() }
    }

    /// Whether the whole file is worth fetching for this.
    fn wants_whole(&self, location: &Path, options: &GetOptions) -> bool {
        match role(location) {
            Some(Role::Entry) => !options.head && options.range.is_none(),
            Some(Role::Checkpoint) => {
                let kept = self.kept.lock();
                let small = kept.sizes.get(location).is_some_and(|size| *size <= MAX_WHOLE && kept.has_room_for(*size));
                !options.head && small
            }
            _ => false,
        }
    }

    async fn fetch(&self, location: &Path) -> Result<(ObjectMeta, Bytes)> {
        let result = self.inner.get_opts(location, GetOptions::default()).await?;
        let meta = result.meta.clone();
        let bytes = result.bytes().await?;
        let mut kept = self.kept.lock();
        if kept.has_room_for(meta.size) {
            kept.bytes += meta.size;
            kept.files.insert(location.clone(), (meta.clone(), bytes.clone()));
        }
        Ok((meta, bytes))
    }

    fn sized(&self, listed: BoxStream<'static, Result<ObjectMeta>>) -> BoxStream<'static, Result<ObjectMeta>> {
        let kept = Arc::clone(&self.kept);
        listed.inspect_ok(move |meta| kept.lock().note_size(meta)).boxed()
    }
}

/// The answer to a read of a file whose bytes are here.
fn answer(location: &Path, options: &GetOptions, meta: ObjectMeta, bytes: &Bytes) -> Result<GetResult> {
    let range = match &options.range {
        Some(range) => range.as_range(meta.size).map_err(|error| Error::Generic {
            store: "cached",
            source: format!("a read of {location}: {error}").into(),
        })?,
        None => 0..meta.size,
    };
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let part = bytes.slice(at(range.start)..at(range.end));
    let payload = GetResultPayload::Stream(stream::once(async move { Ok(part) }).boxed());
    Ok(GetResult { payload, meta, range, attributes: Default::default() })
}

impl fmt::Display for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cached({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Cached {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if !is_plain(&options) {
            return self.inner.get_opts(location, options).await;
        }
        let kept = self.kept.lock().files.get(location).cloned();
        if let Some((meta, bytes)) = kept {
            return answer(location, &options, meta, &bytes);
        }
        if self.wants_whole(location, &options) {
            let (meta, bytes) = self.fetch(location).await?;
            return answer(location, &options, meta, &bytes);
        }
        let result = self.inner.get_opts(location, options).await?;
        self.kept.lock().note_size(&result.meta);
        Ok(result)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.sized(self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.sized(self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}
