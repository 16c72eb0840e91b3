//! What a commit needs to know of a table: its newest version, its definition, and where our incarnations stand. No
//! file list.

use std::collections::HashMap;

use super::Error;
use super::definition::{Definition, Metadata};
use super::entry::{APP_PREFIX, Entry, Txn};
use crate::schema::TableSpec;

/// The head, as far as it is known.
#[derive(Debug)]
pub(super) enum State {
    /// Not read yet, or in doubt since a commit that was not settled.
    Unknown,
    /// The table has no log.
    Missing,
    /// As of the newest entry that we have read or written.
    Known(Box<Head>),
}

/// The head of a table's log.
#[derive(Debug)]
pub(super) struct Head {
    /// The newest version.
    pub(super) version: u64,
    pub(super) definition: Definition,
    /// Where application ids stand at `version`, for those that were asked for.
    txns: HashMap<String, Option<u64>>,
    /// Every entry since version 0 has been seen: an id that is not in `txns` is not in the table.
    complete: bool,
    /// The schema version whose rows are known to fit `definition`.
    fits: Option<u32>,
}

impl Head {
    pub(super) fn new(version: u64, definition: Definition, complete: bool) -> Self {
        Self { version, definition, txns: HashMap::new(), complete, fits: None }
    }

    /// The sequence an id stands at; the outer option is empty if that has to be looked up.
    pub(super) fn txn(&self, app: &str) -> Option<Option<u64>> {
        self.txns.get(app).copied().or(self.complete.then_some(None))
    }

    pub(super) fn learn(&mut self, app: &str, sequence: Option<u64>) {
        self.txns.insert(app.to_owned(), sequence);
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
        // Others' ids are never asked for, and may be many.
        for txn in entry.txns.iter().filter(|txn| txn.app.starts_with(APP_PREFIX)) {
            self.learn(&txn.app, u64::try_from(txn.version).ok());
        }
        self.version = version;
        Ok(entry.txns)
    }
}
