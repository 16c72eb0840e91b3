//! Exactly once, across crashes: numbered rows over several connections, SIGKILL at random moments, restart, and again. In the end
//! every acknowledged row is in its Delta table once, and none that was not acknowledged is there twice. Both while rows soon reach
//! Delta, and while most of them are moved into lane files first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kit::{self, Launch, NDJSON, Reply, Server, delta};

const TABLES: [&str; 3] = ["default.cpu", "default.memory", "logs.web"];
const CONNECTIONS: usize = 6;
const ROUNDS: usize = 8;
/// 2026-03-01 22:00 UTC: the rows' times, an hour or so apart, go over midnight.
const FIRST_SECOND: i64 = 1_772_402_400;

/// Small figures, so that a round of a second seals, commits, rolls and recycles.
const SETTINGS: [(&str, &str); 8] = [
    ("store.segment", "1MiB"),
    ("store.group", "256KiB"),
    ("flush.max_age", "200ms"),
    ("flush.min_age", "50ms"),
    ("flush.seal_bytes", "96KiB"),
    ("flush.parallelism", "3"),
    ("flush.orphan_age", "0s"),
    ("flush.shutdown_timeout", "10s"),
];

/// The same, but rows stay for long enough to be checkpointed, several times in a round; and a start may keep little in memory.
const CHECKPOINTS: [(&str, &str); 6] = [
    ("store.checkpoint_interval", "50ms"),
    ("store.checkpoint_log", "256KiB"),
    ("store.replay_memory", "128KiB"),
    ("flush.max_age", "700ms"),
    ("flush.min_age", "400ms"),
    ("flush.seal_bytes", "1MiB"),
];

/// How a round ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// SIGKILL while rows are being posted.
    Kill,
    /// SIGTERM, and a wait for the end of the draining.
    Drain,
    /// SIGTERM, and SIGKILL into the draining.
    KillWhileDraining,
}

/// What the senders know of their rows, by table.
#[derive(Debug, Default)]
struct Ledger {
    acked: BTreeMap<&'static str, BTreeSet<i64>>,
    sent: BTreeMap<&'static str, BTreeSet<i64>>,
}

impl Ledger {
    fn absorb(&mut self, posts: Vec<Sent>) {
        for post in posts {
            self.sent.entry(post.table).or_default().extend(&post.ids);
            if post.acked {
                self.acked.entry(post.table).or_default().extend(&post.ids);
            }
        }
    }

    /// Every acknowledged row once; others at most once, and nothing that was never sent.
    fn check(&self, table: &str, found: &[i64], what: &str) {
        let once: BTreeSet<i64> = found.iter().copied().collect();
        assert_eq!(once.len(), found.len(), "{what}: {table} has rows twice");
        let none = BTreeSet::new();
        let (acked, sent) = (self.acked.get(table).unwrap_or(&none), self.sent.get(table).unwrap_or(&none));
        let lost: Vec<_> = acked.difference(&once).take(10).collect();
        let strange: Vec<_> = once.difference(sent).take(10).collect();
        assert!(lost.is_empty(), "{what}: {table} has lost acknowledged rows: {lost:?} ...");
        assert!(strange.is_empty(), "{what}: {table} has rows that nobody sent: {strange:?} ...");
    }
}

/// One post.
#[derive(Debug)]
struct Sent {
    table: &'static str,
    ids: Vec<i64>,
    acked: bool,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_row_is_in_delta_exactly_once_whatever_kills_the_server() {
    exactly_once(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_row_is_in_delta_exactly_once_with_checkpoints_all_the_time() {
    let checkpoints = exactly_once(&CHECKPOINTS).await;
    assert!(checkpoints > ROUNDS as u64, "only {checkpoints} checkpoints: too few to show anything");
}

/// Answers the checkpoints that were seen at the ends of rounds.
async fn exactly_once(more: &[(&str, &str)]) -> u64 {
    let seed =
        std::env::var("PENSTOCK_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random::<u64>);
    // Shown if the test fails; PENSTOCK_TEST_SEED repeats the same moments, as far as the machine's timing lets it.
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&SETTINGS).set_all(more);
    let mut checkpoints = 0;
    let next = Arc::new(AtomicI64::new(0));
    let mut ledger = Ledger::default();

    for round in 0..ROUNDS {
        if random.random_bool(0.4) {
            // The start itself is cut off somewhere.
            let mut process = launch.spawn();
            tokio::time::sleep(Duration::from_millis(random.random_range(0..250))).await;
            process.kill();
        }
        let server = launch.start().await;
        check_sql(&server, &ledger, &format!("start of round {round}")).await;
        let end = match round % 4 {
            1 => End::Drain,
            3 => End::KillWhileDraining,
            _ => End::Kill,
        };
        let run = Duration::from_millis(random.random_range(300..1_200));
        println!("round {round}: {end:?} after {run:?}");
        ledger.absorb(one_round(server, end, run, &next, &mut random, &mut checkpoints).await);
    }

    let acked: usize = ledger.acked.values().map(BTreeSet::len).sum();
    let sent: usize = ledger.sent.values().map(BTreeSet::len).sum();
    println!("{acked} of {sent} rows were acknowledged");
    assert!(acked > 1_000, "only {acked} rows were acknowledged: too few to show anything");
    drain_and_compare(&launch, dir.path(), &ledger).await;
    checkpoints
}

/// The moment that is hit least by chance: the row is acknowledged, and nothing was written after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_survives_a_server_that_is_killed_at_the_moment_of_its_ack() {
    let dir = kit::directory();
    let launch = Launch::on(dir.path()).set_all(&kit::NO_FLUSH).set("store.shards", "1");
    let mut server = launch.start().await;
    for id in 0..8 {
        // The first one makes the table too.
        let row = json!({ "ts": humantime_text(FIRST_SECOND), "id": id });
        server.append("default.last", [row]).await;
        server.kill();
        server = launch.start().await;
        assert_eq!(ids_by_sql(&server, "default.last").await, (0..=id).collect::<Vec<_>>());
    }
}

/// Senders post until the server is gone.
async fn one_round(
    server: Server,
    end: End,
    run: Duration,
    next: &Arc<AtomicI64>,
    random: &mut StdRng,
    checkpoints: &mut u64,
) -> Vec<Sent> {
    let stop = Arc::new(AtomicBool::new(false));
    let senders: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let sender = Sender {
                base: server.url.clone(),
                http: kit::server::client(),
                next: Arc::clone(next),
                stop: Arc::clone(&stop),
                random: StdRng::seed_from_u64(random.random()),
            };
            tokio::spawn(sender.run())
        })
        .collect();
    tokio::time::sleep(run).await;
    let status = server.status().await;
    let shards = status["store"]["shards"].as_array().expect("should list the shards");
    *checkpoints += shards.iter().filter_map(|s| s["checkpoints"].as_u64()).sum::<u64>();
    match end {
        End::Kill => server.kill(),
        End::Drain => drop(server.stop().await),
        End::KillWhileDraining => {
            server.process.signal(Signal::TERM);
            tokio::time::sleep(Duration::from_millis(random.random_range(0..60))).await;
            server.kill();
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut posts = Vec::new();
    for sender in senders {
        posts.extend(sender.await.expect("should not panic"));
    }
    posts
}

/// One connection's loop.
struct Sender {
    base: String,
    http: reqwest::Client,
    next: Arc<AtomicI64>,
    stop: Arc<AtomicBool>,
    random: StdRng,
}

impl Sender {
    /// Posts until the connection breaks. What was on its way then is not sent again: nobody knows what became of it.
    async fn run(mut self) -> Vec<Sent> {
        let mut posts = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let table = TABLES[self.random.random_range(0..TABLES.len())];
            let rows = self.random.random_range(1..60);
            let first = self.next.fetch_add(rows, Ordering::Relaxed);
            let ids: Vec<i64> = (first..first + rows).collect();
            let body = kit::ndjson(ids.iter().map(|id| self.row(*id)));
            let url = format!("{}/v1/tables/{table}/rows", self.base);
            let request = self.http.post(url).header("content-type", NDJSON).body(body);
            let Ok(reply) = Reply::try_of(request).await else {
                posts.push(Sent { table, ids, acked: false });
                break;
            };
            let acked = reply.status == 200;
            if acked {
                assert_eq!(reply.json()["rows"], rows);
            } else {
                assert_eq!(reply.status, 503, "{}", reply.text());
            }
            posts.push(Sent { table, ids, acked });
        }
        posts
    }

    fn row(&mut self, id: i64) -> Value {
        // Four hours of event time on two dates, in no order.
        let ts = FIRST_SECOND + self.random.random_range(0..4 * 3_600);
        let pad = "x".repeat(self.random.random_range(40..160));
        json!({ "ts": humantime_text(ts), "id": id, "host": format!("h{}", id % 7), "pad": pad })
    }
}

fn humantime_text(seconds: i64) -> String {
    let time = std::time::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).expect("should be after 1970"));
    humantime::format_rfc3339(time).to_string()
}

/// Right after a start, SQL shows what was acknowledged before it, once.
async fn check_sql(server: &Server, ledger: &Ledger, what: &str) {
    for table in TABLES {
        if ledger.acked.contains_key(table) {
            ledger.check(table, &ids_by_sql(server, table).await, what);
        }
    }
}

async fn ids_by_sql(server: &Server, table: &str) -> Vec<i64> {
    let headers = [("content-type", "text/plain"), ("accept", "text/csv")];
    let reply = server.send("/v1/sql", &headers, format!("select id from {table}")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let text = reply.text();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("id"));
    let mut ids: Vec<i64> = lines.map(|line| line.parse().expect("should be a number")).collect();
    ids.sort_unstable();
    ids
}

/// Everything into Delta, an orderly end, and the tables as they lie on disk.
async fn drain_and_compare(launch: &Launch, data: &Path, ledger: &Ledger) {
    let server = launch.start().await;
    server.flush().await;
    check_sql(&server, ledger, "SQL after the flush").await;
    let mut locations = Vec::new();
    for table in TABLES {
        let shown = server.table(table).await;
        assert_eq!(shown["unflushed_rows"], 0, "{shown}");
        locations.push((table, shown["location"].as_str().expect("should be a URL").to_owned(), shown));
    }
    until_swept(&server).await;
    let log = server.stop().await;
    for (table, location, shown) in locations {
        let disk = delta::read(&location).await.expect("should be a Delta table");
        check_orphans(&location, &disk);
        ledger.check(table, &disk.longs("id"), "Delta on disk");
        disk.check_dates("ts");
        assert_eq!(shown["delta_rows"], disk.rows(), "{table}");
        assert_eq!(shown["delta_files"], disk.files.len(), "{table}");
        assert_eq!(shown["delta_version"], disk.version, "{table}");
    }
    // Segments were rolled and used again: the log is much shorter than what went through it.
    let segments =
        kit::files(&data.join("wal")).into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "seg"));
    let positions: Vec<u64> = segments
        .map(|(path, _)| {
            path.file_stem().and_then(|s| s.to_str()?.parse().ok()).expect("should be named by its position")
        })
        .collect();
    assert!(positions.iter().any(|p| *p > 1 << 20), "no segment was left behind: {positions:?}");
    assert!(!log.contains("panicked"), "{log}");
}

/// Until it is known of every file that was uploaded whether it is in a commit.
async fn until_swept(server: &Server) {
    for _ in 0..300 {
        let status = server.status().await;
        if status["flush"]["open_uploads"] == 0 {
            println!("{} orphans removed by the last server", status["flush"]["orphans_removed"]);
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("uploads are not decided: {}", server.status().await["flush"]);
}

/// The table's directory has the files that the log names, and no others, however its writers were killed.
fn check_orphans(location: &str, disk: &delta::OnDisk) {
    let root = url::Url::parse(location).expect("should be a URL").to_file_path().expect("should be local");
    let named: BTreeSet<_> = disk.files.iter().map(|(path, _)| root.join(path)).collect();
    let there = kit::files(&root).into_iter().map(|(path, _)| path);
    let data: BTreeSet<_> = there.filter(|path| !path.starts_with(root.join("_delta_log"))).collect();
    let orphans: Vec<_> = data.difference(&named).collect();
    assert!(orphans.is_empty(), "{location} has files that no commit refers to: {orphans:?}");
}

#[test]
fn the_ledger_notices_rows_that_are_lost_twice_there_or_made_up() {
    let post = |ids: [i64; 2], acked| Sent { table: "default.cpu", ids: ids.to_vec(), acked };
    let verdict = |found: &[i64]| {
        let mut ledger = Ledger::default();
        ledger.absorb(vec![post([1, 2], true), post([3, 4], false)]);
        let found = found.to_vec();
        std::panic::catch_unwind(move || ledger.check("default.cpu", &found, "here")).is_ok()
    };
    assert!(verdict(&[2, 1]) && verdict(&[1, 2, 4]), "what was not acknowledged may be there or not");
    assert!(!verdict(&[1]), "lost");
    assert!(!verdict(&[1, 2, 2]) && !verdict(&[1, 2, 3, 3]), "twice");
    assert!(!verdict(&[1, 2, 9]), "made up");
}
