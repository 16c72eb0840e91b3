//! From a lake's URL to an object store: `file://`, `s3://`, `az://` (also `abfss://`), `gs://`, and `memory://` for tests.
//!
//! - this file: which store a URL means, and a local one;
//! - [`cloud`]: the clients of the object stores.
//!
//! One client per lake, shared by all its tables. Nothing is registered with delta-rs: it gets this store with each table, and
//! DataFusion finds it by the URL's scheme and host, which are the same for all tables of a lake.
//!
//! Secrets belong into the settings or the environment. A URL is shown in logs, in the status and to every reader of a table's
//! location, so one that carries any is refused, and not repeated in the refusal.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use url::Url;

use super::deadline::Deadline;
use super::durable::{Barrier, Disk, Durable, Fsync, create_directory};
use super::{Error, Options};

mod cloud;

use cloud::Service;

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
        let url = Url::parse(text).map_err(|_| Error::Url { url: text.clone(), reason: "it is not a URL" })?;
        // The user of an abfss URL is the container.
        let user = !url.username().is_empty() && url.scheme() != "abfss";
        let unusable = |reason| Error::Url { url: without_secrets(&url), reason };
        if user || url.password().is_some() {
            return Err(unusable("it carries credentials; they belong into [lake.storage] or the environment"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(unusable("it has a query; a token belongs into [lake.storage] or the environment"));
        }
        match url.scheme() {
            "file" => {
                let path = url.to_file_path().map_err(|()| unusable("it is not a path on this machine"))?;
                Self::local(&path, Fsync, options.call_timeout)
            }
            "memory" => Self::new(url, Arc::new(InMemory::new()), options.call_timeout),
            scheme => {
                let unknown = "its scheme is none of file, s3, az, abfss, gs and memory";
                let service = Service::of(scheme).ok_or_else(|| unusable(unknown))?;
                if url.host_str().is_none_or(str::is_empty) {
                    return Err(unusable("it names no bucket"));
                }
                let store = service.client(&url, &options.storage, options.call_timeout)?;
                Self::new(url, store, options.call_timeout)
            }
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

    /// The same store, as a lake in a directory of this one.
    pub(super) fn below(&self, directory: &str) -> Self {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{directory}/", url.path()));
        Self { url, prefix: self.prefix.clone().join(directory), ..self.clone() }
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

/// What of a URL may be shown.
fn without_secrets(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    format!("{}://{host}{}", url.scheme(), url.path())
}
