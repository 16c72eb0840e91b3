//! Checkpoints: written, read back, and without consequences when they fail.

use std::sync::Arc;

use penstock_store::Incarnation;

use super::rig::*;
use crate::lake::care::checkpoint::Hint;
use crate::lake::tests::support::*;

async fn hint(rig: &Rig) -> Option<Hint> {
    let bytes = rig.read("_last_checkpoint").await?;
    Some(serde_json::from_slice(&bytes).expect("should be JSON"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_written_behind_the_commits_and_says_what_the_log_says() {
    let rig = Arc::new(Rig::default());
    let lake = rig.lake(10);
    let table = lake.table(TABLE, &name());
    for sequence in 1..=8 {
        commit_one(&table, sequence).await;
    }
    assert_eq!(table.log_care().checkpoint, None);
    let other = Incarnation(7);
    commit_as(&table, other, 3..=3, &[some_file(), some_file()]).await.expect("should commit");
    at_rest(&table).await;
    assert_eq!(table.log_care().last_error, None);
    assert_eq!(table.log_care().checkpoint, Some(9));
    let pointer = hint(&rig).await.expect("should point to it");
    assert_eq!((pointer.version, pointer.num_of_add_files), (9, Some(10)));

    // Whoever opens the table from now on needs the checkpoint alone.
    for version in 0..=9 {
        rig.write(&format!("{version:020}.json"), "not read".into()).await;
    }
    let next = rig.lake(10).table(TABLE, &name());
    assert_eq!(
        next.resolve(&[NOW, other, Incarnation(9)], NODE).await.expect("should resolve"),
        [Some(8), Some(3), None]
    );
    assert_eq!(next.stats().await.expect("should open").files, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_checkpoint_is_built_on_the_last_also_by_the_next_process_and_another_node() {
    let rig = Arc::new(Rig::default());
    {
        let table = rig.lake(10).table(TABLE, &name());
        for sequence in 1..=12 {
            commit_one(&table, sequence).await;
        }
        assert_eq!(table.log_care().checkpoint, Some(9));
    }
    let table = rig.lake(10).table(TABLE, &name());
    for sequence in 13..=19 {
        commit_one(&table, sequence).await;
    }
    assert_eq!((table.log_care().checkpoint, table.log_care().last_error), (Some(19), None));

    // Another node finds that it is done.
    let other = rig.lake(10).table(TABLE, &name());
    commit_as(&other, Incarnation(1), 1..=1, &[some_file()]).await.expect("should commit");
    at_rest(&other).await;
    assert_eq!(other.log_care(), Default::default());
    assert!(!rig.log().await.contains(&checkpoint(20)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_fails_behind_a_commit_neither_loses_nor_repeats_it() {
    for (suffix, put) in [
        (".checkpoint.parquet", Put::Fail),
        (".checkpoint.parquet", Put::LoseAnswer),
        ("_last_checkpoint", Put::Fail),
        ("_last_checkpoint", Put::LoseAnswer),
    ] {
        let rig = Arc::new(Rig::default());
        rig.age(1_000);
        rig.meets(suffix, put.clone());
        let table = rig.lake(10).table(TABLE, &name());
        for sequence in 1..=12 {
            let done = commit_as(&table, NOW, sequence..=sequence, &[some_file()]).await;
            assert_eq!(done.expect("should commit"), landed(sequence));
            at_rest(&table).await;
        }
        let care = table.log_care();
        assert!(care.last_error.is_some(), "{suffix} {put:?} should be shown");
        assert_eq!((care.checkpoint, care.removed), (None, 0), "{suffix} {put:?}");
        assert_eq!(rig.entries().await, (0..=12).collect::<Vec<_>>(), "{suffix} {put:?}: nothing should be removed");
        let next = rig.lake(10).table(TABLE, &name());
        assert_eq!(next.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(12)]);
        assert_eq!(next.stats().await.expect("should open").files, 12, "{suffix} {put:?}");

        // It is tried again behind as many versions, and then all is well.
        rig.is_well();
        for sequence in 13..=30 {
            commit_one(&table, sequence).await;
        }
        let care = table.log_care();
        assert_eq!(care.last_error, None, "{suffix} {put:?}");
        assert!(care.checkpoint >= Some(19) && care.removed > 0, "{suffix} {put:?}: {care:?}");
        assert_eq!(rig.lake(0).table(TABLE, &name()).stats().await.expect("should open").files, 30);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_reads_back_wrong_is_taken_back_and_nothing_goes_behind_it() {
    // A whole and valid checkpoint, only of fewer files and an older sequence: of version 9 where 19 should be.
    let rig = Arc::new(Rig::default());
    let table = rig.lake(10).table(TABLE, &name());
    for sequence in 1..=12 {
        commit_one(&table, sequence).await;
    }
    let older = rig.read(&checkpoint(9)).await.expect("should have a checkpoint");
    for put in [Put::Cut, Put::Replace(older), Put::Replace("PAR1".into())] {
        let before = rig.read("_last_checkpoint").await;
        rig.age(1_000);
        rig.meets(".checkpoint.parquet", put.clone());
        let table = rig.lake(10).table(TABLE, &name());
        let last = table.resolve(&[NOW], NODE).await.expect("should resolve")[0].expect("should have rows");
        let entries = rig.entries().await;
        for sequence in last + 1..=last + 10 {
            commit_one(&table, sequence).await;
        }
        let care = table.log_care();
        let error = care.last_error.expect("should be shown");
        assert!(error.contains("is not right, log entries stay"), "{put:?}: {error}");
        assert_eq!((care.checkpoint, care.removed), (None, 0), "{put:?}");
        assert_eq!(rig.entries().await.len(), entries.len() + 10, "{put:?}: nothing should be removed");
        assert_eq!(rig.read("_last_checkpoint").await, before, "{put:?}: the pointer should be the last good one");
        rig.is_well();
        let files = rig.lake(0).table(TABLE, &name()).stats().await.expect("should open").files;
        assert_eq!(files, last + 10, "{put:?}: readers should find every file");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pointer_that_does_not_say_what_was_written_is_no_proof() {
    let rig = Arc::new(Rig::default());
    rig.age(1_000);
    rig.meets("_last_checkpoint", Put::Replace(r#"{"version":9,"size":3,"numOfAddFiles":3}"#.into()));
    let table = rig.lake(10).table(TABLE, &name());
    for sequence in 1..=12 {
        commit_one(&table, sequence).await;
    }
    let care = table.log_care();
    assert!(care.last_error.as_deref().is_some_and(|e| e.contains("_last_checkpoint")), "{care:?}");
    assert_eq!((care.checkpoint, care.removed), (None, 0));
    assert_eq!(rig.entries().await, (0..=12).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_others_made_again_here_is_left_alone() {
    let rig = Arc::new(Rig::default());
    rig.age(1_000);
    let table = rig.lake(10).table(TABLE, &name());
    commit_one(&table, 1).await;
    let first = rig.read(&format!("{:020}.json", 0)).await.expect("should have version 0");
    let theirs = String::from_utf8_lossy(&first).replace(&TABLE.to_string(), &uuid::Uuid::from_u128(99).to_string());
    rig.write(&format!("{:020}.json", 0), theirs.into()).await;
    for sequence in 2..=12 {
        commit_one(&table, sequence).await;
    }
    let care = table.log_care();
    assert!(care.last_error.as_deref().is_some_and(|error| error.contains("not ours")), "{care:?}");
    assert!(!rig.log().await.iter().any(|name| name.contains("checkpoint")), "nothing should be written");
    assert_eq!(rig.entries().await, (0..=12).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_forgets_a_transaction_is_found_out() {
    // The same table with as many files, in which another incarnation has committed: of ours it knows nothing.
    let other = Arc::new(Rig::default());
    let table = other.lake(10).table(TABLE, &name());
    for sequence in 1..=9 {
        commit_as(&table, Incarnation(5), sequence..=sequence, &[some_file()]).await.expect("should commit");
        at_rest(&table).await;
    }
    let forgetful = other.read(&checkpoint(9)).await.expect("should have a checkpoint");

    let rig = Arc::new(Rig::default());
    rig.age(1_000);
    rig.meets(".checkpoint.parquet", Put::Replace(forgetful));
    let table = rig.lake(10).table(TABLE, &name());
    for sequence in 1..=9 {
        commit_one(&table, sequence).await;
    }
    let care = table.log_care();
    assert!(care.last_error.as_deref().is_some_and(|error| error.contains("transaction ids")), "{care:?}");
    assert_eq!((care.checkpoint, care.removed), (None, 0));
    assert!(!rig.log().await.contains(&checkpoint(9)), "nobody should start from it");
    let next = rig.lake(10).table(TABLE, &name());
    assert_eq!(next.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(9)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn few_tables_are_cared_for_at_the_same_time() {
    let rig = Arc::new(Rig::default());
    let lake = rig.lake(4);
    let tables: Vec<_> = (0..8)
        .map(|number: u128| {
            let id = penstock_store::TableId(uuid::Uuid::from_u128(100 + number));
            lake.table(id, &format!("metrics.t{number}").parse().expect("should be a name"))
        })
        .collect();
    for sequence in 1..=4 {
        for table in &tables {
            commit_as(table, NOW, sequence..=sequence, &[some_file()]).await.expect("should commit");
        }
    }
    let confirmed = futures::future::join_all(tables.iter().map(|table| table.confirm())).await;
    assert!(confirmed.iter().all(Result::is_ok), "{confirmed:?}");
    lake.rest(std::time::Duration::from_secs(60)).await;
    for table in &tables {
        let care = table.log_care();
        assert!(care.checkpoint >= Some(3) && care.last_error.is_none(), "{care:?}");
    }
    let most = rig.most_pointer_reads.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(most, 2, "two tables at a time");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_confirmed_is_in_no_checkpoint() {
    let rig = Arc::new(Rig::default());
    let table = rig.lake(4).table(TABLE, &name());
    for sequence in 1..=9 {
        commit_as(&table, NOW, sequence..=sequence, &[some_file()]).await.expect("should commit");
    }
    table.caretaker.rest().await;
    assert!(!rig.log().await.iter().any(|name| name.contains("checkpoint")), "a commit may have to be taken back");
    at_rest(&table).await;
    assert_eq!(table.log_care().checkpoint, Some(9));
}
