//! Log files that are read once for several purposes: a checkpoint needs each entry behind the last one, and that one, to
//! open the table, to write the new file and to know what must be in it. They never change, so the second read can be the
//! first, and where a listing shows the file that is in [`memory`](super::memory) none is needed. Readers of Parquet ask for a few
//! kilobytes at a time, again for each column: a small file is fetched whole.
//!
//! A checkpoint is put as a new file only: another writer's of the same version may be what a clean-up of theirs relies on.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result,
};
use parking_lot::Mutex;

use super::law::{Role, role_of};
use super::memory::Memory;

/// Most bytes that are kept; more are read again.
const MAX_BYTES: u64 = 32 << 20;

/// Checkpoints up to this size are fetched whole.
const MAX_WHOLE: u64 = 4 << 20;

/// Over the whole store, for the length of one checkpoint.
#[derive(Debug)]
pub(super) struct Cached {
    inner: Arc<dyn ObjectStore>,
    memory: Option<Arc<Memory>>,
    kept: Arc<Mutex<Kept>>,
}

/// What became of the checkpoint that was to be put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckpointPut {
    /// It is in the store.
    Ours,
    /// Another one was there.
    Late,
}

#[derive(Debug, Default)]
struct Kept {
    files: HashMap<Path, (ObjectMeta, Bytes)>,
    bytes: u64,
    /// What listings have said of entries and checkpoints, and what is known of a checkpoint that was put.
    listed: HashMap<Path, ObjectMeta>,
    put: Option<CheckpointPut>,
}

impl Kept {
    fn has_room_for(&self, bytes: u64) -> bool {
        self.bytes.saturating_add(bytes) <= MAX_BYTES
    }

    fn keep(&mut self, location: &Path, meta: &ObjectMeta, bytes: &Bytes) {
        if self.has_room_for(meta.size) {
            self.bytes += meta.size;
            self.files.insert(location.clone(), (meta.clone(), bytes.clone()));
        }
    }

    fn note(&mut self, meta: &ObjectMeta) {
        if matches!(role(&meta.location), Some(Role::Checkpoint | Role::Entry)) {
            self.listed.insert(meta.location.clone(), meta.clone());
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

fn is_pointer(location: &Path) -> bool {
    location.filename() == Some("_last_checkpoint")
}

impl Cached {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, memory: Option<Arc<Memory>>) -> Self {
        Self { inner, memory, kept: Arc::default() }
    }

    /// What became of the checkpoint; none if none was put, or nobody knows.
    pub(super) fn checkpoint_put(&self) -> Option<CheckpointPut> {
        self.kept.lock().put
    }

    /// Notes the checkpoint, which was read through this.
    pub(super) fn note_checkpoint(&self, location: &Path, memory: &Memory) {
        if let Some((meta, bytes)) = self.kept.lock().files.get(location) {
            memory.note(location.clone(), meta.e_tag.as_deref(), bytes);
        }
    }

    /// A file that was read before, or is in memory as the log has it.
    fn known(&self, location: &Path) -> Option<(ObjectMeta, Bytes)> {
        let mut kept = self.kept.lock();
        if let Some(known) = kept.files.get(location) {
            return Some(known.clone());
        }
        let meta = kept.listed.get(location)?.clone();
        let bytes = self.memory.as_ref()?.take(location, meta.e_tag.as_deref()?)?;
        if u64::try_from(bytes.len()) != Ok(meta.size) {
            return None;
        }
        kept.keep(location, &meta, &bytes);
        Some((meta, bytes))
    }

    /// Fetches the whole file, if that is worth it.
    async fn whole(&self, location: &Path, options: &GetOptions) -> Result<Option<(ObjectMeta, Bytes)>> {
        let wanted = match role(location) {
            Some(Role::Entry) => !options.head && options.range.is_none(),
            Some(Role::Checkpoint) => {
                let kept = self.kept.lock();
                let size = kept.listed.get(location).map_or(0, |meta| meta.size);
                size <= MAX_WHOLE && kept.has_room_for(size)
            }
            None => is_pointer(location) && !options.head && options.range.is_none(),
            Some(_) => false,
        };
        if !wanted {
            return Ok(None);
        }
        let is_checkpoint = role(location) == Some(Role::Checkpoint);
        // Whether it is small is said with its first bytes.
        let range = is_checkpoint.then_some(GetRange::Bounded(0..MAX_WHOLE));
        let result = match self.inner.get_opts(location, GetOptions { range, ..GetOptions::default() }).await {
            Ok(result) => result,
            // Of an empty file there is no first byte: whoever asked hears what the store says to their own question.
            Err(_) if is_checkpoint => return Ok(None),
            Err(error) => return Err(error),
        };
        let meta = result.meta.clone();
        if is_checkpoint && meta.size > MAX_WHOLE {
            self.kept.lock().note(&meta);
            return Ok(None);
        }
        let bytes = result.bytes().await?;
        self.kept.lock().keep(location, &meta, &bytes);
        Ok(Some((meta, bytes)))
    }

    fn noted(&self, listed: BoxStream<'static, Result<ObjectMeta>>) -> BoxStream<'static, Result<ObjectMeta>> {
        let kept = Arc::clone(&self.kept);
        listed.inspect_ok(move |meta| kept.lock().note(meta)).boxed()
    }

    async fn put_checkpoint(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let size = u64::try_from(payload.content_length()).unwrap_or(u64::MAX);
        let put = self.inner.put_opts(location, payload, PutOptions { mode: PutMode::Create, ..opts }).await;
        let mut kept = self.kept.lock();
        match &put {
            Ok(put) => {
                kept.put = Some(CheckpointPut::Ours);
                let (e_tag, version) = (put.e_tag.clone(), put.version.clone());
                let last_modified = SystemTime::now().into();
                kept.note(&ObjectMeta { location: location.clone(), last_modified, size, e_tag, version });
            }
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => kept.put = Some(CheckpointPut::Late),
            Err(_) => {}
        }
        put
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
        if role(location) == Some(Role::Checkpoint) {
            return self.put_checkpoint(location, payload, opts).await;
        }
        self.kept.lock().files.remove(location);
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        if role(location) == Some(Role::Checkpoint) {
            // Such an upload replaces what is there.
            let put = match self.inner.head(location).await {
                Ok(_) => CheckpointPut::Late,
                Err(Error::NotFound { .. }) => CheckpointPut::Ours,
                Err(error) => return Err(error),
            };
            self.kept.lock().put = Some(put);
            if put == CheckpointPut::Late {
                return Err(Error::AlreadyExists { path: location.to_string(), source: "another writer's".into() });
            }
        }
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if !is_plain(&options) {
            return self.inner.get_opts(location, options).await;
        }
        if options.head
            && let Some(meta) = self.kept.lock().listed.get(location)
        {
            return answer(location, &options, meta.clone(), &Bytes::new());
        }
        if let Some((meta, bytes)) = self.known(location) {
            return answer(location, &options, meta, &bytes);
        }
        if let Some((meta, bytes)) = self.whole(location, &options).await? {
            return answer(location, &options, meta, &bytes);
        }
        let result = self.inner.get_opts(location, options).await?;
        self.kept.lock().note(&result.meta);
        Ok(result)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.noted(self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.noted(self.inner.list_with_offset(prefix, offset))
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
