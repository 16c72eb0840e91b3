use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::config::Config;
use crate::ingest::post::Post;
use crate::ingest::repeat::{self, Said};
use crate::ingest::{ContentEncoding, Format};

fn config(dir: &Path) -> Config {
    let mut config = Config { data_dir: dir.to_owned(), ..Config::default() };
    config.store.shards = 1;
    (config.flush.max_age, config.flush.min_age) = (Duration::from_secs(3_600), Duration::from_secs(3_600));
    config.flush.grace = Duration::from_secs(3_600);
    config.flush.shutdown_timeout = Duration::ZERO;
    config
}

async fn post(engine: &Engine, key: Option<&str>, rows: &str) -> Receipt {
    let said = Said { key: key.map(str::as_bytes), ..Said::default() };
    let post = Post {
        table: "cpu".parse().expect("should be a name"),
        format: Format::Ndjson,
        encoding: ContentEncoding::Identity,
        time_unit: None,
        on_error: crate::ingest::OnError::Accept,
        id: repeat::id(said).expect("should be an id"),
        sender: std::net::Ipv4Addr::LOCALHOST.into(),
        body: Bytes::copy_from_slice(rows.as_bytes()),
    };
    let lease = engine.lease(&post.table, rows.len() as u64).await.expect("should have room");
    engine.ingest().post(post, lease).await.expect("should take the rows").receipt
}

const MAY: &str = "{\"time\":\"2024-05-01T00:00:00Z\",\"n\":1}";
const JUNE: &str = "{\"time\":\"2024-06-01T00:00:00Z\",\"n\":1}";

fn is(state: State, delta_version: Option<u64>) -> Standing {
    Standing { state, delta_version }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_followed_into_the_table_and_over_a_restart() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let engine = Engine::start(config(dir.path())).await.expect("should start");
    let first = post(&engine, Some("a"), MAY).await;
    let standing = async |engine: &Engine, receipt| engine.standing(receipt).await.expect("should be known");
    assert_eq!(standing(&engine, &first).await, is(State::Durable, None));
    engine.check_visible(&first).expect("should be visible");
    let table = first.table;
    engine.flush(&[table], Duration::from_secs(30)).await.expect("should flush");
    let in_table = standing(&engine, &first).await;
    assert_eq!((in_table.state, in_table.delta_version.is_some()), (State::Committed, true));
    let second = post(&engine, None, JUNE).await;
    assert_eq!(standing(&engine, &second).await, is(State::Durable, None));
    assert_eq!(standing(&engine, &first).await, in_table, "what comes later changes nothing");
    let stranger = Receipt { incarnation: penstock_store::Incarnation(1), ..first };
    assert!(matches!(engine.standing(&stranger).await, Err(ReceiptError::UnknownStart(_))));
    let elsewhere = Receipt { shard: first.shard + 1, ..first };
    assert!(matches!(engine.standing(&elsewhere).await, Err(ReceiptError::UnknownStart(_))));
    let not_yet = Receipt { lsn: penstock_store::Lsn(second.lsn.0 + (1 << 30)), ..second };
    assert!(matches!(engine.standing(&not_yet).await, Err(ReceiptError::UnknownStart(_))), "never pending");
    let other = Receipt { node: penstock_store::NodeId(uuid::Uuid::nil()), ..first };
    assert!(matches!(engine.check_visible(&other), Err(ReceiptError::OtherNode { .. })));
    engine.stop().await;
    drop(engine);

    let engine = Engine::start(config(dir.path())).await.expect("should start");
    assert_eq!(standing(&engine, &first).await, in_table);
    // The stop had no time for more.
    assert_eq!(standing(&engine, &second).await, is(State::Sealed, None));
    assert_eq!(post(&engine, Some("a"), MAY).await, first, "a repeat has the first receipt, to the letter");
    engine.flush(&[table], Duration::from_secs(30)).await.expect("should flush");
    let later = standing(&engine, &second).await;
    assert!(later.state == State::Committed && later.delta_version > in_table.delta_version, "{later:?}");
    // Some day it is forgotten which version it was.
    engine.catalog.forget_generations(Duration::ZERO).await.expect("should forget");
    assert_eq!(standing(&engine, &second).await, is(State::Committed, None));
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_told_at_the_commit_and_who_is_too_many_at_once() {
    let dir = tempfile::tempdir().expect("should make a directory");
    let mut config = config(dir.path());
    config.server.max_connections = 20;
    let engine = Engine::start(config).await.expect("should start");
    let first = post(&engine, None, MAY).await;
    let wait = |time| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { engine.final_standing(&first, time).await.expect("should be known") })
    };
    assert_eq!(wait(Duration::from_millis(50)).await.expect("should end"), is(State::Durable, None), "in vain");
    let waiting: Vec<_> = (0..10).map(|_| wait(MAX_WAIT)).collect();
    while engine.waiting.permits.available_permits() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // There is no place left: the answer comes now.
    assert_eq!(wait(MAX_WAIT).await.expect("should end"), is(State::Durable, None));
    assert!(waiting.iter().all(|w| !w.is_finished()));
    engine.flush(&[first.table], Duration::from_secs(30)).await.expect("should flush");
    for waiting in waiting {
        let standing = waiting.await.expect("should end");
        assert!(standing.state == State::Committed && standing.delta_version.is_some(), "{standing:?}");
    }
    let next = post(&engine, None, JUNE).await;
    let waiting = {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { engine.final_standing(&next, MAX_WAIT).await.expect("should be known") })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    engine.end_waiting();
    assert_eq!(waiting.await.expect("should end"), is(State::Durable, None), "a node that stops keeps nobody");
    engine.stop().await;
}
