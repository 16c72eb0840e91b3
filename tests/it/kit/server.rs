//! The binary's `serve` as a child process, and its HTTP API.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{NDJSON, PATIENCE, POLL};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_penstock");

/// Longest wait for one answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How a server is to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
    /// A program that becomes the server, with its arguments; usually none.
    through: Vec<String>,
}

impl Launch {
    /// On this data directory, on a free port of the loopback interface.
    pub fn on(data_dir: &Path) -> Self {
        Self {
            arguments: vec!["serve".into(), "--data-dir".into(), data_dir.into()],
            environment: Vec::new(),
            through: Vec::new(),
        }
        .option("--listen", "127.0.0.1:0")
    }

    /// With an option of `serve`; the last one wins.
    pub fn option(mut self, name: &str, value: &str) -> Self {
        if let Some(at) = self.arguments.iter().position(|a| a == name && name != "--set") {
            self.arguments[at + 1] = value.into();
        } else {
            self.arguments.extend([name.into(), value.into()]);
        }
        self
    }

    /// With one key of the configuration.
    pub fn set(self, key: &str, value: &str) -> Self {
        self.option("--set", &format!("{key}={value}"))
    }

    /// With several.
    pub fn set_all(self, settings: &[(&str, &str)]) -> Self {
        settings.iter().fold(self, |launch, (key, value)| launch.set(key, value))
    }

    /// Started by a program that takes a command line at its end and becomes it.
    pub fn through(mut self, words: &[&str]) -> Self {
        self.through = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// With an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it and waits for nothing.
    pub fn spawn(&self) -> Process {
        let scratch = super::directory();
        let log = File::create(scratch.path().join("log")).expect("should make the log file");
        let mut command = clean_command_through(&self.through);
        command.args(&self.arguments).arg("--port-file").arg(scratch.path().join("port"));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("should share the log file")).stderr(log);
        // A group of its own: a Ctrl-C at the terminal is for the tests, and they kill what they started.
        command.process_group(0);
        Process { child: command.spawn().expect("should start the program"), scratch }
    }

    /// Starts it and waits until it is ready.
    pub async fn start(&self) -> Server {
        let mut process = self.spawn();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(address) = process.address() {
                return Server { url: format!("http://{address}"), http: client(), process };
            }
            if let Some(status) = process.exited() {
                panic!("the server ended before it was ready ({status}):\n{}", process.log());
            }
            assert!(Instant::now() < deadline, "the server is not ready:\n{}", process.log());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Starts what has to refuse to start; gives what it said.
    pub async fn refused(&self) -> String {
        let mut process = self.spawn();
        let status = process.ended().await;
        let log = process.log();
        assert_eq!(status.code(), Some(1), "should exit with 1:\n{log}");
        assert!(process.address().is_none(), "should not have become ready:\n{log}");
        assert!(log.contains("error: "), "should say what is wrong:\n{log}");
        log
    }
}

/// The program without settings from the environment of whoever runs the tests.
pub fn clean_command() -> Command {
    clean_command_through(&[])
}

fn clean_command_through(words: &[String]) -> Command {
    let mut line = words.iter().map(String::as_str).chain([PROGRAM]);
    let mut command = Command::new(line.next().expect("should be a program"));
    command.args(line);
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if ["PENSTOCK_", "AWS_"].iter().any(|prefix| name_text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.env("NO_PROXY", "127.0.0.1,localhost");
    command
}

/// A child; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Holds the port file and the output.
    scratch: TempDir,
}

impl Process {
    /// Everything it has printed.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_path(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    /// Where it listens, once it is ready.
    pub fn address(&self) -> Option<String> {
        fs::read_to_string(self.scratch.path().join("port")).ok()
    }

    /// How it ended, if it has.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("should ask for the child's state")
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.exited() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end:\n{}", self.log());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, as a crash: nothing is written or sent any more when this returns.
    pub fn kill(&mut self) {
        self.child.kill().expect("should kill the child");
        self.child.wait().expect("should wait for the child");
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("should be a process id"), signal).expect("should send the signal");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    pub process: Process,
    pub url: String,
    http: reqwest::Client,
}

/// A client with connections of its own.
pub fn client() -> reqwest::Client {
    // Other crates of the tree turn TLS on, and it wants a provider even for plain HTTP.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(CALL_TIMEOUT).build().expect("should make a client")
}

impl Server {
    /// The path on this server.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// `host:port`.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// The client that this server's calls go through.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// A signal, a wait, and an exit code of 0; gives the output.
    pub async fn stop_by(mut self, signal: Signal) -> String {
        self.process.signal(signal);
        let status = self.process.ended().await;
        let log = self.process.log();
        assert!(status.success(), "should drain and exit with 0, not {status}:\n{log}");
        log
    }

    /// SIGTERM.
    pub async fn stop(self) -> String {
        self.stop_by(Signal::TERM).await
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Reply {
        Reply::of(self.http.get(self.at(path))).await
    }

    /// Posts a body with headers.
    pub async fn send(&self, path: &str, headers: &[(&str, &str)], body: impl Into<reqwest::Body>) -> Reply {
        Reply::of(self.http.post(self.at(path)).headers(header_map(headers)).body(body)).await
    }

    /// Posts rows of a format.
    pub async fn post(&self, table: &str, content_type: &str, body: impl Into<reqwest::Body>) -> Reply {
        self.send(&format!("/v1/tables/{table}/rows"), &[("content-type", content_type)], body).await
    }

    /// Posts rows as NDJSON, which has to work.
    pub async fn append(&self, table: &str, rows: impl IntoIterator<Item = Value>) -> Value {
        self.post(table, NDJSON, super::ndjson(rows)).await.ok()
    }

    /// Declares a table.
    pub async fn declare(&self, table: &str, definition: &Value) -> Reply {
        let request = self.http.put(self.at(&format!("/v1/tables/{table}")));
        Reply::of(request.header("content-type", super::JSON).body(definition.to_string())).await
    }

    /// A query's reply, whatever it is.
    pub async fn ask(&self, sql: &str) -> Reply {
        self.send("/v1/sql", &[("content-type", super::JSON)], json!({ "sql": sql }).to_string()).await
    }

    /// A query's rows.
    pub async fn sql(&self, sql: &str) -> Vec<Value> {
        let reply = self.ask(sql).await;
        let value = reply.ok();
        let rows = value["rows"].as_array().expect("should have rows").clone();
        assert_eq!(value["row_count"], rows.len(), "{sql}");
        rows
    }

    /// The one row of a query.
    pub async fn row(&self, sql: &str) -> Value {
        let mut rows = self.sql(sql).await;
        assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
        rows.remove(0)
    }

    /// Rows that SQL counts in a table.
    pub async fn count(&self, table: &str) -> u64 {
        self.row(&format!("select count(*) as n from {table}")).await["n"].as_u64().expect("should be a count")
    }

    /// Flushes every table.
    pub async fn flush(&self) -> Value {
        self.send("/v1/flush", &[("content-type", super::JSON)], json!({ "timeout": "30s" }).to_string()).await.ok()
    }

    /// The status.
    pub async fn status(&self) -> Value {
        self.get("/v1/status").await.ok()
    }

    /// One table, as the API shows it.
    pub async fn table(&self, name: &str) -> Value {
        self.get(&format!("/v1/tables/{name}")).await.ok()
    }
}

fn header_map(headers: &[(&str, &str)]) -> HeaderMap {
    let parse = |(name, value): &(&str, &str)| {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("should be a header's name");
        (name, HeaderValue::from_str(value).expect("should be a header's value"))
    };
    headers.iter().map(parse).collect()
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Reply {
    /// The answer to a request; panics if there is none.
    pub async fn of(request: reqwest::RequestBuilder) -> Self {
        Self::try_of(request).await.expect("should get an answer")
    }

    /// The answer to a request, if the connection holds.
    pub async fn try_of(request: reqwest::RequestBuilder) -> Result<Self, reqwest::Error> {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(Self { status, headers, body: response.bytes().await?.to_vec() })
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e} in {}", self.text()))
    }

    /// The JSON of a success.
    pub fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{}: {}", self.status, self.text());
        self.json()
    }

    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// The code of a refusal, which has to say what is wrong and what to do about it.
    pub fn refusal(&self) -> String {
        assert!((400..600).contains(&self.status), "{}: {}", self.status, self.text());
        let error = &self.json()["error"];
        let (code, message) = (error["code"].as_str().unwrap_or(""), error["message"].as_str().unwrap_or(""));
        assert!(
            !code.is_empty() && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
            "{}",
            self.text()
        );
        assert!(message.len() >= 10 && message.len() < 2_000, "{}", self.text());
        code.to_owned()
    }
}
