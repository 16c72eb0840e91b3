//! A tiny S3 server that may ignore `If-None-Match`, as some do: PUT, GET, listing and bulk deletion of one bucket, in memory, no
//! signatures checked. It may take its time with data files, have a slow line, leave some PUTs unanswered, and be gone for a while.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, Response, StatusCode, header};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Launch;
use super::replay::Objects;

const MODIFIED: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

/// A server that runs for as long as the test's runtime.
#[derive(Debug, Clone)]
pub struct Careless {
    pub endpoint: String,
    address: SocketAddr,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    objects: Mutex<BTreeMap<String, Bytes>>,
    careful: AtomicBool,
    /// What a PUT of a data file takes.
    upload_millis: AtomicU64,
    /// Bytes a second of all PUTs together; 0: as fast as it goes.
    line: AtomicU64,
    /// Who has the line.
    turn: tokio::sync::Mutex<()>,
    /// PUTs of keys with this in them are not carried out for now.
    hangs: Mutex<Option<&'static str>>,
    /// Whether it is gone: listeners and connections end.
    gone: watch::Sender<bool>,
}

impl Careless {
    /// One that ignores the header.
    pub async fn start() -> Self {
        let inner = Arc::new(Inner::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("should find a port");
        let address = listener.local_addr().expect("should have an address");
        let this = Self { endpoint: format!("http://{address}"), address, inner };
        this.serve(listener);
        this
    }

    fn serve(&self, listener: tokio::net::TcpListener) {
        let router = Router::new().fallback(answer).with_state(Arc::clone(&self.inner));
        let mut gone = self.inner.gone.subscribe();
        let gone = async move { drop(gone.wait_for(|gone| *gone).await) };
        tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(gone).await });
    }

    /// The server is ended: nobody listens, and what is under way is not carried out. The objects stay.
    pub async fn leave(&self) {
        self.inner.gone.send_replace(true);
        super::until("nobody to listen", async || tokio::net::TcpStream::connect(self.address).await.err()).await;
    }

    /// It is back.
    pub async fn come_back(&self) {
        self.inner.gone.send_replace(false);
        let listener = super::until("the port", async || tokio::net::TcpListener::bind(self.address).await.ok()).await;
        self.serve(listener);
    }

    /// All PUTs together get so many bytes a second; 0: as fast as it goes.
    pub fn slow_down(&self, bytes_per_second: u64) {
        self.inner.line.store(bytes_per_second, Ordering::SeqCst);
    }

    /// PUTs of keys with this in them hang, until it is called with none.
    pub fn hang(&self, needle: Option<&'static str>) {
        *self.inner.hangs.lock() = needle;
    }

    /// The objects below a prefix, by what follows it.
    pub fn objects(&self, prefix: &str) -> Objects {
        let objects = self.inner.objects.lock();
        let below =
            objects.iter().filter_map(|(key, bytes)| Some((key.strip_prefix(prefix)?.to_owned(), bytes.clone())));
        below.collect()
    }

    /// A server whose lake is here, in `bucket/lake`.
    pub fn launch(&self, launch: Launch) -> Launch {
        launch.set_all(&[
            ("lake.url", "s3://bucket/lake"),
            ("lake.storage.endpoint", &self.endpoint),
            ("lake.storage.access_key_id", "id"),
            ("lake.storage.secret_access_key", "key"),
            ("lake.storage.region", "here"),
        ])
    }

    /// From now on it honours the header.
    pub fn mend(&self) {
        self.inner.careful.store(true, Ordering::SeqCst);
    }

    /// From now on a PUT of a data file takes so long.
    pub fn slow_uploads(&self, millis: u64) {
        self.inner.upload_millis.store(millis, Ordering::SeqCst);
    }

    /// The keys that are there.
    pub fn keys(&self) -> Vec<String> {
        self.inner.objects.lock().keys().cloned().collect()
    }
}

async fn answer(State(inner): State<Arc<Inner>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else { return reply(StatusCode::BAD_REQUEST, "") };
    let path = parts.uri.path().trim_start_matches('/');
    let key = path.split_once('/').map_or("", |(_bucket, key)| key);
    let key = object_store::path::Path::from_url_path(key).expect("should be a key").to_string();
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    if parts.method == Method::PUT && key.ends_with(".parquet") {
        tokio::time::sleep(Duration::from_millis(inner.upload_millis.load(Ordering::SeqCst))).await;
    }
    if parts.method == Method::PUT {
        inner.travel(&key, body.len()).await;
    }
    if *inner.gone.borrow() {
        let mut reply = reply(StatusCode::SERVICE_UNAVAILABLE, "");
        reply.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        return reply;
    }
    match parts.method {
        Method::PUT => inner.put(key, body, header(header::IF_NONE_MATCH) == Some("*")),
        Method::POST => inner.delete(&String::from_utf8_lossy(&body)),
        Method::GET if key.is_empty() => inner.list(parts.uri.query().unwrap_or_default()),
        Method::GET | Method::HEAD => inner.get(&key, header(header::RANGE)),
        _ => reply(StatusCode::METHOD_NOT_ALLOWED, String::new()),
    }
}

fn reply(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let reply =
        Response::builder().status(status).header(header::ETAG, "\"1\"").header(header::LAST_MODIFIED, MODIFIED);
    reply.body(body.into()).expect("should be a reply")
}

impl Inner {
    async fn travel(&self, key: &str, bytes: usize) {
        while self.hangs.lock().is_some_and(|needle| key.contains(needle)) && !*self.gone.borrow() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let line = self.line.load(Ordering::SeqCst);
        if line > 0 {
            let _turn = self.turn.lock().await;
            tokio::time::sleep(Duration::from_secs_f64(bytes as f64 / line as f64)).await;
        }
    }

    fn put(&self, key: String, body: Bytes, create: bool) -> Response<Body> {
        let mut objects = self.objects.lock();
        if create && self.careful.load(Ordering::SeqCst) && objects.contains_key(&key) {
            return reply(StatusCode::PRECONDITION_FAILED, "<Error><Code>PreconditionFailed</Code></Error>");
        }
        objects.insert(key, body);
        reply(StatusCode::OK, "")
    }

    fn get(&self, key: &str, range: Option<&str>) -> Response<Body> {
        let Some(bytes) = self.objects.lock().get(key).cloned() else {
            return reply(StatusCode::NOT_FOUND, "<Error><Code>NoSuchKey</Code></Error>");
        };
        let Some((from, to)) = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
            return reply(StatusCode::OK, bytes);
        };
        let number = |text: &str| text.parse::<usize>().ok();
        let (from, to) = match (number(from), number(to)) {
            (Some(from), to) => (from, to.map_or(bytes.len(), |to| to + 1).min(bytes.len())),
            (None, last) => (bytes.len().saturating_sub(last.unwrap_or(0)), bytes.len()),
        };
        let mut reply = reply(StatusCode::PARTIAL_CONTENT, bytes.slice(from..to));
        let range = format!("bytes {from}-{}/{}", to - 1, bytes.len()).parse().expect("should be a header's value");
        reply.headers_mut().insert(header::CONTENT_RANGE, range);
        reply
    }

    fn list(&self, query: &str) -> Response<Body> {
        let query: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let text = |name: &str| query.get(name).map_or("", String::as_str);
        let (prefix, after) = (text("prefix"), text("start-after"));
        let objects = self.objects.lock();
        let listed = objects.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
        let contents = listed.map(|(key, bytes)| {
            let size = bytes.len();
            format!(
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"1\"</ETag>\
                 <Size>{size}</Size></Contents>"
            )
        });
        let contents: String = contents.collect();
        let rest = "<IsTruncated>false</IsTruncated>";
        reply(StatusCode::OK, format!("<ListBucketResult><Prefix>{prefix}</Prefix>{rest}{contents}</ListBucketResult>"))
    }

    fn delete(&self, body: &str) -> Response<Body> {
        let mut objects = self.objects.lock();
        let keys = body.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>")).map(|(key, _)| key);
        let deleted = keys.map(|key| {
            objects.remove(key);
            format!("<Deleted><Key>{key}</Key></Deleted>")
        });
        let deleted: String = deleted.collect();
        reply(StatusCode::OK, format!("<DeleteResult>{deleted}</DeleteResult>"))
    }
}
