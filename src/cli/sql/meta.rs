//! Commands of the interactive session that start with a backslash.

use clap::ValueEnum;

use super::output::Format;
use crate::schema::TableName;
use crate::schema::name::NameError;

/// What `\?` prints.
pub const HELP: &str = "\
SQL ends with `;` and may span lines.
  \\d             show the tables
  \\d TABLE       show the columns of one
  \\format X      table, csv, json or ndjson
  \\timing        row counts and times on or off
  \\?             this
  \\q             leave (or Ctrl-D)
Ctrl-C cancels the line, or the query that runs.";

/// A command of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meta {
    Quit,
    Tables,
    Describe(TableName),
    Timing,
    Format(Format),
    Help,
}

/// Why a line with a backslash is not a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    #[error("there is no command {0}; \\? lists them")]
    Unknown(String),
    #[error("\\format takes table, csv, json or ndjson")]
    Format,
    #[error(transparent)]
    Table(#[from] NameError),
}

impl Meta {
    /// Reads a line that starts with a backslash; a `;` at its end is forgiven.
    pub fn parse(line: &str) -> Result<Self, MetaError> {
        let mut words = line.trim().trim_end_matches(';').split_whitespace();
        let command = words.next().unwrap_or_default();
        let argument = words.next();
        match (command, argument) {
            ("\\q", None) => Ok(Self::Quit),
            ("\\d", None) => Ok(Self::Tables),
            ("\\d", Some(table)) => Ok(Self::Describe(table.parse()?)),
            ("\\timing", None) => Ok(Self::Timing),
            ("\\format", name) => {
                name.and_then(|n| Format::from_str(n, true).ok()).map(Self::Format).ok_or(MetaError::Format)
            }
            ("\\?" | "\\h", None) => Ok(Self::Help),
            _ => Err(MetaError::Unknown(command.chars().take(32).collect())),
        }
    }
}
