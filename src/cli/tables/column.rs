//! A column as it is written on the command line: `NAME:TYPE`, with `!` behind the type for not null.

use std::str::FromStr;

use crate::schema::spec::TypeError;
use crate::schema::{ColumnSpec, ColumnType};

/// A parsed `--column`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnFlag(pub ColumnSpec);

/// Why a text is not a column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    #[error("write it as NAME:TYPE, for example load:double, or ts:timestamp! for not null")]
    Shape,
    #[error(transparent)]
    Type(#[from] TypeError),
}

impl FromStr for ColumnFlag {
    type Err = ColumnError;

    fn from_str(text: &str) -> Result<Self, ColumnError> {
        let (name, kind) = text.split_once(':').ok_or(ColumnError::Shape)?;
        let (kind, nullable) = match kind.trim().strip_suffix('!') {
            Some(kind) => (kind, false),
            None => (kind, true),
        };
        if name.trim().is_empty() || kind.trim().is_empty() {
            return Err(ColumnError::Shape);
        }
        Ok(Self(ColumnSpec { name: name.trim().to_owned(), kind: kind.parse::<ColumnType>()?, nullable }))
    }
}
