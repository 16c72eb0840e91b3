//! The lake against real directories (read back with delta-rs) and against a store that misbehaves on demand.

mod commits;
mod data;
mod evolve;
mod faults;
mod foreign;
mod settings;
mod snapshots;
pub(in crate::lake) mod support;
