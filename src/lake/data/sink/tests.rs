use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use object_store::memory::InMemory;

use super::*;
use crate::lake::data::Announce;

/// Fails its first uploads, and counts requests.
#[derive(Debug, Default)]
struct Shaky {
    inner: InMemory,
    failures: AtomicUsize,
    puts: AtomicUsize,
    parts: Arc<AtomicUsize>,
    aborted: Arc<AtomicUsize>,
}

impl Shaky {
    fn fail(&self) -> Result<()> {
        let left = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        left.map_or(Ok(()), |_| Err(Error::Generic { store: "shaky", source: "connection reset".into() }))
    }
}

impl fmt::Display for Shaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shaky")
    }
}

#[derive(Debug)]
struct Counted {
    inner: Box<dyn MultipartUpload>,
    fails: bool,
    parts: Arc<AtomicUsize>,
    aborted: Arc<AtomicUsize>,
}

#[async_trait]
impl MultipartUpload for Counted {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.parts.fetch_add(1, Ordering::SeqCst);
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if self.fails {
            return Err(Error::Generic { store: "shaky", source: "connection reset".into() });
        }
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.aborted.fetch_add(1, Ordering::SeqCst);
        self.inner.abort().await
    }
}

#[async_trait]
impl ObjectStore for Shaky {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        self.fail()?;
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let (parts, aborted) = (Arc::clone(&self.parts), Arc::clone(&self.aborted));
        let inner = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(Counted { inner, fails: self.fail().is_err(), parts, aborted }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// Knows what was announced, and whether it was in the store already.
#[derive(Debug)]
struct Ledger {
    store: Arc<Shaky>,
    heard: Mutex<Vec<String>>,
}

#[async_trait]
impl Announce for Ledger {
    async fn announce(&self, path: &str) {
        assert!(self.store.inner.head(&Path::from(path)).await.is_err(), "should be announced before it is there");
        self.heard.lock().push(path.to_owned());
    }
}

fn sink(failures: usize) -> (Sink, Arc<Shaky>, Arc<Ledger>) {
    let store = Arc::new(Shaky { failures: AtomicUsize::new(failures), ..Shaky::default() });
    let ledger = Arc::new(Ledger { store: Arc::clone(&store), heard: Mutex::default() });
    let patience = Patience { tries: 4, first_wait: Duration::from_millis(1), whole: Duration::from_secs(30) };
    let uploading = Uploading { announce: Some(Arc::clone(&ledger) as _), requests: None };
    (Sink::uncounted(Arc::clone(&store) as _, patience, uploading), store, ledger)
}

/// Writes a file as the file writer does: in parts of 5 MiB.
async fn write(sink: &Sink, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut upload = sink.put_multipart(path).await?;
    for part in bytes.chunks(5 << 20) {
        upload.put_part(Bytes::copy_from_slice(part).into()).await?;
    }
    upload.complete().await?;
    sink.failure().map_or(Ok(()), Err)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

#[tokio::test]
async fn a_file_of_many_parts_is_one_request_and_is_announced_once_however_often_it_fails() {
    let (sink, store, ledger) = sink(2);
    let (path, bytes) = (Path::from("date=2024-10-04/part-0.parquet"), bytes(12 << 20));
    write(&sink, &path, &bytes).await.expect("should upload at the third try");
    assert_eq!((store.puts.load(Ordering::SeqCst), store.parts.load(Ordering::SeqCst)), (3, 0));
    assert_eq!(*ledger.heard.lock(), [path.to_string()]);
    let read = store.inner.get(&path).await.expect("should be there").bytes().await.expect("should read");
    assert!(read == bytes);
}

#[tokio::test]
async fn a_large_file_goes_in_parts_which_are_aborted_where_it_fails() {
    let (sink, store, _) = sink(1);
    let (path, bytes) = (Path::from("large.parquet"), bytes(MAX_PUT + 1));
    write(&sink, &path, &bytes).await.expect("should upload at the second try");
    tokio::task::yield_now().await;
    assert_eq!((store.parts.load(Ordering::SeqCst), store.aborted.load(Ordering::SeqCst)), (6, 1));
    let read = store.inner.get(&path).await.expect("should be there").bytes().await.expect("should read");
    assert!(read == bytes);
}

#[tokio::test]
async fn a_store_that_goes_on_failing_is_given_up() {
    let (sink, store, _) = sink(99);
    write(&sink, &Path::from("a.parquet"), &bytes(1_000)).await.expect_err("should fail");
    assert_eq!(store.puts.load(Ordering::SeqCst), TRIES as usize);
}

#[tokio::test]
async fn nothing_is_sent_behind_a_failure_until_somebody_has_heard_of_it() {
    let (sink, store, _) = sink(99);
    for name in ["a.parquet", "b.parquet"] {
        let put = sink.put(&Path::from(name), Bytes::from_static(b"file").into()).await;
        put.expect("should be told that all is well");
    }
    assert_eq!(store.puts.load(Ordering::SeqCst), TRIES as usize);
    assert!(sink.failure().is_some() && sink.failure().is_none());
}

#[tokio::test]
async fn a_file_that_is_given_up_is_neither_announced_nor_sent() {
    let (sink, store, ledger) = sink(0);
    let mut upload = sink.put_multipart(&Path::from("a.parquet")).await.expect("should begin");
    upload.put_part(Bytes::from_static(b"half").into()).await.expect("should be kept");
    upload.abort().await.expect("should abort");
    assert_eq!((store.puts.load(Ordering::SeqCst), ledger.heard.lock().len()), (0, 0));
}

#[test]
fn parts_are_cut_at_their_size_and_hold_all_bytes() {
    for (lengths, size) in [(vec![10, 3, 7], 4), (vec![4, 4], 4), (vec![1], 4), (vec![], 4), (vec![9], 16)] {
        let all = bytes(lengths.iter().sum());
        let mut rest = Bytes::from(all.clone());
        let file: PutPayload = lengths.iter().map(|len| rest.split_to(*len)).collect();
        let parts = split(&file, size);
        let sizes: Vec<usize> = parts.iter().map(PutPayload::content_length).collect();
        assert!(sizes.iter().rev().skip(1).all(|s| *s == size) && sizes.iter().all(|s| *s <= size), "{sizes:?}");
        let joined: Vec<u8> = parts.into_iter().flat_map(|part| Bytes::from(part).to_vec()).collect();
        assert_eq!(joined, all);
    }
}
