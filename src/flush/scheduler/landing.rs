//! What follows a commit that the log took: the wait for the look that confirms it, and what becomes of rows that turn out not to be
//! where they were put, or that are not to be put anywhere.

use std::sync::Arc;
use std::time::Instant;

use penstock_store::{Commit, TableId};

use super::{Scheduler, record};
use crate::flush::job;
use crate::flush::table::{Landed, Queue, Ready};

impl Scheduler {
    /// Time has passed: commits of some tables have waited for long enough.
    pub(super) fn wake_unconfirmed(&mut self, now: Instant) {
        let (queues, delay, eager) = (&self.queues, self.context.options.get().confirm_delay, self.eager);
        let at = |table: &TableId| queues.get(table).and_then(|queue| queue.confirm_at(now, delay, eager));
        let due: Vec<TableId> =
            self.unconfirmed.iter().copied().filter(|t| at(t).is_some_and(|at| at <= now)).collect();
        due.into_iter().for_each(|table| self.wake(table));
    }

    /// The log took a commit. MUST NOT be released before it is confirmed: the PUT may have gone into a hole.
    pub(super) fn landed(&mut self, table: TableId, ready: Ready, done: &job::Done) {
        if !done.committed.adopted {
            self.context.sweep.landed(table, &ready.files.adds);
        }
        let bytes = if done.committed.adopted { 0 } else { ready.files.bytes };
        let (incarnation, sequence, version) = (ready.incarnation, ready.sequence, done.committed.version);
        let dead = ready.dead.is_some();
        if let Some((sealed, reason)) = ready.dead {
            let (table, rows) = (self.name_of(table), sealed.generation.totals().rows);
            let what = "rows that cannot be written went to the namespace's dead_generations table as they are";
            tracing::error!(table, %incarnation, sequence, rows, reason, "{what}");
        }
        let Some(queue) = self.queues.get_mut(&table) else { return };
        queue.landed(Landed { incarnation, sequence, version, bytes, dead }, Instant::now());
        self.unconfirmed.insert(table);
        if done.confirmed {
            self.confirmed(table);
        }
    }

    pub(super) fn confirmed(&mut self, table: TableId) {
        self.unconfirmed.remove(&table);
        let landed = self.queues.get_mut(&table).map(Queue::confirmed).unwrap_or_default();
        for Landed { incarnation, sequence, version, bytes, dead } in landed {
            self.release(Commit { table, incarnation, sequence, version }, bytes, dead);
        }
    }

    /// Either the table holds other rows than we believed, and is asked again, or it has to wait.
    pub(super) fn stale_or_failed(&mut self, table: TableId, error: &job::Error) {
        if !error.is_stale() {
            return self.failed(table, error);
        }
        tracing::info!(%table, %error, "asking the table again");
        self.context.sweep.doubted(table);
        if let Some(queue) = self.queues.get_mut(&table) {
            queue.resolved = false;
            if error.is_void() {
                queue.void();
            }
        }
        if error.is_void() {
            // With a pause: a table that somebody replaces again and again must not be uploaded to without end.
            self.failed(table, error);
        }
        self.wake(table);
    }

    /// Somebody has decided that rows in doubt are not to be flushed. What they hold no longer counts, as if it were committed.
    pub(super) fn let_go(&mut self, commit: Commit) {
        let Commit { table, incarnation, sequence, .. } = commit;
        let dropped = self.queues.get_mut(&table).map(|q| q.committed(incarnation, sequence)).unwrap_or_default();
        if dropped.generations > 0 {
            tracing::warn!(%table, %incarnation, sequence, rows = dropped.rows, "rows in doubt were dropped, as decided");
            let pending = self.context.store.commit(commit);
            self.tasks.spawn(record(Arc::clone(&self.context.store), commit, pending));
        }
    }
}
