//! The clients of the object stores: settings in the configuration win over the environment, and ours for retries and deadlines
//! over the crate's.
//!
//! The client's own retries are few: a commit settles its outcome itself, and a flush that failed is scheduled again with
//! back-off, so stacked retries would only hide a failing store.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use url::Url;

use crate::lake::Error;

const CLIENT_RETRIES: usize = 2;
/// The client's own limit counts until a body is read to its end, and who opens a table asks for many and reads them one by one: it
/// is only a backstop, in call time-outs. Each answer and each piece of a body has its deadline elsewhere (`lake::deadline`).
const CLIENT_PATIENCE: u32 = 10;

type Settings = BTreeMap<String, String>;

/// Who keeps the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// Amazon S3 and what speaks like it: `s3://bucket/path`.
    S3,
    /// Azure Blob Storage: `az://container/path`, or `abfss://container@account.dfs.core.windows.net/path`.
    Azure,
    /// Google Cloud Storage: `gs://bucket/path`.
    Google,
}

impl Service {
    /// By the scheme of a lake's URL.
    pub(super) fn of(scheme: &str) -> Option<Self> {
        match scheme {
            "s3" => Some(Self::S3),
            "az" | "abfss" => Some(Self::Azure),
            "gs" => Some(Self::Google),
            _ => None,
        }
    }

    /// A client for the bucket that the URL names. Makes no call.
    pub(super) fn client(
        self,
        url: &Url,
        settings: &Settings,
        call_timeout: Duration,
    ) -> Result<Arc<dyn ObjectStore>, Error> {
        let limit = format!("{} ms", call_timeout.saturating_mul(CLIENT_PATIENCE).as_millis());
        let retry = RetryConfig { max_retries: CLIENT_RETRIES, retry_timeout: call_timeout, ..RetryConfig::default() };
        match self {
            Self::S3 => s3(url, settings, limit, retry),
            Self::Azure => azure(url, settings, limit, retry),
            Self::Google => google(url, settings, limit, retry),
        }
    }
}

fn s3(url: &Url, settings: &Settings, limit: String, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>, Error> {
    let mut builder = AmazonS3Builder::from_env()
        .with_url(url.as_str())
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), limit)
        .with_retry(retry);
    if has_plain_endpoint(settings) {
        builder = builder.with_allow_http(true);
    }
    for (key, value) in keys(settings)? {
        builder = builder.with_config(key, value);
    }
    Ok(Arc::new(builder.build().map_err(Error::Settings)?))
}

fn azure(url: &Url, settings: &Settings, limit: String, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>, Error> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_url(url.as_str())
        .with_config(AzureConfigKey::Client(ClientConfigKey::Timeout), limit)
        .with_retry(retry);
    if has_plain_endpoint(settings) {
        builder = builder.with_allow_http(true);
    }
    for (key, value) in keys(settings)? {
        builder = builder.with_config(key, value);
    }
    Ok(Arc::new(builder.build().map_err(Error::Settings)?))
}

fn google(url: &Url, settings: &Settings, limit: String, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>, Error> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_url(url.as_str())
        .with_config(GoogleConfigKey::Client(ClientConfigKey::Timeout), limit)
        .with_retry(retry);
    for (key, value) in keys(settings)? {
        builder = builder.with_config(key, value);
    }
    Ok(Arc::new(builder.build().map_err(Error::Settings)?))
}

/// An endpoint without TLS was asked for by name: the client need not be told twice.
fn has_plain_endpoint(settings: &Settings) -> bool {
    settings.iter().any(|(key, value)| key.to_ascii_lowercase().contains("endpoint") && value.starts_with("http://"))
}

/// The settings as a client knows them.
fn keys<K: FromStr<Err = object_store::Error>>(settings: &Settings) -> Result<Vec<(K, &String)>, Error> {
    let known = |key: &str| key.to_ascii_lowercase().parse().map_err(Error::Settings);
    settings.iter().map(|(key, value)| Ok((known(key)?, value))).collect()
}
