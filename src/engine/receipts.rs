//! What has become of the rows that a receipt names.
//!
//! The store knows what has not left it; what has is in the table, and the history says since which version, for as long as it remembers.
//! Nothing here is guessed from what is missing: a record that no start of this node is known to have written is an error.

use std::time::Duration;

use penstock_store::Whereabouts;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::Engine;
use crate::catalog;
use crate::ingest::Receipt;

/// Longest that anybody waits, whatever was asked for.
pub const MAX_WAIT: Duration = Duration::from_secs(600);
/// Longest wait for the history to note a commit whose rows have left the store.
const HISTORY_LAG: Duration = Duration::from_secs(5);

/// How far rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// On disk, and in a bucket that still takes rows.
    Durable,
    /// On disk, and on their way to the table.
    Sealed,
    /// In the table.
    Committed,
    /// Some of them could not be written, and are in the namespace's dead letters as they are.
    DeadLettered,
}

/// How far the rows of a receipt are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub state: State,
    /// The table has them from this version on, at the latest. None before, and when it is no longer known.
    pub delta_version: Option<u64>,
}

impl Standing {
    /// Whether nothing more will happen to them.
    pub fn is_final(&self) -> bool {
        matches!(self.state, State::Committed | State::DeadLettered)
    }
}

/// Why nothing can be said about a receipt.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// Another node gave it.
    #[error("the receipt is of node {theirs}, and this is node {ours}")]
    OtherNode {
        /// Who gave it.
        theirs: penstock_store::NodeId,
        /// Who was asked.
        ours: penstock_store::NodeId,
    },
    /// No start that this node remembers wrote this record.
    #[error("this node does not know of a start {0} that wrote that record")]
    UnknownStart(penstock_store::Incarnation),
    /// The history did not answer.
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
}

/// Who waits for commits, and until when.
#[derive(Debug)]
pub struct Waiting {
    permits: Semaphore,
    closing: watch::Sender<bool>,
    /// Commits that are in the history.
    noted: watch::Receiver<u64>,
}

impl Waiting {
    /// At most so many at once.
    pub fn new(most: usize, noted: watch::Receiver<u64>) -> Self {
        let permits = Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS));
        Self { permits, closing: watch::Sender::new(false), noted }
    }
}

impl Engine {
    /// How far the rows of a receipt are.
    ///
    /// # Errors
    /// [`ReceiptError`].
    pub async fn standing(&self, receipt: &Receipt) -> Result<Standing, ReceiptError> {
        let whereabouts = self.whereabouts(receipt)?;
        if !whereabouts.is_gone() {
            let state = if whereabouts.open > 0 { State::Durable } else { State::Sealed };
            return Ok(Standing { state, delta_version: None });
        }
        // MUST AFTER the look into the store: what has left it was told before.
        let told = self.flusher.told();
        let mut noted = self.waiting.noted.clone();
        // Who keeps the history may be behind, or gone: then it is not known, which is true.
        let _ = timeout(HISTORY_LAG, noted.wait_for(|noted| *noted >= told)).await;
        let held = self.catalog.held(receipt.table, receipt.lsn).await?;
        let state = if held.is_some_and(|held| held.dead) { State::DeadLettered } else { State::Committed };
        Ok(Standing { state, delta_version: held.map(|held| held.delta_version) })
    }

    /// The same, once nothing more will happen to them, or the time is over: at once if too many wait already, or the node stops.
    ///
    /// # Errors
    /// [`ReceiptError`].
    pub async fn final_standing(&self, receipt: &Receipt, wait: Duration) -> Result<Standing, ReceiptError> {
        let deadline = Instant::now() + wait.min(MAX_WAIT);
        let Ok(_permit) = self.waiting.permits.try_acquire() else { return self.standing(receipt).await };
        // MUST BEFORE the first look: what leaves in between would not be noticed.
        let mut departures = self.flusher.departures(receipt.table);
        let mut closing = self.waiting.closing.subscribe();
        while !self.whereabouts(receipt)?.is_gone() {
            let next = async {
                tokio::select! {
                    left = departures.changed() => left.is_ok(),
                    _ = closing.wait_for(|closing| *closing) => false,
                }
            };
            if !timeout_at(deadline, next).await.unwrap_or(false) {
                break;
            }
        }
        self.standing(receipt).await
    }

    /// Those who wait for commits are answered now. New ones are answered at once.
    pub fn end_waiting(&self) {
        self.waiting.closing.send_replace(true);
    }

    /// Whether the rows of a receipt can be seen by a query that begins now, which they can if this node gave it.
    ///
    /// # Errors
    /// [`ReceiptError`]: they cannot, or it is not known.
    pub fn check_visible(&self, receipt: &Receipt) -> Result<(), ReceiptError> {
        self.whereabouts(receipt).map(drop)
    }

    fn whereabouts(&self, receipt: &Receipt) -> Result<Whereabouts, ReceiptError> {
        let Receipt { node, incarnation, shard, lsn, table } = *receipt;
        if node != self.store.node() {
            return Err(ReceiptError::OtherNode { theirs: node, ours: self.store.node() });
        }
        // A directory that was restored, or is a copy, does not know what the original wrote later; its own records lie at the same LSNs.
        let is_ours = self.store.origin(table, lsn) == Some((incarnation, shard));
        let whereabouts =
            self.store.whereabouts(table, lsn).filter(|_| is_ours && self.registry.by_id(table).is_some());
        whereabouts.ok_or(ReceiptError::UnknownStart(incarnation))
    }
}

#[cfg(test)]
mod tests;
