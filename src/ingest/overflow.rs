//! What of a row has no column of its own, in a table that evolves.
//!
//! The table gets the columns that come with its rows. A key for which there is no room (`ingest.max_columns`) goes with its value
//! as JSON text into [`OVERFLOW_COLUMN`](crate::schema::spec::OVERFLOW_COLUMN), a `map<string,string>`, which
//! takes the last place. Nothing is lost, and a sender that invents a key for every row does not make the table wider without end.

use super::Limits;
use crate::schema::TableSpec;
use crate::schema::spec::{MAX_COLUMNS, SchemaMode};

/// Which keys go to the overflow column.
#[derive(Debug)]
pub(super) struct Overflow<'a> {
    spec: &'a TableSpec,
    /// The overflow column, if there is one yet.
    pub at: Option<usize>,
    evolves: bool,
    room: usize,
}

impl<'a> Overflow<'a> {
    /// The rule of a table.
    pub fn of(spec: &'a TableSpec, limits: &Limits) -> Self {
        let at = spec.overflow_index();
        // The last place is the overflow column's.
        let own = spec.columns.len() - usize::from(at.is_some());
        let room = limits.max_columns.min(MAX_COLUMNS).saturating_sub(own + 1);
        Self { spec, at, evolves: spec.rules.schema == SchemaMode::Evolve, room }
    }

    /// Columns that may still be added.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Whether a column could have the name. Where it could not, the row is rejected: `names` says why.
    pub fn may_be(&self, key: &str) -> bool {
        self.spec.has_room_for_name(key)
    }

    /// Whether a key that is no column's can only go there.
    pub fn takes(&self, key: &str) -> bool {
        self.evolves && self.room == 0 && self.may_be(key)
    }
}
