//! Where conversions leave the values that a column cannot hold, so that they go on with the others.

use std::collections::BTreeMap;

use arrow::datatypes::ArrowNativeType;

use crate::ingest::reject::Fault;

/// Takes a fault by the place of its value in an array. The value itself becomes null.
pub(super) trait Faults {
    fn add(&mut self, index: usize, fault: Fault);
}

/// The faults of a batch: of each row the first one.
#[derive(Debug)]
pub(super) struct RowFaults {
    pub rows: BTreeMap<usize, Fault>,
    column: String,
    max: usize,
}

impl RowFaults {
    /// Keeps the faults of at most one row more than `max`, which is one too many.
    pub fn new(max: usize) -> Self {
        Self { rows: BTreeMap::new(), column: String::new(), max }
    }

    /// The column that the next faults are in.
    pub fn begin(&mut self, column: &str) {
        column.clone_into(&mut self.column);
    }
}

impl Faults for RowFaults {
    fn add(&mut self, index: usize, fault: Fault) {
        if self.rows.len() > self.max {
            return;
        }
        let column = &self.column;
        self.rows.entry(index).or_insert_with(|| fault.within(column));
    }
}

/// Faults of the items of lists, which are those of the lists.
pub(super) struct OfItems<'a> {
    pub offsets: &'a [i32],
    pub lists: &'a mut dyn Faults,
}

impl Faults for OfItems<'_> {
    fn add(&mut self, index: usize, fault: Fault) {
        let list = self.offsets.partition_point(|offset| offset.as_usize() <= index);
        self.lists.add(list.saturating_sub(1), fault);
    }
}

/// Faults of a field of structs, which are those of the structs.
pub(super) struct OfField<'a> {
    pub name: &'a str,
    pub structs: &'a mut dyn Faults,
}

impl Faults for OfField<'_> {
    fn add(&mut self, index: usize, fault: Fault) {
        self.structs.add(index, fault.within(self.name));
    }
}
