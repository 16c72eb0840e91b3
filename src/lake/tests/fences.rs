//! Another live process that writes as us.

use std::sync::Arc;

use object_store::memory::InMemory;
use penstock_store::{Incarnation, TableId};

use super::support::*;
use crate::lake::{Error, Kind, Lake};

fn twins() -> [(Lake, Arc<Faulty>); 2] {
    let objects = Arc::new(InMemory::new());
    let twin = || {
        let (lake, store) = Faulty::lake_over(objects.clone(), []);
        lake.identify(NODE, NOW);
        (lake, store)
    };
    [twin(), twin()]
}

fn is_fenced(error: &Error) -> bool {
    matches!(error, Error::Fenced { .. }) && error.kind() == Kind::Refused
}

#[tokio::test]
async fn an_entry_of_our_start_that_we_did_not_put_stops_all_tables() {
    let [(ours, store), _] = twins();
    let table = ours.table(TABLE, &name());
    table.resolve(&[NOW], NODE).await.expect("should resolve");
    ten_rows(&table, 1).await.expect("should commit");
    table.confirm().await.expect("should confirm");

    // A copy of this process, taken in the middle of its work: it goes on where we were.
    let (twin, _) = Faulty::lake_over(store.clone(), []);
    let adds = write(&table, 20_000, 10).await;
    commit_as(&twin.table(TABLE, &name()), NOW, 2..=2, &adds).await.expect("should commit");

    let error = ten_rows(&table, 2).await.expect_err("should be fenced");
    assert!(is_fenced(&error) && error.to_string().contains("version 2"), "{error}");
    let error = table.confirm().await.expect_err("should stay fenced");
    assert!(error.to_string().contains("restart"), "{error}");
    let other = ours.table(TableId(uuid::Uuid::from_u128(43)), &"metrics.disk".parse().expect("should be a name"));
    assert!(is_fenced(&other.resolve(&[NOW], NODE).await.expect_err("should be fenced too")));
}

#[tokio::test]
async fn a_start_that_finds_itself_in_the_table_is_fenced() {
    let [(ours, _), (theirs, _)] = twins();
    ten_rows(&ours.table(TABLE, &name()), 1).await.expect("should commit");
    let error = theirs.table(TABLE, &name()).resolve(&[NOW], NODE).await.expect_err("should be fenced");
    assert!(is_fenced(&error), "{error}");
}

#[tokio::test]
async fn a_checkpoint_that_has_more_of_us_than_we_gave_is_enough() {
    let [(ours, store), _] = twins();
    let (twin, _) = Faulty::lake_over(store.clone(), []);
    let twin = twin.table(TABLE, &name());
    for sequence in 1..=3 {
        ten_rows(&twin, sequence).await.expect("should commit");
    }
    delta_rs_checkpoint(&twin).await;
    let error = ours.table(TABLE, &name()).resolve(&[NOW], NODE).await.expect_err("should be fenced");
    assert!(matches!(&error, Error::Fenced { version: None, .. }), "{error}");
}

/// Our own attempts may land behind our back, and late: they are ours.
#[tokio::test]
async fn our_own_late_entries_are_no_reason() {
    let [(lake, store), _] = twins();
    let table = lake.table(TABLE, &name());
    ten_rows(&table, 1).await.expect("should commit");
    let adds = write(&table, 20_000, 10).await;

    // Its answer is lost, and it cannot be read.
    store.then(Fault::LoseAnswer);
    store.fail_reads(4);
    commit_as(&table, NOW, 2..=2, &adds).await.expect_err("should stay open");
    assert_eq!(commit_as(&table, NOW, 2..=2, &adds).await.expect("should be adopted"), adopted(2));

    // Its caller has left.
    store.then(Fault::Hang { applied: true });
    let left = tokio::time::timeout(CALL_TIMEOUT / 4, commit_as(&table, NOW, 3..=3, &adds)).await;
    assert!(left.is_err());
    assert_eq!(commit_as(&table, NOW, 3..=3, &adds).await.expect("should be adopted"), adopted(3));

    // An earlier start's, which was killed.
    let late = store.entry(1).await.expect("should have version 1");
    let earlier = Incarnation(5);
    let late = String::from_utf8_lossy(&late).replace(&NOW.to_string(), &earlier.to_string());
    store.then(Fault::Rival(late));
    assert_eq!(commit_as(&table, earlier, 1..=1, &adds).await.expect("should be adopted"), adopted(4));
    assert_eq!(table.confirm().await.expect("should confirm"), Some(4));
}
