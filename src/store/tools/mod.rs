//! What an operator does with the data directory of a node that is stopped: look, check, repair.
//!
//! ```text
//!  Site: lock, MANIFEST, lane guards
//!    `- shard: tolerant (edits, lane files) -> walk (every group, intact or not) -> inspect | verify | repair
//! ```
//!
//! In flow order:
//!
//! - [`site`]: the directory, locked; a server that runs keeps its own;
//! - [`tolerant`]: a shard at its checkpoint, damaged lane files left out and named;
//! - [`walk`]: a shard's log from its first byte, going on behind what is damaged;
//! - [`salvage`]: the rows that are intact, put together, and whether that is provably right;
//! - [`inspect`]: figures, and the records one by one;
//! - [`verify`]: every checksum and every invariant;
//! - [`repair`]: gets a node to start again with all that is intact, and says what is lost; [`quarantine`]: copies of what was damaged.
//!
//! Inspecting and verifying write nothing. Absent: rows of a table as rows; the store does not know their encoding.

pub mod inspect;
pub mod quarantine;
pub mod repair;
pub mod salvage;
pub mod site;
pub mod tolerant;
pub mod verify;
pub mod walk;

pub use inspect::{Inspection, RecordInfo, inspect, records};
pub use repair::{RepairError, RepairReport, repair};
pub use verify::{Finding, Severity, VerifyReport, verify};
