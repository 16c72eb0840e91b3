//! The scheduler driven by hand, event by event.

use super::*;
use crate::flush::Options;
use crate::flush::kit::{Kit, on_demand};
use crate::lake::{self, Lake};

mod copies;

fn scheduler(kit: &Kit, options: Options) -> (Scheduler, mpsc::UnboundedReceiver<Flushed>) {
    relieved(kit, options, 0)
}

fn relieved(kit: &Kit, options: Options, relief: u64) -> (Scheduler, mpsc::UnboundedReceiver<Flushed>) {
    let (flushed, heard) = mpsc::unbounded_channel();
    let relief: Relief = Arc::new(move || relief);
    let shared = Arc::new(Shared::new());
    (Scheduler::new(&kit.context(options), &shared, &relief, &Handle::current(), &flushed), heard)
}

impl Scheduler {
    async fn next(&mut self) -> Event {
        let ended = tokio::time::timeout(Duration::from_secs(30), self.tasks.join_next()).await;
        finished(ended.expect("a task should end").expect("a task should be running"))
    }

    /// Handles what happens until nothing is going on.
    async fn settle(&mut self) {
        self.start_work();
        while !self.tasks.is_empty() {
            let event = self.next().await;
            self.handle(event);
            self.start_work();
        }
    }

    /// Takes in what is sealed and asks the tables what they hold.
    async fn take_in(&mut self) {
        self.look(false);
        let all =
            self.memory.take(u64::MAX, self.context.options.get().memory.as_u64()).expect("should upload nothing yet");
        self.settle().await;
        drop(all);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_end_in_any_order_and_share_a_commit() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    for hour in 0..3 {
        kit.append(table, hour, hour * 5..hour * 5 + 5).await;
    }
    kit.seal(table).await;
    let (mut scheduler, mut heard) = scheduler(&kit, on_demand());
    scheduler.take_in().await;
    scheduler.start_work();
    let mut uploads = Vec::new();
    for _ in 0..3 {
        uploads.push(scheduler.next().await);
    }
    uploads.sort_by_key(|event| match event {
        Event::Uploaded { sealed, .. } => std::cmp::Reverse(sealed.seal.sequence),
        _ => panic!("should be an upload"),
    });
    for (upload, commits) in uploads.into_iter().zip([0, 0, 1]) {
        scheduler.handle(upload);
        scheduler.start_work();
        assert_eq!(scheduler.at_lake.running(), commits);
    }
    scheduler.settle().await;
    assert_eq!(kit.numbers(table).await, (0..15).collect::<Vec<_>>());
    let flushed = heard.try_recv().expect("should tell of the commit");
    assert_eq!((flushed.sequence, flushed.version, flushed.rows), (3, 1, 15));
    assert!(heard.try_recv().is_err(), "one commit should do");
    assert_eq!(kit.unflushed_rows(table), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_are_limited_and_tables_take_turns() {
    let kit = Kit::new();
    let (large, small) = (kit.table("large").await, kit.table("small").await);
    for hour in 0..4 {
        kit.append(large, hour, 0..1).await;
    }
    kit.append(small, 0, 0..1).await;
    for table in [large, small] {
        kit.seal(table).await;
    }
    let (mut scheduler, _heard) = scheduler(&kit, Options { parallelism: 1, ..on_demand() });
    scheduler.take_in().await;
    let mut order = Vec::new();
    for _ in 0..5 {
        scheduler.start_work();
        assert_eq!(scheduler.uploads.running(), 1);
        loop {
            let event = scheduler.next().await;
            let uploaded = matches!(&event, Event::Uploaded { .. });
            if let Event::Uploaded { sealed, .. } = &event {
                order.push(sealed.generation.table);
            }
            scheduler.handle(event);
            if uploaded {
                break;
            }
        }
    }
    assert!(order[..2].contains(&small), "{order:?}");
}

/// A commit of an earlier attempt lands after the table was asked: the table then holds a part of what is to be committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_commit_of_a_part_is_found_out_and_the_rest_committed() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    for hour in 0..3 {
        kit.append(table, hour, hour * 5..hour * 5 + 5).await;
    }
    let sealed = kit.seal(table).await;
    let (mut scheduler, mut heard) = scheduler(&kit, on_demand());
    scheduler.take_in().await;
    scheduler.start_work();
    let mut uploads = Vec::new();
    for _ in 0..3 {
        uploads.push(scheduler.next().await);
    }
    // Another handle, as the process had before it was killed.
    let before = Lake::open(&lake::Options::default(), kit.dir.path()).expect("should open the lake");
    let known = kit.registry.by_id(table).expect("should be known");
    let files = kit.upload(&kit.context(on_demand()), &sealed[0]).await.expect("should upload");
    let late = lake::Commit {
        node: kit.store.node(),
        incarnation: sealed[0].seal.incarnation,
        first_sequence: 1,
        sequence: 1,
        spec: &known.spec,
        adds: &files.adds,
    };
    before.table(table, &known.spec.name).commit(late).await.expect("should commit");
    for upload in uploads {
        scheduler.handle(upload);
    }
    scheduler.start_work();
    let refused = scheduler.next().await;
    assert!(matches!(&refused, Event::Committed { result: Err(error), .. } if error.is_stale()));
    scheduler.handle(refused);
    scheduler.settle().await;
    assert_eq!(kit.numbers(table).await, (0..15).collect::<Vec<_>>());
    let told: Vec<_> = std::iter::from_fn(|| heard.try_recv().ok()).map(|f| (f.sequence, f.rows)).collect();
    assert_eq!(told, [(1, 5), (3, 10)]);
}

/// Tasks that are cut off, as by a panic of the scheduler, may land all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_begins_anew_in_the_middle_of_a_commit_writes_nothing_twice() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    for round in 0..20_i64 {
        kit.append(table, round, round * 5..round * 5 + 5).await;
        kit.seal(table).await;
        let (mut scheduler, _heard) = scheduler(&kit, on_demand());
        scheduler.take_in().await;
        scheduler.start_work();
        let upload = scheduler.next().await;
        scheduler.handle(upload);
        scheduler.start_work();
        tokio::time::sleep(Duration::from_micros(u64::try_from(round).expect("should fit") * 300)).await;
    }
    let (mut scheduler, _heard) = scheduler(&kit, on_demand());
    scheduler.look(false);
    scheduler.settle().await;
    assert_eq!(kit.numbers(table).await, (0..100).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn under_pressure_the_largest_buckets_are_sealed_and_no_more_than_needed() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    for (hour, rows) in [(0, 20_000), (1, 40_000), (2, 20_000)] {
        kit.append(table, hour, 0..rows).await;
    }
    let (mut scheduler, _heard) = relieved(&kit, on_demand(), 500_000);
    scheduler.look(true);
    let event = scheduler.next().await;
    assert!(matches!(event, Event::Sealed(Ok(()))));
    scheduler.handle(event);
    let sealed = kit.store.summaries().remove(0).sealed;
    assert_eq!(sealed.iter().map(|s| s.generation.bucket.start / 3_600_000_000).collect::<Vec<_>>(), [1]);
    // It is on its way now.
    scheduler.look(true);
    assert!(!scheduler.sealing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generation_that_cannot_be_read_stops_its_table_only() {
    let kit = Kit::new();
    let (bad, good) = (kit.table("bad").await, kit.table("good").await);
    for table in [bad, good] {
        kit.append(table, 0, 0..3).await;
    }
    kit.append_unreadable(bad, 1).await;
    for table in [bad, good] {
        kit.seal(table).await;
    }
    let (mut scheduler, _heard) = scheduler(&kit, on_demand());
    scheduler.look(false);
    scheduler.settle().await;
    assert_eq!(kit.unflushed_rows(good), 0);
    // The pause after the failure is over.
    scheduler.shared.demand([bad].into_iter());
    scheduler.look(false);
    scheduler.settle().await;
    assert_eq!(kit.numbers(bad).await, [0, 1, 2], "what is before it is committed");
    assert_eq!(kit.unflushed_rows(bad), 1, "it is kept");
    let error = scheduler.shared.tables.get(&bad).and_then(|p| p.last_error.clone()).expect("should say why");
    assert!(error.contains("encoding 99"), "{error}");
}

/// DL-10: whatever later buckets do.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_whose_upload_fails_again_and_again_is_committed_in_order_all_the_same() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    for hour in 0..3 {
        kit.append(table, hour, hour * 5..hour * 5 + 5).await;
    }
    kit.seal(table).await;
    let (mut scheduler, mut heard) = scheduler(&kit, on_demand());
    scheduler.context.panics.lock().insert(1);
    scheduler.look(false);
    for _ in 0..4 {
        scheduler.settle().await;
        assert_eq!(kit.unflushed_rows(table), 15, "nothing overtakes it");
        scheduler.shared.demand([table].into_iter());
        scheduler.look(false);
    }
    let shown = scheduler.shared.tables.get(&table).expect("should be shown").clone();
    assert_eq!((shown.waiting, shown.uploading, shown.ready), (1, 0, 2));
    assert!(shown.last_error.is_some_and(|error| error.contains("injected")));
    scheduler.context.panics.lock().clear();
    scheduler.settle().await;
    assert_eq!(kit.numbers(table).await, (0..15).collect::<Vec<_>>());
    let told: Vec<_> = std::iter::from_fn(|| heard.try_recv().ok()).map(|f| (f.sequence, f.version, f.rows)).collect();
    assert_eq!(told, [(3, 1, 15)]);
    let shown = scheduler.shared.tables.get(&table).expect("should be shown").clone();
    assert_eq!((shown.waiting, shown.ready, shown.last_error, shown.paused_until), (0, 0, None, None));
    assert!(shown.committed_at.is_some());
}

#[tokio::test]
async fn a_panic_is_an_error_of_its_task() {
    let fails = async { if Instant::now().elapsed() < Duration::MAX { panic!("oh {}", 1) } else { Ok(()) } };
    let error = job::guarded(fails).await.expect_err("should fail");
    assert_eq!(error.to_string(), "it panicked: oh 1");
}

#[tokio::test]
async fn a_scheduler_that_panics_begins_anew_and_one_that_is_stopped_does_not() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    kit.append(table, 0, 0..3).await;
    let shared = Arc::new(Shared::new());
    let first = std::sync::atomic::AtomicBool::new(true);
    let relief: Relief = Arc::new(move || {
        assert!(!first.swap(false, std::sync::atomic::Ordering::SeqCst), "only once");
        0
    });
    let (flushed, mut heard) = mpsc::unbounded_channel();
    let options = Options { max_age: Duration::ZERO, ..Options::default() };
    let running = supervise(kit.context(options), Arc::clone(&shared), relief, Handle::current(), flushed);
    let running = tokio::spawn(running);
    let told = tokio::time::timeout(Duration::from_secs(30), heard.recv()).await.expect("should flush");
    assert_eq!(told.map(|f| f.rows), Some(3));
    shared.stop();
    tokio::time::timeout(Duration::from_secs(30), running).await.expect("should stop").expect("should end well");
}

/// A full disk may refuse the record that would make room. It is written as soon as there is some.
#[tokio::test]
async fn a_commit_record_that_finds_no_space_is_written_later() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    kit.append(table, 0, 0..3).await;
    let seal = kit.seal(table).await[0].seal;
    kit.fs.set_capacity(0);
    let define = || penstock_store::Define { table, schema_version: 1, body: bytes::Bytes::from(vec![b' '; 60_000]) };
    while kit.store.define(define()).expect("should be a definition").wait().await.is_ok() {}
    let commit = Commit { table, incarnation: seal.incarnation, sequence: seal.sequence, version: 1 };
    let recording = record(Arc::clone(&kit.store), commit, kit.store.commit(commit));
    let mut recording = std::pin::pin!(recording);
    assert!(tokio::time::timeout(BACK_OFF / 2, &mut recording).await.is_err());
    assert_eq!(kit.unflushed_rows(table), 3);
    kit.fs.set_capacity(u64::MAX);
    tokio::time::timeout(BACK_OFF * 20, recording).await.expect("should be recorded");
    assert_eq!(kit.unflushed_rows(table), 0);
}

fn unhurried() -> Options {
    Options { confirm_delay: Duration::from_secs(3600), ..on_demand() }
}

#[tokio::test]
async fn rows_stay_until_their_commit_is_confirmed() {
    let kit = Kit::remote();
    let table = kit.table("cpu").await;
    kit.append(table, 0, 0..3).await;
    kit.seal(table).await;
    let (mut scheduler, mut heard) = scheduler(&kit, unhurried());
    scheduler.look(false);
    scheduler.settle().await;
    assert_eq!((kit.rows_in_lake(table).await, kit.unflushed_rows(table)), (3, 3));
    assert_eq!(kit.lake_table(table).published(), Some(0));
    assert!(heard.try_recv().is_err());

    scheduler.shared.demand([table].into_iter());
    scheduler.look(false);
    scheduler.settle().await;
    assert_eq!((kit.rows_in_lake(table).await, kit.unflushed_rows(table)), (3, 0));
    let flushed = heard.try_recv().expect("should tell of the commit");
    assert_eq!((flushed.version, flushed.rows), (1, 3));
    assert!(flushed.bytes > 0);
}

#[tokio::test]
async fn a_commit_is_confirmed_after_a_while_and_when_room_is_wanted() {
    for (delay, relief) in [(Duration::ZERO, 0), (Duration::from_secs(3600), 1)] {
        let kit = Kit::remote();
        let table = kit.table("cpu").await;
        kit.append(table, 0, 0..3).await;
        kit.seal(table).await;
        let (mut scheduler, _heard) = relieved(&kit, Options { confirm_delay: delay, ..on_demand() }, relief);
        scheduler.look(true);
        scheduler.settle().await;
        scheduler.look(true);
        scheduler.settle().await;
        assert_eq!(kit.unflushed_rows(table), 0, "{delay:?}, {relief}");
    }
}

/// The table is dropped at each moment between the upload and the confirmation.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_dropped_under_our_feet_gets_all_that_was_not_released() {
    for drop_at in ["uploaded", "landed"] {
        let kit = Kit::remote();
        let table = kit.table("cpu").await;
        let (mut scheduler, _heard) = scheduler(&kit, unhurried());
        for hour in 0..2 {
            kit.append(table, hour, hour * 5..hour * 5 + 5).await;
        }
        kit.seal(table).await;
        scheduler.look(false);
        scheduler.settle().await;
        scheduler.shared.demand([table].into_iter());
        scheduler.look(false);
        scheduler.settle().await;
        assert_eq!(kit.unflushed_rows(table), 0);

        kit.append(table, 3, 15..20).await;
        kit.seal(table).await;
        scheduler.look(false);
        if drop_at == "uploaded" {
            scheduler.start_work();
            let upload = scheduler.next().await;
            kit.drop_table(table).await;
            scheduler.handle(upload);
            scheduler.settle().await;
        } else {
            scheduler.settle().await;
            kit.drop_table(table).await;
        }
        assert_eq!(kit.unflushed_rows(table), 5, "{drop_at}");
        let last_error = |scheduler: &Scheduler| scheduler.shared.tables.get(&table).and_then(|p| p.last_error.clone());
        scheduler.shared.demand([table].into_iter());
        scheduler.look(false);
        scheduler.settle().await;
        let said = last_error(&scheduler).expect("should say what happened");
        assert!(said.contains("is gone"), "{said}");
        for _ in 0..2 {
            scheduler.shared.demand([table].into_iter());
            scheduler.look(false);
            scheduler.settle().await;
        }
        assert_eq!(kit.unflushed_rows(table), 0, "{drop_at}");
        assert_eq!(kit.rows_in_lake(table).await, 5, "what was dropped was dropped; {drop_at}");
        assert_eq!(last_error(&scheduler), None);
        let snapshot = kit.lake_table(table).snapshot(None).await.expect("should read").expect("should be there");
        let store = snapshot.log_store().object_store(None);
        for file in snapshot.eager().log_data().iter() {
            let path = file.path().into_owned();
            object_store::ObjectStoreExt::head(&*store, &path.into()).await.expect("the file should be there");
        }
    }
}

/// Windows of several buckets pass one after the other: they are sealed together.
#[tokio::test(flavor = "multi_thread")]
async fn buckets_whose_window_has_passed_wait_for_the_tables_cadence_and_other_tables_do_not() {
    let kit = Kit::new();
    let (table, other) = (kit.table("cpu").await, kit.table("disk").await);
    let long = Duration::from_secs(3600);
    let passed =
        Options { min_age: Duration::ZERO, grace: Duration::ZERO, commit_interval: long, max_age: long, ..on_demand() };
    let (mut scheduler, _heard) = scheduler(&kit, passed);
    let mut rows = Vec::new();
    for hour in 0..3 {
        kit.append(table, hour, 0..5).await;
        if hour == 2 {
            kit.append(other, hour, 0..5).await;
        }
        scheduler.look(true);
        scheduler.settle().await;
        rows.push((kit.unflushed_rows(table), kit.unflushed_rows(other)));
    }
    assert_eq!(rows, [(0, 0), (5, 0), (10, 0)]);
    // The interval is over.
    scheduler.cadences.clear();
    scheduler.look(true);
    scheduler.settle().await;
    assert_eq!(kit.unflushed_rows(table), 0);
    assert_eq!(kit.numbers(table).await.len(), 15);
    scheduler.look(true);
    assert_eq!(scheduler.shared.load.lock().active_tables, 1);
}
