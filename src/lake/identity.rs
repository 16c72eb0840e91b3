//! Which Delta table is ours.
//!
//! Nodes that write the same table do not speak to each other, and each has made it under an id of its own before any of them
//! could ask the lake: accepting rows never waits for it. So whoever creates the table in the lake gives it its id, with the
//! table's full name beside it, and the others adopt a table that says it has that name. Tables of other origin, which say nothing
//! or something else, are refused: appending to somebody's table because it lies at our place is not ours to decide.
//!
//! The first table that is accepted is the only one for the life of the handle: another one in its place was dropped and made again,
//! and what we know of the old one's versions says nothing about the new one's. A restart begins without that knowledge, and with
//! it without the danger: it reads the log from the start, and what the table there does not hold of unflushed rows is committed to it.

use std::sync::OnceLock;

use penstock_store::TableId;
use uuid::Uuid;

use super::Error;
use crate::schema::TableName;

/// See the module.
#[derive(Debug)]
pub(super) struct Identity {
    name: TableName,
    own: TableId,
    accepted: OnceLock<Uuid>,
}

impl Identity {
    pub(super) fn new(own: TableId, name: TableName) -> Self {
        Self { name, own, accepted: OnceLock::new() }
    }

    pub(super) fn name(&self) -> &TableName {
        &self.name
    }

    /// The id that a table of ours is created under.
    pub(super) fn own(&self) -> TableId {
        self.own
    }

    /// Takes the table with this id and name in its metadata for ours, or does not.
    ///
    /// # Errors
    /// [`Error::NotOurs`]
    pub(super) fn accept(&self, location: &str, id: &str, name: Option<&str>) -> Result<(), Error> {
        let refused = |expected| Error::NotOurs { location: location.to_owned(), found: id.to_owned(), expected };
        let Ok(found) = id.parse::<Uuid>() else { return Err(refused(self.own)) };
        if self.accepted.get().is_none() && found != self.own.0 && name != Some(self.name.to_string().as_str()) {
            return Err(refused(self.own));
        }
        match *self.accepted.get_or_init(|| found) {
            accepted if accepted == found => Ok(()),
            accepted => Err(refused(TableId(accepted))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Uuid = Uuid::from_u128(1);
    const THEIRS: Uuid = Uuid::from_u128(2);

    fn identity() -> Identity {
        Identity::new(TableId(OWN), "metrics.cpu".parse().expect("should be a name"))
    }

    #[test]
    fn a_table_is_ours_by_its_id_or_by_its_name() {
        let ours = |id: Uuid, name| identity().accept("here", &id.to_string(), name).is_ok();
        assert!(ours(OWN, None) && ours(OWN, Some("anything")) && ours(THEIRS, Some("metrics.cpu")));
        assert!(!ours(THEIRS, None) && !ours(THEIRS, Some("cpu")));
        assert!(identity().accept("here", "no id", Some("metrics.cpu")).is_err());
    }

    #[test]
    fn the_first_one_is_the_only_one() {
        let (own, theirs, third) = (OWN.to_string(), THEIRS.to_string(), Uuid::from_u128(3).to_string());
        let identity = identity();
        identity.accept("here", &theirs, Some("metrics.cpu")).expect("should be adopted");
        identity.accept("here", &theirs, None).expect("should be the same");
        for (id, name) in [(&own, Some("metrics.cpu")), (&third, Some("metrics.cpu")), (&third, None)] {
            let error = identity.accept("here", id, name).expect_err("should be another");
            assert!(matches!(error, Error::NotOurs { expected: TableId(THEIRS), .. }), "{error}");
        }
    }
}
