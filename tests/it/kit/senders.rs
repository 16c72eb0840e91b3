//! Senders that do what they are told: a post that is refused is sent again after the time that the refusal names, and not earlier,
//! until it is acknowledged. What they know of their rows is checked against the lake.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{NDJSON, Reply};

/// One sender's habits.
#[derive(Debug, Clone)]
pub struct Habit {
    pub table: &'static str,
    /// Rows a post.
    pub rows: Range<i64>,
    /// Bytes of a row's text, which does not compress.
    pub pad: usize,
    /// Between an ack and the next post.
    pub pause: Range<u64>,
}

/// What all senders know of their rows.
#[derive(Debug, Default)]
pub struct Ledger {
    pub acked: BTreeMap<&'static str, BTreeSet<i64>>,
    /// Also those of which nobody knows what became.
    pub sent: BTreeMap<&'static str, BTreeSet<i64>>,
    /// When posts were acknowledged, since the beginning.
    pub acks: BTreeMap<&'static str, Vec<Duration>>,
    /// Refusals by status and code.
    pub refusals: BTreeMap<(u16, String), u64>,
    /// Most refusals of one post that made it through, by table.
    pub attempts: BTreeMap<&'static str, u64>,
    /// Bytes of bodies that were acknowledged.
    pub bytes: u64,
}

/// Senders at work.
#[derive(Debug)]
pub struct Senders {
    pub ledger: Arc<Mutex<Ledger>>,
    stop: Arc<AtomicBool>,
    next: Arc<AtomicI64>,
    began: Instant,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Default for Senders {
    fn default() -> Self {
        let (ledger, stop, next, tasks) = Default::default();
        Self { ledger, stop, next, began: Instant::now(), tasks }
    }
}

impl Senders {
    /// Sets them to work on a server.
    pub fn start(&mut self, url: &str, habits: &[Habit], random: &mut StdRng) {
        self.stop.store(false, Ordering::SeqCst);
        for habit in habits {
            let sender = Sender {
                habit: habit.clone(),
                url: format!("{url}/v1/tables/{}/rows", habit.table),
                http: super::server::client(),
                ledger: Arc::clone(&self.ledger),
                stop: Arc::clone(&self.stop),
                next: Arc::clone(&self.next),
                began: self.began,
                random: StdRng::seed_from_u64(random.random()),
                text: (0..TEXT).map(|_| char::from(random.random_range(b'0'..b'['))).collect(),
            };
            self.tasks.push(tokio::spawn(sender.run()));
        }
    }

    /// No further posts; those that were refused are still brought through. Waits for all of them.
    pub async fn finish(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks.drain(..) {
            task.await.expect("a sender should not panic");
        }
    }

    /// Waits until the server is gone for all of them, or they are told to stop.
    pub async fn ended(&mut self) {
        for task in self.tasks.drain(..) {
            task.await.expect("a sender should not panic");
        }
    }
}

struct Sender {
    habit: Habit,
    url: String,
    http: reqwest::Client,
    ledger: Arc<Mutex<Ledger>>,
    stop: Arc<AtomicBool>,
    next: Arc<AtomicI64>,
    began: Instant,
    random: StdRng,
    /// What texts are cut out of.
    text: String,
}

/// Bytes of it.
const TEXT: usize = 256 << 10;

impl Sender {
    async fn run(mut self) {
        while !self.stop.load(Ordering::SeqCst) {
            let rows = self.random.random_range(self.habit.rows.clone());
            let first = self.next.fetch_add(rows, Ordering::SeqCst);
            if !self.bring_through(first..first + rows).await {
                return;
            }
            let pause = self.random.random_range(self.habit.pause.clone());
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// False if the server is gone, and with it the knowledge of what became of the rows.
    async fn bring_through(&mut self, ids: Range<i64>) -> bool {
        let table = self.habit.table;
        let body: bytes::Bytes = self.body(ids.clone()).into();
        self.ledger.lock().sent.entry(table).or_default().extend(ids.clone());
        for attempt in 0.. {
            let request = self.http.post(&self.url).header("content-type", NDJSON).body(body.clone());
            let Ok(reply) = Reply::try_of(request).await else { return false };
            if reply.status == 200 {
                let mut ledger = self.ledger.lock();
                ledger.acked.entry(table).or_default().extend(ids);
                ledger.acks.entry(table).or_default().push(self.began.elapsed());
                ledger.bytes += body.len() as u64;
                let most = ledger.attempts.entry(table).or_default();
                *most = attempt.max(*most);
                return true;
            }
            *self.ledger.lock().refusals.entry((reply.status, reply.refusal())).or_default() += 1;
            tokio::time::sleep(wait(&reply)).await;
        }
        unreachable!("attempts do not end")
    }

    fn body(&mut self, ids: Range<i64>) -> String {
        let mut body = String::new();
        for id in ids {
            let at = self.random.random_range(0..TEXT - self.habit.pad);
            let pad = &self.text[at..at + self.habit.pad];
            body.push_str(&format!("{{\"ts\":\"2026-04-01T10:00:00Z\",\"id\":{id},\"pad\":\"{pad}\"}}\n"));
        }
        body
    }
}

/// When to come again, which every refusal for overload has to say.
pub fn wait(reply: &Reply) -> Duration {
    assert!(matches!(reply.status, 429 | 503 | 507), "{}: {}", reply.status, reply.text());
    let wait = reply.header("retry-after").and_then(|w| w.parse().ok());
    let wait: u64 = wait.unwrap_or_else(|| panic!("should say when to come again: {}", reply.text()));
    assert!((1..=60).contains(&wait), "{wait}");
    Duration::from_secs(wait)
}

impl Ledger {
    /// Every acknowledged row once; others at most once, and nothing that was never sent.
    pub fn check(&self, table: &str, found: &[i64]) {
        let once: BTreeSet<i64> = found.iter().copied().collect();
        assert_eq!(once.len(), found.len(), "{table} has rows twice");
        let none = BTreeSet::new();
        let (acked, sent) = (self.acked.get(table).unwrap_or(&none), self.sent.get(table).unwrap_or(&none));
        let lost: Vec<_> = acked.difference(&once).take(10).collect();
        let strange: Vec<_> = once.difference(sent).take(10).collect();
        assert!(lost.is_empty(), "{table} has lost acknowledged rows: {lost:?} ...");
        assert!(strange.is_empty(), "{table} has rows that nobody sent: {strange:?} ...");
    }

    /// Rows that were acknowledged, of all tables.
    pub fn rows(&self) -> usize {
        self.acked.values().map(BTreeSet::len).sum()
    }
}
