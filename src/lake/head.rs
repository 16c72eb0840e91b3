//! What a commit needs to know of a table: its newest version, its definition, and where our incarnations stand. No
//! file list.

use std::collections::HashMap;
use std::time::Instant;

use uuid::Uuid;

use super::Error;
use super::anchor::Anchor;
use super::definition::{Definition, Metadata};
use super::entry::{APP_PREFIX, Entry, Txn};
use crate::schema::TableSpec;

/// The head, as far as it is known.
#[derive(Debug, Default)]
pub(super) enum State {
    /// Not read yet, or in doubt since a commit that was not settled.
    #[default]
    Unknown,
    /// The table has no log.
    Missing,
    /// As of the newest entry that we have read or written.
    Known(Box<Head>),
}

/// All that is behind a table's commit lock.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) state: State,
    /// The newest entry that was seen as a part of the log. It outlives a state that is in doubt: only by it can be told
    /// whether the log that is found next is still the same one.
    pub(super) anchor: Option<Anchor>,
    /// When the anchor was last seen.
    pub(super) confirmed_at: Option<Instant>,
    /// Commits behind the anchor: put, or taken for ours, and not yet seen as a part of the log.
    pub(super) landed: Vec<Landed>,
    /// The versions and ids of PUTs whose outcome nobody waited for. They may still land.
    pub(super) open: Vec<(u64, Uuid)>,
    /// The highest sequence that this process has tried to commit for its own start.
    pub(super) given: u64,
}

/// A commit that is not confirmed.
#[derive(Debug, Clone)]
pub(super) struct Landed {
    pub(super) version: u64,
    pub(super) id: Option<Uuid>,
    pub(super) txn: Txn,
    /// Where the application id stood before.
    pub(super) before: Option<u64>,
}

impl Books {
    /// Whether the newest entry that is known was seen as a part of the log.
    pub(super) fn is_confirmed(&self) -> bool {
        match &self.state {
            State::Known(head) => {
                self.landed.is_empty() && self.anchor.as_ref().is_some_and(|a| a.version == head.version)
            }
            State::Missing => true,
            State::Unknown => false,
        }
    }

    /// Whether this process has put an entry with the id, as far as that is not confirmed.
    pub(super) fn is_ours(&self, id: Option<Uuid>) -> bool {
        id.is_some() && (self.landed.iter().any(|l| l.id == id) || self.open.iter().any(|(_, open)| Some(*open) == id))
    }
}

/// The head of a table's log.
#[derive(Debug)]
pub(super) struct Head {
    /// The newest version.
    pub(super) version: u64,
    pub(super) definition: Definition,
    /// Where all application ids of ours, of any node and start, stand at `version`.
    txns: HashMap<String, u64>,
    /// The schema version whose rows are known to fit `definition`.
    fits: Option<u32>,
}

impl Head {
    pub(super) fn new(version: u64, definition: Definition, txns: HashMap<String, u64>) -> Self {
        Self { version, definition, txns, fits: None }
    }

    /// The sequence an application id of ours stands at.
    pub(super) fn txn(&self, app: &str) -> Option<u64> {
        self.txns.get(app).copied()
    }

    /// All of them.
    pub(super) fn txns(&self) -> impl Iterator<Item = (&String, u64)> {
        self.txns.iter().map(|(app, sequence)| (app, *sequence))
    }

    /// Whether rows of the definition fit the table, and what their commit has to change about it; cheap when asked again.
    pub(super) fn check_rows(&mut self, location: &str, spec: &TableSpec) -> Result<Option<Metadata>, Error> {
        if self.fits == Some(spec.schema_version) {
            return Ok(None);
        }
        self.definition.check_rows(location, spec)?;
        let change = self.definition.change_for(spec);
        if change.is_none() {
            self.fits = Some(spec.schema_version);
        }
        Ok(change)
    }

    /// Moves on to the entry behind the head, another writer's or our own.
    pub(super) fn absorb(&mut self, location: &str, version: u64, entry: Entry) -> Result<Vec<Txn>, Error> {
        if entry.protocol.is_some() || entry.metadata.is_some() {
            self.definition = self.definition.changed(location, entry.protocol, entry.metadata)?;
            self.fits = None;
        }
        collect(&mut self.txns, &entry.txns);
        self.version = version;
        Ok(entry.txns)
    }
}

/// Adds what later `txn` actions say. Only ids of ours are ever asked for, and others' may be many.
pub(super) fn collect(txns: &mut HashMap<String, u64>, later: &[Txn]) {
    for txn in later.iter().filter(|txn| txn.app.starts_with(APP_PREFIX)) {
        match u64::try_from(txn.version) {
            Ok(sequence) => txns.insert(txn.app.clone(), sequence),
            Err(_) => txns.remove(&txn.app),
        };
    }
}
