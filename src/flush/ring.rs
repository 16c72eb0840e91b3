//! Tables that wait for their turn, each at most once: whoever had one goes to the end, so that no table waits for another's
//! backlog.

use std::collections::{HashSet, VecDeque};

use penstock_store::TableId;

/// First in, first out, without repetition.
#[derive(Debug, Default)]
pub struct Ring {
    order: VecDeque<TableId>,
    members: HashSet<TableId>,
}

impl Ring {
    /// Adds a table at the end, unless it waits already.
    pub fn push(&mut self, table: TableId) {
        if self.members.insert(table) {
            self.order.push_back(table);
        }
    }

    /// Adds a table whose turn it is, and for which there was no room; it is next.
    pub fn push_front(&mut self, table: TableId) {
        if self.members.insert(table) {
            self.order.push_front(table);
        }
    }

    /// Takes the table whose turn it is.
    pub fn pop(&mut self) -> Option<TableId> {
        let table = self.order.pop_front()?;
        self.members.remove(&table);
        Some(table)
    }
}
