use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use clap::Parser;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use deltalake::DeltaTable;
use url::Url;

use super::load::{Glimpse, Plan, Sent, run};
use super::sample::Sampler;
use super::telemetry::{Post, Source};
use super::verify::{OnDisk, ServerView, Tally, disagreements, read_delta, tally};
use super::{Error, Place, report};
use crate::cli::client::Client;
use crate::cli::signals::Interrupts;
use crate::cli::stub::Stub;
use crate::cli::{Cli, Command};
use crate::schema::{ColumnSpec, ColumnType};

#[test]
fn samples_of_this_machine_are_sane() {
    let mut sampler = Sampler::new();
    let first = sampler.sample(1_700_000_000_000_000).unwrap();
    assert!(first.processes.iter().all(|row| row.cpu_percent.is_none()));
    // Something to measure: this process works.
    let started = std::time::Instant::now();
    let mut work = 0_u64;
    while started.elapsed() < Duration::from_millis(150) {
        work = work.wrapping_mul(31).wrapping_add(7);
    }
    assert_ne!(std::hint::black_box(work), 1);
    let second = sampler.sample(1_700_000_000_500_000).unwrap();
    let own = second.processes.iter().find(|row| row.pid as u32 == std::process::id()).expect("should see itself");
    assert!(own.rss_bytes > 1 << 20 && own.threads >= 1, "{own:?}");
    assert!(own.cpu_percent.unwrap() > 10.0, "{own:?}");
    let memory = &second.memory[0];
    assert!(memory.total_bytes > memory.free_bytes && memory.total_bytes > 64 << 20, "{memory:?}");
    assert!(second.disks.iter().all(|disk| (0.0..=100.0).contains(&disk.busy_percent.unwrap_or(0.0))));
    assert!(second.network.iter().all(|row| !row.interface.is_empty() && !row.interface.ends_with(':')));
}

#[test]
fn rows_carry_the_columns_their_tables_declare() {
    let mut sampler = Sampler::new();
    sampler.sample(1).unwrap();
    let posts = sampler.sample(2).unwrap().posts(3);
    assert!(posts.iter().filter(|post| post.source == Source::Processes).count() <= 3);
    for post in &posts {
        let lines: Vec<&[u8]> = post.body.split(|b| *b == b'\n').filter(|l| !l.is_empty()).collect();
        assert_eq!(lines.len() as u64, post.rows);
        let row: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(lines[0]).unwrap();
        let declared: Vec<String> = post.source.definition().columns.into_iter().map(|c| c.name).collect();
        assert!(row.keys().all(|name| declared.contains(name)), "{:?}: {row:?}", post.source);
        assert_eq!(row.len(), declared.len());
    }
}

#[test]
fn posts_never_are_empty() {
    let sample = super::sample::Sample::default();
    assert!(sample.posts(4).is_empty());
    let one = Post::new(Source::Memory, &[serde_json::json!({"ts": 1})]);
    assert_eq!((one.rows, one.body.as_ref()), (1, b"{\"ts\":1}\n".as_slice()));
}

async fn prepared(stub: &Stub) -> Client {
    let client = Client::new(&stub.url()).unwrap();
    for source in Source::ALL {
        client.create(&source.table(), &source.definition()).await.unwrap();
    }
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_is_counted() {
    let stub = Stub::start().await;
    let client = prepared(&stub).await;
    stub.shared.refuse.store(5, Ordering::Relaxed);
    let plan = Plan { time: Duration::from_millis(600), senders: 3, samples_per_second: 20 };
    let sent = run(&client, &plan, &Interrupts::listen().unwrap()).await.unwrap();
    assert_eq!(sent.refusals, 5);
    let glimpse = sent.glimpse.expect("should have looked half-way");
    assert!(glimpse.visible >= glimpse.acked_before && glimpse.unflushed > 0, "{glimpse:?}");
    for source in Source::ALL {
        let there = stub.shared.tables.lock()[&source.table().to_string()].rows;
        assert_eq!(sent.rows[source as usize], there, "{source:?}");
    }
    assert!(sent.rows[Source::Processes as usize] > 0 && sent.rows[Source::Memory as usize] > 1);
    assert_eq!(sent.latencies.percentiles().count, sent.posts);
    // The stub writes no Delta table, and that must not go unnoticed.
    let tallies = tally(&client, &sent).await.unwrap();
    let wrong = disagreements(&sent, &tallies).join("\n");
    assert!(wrong.contains("demo.proc_processes") && wrong.contains("0 in Delta"), "{wrong}");
    assert!(report::counts(&tallies).contains("DIFFERENT"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_acknowledgement_ends_the_show() {
    let stub = Stub::start().await;
    let client = prepared(&stub).await;
    stub.shared.forget.store(1, Ordering::Relaxed);
    let plan = Plan { time: Duration::from_secs(30), senders: 2, samples_per_second: 20 };
    let error = run(&client, &plan, &Interrupts::listen().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("was acknowledged with"), "{error}");
}

#[tokio::test]
async fn a_delta_table_is_read_from_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let url = Url::from_directory_path(directory.path()).unwrap();
    assert_eq!(read_delta(url.as_str()).await.unwrap(), OnDisk::default());
    let rows = |n: i64| {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..n));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    };
    let table = DeltaTable::try_from_url(url.clone()).await.unwrap();
    let table = table.write([rows(5)]).await.unwrap();
    table.write([rows(7)]).await.unwrap();
    assert_eq!(read_delta(url.as_str()).await.unwrap(), OnDisk { version: Some(1), files: 2, rows: 12 });
    // A file that the log names and the disk has not.
    let data = fs::read_dir(directory.path()).unwrap().flatten().map(|e| e.path());
    let file = data.into_iter().find(|path| path.extension().is_some_and(|e| e == "parquet")).unwrap();
    fs::remove_file(file).unwrap();
    let error = read_delta(url.as_str()).await.unwrap_err();
    assert!(matches!(&error, Error::Delta { reason, .. } if reason.contains(".parquet")), "{error}");
}

fn agreeing() -> Tally {
    Tally {
        table: "demo.t".to_owned(),
        location: "file:///lake/demo/t/".to_owned(),
        acked: 10,
        delta: 10,
        sql: 10,
        version: Some(2),
        files: 1,
        server: ServerView { version: Some(2), rows: 10, files: 1, unflushed: 0 },
    }
}

#[test]
fn only_full_agreement_passes() {
    let sent = Sent::default();
    assert!(disagreements(&sent, &[agreeing()]).is_empty());
    let nothing = ServerView { version: None, rows: 0, files: 0, unflushed: 0 };
    let empty = Tally { acked: 0, delta: 0, sql: 0, version: None, files: 0, server: nothing, ..agreeing() };
    assert!(disagreements(&sent, &[agreeing(), empty]).is_empty());
    for wrong in [
        Tally { acked: 11, ..agreeing() },
        Tally { sql: 9, ..agreeing() },
        Tally { delta: 20, ..agreeing() },
        Tally { server: ServerView { unflushed: 1, ..agreeing().server }, ..agreeing() },
        Tally { server: ServerView { version: Some(3), ..agreeing().server }, ..agreeing() },
    ] {
        let found = disagreements(&sent, &[wrong]);
        assert!(!found.is_empty() && found.iter().all(|line| line.contains("demo.t")), "{found:?}");
    }
    let blind = Glimpse { acked_before: 5, visible: 4, unflushed: 4 };
    let sent = Sent { glimpse: Some(blind), ..Sent::default() };
    assert_eq!(disagreements(&sent, &[agreeing()]).len(), 1);
}

#[test]
fn the_python_hint_names_the_directory() {
    let text = report::python(&[agreeing()]);
    assert!(text.contains("path = \"/lake/demo/t/\""), "{text}");
    assert_eq!(report::python(&[]), "");
}

/// The source's table with the rows of a sample, as DataFusion sees it.
fn register(context: &SessionContext, source: Source, post: &Post) {
    let field = |column: &ColumnSpec| {
        let kind = match column.kind {
            ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            ColumnType::String => DataType::Utf8,
            ColumnType::Double => DataType::Float64,
            ColumnType::Long => DataType::Int64,
            ref other => panic!("unexpected {other}"),
        };
        Field::new(&column.name, kind, column.nullable)
    };
    let columns = source.definition().columns;
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let batches = arrow::json::ReaderBuilder::new(Arc::clone(&schema)).build(post.body.as_ref()).unwrap();
    let batches = vec![batches.collect::<Result<Vec<_>, _>>().unwrap()];
    let table = MemTable::try_new(schema, batches).unwrap();
    context.register_table(source.table().to_string(), Arc::new(table)).unwrap();
}

#[tokio::test]
async fn the_questions_at_the_end_are_valid() {
    let context = SessionContext::new();
    context.sql("CREATE SCHEMA demo").await.unwrap().collect().await.unwrap();
    let mut sampler = Sampler::new();
    sampler.sample(1_700_000_000_000_000).unwrap();
    for post in sampler.sample(1_700_000_000_100_000).unwrap().posts(1) {
        register(&context, post.source, &post);
    }
    for (title, statement) in report::QUERIES {
        let batches = context.sql(statement).await.unwrap().collect().await.unwrap();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert!((1..=15).contains(&rows), "{title} {rows} rows");
    }
}

fn place(words: &[&str]) -> Result<Place, Error> {
    let words = ["penstock", "demo"].iter().chain(words);
    match Cli::try_parse_from(words).unwrap().command {
        Command::Demo(args) => Place::prepare(&args),
        _ => panic!("not demo"),
    }
}

#[test]
fn the_data_directory_must_be_empty() {
    let directory = tempfile::tempdir().unwrap();
    let fresh = directory.path().join("new");
    let fresh = fresh.to_str().unwrap();
    assert!(matches!(place(&["--data-dir", fresh]).unwrap(), Place::Kept(_)));
    fs::write(directory.path().join("new").join("file"), "x").unwrap();
    let error = place(&["--data-dir", fresh]).unwrap_err();
    assert!(error.to_string().ends_with("is not empty") && error.help().is_some());
}

#[test]
fn discarded_data_is_gone() {
    let discarded = place(&["--discard"]).unwrap();
    let path = discarded.path().to_owned();
    assert!(path.exists());
    drop(discarded);
    assert!(!path.exists());
    let kept = place(&[]).unwrap();
    let path = kept.path().to_owned();
    drop(kept);
    assert!(path.exists());
    fs::remove_dir(path).unwrap();
}
