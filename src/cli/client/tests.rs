use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::{Client, CreateTable, Error, NDJSON};
use crate::cli::stub::Stub;
use crate::schema::TableName;

fn table(name: &str) -> TableName {
    name.parse().unwrap()
}

fn definition() -> CreateTable {
    let column = |name: &str, kind: &str, nullable| crate::schema::ColumnSpec {
        name: name.to_owned(),
        kind: kind.parse().unwrap(),
        nullable,
    };
    CreateTable {
        columns: vec![column("ts", "timestamp", false), column("tags", "map<string,string>", true)],
        event_time: Some("ts".to_owned()),
        event_time_unit: None,
        bucket: None,
        partition: true,
        sort: Vec::new(),
        bloom: Vec::new(),
        rules: crate::schema::spec::RulesPatch::default(),
    }
}

#[tokio::test]
async fn every_call_reads_what_the_api_promises() {
    let stub = Stub::start().await;
    let client = Client::new(&stub.url()).unwrap();
    client.ready().await.unwrap();
    let name = table("t");
    let (spec, created) = client.create(&name, &definition()).await.unwrap();
    assert!(created);
    assert_eq!(spec.name, name);
    let (_, created) = client.create(&name, &definition()).await.unwrap();
    assert!(!created);
    assert_eq!(client.tables().await.unwrap(), [spec]);
    let reply = client.append(&name, NDJSON, Bytes::from_static(b"{}\n{}\n{}\n")).await.unwrap();
    assert_eq!(reply.rows, 3);
    assert_eq!(client.sql_count("select count(*) from default.t").await.unwrap(), 3);
    assert_eq!(client.table(&name).await.unwrap().unflushed_rows, 3);
    assert_eq!(client.status().await.unwrap().store.unflushed_rows, 3);
    let shards = client.checkpoint().await.unwrap();
    assert_eq!((shards.len(), shards[0].lane_bytes, shards[0].millis), (1, 8192, 7));
    let flushed = client.flush(Some(&[name]), Duration::from_secs(90)).await.unwrap();
    assert_eq!(flushed[0].rows_flushed, 3);
    let asked = stub.shared.flushes.lock().pop().unwrap();
    assert_eq!(asked, serde_json::json!({"tables": ["default.t"], "timeout": "1m 30s"}));
}

/// The stub is such a server: its status says nothing of checkpoints.
#[tokio::test]
async fn a_server_that_is_older_than_a_figure_is_read() {
    let stub = Stub::start().await;
    let store = Client::new(&stub.url()).unwrap().status().await.unwrap().store;
    assert_eq!((store.replay_bytes, store.replay_estimate_seconds), (0, None));
    assert_eq!((store.shards[0].durable_lsn, store.shards[0].lane_files), (4096, 0));
    assert_eq!(store.recovery, crate::cli::client::Recovery::default());
}

#[tokio::test]
async fn a_refusal_carries_the_servers_words() {
    let stub = Stub::start().await;
    let client = Client::new(&stub.url()).unwrap();
    let error = client.table(&table("nosuch")).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no table default.nosuch");
    assert_eq!(error.help().as_deref(), Some("see `penstock tables list`"));
    assert!(matches!(&error, Error::Refused { status: 404, code, .. } if code == "unknown_table"));
    assert_eq!(error.retry_after(), None);
}

#[tokio::test]
async fn an_overloaded_server_says_when_to_come_back() {
    let stub = Stub::start().await;
    let client = Client::new(&stub.url()).unwrap();
    stub.shared.refuse.store(1, Ordering::Relaxed);
    let error = client.append(&table("t"), NDJSON, Bytes::new()).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_millis(10)));
}

#[tokio::test]
async fn nobody_there_is_said_with_what_to_do() {
    // Bound and dropped: the port is free.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = Client::new(&format!("http://{address}")).unwrap();
    let error = client.tables().await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("no server answers at http://{address}/")), "{error}");
    assert!(error.help().unwrap().contains("penstock serve"));
}

#[tokio::test]
async fn another_kind_of_server_is_recognised() {
    let router = axum::Router::new().fallback(async || "hello");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = Client::new(&url).unwrap();
    assert!(matches!(client.tables().await.unwrap_err(), Error::Reply { .. }));
    assert!(client.sql("select 1").await.unwrap().next().await.is_err());
}

#[tokio::test]
async fn a_result_that_was_cut_off_is_an_error() {
    let stub = Stub::start().await;
    let client = Client::new(&stub.url()).unwrap();
    let mut stream = client.sql("select cut").await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().num_rows(), 2);
    let error = stream.next().await.unwrap_err();
    assert!(matches!(error, Error::Reply { .. }), "{error}");
}

#[tokio::test]
async fn a_count_must_be_one_number() {
    let stub = Stub::start().await;
    let client = Client::new(&stub.url()).unwrap();
    assert!(client.sql_count("select something").await.is_err());
    assert!(client.sql_count("select none").await.is_err());
}

#[test]
fn urls_are_checked_before_anything_is_sent() {
    for bad in ["", "localhost:8750", "ftp://host/", "http://"] {
        let error = Client::new(bad).unwrap_err();
        assert!(matches!(error, Error::Url { .. }), "{bad}: {error}");
        assert!(error.help().is_some());
    }
    let client = Client::new("http://10.0.0.7:8750/penstock").unwrap();
    assert_eq!(client.at("v1/sql").unwrap().as_str(), "http://10.0.0.7:8750/penstock/v1/sql");
}
