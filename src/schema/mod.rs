//! What a table is, and what its rows look like.
//!
//! In the order a row meets them:
//!
//! - [`name`]: `namespace.table`, the one spelling used in URLs, SQL, paths and logs;
//! - [`spec`]: a table's definition: columns, event time, bucket width, partition, sort order;
//! - [`letters`]: the table of rejected rows that each namespace has;
//! - [`versions`]: what a definition may become, and what it was;
//! - [`registry`]: the tables of this node, by name and by id;
//! - [`arrow`]: the definition as an Arrow schema, with and without the derived `date` column;
//! - [`remainder`]: where the nanoseconds of a time are kept;
//! - [`time`]: the bucket an event time belongs to;
//! - [`payload`]: the versioned bytes of a slice in the log; [`packed`]: those of a slice of few rows;
//! - [`ipc`]: reading Arrow IPC messages from untrusted bytes, for payloads and for requests.
//!
//! What values become, in short (`docs/types.md` has all of it, and `tests/fixtures/conformance.txt` a case for each rule):
//!
//! | sent | kept as |
//! |---|---|
//! | whole numbers | `int`, `long`; above a long's range `decimal(20,0)` |
//! | other numbers, NaN, infinities | `float`, `double`; exactly: `decimal(p,s)` |
//! | times with any offset or zone | `timestamp` in UTC, microseconds; below these, an `int` beside it: [`remainder`] |
//! | text, base64, days | `string`, `binary`, `date` |
//! | arrays, objects | `list`, `struct`, `map` with keys of text, to any depth |
//! | Arrow's dictionaries, runs, views, extension types | as their values, or what they are stored as |
//! | what a column does not hold exactly | not at all: its row is rejected |
//!
//! Absent here: decoding requests (`ingest`), Delta's own schema actions (`lake`).

pub mod arrow;
pub mod ipc;
pub mod letters;
pub mod name;
pub mod packed;
pub mod payload;
pub mod registry;
pub mod remainder;
pub mod spec;
pub mod time;
pub mod versions;

#[cfg(test)]
pub(crate) mod tests;

pub use name::TableName;
pub use spec::{ColumnSpec, ColumnType, EventTime, Rules, TableSpec, TimeUnit};
