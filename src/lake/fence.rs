//! Stops everything that writes to the lake once another live process is seen to write as this node and this start.
//!
//! Two starts of one data directory have two incarnations, so this takes a copy of a *running* process: a machine that
//! was snapshotted and resumed twice. Both then seal under the same application id, and each would take the other's
//! commits for its own: rows would leave the log without being in the table. What one table shows holds for all.

use std::sync::OnceLock;

use penstock_store::{Incarnation, NodeId};

use super::Error;
use super::entry::{APP_PREFIX, app_id};

/// Shared by all tables of a lake.
#[derive(Debug, Default)]
pub(super) struct Fence {
    identity: OnceLock<Writer>,
    seen: OnceLock<Seen>,
}

#[derive(Debug)]
struct Writer {
    /// The application id of this node and start.
    live: String,
    /// What the application ids of all starts of this node begin with.
    node: String,
}

/// The first sign of the other process.
#[derive(Debug, Clone)]
struct Seen {
    table: String,
    version: Option<u64>,
}

impl Fence {
    /// Says who we are; the first one counts.
    pub(super) fn identify(&self, node: NodeId, incarnation: Incarnation) {
        let identity = Writer { live: app_id(node, incarnation), node: format!("{APP_PREFIX}{node}/") };
        if self.identity.set(identity).is_err() {
            tracing::debug!("the lake knows already who writes");
        }
    }

    /// The application id that only this process uses; none as long as nobody said who we are.
    pub(super) fn live(&self) -> Option<&str> {
        self.identity.get().map(|identity| identity.live.as_str())
    }

    pub(super) fn is_live(&self, app: &str) -> bool {
        self.live() == Some(app)
    }

    /// Whether the application id is of this node, whatever start.
    pub(super) fn is_of_node(&self, app: &str) -> bool {
        self.identity.get().is_some_and(|identity| app.starts_with(&identity.node))
    }

    /// The other process was seen, in an entry or in what a checkpoint says.
    pub(super) fn trip(&self, table: &str, version: Option<u64>) -> Error {
        let seen = self.seen.get_or_init(|| Seen { table: table.to_owned(), version });
        let error = self.error(seen);
        tracing::error!(%error, "fenced");
        error
    }

    /// # Errors
    /// [`Error::Fenced`] once the other process was seen.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.seen.get().map_or(Ok(()), |seen| Err(self.error(seen)))
    }

    fn error(&self, seen: &Seen) -> Error {
        let app = self.live().unwrap_or_default().to_owned();
        Error::Fenced { table: seen.table.clone(), version: seen.version, app }
    }
}
