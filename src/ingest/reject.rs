//! How a refusal is told: what, where, and what to do about it.

use std::borrow::Cow;

/// Most characters of a sender's value that a message repeats.
const EXCERPT_CHARS: usize = 80;

/// What a refusal means to the sender; each kind is one HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectKind {
    /// 400: the body is not what its format says.
    Invalid,
    /// 413: the body is above a limit.
    TooLarge,
    /// 415: the format or a feature of it is not read.
    UnsupportedMedia,
    /// 422: the body is well formed and its rows do not fit the table.
    Unprocessable,
}

/// Why a post is refused. Sending the same bytes again gets the same refusal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Reject {
    /// What it means to the sender.
    pub status: RejectKind,
    /// A stable word for programs.
    pub code: &'static str,
    /// What is wrong and where, for people.
    pub message: String,
    /// What to do about it.
    pub help: String,
    /// The row at fault, counted from 1.
    pub row: Option<u64>,
    /// The column at fault; `a.b` for a field of a struct.
    pub column: Option<Box<str>>,
    /// The start of the value at fault, where it is one value.
    pub value: Option<Box<str>>,
    /// Whether the row is kept as a dead letter.
    pub kept: bool,
}

impl Reject {
    /// A refusal of the body as a whole.
    pub fn new(status: RejectKind, code: &'static str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            help: help.into(),
            row: None,
            column: None,
            value: None,
            kept: true,
        }
    }

    /// Whether it is about one row: another post may be fine, and the other rows of this one are.
    pub(super) fn is_of_a_row(&self) -> bool {
        self.row.is_some() && self.status != RejectKind::TooLarge
    }

    pub(super) fn empty_body() -> Self {
        Self::new(RejectKind::Invalid, "empty_body", "the body has no rows", "send at least one row")
    }

    pub(super) fn body_too_large(limit: usize) -> Self {
        let message = format!("the body decodes to more than {limit} bytes");
        Self::new(RejectKind::TooLarge, "body_too_large", message, "split the rows over several posts")
    }

    pub(super) fn too_many_rows(limit: usize) -> Self {
        let message = format!("the body has more than {limit} rows of this table");
        Self::new(RejectKind::TooLarge, "too_many_rows", message, "split the rows over several posts")
    }

    pub(super) fn too_many_columns(limit: usize) -> Self {
        Self::new(
            RejectKind::Unprocessable,
            "too_many_columns",
            format!("the rows have more than {limit} columns, fields of objects included"),
            "declare the table with a map<string,...> column and send the varying keys as one object in it",
        )
    }
}

/// A refusal of one value, before it is known which row and column that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub status: RejectKind,
    pub code: &'static str,
    pub detail: String,
    pub help: Cow<'static, str>,
    /// The path of the column so far; grows at its front while the fault travels outwards.
    pub column: Option<String>,
    /// The start of the value.
    pub value: Option<Box<str>>,
    /// Whether the row is kept as a dead letter.
    pub kept: bool,
}

impl Fault {
    pub fn new(code: &'static str, detail: impl Into<String>, help: impl Into<Cow<'static, str>>) -> Self {
        let (detail, help) = (detail.into(), help.into());
        Self { status: RejectKind::Unprocessable, code, detail, help, column: None, value: None, kept: true }
    }

    /// Leaves the row to its sender.
    pub fn not_kept(self) -> Self {
        Self { kept: false, ..self }
    }

    /// Shows the value.
    pub fn of(self, value: &str) -> Self {
        Self { value: Some(excerpt(value).into()), ..self }
    }

    /// Names the column, or the struct around the column named so far.
    pub fn within(mut self, name: &str) -> Self {
        self.column = Some(match self.column {
            Some(inner) => format!("{name}.{inner}"),
            None => name.to_owned(),
        });
        self
    }

    /// The refusal, once the row is known. `place` tells more about the row than its number, as in ` (line 7)`.
    pub fn at(self, row: u64, place: &str) -> Reject {
        let column = self.column.as_ref().map(|c| format!(", column {c:?}")).unwrap_or_default();
        Reject {
            status: self.status,
            code: self.code,
            message: format!("row {row}{place}{column}: {}", self.detail),
            help: self.help.into_owned(),
            row: Some(row),
            column: self.column.map(Into::into),
            value: self.value,
            kept: self.kept,
        }
    }

    pub fn type_mismatch(found: &str, wanted: impl std::fmt::Display) -> Self {
        Self::mismatch_as_told(format!("{found} is not a value of type {wanted}")).of(found)
    }

    /// A mismatch in the words of the parser.
    pub fn mismatch_as_told(detail: String) -> Self {
        Self::new("type_mismatch", detail, "send values of the column's type, or declare a table with another type")
    }

    pub fn out_of_range(value: &str, wanted: impl std::fmt::Display) -> Self {
        Self::new(
            "out_of_range",
            format!("{} is outside the range of {wanted}", excerpt(value)),
            "give the column a wider type, if it is int or float (tables alter --add-column NAME:long), or add one of another name",
        )
        .of(value)
    }

    pub fn inexact(value: &str, wanted: impl std::fmt::Display) -> Self {
        Self::new(
            "inexact_number",
            format!("{} cannot be held by {wanted} without loss", excerpt(value)),
            "declare the column as decimal or string, or send a number that the type holds exactly",
        )
        .of(value)
    }

    pub fn missing_value() -> Self {
        Self::new("missing_value", "the column may not be null and the row has no value", "send a value in every row")
    }

    pub fn unknown_column() -> Self {
        Self::new(
            "unknown_column",
            "the table has no such column",
            "give the table the column (tables alter --add-column NAME:TYPE), or let it take new ones (tables alter --schema evolve)",
        )
    }

    pub fn duplicate_key() -> Self {
        Self::new("duplicate_key", "the row has this key twice", "send each key once")
    }

    pub fn reserved_column() -> Self {
        Self::new(
            "reserved_column",
            "the server fills this column",
            "leave the column out; for times of your own, declare a table with an event-time column",
        )
    }

    /// A time with digits for which the table has no place.
    pub fn timestamp_precision(value: &str) -> Self {
        Self::new(
            "timestamp_precision",
            format!(
                "{} has digits below a microsecond; the table keeps microseconds, and no column takes the rest",
                excerpt(value)
            ),
            "declare an int column beside the time, named like it with _ns behind it: it takes the nanoseconds",
        )
        .of(value)
    }

    pub fn below_nanosecond(value: &str) -> Self {
        Self::new(
            "below_nanosecond",
            format!("{} has digits below a nanosecond", excerpt(value)),
            "round to nanoseconds before sending, or send the time as text in a string column as well",
        )
        .of(value)
    }

    pub fn other_nanoseconds(nanos: i32) -> Self {
        Self::new(
            "nanoseconds_differ",
            format!("the row says other nanoseconds than its time, which has {nanos}"),
            "leave the column out, or send the time without nanoseconds",
        )
    }
}

/// The start of a sender's text, for a message.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS - 1) {
        Some((at, c)) if at + c.len_utf8() < text.len() => format!("{}…", &text[..at]),
        _ => text.to_owned(),
    }
}
