use super::*;
use crate::query::view::Unflushed;

async fn snapshots(kit: &Kit, unflushed: Unflushed) -> (Option<u64>, u64, usize) {
    let pinned = unflushed.with_snapshots(&kit.lake, kit.store.node()).await.expect("should pin").remove(0);
    let flushed = pinned.snapshot.as_ref().and_then(|s| s.rows()).unwrap_or(0);
    let unflushed: u64 = pinned.unflushed.iter().map(|g| g.totals().rows).sum();
    (pinned.snapshot.map(|s| s.version()), flushed + unflushed, pinned.unflushed.len())
}

#[tokio::test]
async fn a_generation_that_commits_between_the_halves_of_a_view_is_seen_once() {
    for leaves_the_store in [false, true] {
        let kit = Kit::new();
        let table = kit.table("cpu", "n long").await;
        kit.append(&table, 1, "{\"n\":1}\n{\"n\":2}").await;
        let unflushed = Unflushed::pin(&kit.store, &kit.registry, vec![Arc::clone(&table)]);
        let commit = kit.commit(&table).await;
        if leaves_the_store {
            kit.store.commit(commit).wait().await.expect("should record");
        }
        assert_eq!(snapshots(&kit, unflushed).await, (Some(1), 2, 0));
    }
}

/// Between the PUT and the look that confirms it, a snapshot may have the commit or not: each row is seen once.
#[tokio::test]
async fn a_commit_that_is_not_confirmed_is_seen_once() {
    let kit = Kit::new();
    let table = kit.table("cpu", "n long").await;
    kit.append(&table, 1, "{\"n\":1}\n{\"n\":2}").await;
    kit.flush(&table).await;
    let lake_table = kit.lake.table(table.id, &table.spec.name);
    for kept in [true, false] {
        kit.append(&table, 1, "{\"n\":3}").await;
        let expected = if kept { "3 3" } else { "4 3" };
        kit.land(&table).await;
        if !kept {
            lake_table.snapshot(None).await.expect("should read what is there");
        }
        assert_eq!(kit.ask("select count(*), count(distinct n) from cpu").await, expected);
        lake_table.confirm().await.expect("should confirm");
        assert_eq!(kit.ask("select count(*), count(distinct n) from cpu").await, expected);
    }
}

#[tokio::test]
async fn rows_that_come_after_the_first_half_are_not_seen() {
    let kit = Kit::new();
    let table = kit.table("cpu", "n long").await;
    kit.append(&table, 1, "{\"n\":1}").await;
    let unflushed = Unflushed::pin(&kit.store, &kit.registry, vec![Arc::clone(&table)]);
    kit.append(&table, 1, "{\"n\":2}").await;
    kit.append(&table, 2, "{\"n\":3}").await;
    assert_eq!(snapshots(&kit, unflushed).await, (None, 1, 1));
}

#[tokio::test]
async fn a_snapshot_is_never_older_than_what_has_left_the_store() {
    let kit = Kit::new();
    let table = kit.table("cpu", "n long").await;
    for n in 1..=10 {
        kit.append(&table, n % 3, &format!("{{\"n\":{n}}}")).await;
        assert_eq!(kit.ask("select count(*) from cpu").await, n.to_string());
        kit.flush(&table).await;
        assert!(kit.store.view(table.id).generations.is_empty());
        assert_eq!(kit.ask("select count(*) from cpu").await, n.to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn counts_never_go_back_and_never_miss_an_acknowledged_row() {
    let kit = Arc::new(Kit::new());
    let table = kit.table("cpu", "n long").await;
    kit.append(&table, 0, "{\"n\":0}").await;
    kit.flush(&table).await;
    let acked = Arc::new(std::sync::atomic::AtomicU64::new(1));
    let writing = tokio::spawn({
        let (kit, table, acked) = (Arc::clone(&kit), Arc::clone(&table), Arc::clone(&acked));
        async move {
            for n in 1..120 {
                kit.append(&table, n % 3, &format!("{{\"n\":{n}}}")).await;
                acked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                if n % 5 == 4 {
                    kit.flush(&table).await;
                }
            }
        }
    });
    let mut before = 0;
    while !writing.is_finished() {
        let least = acked.load(std::sync::atomic::Ordering::SeqCst);
        let counted: u64 = kit.ask("select count(*) from cpu").await.parse().expect("should be a number");
        assert!(counted >= least.max(before), "{counted} rows, {least} acknowledged, {before} counted before");
        before = counted;
    }
    writing.await.expect("should write");
    assert_eq!(kit.ask("select count(*), count(distinct n), sum(n) from cpu").await, "120 120 7140");
}

#[tokio::test]
async fn a_lake_that_cannot_be_read_is_an_error_and_not_a_short_answer() {
    let kit = Kit::new();
    let table = kit.table("cpu", "n long").await;
    kit.append(&table, 1, "{\"n\":1}").await;
    let log = kit.dir.path().join("lake/default/cpu/_delta_log");
    std::fs::create_dir_all(&log).expect("should make a directory");
    std::fs::write(log.join(format!("{:020}.json", 0)), "not JSON").expect("should write");
    let error = kit.run("select count(*) from cpu").await.expect_err("should fail");
    assert!(matches!(&error, Error::Lake { table, .. } if table.name() == "cpu"), "{error:?}");
    // What needs no rows goes on.
    assert_eq!(kit.ask("show tables").await, "default cpu");
}
