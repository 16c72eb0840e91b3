//! What a table takes: rows by their event time, and columns that it does not have.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The rules of a table. They concern what is posted from now on, and can be changed at any time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// What becomes of rows that are older than [`late_after`](Self::late_after) when they arrive. Default: they are taken.
    pub late: Action,
    /// How old a row may be, against the time of receipt. Default 7 days, which says nothing while late rows are taken.
    #[serde(with = "humantime_serde")]
    pub late_after: Duration,
    /// What becomes of rows that are further in the future than [`early_after`](Self::early_after). Default: dead-letter.
    pub early: Action,
    /// How far ahead of the time of receipt a row may be. Default 48 hours.
    #[serde(with = "humantime_serde")]
    pub early_after: Duration,
    /// What becomes of rows whose event time makes sense in another unit only: it lies in 1970, and a thousand, a million or a thousand
    /// million times as much is within the ten years before now. Default: dead-letter.
    pub wrong_unit: Action,
    /// What becomes of columns that it does not have. Default: strict; tables that are made from rows evolve.
    pub schema: SchemaMode,
}

/// What becomes of columns that rows have and their table does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemaMode {
    /// Rows with them are rejected: somebody declares columns.
    #[default]
    Strict,
    /// The table gets them, and wider types where all readers follow; what has no room goes to the overflow column.
    Evolve,
}

/// What becomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It is taken.
    Accept,
    /// It is rejected, and kept as a dead letter.
    DeadLetter,
    /// It is rejected, and its sender is told; nothing is kept.
    Reject,
}

/// A text that names no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of the words that belong here")]
pub struct ActionError(String);

impl Default for Rules {
    fn default() -> Self {
        Self {
            late: Action::Accept,
            late_after: Duration::from_secs(7 * 86_400),
            early: Action::DeadLetter,
            early_after: Duration::from_secs(48 * 3_600),
            wrong_unit: Action::DeadLetter,
            schema: SchemaMode::Strict,
        }
    }
}

impl Rules {
    /// Takes rows of every time.
    pub fn any_time() -> Self {
        Self { late: Action::Accept, early: Action::Accept, wrong_unit: Action::Accept, ..Self::default() }
    }

    /// Of a table that is made from rows.
    pub fn from_rows() -> Self {
        Self { schema: SchemaMode::Evolve, ..Self::default() }
    }

    /// Whether they are those of a table that says nothing.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl FromStr for Action {
    type Err = ActionError;

    fn from_str(text: &str) -> Result<Self, ActionError> {
        match text {
            "accept" => Ok(Self::Accept),
            "dead-letter" => Ok(Self::DeadLetter),
            "reject" => Ok(Self::Reject),
            _ => Err(ActionError(text.chars().take(16).collect())),
        }
    }
}

impl FromStr for SchemaMode {
    type Err = ActionError;

    fn from_str(text: &str) -> Result<Self, ActionError> {
        match text {
            "strict" => Ok(Self::Strict),
            "evolve" => Ok(Self::Evolve),
            _ => Err(ActionError(text.chars().take(16).collect())),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::DeadLetter => "dead-letter",
            Self::Reject => "reject",
        })
    }
}

/// Some rules: those that are said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RulesPatch {
    /// See [`Rules::late`]; so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<Action>,
    #[serde(skip_serializing_if = "Option::is_none", with = "humantime_serde")]
    pub late_after: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early: Option<Action>,
    #[serde(skip_serializing_if = "Option::is_none", with = "humantime_serde")]
    pub early_after: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrong_unit: Option<Action>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<SchemaMode>,
}

impl RulesPatch {
    /// Rules, with what is said here in place of what they say.
    #[must_use]
    pub fn onto(&self, rules: Rules) -> Rules {
        Rules {
            late: self.late.unwrap_or(rules.late),
            late_after: self.late_after.unwrap_or(rules.late_after),
            early: self.early.unwrap_or(rules.early),
            early_after: self.early_after.unwrap_or(rules.early_after),
            wrong_unit: self.wrong_unit.unwrap_or(rules.wrong_unit),
            schema: self.schema.unwrap_or(rules.schema),
        }
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
