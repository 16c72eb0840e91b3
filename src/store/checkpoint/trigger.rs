//! When the next checkpoint of a shard is due: an interval, a long log, or somebody's wish.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::Outcome;

/// Somebody who waits for a checkpoint.
#[derive(Debug)]
pub struct Demand {
    /// Whether somebody waits at a prompt, or the process wants to end: nothing is paced.
    pub at_once: bool,
    /// The answer.
    pub done: oneshot::Sender<Outcome>,
}

/// Why a checkpoint is due.
#[derive(Debug)]
pub enum Due {
    /// The interval is over.
    Interval,
    /// The log behind the last checkpoint is long.
    LongLog,
    /// On demand; at least one.
    Demand(Vec<Demand>),
    /// None is; the interval has changed.
    Retimed,
    /// No more checkpoints.
    Stop,
}

#[derive(Debug, Default)]
struct Wishes {
    log_is_long: bool,
    demands: Vec<Demand>,
    retimed: bool,
    stop: bool,
}

/// Where the owner, callers and the clock meet the checkpointing thread.
#[derive(Debug, Default)]
pub struct Trigger {
    wishes: Mutex<Wishes>,
    changed: Condvar,
}

impl Trigger {
    /// Waits until a checkpoint is due, at the latest at `interval_ends` (never without one).
    pub fn wait(&self, interval_ends: Option<Instant>) -> Due {
        let mut wishes = self.wishes.lock();
        loop {
            if wishes.stop {
                return Due::Stop;
            }
            if !wishes.demands.is_empty() {
                wishes.log_is_long = false;
                return Due::Demand(std::mem::take(&mut wishes.demands));
            }
            if std::mem::take(&mut wishes.log_is_long) {
                return Due::LongLog;
            }
            if std::mem::take(&mut wishes.retimed) {
                return Due::Retimed;
            }
            match interval_ends {
                None => self.changed.wait(&mut wishes),
                Some(end) if self.changed.wait_until(&mut wishes, end).timed_out() => return Due::Interval,
                Some(_) => {}
            }
        }
    }

    /// Waits at most `time`, but no longer than until a stop or a demand; true if it was over before.
    pub fn pause(&self, time: Duration) -> bool {
        let mut wishes = self.wishes.lock();
        let end = Instant::now() + time;
        let hurry = |w: &Wishes| w.stop || w.demands.iter().any(|d| d.at_once);
        while !hurry(&wishes) {
            if self.changed.wait_until(&mut wishes, end).timed_out() {
                return false;
            }
        }
        true
    }

    /// The log behind the last checkpoint has become long.
    pub fn log_is_long(&self) {
        let mut wishes = self.wishes.lock();
        if !std::mem::replace(&mut wishes.log_is_long, true) {
            self.changed.notify_all();
        }
    }

    /// The interval has changed.
    pub fn retime(&self) {
        self.wishes.lock().retimed = true;
        self.changed.notify_all();
    }

    /// Asks for a checkpoint.
    pub fn demand(&self, at_once: bool) -> oneshot::Receiver<Outcome> {
        let (done, answer) = oneshot::channel();
        let mut wishes = self.wishes.lock();
        // After a stop nobody would answer; the dropped sender does.
        if !wishes.stop {
            wishes.demands.push(Demand { at_once, done });
            self.changed.notify_all();
        }
        answer
    }

    /// Ends the checkpointing; who waits gets no answer.
    pub fn stop(&self) {
        let mut wishes = self.wishes.lock();
        wishes.stop = true;
        wishes.demands.clear();
        self.changed.notify_all();
    }
}
