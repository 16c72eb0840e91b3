//! What callers hand to a shard's owner. Bounded in bytes; the order of arrival is the order of LSNs.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::record::{Commit, Define, Encoded, Rows};
use super::segment::Segment;
use crate::bucket::Sealed;
use crate::bucket::dirty::Dirty;
use crate::error::AppendError;
use crate::types::{Bucket, Lsn, Note, TableId};

/// Where an acknowledged record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The shard.
    pub shard: u32,
    /// Where the record starts.
    pub lsn: Lsn,
    /// For a repeat, what is remembered of the first one, which is where the record lies.
    pub repeat_of: Option<Note>,
}

/// One caller's wish. The answer comes after the sync that covers it.
#[derive(Debug)]
pub enum Request {
    /// Rows.
    Append {
        /// The rows.
        rows: Rows,
        /// Their record.
        encoded: Encoded,
        /// Who waits.
        done: Answer<Appended>,
    },
    /// A table's definition.
    Define {
        /// The definition.
        define: Define,
        /// Its record.
        encoded: Encoded,
        /// Who waits.
        done: Answer<Appended>,
    },
    /// The wish to close a generation.
    Seal {
        /// The table.
        table: TableId,
        /// The bucket.
        bucket: Bucket,
        /// The generation that is meant: nothing is sealed if another one is open.
        generation: Lsn,
        /// Who waits.
        done: Answer<Option<Sealed>>,
    },
    /// A checkpoint's wish to take what has changed.
    Swap {
        /// Who waits.
        done: Answer<Swap>,
    },
    /// Word that a durable checkpoint no longer needs the log below an LSN.
    Release {
        /// The checkpoint.
        below: Lsn,
        /// Who waits: gets the segments that nobody needs any more.
        done: Answer<Vec<Segment>>,
    },
    /// Word that Delta holds rows.
    Commit {
        /// Which rows.
        commit: Commit,
        /// Its record.
        encoded: Encoded,
        /// Who waits.
        done: Answer<()>,
    },
}

/// What a checkpoint takes, of one moment between two groups.
#[derive(Debug)]
pub struct Swap {
    /// The end of the last durable, applied group.
    pub checkpoint: Lsn,
    /// Base of the segment that it lies in.
    pub segment: Lsn,
    /// Records up to there, as `Counters::log_records` counts them.
    pub records: u64,
    /// What has changed since the last swap, up to there.
    pub dirty: Dirty,
}

/// The sending half of a caller's wait.
pub type Answer<T> = oneshot::Sender<Result<T, AppendError>>;

/// A seal's weight: no less than its frame.
const SEAL_BYTES: usize = 128;

impl Request {
    /// Bytes this takes in the log, at most.
    fn weight(&self) -> usize {
        match self {
            Self::Append { encoded, .. } | Self::Define { encoded, .. } | Self::Commit { encoded, .. } => {
                encoded.padded_len()
            }
            Self::Seal { .. } => SEAL_BYTES,
            Self::Swap { .. } | Self::Release { .. } => 0,
        }
    }

    /// Whether the caller can wait for somebody else's sync.
    fn is_lazy(&self) -> bool {
        matches!(self, Self::Commit { .. })
    }

    /// Answers with an error.
    pub fn refuse(self, error: AppendError) {
        // A caller that no longer waits has no use for the answer.
        match self {
            Self::Append { done, .. } | Self::Define { done, .. } => drop(done.send(Err(error))),
            Self::Seal { done, .. } => drop(done.send(Err(error))),
            Self::Commit { done, .. } => drop(done.send(Err(error))),
            Self::Swap { done } => drop(done.send(Err(error))),
            Self::Release { done, .. } => drop(done.send(Err(error))),
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    requests: VecDeque<Request>,
    bytes: usize,
    /// Requests that want a sync of their own.
    urgent: usize,
    closed: Option<AppendError>,
}

/// A shard's queue.
#[derive(Debug)]
pub struct Queue {
    inner: Mutex<Inner>,
    arrived: Condvar,
    max_bytes: usize,
}

/// What the owner finds when it comes for work.
#[derive(Debug)]
pub enum Batch {
    /// At least one.
    Requests(Vec<Request>),
    /// Nothing arrived within the time.
    Idle,
    /// Closed, and everything has been taken.
    Closed,
}

impl Queue {
    /// A queue that holds at most about `max_bytes` of records.
    pub fn new(max_bytes: usize) -> Self {
        Self { inner: Mutex::default(), arrived: Condvar::new(), max_bytes }
    }

    /// Hands a request over; a queue that is full or closed answers it at once.
    pub fn push(&self, request: Request) {
        let mut inner = self.inner.lock();
        if let Some(error) = &inner.closed {
            let error = error.clone();
            drop(inner);
            return request.refuse(error);
        }
        // Only rows are bounded: seals and commits are what makes room.
        if matches!(request, Request::Append { .. }) && inner.bytes > self.max_bytes {
            drop(inner);
            return request.refuse(AppendError::QueueFull);
        }
        inner.bytes += request.weight();
        inner.urgent += usize::from(!request.is_lazy());
        inner.requests.push_back(request);
        let wake = inner.urgent > 0;
        drop(inner);
        if wake {
            self.arrived.notify_one();
        }
    }

    /// Takes what has queued, up to `max_bytes` (at least one request). Requests that can wait do not end the waiting before
    /// `patience` is over.
    pub fn take(&self, max_bytes: usize, patience: Duration) -> Batch {
        let mut inner = self.inner.lock();
        if inner.urgent == 0 && inner.closed.is_none() {
            self.arrived.wait_while_for(&mut inner, |i| i.urgent == 0 && i.closed.is_none(), patience);
        }
        if inner.requests.is_empty() {
            return if inner.closed.is_some() { Batch::Closed } else { Batch::Idle };
        }
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(request) = inner.requests.front() {
            bytes += request.weight();
            if bytes > max_bytes && !taken.is_empty() {
                break;
            }
            let request = inner.requests.pop_front().expect("should be the front that was looked at");
            inner.bytes -= request.weight();
            inner.urgent -= usize::from(!request.is_lazy());
            taken.push(request);
        }
        Batch::Requests(taken)
    }

    /// Whether it refuses what comes.
    pub fn is_closed(&self) -> bool {
        self.inner.lock().closed.is_some()
    }

    /// Refuses what comes from now on; what has queued is still taken.
    pub fn close(&self, error: AppendError) {
        self.inner.lock().closed.get_or_insert(error);
        self.arrived.notify_all();
    }

    /// Refuses what has queued and what comes from now on.
    pub fn refuse_all(&self, error: &AppendError) {
        let mut inner = self.inner.lock();
        inner.closed = Some(error.clone());
        let requests = std::mem::take(&mut inner.requests);
        inner.bytes = 0;
        inner.urgent = 0;
        drop(inner);
        for request in requests {
            request.refuse(error.clone());
        }
    }
}

#[cfg(test)]
mod tests;
