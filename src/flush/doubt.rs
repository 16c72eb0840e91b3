//! Whether the data directory is an older copy of what has written to a table.
//!
//! A start makes a new incarnation, so a restored or a cloned directory never commits under the ids of the original. But the rows
//! that were not sealed when it was copied are in both: the original has sealed them later, and perhaps committed, under a
//! sequence or a start that the copy knows nothing of. To seal and commit them once more would double them. So: the table must
//! hold nothing of this node beyond what this directory remembers of its own seals.
//!
//! A table remembers its newest starts only ([`SealHistory::complete`]). An older one that Delta has all of is told from one of the
//! original by the directory's own list of starts, which has thousands of them. One case stays open: where that list was begun late, by
//! a build that had none, an id that it does not know may be one that it forgot.

use penstock_store::{Incarnation, NodeId, SealHistory};
use serde::{Deserialize, Serialize};

use crate::lake::app_id;

/// The sign of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The application id.
    pub app: String,
    /// Where it stands in the table.
    pub committed: u64,
    /// The highest sequence that is known to have been sealed under it.
    pub sealed: u64,
}

/// What somebody has decided about rows that may be in the table already. It says nothing about tables that are in no doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Flush them: what the original has committed is there twice then.
    Keep,
    /// Let all unflushed rows go: what the original has not committed is lost then.
    Drop,
}

impl Doubt {
    /// The start, if the id is one that we made.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        start_of(&self.app)
    }
}

fn start_of(app: &str) -> Option<Incarnation> {
    let (_, digits) = app.rsplit_once('/')?;
    u64::from_str_radix(digits, 16).ok().map(Incarnation)
}

/// The application ids of the node that stand higher in the table than was sealed here. `has_started` says whether a start was one of
/// this directory; none if it cannot tell.
#[must_use]
pub fn doubts(
    node: NodeId,
    standings: &[(String, u64)],
    history: &SealHistory,
    has_started: impl Fn(Incarnation) -> Option<bool>,
) -> Vec<Doubt> {
    let above = standings.iter().filter_map(|(app, committed)| {
        let known = history.starts.iter().find(|(incarnation, _)| app_id(node, *incarnation) == *app);
        let sealed = match known {
            Some((_, progress)) => progress.sealed,
            None if history.complete => 0,
            // Forgotten here only once Delta had all that it had sealed.
            None if start_of(app).and_then(&has_started) != Some(false) => return None,
            None => 0,
        };
        (*committed > sealed).then(|| Doubt { app: app.clone(), committed: *committed, sealed })
    });
    above.collect()
}

#[cfg(test)]
mod tests;
