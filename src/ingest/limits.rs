//! What one post may hold.

use crate::schema::spec::{MAX_COLUMNS, MAX_TYPE_DEPTH};
use crate::schema::{ColumnType, TableSpec};

/// Bounds on one post. Each guards memory that a sender could otherwise make the server spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a body once its content encoding is undone. Never more than 2 GiB, which is what a string
    /// column of one batch can address.
    pub max_decoded_bytes: usize,
    /// Most rows.
    pub max_rows: usize,
    /// Most columns of a table that a post creates, fields of structs included.
    pub max_columns: usize,
    /// Deepest nesting of lists and objects in a value of a post that creates a table. Rows of an existing table
    /// nest as deep as its columns.
    pub max_depth: usize,
    /// Most bytes of the fixed-width part of the rows in memory: rows that leave most columns out cost little in
    /// a body and as much as full ones in memory.
    pub max_batch_bytes: usize,
    /// Most rows that are rejected one by one; a post with more is refused whole.
    pub max_rejected_rows: usize,
    /// Most bytes of rejected rows, by the same rule.
    pub max_rejected_bytes: usize,
}

impl Limits {
    /// What a body may decode to under both its own limit and Arrow's.
    pub(super) fn decoded_bytes(&self) -> usize {
        self.max_decoded_bytes.min(i32::MAX as usize)
    }
}

impl Default for Limits {
    /// 64 MiB, a million rows, 1,000 columns, 16 levels, 512 MiB in memory, 10,000 rejected rows, 8 MiB of them.
    fn default() -> Self {
        Self {
            max_decoded_bytes: 64 << 20,
            max_rows: 1_000_000,
            max_columns: MAX_COLUMNS,
            max_depth: MAX_TYPE_DEPTH,
            max_batch_bytes: 512 << 20,
            max_rejected_rows: 10_000,
            max_rejected_bytes: 8 << 20,
        }
    }
}

/// Bytes that a row takes in memory whatever its values are.
pub(super) fn row_bytes(spec: &TableSpec) -> usize {
    spec.columns.iter().map(|c| kind_bytes(&c.kind)).sum()
}

/// Bytes that a value of a type takes in memory whatever it is.
pub(super) fn kind_bytes(kind: &ColumnType) -> usize {
    match kind {
        ColumnType::Boolean => 1,
        ColumnType::Int | ColumnType::Float | ColumnType::Date => 4,
        ColumnType::Long | ColumnType::Double | ColumnType::Timestamp => 8,
        ColumnType::String | ColumnType::Binary | ColumnType::List(_) | ColumnType::Map(_) => 4,
        ColumnType::Decimal { .. } => 16,
        ColumnType::Struct(fields) => fields.iter().map(|f| kind_bytes(&f.kind)).sum(),
    }
}
