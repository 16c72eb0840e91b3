//! How the scheduler's tasks end.

use std::sync::Arc;
use std::time::Instant;

use penstock_store::{AppendError, Commit, Pending, Sealed, Store};
use tokio::task::JoinError;

use super::{BACK_OFF, Event};
use crate::failpoint;
use crate::flush::figures::Tally;

/// Tasks report their failures, panics included: one that did not is a defect here, and the supervisor begins anew.
pub(super) fn finished(ended: Result<Event, JoinError>) -> Event {
    ended.unwrap_or_else(|error| std::panic::resume_unwind(Box::new(error.to_string())))
}

pub(super) async fn answers(seals: Vec<Pending<Option<Sealed>>>, tally: Arc<Tally>) -> Event {
    let began = Instant::now();
    let mut result = Ok(());
    for seal in seals {
        // The generation itself is taken in with the store's list, see `Queue::enqueue`.
        if let Err(error) = seal.wait().await {
            result = Err(error);
        }
        tally.seals.count(began.elapsed());
    }
    Event::Sealed(result)
}

/// Waits for a Commit record, and writes it again where a full disk refused it: without it the rows would be held, and counted
/// against the limit on unflushed bytes, until a restart.
pub(super) async fn record(store: Arc<Store>, commit: Commit, mut pending: Pending<()>) -> Event {
    loop {
        match pending.wait().await {
            // A log that has stopped takes nothing any more; the next start asks the table.
            Ok(()) => {
                failpoint::reach("flush::record::after");
                return Event::Recorded(commit.table);
            }
            Err(AppendError::Poisoned { .. } | AppendError::Closed) => {
                return Event::Recorded(commit.table);
            }
            Err(error) => tracing::warn!(table = %commit.table, %error, "a commit is not recorded yet"),
        }
        tokio::time::sleep(BACK_OFF).await;
        pending = store.commit(commit);
    }
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    for cause in causes.map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}
