//! Penstock: the durable inlet of a Delta lakehouse.
//!
//! Telemetry pipelines post batches. A post is acknowledged once it is on disk in a group-committed write-ahead log; its rows are
//! visible to SQL at once; sealed time buckets are flushed in parallel, exactly once, each to its own table's Delta log.
//!
//! ```text
//!  server -> ingest -> admission -> log shard -> buckets        seal -> encode -> upload -> Delta commit
//!                                  (penstock-store)  |            (flush)             (lake)     |
//!                                                    query <-------- snapshots ------------------'
//! ```
//!
//! Rows move forward as owned values; only numbers come back: durable LSNs, seal sequences, committed sequences.
//!
//! | module | what it is | imports |
//! |---|---|---|
//! | `penstock-store` | the log, its checkpoints and recovery, unflushed rows; bytes only | nothing of ours |
//! | [`schema`] | what a table is; Arrow schemas; buckets; slice payloads | store's plain types |
//! | [`catalog`] | tables and flush history in SQLite | schema, store's plain types |
//! | [`admission`] | what may come in now | store's plain types |
//! | [`lake`] | a Delta table: stores, data files, commits, snapshots | schema, store's plain types, failpoint |
//! | [`ingest`] | bytes of a post to slices in the log, and the receipt | schema, catalog, admission, store, failpoint |
//! | [`flush`] | seal policy, scheduler, encode, upload, commit order | store, schema, lake, failpoint |
//! | [`query`] | SQL over flushed and unflushed rows | store, schema, lake |
//! | [`config`] | every component's options in one file | the components' options |
//! | [`engine`] | the only place where parts meet: start, stop, status | all of these |
//! | [`server`] | HTTP | engine, ingest, query; the others' errors, to map them to replies |
//! | [`cli`] | the command line | everything |
//! | [`telemetry`] | logging; the metrics' names and text | nothing |
//! | [`failpoint`] | where tests have the process killed; nothing in a release build | nothing |
//!
//! Absent so far: OTLP, other SQL protocols, tokens and TLS.

pub mod admission;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod engine;
pub mod failpoint;
pub mod flush;
pub mod ingest;
pub mod lake;
pub mod query;
pub mod schema;
pub mod server;
pub mod telemetry;
