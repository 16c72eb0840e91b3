//! Retry storms: every post is sent one to five times at once, over several connections and in any order, and again after the server was
//! killed, until it is acknowledged. Half of the posts carry a key of their own, half are numbered by a producer. In the end every row is
//! in its Delta table once, and all acks of a post were the same.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::kit::{self, Launch, NDJSON, Reply, Server, delta};

const TABLES: [&str; 2] = ["default.orders", "logs.events"];
const CONNECTIONS: usize = 8;
/// Rounds of a seed that end with a SIGKILL; one more ends the storm.
const KILLS: usize = 3;
const POSTS_A_ROUND: usize = 120;
/// How many seeds are tried; PENSTOCK_TEST_SEEDS sets another number.
const SEEDS: u64 = 3;

const SETTINGS: [(&str, &str); 6] = [
    ("store.segment", "1MiB"),
    ("flush.max_age", "150ms"),
    ("flush.min_age", "50ms"),
    ("flush.orphan_age", "0s"),
    ("flush.shutdown_timeout", "10s"),
    ("store.replay_memory", "128KiB"),
];

/// By what a post is known.
#[derive(Debug, Clone)]
enum Id {
    Key(String),
    Numbered { producer: String, epoch: u32, sequence: u64 },
}

#[derive(Debug)]
struct Post {
    table: &'static str,
    id: Id,
    ids: Vec<i64>,
    body: String,
    /// What its first ack said: receipt and rows.
    acked: Mutex<Option<(String, u64)>>,
    repeats: Mutex<u64>,
}

impl Post {
    fn request(&self, http: &reqwest::Client, base: &str) -> reqwest::RequestBuilder {
        let request = http.post(format!("{base}/v1/tables/{}/rows", self.table)).header("content-type", NDJSON);
        let request = match &self.id {
            Id::Key(key) => request.header("Idempotency-Key", key),
            Id::Numbered { producer, epoch, sequence } => request
                .header("Penstock-Producer", producer)
                .header("Penstock-Epoch", epoch.to_string())
                .header("Penstock-Sequence", sequence.to_string()),
        };
        request.body(self.body.clone())
    }

    /// Judges an answer; false if the post is to be sent again.
    fn answered(&self, reply: &Reply) -> bool {
        if [429, 503, 507].contains(&reply.status) {
            return false;
        }
        assert_eq!(reply.status, 200, "{:?}: {}", self.id, reply.text());
        let json = reply.json();
        let told =
            (json["receipt"].as_str().expect("should be text").to_owned(), json["rows"].as_u64().expect("a number"));
        assert_eq!(told.1, self.ids.len() as u64, "{:?}", self.id);
        let mut acked = self.acked.lock();
        match &*acked {
            Some(first) => assert_eq!(told, *first, "{:?} got another receipt", self.id),
            None => *acked = Some(told),
        }
        *self.repeats.lock() += u64::from(reply.header("penstock-repeated") == Some("true"));
        true
    }

    fn is_acked(&self) -> bool {
        self.acked.lock().is_some()
    }
}

/// All posts of a seed, and the numbers of the next ones.
struct Storm {
    random: StdRng,
    posts: Vec<Arc<Post>>,
    next_row: i64,
    next_sequence: [[u64; 2]; 2],
}

impl Storm {
    fn new_post(&mut self) -> Arc<Post> {
        let table = self.random.random_range(0..TABLES.len());
        let rows = self.random.random_range(1..8);
        let ids: Vec<i64> = (self.next_row..self.next_row + rows).collect();
        self.next_row += rows;
        let producer = self.random.random_range(0..2);
        let id = if self.random.random_bool(0.5) {
            Id::Key(format!("post {}", ids[0]))
        } else {
            let sequence = &mut self.next_sequence[table][producer];
            *sequence += 1;
            Id::Numbered { producer: format!("agent-{producer}"), epoch: 7, sequence: *sequence - 1 }
        };
        let row = |id: &i64| json!({ "ts": format!("2026-03-01T{:02}:00:00Z", id % 24), "id": id });
        let body = kit::ndjson(ids.iter().map(row));
        let (acked, repeats) = Default::default();
        let post = Arc::new(Post { table: TABLES[table], id, ids, body, acked, repeats });
        self.posts.push(Arc::clone(&post));
        post
    }

    /// New posts, all that are not acknowledged, and some that are; each several times, in any order.
    fn round(&mut self) -> VecDeque<Arc<Post>> {
        let known: Vec<_> = self.posts.choose_multiple(&mut self.random, 20).cloned().collect();
        let open: Vec<_> = self.posts.iter().filter(|post| !post.is_acked()).cloned().collect();
        let new: Vec<_> = (0..POSTS_A_ROUND).map(|_| self.new_post()).collect();
        let mut sends = Vec::new();
        for post in known.into_iter().chain(open).chain(new) {
            let times = self.random.random_range(1..=5);
            sends.extend(std::iter::repeat_n(post, times));
        }
        sends.shuffle(&mut self.random);
        // Those of one post are near each other, so that many are under way together.
        for at in 0..sends.len() {
            if self.random.random_bool(0.7) && at + 1 < sends.len() {
                let same = (at + 1..sends.len()).find(|n| Arc::ptr_eq(&sends[*n], &sends[at]));
                if let Some(same) = same {
                    sends.swap(at + 1, same);
                }
            }
        }
        sends.into()
    }
}

/// Sends until the queue is empty, or the server is gone.
async fn connection(base: String, queue: Arc<Mutex<VecDeque<Arc<Post>>>>, stop: Arc<AtomicBool>) {
    let http = kit::server::client();
    while !stop.load(Ordering::Relaxed) {
        let Some(post) = queue.lock().pop_front() else { return };
        match Reply::try_of(post.request(&http, &base)).await {
            Ok(reply) if post.answered(&reply) => {}
            Ok(_) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                queue.lock().push_back(post);
            }
            // Nobody knows what became of it: it is sent again in the next round.
            Err(_) => return,
        }
    }
}

async fn storm(seed: u64, launch: &Launch, data: &Path) {
    let mut storm =
        Storm { random: StdRng::seed_from_u64(seed), posts: Vec::new(), next_row: 0, next_sequence: [[0; 2]; 2] };
    for round in 0..=KILLS {
        let server = launch.start().await;
        let queue = Arc::new(Mutex::new(storm.round()));
        let stop = Arc::new(AtomicBool::new(false));
        let connections: Vec<_> = (0..CONNECTIONS)
            .map(|_| tokio::spawn(connection(server.url.clone(), Arc::clone(&queue), Arc::clone(&stop))))
            .collect();
        if round < KILLS {
            tokio::time::sleep(Duration::from_millis(storm.random.random_range(30..400))).await;
            server.kill();
            stop.store(true, Ordering::Relaxed);
            for connection in connections {
                connection.await.expect("should not panic");
            }
            continue;
        }
        for connection in connections {
            connection.await.expect("should not panic");
        }
        finish(&storm, server, seed).await;
    }
    assert!(data.join("wal").exists());
}

/// Everything is acknowledged; every row is in Delta once.
async fn finish(storm: &Storm, server: Server, seed: u64) {
    let open = storm.posts.iter().filter(|post| !post.is_acked()).count();
    assert_eq!(open, 0, "seed {seed}: posts without an ack");
    let repeats: u64 = storm.posts.iter().map(|post| *post.repeats.lock()).sum();
    assert!(repeats > storm.posts.len() as u64 / 2, "seed {seed}: only {repeats} repeats were answered: too few");
    server.flush().await;
    // The receipt of whatever start: its rows are in the table.
    for post in storm.posts.iter().step_by(29) {
        let (receipt, _) = post.acked.lock().clone().expect("should be acknowledged");
        let standing = server.get(&format!("/v1/receipts/{receipt}")).await.ok();
        assert_eq!(standing["state"], "committed", "seed {seed}: {standing}");
    }
    let mut locations = Vec::new();
    for table in TABLES {
        let shown = server.table(table).await;
        locations.push((table, shown["location"].as_str().expect("should be a URL").to_owned()));
    }
    let log = server.stop().await;
    assert!(!log.contains("panicked"), "{log}");
    for (table, location) in locations {
        let disk = delta::read(&location).await.expect("should be a Delta table");
        let mut found = disk.longs("id");
        found.sort_unstable();
        let posts = storm.posts.iter().filter(|post| post.table == table);
        let mut sent: Vec<i64> = posts.flat_map(|post| post.ids.iter().copied()).collect();
        sent.sort_unstable();
        let twice = found.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert_eq!(twice, 0, "seed {seed}: rows of {table} are there twice");
        assert!(found == sent, "seed {seed}: {table} has {} of {} rows", found.len(), sent.len());
    }
    println!("seed {seed}: {} posts, {repeats} repeats answered", storm.posts.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_retries_over_crashes_leaves_every_row_in_delta_once() {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let given = number("PENSTOCK_TEST_SEED");
    let first = given.unwrap_or_else(|| rand::random_range(0..1 << 40));
    let count = number("PENSTOCK_TEST_SEEDS").unwrap_or(if given.is_some() { 1 } else { SEEDS });
    for seed in first..first + count {
        println!("seed {seed}");
        let dir = kit::directory();
        let mut launch = Launch::on(dir.path()).set_all(&SETTINGS);
        if seed % 2 == 0 {
            launch = launch.set("store.checkpoint_interval", "50ms").set("store.checkpoint_log", "64KiB");
        }
        if seed % 3 == 0 {
            // Rows stay for longer, and are checkpointed and replayed before they are flushed.
            launch = launch.set("flush.max_age", "2s").set("flush.min_age", "1s");
        }
        storm(seed, &launch, dir.path()).await;
    }
}
