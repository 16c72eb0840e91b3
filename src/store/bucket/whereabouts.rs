//! How far the rows of one record are on their way out of the store.
//!
//! Of slices in memory it is known of which record each is; of a lane file's extents it is not, short of reading them. There the answer is
//! for the whole of a generation that was open around the record's LSN: a record may seem to be in one that was open beside its own.
//! That errs on the side of waiting: what counts as committed is.

use super::generation::SealInfo;
use super::state::ShardState;
use crate::types::{Lsn, TableId};

/// Where the rows of a durable record are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// Open generations that may have some of them.
    pub open: usize,
    /// Places of the sealed ones that may, in commit order.
    pub sealed: Vec<SealInfo>,
}

impl Whereabouts {
    /// Whether all of them have left: they are in Delta, or there never were any.
    pub fn is_gone(&self) -> bool {
        self.open == 0 && self.sealed.is_empty()
    }
}

impl ShardState {
    /// Where the rows of a table's record at `lsn` are.
    pub(crate) fn whereabouts(&self, table: TableId, lsn: Lsn) -> Whereabouts {
        let Some(table) = self.tables.get(table) else { return Whereabouts::default() };
        Whereabouts {
            open: table.open.values().filter(|generation| generation.may_hold(lsn)).count(),
            sealed: table.sealed.iter().filter(|s| s.generation.may_hold(lsn)).map(|s| s.seal).collect(),
        }
    }
}
