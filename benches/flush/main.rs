//! What a flush costs, and what it costs others: the log in memory, the flush and the lake as they are, and an object store in memory
//! whose calls take as long as they are told to. Figures of one run are for comparison with each other only.
//!
//! - `parallel`: generations committed a second of 64 tables at parallelism 16 and 1, every call 100 ms: wanted at least 12 times;
//! - `isolation`: p99 of seal to commit of 16 tables with and without another one whose commits take 5 s: wanted at most +10 %;
//! - `requests`: calls a commit in the steady state, by kind: wanted at most 2 and the share of a head check;
//! - `encode`: processor time of a generation of 100 MB from seal to commit, against one thread by hand: wanted at most 1.25 times;
//! - `codecs`: bytes and processor time of a data file, by compression and by rows of a row group;
//! - `history`: time and calls of commits behind number 10 and number 5,000 of a table, with log care: wanted at most 1.2 times.
//!
//! `cargo bench --bench flush` runs all, `cargo bench --bench flush -- requests` one; `PENSTOCK_BENCH_QUICK=1` is for seeing that it
//! runs at all.

mod codecs;
mod encode;
mod kit;
mod slow;

use std::sync::Arc;
use std::time::Duration;

use kit::{Node, percentile};
use slow::Slow;

const CALL: Duration = Duration::from_millis(100);
const SLOW_COMMIT: Duration = Duration::from_secs(5);

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Scale {
    window: Duration,
    commits: u64,
    /// Bytes of one large generation.
    payload: usize,
}

fn main() {
    let quick = std::env::var_os("PENSTOCK_BENCH_QUICK").is_some();
    let scale = match quick {
        true => Scale { window: Duration::from_secs(2), commits: 100, payload: 10 << 20 },
        false => Scale { window: Duration::from_secs(20), commits: 5_000, payload: 100 << 20 },
    };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("should have a runtime");
    if is_wanted("parallel") {
        runtime.block_on(parallel(scale));
    }
    if is_wanted("isolation") {
        runtime.block_on(isolation(scale));
    }
    if is_wanted("requests") {
        runtime.block_on(requests());
    }
    if is_wanted("encode") {
        runtime.block_on(encode::run(scale.payload));
    }
    if is_wanted("codecs") {
        codecs::run(scale.payload);
    }
    if is_wanted("history") {
        runtime.block_on(history(scale));
    }
    runtime.shutdown_background();
}

async fn parallel(scale: Scale) {
    let mut rates = Vec::new();
    for parallelism in [1, 16] {
        let node = Node::start(Slow::new(CALL), 64, parallelism).await;
        let lags = node.loops(&(0..64).collect::<Vec<_>>(), scale.window).await;
        let rate = lags.len() as f64 / scale.window.as_secs_f64();
        println!("parallel: {rate:8.1} generations/s at parallelism {parallelism}");
        rates.push(rate);
    }
    println!("parallel: {:8.1} times (wanted 12)", rates[1] / rates[0]);
}

async fn isolation(scale: Scale) {
    let mut p99 = Vec::new();
    for with_slow in [false, true] {
        let store = Slow::new(CALL);
        if with_slow {
            store.delay(&format!("{}/_delta_log/", Node::directory(16)), SLOW_COMMIT);
        }
        let node = Arc::new(Node::start(store, 17, 16).await);
        let slow = with_slow.then(|| {
            let node = Arc::clone(&node);
            tokio::spawn(async move { node.loops(&[16], scale.window).await })
        });
        let mut lags = node.loops(&(0..16).collect::<Vec<_>>(), scale.window).await;
        let lag = percentile(&mut lags, 0.99);
        let what = if with_slow { "one table takes 5 s" } else { "alone" };
        println!("isolation: p99 {lag:8.1?} of {} generations, {what}", lags.len());
        p99.push(lag.as_secs_f64());
        if let Some(slow) = slow {
            slow.abort();
        }
    }
    println!("isolation: {:+8.1} % (wanted at most +10)", (p99[1] / p99[0] - 1.0) * 100.0);
}

async fn requests() {
    const COMMITS: u64 = 200;
    let store = Slow::new(Duration::ZERO);
    let node = Node::start(Arc::clone(&store), 1, 4).await;
    node.flushes(0, 20).await;
    let before = store.calls();
    let versions = node.version(0).await;
    node.flushes(0, COMMITS).await;
    assert_eq!(node.version(0).await - versions, COMMITS, "one commit a flush");
    let mut all = 0;
    for (kind, count) in store.calls() {
        let made = count - before.get(kind).copied().unwrap_or(0);
        all += made;
        println!("requests: {:8.3} {kind} a commit", made as f64 / COMMITS as f64);
    }
    node.rest().await;
    println!("requests: {:8.3} a commit (wanted 2 and the share of a head check)", all as f64 / COMMITS as f64);
}

/// One commit behind the other, each confirmed at once: a table with as many versions and files as it says.
async fn history(scale: Scale) {
    /// Commits of a window: checkpoints of the large table fall into it as often as they are due.
    const WINDOW: u64 = 200;
    let store = Slow::new(Duration::ZERO);
    let node = Node::start(Arc::clone(&store), 1, 4).await;
    let mut figures = Vec::new();
    for number in [10, scale.commits] {
        node.flushes(0, number.saturating_sub(node.version(0).await)).await;
        let (calls, cpu) = (store.calls(), encode::cpu());
        let mut lags = node.flushes(0, WINDOW).await;
        node.rest().await;
        let cpu = (encode::cpu() - cpu).as_secs_f64() / WINDOW as f64;
        let mean = lags.iter().sum::<Duration>().as_secs_f64() / WINDOW as f64;
        let (median, p99) = (percentile(&mut lags, 0.5), percentile(&mut lags, 0.99));
        let made = |(kind, count): (&'static str, u64)| (count - calls.get(kind).copied().unwrap_or(0)) as f64;
        let calls = store.calls().into_iter().map(made).sum::<f64>() / WINDOW as f64;
        println!(
            "history: {:8.2} ms a commit (median {median:.2?}, p99 {p99:.2?}), {:.2} ms of CPU, {calls:.2} calls, behind \
             number {number}",
            mean * 1e3,
            cpu * 1e3
        );
        figures.push([mean, median.as_secs_f64(), cpu, calls]);
    }
    let [mean, median, cpu, calls] = std::array::from_fn(|at| figures[1][at] / figures[0][at]);
    println!(
        "history: {mean:8.2} times the time (median {median:.2}), {calls:.2} times the calls (wanted 1.2); CPU {cpu:.2}"
    );
}
