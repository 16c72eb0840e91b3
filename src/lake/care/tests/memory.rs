//! Entries that this process has had in its hands are not read again, and nothing else is taken for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use object_store::path::Path;
use penstock_store::Incarnation;

use super::rig::*;
use crate::lake::LakeTable;
use crate::lake::care::checkpoint::Hint;
use crate::lake::care::memory::Memory;
use crate::lake::tests::support::*;

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

async fn commit_all(table: &LakeTable, sequences: std::ops::RangeInclusive<u64>) {
    for sequence in sequences {
        commit_one(table, sequence).await;
    }
}

async fn files_of_the_newest_checkpoint(rig: &Rig) -> (u64, Option<u64>) {
    let bytes = rig.read("_last_checkpoint").await.expect("should point to one");
    let hint: Hint = serde_json::from_slice(&bytes).expect("should be JSON");
    (hint.version, hint.num_of_add_files)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_costs_its_put_its_look_and_its_share_of_a_checkpoint() {
    let rig = Arc::new(Rig::default());
    let table = rig.lake(20).table(TABLE, &name());
    commit_all(&table, 1..=40).await;
    let before = [&rig.requests, &rig.lists, &rig.heads, &rig.entry_reads].map(count);
    commit_all(&table, 41..=100).await;
    let after = [&rig.requests, &rig.lists, &rig.heads, &rig.entry_reads].map(count);
    let [requests, lists, heads, reads] = std::array::from_fn(|at| after[at] - before[at]);
    let care = table.log_care();
    assert_eq!((care.checkpoint, care.last_error), (Some(99), None));
    assert_eq!((heads, reads), (0, 0), "nothing of ours is read again");
    // Nothing is old, so that nothing is removed.
    assert_eq!(
        lists,
        60 + 3 * 3,
        "one a commit, which confirms it; two a checkpoint, and one for the clean-up behind it"
    );
    assert_eq!(requests - lists, 60 + 3 * 5, "a PUT a commit; two PUTs and three GETs a checkpoint");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_others_are_read_once_and_are_in_the_checkpoint() {
    let rig = Arc::new(Rig::default());
    let table = rig.lake(10).table(TABLE, &name());
    // Nobody cares for the log there, so that this one does.
    let other = rig.lake(0).table(TABLE, &name());
    commit_all(&table, 1..=3).await;
    for sequence in 1..=2 {
        commit_as(&other, Incarnation(7), sequence..=sequence, &[some_file(), some_file()])
            .await
            .expect("should commit");
    }
    let before = count(&rig.entry_reads);
    commit_all(&table, 4..=7).await;
    assert_eq!(count(&rig.entry_reads) - before, 3, "two that were there before ours, and a look for a third");
    let care = table.log_care();
    assert_eq!((care.checkpoint, care.last_error), (Some(9), None));
    assert_eq!(files_of_the_newest_checkpoint(&rig).await, (9, Some(3 + 4 + 4)));

    // The next process has none of them in memory.
    let next = rig.lake(10).table(TABLE, &name());
    commit_all(&table, 8..=12).await;
    next.resolve(&[NOW], NODE).await.expect("should open");
    let before = count(&rig.entry_reads);
    commit_all(&next, 13..=17).await;
    assert_eq!(files_of_the_newest_checkpoint(&rig).await, (19, Some(11 + 10)));
    assert_eq!(count(&rig.entry_reads) - before, 5, "those of the process before");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_was_replaced_is_not_taken_for_ours() {
    let rig = Arc::new(Rig::default());
    let table = rig.lake(10).table(TABLE, &name());
    commit_all(&table, 1..=8).await;
    let entry = |version: u64| format!("{version:020}.json");
    let mut replaced = rig.read(&entry(4)).await.expect("should be there").to_vec();
    let add = serde_json::json!({ "add": some_file() }).to_string();
    replaced.extend_from_slice(format!("\n{add}").as_bytes());
    rig.write(&entry(4), replaced.into()).await;
    let before = count(&rig.entry_reads);
    commit_one(&table, 9).await;
    assert_eq!(count(&rig.entry_reads) - before, 1);
    assert_eq!(files_of_the_newest_checkpoint(&rig).await, (9, Some(10)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hole_is_not_filled_from_memory() {
    let rig = Arc::new(Rig::default());
    let table = rig.lake(10).table(TABLE, &name());
    commit_all(&table, 1..=8).await;
    rig.remove(&format!("{:020}.json", 4)).await;
    // The look that confirms begins behind the hole.
    commit_one(&table, 9).await;
    let care = table.log_care();
    assert!(care.last_error.is_some(), "{care:?}");
    assert_eq!(care.checkpoint, None);
    assert!(!rig.log().await.contains(&checkpoint(9)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_of_another_writer_is_not_replaced() {
    let rig = Arc::new(Rig::default());
    let table = rig.lake(10).table(TABLE, &name());
    commit_all(&table, 1..=8).await;
    rig.appears_before_put(&checkpoint(9), "another writer's".into());
    commit_one(&table, 9).await;
    assert_eq!(rig.read(&checkpoint(9)).await, Some("another writer's".into()));
    // It is not ours to vouch for, and the next one is due as if it were.
    let care = table.log_care();
    assert_eq!((care.checkpoint, care.last_error), (None, None));
    rig.remove(&checkpoint(9)).await;
    commit_all(&table, 10..=19).await;
    assert_eq!(table.log_care().checkpoint, Some(19));
}

fn path(number: usize) -> Path {
    Path::from(format!("table/_delta_log/{number:020}.json"))
}

#[test]
fn memory_gives_what_the_tag_says_and_gives_it_once() {
    let memory = Memory::default();
    let bytes = Bytes::from_static(b"{}");
    memory.note(path(1), Some("\"a\""), &bytes);
    assert_eq!(memory.take(&path(1), "W/\"a\""), Some(bytes.clone()), "one tag in two spellings");
    assert_eq!(memory.take(&path(1), "a"), None, "it is given up");
    memory.note(path(1), Some("a"), &bytes);
    assert_eq!(memory.take(&path(1), "b"), None, "another object");
    memory.note(path(1), None, &bytes);
    assert_eq!(memory.take(&path(1), ""), None, "no tag, no proof");
    // What was noted under the name before is no longer what lies there.
    memory.note(path(1), Some("a"), &bytes);
    memory.note(path(1), None, &bytes);
    assert_eq!(memory.take(&path(1), "a"), None);
}

#[test]
fn memory_has_a_limit_and_forgets_the_oldest_first() {
    let memory = Memory::with_limit(10 * 1_256);
    let bytes = Bytes::from(vec![b' '; 1_000]);
    for number in 0..100 {
        memory.note(path(number), Some("a"), &bytes);
    }
    let kept: Vec<usize> = (0..100).filter(|number| memory.take(&path(*number), "a").is_some()).collect();
    assert_eq!(kept, (90..100).collect::<Vec<_>>());
    // What was taken no longer counts.
    for number in 0..10 {
        memory.note(path(number), Some("a"), &bytes);
    }
    assert!((0..10).all(|number| memory.take(&path(number), "a").is_some()));
    let large = Bytes::from(vec![b' '; 2 << 20]);
    let memory = Memory::default();
    memory.note(path(1), Some("a"), &large);
    assert_eq!(memory.take(&path(1), "a"), None, "one large file would push out many small ones");
}
