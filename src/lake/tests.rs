//! The lake against real directories (read back with delta-rs) and against a store that misbehaves on demand.

mod commits;
mod confirms;
mod data;
mod evolve;
mod faults;
mod fences;
mod first_contact;
mod foreign;
mod holes;
mod outside;
mod settings;
mod snapshots;
pub(in crate::lake) mod support;
