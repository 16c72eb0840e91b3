mod isolation;
#[cfg(target_os = "linux")]
mod memory;

use std::sync::Arc;
use std::time::Duration;

use super::kit::{Kit, on_demand};
use super::*;
use crate::lake::{Commit, FileSettings};

const LONG: Duration = Duration::from_secs(30);

fn all(range: std::ops::Range<i64>) -> Vec<i64> {
    range.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demanded_flush_brings_everything_to_delta_and_tells_of_each_commit() {
    let kit = Kit::new();
    let (cpu, disk) = (kit.table("cpu").await, kit.table("disk").await);
    for hour in 0..5 {
        kit.append(cpu, hour, hour * 10..hour * 10 + 10).await;
    }
    kit.append(disk, 0, 0..3).await;
    let (flusher, mut heard) = kit.flusher(on_demand());
    flusher.flush(&[cpu, disk], LONG).await.expect("should flush");
    assert_eq!(kit.numbers(cpu).await, all(0..50));
    assert_eq!(kit.numbers(disk).await, all(0..3));
    assert_eq!((kit.unflushed_rows(cpu), flusher.progress(cpu).rows_flushed), (0, 50));
    flusher.stop().await;
    drop(flusher);
    let mut rows = 0;
    while let Some(flushed) = heard.recv().await {
        rows += flushed.rows;
    }
    assert_eq!(rows, 53);
}

/// Seals asked for by two callers are answered in any order. None may hide another.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seals_by_policy_and_on_demand_at_the_same_time_lose_nothing() {
    let kit = Arc::new(Kit::new());
    let table = kit.table("cpu").await;
    let eager = Options { min_age: Duration::ZERO, max_age: Duration::from_millis(20), ..Options::default() };
    let (flusher, _heard) = kit.flusher(eager);
    let writers = (0..4_i64).map(|writer| {
        let kit = Arc::clone(&kit);
        tokio::spawn(async move {
            for i in 0..100 {
                let n = writer * 100 + i;
                kit.append(table, n % 7, n..n + 1).await;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        flusher.flush(&[table], LONG).await.expect("should flush");
    }
    flusher.flush(&[table], LONG).await.expect("should flush");
    assert_eq!(kit.numbers(table).await, all(0..400));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_bucket_is_sealed_by_its_age() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    let (_flusher, mut heard) = kit.flusher(Options { max_age: Duration::from_millis(50), ..Options::default() });
    kit.append(table, 0, 0..3).await;
    let flushed = tokio::time::timeout(LONG, heard.recv()).await.expect("should flush").expect("should tell");
    assert_eq!((flushed.rows, flushed.sequence), (3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_fails_stands_alone_and_goes_on_when_it_can() {
    let kit = Kit::new();
    let (bad, good) = (kit.table("bad").await, kit.table("good").await);
    let log = kit.log_dir(bad);
    std::fs::create_dir_all(log.parent().expect("should have a parent")).expect("should make a directory");
    std::fs::write(&log, "in the way").expect("should write");
    for table in [bad, good] {
        kit.append(table, 0, 0..3).await;
    }
    let (flusher, _heard) = kit.flusher(on_demand());
    flusher.flush(&[good], LONG).await.expect("should flush");
    let error = flusher.flush(&[bad], Duration::from_secs(2)).await.expect_err("should not flush");
    assert!(matches!(&error, FlushError::Timeout { left: 1, reason } if reason.contains("last error")), "{error}");
    assert!(flusher.progress(bad).last_error.is_some());
    kit.append(good, 0, 3..6).await;
    flusher.flush(&[good], LONG).await.expect("should flush while the other one fails");
    std::fs::remove_file(&log).expect("should remove");
    // It may be in a long pause by now; whoever asks does not wait for its end.
    flusher.flush(&[bad], LONG).await.expect("should flush");
    assert_eq!(kit.numbers(bad).await, all(0..3));
    assert_eq!(flusher.progress(bad).last_error, None);
}

/// The process dies between the commit in Delta and the Commit record in the log: the table itself knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_the_log_does_not_know_of_is_not_repeated() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    kit.append(table, 0, 0..10).await;
    kit.append(table, 1, 10..20).await;
    let sealed = kit.seal(table).await;
    let files = kit.upload(&kit.context(on_demand()), &sealed[0]).await.expect("should upload");
    let known = kit.registry.by_id(table).expect("should be known");
    let (node, incarnation) = (kit.store.node(), sealed[0].seal.incarnation);
    let commit = Commit { node, incarnation, first_sequence: 1, sequence: 1, spec: &known.spec, adds: &files.adds };
    kit.lake.table(table, &known.spec.name).commit(commit).await.expect("should commit");

    let kit = kit.restart();
    kit.append(table, 2, 20..30).await;
    assert_eq!(kit.unflushed_rows(table), 30, "the log should still have all rows");
    let (flusher, _heard) = kit.flusher(on_demand());
    flusher.flush(&[table], LONG).await.expect("should flush");
    assert_eq!(kit.numbers(table).await, all(0..30));
    drop(flusher);

    let kit = kit.restart();
    assert_eq!(kit.unflushed_rows(table), 0, "the Commit records should be durable");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sealed_by_several_starts_goes_in_by_start_in_order() {
    let mut kit = Kit::new();
    let table = kit.table("cpu").await;
    for start in 0..3 {
        kit.append(table, start, start * 10..start * 10 + 10).await;
        kit.append(table, start + 10, start * 10 + 100..start * 10 + 110).await;
        kit.seal(table).await;
        kit = kit.restart();
    }
    let (flusher, mut heard) = kit.flusher(on_demand());
    flusher.flush(&[table], LONG).await.expect("should flush");
    let mut expected: Vec<i64> = (0..30).chain(100..130).collect();
    expected.sort_unstable();
    assert_eq!(kit.numbers(table).await, expected);
    flusher.stop().await;
    drop(flusher);
    let mut commits = Vec::new();
    while let Some(flushed) = heard.recv().await {
        commits.push((flushed.incarnation, flushed.sequence));
    }
    let starts: std::collections::HashSet<_> = commits.iter().map(|c| c.0).collect();
    assert_eq!(starts.len(), 3, "{commits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flusher_that_is_dropped_at_any_moment_leaves_every_row_for_the_next() {
    let mut kit = Kit::new();
    let table = kit.table("cpu").await;
    for round in 0..12_i64 {
        kit.append(table, round, round * 10..round * 10 + 10).await;
        let (flusher, _heard) = kit.flusher(on_demand());
        let wait = Duration::from_millis(u64::try_from(round).expect("should fit") * 4);
        if let Err(error) = flusher.flush(&[table], wait).await {
            assert!(matches!(error, FlushError::Timeout { .. }), "{error}");
        }
        drop(flusher);
        kit = kit.restart();
    }
    let (flusher, _heard) = kit.flusher(on_demand());
    flusher.flush(&[table], LONG).await.expect("should flush");
    assert_eq!(kit.numbers(table).await, all(0..120));
}

#[test]
fn settings_of_zero_are_raised_to_what_works() {
    let options = Options { target_file_bytes: bytesize::ByteSize(0), ..Options::default() };
    assert_eq!(options.file_settings().target_file_bytes.get(), 1);
    assert!(FileSettings::default().target_file_bytes.get() > 1);
}
