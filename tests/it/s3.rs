//! A lake behind an object store: moto, which speaks S3 and honours create-only PUTs.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::kit::{self, Launch, NDJSON, Server, python};

pub const KEY_ID: &str = "AKIATESTKEYID";
pub const SECRET: &str = "very/secret+value";
pub const BUCKET: &str = "telemetry";

/// An object store; killed when dropped.
pub struct Store {
    child: Child,
    port: u16,
}

impl Drop for Store {
    fn drop(&mut self) {
        // Both fail only for a process that is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("should find a free port");
    listener.local_addr().expect("should have an address").port()
}

impl Store {
    /// Starts it on a port and makes the bucket.
    pub async fn start(program: &str, port: u16) -> Self {
        let mut command = Command::new(program);
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut store = Self { child: command.spawn().expect("should start the store"), port };
        let http = kit::server::client();
        kit::until("the bucket", async || {
            let ended = store.child.try_wait().expect("should ask for the child's state");
            assert!(ended.is_none(), "the store ended: {ended:?}");
            let made = http.put(format!("{}/{BUCKET}", store.endpoint())).send().await;
            made.ok().filter(|reply| reply.status().is_success()).map(drop)
        })
        .await;
        store
    }

    pub fn endpoint(&self) -> String {
        endpoint(self.port)
    }

    /// The keys that are there.
    pub async fn keys(&self) -> Vec<String> {
        let listed = kit::server::client().get(format!("{}/{BUCKET}?list-type=2", self.endpoint())).send().await;
        let text = listed.expect("should list").text().await.expect("should be text");
        let keys = text.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>"));
        keys.map(|(key, _)| key.to_owned()).collect()
    }
}

fn endpoint(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn launch(dir: &std::path::Path, port: u16) -> Launch {
    Launch::on(dir)
        .set("lake.url", &format!("s3://{BUCKET}/some/lake"))
        .set("lake.storage.endpoint", &endpoint(port))
        .set("lake.storage.access_key_id", KEY_ID)
        .set("lake.storage.region", "eu-central-1")
        // From the environment, as it would come from a vault.
        .env("PENSTOCK_LAKE__STORAGE__SECRET_ACCESS_KEY", SECRET)
        .env("PENSTOCK_LOG", "debug,h2=off")
}

async fn post(server: &Server, from: i64, to: i64) {
    let row = |id: i64| json!({ "ts": format!("2026-05-0{}T10:00:00Z", 1 + id % 3), "id": id, "host": format!("h{}", id % 5) });
    server.append("metrics.cpu", (from..to).map(row)).await;
}

const READ: &str = r#"
import json, sys
import deltalake, pyarrow.compute as pc
rows = deltalake.DeltaTable(sys.argv[1], storage_options=json.loads(sys.argv[2])).to_pyarrow_table()
dates = rows.group_by("date").aggregate([("id", "count")]).to_pylist()
print(json.dumps({"count": rows.num_rows, "distinct": len(pc.unique(rows["id"])), "ids": pc.sum(rows["id"]).as_py(),
                  "dates": {str(row["date"]): row["id_count"] for row in dates}}))
"#;

/// Counts and sums as Python reads them from the object store.
async fn read(program: &str, store: &Store) -> serde_json::Value {
    let options = json!({
        "AWS_ENDPOINT_URL": store.endpoint(), "AWS_ALLOW_HTTP": "true", "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET,
    });
    python::run(program, READ, &[&format!("s3://{BUCKET}/some/lake/metrics/cpu"), &options.to_string()], &[]).await
}

fn keeps_secrets(log: &str) {
    assert!(!log.contains(SECRET), "the log tells the secret");
    // A signature names the key that made it; neither belongs into a log.
    assert!(!log.contains(KEY_ID), "the log tells the key's id");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_object_store_are_text_whatever_they_look_like() {
    let dir = kit::directory();
    let file = dir.path().join("penstock.toml");
    std::fs::write(&file, "[lake.storage]\nallow_http = true\n").expect("should write the file");
    let launch = Launch::on(dir.path()).set("lake.url", "s3://bucket/lake").set("lake.storage.region", "nowhere");
    launch.clone().option("--config", &file.display().to_string()).start().await;
    launch
        .set("lake.storage.allow_http", "true")
        .set("lake.storage.access_key_id", "0042")
        .env("PENSTOCK_LAKE__STORAGE__SECRET_ACCESS_KEY", "1e5")
        .start()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_go_to_an_object_store_once_across_a_crash() {
    let Some(program) = python::with(&["deltalake", "pyarrow", "moto", "flask"]) else { return };
    let store = Store::start(&program, free_port()).await;
    let dir = kit::directory();
    let launch = launch(dir.path(), store.port);
    let mut server = launch.start().await;
    post(&server, 0, 300).await;
    server.flush().await;
    post(&server, 300, 500).await;
    let counted = server.row("select count(*) as n, sum(id) as ids from metrics.cpu").await;
    assert_eq!(counted, json!({ "n": 500, "ids": 124_750 }));
    assert!(!dir.path().join("lake").exists(), "nothing of the lake is local");
    server.process.kill();
    keeps_secrets(&server.process.log());

    let server = launch.start().await;
    assert_eq!(server.count("metrics.cpu").await, 500);
    post(&server, 500, 600).await;
    server.flush().await;
    let shown = server.table("metrics.cpu").await;
    assert_eq!((&shown["delta_rows"], &shown["unflushed_rows"]), (&json!(600), &json!(0)), "{shown}");
    assert_eq!(shown["location"], format!("s3://{BUCKET}/some/lake/metrics/cpu/"));
    let status = server.status().await.to_string();
    assert!(!status.contains(SECRET) && !status.contains(KEY_ID), "{status}");
    keeps_secrets(&server.stop().await);

    let found = read(&program, &store).await;
    let dates = json!({ "2026-05-01": 200, "2026-05-02": 200, "2026-05-03": 200 });
    assert_eq!(found, json!({ "count": 600, "distinct": 600, "ids": 179_700, "dates": dates }));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_object_store_ends_without_a_restart() {
    let Some(program) = python::with(&["deltalake", "pyarrow", "moto", "flask"]) else { return };
    let port = free_port();
    let dir = kit::directory();
    let settings = [
        ("admission.max_unflushed", "64KiB"),
        ("admission.table_share", "1.0"),
        ("admission.namespace_share", "1.0"),
        ("flush.max_age", "200ms"),
        ("lake.call_timeout", "2s"),
    ];
    let server = launch(dir.path(), port).set_all(&settings).start().await;
    let mut acked = 0;
    loop {
        let rows =
            (acked..acked + 10).map(|id| json!({ "ts": "2026-05-01T10:00:00Z", "id": id, "pad": "x".repeat(500) }));
        let reply = server.post("metrics.cpu", NDJSON, kit::ndjson(rows)).await;
        if reply.status == 503 {
            assert!(reply.header("retry-after").is_some(), "{}", reply.text());
            break;
        }
        reply.ok();
        acked += 10;
        assert!(acked < 1_000, "nothing was refused");
    }
    kit::until("the reason in the status", async || {
        server.status().await["tables"][0]["last_error"].as_str().map(drop)
    })
    .await;

    let store = Store::start(&program, port).await;
    kit::until("everything in the lake", async || {
        (server.status().await["store"]["unflushed_rows"] == 0).then_some(())
    })
    .await;
    let row = json!({ "ts": "2026-05-02T10:00:00Z", "id": acked, "pad": "" });
    tokio::time::timeout(Duration::from_secs(10), server.append("metrics.cpu", [row])).await.expect("should have room");
    server.flush().await;
    assert_eq!(server.count("metrics.cpu").await, u64::try_from(acked + 1).expect("should fit"));
    keeps_secrets(&server.stop().await);
    let found = read(&program, &store).await;
    assert_eq!((&found["count"], &found["distinct"]), (&json!(acked + 1), &json!(acked + 1)));
}
