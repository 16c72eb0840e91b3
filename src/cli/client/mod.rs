//! The HTTP API as typed calls.
//!
//! - `reply`: what goes over the wire, as types;
//! - `stream`: a query's result, batch by batch;
//! - this file: one method for each call, and errors that say what to do.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::error::root_cause;
use crate::engine::Decision;
use crate::engine::letters::{Letter, Outcome};
use crate::engine::status::Checkpointed;
use crate::schema::{TableName, TableSpec};

pub use crate::engine::explain::{Bind, Explanation, Finding, words};
pub use crate::engine::tuning::{Patch, Source, Tuned, Tuning};

pub use crate::engine::status::{
    Basis, Checkpoint, Flush, Recovery, Shard as ShardStatus, Status, Store, Table as TableStatus, Usage,
};

mod reply;
mod stream;
#[cfg(test)]
mod tests;

pub use reply::{Appended, CreateTable, FlushedTable, LettersQuery, Standing, TableReply};
pub use stream::SqlStream;

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for the answer to a call that asks for no work of unknown length.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for a checkpoint: everything that is unflushed, onto the slowest disk.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(600);
/// Largest JSON answer that is read.
const MAX_REPLY_BYTES: usize = 64 << 20;
/// Shortest pause before a refused post is sent again, whatever the server asks for.
const MIN_RETRY_AFTER: Duration = Duration::from_millis(10);
/// Longest pause a server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Media type of newline-delimited JSON.
pub const NDJSON: &str = "application/x-ndjson";
/// Media type of an Arrow IPC stream.
pub const ARROW_STREAM: &str = "application/vnd.apache.arrow.stream";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is not one we can speak to.
    #[error("{url:?} is not the URL of a server: {reason}")]
    Url {
        /// As given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The HTTP client could not be made.
    #[error("could not set up the HTTP client: {0}")]
    SetUp(String),
    /// Nobody listens there.
    #[error("no server answers at {url} ({reason})")]
    Unreachable {
        /// Where we asked.
        url: Url,
        /// What the system said.
        reason: String,
    },
    /// Connected, but no answer in time.
    #[error("the server at {url} did not answer in time")]
    Timeout {
        /// Where we asked.
        url: Url,
    },
    /// The connection ended in the middle of a call.
    #[error("the connection to {url} broke: {reason}")]
    Broken {
        /// Where we asked.
        url: Url,
        /// What the system said.
        reason: String,
    },
    /// The server said no.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The server's short code, `unknown_table` for example.
        code: String,
        /// For people.
        message: String,
        /// What the server advises.
        help: Option<String>,
        /// How long the server asks us to wait.
        retry_after: Option<Duration>,
    },
    /// The answer is not what this version expects.
    #[error("the server at {url} sent an answer this penstock does not understand: {reason}")]
    Reply {
        /// Where we asked.
        url: Url,
        /// Where it stopped making sense.
        reason: String,
    },
}

impl Error {
    /// What to do next.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Url { .. } => Some(format!("give the server as for example {}", super::DEFAULT_URL)),
            Self::Unreachable { .. } => {
                Some("start one with `penstock serve`, or name it with --url or PENSTOCK_URL".to_owned())
            }
            Self::Timeout { .. } | Self::Broken { .. } => Some("look at the server's log, then try again".to_owned()),
            Self::Refused { help, retry_after, .. } => {
                let wait = retry_after.map(|t| format!("try again in {} s", t.as_secs()));
                help.clone().or(wait)
            }
            Self::Reply { .. } => Some("is it a penstock server, and of this version? See --version".to_owned()),
            Self::SetUp(_) => None,
        }
    }

    /// How long to wait before the same post may be sent again: only for a refusal that left nothing behind.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { status: 429 | 503 | 507, retry_after, .. } => {
                Some(retry_after.unwrap_or(Duration::from_secs(1)).max(MIN_RETRY_AFTER))
            }
            _ => None,
        }
    }
}

/// A server, over HTTP/1.1 with connections kept alive. Cheap to clone; clones share the connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
}

impl Client {
    /// Checks the URL; connects at the first call.
    pub fn new(url: &str) -> Result<Self, Error> {
        let bad = |reason: String| Error::Url { url: url.to_owned(), reason };
        let mut base = Url::parse(url).map_err(|e| bad(e.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(bad("it must start with http:// or https:// and name a host".to_owned()));
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("penstock/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT);
        if is_loopback(&base) {
            // A proxy from the environment cannot reach this machine's own ports.
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|e| Error::SetUp(root_cause(&e)))?;
        Ok(Self { http, base })
    }

    /// Where the server is.
    pub fn url(&self) -> &Url {
        &self.base
    }

    /// Whether the server says it is ready; the reason if not.
    pub async fn ready(&self) -> Result<(), Error> {
        self.send(self.get("readyz")?).await.map(drop)
    }

    /// All tables.
    pub async fn tables(&self) -> Result<Vec<TableSpec>, Error> {
        let reply: reply::Tables = self.call(self.get("v1/tables")?).await?;
        Ok(reply.tables)
    }

    /// One table.
    pub async fn table(&self, name: &TableName) -> Result<TableReply, Error> {
        self.call(self.get(&format!("v1/tables/{name}"))?).await
    }

    /// Creates a table; true if it was not there before.
    pub async fn create(&self, name: &TableName, table: &CreateTable) -> Result<(TableSpec, bool), Error> {
        let body = encode(table);
        let request = self.http.put(self.at(&format!("v1/tables/{name}"))?).header(CONTENT_TYPE, "application/json");
        let response = self.send(request.body(body).timeout(CALL_TIMEOUT)).await?;
        let created = response.status() == StatusCode::CREATED;
        Ok((self.decode(response).await?, created))
    }

    /// The server's metrics, as Prometheus reads them.
    pub async fn metrics(&self) -> Result<String, Error> {
        let response = self.send(self.get("metrics")?).await?;
        Ok(String::from_utf8_lossy(&self.read(response).await?).into_owned())
    }

    /// The server's state as it sent it.
    pub async fn status_json(&self) -> Result<serde_json::Value, Error> {
        self.call(self.get("v1/status")?).await
    }

    /// The server's state.
    pub async fn status(&self) -> Result<Status, Error> {
        self.call(self.get("v1/status")?).await
    }

    /// Flushes the tables named, or all of them, and waits for the Delta commits at most `timeout`.
    pub async fn flush(&self, tables: Option<&[TableName]>, timeout: Duration) -> Result<Vec<FlushedTable>, Error> {
        self.flush_deciding(tables, timeout, None).await
    }

    /// The same, and says what is to become of rows that are in doubt because the data directory is an older copy.
    pub async fn flush_deciding(
        &self,
        tables: Option<&[TableName]>,
        timeout: Duration,
        doubt: Option<Decision>,
    ) -> Result<Vec<FlushedTable>, Error> {
        let text = humantime::format_duration(timeout).to_string();
        let body = encode(&reply::FlushRequest { tables, timeout: &text, doubt });
        let request = self.http.post(self.at("v1/flush")?).header(CONTENT_TYPE, "application/json").body(body);
        // The server's own limit comes first, so that its answer and not our impatience is shown.
        let reply: reply::Flushed = self.call(request.timeout(timeout + CONNECT_TIMEOUT)).await?;
        Ok(reply.tables)
    }

    /// How far the rows of a receipt are, also as the server says it; with `wait` once they are in the table, or so much time is over.
    pub async fn receipt(&self, receipt: &str, wait: Option<Duration>) -> Result<(Standing, serde_json::Value), Error> {
        let mut url = self.at("v1/receipts/")?;
        // Whatever was typed is one segment of the path.
        let path = url.path_segments_mut().map(|mut path| {
            path.pop_if_empty().push(receipt);
        });
        path.map_err(|()| Error::Url { url: self.base.to_string(), reason: "it has no path".to_owned() })?;
        if let Some(wait) = wait {
            let time = humantime::format_duration(wait).to_string();
            url.query_pairs_mut().append_pair("wait", "committed").append_pair("timeout", &time);
        }
        let request = self.http.get(url.clone()).timeout(wait.unwrap_or_default() + CALL_TIMEOUT);
        let json: serde_json::Value = self.call(request).await?;
        let standing = Standing::deserialize(&json).map_err(|e| Error::Reply { url, reason: e.to_string() })?;
        Ok((standing, json))
    }

    /// Checkpoints every shard, and waits for it.
    pub async fn checkpoint(&self) -> Result<Vec<Checkpoint>, Error> {
        let request = self.http.post(self.at("v1/checkpoint")?).timeout(CHECKPOINT_TIMEOUT);
        let reply: Checkpointed = self.call(request).await?;
        Ok(reply.shards)
    }

    /// The settings that may change.
    pub async fn tuning(&self) -> Result<Tuning, Error> {
        self.call(self.get("v1/tuning")?).await
    }

    /// What binds now.
    pub async fn explain(&self) -> Result<Explanation, Error> {
        self.call(self.get("v1/tuning/explain")?).await
    }

    /// Changes settings.
    pub async fn tune(&self, patch: &Patch) -> Result<Tuned, Error> {
        let request = self.http.patch(self.at("v1/tuning")?).header(CONTENT_TYPE, "application/json");
        self.call(request.body(encode(patch)).timeout(CALL_TIMEOUT)).await
    }

    /// Posts rows. `body` is in the media type named.
    pub async fn append(&self, table: &TableName, media_type: &str, body: Bytes) -> Result<Appended, Error> {
        let request = self.http.post(self.at(&format!("v1/tables/{table}/rows"))?).header(CONTENT_TYPE, media_type);
        self.call(request.body(body).timeout(CALL_TIMEOUT)).await
    }

    /// Dead letters.
    pub async fn letters(&self, query: &LettersQuery<'_>) -> Result<Vec<Letter>, Error> {
        let reply: reply::Letters = self.call(self.get("v1/dead-letters")?.query(query)).await?;
        Ok(reply.letters)
    }

    /// One of them.
    pub async fn letter(&self, namespace: &str, id: &str) -> Result<Letter, Error> {
        let request = self.get(&format!("v1/dead-letters/{id}"))?;
        self.call(request.query(&LettersQuery { namespace: Some(namespace), ..LettersQuery::default() })).await
    }

    /// Replays them. It has no time limit of ours.
    pub async fn replay_letters(&self, query: &LettersQuery<'_>, ids: &[String]) -> Result<Outcome, Error> {
        let body = encode(&reply::ReplayRequest { query, ids });
        let request = self.http.post(self.at("v1/dead-letters/replay")?).header(CONTENT_TYPE, "application/json");
        self.call(request.body(body)).await
    }

    /// Runs a query. It has no time limit; drop the stream to end it.
    pub async fn sql(&self, statement: &str) -> Result<SqlStream, Error> {
        let request = self
            .http
            .post(self.at("v1/sql")?)
            .header(CONTENT_TYPE, "text/plain; charset=utf-8")
            .header(ACCEPT, ARROW_STREAM)
            .body(statement.to_owned());
        let response = self.send(request).await?;
        Ok(SqlStream::new(response, self.base.clone()))
    }

    /// The single number a query such as `select count(*) ...` answers.
    pub async fn sql_count(&self, statement: &str) -> Result<u64, Error> {
        self.sql(statement).await?.single_count().await
    }

    fn at(&self, path: &str) -> Result<Url, Error> {
        self.base.join(path).map_err(|e| Error::Url { url: self.base.to_string(), reason: e.to_string() })
    }

    fn get(&self, path: &str) -> Result<RequestBuilder, Error> {
        Ok(self.http.get(self.at(path)?).timeout(CALL_TIMEOUT))
    }

    async fn call<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Error> {
        let response = self.send(request).await?;
        self.decode(response).await
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = request.send().await.map_err(|e| transport(&self.base, &e))?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
    }

    async fn decode<T: DeserializeOwned>(&self, response: Response) -> Result<T, Error> {
        let body = self.read(response).await?;
        serde_json::from_slice(&body).map_err(|e| Error::Reply { url: self.base.clone(), reason: e.to_string() })
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| transport(&self.base, &e))? {
            if body.len() + chunk.len() > MAX_REPLY_BYTES {
                return Err(Error::Reply {
                    url: self.base.clone(),
                    reason: format!("more than {MAX_REPLY_BYTES} bytes"),
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Turns an error status into what the server says about it, or into what its status alone says.
    async fn refusal(&self, response: Response) -> Error {
        let status = response.status();
        let seconds = response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.trim().parse().ok());
        let retry_after = seconds.map(|s| Duration::from_secs(s).min(MAX_RETRY_AFTER));
        let body = match self.read(response).await {
            Ok(body) => body,
            Err(error) => return error,
        };
        let reply = serde_json::from_slice::<reply::Refusal>(&body).map(|r| r.error);
        let (code, message, help) = match reply {
            Ok(error) => (error.code, error.message, error.help.filter(|h| !h.is_empty())),
            Err(_) => {
                let text: String = String::from_utf8_lossy(&body).trim().chars().take(400).collect();
                let colon = if text.is_empty() { "" } else { ": " };
                (String::new(), format!("the server at {} answered {status}{colon}{text}", self.base), None)
            }
        };
        Error::Refused { status: status.as_u16(), code, message, help, retry_after }
    }
}

fn encode(body: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("should serialise: string keys only")
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

fn transport(url: &Url, error: &reqwest::Error) -> Error {
    let url = url.clone();
    let reason = root_cause(error);
    match error {
        e if e.is_connect() => Error::Unreachable { url, reason },
        e if e.is_timeout() => Error::Timeout { url },
        _ => Error::Broken { url, reason },
    }
}
