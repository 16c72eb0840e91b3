//! Records with a key of their own: a repeat gets the first one's receipt and what was noted of it, whatever happened in between.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use penstock_store::fs::{FileSystem, MemoryFileSystem};
use penstock_store::reshape::reshape;
use penstock_store::{
    AppendError, Appended, Incarnation, KeyLimits, Note, Options, Pending, PostId, PostKey, ProducerId, Stamp, Store,
};

use crate::kit::{self, bucket, commit, define, payloads, seal, slice, table};

const SEEDS: u64 = 8;

fn options() -> Options {
    Options { checkpoint_interval: None, ..kit::options() }
}

fn open(fs: &MemoryFileSystem) -> Store {
    open_with(fs, &options())
}

fn open_with(fs: &MemoryFileSystem, options: &Options) -> Store {
    Store::open(kit::shared(fs), Path::new(kit::DIR), options).expect("should open")
}

fn key(key: u128) -> PostId {
    PostId::Key(PostKey(key))
}

fn note(key: u128) -> Note {
    Note { digest: 1_000 + key as u64, accepted: 7 * key as u32, rejected: key as u32 }
}

fn push(store: &Store, n: u128) -> Pending<Appended> {
    let rows = vec![slice(table(1), bucket(0), format!("row {n}"))];
    store.append_once(key(n), note(n), rows).expect("should queue")
}

fn send(store: &Store, n: u128) -> Appended {
    push(store, n).wait_blocking().unwrap_or_else(|error| panic!("{n}: {error}"))
}

fn send_all(store: &Store, keys: std::ops::Range<u128>) {
    for n in keys {
        send(store, n);
    }
}

/// What each of these records, which are known, is answered when it comes again; and who wrote it.
type Known = Vec<(Appended, Option<(Incarnation, u32)>)>;

fn again(store: &Store, count: u128) -> Known {
    let ask = |n: u128| {
        let answer = send(store, n);
        assert_eq!(answer.repeat_of, Some(note(n)), "{n} is not known");
        let seen = store.seen(table(1), key(n), note(n).digest).expect("should be known");
        assert_eq!(seen, Some(answer));
        assert_eq!(store.seen(table(1), key(n), 0), Err(AppendError::Reused));
        (answer, store.origin(table(1), answer.lsn))
    };
    (0..count).map(ask).collect()
}

fn rows(store: &Store) -> usize {
    payloads(store, table(1)).len()
}

#[test]
fn a_repeat_is_told_what_the_first_one_was_told_and_another_body_is_refused() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    assert_eq!(store.seen(table(1), key(0), note(0).digest), Ok(None));
    let waiting = [0, 1, 0, 0, 1].map(|n| push(&store, n));
    let answers = waiting.map(|pending| pending.wait_blocking().expect("should be durable"));
    // In one group, or in several: the first of each wrote, the others repeat it.
    assert_eq!(answers.map(|a| a.repeat_of), [None, None, Some(note(0)), Some(note(0)), Some(note(1))]);
    assert_eq!([2, 3, 4].map(|n: usize| answers[n].lsn), [0, 0, 1].map(|n: usize| answers[n].lsn));
    let other = || vec![slice(table(1), bucket(0), "another body")];
    let reused = store.append_once(key(0), note(9), other()).expect("should queue").wait_blocking();
    assert_eq!(reused, Err(AppendError::Reused));
    let stamp = PostId::Sequence(Stamp { producer: ProducerId(0), epoch: 0, sequence: 0 });
    let sent = store.append_once(stamp, note(9), other()).expect("should queue").wait_blocking();
    assert_eq!(sent.expect("a number is not a key").repeat_of, None);
    let reused = store.append_once(stamp, note(8), other()).expect("should queue").wait_blocking();
    assert_eq!(reused, Err(AppendError::Reused));
    assert_eq!(rows(&store), 3);
}

#[test]
fn a_repeat_is_known_after_every_way_to_end_and_to_go_on() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    let check = |fs: &MemoryFileSystem, known: &Known, what: &str| {
        for seed in 0..SEEDS {
            let store = open(&fs.snapshot().crash(seed));
            let before = rows(&store);
            assert_eq!(again(&store, known.len() as u128), *known, "{what}, power loss {seed}");
            assert_eq!(rows(&store), before, "{what}, power loss {seed}");
        }
    };
    send_all(&store, 0..4);
    let known = again(&store, 4);
    assert!(known.iter().all(|(_, origin)| *origin == Some((store.incarnation(), 0))));
    check(&fs, &known, "in the log");
    store.checkpoint().expect("should checkpoint");
    check(&fs, &known, "checkpointed");
    send_all(&store, 4..8);
    let known = again(&store, 8);
    check(&fs, &known, "half in the manifest, half in the log");
    let sealed = seal(&store).expect("should seal");
    commit(&store, &sealed).expect("should commit");
    store.checkpoint().expect("should checkpoint");
    check(&fs, &known, "in Delta, and nothing of it in the log");
    store.close().expect("should close");
    drop(store);
    // Over several starts, with a crash among them, every receipt stays that of the start that gave it.
    let mut fs = fs;
    let mut known = known;
    for round in 0..4_u128 {
        let store = open(&fs);
        send_all(&store, 8 + 3 * round..11 + 3 * round);
        let more = again(&store, 8 + 3 * round + 3);
        assert_eq!(more[..known.len()], known[..], "round {round}");
        known = more;
        if round % 2 == 0 {
            store.checkpoint().expect("should checkpoint");
        }
        let next = if round == 1 { fs.crash(7) } else { fs.crash_process() };
        drop(store);
        fs = next;
    }
    let starts: std::collections::HashSet<_> =
        known.iter().map(|(_, origin)| origin.expect("should be known").0).collect();
    assert_eq!(starts.len(), 5);
}

#[test]
fn a_repeat_is_known_after_a_change_of_the_number_of_logs() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    send_all(&store, 0..6);
    store.checkpoint().expect("should checkpoint");
    send_all(&store, 6..9);
    let known = again(&store, 9);
    let before = rows(&store);
    store.close().expect("should close");
    drop(store);
    let shared: Arc<dyn FileSystem> = kit::shared(&fs);
    let mut from = options();
    for shards in [3, 1, 2] {
        reshape(&shared, Path::new(kit::DIR), &from, shards, &from.lanes, &mut |_| {}).expect("should be done");
        from.shards = shards;
        let store = open_with(&fs, &from);
        let now = again(&store, 9);
        let places = |known: &Known| known.iter().map(|(a, origin)| (a.lsn, *origin)).collect::<Vec<_>>();
        assert_eq!(places(&now), places(&known), "{shards} shards");
        assert_eq!(rows(&store), before);
        let lsn = now[0].0.lsn;
        assert!(!store.whereabouts(table(1), lsn).expect("should be durable").is_gone());
    }
}

#[test]
fn no_key_is_forgotten_before_its_time_and_what_is_refused_leaves_no_trace() {
    let keys = KeyLimits { max: 3, keep: Duration::from_secs(3_600) };
    let options = Options { keys, ..options() };
    let fs = MemoryFileSystem::new();
    let store = open_with(&fs, &options);
    let undefined = push(&store, 0).wait_blocking();
    assert_eq!(undefined, Err(AppendError::Undefined(table(1), 1)));
    define(&store, table(1));
    (0..3).for_each(|n| assert_eq!(send(&store, n).repeat_of, None, "{n} was refused before, if at all"));
    let refused = |store: &Store| {
        assert_eq!(push(store, 3).wait_blocking(), Err(AppendError::TooManyKeys));
        assert_eq!(store.seen(table(1), key(3), 0), Err(AppendError::TooManyKeys));
        assert_eq!(again(store, 3).len(), 3);
        assert_eq!(rows(store), 3);
    };
    refused(&store);
    store.checkpoint().expect("should checkpoint");
    drop(store);
    let store = open_with(&fs, &options);
    refused(&store);
    drop(store);
    let keys = KeyLimits { keep: Duration::ZERO, ..keys };
    // Times are in whole seconds.
    std::thread::sleep(Duration::from_millis(1_100));
    let store = open_with(&fs, &Options { keys, ..options.clone() });
    assert_eq!(send(&store, 3).repeat_of, None, "it was refused, and is taken now");
    let oldest = store.seen(table(1), key(0), note(0).digest);
    assert!(oldest.is_ok_and(|seen| seen.is_none()), "the oldest gave its place");
    assert_eq!(send(&store, 1).repeat_of, Some(note(1)));
}

#[test]
fn the_rows_of_a_record_are_followed_until_they_have_left() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    define(&store, table(1));
    let whereabouts = |store: &Store, lsn| store.whereabouts(table(1), lsn).map(|w| (w.open, w.sealed.len()));
    let first = send(&store, 0);
    let next = penstock_store::Lsn(first.lsn.0 + 4096);
    assert_eq!(whereabouts(&store, next), None, "nothing is there yet");
    let beside = store.append(vec![slice(table(1), bucket(1), "another bucket")]).expect("should queue");
    let beside = beside.wait_blocking().expect("should be durable");
    let last = send(&store, 1);
    // In memory it is known which record each row is of.
    assert_eq!(whereabouts(&store, first.lsn), Some((1, 0)));
    assert_eq!(whereabouts(&store, beside.lsn), Some((1, 0)));
    let sealed = seal(&store).expect("should seal");
    let third = send(&store, 2);
    assert_eq!(
        [first, beside, last, third].map(|r| whereabouts(&store, r.lsn)),
        [Some((0, 1)), Some((1, 0)), Some((0, 1)), Some((1, 0))]
    );
    assert_eq!(sealed.generation.span(), (first.lsn, last.lsn));
    store.checkpoint().expect("should checkpoint");
    // In lane files it is known for whole generations only: it errs on the side of waiting.
    assert_eq!(whereabouts(&store, beside.lsn), Some((1, 1)));
    drop(store);
    let store = open(&fs);
    assert_eq!(whereabouts(&store, first.lsn), Some((0, 1)));
    assert_eq!(whereabouts(&store, third.lsn), Some((1, 0)));
    commit(&store, &sealed).expect("should commit");
    assert_eq!(whereabouts(&store, first.lsn), Some((0, 0)), "it has left");
    assert_eq!(whereabouts(&store, beside.lsn), Some((1, 0)));
    assert_eq!(store.origin(table(9), first.lsn).map(|(_, shard)| shard), Some(store.shard_of(table(9))));
}
