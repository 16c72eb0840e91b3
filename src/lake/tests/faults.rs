//! Every way in which a commit's PUT can fail, and the rows are in the table once.

use std::fs::File;
use std::io;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use object_store::memory::InMemory;
use penstock_store::Incarnation;

use super::support::*;
use crate::lake::durable::Barrier;
use crate::lake::patience::Patience;
use crate::lake::stores::Stores;
use crate::lake::{Error, Kind, Lake, app_id};

/// Commits sequence 1 past the given faults and expects the version.
async fn survives(script: Vec<Fault>, version: u64) -> Arc<Faulty> {
    // The first PUT creates the table.
    let (lake, store) = Faulty::lake([Fault::None].into_iter().chain(script));
    let table = lake.table(TABLE, &name());
    assert_eq!(ten_rows(&table, 1).await.expect("should commit"), landed(version));
    assert_eq!(store.entries_with(&app_id(NODE, NOW), 1).await, 1, "the rows should be in the table once");
    assert_eq!(ten_rows(&table, 2).await.expect("should commit"), landed(version + 1));
    store
}

#[tokio::test]
async fn an_answer_that_is_lost_behind_the_put() {
    survives(vec![Fault::LoseAnswer], 1).await;
}

#[tokio::test]
async fn an_error_before_the_put() {
    survives(vec![Fault::FailBefore, Fault::FailBefore], 1).await;
}

#[tokio::test]
async fn a_conflict_though_nothing_landed() {
    survives(vec![Fault::Conflict], 1).await;
}

#[tokio::test]
async fn a_put_without_an_answer() {
    survives(vec![Fault::Hang { applied: true }], 1).await;
    survives(vec![Fault::Hang { applied: false }], 1).await;
}

#[tokio::test]
async fn another_writer_takes_the_version() {
    let rival = || Fault::Rival(r#"{"commitInfo":{"operation":"WRITE"}}"#.to_owned());
    survives(vec![rival()], 2).await;
    survives(vec![rival(), rival(), Fault::LoseAnswer], 3).await;
}

#[tokio::test]
async fn reads_that_fail_after_the_put_are_repeated() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let adds = write(&table, 20_000, 10).await;
    store.then(Fault::LoseAnswer);
    store.fail_reads(1);
    assert_eq!(commit_as(&table, NOW, 2..=2, &adds).await.expect("should commit"), landed(2));
    assert_eq!(store.entries_with(&app_id(NODE, NOW), 2).await, 1);
}

#[tokio::test]
async fn creation_survives_the_same_faults() {
    for fault in [Fault::LoseAnswer, Fault::FailBefore, Fault::Conflict, Fault::Hang { applied: true }] {
        let (lake, store) = Faulty::lake([fault]);
        let table = lake.table(TABLE, &name());
        assert_eq!(ten_rows(&table, 1).await.expect("should commit"), landed(1));
        let first = store.entry(0).await.expect("should have version 0");
        assert_eq!(actions(&first, "metaData").len(), 1);
    }
}

#[tokio::test]
async fn a_commit_that_stays_open_is_found_out_by_the_next_attempt() {
    // The PUT lands, and neither its answer nor the entry can be had.
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let adds = write(&table, 20_000, 10).await;
    store.then(Fault::LoseAnswer);
    store.fail_reads(4);
    let error = commit_as(&table, NOW, 2..=3, &adds).await.expect_err("should stay open");
    assert!(matches!(error, Error::Unsettled { version: 2, tries: 4, .. }), "{error}");
    assert_eq!(error.kind(), Kind::Unavailable);

    // The next attempt carries more: what has landed must not land again with it.
    let error = commit_as(&table, NOW, 2..=4, &adds).await.expect_err("should be refused");
    assert!(matches!(error, Error::PartlyCommitted { committed: 3, .. }), "{error}");
    assert_eq!(table.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(3)]);
    assert_eq!(commit_as(&table, NOW, 2..=3, &adds).await.expect("should be adopted"), adopted(2));
    assert_eq!(commit_as(&table, NOW, 4..=4, &adds).await.expect("should commit"), landed(3));
}

#[tokio::test]
async fn a_commit_that_never_lands_reports_the_last_error() {
    let (lake, store) = Faulty::lake([Fault::None]);
    (0..4).for_each(|_| store.then(Fault::Hang { applied: false }));
    let table = lake.table(TABLE, &name());
    let error = ten_rows(&table, 1).await.expect_err("should give up");
    let Error::Unsettled { last, .. } = &error else { panic!("{error}") };
    assert!(matches!(**last, Error::Timeout { limit: CALL_TIMEOUT, .. }), "{last}");
    assert_eq!(ten_rows(&table, 1).await.expect("should commit"), landed(1));
}

#[tokio::test]
async fn a_put_that_lands_after_its_caller_has_left() {
    let (lake, store) = Faulty::lake([Fault::None, Fault::Hang { applied: true }]);
    let table = lake.table(TABLE, &name());
    let adds = write(&table, 20_000, 10).await;
    let left = tokio::time::timeout(CALL_TIMEOUT / 4, commit_as(&table, NOW, 1..=1, &adds)).await;
    assert!(left.is_err(), "the commit should still wait for its answer");
    assert_eq!(commit_as(&table, NOW, 1..=1, &adds).await.expect("should be adopted"), adopted(1));
    assert_eq!(store.entries_with(&app_id(NODE, NOW), 1).await, 1);
}

#[tokio::test]
async fn an_earlier_process_lands_under_our_feet() {
    let objects = Arc::new(InMemory::new());
    let (lake, store) = Faulty::lake_over(objects.clone(), []);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let late = store.entry(1).await.expect("should have version 1");
    let late = String::from_utf8_lossy(&late).replace("\"version\":1", "\"version\":2");

    // The PUT of the process before arrives between our look at the log and our own PUT.
    store.then(Fault::Rival(late));
    assert_eq!(ten_rows(&table, 2).await.expect("should be adopted"), adopted(2));
    assert_eq!(store.entries_with(&app_id(NODE, NOW), 2).await, 1);
}

/// Syncs of log directories fail while the switch is on.
#[derive(Debug, Clone)]
struct LosesEntries(Arc<AtomicBool>);

impl Barrier for LosesEntries {
    fn file(&self, _file: &File, _path: &FilePath) -> io::Result<()> {
        Ok(())
    }

    fn directory(&self, _directory: &File, path: &FilePath) -> io::Result<()> {
        let fail = self.0.load(Ordering::SeqCst) && path.ends_with("_delta_log");
        if fail { Err(io::Error::other("i/o error")) } else { Ok(()) }
    }
}

#[tokio::test]
async fn an_entry_that_is_visible_and_not_synced_is_no_commit() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let switch = Arc::new(AtomicBool::new(false));
    let open = || {
        let stores = Stores::local(dir.path(), LosesEntries(Arc::clone(&switch)), CALL_TIMEOUT).expect("should open");
        let patience = Patience { tries: 2, first_wait: Duration::from_millis(1), whole: Duration::from_secs(9) };
        Lake::over(stores, patience).table(TABLE, &name())
    };
    let table = open();
    ten_rows(&table, 1).await.expect("should commit");
    table.confirm().await.expect("should confirm");
    let adds = write(&table, 20_000, 10).await;
    switch.store(true, Ordering::SeqCst);
    commit_as(&table, NOW, 2..=2, &adds).await.expect_err("should not be committed");
    assert!(dir.path().join("metrics/cpu/_delta_log/00000000000000000002.json").exists());
    assert_eq!(table.published(), Some(1));

    // A disk that has failed once is not believed again by this process, nor, while it fails, by the next.
    switch.store(false, Ordering::SeqCst);
    commit_as(&table, NOW, 2..=2, &adds).await.expect_err("should not be committed");
    switch.store(true, Ordering::SeqCst);
    open().resolve(&[NOW], NODE).await.expect_err("should not be believed");
    switch.store(false, Ordering::SeqCst);
    assert_eq!(open().resolve(&[NOW], NODE).await.expect("should resolve"), [Some(2)]);
}

#[tokio::test]
async fn a_steady_commit_is_one_put_and_no_list() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let adds = write(&table, 20_000, 10).await;
    let calls = || [&store.puts, &store.gets, &store.lists].map(|count| count.load(Ordering::SeqCst));
    let before = calls();
    for sequence in 2..=50 {
        commit_as(&table, NOW, sequence..=sequence, &adds).await.expect("should commit");
    }
    let [puts, gets, lists] = calls();
    assert_eq!([puts - before[0], gets - before[1], lists - before[2]], [49, 0, 0]);
}

#[tokio::test]
async fn falling_behind_others_costs_a_read_for_each_of_their_versions() {
    let (lake, store) = Faulty::lake([]);
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    for version in 2..=40 {
        store.put_entry(version, r#"{"commitInfo":{}}"#).await;
    }
    let adds = write(&table, 20_000, 10).await;
    let before = store.puts.load(Ordering::SeqCst);
    assert_eq!(commit_as(&table, NOW, 2..=2, &adds).await.expect("should commit"), landed(41));
    assert_eq!(store.puts.load(Ordering::SeqCst) - before, 2);
    let other = commit_as(&table, Incarnation(9), 1..=1, &adds).await.expect("should commit");
    assert_eq!(other, landed(42));
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_stops_the_table() {
    for text in ["", "{\"commitInfo\":{}}\n{\"add\":"] {
        let (lake, store) = Faulty::lake([Fault::None, Fault::Rival(text.to_owned())]);
        let table = lake.table(TABLE, &name());
        let error = ten_rows(&table, 1).await.expect_err("should stop");
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(store.entry(2).await.is_none(), "nothing should be written behind it");
    }
}
