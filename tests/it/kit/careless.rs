//! A tiny S3 server that may ignore `If-None-Match`, as some do, and may take its time with data files: PUT, GET, listing and bulk
//! deletion of one bucket, in memory, no signatures checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, Response, StatusCode, header};
use parking_lot::Mutex;

const MODIFIED: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

/// A server that runs for as long as the test's runtime.
#[derive(Debug, Clone)]
pub struct Careless {
    pub endpoint: String,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    objects: Mutex<BTreeMap<String, Bytes>>,
    careful: AtomicBool,
    /// What a PUT of a data file takes.
    upload_millis: AtomicU64,
}

impl Careless {
    /// One that ignores the header.
    pub async fn start() -> Self {
        let inner = Arc::new(Inner::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("should find a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("should have an address"));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&inner));
        tokio::spawn(async move { axum::serve(listener, router).await.expect("should serve") });
        Self { endpoint, inner }
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
    let body = to_bytes(body, usize::MAX).await.expect("should arrive");
    let path = parts.uri.path().trim_start_matches('/');
    let key = path.split_once('/').map_or("", |(_bucket, key)| key).to_owned();
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    if parts.method == Method::PUT && key.ends_with(".parquet") {
        tokio::time::sleep(Duration::from_millis(inner.upload_millis.load(Ordering::SeqCst))).await;
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
