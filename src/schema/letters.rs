//! The dead-letter table of a namespace: rows that their table cannot hold, as they were sent.
//!
//! It is a table like others: its rows pass through the log, are visible to SQL at once and reach Delta with the next flush. It is made with
//! the namespace's first rejected row, its id is derived from the namespace, so that all nodes agree on it, and it takes no posts.
//!
//! A letter is never changed. What happens to it later is a row of its own with the letter's `id` and another `state`:
//!
//! | state | what it says |
//! |---|---|
//! | `rejected` | the letter itself |
//! | `replaying` | the replay `replay` is about to append the row |
//! | `replayed` | the replay `replay` has appended it |
//!
//! A letter is pending while no row says that it was replayed. Two rows `rejected` of one id are one letter: a post that was cut short and
//! sent again, with an idempotency key, may leave it twice.

use penstock_store::TableId;

use super::{ColumnSpec, ColumnType, EventTime, TableName, TableSpec};

/// The table's name in its namespace.
pub const TABLE_NAME: &str = "dead_letters";

/// When the row was received, or the state was reached.
pub const EVENT_TIME: &str = "received_at";

/// The letter itself.
pub const REJECTED: &str = "rejected";
/// A replay is about to append the row.
pub const REPLAYING: &str = "replaying";
/// A replay has appended it.
pub const REPLAYED: &str = "replayed";

/// Seconds of its buckets: letters are few.
const BUCKET_SECONDS: u32 = 86_400;

/// The dead-letter table of a namespace; `namespace` has to be that of a table.
pub fn table_name(namespace: &str) -> TableName {
    TableName::new(namespace, TABLE_NAME).expect("the namespace should be that of a table")
}

/// Its id: the same on every node.
pub fn table_id(namespace: &str) -> TableId {
    derived_id("penstock rejected rows", namespace)
}

/// The id of a table that belongs to a namespace. (FNV-1a, 128 bits; to be unlike a random id is enough.)
pub fn derived_id(what: &str, namespace: &str) -> TableId {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let bytes = what.bytes().chain([0]).chain(namespace.bytes());
    let hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    TableId(
        uuid::Builder::from_u128(hash)
            .with_variant(uuid::Variant::RFC4122)
            .with_version(uuid::Version::Custom)
            .into_uuid(),
    )
}

/// Its definition.
pub fn spec(namespace: &str) -> TableSpec {
    let column = |name: &str, kind, nullable| ColumnSpec { name: name.into(), kind, nullable };
    let text = |name| column(name, ColumnType::String, true);
    TableSpec {
        name: table_name(namespace),
        schema_version: 1,
        columns: vec![
            column(EVENT_TIME, ColumnType::Timestamp, false),
            column("id", ColumnType::String, false),
            column("state", ColumnType::String, false),
            // Of the node that has the letter; it alone replays it.
            column("node", ColumnType::String, false),
            text("replay"),
            text("table_name"),
            // The format that the row came in, and the address that it came from.
            text("source"),
            text("sender"),
            // Its number in the post, from 1.
            column("row_number", ColumnType::Long, true),
            text("code"),
            text("column_name"),
            text("value"),
            text("reason"),
            text("help"),
            column("original", ColumnType::Binary, true),
        ],
        event_time: EventTime::Column { name: EVENT_TIME.into(), unit: None },
        bucket_seconds: BUCKET_SECONDS,
        partition: Some("date".into()),
        sort: vec![],
        history: vec![],
        bloom: vec!["id".into()],
        rules: crate::schema::Rules::any_time(),
    }
}
