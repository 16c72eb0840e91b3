//! The eyes of admission: what is measured several times a second, so that no post has to.
//!
//! - the log bytes that a restart would read, and a checkpoint early where they near the budget;
//! - how fast rows reach Delta: what left the store over the last seconds. While nothing waits there is nothing to measure, and the
//!   last rate stands;
//! - how long each table's oldest row has waited.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use penstock_store::{ShardStatus, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admission::policy::wants_checkpoint;
use crate::admission::{Admission, Observed};

/// Between two looks at the figures.
const TICK: Duration = Duration::from_millis(100);
/// The rate is measured over this long.
const WINDOW: Duration = Duration::from_secs(10);
/// Ages cost by the generation: this often at most, and never more than this share of the time.
const AGES: Duration = Duration::from_secs(1);
const AGES_SHARE: u32 = 50;

/// How fast rows leave. A pure record of what it was told.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// When, and how many bytes had left by then.
    seen: VecDeque<(Instant, u64)>,
    rate: u64,
}

impl Drain {
    /// Takes a look: `left` bytes have left the store since its start, `waiting` wait. Answers the rate in bytes a second.
    pub(super) fn look(&mut self, now: Instant, left: u64, waiting: u64) -> u64 {
        if waiting == 0 {
            // Idle time would be taken for slowness.
            self.seen.clear();
            return self.rate;
        }
        self.seen.push_back((now, left));
        while self.seen.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= WINDOW) {
            self.seen.pop_front();
        }
        let Some((since, before)) = self.seen.front().copied() else { return self.rate };
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        // Flushes come in steps: less than a window shows the step and not the rate.
        if seconds >= WINDOW.as_secs_f64() * 0.9 {
            self.rate = (left.saturating_sub(before) as f64 / seconds) as u64;
        } else if self.rate == 0 && left > before {
            self.rate = (left.saturating_sub(before) as f64 / seconds.max(1.0)) as u64;
        }
        self.rate
    }
}

/// Looks until it is stopped or the store is gone.
pub(super) fn watch(store: &Arc<Store>, admission: &Arc<Admission>, mut stop: watch::Receiver<bool>) -> JoinHandle<()> {
    let (store, admission) = (Arc::downgrade(store), Arc::clone(admission));
    tokio::spawn(async move {
        let mut eyes = Eyes { drain: Drain::default(), next_ages: Instant::now() };
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(TICK) => {}
            }
            let Some(look) = look(&store, &admission, eyes).await else { return };
            eyes = look;
        }
    })
}

struct Eyes {
    drain: Drain,
    next_ages: Instant,
}

async fn look(store: &Weak<Store>, admission: &Arc<Admission>, mut eyes: Eyes) -> Option<Eyes> {
    let (store, admission) = (store.upgrade()?, Arc::clone(admission));
    // Ages take locks, and milliseconds where there are many tables.
    let looked = tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let shards = store.status();
        let sum = |figure: fn(&ShardStatus) -> u64| shards.iter().map(figure).sum::<u64>();
        let replay = store.replay_weight();
        let waiting = sum(|s| s.unflushed_bytes);
        let drain_rate = eyes.drain.look(began, store.flushed_bytes(), waiting);
        admission.observe(Observed { replay, drain_rate });
        if wants_checkpoint(replay, &admission.limits()) {
            store.checkpoint_soon();
        }
        if began >= eyes.next_ages {
            for summary in store.summaries() {
                let generations = summary.open.iter().chain(summary.sealed.iter().map(|s| &s.generation));
                let oldest = generations.map(|g| g.opened_at).min();
                let lag = oldest.map_or(Duration::ZERO, |at| began.saturating_duration_since(at));
                admission.observe_lag(summary.table, lag);
            }
            eyes.next_ages = Instant::now() + AGES.max(began.elapsed() * AGES_SHARE);
        }
        eyes
    });
    match looked.await {
        Ok(eyes) => Some(eyes),
        Err(error) => {
            tracing::error!(%error, "admission is blind until it looks again");
            Some(Eyes { drain: Drain::default(), next_ages: Instant::now() })
        }
    }
}

#[cfg(test)]
mod tests;
