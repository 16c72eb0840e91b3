//! Durable rows that are not yet known to be in Delta, by table and bucket.
//!
//! - [`generation`]: the slices one seal closes;
//! - [`state`]: a shard's tables; only its owner thread changes it, in LSN order, after the sync;
//! - [`view`]: what a reader pins.

pub mod generation;
pub mod state;
pub mod view;

pub use generation::{Generation, Sealed, Slice};
pub use view::{GenerationView, TableView};

#[cfg(test)]
mod tests;
