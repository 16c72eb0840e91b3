//! Uploads are written down before they begin, so that the files of those that no commit refers to can be found after a crash.
//!
//! The journal is the catalog's, or any other durable list: flush sees a trait. Entries are few: those of files that are in no
//! commit yet. Losing the journal loses no rows, only the knowledge of such files.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use penstock_store::{Incarnation, NodeId, TableId};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::schema::TableName;

#[cfg(test)]
mod tests;

/// One file's upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The table whose directory the file is in.
    pub table: TableId,
    /// That table's name.
    pub name: TableName,
    /// Writer of the commit that will refer to the file.
    pub writer: NodeId,
    /// The incarnation that sealed its rows.
    pub incarnation: Incarnation,
    /// The seal sequence of its rows.
    pub sequence: u64,
    /// From the table's root. Carries a random id: no other upload has it.
    pub path: String,
    /// Wall clock, microseconds since the epoch.
    pub began: i64,
}

/// Why the journal did not do what was asked. Cheap to clone: several uploads share one write.
pub type JournalError = Arc<dyn Error + Send + Sync>;

/// Where uploads are written down.
#[async_trait]
pub trait Journal: fmt::Debug + Send + Sync {
    /// Adds uploads; durable when this returns.
    async fn begin(&self, uploads: &[Upload]) -> Result<(), JournalError>;

    /// Forgets uploads; those that are not there are none.
    async fn end(&self, uploads: &[Upload]) -> Result<(), JournalError>;

    /// All uploads that have begun and not ended.
    async fn open(&self) -> Result<Vec<Upload>, JournalError>;
}

/// A journal that lasts as long as this value: for a lake that does so too, and for tests.
#[derive(Debug, Default)]
pub struct MemoryJournal(Mutex<Vec<Upload>>);

impl MemoryJournal {
    /// Whether nothing is open.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn begin(&self, uploads: &[Upload]) -> Result<(), JournalError> {
        self.0.lock().extend_from_slice(uploads);
        Ok(())
    }

    async fn end(&self, uploads: &[Upload]) -> Result<(), JournalError> {
        self.0.lock().retain(|known| !uploads.iter().any(|ended| ended.path == known.path));
        Ok(())
    }

    async fn open(&self) -> Result<Vec<Upload>, JournalError> {
        Ok(self.0.lock().clone())
    }
}

type Answer = oneshot::Sender<Result<(), JournalError>>;

/// Writes begun uploads down, those of several tasks with one write: each is a sync of a disk. Whoever has the turn writes for all
/// who wait.
#[derive(Debug, Default)]
pub struct Pen {
    waiting: Mutex<Vec<(Upload, Answer)>>,
    turn: tokio::sync::Mutex<()>,
}

impl Pen {
    /// Returns once the upload is durably in the journal.
    ///
    /// # Errors
    /// The journal's own; the upload may be in it all the same.
    pub async fn begin(&self, journal: &dyn Journal, upload: &Upload) -> Result<(), JournalError> {
        loop {
            let (done, mut answer) = oneshot::channel();
            self.waiting.lock().push((upload.clone(), done));
            let _turn = self.turn.lock().await;
            match answer.try_recv() {
                Ok(result) => return result,
                // Whoever wrote for us was dropped in the middle.
                Err(TryRecvError::Closed) => continue,
                Err(TryRecvError::Empty) => {}
            }
            let (uploads, answers): (Vec<Upload>, Vec<Answer>) =
                std::mem::take(&mut *self.waiting.lock()).into_iter().unzip();
            let result = journal.begin(&uploads).await;
            for answer in answers {
                // Who does not wait any more has an entry that the sweep ends.
                let _ = answer.send(result.clone());
            }
            return result;
        }
    }
}
