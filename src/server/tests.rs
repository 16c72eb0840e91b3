//! Over a real socket.

use std::time::Duration;

use reqwest::{Client, Response, StatusCode};
use serde_json::Value;

use super::*;
use crate::config::Config;
use crate::engine::Engine;

const NDJSON: &str = "application/x-ndjson";

struct Running {
    _dir: tempfile::TempDir,
    engine: Arc<Engine>,
    url: String,
    client: Client,
    stop: tokio::sync::oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<std::io::Result<()>>,
}

async fn start(change: impl FnOnce(&mut Config)) -> Running {
    let dir = tempfile::tempdir().expect("should make a directory");
    let mut config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
    config.store.shards = 1;
    config.store.segment = bytesize::ByteSize::mib(1);
    config.server.listen = ([127, 0, 0, 1], 0).into();
    change(&mut config);
    let server = bind(&config).await;
    let engine = Engine::start(config).await.expect("should start");
    server.gate().open(Arc::clone(&engine));
    let url = format!("http://{}", server.address().expect("should have an address"));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(async move { drop(stopped.await) }));
    Running { _dir: dir, engine, url, client: Client::new(), stop, serving }
}

async fn bind(config: &Config) -> Server {
    Server::bind(config.server.listen, config.server.max_connections, Arc::default()).await.expect("should listen")
}

async fn json(response: Response) -> Value {
    serde_json::from_slice(&response.bytes().await.expect("should be read")).expect("should be JSON")
}

impl Running {
    async fn post(&self, path: &str, content_type: &str, body: impl Into<reqwest::Body>) -> Response {
        let request = self.client.post(format!("{}{path}", self.url)).header("content-type", content_type);
        request.body(body).send().await.expect("should be answered")
    }

    async fn refused(&self, path: &str, content_type: &str, body: impl Into<reqwest::Body>) -> (u16, String) {
        let response = self.post(path, content_type, body).await;
        let status = response.status().as_u16();
        assert_eq!(status == 405, response.headers().contains_key("allow"), "{path}");
        let body = json(response).await;
        (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
    }

    fn in_flight(&self) -> u64 {
        self.engine.status().admission.in_flight_bytes
    }

    async fn end(self) {
        drop(self.client);
        self.stop.send(()).expect("should be running");
        self.serving.await.expect("should end").expect("should end well");
        self.engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_go_in_and_come_out() {
    let server = start(|_| {}).await;
    let reply = server.post("/v1/tables/cpu/rows", NDJSON, "{\"n\":1}\n{\"n\":2}").await;
    assert_eq!(reply.status(), StatusCode::OK);
    let reply = json(reply).await;
    assert_eq!((&reply["rows"], &reply["durability"]), (&Value::from(2), &Value::from("synced")));
    for sql in ["select sum(n) as s from cpu", "select sum(n) as s from \"default\".cpu"] {
        let reply = server.post("/v1/sql", "text/plain", sql).await;
        let reply = json(reply).await;
        assert_eq!(reply["rows"][0]["s"], 3);
    }
    let reply = server.post("/v1/flush", "application/json", "").await;
    assert_eq!(reply.status(), StatusCode::OK);
    let reply = json(reply).await;
    assert_eq!(reply["tables"][0]["rows_flushed"], 2);
    let ready = server.client.get(format!("{}/readyz", server.url)).send().await.expect("should be answered");
    assert_eq!(ready.status(), StatusCode::OK);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn good_rows_are_taken_and_bad_ones_are_told() {
    let server = start(|_| {}).await;
    let rows = "/v1/tables/cpu/rows";
    assert_eq!(server.post(rows, NDJSON, "{\"n\":1}").await.status(), StatusCode::OK);
    let body = "{\"n\":2}\n{\"n\":\"x\"}\n{\"n\":3}\n{";
    let reply = json(server.post(rows, NDJSON, body).await).await;
    assert_eq!((&reply["rows"], &reply["rejected"]), (&Value::from(2), &Value::from(2)), "{reply}");
    let told = |at: usize| (&reply["errors"][at]["row"], &reply["errors"][at]["code"], &reply["errors"][at]["column"]);
    assert_eq!(told(0), (&Value::from(2), &Value::from("type_mismatch"), &Value::from("n")));
    assert_eq!(told(1), (&Value::from(4), &Value::from("invalid_json"), &Value::Null));
    assert_eq!(reply["errors"][0]["value"], "\"x\"");
    let refused = server.post(&format!("{rows}?on_error=abort"), NDJSON, body).await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let refused = json(refused).await;
    assert_eq!((&refused["rows"], &refused["rejected"]), (&Value::from(0), &Value::from(2)), "{refused}");
    assert_eq!(refused["error"]["row"], 2);
    assert!(refused["error"]["message"].as_str().expect("should be text").contains("the other 2 were not taken"));
    let refused = server.post(rows, NDJSON, "{\"n\":true}\n[]\n").await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let refused = json(refused).await;
    assert_eq!((&refused["error"]["code"], &refused["errors"][1]["row"]), (&"type_mismatch".into(), &2.into()));
    let reply = json(server.post("/v1/sql", "text/plain", "select sum(n) as s, count(*) as c from cpu").await).await;
    assert_eq!((&reply["rows"][0]["s"], &reply["rows"][0]["c"]), (&Value::from(6), &Value::from(3)));
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_has_its_status_and_gives_its_room_back() {
    let server = start(|config| config.ingest.max_body = bytesize::ByteSize::mib(2)).await;
    let rows = "/v1/tables/cpu/rows";
    let large = || vec![b' '; 3 << 20];
    for (path, content_type, body, status, code) in [
        (rows, NDJSON, b"{".to_vec(), 422, "invalid_json"),
        (rows, "application/json", b"{".to_vec(), 400, "invalid_json"),
        ("/v1/tables/cpu/rows?on_error=maybe", NDJSON, b"{}".to_vec(), 400, "bad_parameter"),
        (rows, NDJSON, Vec::new(), 400, "empty_body"),
        (rows, "text/html", large(), 415, "unsupported_content_type"),
        (rows, NDJSON, large(), 413, "body_too_large"),
        ("/v1/tables/CPU/rows", NDJSON, large(), 400, "bad_table_name"),
        ("/v1/tables/cpu/rows?unit=s", NDJSON, b"{\"n\":1}".to_vec(), 400, "bad_parameter"),
        ("/v1/sql", "text/plain", b"select 1/0".to_vec(), 422, "bad_value"),
        ("/v1/sql", "text/plain", b"drop table cpu".to_vec(), 400, "bad_query"),
        ("/v1/sql", "text/plain", vec![b' '; 5 << 20], 413, "body_too_large"),
        ("/v1/flush", "application/json", b"{\"tables\":[\"nowhere\"]}".to_vec(), 404, "unknown_table"),
        ("/v1/nothing", NDJSON, b"{}".to_vec(), 404, "no_such_path"),
        ("/v1/status", NDJSON, b"{}".to_vec(), 405, "method_not_allowed"),
    ] {
        let len = body.len();
        assert_eq!(server.refused(path, content_type, body).await, (status, code.to_owned()), "{path} {len}");
        assert_eq!(server.in_flight(), 0, "{path} {code}");
    }
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_the_limit_posts_are_refused_for_a_while_and_then_taken() {
    let change = |config: &mut Config| {
        config.admission.max_unflushed = bytesize::ByteSize::kib(256);
        config.admission.max_in_flight = bytesize::ByteSize::mib(1);
        (config.admission.table_share, config.admission.namespace_share) = (1.0, 1.0);
    };
    let server = start(change).await;
    let body: String = (0..2000).map(|n| format!("{{\"n\":{n},\"text\":\"{n:040}\"}}\n")).collect();
    let mut refused = 0;
    let mut taken = 0;
    while refused == 0 || taken < 5 {
        let reply = server.post("/v1/tables/cpu/rows", NDJSON, body.clone()).await;
        if reply.status() == StatusCode::OK {
            taken += 1;
            continue;
        }
        assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(reply.headers().contains_key("retry-after"));
        refused += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.in_flight(), 0);
    server.post("/v1/flush", "application/json", "").await;
    let reply = json(server.post("/v1/sql", "text/plain", "select count(*) as n from cpu").await).await;
    assert_eq!(reply["rows"][0]["n"], taken * 2000);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_leaves_nothing_behind() {
    let server = start(|config| config.query.concurrency = 1).await;
    let endless = "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t";
    for _ in 0..3 {
        let asking = server.post("/v1/sql", "text/plain", endless);
        assert!(tokio::time::timeout(Duration::from_millis(200), asking).await.is_err());
    }
    let slow = reqwest::Body::wrap_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let posting = server.post("/v1/tables/cpu/rows", NDJSON, slow);
    assert!(tokio::time::timeout(Duration::from_millis(200), posting).await.is_err());
    let reply = tokio::time::timeout(Duration::from_secs(20), server.post("/v1/sql", "text/plain", "select 1")).await;
    assert_eq!(reply.expect("should have its turn").status(), StatusCode::OK);
    assert_eq!(server.in_flight(), 0);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_arrive_is_refused() {
    let server = start(|config| config.server.body_timeout = Duration::from_millis(200)).await;
    for path in ["/v1/tables/cpu/rows", "/v1/sql"] {
        let slow = reqwest::Body::wrap_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        assert_eq!(server.refused(path, NDJSON, slow).await, (408, "body_timeout".to_owned()));
    }
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_engine_is_there_requests_are_told_to_come_again_and_then_answered_on_the_same_connection() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let mut config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
    config.server.listen = ([127, 0, 0, 1], 0).into();
    // The client may begin a second connection before the first one is idle again; the server takes no third.
    config.server.max_connections = 2;
    let server = bind(&config).await;
    let (gate, address) = (server.gate(), server.address().expect("should have an address"));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(async move { drop(stopped.await) }));
    let client = Client::new();
    let url = |path: &str| format!("http://{address}{path}");
    let get = async |path: &str| client.get(url(path)).send().await.expect("should be answered");
    let healthy = get("/healthz").await;
    assert_eq!(healthy.status(), StatusCode::OK);
    healthy.bytes().await.expect("should be read");
    for path in ["/readyz", "/v1/status", "/v1/nothing", "/"] {
        let reply = get(path).await;
        assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(reply.headers()["retry-after"], "1", "{path}");
        assert_eq!(json(reply).await["error"]["code"], "starting", "{path}");
    }
    let rows = "{\"n\":1}\n".repeat(100_000);
    let reply = client.post(url("/v1/tables/cpu/rows")).header("content-type", NDJSON).body(rows).send().await;
    let reply = reply.expect("should be answered, however long the body is");
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(json(reply).await["error"]["code"], "starting");

    let engine = Engine::start(config).await.expect("should start");
    gate.open(Arc::clone(&engine));
    assert_eq!(get("/readyz").await.text().await.expect("should be read"), "ready\n");
    assert_eq!(json(get("/v1/status").await).await["ready"], true);
    assert_eq!(get("/v1/nothing").await.status(), StatusCode::NOT_FOUND);
    drop(client);
    stop.send(()).expect("should be running");
    serving.await.expect("should end").expect("should end well");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_moves_rows_out_of_the_log() {
    let server = start(|config| config.store.checkpoint_interval = Duration::from_secs(3600)).await;
    let reply = server.post("/v1/tables/cpu/rows", NDJSON, "{\"n\":1}\n{\"n\":2}").await;
    assert_eq!(reply.status(), StatusCode::OK);
    let before = server.engine.status().store;
    assert!(before.replay_bytes > 0 && before.shards[0].lane_files == 0, "{before:?}");
    let reply = server.post("/v1/checkpoint", "application/json", "").await;
    assert_eq!(reply.status(), StatusCode::OK);
    let reply = json(reply).await;
    let shard = &reply["shards"][0];
    assert_eq!((&shard["shard"], &shard["extents"]), (&Value::from(0), &Value::from(1)), "{reply}");
    assert!(shard["lane_bytes"].as_u64() > Some(0) && shard["millis"].is_u64(), "{reply}");
    let after = server.engine.status().store;
    assert_eq!((after.replay_bytes, after.shards[0].lane_files, after.shards[0].checkpoints), (0, 1, 1), "{after:?}");
    assert_eq!(after.shards[0].checkpoint_lsn, shard["checkpoint_lsn"].as_u64().expect("should be a number"));
    assert!(after.shards[0].lane_live_bytes > 0 && after.shards[0].postponed.is_none(), "{after:?}");
    let reply = json(server.post("/v1/sql", "text/plain", "select sum(n) as s from cpu").await).await;
    assert_eq!(reply["rows"][0]["s"], 3);
    server.end().await;
}
