//! The process dies at one point of a checkpoint, on the real file system, while rows arrive: it is this test's own binary, which
//! runs [`child`] with an environment that tells it where to die. What it acknowledged is there in the next process, once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use penstock_store::fs::{FileSystem, RealFileSystem};
use penstock_store::{Appended, Bucket, Options, ProducerId, SliceInput, Stamp, Store};

use crate::hook::Hooked;
use crate::kit::{bucket, commit, define, slice, table};

const DIR: &str = "PENSTOCK_TEST_KILLED_DIR";
const POINT: &str = "PENSTOCK_TEST_KILLED_POINT";
const EPOCH: &str = "PENSTOCK_TEST_KILLED_EPOCH";

const THREADS: u64 = 3;
/// Longest time of one child.
const PATIENCE: Duration = Duration::from_secs(20);
const SIGABRT: i32 = 6;

/// Before or after the nth call on a path that contains this.
#[derive(Debug, Clone, Copy)]
struct Point {
    when: &'static str,
    call: &'static str,
    path: &'static str,
    nth: u64,
}

const fn point(when: &'static str, call: &'static str, path: &'static str, nth: u64) -> Point {
    Point { when, call, path, nth }
}

fn options() -> Options {
    Options { shards: 1, segment_bytes: 1 << 16, checkpoint_interval: None, ..Options::default() }
}

fn open(fs: Arc<dyn FileSystem>, dir: &Path) -> Store {
    Store::open(fs, dir, &options()).unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
}

/// Each thread has its own bucket, and each epoch its own numbers.
fn number(stamp: Stamp) -> u64 {
    u64::from(stamp.epoch) * 1_000_000 + stamp.producer.0 as u64 * 100_000 + stamp.sequence
}

fn stamp(number: u64) -> Stamp {
    let (epoch, producer) = (number / 1_000_000, number / 100_000 % 10);
    Stamp {
        producer: ProducerId(u128::from(producer)),
        epoch: u32::try_from(epoch).expect("should be small"),
        sequence: number % 100_000,
    }
}

fn bucket_of(number: u64) -> Bucket {
    bucket(i64::try_from(number / 100_000 % 10).expect("should be small"))
}

fn row(number: u64) -> SliceInput {
    let mut bytes = format!("{number:012}").into_bytes();
    bytes.resize(900, number as u8);
    slice(table(1), bucket_of(number), bytes)
}

fn number_of(payload: &[u8]) -> u64 {
    let number = std::str::from_utf8(&payload[..12]).expect("should be text").parse().expect("should be a number");
    assert!(payload.len() == 900 && payload[12..].iter().all(|b| *b == number as u8), "row {number} is not whole");
    number
}

fn send(store: &Store, number: u64) -> Appended {
    let pending = store.append_stamped(stamp(number), vec![row(number)]).expect("should queue");
    pending.wait_blocking().unwrap_or_else(|error| panic!("row {number}: {error}"))
}

/// One whole line; the parent may read it however soon this process dies.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").and_then(|()| out.flush()).expect("should have a parent");
}

fn list(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

/// Not a test: what the tests below run, and kill. Does nothing without their environment.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let wanted = std::env::var(POINT).expect("should be told where to die");
    let epoch: u64 = std::env::var(EPOCH).expect("should have an epoch").parse().expect("should be a number");
    let [when, call, path, nth] = wanted.split('|').collect::<Vec<_>>()[..] else { panic!("{wanted}") };
    let (when, call, path) = (when.to_owned(), call.to_owned(), path.to_owned());
    let nth: u64 = nth.parse().expect("should be a number");
    // A test that hangs would say less.
    std::thread::spawn(|| {
        std::thread::sleep(PATIENCE);
        tell("took too long");
        std::process::exit(3);
    });
    let seen = AtomicU64::new(0);
    let die_at = Arc::new(move |now: &str, made: &str, at: &Path| {
        let is_checkpoint = std::thread::current().name().is_some_and(|name| name.starts_with("penstock-ckpt"));
        let matches = now == when && made == call && at.to_string_lossy().contains(&path);
        if is_checkpoint && matches && seen.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            tell("dies");
            std::process::abort();
        }
    });
    let after = Arc::clone(&die_at);
    let before = move |made: &'static str, at: &Path| {
        die_at("before", made, at);
        Ok(())
    };
    let told = move |made: &'static str, at: &Path| after("after", made, at);
    let store = open(Hooked::telling(Arc::new(RealFileSystem), before, told), &dir);
    define(&store, table(1));
    let (ends, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, ends, acknowledged) = (&store, &ends, &acknowledged);
            scope.spawn(move || {
                for sequence in 0..1000 {
                    if ends.load(Ordering::SeqCst) {
                        return;
                    }
                    let producer = ProducerId(u128::from(thread));
                    let epoch = u32::try_from(epoch).expect("should be small");
                    let number = number(Stamp { producer, epoch, sequence });
                    tell(&format!("sends {number}"));
                    let receipt = send(store, number);
                    tell(&format!("ack {number} {}", receipt.lsn));
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for round in 0..12 {
            while acknowledged.load(Ordering::SeqCst) < 6 * (round + 1) {
                std::thread::sleep(Duration::from_millis(1));
            }
            seal_and_commit(&store, round % 2 == 0);
            store.checkpoint().expect("should checkpoint");
        }
        ends.store(true, Ordering::SeqCst);
    });
}

/// Seals what is open, and commits that and what was sealed before; or leaves that to a later time.
fn seal_and_commit(store: &Store, commits: bool) {
    let summary = store.summaries().into_iter().next();
    let Some(summary) = summary else { return };
    let mut sealed = summary.sealed;
    for open in summary.open {
        let answer = store.seal(table(1), open.bucket, open.first_lsn).wait_blocking().expect("should seal");
        sealed.extend(answer);
    }
    if commits && let Some(last) = sealed.last() {
        let incarnation = last.seal.incarnation;
        // What an earlier process sealed stays: its turn would have been before.
        let own = sealed.iter().filter(|s| s.seal.incarnation == incarnation);
        let slices = own.flat_map(|s| s.generation.slices(usize::MAX).expect("should be readable"));
        let numbers: Vec<u64> = slices.map(|s| number_of(&s.payload)).collect();
        tell(&format!("commits {}", list(&numbers)));
        commit(store, last).expect("should commit");
        tell(&format!("gone {}", list(&numbers)));
    }
}

/// What the dead processes of one directory said.
#[derive(Default)]
struct Said {
    sent: BTreeSet<u64>,
    acknowledged: BTreeMap<u64, u64>,
    committing: BTreeSet<u64>,
    gone: BTreeSet<u64>,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let word = words.next();
        let mut numbers = words.map_while(|w| w.parse::<u64>().ok());
        match word {
            Some("sends") => self.sent.extend(numbers),
            Some("commits") => self.committing.extend(numbers),
            Some("gone") => self.gone.extend(numbers),
            Some("ack") => {
                let number = numbers.next().expect("should tell a number");
                self.acknowledged.insert(number, numbers.next().expect("should tell an LSN"));
            }
            _ => {}
        }
    }

    /// Lets a child die there.
    fn run(&mut self, dir: &Path, epoch: usize, point: Point) {
        let Point { when, call, path, nth } = point;
        let child = Command::new(std::env::current_exe().expect("should have a path"))
            .args(["--exact", "killed::child", "--nocapture", "--test-threads=1"])
            .env(DIR, dir)
            .env(POINT, format!("{when}|{call}|{path}|{nth}"))
            .env(EPOCH, epoch.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let output = child.and_then(std::process::Child::wait_with_output).expect("should run");
        let said = String::from_utf8_lossy(&output.stdout);
        let died = output.status.signal() == Some(SIGABRT) && said.lines().any(|line| line == "dies");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(died, "{point:?}: the child did not die there: {}\n{stderr}", output.status);
        said.lines().for_each(|line| self.hear(line));
        assert!(self.acknowledged.len() > 3, "{point:?}: it proves nothing");
    }

    /// What has to be there is there, and nothing is there twice.
    fn check(&self, store: &Store, what: &str) {
        let mut found: HashMap<u64, u64> = HashMap::new();
        for generation in store.view(table(1)).generations {
            let bucket = generation.generation().bucket;
            let mut last = None;
            for slice in generation.slices().expect("should be readable") {
                let number = number_of(&slice.payload);
                assert_eq!(bucket_of(number), bucket, "{what}: row {number}");
                assert!(found.insert(number, slice.lsn.0).is_none(), "{what}: row {number} is there twice");
                assert!(last.replace(slice.lsn) < Some(slice.lsn), "{what}: row {number} is out of order");
            }
        }
        for (number, lsn) in &self.acknowledged {
            match found.get(number) {
                Some(at) => assert_eq!(at, lsn, "{what}: row {number} lies elsewhere"),
                None => assert!(self.committing.contains(number), "{what}: row {number} is lost"),
            }
        }
        assert!(found.keys().all(|number| self.sent.contains(number)), "{what}: a row nobody sent");
        let back: Vec<_> = self.gone.iter().filter(|number| found.contains_key(number)).collect();
        assert!(back.is_empty(), "{what}: committed rows are back: {back:?}");
    }

    /// Sends everything of the last process again: what arrived is known, what did not arrives now.
    fn send_again(&mut self, store: &Store, epoch: usize, what: &str) {
        let is_recent = |number: &&u64| **number / 1_000_000 == epoch as u64;
        for number in self.sent.iter().filter(is_recent) {
            let receipt = send(store, *number);
            let known = self.acknowledged.insert(*number, receipt.lsn.0);
            assert!(known.is_none_or(|lsn| lsn == receipt.lsn.0), "{what}: row {number} was taken for new");
        }
    }
}

/// One directory, in which one process after the other dies.
fn dies_at(points: &[Point]) {
    let dir = tempfile::tempdir().expect("should have a directory");
    let started = Instant::now();
    let mut said = Said::default();
    for (epoch, point) in points.iter().enumerate() {
        let what = format!("{point:?}");
        said.run(dir.path(), epoch, *point);
        let open = || open(Arc::new(RealFileSystem), dir.path());
        let store = open();
        said.check(&store, &what);
        said.send_again(&store, epoch, &what);
        said.check(&store, &what);
        drop(store);
        let store = open();
        said.check(&store, &what);
        store.checkpoint().unwrap_or_else(|error| panic!("{what}: {error}"));
        said.check(&store, &what);
        drop(store);
        let store = open();
        assert_eq!(store.recovery().records, 0, "{what}: the checkpoint has it all");
        said.check(&store, &what);
    }
    assert!(started.elapsed() < PATIENCE * 3);
}

#[test]
fn at_the_making_of_a_lane_file() {
    dies_at(&[
        point("before", "create", ".lane", 1),
        point("after", "create", ".lane", 2),
        point("before", "write", ".lane", 3),
        point("after", "write half", ".lane", 2),
        point("after", "write", ".lane", 3),
    ]);
}

#[test]
fn at_the_barrier() {
    dies_at(&[
        point("before", "sync_data", ".lane", 2),
        point("after", "sync_data", ".lane", 3),
        point("before", "sync_dir", "lanes/0", 1),
        point("after", "sync_dir", "lanes/0", 4),
    ]);
}

#[test]
fn at_the_edit() {
    dies_at(&[
        point("before", "write", "edits-", 2),
        point("after", "write half", "edits-", 1),
        point("after", "write half", "edits-", 4),
        point("after", "write", "edits-", 3),
        point("before", "sync_data", "edits-", 1),
        point("after", "sync_data", "edits-", 2),
    ]);
}

#[test]
fn at_the_recycling_of_the_log() {
    dies_at(&[
        point("before", "rename", "spare-", 1),
        point("after", "rename", "spare-", 1),
        point("before", "sync_dir", "shard-000", 1),
        point("after", "sync_dir", "shard-000", 2),
    ]);
}

#[test]
fn at_the_unlinking_of_a_dead_lane_file() {
    dies_at(&[
        point("before", "remove", ".lane", 1),
        point("after", "remove", ".lane", 1),
        point("before", "remove", ".lane", 3),
        point("after", "remove", ".lane", 2),
    ]);
}
