//! Another number of shards or lanes: the same rows, seals, sequences and receipts, whatever happens on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use penstock_store::fs::{Fault, FaultKind, FileSystem, MemoryFileSystem, Operation};
use penstock_store::reshape::{ReshapeError, ReshapeReport, Step, reshape};
use penstock_store::{
    Appended, Bucket, Commit, Define, Lsn, OpenError, Options, ProducerId, ProducerLimits, Sealed, Stamp,
};
use penstock_store::{Store, TableId};

use crate::kit::{self, bucket, define, slice, table};

mod cut;

/// Tables with rows; the next one is only defined.
const TABLES: u128 = 7;

fn lanes(count: usize) -> Vec<PathBuf> {
    (0..count).map(|n| PathBuf::from(format!("/lanes/{n}"))).collect()
}

fn options(shards: u32, lane_count: usize) -> Options {
    Options { shards, lanes: lanes(lane_count), checkpoint_interval: None, ..kit::options() }
}

fn try_open(fs: &MemoryFileSystem, options: &Options) -> Result<Store, OpenError> {
    Store::open(kit::shared(fs), Path::new(kit::DIR), options)
}

fn open(fs: &MemoryFileSystem, options: &Options) -> Store {
    try_open(fs, options).expect("should open")
}

fn change(fs: &Arc<dyn FileSystem>, from: &Options, to: &Options) -> Result<ReshapeReport, ReshapeError> {
    reshape(fs, Path::new(kit::DIR), from, to.shards, &to.lanes, &mut |_| {})
}

fn stamp(sequence: u64) -> Stamp {
    Stamp { producer: ProducerId(9), epoch: 1, sequence }
}

fn append(store: &Store, table: TableId, bucket: Bucket, payload: impl Into<Bytes>) -> Appended {
    let pending = store.append(vec![slice(table, bucket, payload)]).expect("should be taken");
    pending.wait_blocking().expect("should be durable")
}

fn post(store: &Store, table: TableId, sequence: u64) -> Appended {
    let rows = vec![slice(table, bucket(5), format!("stamped {sequence}"))];
    let pending = store.append_stamped(stamp(sequence), rows).expect("should be taken");
    pending.wait_blocking().expect("should be durable")
}

fn seal(store: &Store, table: TableId, bucket: Bucket) -> Sealed {
    let view = store.view(table);
    let mut generations = view.generations.iter().map(|g| g.generation());
    let open = generations.find(|g| g.bucket == bucket && g.seal().is_none()).expect("should be open");
    let sealed = store.seal(table, bucket, open.first_lsn).wait_blocking().expect("should be durable");
    sealed.expect("should still be open")
}

fn commit(store: &Store, sealed: &Sealed) {
    let (incarnation, sequence) = (sealed.seal.incarnation, sealed.seal.sequence);
    let table = sealed.generation.table;
    store.commit(Commit { table, incarnation, sequence, version: 1 }).wait_blocking().expect("should be durable");
}

type Row = (Lsn, u32, Bytes);
type Seal = Option<(u64, u64, Lsn)>;
type Generation = (Bucket, Lsn, Seal, Vec<Row>);

/// Generations with seals and rows, in their order; definitions; and sequences of every incarnation that sealed.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    generations: BTreeMap<TableId, Vec<Generation>>,
    definitions: BTreeMap<TableId, (u32, Bytes)>,
}

fn content(store: &Store) -> Content {
    let mut generations = BTreeMap::new();
    for number in 1..=TABLES {
        let view = store.view(table(number));
        let of_table = view.generations.iter().map(|view| {
            let generation = view.generation();
            let rows = view.slices().expect("should be readable").into_iter().map(|s| (s.lsn, s.rows, s.payload));
            let seal = generation.seal().map(|s| (s.incarnation.0, s.sequence, s.lsn));
            (generation.bucket, generation.first_lsn, seal, rows.collect())
        });
        generations.insert(table(number), of_table.collect());
    }
    let definitions = store.definitions().into_iter().map(|d| (d.table, (d.schema_version, d.body))).collect();
    Content { generations, definitions }
}

/// A node with tables in all states, several checkpoints and starts behind it, and rows in the log as well.
struct Used {
    fs: MemoryFileSystem,
    content: Content,
    receipts: Vec<Appended>,
    /// The last seal of table 1: incarnation and sequence.
    last: (u64, u64),
}

fn used(options: &Options) -> Used {
    let fs = MemoryFileSystem::new();
    let mut receipts = Vec::new();
    let mut last = (0, 0);
    for start in 0..3_u8 {
        let store = open(&fs, options);
        if start == 0 {
            (1..=TABLES + 1).for_each(|n| define(&store, table(n)));
        }
        for round in 0..3_u8 {
            for number in 1..=TABLES {
                for row in 0..4_u8 {
                    let payload = vec![100 * start + 10 * round + row; 700];
                    append(&store, table(number), bucket(i64::from(row % 2)), payload);
                }
            }
            receipts.push(post(&store, table(2), u64::from(3 * start + round)));
            let first = seal(&store, table(1), bucket(0));
            last = (first.seal.incarnation.0, first.seal.sequence);
            let second = seal(&store, table(3), bucket(1));
            if round == 0 {
                commit(&store, &first);
                commit(&store, &second);
            }
            if round == 1 {
                store.checkpoint().expect("should be done");
            }
        }
        if start == 1 {
            store.close().expect("should close");
        }
    }
    let store = open(&fs, options);
    let content = content(&store);
    drop(store);
    Used { fs: fs.snapshot(), content, receipts, last }
}

/// Once a start is through, there is one layout only.
fn leftovers(fs: &MemoryFileSystem, options: &Options, what: &str) {
    let files = fs.files();
    let logs: BTreeSet<_> = files.iter().filter_map(|path| path.strip_prefix("data").ok()?.iter().next()).collect();
    let layouts = ["wal", "wal-1", "wal-2", "wal-3", "wal-4", "wal-5"];
    let logs = layouts.into_iter().filter(|name| logs.contains(std::ffi::OsStr::new(name))).count();
    assert_eq!(logs, 1, "{what}: {files:?}");
    let lane_dirs = options.lanes.iter().filter_map(|dir| dir.strip_prefix("/").ok());
    for path in lane_dirs.flat_map(|dir| files.iter().filter(move |path| path.starts_with(dir))) {
        let name = path.file_name().expect("should have a name").to_string_lossy();
        let shard = name.strip_prefix('s').map(|name| name[..3].parse::<u32>().expect("should be a number"));
        assert!(shard.is_none_or(|shard| shard < options.shards), "{what}: {name}");
    }
}

/// Everything is there, once; and the node goes on.
fn check(fs: &MemoryFileSystem, options: &Options, used: &Used, what: &str) {
    let store = open(fs, options);
    assert!(content(&store) == used.content, "{what}: the content is another one");
    leftovers(fs, options, what);
    for (sequence, first) in (0..).zip(&used.receipts) {
        let again = post(&store, table(2), sequence);
        assert_eq!(again.lsn, first.lsn, "{what}: sequence {sequence}");
    }
    assert!(content(&store) == used.content, "{what}: a repeat was taken for new");
    let newest = post(&store, table(2), used.receipts.len() as u64);
    assert!(used.receipts.iter().all(|r| r.lsn < newest.lsn), "{what}: an LSN came again");
    let seals = content(&store).generations[&table(1)].iter().filter_map(|g| g.2).collect::<Vec<_>>();
    assert!(seals.iter().any(|s| (s.0, s.1) == used.last), "{what}");
    append(&store, table(1), bucket(0), "afterwards");
    let sealed = seal(&store, table(1), bucket(0)).seal;
    assert!(!seals.iter().any(|s| (s.0, s.1) == (sealed.incarnation.0, sealed.sequence)), "{what}: a seal came again");
    // A commit covers the rows that were sealed before the change.
    let sealed = store.view(table(1)).generations[0].generation().clone();
    let rows = store.unflushed_rows();
    let seal = sealed.seal().expect("should be sealed");
    commit(&store, &Sealed { generation: Arc::clone(&sealed), seal });
    assert!(store.unflushed_rows() < rows && sealed.is_retired(), "{what}");
    store.checkpoint().expect("should be done");
    let after = content(&store);
    drop(store);
    assert!(content(&open(fs, options)) == after, "{what}: the next start finds something else");
}

#[test]
fn shards_and_lanes_change_and_nothing_else_does() {
    for (from, to) in [((1, 1), (3, 1)), ((3, 1), (1, 1)), ((2, 1), (2, 3)), ((2, 3), (2, 1)), ((2, 2), (5, 4))] {
        let what = format!("{from:?} to {to:?}");
        let (from, to) = (options(from.0, from.1), options(to.0, to.1));
        let used = used(&from);
        let mut steps = Vec::new();
        let lanes_before = from.lanes.len() as u32;
        let fs = kit::shared(&used.fs);
        let tell = &mut |step| steps.push(step);
        let report = reshape(&fs, Path::new(kit::DIR), &from, to.shards, &to.lanes, tell).expect(&what);
        assert_eq!(steps.len(), to.shards as usize + 4, "{what}: {steps:?}");
        assert_eq!((steps[0], steps[steps.len() - 2]), (Step::Reading, Step::Switching));
        let generations: Vec<_> = used.content.generations.values().flatten().collect();
        assert_eq!((report.shards_before, report.shards), (from.shards, to.shards));
        assert_eq!((report.lanes_before, report.lanes), (lanes_before, to.lanes.len() as u32));
        assert_eq!((report.tables, report.generations), (TABLES as u64 + 1, generations.len() as u64), "{what}");
        assert_eq!(report.rows, generations.iter().flat_map(|g| &g.3).map(|r| u64::from(r.1)).sum::<u64>(), "{what}");
        assert_eq!(
            report.bytes,
            generations.iter().flat_map(|g| &g.3).map(|r| r.2.len() as u64).sum::<u64>(),
            "{what}"
        );
        assert!(!used.fs.files().iter().any(|p| p.starts_with("data/wal")), "{what}: the old logs are there");
        let error = try_open(&used.fs, &from).expect_err("should be refused");
        assert!(matches!(error, OpenError::CountChanged { .. }), "{what}: {error}");
        check(&used.fs.snapshot(), &to, &used, &what);
        for seed in 0..2 {
            check(&used.fs.snapshot().crash(seed), &to, &used, &format!("{what}, power loss {seed}"));
        }
    }
}

#[test]
fn back_and_forth() {
    let steps = [options(2, 2), options(3, 3), options(1, 1), options(4, 1), options(4, 3), options(2, 2)];
    let used = used(&steps[0]);
    let fs = kit::shared(&used.fs);
    for pair in steps.windows(2) {
        change(&fs, &pair[0], &pair[1]).expect("should be done");
        check(&used.fs.snapshot(), &pair[1], &used, "on the way");
    }
    let lane_files =
        |fs: &MemoryFileSystem| fs.files().iter().filter(|p| p.extension().is_some_and(|e| e == "lane")).count();
    assert!(lane_files(&used.fs) <= 2 * steps.last().map_or(0, |o| o.lanes.len()), "files of old layouts are there");
    check(&used.fs, &steps[steps.len() - 1], &used, "in the end");
}

#[test]
fn many_lane_files_a_shard() {
    let from = Options { checkpoint_bytes: 4096, ..options(2, 1) };
    let to = Options { checkpoint_bytes: 4096, ..options(3, 2) };
    let used = used(&from);
    change(&kit::shared(&used.fs), &from, &to).expect("should be done");
    let lane_files = used.fs.files().iter().filter(|p| p.extension().is_some_and(|e| e == "lane")).count();
    assert!(lane_files > 6, "{lane_files}");
    check(&used.fs, &to, &used, "many files");
}

#[test]
fn a_long_log_is_read_within_its_memory() {
    let from = Options { replay_bytes: 8192, ..options(1, 1) };
    let used = used(&options(1, 1));
    change(&kit::shared(&used.fs), &from, &options(3, 2)).expect("should be done");
    check(&used.fs, &options(3, 2), &used, "with rows that were spilled");
}

#[test]
fn what_is_intact_of_a_torn_end_comes_along() {
    let (from, to) = (options(2, 1), options(3, 2));
    let mut used = used(&from);
    let store = open(&used.fs, &from);
    let last = append(&store, table(1), bucket(1), "acknowledged");
    let shard = format!("shard-{:03}", store.shard_of(table(1)));
    let error = FaultKind::Eio;
    used.fs.fail(Fault { operation: Operation::SyncData, nth: 1, path_contains: Some(shard), error, sticky: false });
    let pending = store.append(vec![slice(table(1), bucket(1), "in doubt")]).expect("should be taken");
    pending.wait_blocking().expect_err("should fail");
    drop(store);
    used.fs.clear_faults();
    let as_a_start_does = used.fs.snapshot();
    used.content = content(&open(&as_a_start_does, &from));
    let rows = &used.content.generations[&table(1)].last().expect("should have one").3;
    assert_eq!(rows.last().expect("should have a row").2, "in doubt");
    assert!(rows.iter().any(|r| r.0 == last.lsn));
    change(&kit::shared(&used.fs), &from, &to).expect("should be done");
    check(&used.fs, &to, &used, "with a torn end");
}

#[test]
fn large_definitions_are_told_in_several_edits() {
    let (from, to) = (options(2, 1), options(1, 1));
    let fs = MemoryFileSystem::new();
    let store = open(&fs, &from);
    for n in 1..=6 {
        let define = Define { table: table(n), schema_version: 1, body: vec![n as u8; 5 << 20].into() };
        store.define(define).expect("should be taken").wait_blocking().expect("should be durable");
        append(&store, table(n), bucket(0), "row");
    }
    let before = content(&store);
    drop(store);
    change(&kit::shared(&fs), &from, &to).expect("should be done");
    assert!(content(&open(&fs, &to)) == before);
}

#[test]
fn a_full_disk_leaves_the_present_layout() {
    let (from, to) = (options(2, 1), options(3, 2));
    let used = used(&from);
    let len = |fs: &MemoryFileSystem| -> u64 {
        fs.files().iter().map(|path| fs.dump(path).expect("should be there").len() as u64).sum()
    };
    for room in (0..400_000).step_by(25_000) {
        let fs = used.fs.snapshot();
        fs.set_capacity(len(&fs) + room);
        let error = change(&kit::shared(&fs), &from, &to).err();
        fs.set_capacity(u64::MAX);
        let what = format!("room for {room} bytes: {error:?}");
        assert!(error.is_some() || room > 100_000, "{what}");
        let found = if error.is_some() { &from } else { &to };
        assert!(error.is_none() || !fs.files().iter().any(|p| p.starts_with("data/wal-1")), "{what}");
        check(&fs, found, &used, &what);
    }
}

fn refused(fs: &MemoryFileSystem, from: &Options, to: &Options) -> String {
    let before = kit::contents(fs);
    let error = change(&kit::shared(fs), from, to).expect_err("should be refused");
    assert!(kit::contents(fs) == before, "a refused change changed files: {error}");
    error.to_string()
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let from = options(2, 2);
    let used = used(&from);
    let fs = &used.fs;
    for shards in [0, 1025] {
        assert!(refused(fs, &from, &options(shards, 2)).contains("1 to 1024"));
    }
    assert!(refused(fs, &from, &from).contains("already"));
    assert!(refused(fs, &options(1, 2), &options(3, 2)).contains("the configuration says 1"));
    assert!(refused(fs, &options(2, 1), &options(3, 2)).contains("2 lanes"));
    assert!(refused(fs, &from, &options(3, 65)).contains("at most 64"));
    let with = |dirs: &[&str]| Options { lanes: dirs.iter().map(PathBuf::from).collect(), ..options(2, 0) };
    assert!(refused(fs, &from, &with(&["/lanes/1", "/lanes/0", "/lanes/2"])).contains("this is lane 1"));
    assert!(refused(fs, &from, &with(&["/lanes/1"])).contains("this is lane 1"));
    assert!(refused(fs, &from, &with(&["/lanes/0", "/lanes/7", "/lanes/2"])).contains("this is not lane 1"));
    assert!(refused(fs, &from, &with(&["/lanes/0", "/lanes/1", "/lanes/0"])).contains("this is lane 0"));
    let other = Options { lanes: vec![PathBuf::from("/lanes/2")], ..options(1, 0) };
    drop(Store::open(kit::shared(fs), Path::new("/other"), &other).expect("should open"));
    assert!(refused(fs, &from, &options(2, 3)).contains("another data directory"));
    let empty = MemoryFileSystem::new();
    assert!(refused(&empty, &from, &options(3, 2)).contains("not a data directory"));
    check(fs, &from, &used, "after all that");
}

#[test]
fn a_lane_that_is_named_twice_is_refused() {
    let from = options(2, 1);
    let used = used(&from);
    let to = Options { lanes: ["/lanes/0", "/lanes/1", "/lanes/./1"].map(PathBuf::from).to_vec(), ..options(2, 0) };
    let error = change(&kit::shared(&used.fs), &from, &to).expect_err("should be refused").to_string();
    assert!(error.contains("this is lane 2"), "{error}");
    assert!(!used.fs.files().iter().any(|p| p.ends_with("lanes/1/LANE")), "a guard was left");
    check(&used.fs, &from, &used, "after that");
}

#[test]
fn too_many_producers_for_one_shard_are_refused() {
    let limits = ProducerLimits { max: 2, ..ProducerLimits::default() };
    let from = Options { producers: limits, ..options(2, 1) };
    let fs = MemoryFileSystem::new();
    let store = open(&fs, &from);
    for n in 1..=4 {
        define(&store, table(n));
        post(&store, table(n), 0);
    }
    drop(store);
    let to = |shards| Options { shards, ..from.clone() };
    assert!(refused(&fs, &from, &to(1)).contains("4 producers"));
    change(&kit::shared(&fs), &from, &to(4)).expect("should be done");
}

#[test]
fn a_node_that_runs_is_left_alone() {
    let from = options(2, 1);
    let used = used(&from);
    let store = open(&used.fs, &from);
    let error = change(&kit::shared(&used.fs), &from, &options(3, 1)).expect_err("should be refused");
    assert!(matches!(error, ReshapeError::Open(OpenError::Locked { .. })), "{error}");
    drop(store);
    check(&used.fs, &from, &used, "afterwards");
}

#[test]
fn a_lost_manifest_is_missed_in_every_layout() {
    let (from, to) = (options(2, 1), options(3, 1));
    let used = used(&from);
    change(&kit::shared(&used.fs), &from, &to).expect("should be done");
    FileSystem::remove(&used.fs, Path::new("/data/MANIFEST")).expect("should be there");
    let before = kit::contents(&used.fs);
    let error = try_open(&used.fs, &to).expect_err("should be refused").to_string();
    assert!(error.contains("the manifest is missing"), "{error}");
    assert!(kit::contents(&used.fs) == before);
}

#[test]
fn only_logs_of_other_layouts_are_removed() {
    let from = options(2, 1);
    let used = used(&from);
    let keep =
        ["wal-", "wal-01", "wal-0", "walnut", "wal-1x", "lanes"].map(|n| Path::new("/data").join(n).join("shard-000"));
    let gone = ["wal-1", "wal-70"].map(|n| Path::new("/data").join(n).join("shard-000"));
    for dir in keep.iter().chain(&gone) {
        used.fs.create_dir_all(dir).expect("should be made");
        FileSystem::create(&used.fs, &dir.join("file")).expect("should be made");
    }
    drop(open(&used.fs, &from));
    let is_there = |dir: &PathBuf| used.fs.list(dir).is_ok();
    assert!(keep.iter().all(is_there) && !gone.iter().any(is_there));
    check(&used.fs, &from, &used, "afterwards");
}
