//! The product through its public faces: the binary as a child process, HTTP, the command line, and Delta readers that know
//! nothing of it.
//!
//! - `kit`: a running server, replies, commands, Delta tables read from disk, Python;
//! - `crash`, `drain`, `restart`, `directory`: what ends a server, and what the next start makes of it;
//! - `freshness`, `formats`, `input`, `admission`: posts and queries, good and bad; `conformance`: what becomes of each row, case by case;
//!   `garbage`: every decoder of what senders post, and damaged bytes;
//! - `repeats`, `retries`: posts that are sent again, and receipts;
//! - `dead_letters`: rejected rows, kept and replayed;
//! - `late`: rows that are late, early or of a wrong unit;
//! - `readers`, `s3`: independent readers from PyPI, and a lake behind an object store;
//! - `replaced`: what others do to our tables and our data directory;
//! - `overload`: more than the node can take, in every way;
//! - `evolve`, `log_care`: columns added while rows arrive; checkpoints and clean-up of the Delta log;
//! - `cli`: the other commands; `tuning`: settings that change while a server runs; `metrics`: what is scraped; `imports`: who may
//!   import whom.

mod admission;
mod cli;
mod conformance;
mod crash;
mod dead_letters;
mod directory;
mod doctor;
mod drain;
mod evolve;
mod failpoints;
mod formats;
mod freshness;
mod garbage;
mod imports;
mod input;
mod kit;
mod late;
mod log_care;
mod metrics;
mod nodes;
mod overload;
mod readers;
mod repeats;
mod replaced;
mod restart;
mod retries;
mod s3;
mod soak;
mod stores;
mod tools;
mod tuning;
