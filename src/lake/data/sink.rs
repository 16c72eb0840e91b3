//! The store as the file writer sees it: whole files go in.
//!
//! The writer would upload in parts of 5 MiB while it encodes. Here the parts are kept until the file is complete, which costs
//! memory for one encoded file (a fraction of the rows that it was made of) and gives:
//!
//! - most files are one request, and a request that failed is made again without encoding again;
//! - a file is announced once it is whole, so that a generation that cannot be encoded leaves nothing behind;
//! - what is not completed is not in the store, but for files above [`MAX_PUT`], and those are aborted.
//!
//! The writer is told that all went well, and the first failure is kept ([`Sink::failure`]): what else it fails with is the rows' own
//! fault, and its way to give up an upload that failed at its end is a panic.
//!
//! A process that is killed while it uploads such a large file leaves its parts to the store's own clean-up (a lifecycle rule for
//! incomplete uploads): no interface of the `object_store` crate lists them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::Uploading;
use crate::lake::patience::Patience;
use crate::lake::table;
use crate::lake::tally::Tally;

/// Largest file that is uploaded with one request.
const MAX_PUT: usize = 32 << 20;
/// Bytes of a part of a larger one.
const PART: usize = 16 << 20;
/// Parts of one file on their way at the same time.
const PARTS_AT_ONCE: usize = 4;
/// Attempts at one file. Behind the last one the whole job is tried again, later.
const TRIES: u32 = 3;

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Sink {
    store: Arc<dyn ObjectStore>,
    patience: Patience,
    uploading: Uploading,
    tally: Arc<Tally>,
    /// Where the files go, from the table's root.
    directory: Path,
    failure: Arc<Mutex<Option<Error>>>,
}

impl Sink {
    pub(super) fn new(parts: &table::Parts, uploading: Uploading) -> Self {
        Self { tally: Arc::clone(&parts.tally), ..Self::uncounted(Arc::clone(&parts.store), parts.patience, uploading) }
    }

    /// Counted by nobody.
    pub(super) fn uncounted(store: Arc<dyn ObjectStore>, patience: Patience, uploading: Uploading) -> Self {
        let (tally, directory, failure) = (Arc::default(), Path::default(), Arc::default());
        Self { store, patience, uploading, tally, directory, failure }
    }

    /// Takes out the store's first failure. MUST be asked before a file counts as uploaded.
    pub(super) fn failure(&self) -> Option<Error> {
        self.failure.lock().take()
    }

    async fn keep(&self, name: &Path, file: PutPayload) -> Result<PutResult> {
        if self.failure.lock().is_none()
            && let Err(error) = self.place(name, file).await
        {
            self.failure.lock().get_or_insert(error);
        }
        Ok(PutResult { e_tag: None, version: None })
    }

    /// The same, for files in a directory.
    pub(super) fn in_directory(&self, directory: Option<String>) -> Self {
        Self { directory: directory.map(Path::from).unwrap_or_default(), ..self.clone() }
    }

    async fn place(&self, name: &Path, file: PutPayload) -> Result<()> {
        let location = &Path::from_iter(self.directory.parts().chain(name.parts()));
        if let Some(announce) = &self.uploading.announce {
            // MUST BEFORE the first request: a process that is killed in between would leave a file that nobody knows of.
            announce.announce(location.as_ref()).await;
        }
        let upload = upload(Arc::clone(&self.store), location.clone(), file, self.patience, Arc::clone(&self.tally));
        let Some(requests) = &self.uploading.requests else { return upload.await };
        let mut task = JoinSet::new();
        // Dropped with this future, which ends the upload.
        task.spawn_on(upload, requests);
        let ended = task.join_next().await.expect("should end: it was begun");
        ended.unwrap_or_else(|error| Err(Error::from(error)))
    }
}

async fn upload(
    store: Arc<dyn ObjectStore>,
    path: Path,
    file: PutPayload,
    patience: Patience,
    tally: Arc<Tally>,
) -> Result<()> {
    let began = Instant::now();
    let mut tried = 0;
    loop {
        let put = if file.content_length() <= MAX_PUT {
            // Overwrites: the name is this file's alone, and an earlier request may have placed it.
            store.put(&path, file.clone()).await.map(drop)
        } else {
            in_parts(store.as_ref(), &path, &file).await
        };
        tried += 1;
        match put {
            Err(error) if tried < TRIES => {
                tracing::debug!(%path, %error, tried, "an upload failed; it is tried again");
                tally.upload_retries.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(patience.wait(tried)).await;
            }
            done => {
                tally.uploads.count(began.elapsed());
                return done;
            }
        }
    }
}

async fn in_parts(store: &dyn ObjectStore, path: &Path, file: &PutPayload) -> Result<()> {
    let mut parts = Parts(Some(store.put_multipart(path).await?));
    let puts: Vec<UploadPart> = split(file, PART).into_iter().map(|part| parts.upload().put_part(part)).collect();
    stream::iter(puts).buffer_unordered(PARTS_AT_ONCE).try_collect::<Vec<()>>().await?;
    parts.upload().complete().await?;
    parts.0 = None;
    Ok(())
}

/// The file in parts of `size` bytes, the last one smaller; no byte is copied.
fn split(file: &PutPayload, size: usize) -> Vec<PutPayload> {
    let (mut parts, mut part, mut room) = (Vec::new(), Vec::new(), size);
    for chunk in file {
        let mut chunk: Bytes = chunk.clone();
        while !chunk.is_empty() {
            let taken = chunk.split_to(room.min(chunk.len()));
            room -= taken.len();
            part.push(taken);
            if room == 0 {
                parts.push(std::mem::take(&mut part).into_iter().collect());
                room = size;
            }
        }
    }
    if !part.is_empty() {
        parts.push(part.into_iter().collect());
    }
    parts
}

/// An upload in parts that is aborted unless it is completed: dropped as it is, its parts would stay in the store, where nothing
/// lists and nothing sweeps them.
struct Parts(Option<Box<dyn MultipartUpload>>);

impl Parts {
    fn upload(&mut self) -> &mut dyn MultipartUpload {
        self.0.as_deref_mut().expect("should be there until it is complete")
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let Some(mut upload) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = upload.abort().await {
                    tracing::warn!(%error, "parts of an upload could not be removed");
                }
            });
        }
    }
}

/// A file on its way from the writer, whole only at its end.
#[derive(Debug)]
struct Collected {
    sink: Sink,
    location: Path,
    chunks: Vec<Bytes>,
}

#[async_trait]
impl MultipartUpload for Collected {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.chunks.extend(data);
        Box::pin(std::future::ready(Ok(())))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let file = std::mem::take(&mut self.chunks).into_iter().collect();
        self.sink.keep(&self.location, file).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.chunks.clear();
        Ok(())
    }
}

impl fmt::Display for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sink({})", self.store)
    }
}

#[async_trait]
impl ObjectStore for Sink {
    async fn put_opts(&self, location: &Path, payload: PutPayload, _opts: PutOptions) -> Result<PutResult> {
        self.keep(location, payload).await
    }

    async fn put_multipart_opts(&self, location: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(Collected { sink: self.clone(), location: location.clone(), chunks: Vec::new() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests;
