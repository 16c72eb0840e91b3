//! From a lake's URL to an object store: `file://`, `s3://`, and `memory://` for tests.
//!
//! One client per lake, shared by all its tables. Its own retries are few: a commit settles its outcome itself, and a
//! flush that failed is scheduled again with back-off, so stacked retries would only hide a failing store.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use url::Url;

use super::deadline::Deadline;
use super::durable::{Barrier, Disk, Durable, Fsync, create_directory};
use super::{Error, Options};

const CLIENT_RETRIES: usize = 2;

/// A lake's store, rooted where URLs of its scheme are rooted: at `/`, or at the bucket.
#[derive(Debug, Clone)]
pub(super) struct Stores {
    /// The lake; ends with a slash.
    pub(super) url: Url,
    /// The lake's path in `store`.
    pub(super) prefix: Path,
    pub(super) store: Arc<dyn ObjectStore>,
    /// Present on a local lake.
    pub(super) durable: Option<Arc<Durable>>,
}

impl Stores {
    pub(super) fn open(options: &Options, data_dir: &FilePath) -> Result<Self, Error> {
        let Some(text) = &options.url else {
            return Self::local(&data_dir.join("lake"), Fsync, options.call_timeout);
        };
        let unusable = |reason| Error::Url { url: text.clone(), reason };
        let url = Url::parse(text).map_err(|_| unusable("it is not a URL"))?;
        match url.scheme() {
            "file" => {
                let path = url.to_file_path().map_err(|()| unusable("it is not a path on this machine"))?;
                Self::local(&path, Fsync, options.call_timeout)
            }
            "s3" if url.host_str().is_none_or(str::is_empty) => Err(unusable("it names no bucket")),
            "s3" => {
                let store = s3(&url, &options.storage, options.call_timeout)?;
                Self::new(url, Arc::new(store), options.call_timeout)
            }
            "memory" => Self::new(url, Arc::new(InMemory::new()), options.call_timeout),
            _ => Err(unusable("its scheme is none of file, s3 and memory")),
        }
    }

    pub(super) fn new(mut url: Url, store: Arc<dyn ObjectStore>, call_timeout: Duration) -> Result<Self, Error> {
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        let prefix = Path::from_url_path(url.path())
            .map_err(|_| Error::Url { url: url.to_string(), reason: "its path is not one of an object store" })?;
        let store: Arc<dyn ObjectStore> = Arc::new(Deadline::new(store, call_timeout));
        Ok(Self { url, prefix, store, durable: None })
    }

    pub(super) fn local(path: &FilePath, barrier: impl Barrier, call_timeout: Duration) -> Result<Self, Error> {
        let failed = |source| Error::Directory { path: path.to_owned(), source };
        create_directory(path, &barrier).map_err(failed)?;
        // Links are followed once, here: the durable store compares paths with the root.
        let root = path.canonicalize().map_err(failed)?;
        let url = Url::from_directory_path(&root)
            .map_err(|()| Error::Url { url: root.display().to_string(), reason: "it is not an absolute path" })?;
        // delta-rs decodes paths once too often: it would look for the log in another directory.
        if url.path().contains("%25") {
            return Err(Error::Url { url: url.to_string(), reason: "its path has a percent sign" });
        }
        let durable = Arc::new(Durable::new(Arc::new(Disk::new(root, barrier))));
        let store: Arc<dyn ObjectStore> = Arc::clone(&durable) as _;
        Ok(Self { durable: Some(durable), ..Self::new(url, store, call_timeout)? })
    }
}

fn s3(
    url: &Url,
    settings: &BTreeMap<String, String>,
    call_timeout: Duration,
) -> Result<object_store::aws::AmazonS3, Error> {
    let mut builder = AmazonS3Builder::from_env()
        .with_url(url.as_str())
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), format!("{} ms", call_timeout.as_millis()))
        .with_retry(RetryConfig { max_retries: CLIENT_RETRIES, retry_timeout: call_timeout, ..RetryConfig::default() });
    let plain = |(key, value): (&String, &String)| key.contains("endpoint") && value.starts_with("http://");
    if settings.iter().any(plain) {
        builder = builder.with_allow_http(true);
    }
    for (key, value) in settings {
        let key: AmazonS3ConfigKey = key.to_ascii_lowercase().parse().map_err(Error::Settings)?;
        builder = builder.with_config(key, value);
    }
    builder.build().map_err(Error::Settings)
}
