//! The decision about each row of a post: taken, or rejected with its reason. All decoders come here with the rows that their table
//! cannot hold, so that a row's fate depends neither on its format nor on its neighbours.
//!
//! - What is wrong with one row rejects that row. What is wrong with the body as such (a broken array or stream, a limit) refuses the
//!   post: there is no telling what its rows are.
//! - A null says nothing: a column that the table does not have is at fault only in rows with a value in it.
//! - The list is bounded: past [`Limits::max_rejected_rows`] or [`Limits::max_rejected_bytes`] the post is refused whole.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Limits;
use super::reject::{Reject, RejectKind};

/// What becomes of a post of which the table cannot hold every row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnError {
    /// The others are taken.
    #[default]
    Accept,
    /// It is refused whole.
    Abort,
}

impl std::str::FromStr for OnError {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "accept" => Ok(Self::Accept),
            "abort" => Ok(Self::Abort),
            _ => Err(format!(
                "{:?} is no way to deal with bad rows; use accept or abort",
                text.chars().take(16).collect::<String>()
            )),
        }
    }
}

/// A row that the table cannot hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedRow {
    /// Why; its `row` says which one, counted from 1.
    pub reason: Reject,
    /// The row's own bytes as they were sent; of an Arrow stream, the row as JSON.
    pub original: Bytes,
}

/// The rejected rows of a post, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejected {
    rows: Vec<RejectedRow>,
    bytes: usize,
}

impl Rejected {
    /// Takes a rejected row.
    ///
    /// # Errors
    /// The reason itself, if it is not about one row alone; or that there are too many.
    pub(super) fn push(
        &mut self,
        reason: Reject,
        limits: &Limits,
        original: impl FnOnce() -> Bytes,
    ) -> Result<(), Reject> {
        if !reason.is_of_a_row() {
            return Err(reason);
        }
        let original = original();
        self.bytes = self.bytes.saturating_add(original.len());
        self.rows.push(RejectedRow { reason, original });
        if self.rows.len() <= limits.max_rejected_rows && self.bytes <= limits.max_rejected_bytes {
            return Ok(());
        }
        Err(self.too_many())
    }

    fn too_many(&self) -> Reject {
        let first = self.rows.first().map_or("", |row| &row.reason.message);
        Reject::new(
            RejectKind::Unprocessable,
            "too_many_rejected",
            format!(
                "the table cannot hold {} rows up to here, of {} bytes, which is more than is set aside; the first: {first}",
                self.rows.len(),
                self.bytes
            ),
            "nothing of this post was taken; correct the rows, split them over several posts, or raise ingest.max_rejected_rows and \
             ingest.max_rejected_bytes",
        )
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Those that are kept as dead letters: all but those that the table's rules leave to their sender.
    pub fn letters(&self) -> Vec<&RejectedRow> {
        self.rows.iter().filter(|row| row.reason.kept).collect()
    }

    /// All of them.
    pub fn rows(&self) -> &[RejectedRow] {
        &self.rows
    }
}

/// Rejected rows since the start, by the code of the reason.
#[derive(Debug)]
pub(super) struct Tally(Mutex<BTreeMap<&'static str, u64>>);

impl Default for Tally {
    /// Those of event times are there from the start, so that what watches them sees the first one.
    fn default() -> Self {
        Self(Mutex::new(["too_late", "too_early", "wrong_time_unit"].map(|code| (code, 0)).into()))
    }
}

impl Tally {
    pub fn add(&self, rejected: &Rejected) {
        if rejected.is_empty() {
            return;
        }
        let mut counts = self.0.lock();
        rejected.rows().iter().for_each(|row| *counts.entry(row.reason.code).or_default() += 1);
    }

    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().iter().map(|(code, count)| (*code, *count)).collect()
    }
}
