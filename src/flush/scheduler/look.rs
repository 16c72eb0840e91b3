//! The look at the store: what is sealed is taken in, what should be sealed is, pauses end. It never waits, neither for a disk nor for
//! the lake; it costs by the table, and is paced for that.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use penstock_store::{Generation, TableId, TableSummary};

use super::tasks::answers;
use super::{LOOK_SHARE, Scheduler, TICK};
use crate::flush::cadence::Cadence;
use crate::flush::policy::{Candidate, seal_reason};
use crate::flush::table::Queue;

impl Scheduler {
    /// Takes in what is sealed, and, on its own time, seals what should be.
    pub(super) fn look(&mut self, may_seal: bool) {
        let began = Instant::now();
        let mut summaries = self.context.store.summaries();
        for summary in &mut summaries {
            let sealed = std::mem::take(&mut summary.sealed);
            if sealed.is_empty() {
                continue;
            }
            let queue = self.queues.entry(summary.table).or_default();
            let before = queue.bytes();
            if queue.enqueue(sealed) {
                let bytes = queue.bytes() - before;
                self.cadences.entry(summary.table).or_default().sealed(bytes, began);
                self.wake(summary.table);
            }
        }
        self.end_pauses(began);
        self.wake_unconfirmed(began);
        if may_seal {
            self.seal_due(&summaries, began);
            let lately = self.context.options.get().max_age.saturating_mul(2);
            let active = |cadence: &&Cadence| cadence.is_active(lately, began);
            self.shared.load.lock().active_tables = self.cadences.values().filter(active).count();
            self.next_look = tokio::time::Instant::now() + TICK.max(began.elapsed() * LOOK_SHARE);
        }
    }

    fn seal_due(&mut self, summaries: &[TableSummary], now: Instant) {
        let relief = (self.relief)();
        self.eager = relief > 0;
        if self.sealing || self.no_seal_before.is_some_and(|then| now < then) {
            return;
        }
        // What is on its way already may be enough: sealing more would only make small files.
        let moving: u64 = self.queues.values().map(Queue::moving_bytes).sum();
        let mut wanted = relief.saturating_sub(moving);
        let mut open: Vec<&Arc<Generation>> = summaries.iter().flat_map(|s| &s.open).collect();
        if wanted > 0 {
            open.sort_by_cached_key(|generation| Reverse(generation.totals().bytes));
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64);
        let options = self.context.options.get();
        let mut seals = Vec::new();
        for generation in open {
            let bytes = generation.totals().bytes;
            let age = now.saturating_duration_since(generation.opened_at);
            let is_due = || self.cadences.get(&generation.table).is_none_or(|cadence| cadence.is_due(&options, now));
            let candidate = Candidate { bytes, age, window_end: generation.bucket.end() };
            if let Some(reason) = seal_reason(&candidate, &options, wall, wanted > 0, is_due) {
                tracing::debug!(table = %generation.table, bucket = generation.bucket.start, ?reason, "sealing");
                self.shared.tally.sealed(reason);
                wanted = wanted.saturating_sub(bytes);
                seals.push(self.context.store.seal(generation.table, generation.bucket, generation.first_lsn));
            }
        }
        if !seals.is_empty() {
            self.sealing = true;
            self.tasks.spawn(answers(seals, Arc::clone(&self.shared.tally)));
        }
    }

    fn end_pauses(&mut self, now: Instant) {
        for table in self.shared.take_demanded() {
            if let Some(queue) = self.queues.get_mut(&table) {
                queue.retry_now();
                self.wake(table);
            }
        }
        let queues = &self.queues;
        let over = |table: &TableId| queues.get(table).is_none_or(|queue| !queue.is_paused(now));
        let over: Vec<TableId> = self.paused.iter().copied().filter(over).collect();
        for table in over {
            self.paused.remove(&table);
            self.wake(table);
        }
    }
}
