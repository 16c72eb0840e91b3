//! A random workload over a file system that loses power, kills the process, fails calls and runs full; the real code, and an
//! oracle that knows what was promised. `PENSTOCK_SIM_SEEDS=<count>` runs more seeds, `PENSTOCK_SIM_SEED=<seed>` begins with that one
//! (alone, unless a count is given).
//!
//! The workload and the faults are drawn from the seed. The store's threads are real ones, so a seed that fails may need a few runs
//! to fail again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use penstock_store::fs::{Fault, FaultKind, MemoryFileSystem, Operation};
use penstock_store::{
    Appended, Barrier, CheckpointError, Commit, Define, Note, Options, Pending, PostId, PostKey, ProducerId, Sealed,
    SliceInput, Stamp, Store, TableId,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::kit::{self, DIR, bucket, slice, table};
use crate::oracle::{Oracle, RowId, payload};

const DEFAULT_SEEDS: u64 = 40;
const ROUNDS: u32 = 6;
const STEPS: u32 = 25;
const SHARDS: u32 = 2;

/// A request that was handed over and not looked at since.
enum Waiting {
    Append(usize, Pending<Appended>),
    Stamped(usize, Pending<Appended>),
    Define(TableId, Pending<Appended>),
    Seal(TableId, Pending<Option<Sealed>>),
    Commit(Commit, Pending<()>),
}

struct Simulation {
    rng: StdRng,
    fs: MemoryFileSystem,
    oracle: Oracle,
    waiting: Vec<Waiting>,
    next_row: RowId,
    /// Tables that were offered to the log, with the newest schema version.
    tables: Vec<(TableId, u32)>,
    producers: Vec<Producer>,
    options: Options,
}

/// Somebody who sends records with a stamp, or with a key, skips some, and sends some again.
struct Producer {
    keyed: bool,
    id: ProducerId,
    table: TableId,
    epoch: u32,
    next: u64,
    skipped: Vec<u64>,
    sent: Vec<(u32, PostId, usize, Vec<SliceInput>)>,
}

#[test]
fn every_promise_holds_over_crashes_and_faults() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let first = number("PENSTOCK_SIM_SEED");
    let count = number("PENSTOCK_SIM_SEEDS").unwrap_or(if first.is_some() { 1 } else { DEFAULT_SEEDS });
    let first = first.unwrap_or(0);
    let mut kept = 0;
    for seed in first..first + count {
        let told = SeedOnPanic(seed);
        kept += Simulation::new(seed).run();
        drop(told);
    }
    assert!(kept > 0, "the simulation kept no row at all: it proves nothing");
}

/// What a repeat has to be told.
fn note(record: usize) -> Note {
    Note { digest: record as u64, accepted: 1 + record as u32, rejected: record as u32 / 2 }
}

struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with PENSTOCK_SIM_SEED={}", self.0);
        }
    }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        let (fs, oracle) = (MemoryFileSystem::new(), Oracle::default());
        let (waiting, tables, producers) = (Vec::new(), Vec::new(), Vec::new());
        let mut simulation =
            Self { rng, fs, oracle, waiting, next_row: 1, tables, producers, options: Options::default() };
        simulation.options = simulation.draw_options();
        simulation
    }

    /// What a data directory keeps for its life; the rest is drawn at each start.
    fn draw_options(&mut self) -> Options {
        let lanes = self.rng.random_range(0..3);
        Options {
            shards: SHARDS,
            segment_bytes: 1 << 16,
            group_bytes: 40_000,
            lanes: (0..lanes).map(|n| PathBuf::from(format!("/lane-{n}"))).collect(),
            lane_files: self.rng.random_range(2..6),
            ..Options::default()
        }
    }

    fn run(mut self) -> usize {
        for _ in 0..ROUNDS {
            let store = self.open();
            self.oracle.settle(&store);
            if self.rng.random_bool(0.15) {
                // Room for a few segments more, or for none.
                let len = |path: &PathBuf| self.fs.dump(path).map_or(0, |bytes| bytes.len() as u64);
                let files: u64 = self.fs.files().iter().map(len).sum();
                self.fs.set_capacity(files + self.rng.random_range(0..400_000));
            }
            if self.rng.random_bool(0.3) {
                self.plan_fault();
            }
            for _ in 0..self.rng.random_range(1..STEPS) {
                self.step(&store);
            }
            self.end(store);
        }
        self.fs.clear_faults();
        self.fs.set_capacity(u64::MAX);
        let store = self.open();
        self.oracle.settle(&store);
        self.oracle.kept()
    }

    /// Starts the store; a start that meets a fault or another crash is tried again.
    fn open(&mut self) -> Store {
        let options = Options {
            checkpoint_interval: self.rng.random_bool(0.3).then(|| Duration::from_millis(self.rng.random_range(1..10))),
            checkpoint_bytes: if self.rng.random_bool(0.3) { 50_000 } else { u64::MAX },
            replay_bytes: if self.rng.random_bool(0.3) { 20_000 } else { u64::MAX },
            lane_rate: u64::MAX / 2,
            barrier: if self.rng.random_bool(0.3) { Barrier::SyncFs } else { Barrier::Auto },
            ..self.options.clone()
        };
        let mut attempts: u32 = if self.rng.random_bool(0.3) { self.rng.random_range(1..4) } else { 0 };
        loop {
            if attempts > 0 {
                self.plan_fault();
            }
            match Store::open(kit::shared(&self.fs), Path::new(DIR), &options) {
                Ok(store) => return store,
                Err(error) => {
                    let text = error.to_string();
                    let is_full = text.contains("No space");
                    assert!(attempts > 0 || is_full, "the store does not start: {error}");
                    assert!(
                        matches!(error, penstock_store::OpenError::Io { .. }),
                        "an I/O error was taken for: {error}"
                    );
                    if is_full {
                        self.fs.set_capacity(u64::MAX);
                    }
                }
            }
            attempts = attempts.saturating_sub(1);
            self.fs.clear_faults();
            match self.rng.random_range(0..3) {
                0 => self.fs = self.fs.crash(self.rng.random()),
                1 => self.fs = self.fs.crash_process(),
                _ => {}
            }
        }
    }

    fn plan_fault(&mut self) {
        const OPERATIONS: [Operation; 11] = [
            Operation::Create,
            Operation::Open,
            Operation::Write,
            Operation::SyncData,
            Operation::SyncDir,
            Operation::Rename,
            Operation::Allocate,
            Operation::Read,
            Operation::List,
            Operation::SyncFs,
            Operation::Remove,
        ];
        let operation = OPERATIONS[self.rng.random_range(0..OPERATIONS.len())];
        let bytes = self.rng.random_range(0..30_000);
        let error = match self.rng.random_range(0..4) {
            0 => FaultKind::Emfile,
            1 => FaultKind::ShortThenError { bytes },
            _ => FaultKind::Eio,
        };
        self.fs.fail(Fault {
            operation,
            nth: self.rng.random_range(1..20),
            path_contains: None,
            error,
            sticky: self.rng.random_bool(0.3),
        });
    }

    fn step(&mut self, store: &Store) {
        match self.rng.random_range(0..100) {
            _ if self.tables.is_empty() => self.define(store),
            0..5 => self.define(store),
            5..60 => {
                for _ in 0..self.rng.random_range(1..8) {
                    self.append(store);
                }
            }
            60..72 => self.seal(store),
            72..82 => self.commit(store),
            82..88 => self.stamped(store),
            88..91 => self.checkpoint(store),
            91..92 => self.drain(),
            92..96 => std::thread::sleep(Duration::from_micros(self.rng.random_range(0..4000))),
            _ => {
                self.drain();
                self.oracle.observe(store);
            }
        }
    }

    fn define(&mut self, store: &Store) {
        let is_new = self.tables.is_empty() || self.tables.len() < 6 && self.rng.random_bool(0.5);
        let chosen = if is_new {
            self.tables.push((table(self.rng.random()), 1));
            self.tables.len() - 1
        } else {
            let chosen = self.rng.random_range(0..self.tables.len());
            self.tables[chosen].1 += 1;
            chosen
        };
        let (table, schema_version) = self.tables[chosen];
        let body = Bytes::from(vec![b'x'; self.rng.random_range(0..3000)]);
        let pending = store.define(Define { table, schema_version, body }).expect("should be short enough");
        self.waiting.push(Waiting::Define(table, pending));
    }

    fn append(&mut self, store: &Store) {
        let (first, _) = self.tables[self.rng.random_range(0..self.tables.len())];
        let shard = store.shard_of(first);
        let here: Vec<(TableId, u32)> =
            self.tables.iter().copied().filter(|(t, _)| store.shard_of(*t) == shard).collect();
        let mut slices = Vec::new();
        let mut rows = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            let (table, newest) = here[self.rng.random_range(0..here.len())];
            let len = match self.rng.random_range(0..100) {
                0..80 => self.rng.random_range(16..1500),
                80..98 => self.rng.random_range(3000..20_000),
                _ => self.rng.random_range(60_000..150_000),
            };
            let id = self.next_row;
            self.next_row += 1;
            let mut slice = slice(table, bucket(self.rng.random_range(0..3)), payload(id, len));
            slice.schema_version = self.rng.random_range(1..=newest);
            slices.push(slice);
            rows.push((id, table));
        }
        let record = self.oracle.offer(&rows);
        let pending = store.append(slices).expect("should be encodable");
        self.waiting.push(Waiting::Append(record, pending));
    }

    /// A checkpoint may be put off or stop the shard; what it may not do the oracle sees.
    fn checkpoint(&mut self, store: &Store) {
        match store.checkpoint() {
            Ok(reports) => assert_eq!(reports.len(), SHARDS as usize),
            Err(CheckpointError::Broken(reason)) => assert!(!reason.contains("invariant"), "{reason}"),
            Err(CheckpointError::Postponed(_) | CheckpointError::Stopped(_)) => {}
        }
    }

    fn stamped(&mut self, store: &Store) {
        if self.producers.is_empty() || self.producers.len() < 4 && self.rng.random_bool(0.3) {
            let (table, _) = self.tables[self.rng.random_range(0..self.tables.len())];
            let id = ProducerId(self.rng.random());
            let keyed = self.rng.random_bool(0.4);
            let (skipped, sent) = (Vec::new(), Vec::new());
            self.producers.push(Producer { keyed, id, table, epoch: 0, next: 0, skipped, sent });
        }
        for _ in 0..self.rng.random_range(1..4) {
            let chosen = self.rng.random_range(0..self.producers.len());
            let choice = self.rng.random_range(0..10);
            let producer = &mut self.producers[chosen];
            if choice < 4 && !producer.sent.is_empty() {
                let chosen = self.rng.random_range(0..producer.sent.len());
                let (epoch, id, record, slices) = producer.sent[chosen].clone();
                if epoch == producer.epoch {
                    self.oracle.offer_again(record);
                    let pending = store.append_once(id, note(record), slices).expect("should be encodable");
                    self.waiting.push(Waiting::Stamped(record, pending));
                }
                continue;
            }
            let sequence = match choice {
                4 if !producer.skipped.is_empty() => producer.skipped.pop().expect("should have one"),
                5 => {
                    producer.skipped.push(producer.next);
                    producer.next += 2;
                    producer.next - 1
                }
                6 => {
                    producer.epoch += 1;
                    producer.skipped.clear();
                    producer.next = 1;
                    0
                }
                _ => {
                    producer.next += 1;
                    producer.next - 1
                }
            };
            let epoch = producer.epoch;
            let id = match producer.keyed {
                false => PostId::Sequence(Stamp { producer: producer.id, epoch, sequence }),
                true => PostId::Key(PostKey(self.rng.random())),
            };
            let (table, row) = (producer.table, self.next_row);
            self.next_row += 1;
            let len = self.rng.random_range(16..1500);
            let slices = vec![slice(table, bucket(self.rng.random_range(0..3)), payload(row, len))];
            let record = self.oracle.offer(&[(row, table)]);
            self.producers[chosen].sent.push((epoch, id, record, slices.clone()));
            let pending = store.append_once(id, note(record), slices).expect("should be encodable");
            self.waiting.push(Waiting::Stamped(record, pending));
        }
    }

    fn seal(&mut self, store: &Store) {
        let open: Vec<_> = store.summaries().into_iter().flat_map(|s| s.open).collect();
        if open.is_empty() {
            return;
        }
        let chosen = &open[self.rng.random_range(0..open.len())];
        // Now and then twice, with rows between: the second wish must not close what the first one left open.
        for _ in 0..self.rng.random_range(1..3) {
            let pending = store.seal(chosen.table, chosen.bucket, chosen.first_lsn);
            self.waiting.push(Waiting::Seal(chosen.table, pending));
            self.append(store);
        }
    }

    fn commit(&mut self, store: &Store) {
        let tables = store.summaries();
        let tables: Vec<_> = tables.iter().filter(|s| !s.sealed.is_empty()).collect();
        if tables.is_empty() {
            return;
        }
        let chosen = tables[self.rng.random_range(0..tables.len())];
        // In commit order: some of the first ones that were sealed by the same start.
        let incarnation = chosen.sealed[0].seal.incarnation;
        let run = chosen.sealed.iter().take_while(|s| s.seal.incarnation == incarnation).count();
        let sealed = &chosen.sealed[..self.rng.random_range(1..=run)];
        for s in sealed {
            if !self.oracle.sealed(chosen.table, &Ok(Some(s.clone()))) {
                return;
            }
        }
        let sequence = sealed.last().expect("should have one").seal.sequence;
        let commit = Commit { table: chosen.table, incarnation, sequence, version: sequence };
        self.oracle.committing(&commit);
        self.waiting.push(Waiting::Commit(commit, store.commit(commit)));
    }

    /// Takes all answers. None may be missing.
    fn drain(&mut self) {
        for waiting in self.waiting.drain(..) {
            match waiting {
                Waiting::Stamped(record, pending) => {
                    let answer = pending.wait_blocking();
                    let told = answer.as_ref().ok().and_then(|appended| appended.repeat_of);
                    assert!(told.is_none_or(|told| told == note(record)), "record {record} was told {told:?}");
                    self.oracle.stamped(record, &answer);
                }
                Waiting::Append(record, pending) => self.oracle.appended(record, &pending.wait_blocking()),
                Waiting::Define(table, pending) => self.oracle.defined(table, &pending.wait_blocking()),
                Waiting::Seal(table, pending) => drop(self.oracle.sealed(table, &pending.wait_blocking())),
                Waiting::Commit(commit, pending) => self.oracle.committed(&commit, &pending.wait_blocking()),
            }
        }
    }

    /// Ends a store in one of the ways in which stores end.
    fn end(&mut self, store: Store) {
        if self.rng.random_bool(0.5) {
            self.oracle.observe(&store);
        }
        if self.rng.random_bool(0.3) {
            // Time for the owner to get somewhere: a group, a mark, a prepared segment.
            std::thread::sleep(Duration::from_micros(self.rng.random_range(0..5000)));
        }
        match self.rng.random_range(0..10) {
            0..5 => {
                let seed = self.rng.random();
                self.fs = self.fs.crash(seed);
            }
            5..8 => self.fs = self.fs.crash_process(),
            8 => {
                // The manifest may not be writable; the logs have to be whole all the same.
                let _ = store.close();
            }
            _ => {}
        }
        drop(store);
        self.drain();
        self.fs.clear_faults();
    }
}
