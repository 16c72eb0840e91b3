//! A table's definition. Its JSON form is what the HTTP API shows, what the catalog stores and what the log's
//! Define records carry, so that the log alone says how its rows are to be read.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::TableName;

mod kind;
mod rules;

pub use kind::{ColumnType, MAX_TYPE_TEXT, TypeError};
pub use rules::{Action, Rules, RulesPatch, SchemaMode};

/// Most columns a table may have.
pub const MAX_COLUMNS: usize = 1_000;

/// Deepest nesting of lists, structs and maps in a column's type.
pub const MAX_TYPE_DEPTH: usize = 16;

/// Longest column name, in bytes.
pub const MAX_COLUMN_NAME_LEN: usize = 255;

/// The derived partition column, unless the rows have a column of that name.
pub const PARTITION_COLUMN: &str = "date";

/// The derived partition column where `date` is taken by the rows.
pub const PARTITION_COLUMN_FALLBACK: &str = "event_date";

/// Receives the time of receipt where rows have no event time of their own.
pub const RECEIPT_COLUMN: &str = "_received_at";

/// Receives what of a row has no column, as JSON text by key, in tables that evolve. A column of type [`ColumnType::overflow`]; one of this
/// name and another type is a column like others.
pub const OVERFLOW_COLUMN: &str = "_overflow";

/// Seconds of a bucket where the table does not say.
pub const DEFAULT_BUCKET_SECONDS: u32 = 3_600;

const DAY_SECONDS: u32 = 86_400;

/// Unit of event times that are sent as epoch numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

impl FromStr for TimeUnit {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text {
            "s" => Ok(Self::S),
            "ms" => Ok(Self::Ms),
            "us" => Ok(Self::Us),
            "ns" => Ok(Self::Ns),
            _ => Err(SpecError::TimeUnit(text.chars().take(16).collect())),
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::S => "s",
            Self::Ms => "ms",
            Self::Us => "us",
            Self::Ns => "ns",
        })
    }
}

/// Where a row's event time comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "lowercase")]
pub enum EventTime {
    /// A timestamp column of the rows; epoch numbers in it count `unit`s, and are refused without one.
    Column {
        /// The column.
        name: String,
        /// What epoch numbers count.
        unit: Option<TimeUnit>,
    },
    /// The time of receipt, which the server writes into `column`.
    Receipt {
        /// The column.
        column: String,
    },
}

impl EventTime {
    /// The column that holds the event time.
    pub fn column(&self) -> &str {
        match self {
            Self::Column { name, .. } | Self::Receipt { column: name } => name,
        }
    }
}

/// One column of the rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnSpec {
    /// Its name, in the sender's case.
    pub name: String,
    /// What its values are.
    #[serde(rename = "type")]
    pub kind: ColumnType,
    /// Whether a row may leave it out.
    #[serde(default = "nullable_by_default")]
    pub nullable: bool,
}

fn nullable_by_default() -> bool {
    true
}

/// A table's definition at one schema version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSpec {
    /// The table.
    pub name: TableName,
    /// Starts at 1.
    pub schema_version: u32,
    /// What rows carry: without the derived partition column, with the receipt-time column where there is one.
    pub columns: Vec<ColumnSpec>,
    /// Where a row's event time comes from.
    pub event_time: EventTime,
    /// Seconds of a bucket; divides a day, so that a generation falls into one date.
    pub bucket_seconds: u32,
    /// The derived `date` partition column (UTC date of the event time); none where the table is not partitioned.
    pub partition: Option<String>,
    /// Rows of a file are sorted by these columns, then by event time.
    pub sort: Vec<String>,
    /// Columns of ids, for which data files carry a Bloom filter: who looks for one value skips the row groups that do not have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bloom: Vec<String>,
    /// What it takes.
    #[serde(default, skip_serializing_if = "Rules::is_default")]
    pub rules: Rules,
    /// The earlier schema versions, version 1 first. So the newest definition says how rows of every version are to be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Earlier>,
}

/// What an earlier schema version had otherwise than the one behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    /// Its number of columns: they are only ever added, and behind those that are there.
    pub columns: u32,
    /// Columns whose type became wider with the next version, and what it was.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<String, ColumnType>,
}

impl Earlier {
    /// A version of so many columns, and no other types.
    pub fn of(columns: u32) -> Self {
        Self { columns, types: BTreeMap::new() }
    }
}

/// Why a definition is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// No column at all.
    #[error("a table needs at least one column")]
    NoColumns,
    /// More than [`MAX_COLUMNS`].
    #[error("{0} columns; at most {MAX_COLUMNS} are allowed")]
    TooManyColumns(usize),
    /// A name that Parquet, Delta or a reader would not take.
    #[error(
        "column name {0:?} is not allowed: 1 to {MAX_COLUMN_NAME_LEN} bytes, none of the characters ` ,;{{}}()=`, tab or newline"
    )]
    ColumnName(String),
    /// Two names that readers without case do not tell apart.
    #[error("columns {0:?} and {1:?} differ in case only; Delta readers do not tell them apart")]
    DuplicateColumn(String, String),
    /// A type that nests deeper than [`MAX_TYPE_DEPTH`].
    #[error("column {0:?}: types may nest at most {MAX_TYPE_DEPTH} deep")]
    TooDeep(String),
    /// A struct field's name that its type's text could not carry.
    #[error(
        "column {column:?}: {field:?} is not allowed as the name of a struct's field: as for columns, and none of the characters `<>:`, and no two names that differ in case only"
    )]
    FieldName {
        /// The column.
        column: String,
        /// The field.
        field: String,
    },
    /// A struct without fields, or with fields that may not be null.
    #[error("column {0:?}: a struct needs at least one field, all of them nullable")]
    StructFields(String),
    /// A decimal that 128 bits do not hold.
    #[error("column {column:?}: {text:?} is not a decimal type: use a precision of 1 to 38 and a scale of 0 up to it")]
    Decimal {
        /// The column.
        column: String,
        /// The type as it was written.
        text: String,
    },
    /// A type whose text is longer than [`MAX_TYPE_TEXT`].
    #[error("column {0:?}: its type takes more than {MAX_TYPE_TEXT} bytes to write down")]
    TypeTooLong(String),
    /// A role given to a column that is not there.
    #[error("{role} column {name:?} is not among the columns")]
    UnknownColumn {
        /// What the column was to be.
        role: &'static str,
        /// The column.
        name: String,
    },
    /// An event time that is no time, or that rows may leave out.
    #[error("event-time column {0:?} must have the type `timestamp` and be `nullable: false`")]
    EventTimeType(String),
    /// A sort column without a plain order.
    #[error("sort column {0:?} is nested; sort by plain columns")]
    SortType(String),
    /// A Bloom filter over values that Parquet keeps none of, or that are too few for one.
    #[error("column {0:?} cannot have a Bloom filter: it is nested or boolean; declare it for columns of ids")]
    BloomType(String),
    /// A bucket that would span two dates.
    #[error("a bucket of {0} s does not divide a day; use for example 5m, 15m, 1h, 6h or 1d")]
    BucketWidth(u64),
    /// A history that the columns do not bear out.
    #[error("the history of schema versions is not one of columns that were added: {0:?}")]
    History(Vec<Earlier>),
    /// A time unit that is none.
    #[error("{0:?} is not a time unit; use s, ms, us or ns")]
    TimeUnit(String),
}

impl TableSpec {
    /// Microseconds of a bucket.
    pub fn bucket_micros(&self) -> i64 {
        i64::from(self.bucket_seconds) * 1_000_000
    }

    /// The position of a column, by its exact name.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }

    /// The position of the overflow column, if the table has one.
    pub fn overflow_index(&self) -> Option<usize> {
        self.column_index(OVERFLOW_COLUMN).filter(|at| self.columns[*at].kind == ColumnType::overflow())
    }

    /// Whether a column of this name could be added.
    pub fn has_room_for_name(&self, name: &str) -> bool {
        let taken = |other: &str| other.to_lowercase() == name.to_lowercase();
        check_column_name(name).is_ok()
            && !self.columns.iter().any(|column| taken(&column.name))
            && !self.partition.as_deref().is_some_and(taken)
            && !taken(OVERFLOW_COLUMN)
    }

    /// The name of the derived partition column for rows with these columns: `date` unless they have one.
    pub fn partition_name(columns: &[ColumnSpec]) -> String {
        let taken = |name: &str| columns.iter().any(|c| c.name.eq_ignore_ascii_case(name));
        let mut name = PARTITION_COLUMN.to_owned();
        if taken(&name) {
            name = PARTITION_COLUMN_FALLBACK.to_owned();
        }
        while taken(&name) {
            name.insert(0, '_');
        }
        name
    }

    /// Checks everything a definition promises to the stages behind it.
    pub fn validate(&self) -> Result<(), SpecError> {
        if self.columns.is_empty() {
            return Err(SpecError::NoColumns);
        }
        if self.columns.len() > MAX_COLUMNS {
            return Err(SpecError::TooManyColumns(self.columns.len()));
        }
        let mut seen: HashSet<String> = HashSet::new();
        for column in &self.columns {
            check_column_name(&column.name)?;
            check_type(&column.name, &column.kind)?;
            if !seen.insert(column.name.to_lowercase()) {
                return Err(self.case_clash(&column.name));
            }
        }
        if self.bucket_seconds == 0 || !DAY_SECONDS.is_multiple_of(self.bucket_seconds) {
            return Err(SpecError::BucketWidth(u64::from(self.bucket_seconds)));
        }
        let known = u32::try_from(self.columns.len()).unwrap_or(u32::MAX);
        let counts = || self.history.iter().map(|earlier| earlier.columns);
        if !counts().is_sorted() || counts().any(|count| count == 0 || count > known) {
            return Err(SpecError::History(self.history.clone()));
        }
        self.validate_roles(&seen)
    }

    fn case_clash(&self, name: &str) -> SpecError {
        let twin = self.columns.iter().find(|c| c.name.to_lowercase() == name.to_lowercase());
        SpecError::DuplicateColumn(twin.map_or_else(String::new, |c| c.name.clone()), name.to_owned())
    }

    fn validate_roles(&self, seen: &HashSet<String>) -> Result<(), SpecError> {
        let event = self.event_time.column();
        let unknown = |role, name: &str| SpecError::UnknownColumn { role, name: name.to_owned() };
        let at = self.column_index(event).ok_or_else(|| unknown("event-time", event))?;
        if self.columns[at].kind != ColumnType::Timestamp || self.columns[at].nullable {
            return Err(SpecError::EventTimeType(event.to_owned()));
        }
        for name in &self.sort {
            let at = self.column_index(name).ok_or_else(|| unknown("sort", name))?;
            if self.columns[at].kind.depth() > 1 {
                return Err(SpecError::SortType(name.clone()));
            }
        }
        for name in &self.bloom {
            let at = self.column_index(name).ok_or_else(|| unknown("Bloom filter", name))?;
            if self.columns[at].kind.depth() > 1 || self.columns[at].kind == ColumnType::Boolean {
                return Err(SpecError::BloomType(name.clone()));
            }
        }
        if let Some(partition) = &self.partition
            && seen.contains(&partition.to_lowercase())
        {
            return Err(SpecError::DuplicateColumn(partition.clone(), partition.clone()));
        }
        Ok(())
    }
}

/// Whether a type can be stored, and read again from its text, in which a definition is kept.
fn check_type(column: &str, kind: &ColumnType) -> Result<(), SpecError> {
    if kind.depth() > MAX_TYPE_DEPTH {
        return Err(SpecError::TooDeep(column.to_owned()));
    }
    check_nested(column, kind)?;
    if kind.to_string().len() > MAX_TYPE_TEXT {
        return Err(SpecError::TypeTooLong(column.to_owned()));
    }
    Ok(())
}

fn check_nested(column: &str, kind: &ColumnType) -> Result<(), SpecError> {
    match kind {
        ColumnType::List(item) | ColumnType::Map(item) => check_nested(column, item),
        ColumnType::Struct(fields) => {
            if fields.is_empty() || fields.iter().any(|f| !f.nullable) {
                return Err(SpecError::StructFields(column.to_owned()));
            }
            let mut seen = HashSet::new();
            for field in fields {
                if check_field_name(&field.name).is_err() || !seen.insert(field.name.to_lowercase()) {
                    let field = field.name.chars().take(64).collect();
                    return Err(SpecError::FieldName { column: column.to_owned(), field });
                }
                check_nested(column, &field.kind)?;
            }
            Ok(())
        }
        ColumnType::Decimal { precision, scale } => {
            let valid = (1..=38).contains(precision) && *scale >= 0 && scale.unsigned_abs() <= *precision;
            let error = || SpecError::Decimal { column: column.to_owned(), text: kind.to_string() };
            valid.then_some(()).ok_or_else(error)
        }
        _ => Ok(()),
    }
}

/// Whether a struct's field may have a name: as a column, and as far as its type's text can carry it.
///
/// # Errors
/// [`SpecError::ColumnName`].
pub fn check_field_name(name: &str) -> Result<(), SpecError> {
    check_column_name(name)?;
    if name.contains(['<', '>', ':']) {
        return Err(SpecError::ColumnName(name.chars().take(64).collect()));
    }
    Ok(())
}

/// Whether a column may have a name. Parquet and Delta without column mapping refuse some characters.
///
/// # Errors
/// [`SpecError::ColumnName`].
pub fn check_column_name(name: &str) -> Result<(), SpecError> {
    let forbidden = |c: char| matches!(c, ' ' | ',' | ';' | '{' | '}' | '(' | ')' | '=' | '\t' | '\n' | '\r' | '\0');
    if name.is_empty() || name.len() > MAX_COLUMN_NAME_LEN || name.contains(forbidden) {
        return Err(SpecError::ColumnName(name.chars().take(64).collect()));
    }
    Ok(())
}
