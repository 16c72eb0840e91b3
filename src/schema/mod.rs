//! What a table is, and what its rows look like.
//!
//! In the order a row meets them:
//!
//! - [`name`]: `namespace.table`, the one spelling used in URLs, SQL, paths and logs;
//! - [`spec`]: a table's definition: columns, event time, bucket width, partition, sort order;
//! - [`versions`]: what a definition may become, and what it was;
//! - [`registry`]: the tables of this node, by name and by id;
//! - [`arrow`]: the definition as an Arrow schema, with and without the derived `date` column;
//! - [`time`]: the bucket an event time belongs to;
//! - [`payload`]: the versioned bytes of a slice in the log; [`packed`]: those of a slice of few rows;
//! - [`ipc`]: reading Arrow IPC messages from untrusted bytes, for payloads and for requests.
//!
//! Absent here: decoding requests (`ingest`), Delta's own schema actions (`lake`).

pub mod arrow;
pub mod ipc;
pub mod name;
pub mod packed;
pub mod payload;
pub mod registry;
pub mod spec;
pub mod time;
pub mod versions;

#[cfg(test)]
pub(crate) mod tests;

pub use name::TableName;
pub use spec::{ColumnSpec, ColumnType, EventTime, TableSpec, TimeUnit};
