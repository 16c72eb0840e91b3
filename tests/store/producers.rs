//! Stamped records: a repeat gets the first one's receipt, whatever happened in between, and what is not certain is refused.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_store::bucket::producer::WINDOW;
use penstock_store::fs::{Fault, FaultKind, FileSystem, MemoryFileSystem, Operation};
use penstock_store::{AppendError, Appended, Options, Pending, ProducerId, ProducerLimits, Stamp, Store};

use crate::hook::{Gate, Hooked};
use crate::kit::{self, append, bucket, commit, define, payloads, seal, slice, table, try_append};

const SEEDS: u64 = 8;

fn options() -> Options {
    Options { checkpoint_interval: None, ..kit::options() }
}

fn open(fs: &MemoryFileSystem) -> Store {
    Store::open(kit::shared(fs), Path::new(kit::DIR), &options()).expect("should open")
}

fn stamp(producer: u128, epoch: u32, sequence: u64) -> Stamp {
    Stamp { producer: ProducerId(producer), epoch, sequence }
}

fn text(stamp: Stamp) -> String {
    format!("{}/{}/{}", stamp.producer.0, stamp.epoch, stamp.sequence)
}

/// A record that tells its stamp.
fn push(store: &Store, stamp: Stamp) -> Pending<Appended> {
    store.append_stamped(stamp, vec![slice(table(1), bucket(0), text(stamp))]).expect("should queue")
}

/// Where the record lies, whichever attempt it is.
fn place(answer: Result<Appended, AppendError>) -> Result<Appended, AppendError> {
    answer.map(|appended| Appended { repeat_of: None, ..appended })
}

fn try_send(store: &Store, stamp: Stamp) -> Result<Appended, AppendError> {
    place(push(store, stamp).wait_blocking())
}

fn send(store: &Store, stamp: Stamp) -> Appended {
    try_send(store, stamp).unwrap_or_else(|error| panic!("{stamp:?}: {error}"))
}

/// How often each record is there.
fn found(store: &Store) -> HashMap<String, usize> {
    let mut found = HashMap::new();
    for payload in payloads(store, table(1)) {
        *found.entry(String::from_utf8(payload.to_vec()).expect("should be text")).or_default() += 1;
    }
    found
}

fn new_store() -> (MemoryFileSystem, Store) {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    (fs, store)
}

#[test]
fn a_repeat_gets_the_first_receipt_and_adds_nothing() {
    let (_fs, store) = new_store();
    let receipts: Vec<_> = (0..10).map(|n| send(&store, stamp(1, 0, n))).collect();
    for (n, receipt) in (0..).zip(&receipts) {
        assert_eq!(send(&store, stamp(1, 0, n)), *receipt);
        // The stamp is what counts, not what comes with it.
        let other = vec![slice(table(1), bucket(9), "something else"), slice(table(1), bucket(8), "and more")];
        let answer = store.append_stamped(stamp(1, 0, n), other).expect("should queue").wait_blocking();
        assert_eq!(place(answer), Ok(*receipt));
    }
    assert_eq!(found(&store).values().sum::<usize>(), 10);
    assert_ne!(send(&store, stamp(2, 0, 3)), receipts[3], "another producer's");
    assert_ne!(send(&store, stamp(1, 1, 3)), receipts[3], "another epoch's");
}

#[test]
fn stamps_count_per_table() {
    let (_fs, store) = new_store();
    define(&store, table(2));
    let first = send(&store, stamp(1, 0, 0));
    let other = vec![slice(table(2), bucket(0), "another table")];
    let answer = store.append_stamped(stamp(1, 0, 0), other).expect("should queue").wait_blocking();
    assert_ne!(answer.expect("should be new"), first);
}

#[test]
fn a_repeat_in_flight_waits_for_the_first_ones_sync_and_gets_its_receipt() {
    let fs = MemoryFileSystem::new();
    let gate = Arc::new(Gate::default());
    let door = Arc::clone(&gate);
    let hooked: Arc<dyn FileSystem> = Hooked::shared(&fs, move |call, path| {
        let is_log = path.to_string_lossy().contains("shard-") && call == "sync_data";
        if is_log && std::thread::current().name().is_some_and(|name| name.starts_with("penstock-log")) {
            door.pass();
        }
        Ok(())
    });
    let store = Store::open(hooked, Path::new(kit::DIR), &options()).expect("should open");
    define(&store, table(1));
    gate.shut();
    let before = push(&store, stamp(1, 0, 0));
    gate.await_visitor();
    // The first one is being synced; its repeat, and another pair, wait for the group behind it.
    let waiting = [push(&store, stamp(1, 0, 0)), push(&store, stamp(1, 0, 1)), push(&store, stamp(1, 0, 1))];
    assert!(found(&store).is_empty(), "nothing is visible before its sync");
    gate.open();
    let first = before.wait_blocking().expect("should be durable");
    let [again, second, third] = waiting.map(|pending| place(pending.wait_blocking()).expect("should be durable"));
    assert_eq!(again, first);
    assert_eq!(third, second);
    assert_eq!(found(&store).len(), 2);
    assert!(found(&store).values().all(|count| *count == 1));
}

#[test]
fn a_producer_may_begin_with_more_than_a_window_in_one_group() {
    let (fs, store) = new_store();
    let waiting: Vec<_> = (0..WINDOW + 200).map(|n| push(&store, stamp(1, 4, n))).collect();
    for pending in waiting {
        pending.wait_blocking().expect("should be durable");
    }
    assert_eq!(found(&store).len() as u64, WINDOW + 200);
    assert_eq!(try_send(&store, stamp(1, 4, 199)), Err(AppendError::UnknownSequence(199)));
    drop(store);
    let store = open(&fs);
    assert_eq!(found(&store).len() as u64, WINDOW + 200);
    assert_eq!(try_send(&store, stamp(1, 4, 199)), Err(AppendError::UnknownSequence(199)));
    send(&store, stamp(1, 4, 200));
    assert_eq!(found(&store).len() as u64, WINDOW + 200);
}

#[test]
fn a_repeat_is_known_after_every_way_to_end_and_to_go_on() {
    let (fs, store) = new_store();
    let mut receipts = Vec::new();
    let mut next = 0;
    let mut send_some = |store: &Store| {
        for _ in 0..5 {
            receipts.push(send(store, stamp(1, 0, next)));
            next += 1;
        }
        receipts.clone()
    };
    let check = |fs: &MemoryFileSystem, receipts: &[Appended], what: &str| {
        for seed in 0..SEEDS {
            let store = open(&fs.snapshot().crash(seed));
            let before = found(&store);
            for (n, receipt) in (0..).zip(receipts) {
                assert_eq!(send(&store, stamp(1, 0, n)), *receipt, "{what}, power loss {seed}");
            }
            assert_eq!(found(&store), before, "{what}, power loss {seed}");
        }
    };
    let receipts = send_some(&store);
    check(&fs, &receipts, "in the log");
    store.checkpoint().expect("should checkpoint");
    check(&fs, &receipts, "checkpointed");
    let receipts = send_some(&store);
    check(&fs, &receipts, "half in the manifest, half in the log");
    let sealed = seal(&store).expect("should seal");
    commit(&store, &sealed).expect("should commit");
    assert!(found(&store).is_empty());
    check(&fs, &receipts, "in Delta");
    store.checkpoint().expect("should checkpoint");
    check(&fs, &receipts, "in Delta, and nothing of it in the log");
    store.close().expect("should close");
    check(&fs, &receipts, "closed");
    drop(store);
    let store = open(&fs);
    let receipts = send_some(&store);
    store.checkpoint().expect("should checkpoint");
    check(&fs, &receipts, "over two starts");
}

#[test]
fn what_comes_out_of_order_from_several_threads_is_never_taken_for_a_repeat() {
    let (fs, store) = new_store();
    const COUNT: u64 = 400;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                // From above and from below, each sequence by one thread and again by the next one.
                for n in 0..COUNT {
                    let n = if thread % 2 == 0 { n } else { COUNT - 1 - n };
                    if n % 4 == thread || n % 4 == (thread + 1) % 4 {
                        drop(push(store, stamp(1, 0, n)));
                    }
                    if n == COUNT / 2 && thread == 0 {
                        store.checkpoint().expect("should checkpoint");
                    }
                }
                send(store, stamp(2 + u128::from(thread), 0, 0));
            });
        }
    });
    let is_whole = |store: &Store| {
        let found = found(store);
        assert!((0..COUNT).all(|n| found.get(&text(stamp(1, 0, n))) == Some(&1)), "each exactly once");
        assert_eq!(found.len() as u64, COUNT + 4);
    };
    is_whole(&store);
    let receipts: Vec<_> = (0..COUNT).map(|n| send(&store, stamp(1, 0, n))).collect();
    drop(store);
    let store = open(&fs);
    let again: Vec<_> = (0..COUNT).rev().map(|n| send(&store, stamp(1, 0, n))).collect();
    assert!(receipts.iter().eq(again.iter().rev()));
    is_whole(&store);
}

#[test]
fn below_the_window_nothing_is_known() {
    let (fs, store) = new_store();
    send(&store, stamp(1, 0, 0));
    let kept = send(&store, stamp(1, 0, 3));
    send(&store, stamp(1, 0, WINDOW + 2));
    let check = |store: &Store| {
        assert_eq!(try_send(store, stamp(1, 0, 0)), Err(AppendError::UnknownSequence(0)), "it was seen");
        assert_eq!(try_send(store, stamp(1, 0, 2)), Err(AppendError::UnknownSequence(2)), "it was not");
        assert_eq!(send(store, stamp(1, 0, 3)), kept, "the lowest of the window");
        let far = WINDOW;
        assert_eq!(try_send(store, stamp(9, 0, far)), Err(AppendError::UnknownSequence(far)), "nobody begins there");
        assert_eq!(found(store).len(), 3);
    };
    check(&store);
    store.checkpoint().expect("should checkpoint");
    drop(store);
    let store = open(&fs);
    check(&store);
    // A new epoch goes on.
    send(&store, stamp(1, 1, 0));
    assert_eq!(try_send(&store, stamp(1, 0, 3)), Err(AppendError::Fenced { newest: 1 }));
}

#[test]
fn an_older_epoch_is_fenced_off_for_good() {
    let (fs, store) = new_store();
    send(&store, stamp(1, 3, 0));
    let newest = send(&store, stamp(1, 5, 0));
    let fenced = |store: &Store| {
        for epoch in [0, 3, 4] {
            for sequence in [0, 1] {
                let answer = try_send(store, stamp(1, epoch, sequence));
                assert_eq!(answer, Err(AppendError::Fenced { newest: 5 }), "epoch {epoch}");
            }
        }
        assert_eq!(send(store, stamp(1, 5, 0)), newest);
    };
    fenced(&store);
    let mut fs = fs;
    let mut store = store;
    for round in 0..3 {
        let next = fs.crash(round);
        drop(store);
        fs = next;
        store = open(&fs);
        fenced(&store);
        store.checkpoint().expect("should checkpoint");
    }
}

#[test]
fn a_stamped_record_is_of_one_table() {
    let (_fs, store) = new_store();
    define(&store, table(2));
    let record = vec![slice(table(1), bucket(0), "one"), slice(table(2), bucket(0), "another")];
    let refused = store.append_stamped(stamp(1, 0, 0), record.clone());
    assert!(matches!(refused, Err(AppendError::Encode(_))), "{refused:?}");
    store.append(record).expect("should queue").wait_blocking().expect("without a stamp it may be of both");
    let first = send(&store, stamp(1, 0, 0));
    assert_eq!(send(&store, stamp(1, 0, 0)), first, "what was refused left no trace");
}

#[test]
fn a_record_that_is_refused_leaves_no_trace_of_its_stamp() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    assert_eq!(try_send(&store, stamp(1, 0, 0)), Err(AppendError::Undefined(table(1), 1)));
    define(&store, table(1));
    send(&store, stamp(1, 0, 0));
    let spares = || fs.files().iter().filter(|path| path.to_string_lossy().contains("spare-")).count();
    let deadline = Instant::now() + Duration::from_secs(5);
    while spares() < 2 {
        assert!(Instant::now() < deadline, "the pool makes no files");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(5));
    let used: usize = fs.files().iter().map(|path| fs.dump(path).expect("should be there").len()).sum();
    fs.set_capacity(used as u64);
    while try_append(&store, vec![7; 3000]).is_ok() {}
    // A group of several, with repeats among them, and a newer epoch that is not to fence anybody off.
    let large = |stamp: Stamp| vec![slice(table(1), bucket(0), text(stamp)), slice(table(1), bucket(1), vec![7; 9000])];
    let stamps = [stamp(1, 0, 1), stamp(1, 0, 1), stamp(1, 0, 2), stamp(1, 7, 0), stamp(8, 0, 0)];
    let waiting = stamps.map(|stamp| store.append_stamped(stamp, large(stamp)).expect("should queue"));
    for answer in waiting.map(Pending::wait_blocking) {
        assert!(matches!(answer, Err(AppendError::NoSpace(_))), "{answer:?}");
    }
    assert_eq!(store.poisoned(), None);
    fs.set_capacity(u64::MAX);
    let send_large = |stamp: Stamp| {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let pending = store.append_stamped(stamp, large(stamp)).expect("should queue");
            match pending.wait_blocking() {
                Ok(receipt) => return Appended { repeat_of: None, ..receipt },
                Err(AppendError::NoSpace(_)) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => panic!("{stamp:?}: {error}"),
            }
        }
    };
    let receipts = stamps.map(|s| if s.epoch == 7 { None } else { Some(send_large(s)) });
    assert_eq!(receipts[0], receipts[1]);
    assert!(send_large(stamp(1, 0, 2)) == receipts[2].expect("should be sent"));
    let killed = fs.crash_process();
    drop(store);
    let store = open(&killed);
    let rows: Vec<_> = payloads(&store, table(1)).into_iter().filter(|p| p.len() < 100).collect();
    for s in [stamp(1, 0, 0), stamp(1, 0, 1), stamp(1, 0, 2), stamp(8, 0, 0)] {
        assert_eq!(rows.iter().filter(|row| **row == text(s)).count(), 1, "{s:?}");
    }
    assert_eq!(rows.len(), 4);
}

#[test]
fn a_first_attempt_that_failed_is_there_exactly_once_after_its_repeat() {
    let mut outcomes = [0, 0];
    for (operation, error) in [
        (Operation::Write, FaultKind::Eio),
        (Operation::Write, FaultKind::ShortThenError { bytes: 4096 }),
        (Operation::SyncData, FaultKind::Eio),
        (Operation::SyncData, FaultKind::ShortThenError { bytes: 4096 }),
    ] {
        let (fs, store) = new_store();
        let first = send(&store, stamp(1, 0, 0));
        // Until the owner has left its mark, which would meet the failed write.
        std::thread::sleep(Duration::from_millis(20));
        fs.fail(Fault { operation, nth: 1, path_contains: Some(".seg".to_owned()), error, sticky: false });
        let answers = [push(&store, stamp(1, 0, 1)), push(&store, stamp(1, 0, 1))].map(Pending::wait_blocking);
        for answer in answers {
            assert!(matches!(answer, Err(AppendError::Poisoned { .. })), "{answer:?}");
        }
        let fs = fs.snapshot();
        drop(store);
        let starts = (0..2 * SEEDS).map(|seed| fs.snapshot().crash(seed)).chain([fs.snapshot()]);
        for fs in starts {
            let store = open(&fs);
            let is_there = found(&store).contains_key(&text(stamp(1, 0, 1)));
            outcomes[usize::from(is_there)] += 1;
            let second = send(&store, stamp(1, 0, 1));
            assert_eq!((send(&store, stamp(1, 0, 0)), send(&store, stamp(1, 0, 1))), (first, second));
            store.checkpoint().expect("should checkpoint");
            drop(store);
            let store = open(&fs);
            assert_eq!(send(&store, stamp(1, 0, 1)), second);
            assert_eq!(found(&store), [(text(stamp(1, 0, 0)), 1), (text(stamp(1, 0, 1)), 1)].into());
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "both outcomes have to be tried: {outcomes:?}");
}

#[test]
fn gaps_are_counted_per_table() {
    let (fs, store) = new_store();
    for n in [0, 2, 3, 6] {
        send(&store, stamp(1, 0, n));
    }
    assert_eq!(store.producer_gaps(table(1)), 0, "they may still come");
    send(&store, stamp(1, 0, WINDOW + 5));
    assert_eq!(store.producer_gaps(table(1)), 3, "1, 4 and 5 are below the window");
    assert_eq!(store.producer_gaps(table(2)), 0);
    drop(store);
    assert_eq!(open(&fs).producer_gaps(table(1)), 3, "a replay counts what it reads");
}

#[test]
fn a_new_producer_gets_no_place_while_the_others_are_not_idle() {
    let producers = ProducerLimits { max: 2, idle: Duration::from_secs(3600) };
    let options = Options { producers, ..options() };
    let fs = MemoryFileSystem::new();
    let open =
        |fs: &MemoryFileSystem| Store::open(kit::shared(fs), Path::new(kit::DIR), &options).expect("should open");
    let store = open(&fs);
    define(&store, table(1));
    let receipts = [1, 2].map(|producer| send(&store, stamp(producer, 0, 0)));
    let refused = |store: &Store| {
        assert_eq!(try_send(store, stamp(3, 0, 0)), Err(AppendError::TooManyProducers));
        assert_eq!([1, 2].map(|producer| send(store, stamp(producer, 0, 0))), receipts);
        append(store, "without a stamp");
    };
    refused(&store);
    store.checkpoint().expect("should checkpoint");
    drop(store);
    let store = open(&fs);
    refused(&store);
    drop(store);
    // The place of an idle one is free.
    let producers = ProducerLimits { max: 2, idle: Duration::ZERO };
    let options = Options { producers, ..options.clone() };
    let store = Store::open(kit::shared(&fs), Path::new(kit::DIR), &options).expect("should open");
    send(&store, stamp(3, 0, 0));
    assert_eq!(send(&store, stamp(2, 0, 0)), receipts[1], "the longest idle one gave its place");
    let third = send(&store, stamp(3, 0, 0));
    for seed in 0..SEEDS {
        let fs = fs.snapshot().crash(seed);
        let store = Store::open(kit::shared(&fs), Path::new(kit::DIR), &options).expect("should open");
        assert_eq!(send(&store, stamp(3, 0, 0)), third, "power loss {seed}");
        assert_eq!(send(&store, stamp(2, 0, 0)), receipts[1], "power loss {seed}");
    }
}

#[test]
fn windows_survive_a_manifest_that_is_begun_anew() {
    let (fs, store) = new_store();
    let receipts: Vec<_> = (0..50).map(|n| send(&store, stamp(n % 5, 2, (n / 5) as u64))).collect();
    store.checkpoint().expect("should checkpoint");
    let manifests =
        || -> Vec<_> { fs.files().into_iter().filter(|path| path.to_string_lossy().contains("edits-")).collect() };
    let first = manifests();
    for schema_version in 2..20 {
        let body = bytes::Bytes::from(vec![b'x'; 900_000]);
        let define = penstock_store::Define { table: table(1), schema_version, body };
        store.define(define).expect("should queue").wait_blocking().expect("should be durable");
        if schema_version == 4 {
            send(&store, stamp(7, 0, 0));
        }
        store.checkpoint().expect("should checkpoint");
    }
    assert_ne!(manifests(), first);
    for seed in 0..SEEDS {
        let store = open(&fs.snapshot().crash(seed));
        let again: Vec<_> = (0..50).map(|n| send(&store, stamp(n % 5, 2, (n / 5) as u64))).collect();
        assert_eq!(again, receipts, "power loss {seed}");
        assert_eq!(try_send(&store, stamp(1, 1, 0)), Err(AppendError::Fenced { newest: 2 }));
    }
}
