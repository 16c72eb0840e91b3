//! Data directories that are copies of what has written to a table.

use std::time::Duration;

use penstock_store::TableId;

use super::scheduler;
use crate::flush::doubt::Decision;
use crate::flush::kit::{Kit, on_demand};

/// A data directory and a copy of it, taken while the original had five rows in a table that it sealed and committed later. In the
/// other table it had none.
async fn copied() -> (Kit, Kit, [TableId; 2]) {
    let kit = Kit::new();
    let tables = [kit.table("cpu").await, kit.table("disk").await];
    for table in tables {
        kit.append(table, 0, 0..5).await;
        kit.seal(table).await;
    }
    kit.append(tables[0], 1, 5..10).await;
    let copy = kit.with_data(kit.fs.snapshot().crash_process());
    kit.seal(tables[0]).await;
    let (mut scheduler, _heard) = scheduler(&kit, on_demand());
    scheduler.look(false);
    scheduler.settle().await;
    for table in tables {
        copy.append(table, 1, 10..12).await;
    }
    (kit, copy, tables)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_directory_neither_doubles_nor_loses_what_it_is_in_doubt_about() {
    let (kit, copy, [table, other]) = copied().await;
    let (flusher, _heard) = copy.flusher(on_demand());
    flusher.flush(&[other], Duration::from_secs(30)).await.expect("no doubt about this one");
    assert_eq!((kit.numbers(other).await.len(), copy.unflushed_rows(other)), (7, 0));
    let error = flusher.flush(&[table], Duration::from_millis(500)).await.expect_err("should be refused").to_string();
    assert!(error.contains("restored or cloned") && error.contains("stands at 2 there, and at 1 here"), "{error}");
    assert_eq!((kit.numbers(table).await.len(), copy.unflushed_rows(table)), (10, 12), "nothing goes in, nothing goes");
    flusher.stop().await;
    drop(flusher);

    // However often it is started.
    let mut copy = copy;
    for _ in 0..6 {
        copy = copy.restart();
        copy.append(table, 1, 12..13).await;
        let (flusher, _heard) = copy.flusher(on_demand());
        flusher.flush(&[table], Duration::from_millis(300)).await.expect_err("should be refused");
        flusher.stop().await;
    }
    assert_eq!((kit.numbers(table).await.len(), copy.unflushed_rows(table)), (10, 18));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_doubt_is_kept_or_dropped_as_somebody_decides() {
    for (decision, in_table) in [(Decision::Keep, 10 + 5 + 2), (Decision::Drop, 10)] {
        let (kit, copy, [table, other]) = copied().await;
        let (flusher, _heard) = copy.flusher(on_demand());
        let decided = flusher.flush_deciding(&[table, other], Duration::from_secs(30), Some(decision)).await;
        decided.expect("should be done");
        assert_eq!((kit.numbers(table).await.len(), copy.unflushed_rows(table)), (in_table, 0), "{decision:?}");
        assert_eq!(kit.numbers(other).await.len(), 7, "{decision:?} is not about a table that is in no doubt");
        flusher.stop().await;
        drop(flusher);

        let copy = copy.restart();
        assert_eq!(copy.unflushed_rows(table), 0);
        copy.append(table, 2, 100..101).await;
        let (flusher, _heard) = copy.flusher(on_demand());
        flusher.flush(&[table], Duration::from_secs(30)).await.expect("should be in doubt no longer");
        assert_eq!(kit.numbers(table).await.len(), in_table + 1);
        flusher.stop().await;
    }
}

/// The original goes on as a start that the copy has never heard of, and both have forgotten their oldest ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_noticed_after_more_starts_than_a_table_remembers() {
    let flushed = async |kit: &Kit, table| {
        let (flusher, _heard) = kit.flusher(on_demand());
        let outcome = flusher.flush(&[table], Duration::from_secs(10)).await;
        flusher.stop().await;
        outcome
    };
    let mut kit = Kit::new();
    let table = kit.table("cpu").await;
    for hour in 0..6 {
        kit.append(table, hour, 0..1).await;
        flushed(&kit, table).await.expect("its own starts are in no doubt");
        kit = kit.restart();
    }
    kit.append(table, 7, 0..5).await;
    let copy = kit.with_data(kit.fs.snapshot().crash_process());
    let kit = kit.restart();
    flushed(&kit, table).await.expect("its own starts are in no doubt");
    let error = flushed(&copy, table).await.expect_err("should be refused").to_string();
    assert!(error.contains("restored or cloned"), "{error}");
    assert_eq!((kit.numbers(table).await.len(), copy.unflushed_rows(table)), (6 + 5, 5));
}
