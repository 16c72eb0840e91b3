//! The figures of the last seconds: totals are noted once a second, and what lies between two notes is what was done in between.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use penstock_store::{Distribution, ShardStatus};

use super::Engine;
use super::explain::{Explanation, Measured, explain};
use crate::admission::policy::Limits;
use crate::admission::{Refusal, Usage};
use crate::config::Config;
use crate::config::tuning::{KEYS, Setting};
use crate::flush::{self, Waiting};
use crate::lake::Calls;

#[cfg(test)]
mod tests;

/// Between two notes.
const TICK: Duration = Duration::from_secs(1);
/// Notes that are kept: what is told is of so many seconds.
const NOTES: usize = 11;

/// Everything that grows, at one moment.
#[derive(Debug, Clone)]
pub(super) struct Totals {
    at: Instant,
    shards: Vec<ShardStatus>,
    delays: u64,
    refused: Vec<(&'static str, u64)>,
    drained: u64,
    flush: flush::Figures,
    lake: Calls,
    /// Sums over all notes, and how many those were: their differences are averages.
    waiting: Waiting,
    notes: u64,
}

/// What is set, and what is so at the moment.
#[derive(Debug, Clone)]
pub(super) struct Present {
    pub config: Config,
    pub processors: u64,
    pub memory_used: u64,
    /// The budget that is fullest, and how full it is.
    pub fullest: (&'static str, f64),
}

/// The last notes.
#[derive(Debug, Default)]
pub(super) struct Notes(VecDeque<Totals>);

impl Notes {
    fn add(&mut self, totals: Totals) {
        self.0.push_back(totals);
        while self.0.len() > NOTES {
            self.0.pop_front();
        }
    }
}

/// What was done between two notes.
pub(super) fn between(then: &Totals, now: &Totals, present: &Present) -> Measured {
    let seconds = now.at.saturating_duration_since(then.at).as_secs_f64().max(1e-3);
    let sum = |totals: &Totals, figure: fn(&ShardStatus) -> u64| totals.shards.iter().map(figure).sum::<u64>();
    let grown = |figure: fn(&ShardStatus) -> u64| sum(now, figure).saturating_sub(sum(then, figure)) as f64;
    let pairs = || now.shards.iter().zip(&then.shards);
    let syncs = pairs().map(|(now, then)| now.syncs.since(&then.syncs));
    let share = |micros: u64| micros as f64 / 1e6 / seconds;
    let log_micros = |s: &ShardStatus| s.write_micros + s.bookkeeping.sum;
    // The log that is busiest in all: both shares are of that one.
    let busy = pairs().map(|(now, then)| {
        (share(now.syncs.since(&then.syncs).sum), share(log_micros(now).saturating_sub(log_micros(then))))
    });
    let (sync_busy, log_busy) = busy.max_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1))).unwrap_or_default();
    let (sync_count, sync_micros) = syncs.fold((0, 0), |sum, syncs| (sum.0 + syncs.count(), sum.1 + syncs.sum));
    let count = |(code, count): &(&'static str, u64)| {
        let before = then.refused.iter().find(|(known, _)| known == code).map_or(0, |(_, count)| *count);
        Some((budget(code)?.to_owned(), count.saturating_sub(before))).filter(|(_, count)| *count > 0)
    };
    let looks = now.notes.saturating_sub(then.notes).max(1) as f64;
    let average =
        |figure: fn(&Waiting) -> u64| figure(&now.waiting).saturating_sub(figure(&then.waiting)) as f64 / looks;
    let mean = |now: &Distribution, then: &Distribution| {
        let since = now.since(then);
        since.sum as f64 / 1e3 / since.count().max(1) as f64
    };
    let held = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() / seconds;
    let (uploads, uploaded) =
        (now.flush.uploads - then.flush.uploads, now.flush.uploaded_bytes - then.flush.uploaded_bytes);
    let config = &present.config;
    let threads = config.flush.threads.max(1);
    Measured {
        seconds,
        records_per_second: grown(|s| s.records) / seconds,
        bytes_per_second: grown(|s| s.payload_bytes) / seconds,
        records_per_sync: grown(|s| s.records) / grown(|s| s.groups).max(1.0),
        sync_millis: sync_micros as f64 / 1e3 / sync_count.max(1) as f64,
        sync_busy,
        log_busy,
        shards: config.store.shards,
        delayed: now.delays.saturating_sub(then.delays),
        refused: now.refused.iter().filter_map(count).collect(),
        fullest: (present.fullest.0.to_owned(), present.fullest.1),
        budgets: budgets(config),
        drained_per_second: now.drained.saturating_sub(then.drained) as f64 / seconds,
        uploads_per_second: uploads as f64 / seconds,
        waiting: average(|w| w.to_upload),
        uploading: average(|w| w.uploading),
        ready: average(|w| w.to_commit),
        slots_full: held(now.flush.held_by_parallelism, then.flush.held_by_parallelism),
        memory_full: held(now.flush.held_by_memory, then.flush.held_by_memory),
        encode_busy: share(now.flush.encodes.since(&then.flush.encodes).sum) / threads as f64,
        upload_millis: mean(&now.lake.uploads, &then.lake.uploads),
        encode_millis: mean(&now.flush.encodes, &then.flush.encodes),
        commit_millis: mean(&now.flush.commits, &then.flush.commits),
        commits_per_second: now.flush.commits.since(&then.flush.commits).count() as f64 / seconds,
        generation_bytes: uploaded as f64 / uploads.max(1) as f64,
        parallelism: config.flush.parallelism.max(1) as u64,
        threads: threads as u64,
        processors: present.processors,
        memory: config.flush.memory.as_u64(),
        memory_used: present.memory_used,
        seal_bytes: config.flush.seal_bytes.as_u64(),
        commit_interval_millis: u64::try_from(config.flush.commit_interval.as_millis()).unwrap_or(u64::MAX),
    }
}

/// The setting behind a refusal; none for a post that could never fit.
fn budget(code: &str) -> Option<&'static str> {
    Some(match code {
        "over_unflushed_limit" => "admission.max_unflushed",
        "over_in_flight_limit" => "admission.max_in_flight",
        "over_replay_budget" => "admission.replay_budget",
        "over_table_share" => "admission.table_share",
        "over_namespace_share" => "admission.namespace_share",
        "over_cursor_lag" => "admission.max_cursor_lag",
        _ => return None,
    })
}

/// Each budget as it is set, and twice as large.
fn budgets(config: &Config) -> Vec<(String, String, String)> {
    let ours = KEYS.iter().filter(|key| key.name.starts_with("admission."));
    let twice = |setting| match setting {
        Setting::Count(count) => Setting::Count(count.saturating_mul(2)),
        Setting::Size(bytes) => Setting::Size(bytes.saturating_mul(2)),
        Setting::Time(time) => Setting::Time(time.saturating_mul(2)),
        Setting::Part(part) => Setting::Part((part * 2.0).min(1.0)),
    };
    ours.map(|key| (key.name.to_owned(), key.get(config).to_string(), twice(key.get(config)).to_string())).collect()
}

/// Which of the node's budgets is fullest; of the tables and namespaces the fullest counts.
pub(super) fn fullest(usage: &Usage, limits: &Limits) -> (&'static str, f64) {
    let part = |used: u64, limit: u64| used as f64 / limit.max(1) as f64;
    let coming = usage.in_flight.saturating_sub(usage.work);
    let parts = [
        ("admission.max_unflushed", part(usage.unflushed.saturating_add(coming), limits.max_unflushed)),
        ("admission.replay_budget", part(usage.replay.saturating_add(coming), limits.replay)),
        ("admission.table_share", part(usage.table, limits.table)),
        ("admission.namespace_share", part(usage.namespace, limits.namespace)),
    ];
    parts.into_iter().fold(("admission.max_unflushed", 0.0), |most, next| if next.1 > most.1 { next } else { most })
}

/// Notes the totals for as long as the engine is there.
pub(super) fn watch(engine: &Arc<Engine>) {
    let engine: Weak<Engine> = Arc::downgrade(engine);
    tokio::spawn(async move {
        loop {
            let Some(there) = engine.upgrade() else { return };
            // Costs by the table, and by the figure.
            if tokio::task::spawn_blocking(move || there.note()).await.is_err() {
                tracing::error!("the figures of a second are missing");
            }
            tokio::time::sleep(TICK).await;
        }
    });
}

impl Engine {
    fn note(&self) {
        let totals = self.totals();
        self.notes.lock().add(totals);
    }

    fn totals(&self) -> Totals {
        let (last, notes) = self.notes.lock().0.back().map(|last| (last.waiting, last.notes)).unwrap_or_default();
        let counted = self.admission.refusals_by_reason();
        let refused = Refusal::CODES
            .into_iter()
            .map(|code| (code, counted.iter().find(|(known, _)| *known == code).map_or(0, |(_, count)| *count)));
        Totals {
            at: Instant::now(),
            shards: self.store.status(),
            delays: self.admission.delays().0,
            refused: refused.collect(),
            drained: self.store.flushed_bytes(),
            flush: self.flusher.figures(),
            lake: self.lake.calls(),
            waiting: last + self.flusher.waiting(),
            notes: notes + 1,
        }
    }

    fn present(&self) -> Present {
        let (config, limits) = (self.layers.lock().config(), self.admission.limits());
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let fullest = fullest(&self.admission.fullest(self.store.held_bytes()), &limits);
        Present { config, processors, memory_used: self.flusher.encoding_bytes(), fullest }
    }

    /// What was done in the last seconds.
    pub fn measured(&self) -> Measured {
        let now = self.totals();
        let then = self.notes.lock().0.front().cloned();
        between(then.as_ref().unwrap_or(&now), &now, &self.present())
    }

    /// What binds now, and what the next setting would change.
    pub fn explain(&self) -> Explanation {
        explain(self.measured())
    }
}
