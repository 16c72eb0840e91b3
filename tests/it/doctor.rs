//! A store is looked at before anything is entrusted to it: `penstock doctor` from outside, and the server by itself at its start. One
//! that ignores create-only PUTs gets nothing.

use serde_json::{Value, json};

use crate::kit::careless::Careless;
use crate::kit::command::{Ran, penstock};
use crate::kit::{self, Launch, NDJSON, python};
use crate::s3;

/// Settings of a store on this machine.
fn of_endpoint(endpoint: &str) -> Vec<String> {
    let settings = [
        ("endpoint", endpoint),
        ("region", "us-east-1"),
        ("access_key_id", s3::KEY_ID),
        ("secret_access_key", s3::SECRET),
    ];
    settings.iter().flat_map(|(key, value)| ["--set".to_owned(), format!("lake.storage.{key}={value}")]).collect()
}

async fn doctor(lake: &str, more: &[String]) -> Ran {
    let mut arguments = vec!["doctor", "--lake", lake];
    arguments.extend(more.iter().map(String::as_str));
    penstock(&arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_fit_and_left_as_it_was() {
    let dir = kit::directory();
    let lake = url::Url::from_directory_path(dir.path()).expect("should be a URL");
    let said = doctor(lake.as_str(), &[]).await.ok();
    assert!(said.contains("race for one key") && said.contains("2000 rows in version 2"), "{said}");
    assert!(said.contains("the lake is fit to be flushed to"), "{said}");
    let found: Value = serde_json::from_str(&doctor(lake.as_str(), &["--json".to_owned()]).await.ok()).expect("JSON");
    let steps = found["steps"].as_array().expect("should have steps");
    assert!(found["ok"] == true && steps.len() == 7, "{found}");
    assert!(steps.iter().all(|step| step["millis"].as_f64() > Some(0.0) && step["ok"] == true), "{found}");
    assert_eq!(kit::files(dir.path()), []);
    assert_eq!(std::fs::read_dir(dir.path()).expect("should list").count(), 0, "no empty directory either");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_lake_is_refused_with_what_to_do() {
    let dir = kit::directory();
    let stone = dir.path().join("stone");
    std::fs::write(&stone, "in the way").expect("should write");
    let lake = url::Url::from_file_path(&stone).expect("should be a URL");
    for (lake, word, help) in [
        (lake.as_str(), "directory", "has to be writable"),
        ("memory:///lake", "nothing to examine", "lake.url is"),
        ("ftp://host/lake", "none of file, s3", "lake.url is"),
        ("s3://id:hunter2@bucket/lake", "carries credentials", "lake.url is"),
        ("az://container/lake?sig=hunter2", "has a query", "lake.url is"),
    ] {
        let said = doctor(lake, &[]).await.failed();
        assert!(said.contains(word) && said.contains(help) && !said.contains("hunter2"), "{lake}: {said}");
    }
    let said = doctor("s3://bucket/lake", &["--set".to_owned(), "lake.storage.regoin=x".to_owned()]).await.failed();
    assert!(said.contains("regoin") && said.contains("lake.storage"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_s3_server_is_fit_and_a_wrong_bucket_is_named() {
    let Some(program) = python::with(&["moto", "flask"]) else { return };
    let store = s3::Store::start(&program, s3::free_port()).await;
    let settings = of_endpoint(&store.endpoint());
    let said = doctor(&format!("s3://{}/some/lake", s3::BUCKET), &settings).await.ok();
    assert!(said.contains("the lake is fit"), "{said}");
    assert_eq!(store.keys().await, Vec::<String>::new());
    let ran = doctor("s3://nobodys/lake", &settings).await;
    assert!(ran.stdout.contains("FAILED create-only PUT"), "{}", ran.stdout);
    let said = ran.failed();
    assert!(said.contains("the bucket or container has to exist") && !said.contains(s3::SECRET), "{said}");
    drop(store);
    let mut nobody = of_endpoint("http://127.0.0.1:1");
    nobody.extend(["--set".to_owned(), "lake.call_timeout=2s".to_owned()]);
    let said = doctor("s3://telemetry/lake", &nobody).await.failed();
    assert!(said.contains("is the endpoint right"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_ignores_create_only_puts_is_found_out() {
    let store = Careless::start().await;
    let settings = of_endpoint(&store.endpoint);
    let ran = doctor("s3://bucket/lake", &settings).await;
    assert!(ran.stdout.contains("FAILED create-only PUT") && !ran.stdout.contains("race"), "{}", ran.stdout);
    let said = ran.failed();
    assert!(said.contains("ignores `If-None-Match: *`") && said.contains("help: use a store"), "{said}");
    assert_eq!(store.keys(), Vec::<String>::new(), "it should clean up all the same");
    store.mend();
    doctor("s3://bucket/lake", &settings).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_takes_rows_and_flushes_nothing_to_a_store_that_is_not_fit() {
    let store = Careless::start().await;
    let dir = kit::directory();
    let server = Launch::on(dir.path())
        .set_all(&[("lake.url", "s3://bucket/lake"), ("flush.max_age", "100ms"), ("flush.min_age", "50ms")])
        .set("lake.storage.endpoint", &store.endpoint)
        .set_all(&[("lake.storage.access_key_id", "id"), ("lake.storage.secret_access_key", "key")])
        .start()
        .await;
    let rows = (0..20).map(|id| json!({ "ts": "2026-05-01T10:00:00Z", "id": id }));
    server.post("metrics.cpu", NDJSON, kit::ndjson(rows)).await.ok();
    let problem = "ignores `If-None-Match: *`";
    let status = kit::until("the reason in the status", async || {
        let status = server.status().await;
        let said = |value: &Value| value.as_str().is_some_and(|text| text.contains(problem));
        (said(&status["lake_problem"]) && said(&status["tables"][0]["last_error"])).then_some(status)
    })
    .await;
    assert_eq!(status["ready"], true, "what the lake does is no reason to take the node out");
    assert_eq!(server.get("/readyz").await.status, 200);
    assert_eq!(server.count("metrics.cpu").await, 20);
    let said = penstock(&["status", "--url", &server.url]).await.ok();
    assert!(said.contains("NOTHING IS FLUSHED"), "{said}");
    let left: Vec<String> = store.keys().into_iter().filter(|key| !key.contains("penstock-probe-")).collect();
    assert_eq!(left, Vec::<String>::new(), "nothing should be uploaded");

    store.mend();
    kit::until("everything in the lake, without a restart", async || {
        (server.status().await["store"]["unflushed_rows"] == 0).then_some(())
    })
    .await;
    assert_eq!(server.status().await["lake_problem"], Value::Null);
    assert!(store.keys().contains(&"lake/metrics/cpu/_delta_log/00000000000000000001.json".to_owned()));
    let log = server.stop().await;
    assert!(log.contains("penstock doctor") && log.contains(problem), "{log}");
    assert!(log.contains("honours create-only PUTs"), "{log}");
}
