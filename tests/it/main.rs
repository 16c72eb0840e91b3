//! The product through its public faces: the binary as a child process, HTTP, the command line, and Delta readers that know
//! nothing of it.
//!
//! - `kit`: a running server, replies, commands, Delta tables read from disk, Python;
//! - `crash`, `drain`, `restart`, `directory`: what ends a server, and what the next start makes of it;
//! - `freshness`, `formats`, `input`, `admission`: posts and queries, good and bad;
//! - `readers`, `s3`: independent readers from PyPI, and a lake behind an object store;
//! - `cli`: the other commands; `imports`: who may import whom.

mod admission;
mod cli;
mod crash;
mod directory;
mod doctor;
mod drain;
mod failpoints;
mod formats;
mod freshness;
mod imports;
mod input;
mod kit;
mod nodes;
mod readers;
mod restart;
mod s3;
mod soak;
mod stores;
mod tools;
