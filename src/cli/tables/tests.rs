use clap::Parser;

use super::column::{ColumnError, ColumnFlag};
use super::{TablesCommand, create};
use crate::cli::client::Client;
use crate::cli::stub::Stub;
use crate::cli::{Cli, Command};
use crate::schema::ColumnType;

fn column(text: &str) -> Result<(String, ColumnType, bool), ColumnError> {
    text.parse::<ColumnFlag>().map(|flag| (flag.0.name, flag.0.kind, flag.0.nullable))
}

#[test]
fn columns_are_read() {
    assert_eq!(column("ts:timestamp!"), Ok(("ts".to_owned(), ColumnType::Timestamp, false)));
    assert_eq!(column("v : double"), Ok(("v".to_owned(), ColumnType::Double, true)));
    let nested = column("s:struct<a:long,b:string>!").unwrap();
    assert_eq!(nested.1.to_string(), "struct<a:long,b:string>");
    assert!(!nested.2);
}

#[test]
fn what_is_no_column_is_explained() {
    for bad in ["ts", ":long", "a:", "a:!"] {
        assert_eq!(column(bad), Err(ColumnError::Shape), "{bad}");
    }
    let error = column("a:varchar").unwrap_err().to_string();
    assert!(error.contains("varchar") && error.contains("timestamp"), "{error}");
    let usage = Cli::try_parse_from(["penstock", "tables", "create", "t", "--column", "a:varchar"]).unwrap_err();
    assert_eq!(usage.exit_code(), 2);
}

#[tokio::test]
async fn the_flags_become_the_definition() {
    let stub = Stub::start().await;
    let url = stub.url();
    let line = "penstock tables create demo.cpu --column ts:timestamp! --column host:string --event-time ts \
                --event-time-unit ms --bucket 15m --no-partition --sort host --url";
    let words: Vec<&str> = line.split_whitespace().chain([url.as_str()]).collect();
    let Command::Tables(args) = Cli::try_parse_from(words).unwrap().command else { panic!("not tables") };
    let TablesCommand::Create(args) = args.command else { panic!("not create") };
    let sent = serde_json::to_value(args.definition()).unwrap();
    assert_eq!(
        sent,
        serde_json::json!({
            "columns": [{"name": "ts", "type": "timestamp", "nullable": false},
                        {"name": "host", "type": "string", "nullable": true}],
            "event_time": "ts", "event_time_unit": "ms", "bucket": "15m", "partition": false, "sort": ["host"],
        })
    );
    assert!(create(&args).await.unwrap().starts_with("created demo.cpu\n"));
    assert!(create(&args).await.unwrap().starts_with("is already there as demo.cpu\n"));
    let client = Client::new(&url).unwrap();
    let listed = super::list(&client.tables().await.unwrap());
    assert!(listed.contains("demo.cpu") && listed.contains("ts (numbers count ms)"), "{listed}");
    let shown = super::show_table(&client.table(&args.table).await.unwrap());
    assert!(shown.contains("file:///nowhere/demo.cpu") && shown.contains("timestamp"), "{shown}");
}

#[tokio::test]
async fn status_shows_tables_and_their_trouble() {
    let stub = Stub::start().await;
    let client = Client::new(&stub.url()).unwrap();
    let empty = crate::cli::status::render(&client.status().await.unwrap());
    assert!(empty.contains("no tables yet"), "{empty}");
    let definition = crate::cli::client::CreateTable {
        columns: Vec::new(),
        event_time: None,
        event_time_unit: None,
        bucket: None,
        partition: false,
        sort: Vec::new(),
        bloom: Vec::new(),
        rules: crate::schema::spec::RulesPatch::default(),
    };
    client.create(&"cpu".parse().unwrap(), &definition).await.unwrap();
    let text = crate::cli::status::render(&client.status().await.unwrap());
    assert!(text.contains("ready, up 1m 1s") && text.contains("8.0 KiB"), "{text}");
    assert!(text.contains("FAILING") && text.contains("default.cpu: no space left on device"), "{text}");
}

#[tokio::test]
async fn status_shows_what_a_restart_reads_and_a_checkpoint_that_is_put_off() {
    let stub = Stub::start().await;
    let mut status = Client::new(&stub.url()).unwrap().status().await.unwrap();
    let text = crate::cli::status::render(&status);
    assert!(text.contains("would read 0 B of log;") && !text.contains("PUT OFF"), "{text}");
    status.store.replay_bytes = 12 << 20;
    status.store.replay_estimate_seconds = Some(0.12);
    status.store.shards[0].postponed = Some("no space left on device".to_owned());
    let text = crate::cli::status::render(&status);
    assert!(text.contains("would read 12.0 MiB of log, about 0.1 s;"), "{text}");
    status.store.replay_rate = Some(100 << 20);
    status.store.replay_rate_basis = crate::cli::client::Basis::SelfTest;
    let text = crate::cli::status::render(&status);
    assert!(text.contains("about 0.1 s at 100.0 MiB/s by a self-test;"), "{text}");
    assert!(text.contains("CHECKPOINT PUT OFF, its log grows: no space left on device"), "{text}");
    let checkpoint = Client::new(&stub.url()).unwrap().checkpoint().await.unwrap();
    let text = crate::cli::checkpoint::render(&checkpoint).to_string();
    assert!(text.contains("8.0 KiB") && text.contains("7 ms"), "{text}");
}

#[tokio::test]
async fn status_shows_where_sealed_generations_are_and_a_lag_that_cannot_be_kept() {
    let stub = Stub::start().await;
    let mut status = Client::new(&stub.url()).unwrap().status().await.unwrap();
    status.flush.parallelism = 4;
    status.flush.commit_millis = Some(120.0);
    status.flush.orphans_removed = 2;
    status.flush.infeasible = Some("10000 active tables need 450.0 s".to_owned());
    let mut busy = crate::cli::client::TableStatus { table: "ops.cpu".to_owned(), ..Default::default() };
    (busy.waiting, busy.uploading, busy.ready, busy.committing) = (3, 2, 1, true);
    busy.lag_seconds = Some(61.5);
    busy.log_care.checkpoint = Some(1_940);
    busy.log_care.last_error = Some("the hint is torn".to_owned());
    status.usage.lag_seconds = Some(61.5);
    status.usage.drain_rate = 3 << 20;
    status.usage.disks =
        vec![crate::engine::status::Disk { of: "lane-1".to_owned(), free_bytes: Some(5 << 30), ..Default::default() }];
    busy.dead_generations = 1;
    busy.dead_rows = 1_234;
    let mut failing = crate::cli::client::TableStatus { table: "ops.disk".to_owned(), ..Default::default() };
    failing.last_error = Some("it is full".to_owned());
    failing.paused_seconds = Some(12.3);
    status.tables = vec![busy, failing];
    let text = crate::cli::status::render(&status);
    assert!(text.contains("parallelism 4; an upload takes -, a commit 120.00 ms"), "{text}");
    assert!(text.contains("2 orphans removed") && text.contains("NOT FEASIBLE: 10000 active tables"), "{text}");
    assert!(text.contains("3 waiting, 2 uploading, 1 ready, committing") && text.contains("1m 1s"), "{text}");
    assert!(
        text.contains("1940") && text.contains("ops.cpu: the care of its Delta log failed, commits go on: the hint"),
        "{text}"
    );
    assert!(
        text.contains("the oldest for 1m 1s; 3.0 MiB/s reach Delta") && text.contains("lane-1: 5.0 GiB free"),
        "{text}"
    );
    assert!(text.contains("ops.cpu: 1,234 rows could not be written"), "{text}");
    assert!(text.contains("FAILING, see below, next try in 12 s") && text.contains("ops.disk: it is full"), "{text}");
}
