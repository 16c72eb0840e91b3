//! A local file system that has stored what it says it has stored.
//!
//! `object_store`'s [`LocalFileSystem`] writes a staged file and links or renames it into place, and syncs neither the
//! file nor any directory; delta-rs adds nothing. A power cut behind a commit would leave an acknowledged generation,
//! already dropped from our log, in a file of zeros or in a directory that never existed. So here:
//!
//! 1. the bytes are synced, **before** 2. a name shows them, **before** 3. the directory that holds the name and every
//!    directory above it that may be new are synced, **before** the call returns.
//!
//! - [`disk`]: that order, in blocking calls, and which directories are known to be synced;
//! - [`barrier`]: the two kinds of sync, which tests replace.
//!
//! Reads, lists and deletes are the file system's own: a deletion that a power cut undoes loses nothing.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

use super::blocking::blocking;

mod barrier;
mod disk;
#[cfg(test)]
mod tests;

pub(super) use barrier::{Barrier, Fsync};
pub(super) use disk::{Disk, create_directory};
use disk::{Mode, failed};

/// See the module.
#[derive(Debug)]
pub(super) struct Durable {
    inner: LocalFileSystem,
    disk: Arc<Disk>,
}

impl Durable {
    /// Over the whole file system, as the kernel's paths are absolute; writes are taken below `disk`'s root only.
    pub(super) fn new(disk: Arc<Disk>) -> Self {
        Self { inner: LocalFileSystem::new(), disk }
    }

    /// Syncs the names in the directory `location` and the way to it. What a crashed or killed process left there is
    /// visible to readers and still may not survive a power cut; after this it does.
    pub(super) async fn settle(&self, location: &Path) -> Result<()> {
        // Any name in the directory leads to it.
        let inside = self.path(&location.clone().join("settled"))?;
        self.on_disk(move |disk| disk.sync_way_to(&inside).map_err(failed)).await
    }

    /// Syncs a file and the way to it, whoever wrote it.
    pub(super) async fn settle_file(&self, location: &Path) -> Result<()> {
        let path = self.path(location)?;
        self.on_disk(move |disk| disk.sync_placed(&path)).await
    }

    /// Removes what a killed process has left of writing `location`; its own name, if it has one, stays. Durable when it returns,
    /// as is the deletion of `location` before it.
    pub(super) async fn remove_staged(&self, location: &Path) -> Result<()> {
        let path = self.path(location)?;
        self.on_disk(move |disk| disk.remove_staged(&path).map_err(failed)).await
    }

    fn path(&self, location: &Path) -> Result<PathBuf> {
        self.inner.path_to_filesystem(location)
    }

    async fn on_disk<T: Send + 'static>(&self, work: impl FnOnce(&Disk) -> Result<T> + Send + 'static) -> Result<T> {
        let disk = Arc::clone(&self.disk);
        blocking(move || work(&disk)).await?
    }
}

impl fmt::Display for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Durable({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Durable {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        // What the file system cannot do (attributes, updates by tag), it refuses itself.
        let Some(mode) = Mode::of(&opts) else { return self.inner.put_opts(location, payload, opts).await };
        let path = self.path(location)?;
        self.on_disk(move |disk| disk.put(&path, &payload, mode)).await?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let path = self.path(location)?;
        self.disk.check(&path).map_err(failed)?;
        let inner = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(Upload { inner, path, disk: Arc::clone(&self.disk) }) as Box<dyn MultipartUpload>)
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let target = self.path(to)?;
        self.disk.check(&target).map_err(failed)?;
        self.inner.copy_opts(from, to, options).await?;
        self.on_disk(move |disk| disk.sync_placed(&target)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let target = self.path(to)?;
        self.disk.check(&target).map_err(failed)?;
        self.inner.rename_opts(from, to, options).await?;
        self.on_disk(move |disk| disk.sync_placed(&target)).await
    }
}

/// Parts go to a hidden file; it is synced when it has its name. Until the upload returns nobody refers to that name:
/// only data files, whose names are unique to one attempt, are uploaded in parts.
#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    path: PathBuf,
    disk: Arc<Disk>,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let result = self.inner.complete().await?;
        let (disk, path) = (Arc::clone(&self.disk), self.path.clone());
        // MUST BEFORE the return: a commit that refers to the file may follow at once, and the log lets go of the
        // rows behind it.
        blocking(move || disk.sync_placed(&path)).await??;
        Ok(result)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
