//! Sampling and sending.
//!
//! One thread samples and puts posts into a short queue; several senders take them out. A full queue holds the
//! sampling back, so that nothing is sampled that is not sent.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::sample::Sampler;
use super::telemetry::{Post, Source};
use super::{Error, report};
use crate::cli::client::Client;
use crate::cli::latency::Latencies;
use crate::cli::show;
use crate::cli::signals::{FINISH, Interrupts};

/// Posts that may wait for a sender.
const QUEUE: usize = 64;
/// How long a post that is refused is sent again, before the refusal is final.
const RETRY_FOR: Duration = Duration::from_secs(60);
const REDRAW: Duration = Duration::from_millis(100);

/// How much to send.
#[derive(Debug, Clone)]
pub struct Plan {
    pub time: Duration,
    pub senders: usize,
    pub samples_per_second: u32,
}

/// What was sent and acknowledged.
#[derive(Debug, Default)]
pub struct Sent {
    pub latencies: Latencies,
    /// Rows acknowledged, by source in the order of `Source::ALL`.
    pub rows: [u64; Source::ALL.len()],
    pub posts: u64,
    /// Posts answered with 503 and sent again.
    pub refusals: u64,
    pub elapsed: Duration,
    /// None if the sending was cut short.
    pub glimpse: Option<Glimpse>,
}

/// What a query saw while rows were arriving.
#[derive(Debug, Clone, Copy)]
pub struct Glimpse {
    /// Rows of processes acknowledged before the query was sent.
    pub acked_before: u64,
    /// Rows it counted.
    pub visible: u64,
    /// Rows not in Delta just after it.
    pub unflushed: u64,
}

/// Rows acknowledged so far, for the progress bar and the glimpse.
#[derive(Debug, Default)]
struct Acked {
    rows: [AtomicU64; Source::ALL.len()],
}

impl Acked {
    fn total(&self) -> u64 {
        self.rows.iter().map(|rows| rows.load(Ordering::Relaxed)).sum()
    }

    fn of(&self, source: Source) -> u64 {
        self.rows[source as usize].load(Ordering::Relaxed)
    }
}

/// Samples and sends for the time planned, or until the first Ctrl-C; returns when every post is acknowledged.
pub async fn run(client: &Client, plan: &Plan, interrupts: &Interrupts) -> Result<Sent, crate::cli::Error> {
    let started = Instant::now();
    let acked = Arc::new(Acked::default());
    let stop = Arc::new(AtomicBool::new(false));
    // Ends the sampling also when this future is dropped.
    let _stop_on_drop = StopOnDrop(Arc::clone(&stop));
    let (queue, posts) = mpsc::channel(QUEUE);
    let sampling = tokio::task::spawn_blocking({
        let (plan, stop) = (plan.clone(), Arc::clone(&stop));
        move || sample_until_stopped(&plan, &stop, &queue)
    });
    let posts = Arc::new(Mutex::new(posts));
    let mut senders = JoinSet::new();
    for _ in 0..plan.senders {
        senders.spawn(send(client.clone(), Arc::clone(&posts), Arc::clone(&acked)));
    }
    // Now only the senders hold the queue's other end: should all of them fail, the sampling ends too.
    drop(posts);

    let bar = progress_bar(plan.time);
    let mut sent = Sent::default();
    let watching = watch(client, plan, &acked, &bar, started);
    tokio::pin!(watching);
    let mut watched = false;
    loop {
        tokio::select! {
            glimpse = &mut watching, if !watched => {
                sent.glimpse = glimpse?;
                watched = true;
                stop.store(true, Ordering::Relaxed);
            }
            () = interrupts.reached(FINISH), if !watched => {
                watched = true;
                stop.store(true, Ordering::Relaxed);
            }
            finished = senders.join_next() => match finished {
                Some(finished) => sent.add(finished.map_err(|e| Error::Task(e.to_string()))??),
                None => break,
            },
        }
    }
    bar.finish_and_clear();
    sent.elapsed = started.elapsed();
    sampling.await.map_err(|e| Error::Task(e.to_string()))?.map_err(Error::Sample)?;
    for (rows, acked) in sent.rows.iter_mut().zip(&acked.rows) {
        *rows = acked.load(Ordering::Relaxed);
    }
    Ok(sent)
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn sample_until_stopped(plan: &Plan, stop: &AtomicBool, queue: &mpsc::Sender<Post>) -> procfs::ProcResult<()> {
    let period = Duration::from_secs(1) / plan.samples_per_second;
    let mut sampler = Sampler::new();
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sample = sampler.sample(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))?;
        for post in sample.posts(plan.senders) {
            if queue.blocking_send(post).is_err() {
                return Ok(());
            }
        }
        // Samples that were missed are not made up for.
        next = (next + period).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// What one sender did.
#[derive(Debug, Default)]
struct Share {
    latencies: Latencies,
    posts: u64,
    refusals: u64,
}

impl Sent {
    fn add(&mut self, share: Share) {
        self.latencies.merge(&share.latencies);
        self.posts += share.posts;
        self.refusals += share.refusals;
    }
}

async fn send(
    client: Client,
    posts: Arc<Mutex<mpsc::Receiver<Post>>>,
    acked: Arc<Acked>,
) -> Result<Share, crate::cli::Error> {
    let mut share = Share::default();
    loop {
        let next = posts.lock().await.recv().await;
        let Some(post) = next else { return Ok(share) };
        let table = post.source.table();
        let give_up = Instant::now() + RETRY_FOR;
        loop {
            let sent = Instant::now();
            match client.append(&table, crate::cli::client::NDJSON, post.body.clone()).await {
                Ok(reply) if reply.rows == post.rows => {
                    share.latencies.record(sent.elapsed());
                    share.posts += 1;
                    acked.rows[post.source as usize].fetch_add(post.rows, Ordering::Relaxed);
                    break;
                }
                Ok(reply) => {
                    let table = table.to_string();
                    return Err(Error::Acknowledged { table, sent: post.rows, acked: reply.rows }.into());
                }
                // Only a refusal leaves nothing behind. After any other failure the rows may or may not be there, and
                // sending them again would spoil the counts.
                Err(error) => {
                    let pause = error.retry_after().filter(|pause| sent + *pause < give_up);
                    let Some(pause) = pause else { return Err(error.into()) };
                    share.refusals += 1;
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

/// Draws the progress until the time is over; half-way through asks in SQL what is visible.
async fn watch(
    client: &Client,
    plan: &Plan,
    acked: &Acked,
    bar: &ProgressBar,
    started: Instant,
) -> Result<Option<Glimpse>, crate::cli::Error> {
    let mut glimpse = None;
    let mut redraw = tokio::time::interval(REDRAW);
    loop {
        redraw.tick().await;
        let elapsed = started.elapsed();
        let total = acked.total();
        let rate = total as f64 / elapsed.as_secs_f64().max(1e-3);
        bar.set_position(elapsed.min(plan.time).as_millis() as u64);
        bar.set_message(format!("{} rows acked, {} rows/s", show::count(total), show::rate(rate)));
        if glimpse.is_none() && elapsed >= plan.time / 2 && acked.of(Source::Processes) > 0 {
            let seen = look(client, acked).await?;
            let line = report::glimpse(&seen);
            bar.suspend(|| io::stdout().lock().write_all(line.as_bytes())).map_err(Error::Output)?;
            glimpse = Some(seen);
        }
        if elapsed >= plan.time {
            return Ok(glimpse);
        }
    }
}

async fn look(client: &Client, acked: &Acked) -> Result<Glimpse, crate::cli::Error> {
    let table = Source::Processes.table();
    let acked_before = acked.of(Source::Processes);
    let visible = client.sql_count(&format!("SELECT count(*) FROM {table}")).await?;
    let unflushed = client.table(&table).await?.unflushed_rows;
    Ok(Glimpse { acked_before, visible, unflushed })
}

fn progress_bar(time: Duration) -> ProgressBar {
    let style = ProgressStyle::with_template("  [{bar:32}] {msg}").expect("should be a valid template");
    ProgressBar::new(time.as_millis() as u64).with_style(style.progress_chars("=> "))
}
