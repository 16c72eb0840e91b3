//! What a reader pins: generations as they were at one moment. The rows stay readable for as long as the view lives, also when the
//! generation has been committed and dropped meanwhile.

use std::sync::Arc;

use super::generation::{Generation, Part, SealInfo, Slice, Totals};
use crate::types::TableId;

/// One generation as a view saw it.
#[derive(Debug, Clone)]
pub struct GenerationView {
    generation: Arc<Generation>,
    totals: Totals,
}

/// The unflushed rows of one table at one moment.
#[derive(Debug, Clone)]
pub struct TableView {
    /// The table.
    pub table: TableId,
    /// Sealed ones in commit order, then the open ones.
    pub generations: Vec<GenerationView>,
}

impl GenerationView {
    pub(super) fn new(generation: &Arc<Generation>) -> Self {
        Self { generation: Arc::clone(generation), totals: generation.totals() }
    }

    /// The generation itself; it may have grown since.
    pub fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// What it held when the view was taken.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Its slices when the view was taken. Reads what is in lane files; blocks.
    ///
    /// # Errors
    /// A lane file that cannot be read, or is damaged.
    pub fn slices(&self) -> std::io::Result<Vec<Slice>> {
        self.generation.slices(self.totals.slices)
    }

    /// Where its slices are, so that they can be read one part after the other.
    pub fn parts(&self) -> Vec<Part> {
        self.generation.parts(self.totals.slices)
    }

    /// The seal as it is *now*. A generation that was open when the view was taken may have been sealed and committed since; a
    /// reader that took its Delta snapshot after the view has to ask again, or it would count the rows twice.
    pub fn current_seal(&self) -> Option<SealInfo> {
        self.generation.seal()
    }
}
