//! Durable rows that are not yet known to be in Delta, by table and bucket.
//!
//! - [`generation`]: the slices one seal closes;
//! - [`state`]: a shard's tables; only its owner thread changes it, in LSN order, after the sync;
//! - [`producer`]: which stamped records are durable, so that a repeat is known as one; [`keys`]: which keyed ones;
//! - [`extent`]: slices that a checkpoint moved into a lane file;
//! - [`dirty`]: what a checkpoint takes;
//! - [`restore`]: what a snapshot says of the tables, and the way back;
//! - `tables`: the map of them; [`usage`]: what each has waiting, for whoever asks often;
//! - [`view`]: what a reader pins; `whereabouts`: how far one record's rows are.

pub mod dirty;
pub mod extent;
pub mod generation;
pub mod keys;
pub mod producer;
mod restore;
pub mod state;
mod tables;
pub mod usage;
pub mod view;
mod whereabouts;

pub use generation::{Generation, Part, Sealed, Slice};
pub use restore::{Facts, GenerationFact};
pub use tables::{PARTS, SealHistory};
pub use usage::TableUsage;
pub use view::{GenerationView, TableView};
pub use whereabouts::Whereabouts;

#[cfg(test)]
mod tests;
