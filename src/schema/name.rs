//! Table names: `namespace.table`, lower case, safe in a URL, in SQL and in a path.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The namespace of a table that was named without one.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Longest namespace or table name, in bytes.
pub const MAX_PART_LEN: usize = 63;

/// A table's full name. Both parts match `[a-z_][a-z0-9_]{0,62}`, so that a name needs no quoting in SQL and
/// cannot leave the lake's root when it becomes a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TableName {
    namespace: String,
    name: String,
}

/// Why a text is not a table name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// More than two parts.
    #[error("a table is named `table` or `namespace.table`, not {0:?}")]
    Shape(String),
    /// An upper-case letter, and the name to use instead.
    #[error("{0:?} has upper-case letters; SQL folds names to lower case, so use {1:?}")]
    UpperCase(String, String),
    /// Another character, an empty part, or too many bytes.
    #[error(
        "{0:?} is not a valid name: start with a letter or `_`, then letters, digits or `_`, at most {MAX_PART_LEN} bytes"
    )]
    Characters(String),
}

impl TableName {
    /// Checks both parts.
    pub fn new(namespace: &str, name: &str) -> Result<Self, NameError> {
        check_part(namespace)?;
        check_part(name)?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The part before the dot.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The part behind the dot.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn check_part(part: &str) -> Result<(), NameError> {
    let mut bytes = part.bytes();
    let first_ok = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let valid = first_ok && part.len() <= MAX_PART_LEN && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !valid {
        return Err(NameError::Characters(excerpt(part)));
    }
    if part.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(NameError::UpperCase(part.to_owned(), part.to_ascii_lowercase()));
    }
    Ok(())
}

/// What of a sender's text an error repeats.
fn excerpt(text: &str) -> String {
    text.chars().take(MAX_PART_LEN + 1).collect()
}

impl FromStr for TableName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut parts = text.split('.');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(name), None, _) => Self::new(DEFAULT_NAMESPACE, name),
            (Some(namespace), Some(name), None) => Self::new(namespace, name),
            _ => Err(NameError::Shape(excerpt(text))),
        }
    }
}

impl TryFrom<String> for TableName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<TableName> for String {
    fn from(name: TableName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.namespace, self.name)
    }
}
