//! Column types and their text form: `long`, `decimal(20,0)`, `list<string>`, `map<string,double>`,
//! `struct<a:long,b:list<string>>`. Names follow the Delta protocol's primitive types.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ColumnSpec;

/// A column's type: what Delta, delta-rs and the common readers all store without loss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ColumnType {
    /// True or false.
    Boolean,
    /// 32-bit signed.
    Int,
    /// 64-bit signed.
    Long,
    /// 32-bit floating point.
    Float,
    /// 64-bit floating point.
    Double,
    /// UTF-8.
    String,
    /// Bytes.
    Binary,
    /// A day without a time.
    Date,
    /// Microseconds since the epoch, UTC.
    Timestamp,
    /// Exact, in 128 bits.
    Decimal {
        /// Digits in all, 1 to 38.
        precision: u8,
        /// Digits behind the point.
        scale: i8,
    },
    /// Any number of values of one type.
    List(Box<ColumnType>),
    /// Named fields.
    Struct(Vec<ColumnSpec>),
    /// From strings to the type named.
    Map(Box<ColumnType>),
}

/// A text that names no column type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a column type; use boolean, int, long, float, double, string, binary, date, timestamp, decimal(p,s), list<t>, map<string,t> or struct<name:t,...>"
)]
pub struct TypeError(String);

/// Longest text that is read as a type, in bytes; bounds the recursion of the parser too.
pub const MAX_TYPE_TEXT: usize = 16_384;
const MAX_PARSE_DEPTH: usize = 32;

impl ColumnType {
    /// The type of an overflow column.
    pub fn overflow() -> Self {
        Self::Map(Box::new(Self::String))
    }

    /// Whether the other type holds all that this one does, and files that have this one may stay as they are: see
    /// `lake::schema` for what readers follow.
    pub fn widens_to(&self, wider: &Self) -> bool {
        matches!((self, wider), (Self::Int, Self::Long) | (Self::Float, Self::Double))
    }

    /// 1 for a plain type, one more for each level of nesting.
    pub fn depth(&self) -> usize {
        match self {
            Self::List(item) | Self::Map(item) => 1 + item.depth(),
            Self::Struct(fields) => 1 + fields.iter().map(|f| f.kind.depth()).max().unwrap_or(0),
            _ => 1,
        }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("boolean"),
            Self::Int => f.write_str("int"),
            Self::Long => f.write_str("long"),
            Self::Float => f.write_str("float"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Binary => f.write_str("binary"),
            Self::Date => f.write_str("date"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::List(item) => write!(f, "list<{item}>"),
            Self::Map(value) => write!(f, "map<string,{value}>"),
            Self::Struct(fields) => {
                f.write_str("struct<")?;
                for (i, field) in fields.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{}:{}", field.name, field.kind)?;
                }
                f.write_str(">")
            }
        }
    }
}

impl From<ColumnType> for String {
    fn from(kind: ColumnType) -> Self {
        kind.to_string()
    }
}

impl TryFrom<String> for ColumnType {
    type Error = TypeError;

    fn try_from(text: String) -> Result<Self, TypeError> {
        text.parse()
    }
}

impl FromStr for ColumnType {
    type Err = TypeError;

    fn from_str(text: &str) -> Result<Self, TypeError> {
        let error = || TypeError(text.chars().take(80).collect());
        if text.len() > MAX_TYPE_TEXT {
            return Err(error());
        }
        parse(text.trim(), MAX_PARSE_DEPTH).ok_or_else(error)
    }
}

fn parse(text: &str, depth: usize) -> Option<ColumnType> {
    let depth = depth.checked_sub(1)?;
    Some(match text {
        "boolean" => ColumnType::Boolean,
        "int" | "integer" => ColumnType::Int,
        "long" | "bigint" => ColumnType::Long,
        "float" => ColumnType::Float,
        "double" => ColumnType::Double,
        "string" => ColumnType::String,
        "binary" => ColumnType::Binary,
        "date" => ColumnType::Date,
        "timestamp" => ColumnType::Timestamp,
        _ => return parse_parameterised(text, depth),
    })
}

fn parse_parameterised(text: &str, depth: usize) -> Option<ColumnType> {
    if let Some(inner) = text.strip_prefix("decimal(").and_then(|t| t.strip_suffix(')')) {
        let (precision, scale) = inner.split_once(',')?;
        let precision: u8 = precision.trim().parse().ok()?;
        let scale: i8 = scale.trim().parse().ok()?;
        let fits = (1..=38).contains(&precision) && scale >= 0 && scale.unsigned_abs() <= precision;
        return fits.then_some(ColumnType::Decimal { precision, scale });
    }
    let inner = text.strip_suffix('>')?;
    if let Some(item) = inner.strip_prefix("list<") {
        return Some(ColumnType::List(Box::new(parse(item.trim(), depth)?)));
    }
    if let Some(both) = inner.strip_prefix("map<") {
        let (key, value) = both.split_once(',')?;
        let value = parse(value.trim(), depth)?;
        return (key.trim() == "string").then(|| ColumnType::Map(Box::new(value)));
    }
    let fields = split_top_level(inner.strip_prefix("struct<")?)
        .map(|field| {
            let (name, kind) = field.split_once(':')?;
            Some(ColumnSpec { name: name.trim().to_owned(), kind: parse(kind.trim(), depth)?, nullable: true })
        })
        .collect::<Option<Vec<_>>>()?;
    Some(ColumnType::Struct(fields))
}

/// Splits at the commas that stand outside all brackets.
fn split_top_level(text: &str) -> impl Iterator<Item = &str> {
    let mut level = 0_i32;
    text.split(move |c: char| {
        match c {
            '<' | '(' => level += 1,
            '>' | ')' => level -= 1,
            _ => {}
        }
        c == ',' && level == 0
    })
}
