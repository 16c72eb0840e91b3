//! Uploaded files that no commit refers to: which they are, and their end.
//!
//! A file was uploaded for the rows of one seal sequence of one writer. Exactly one commit covers that sequence. Before it is
//! visible, a late one may still refer to the file; once it is, either it refers to the file or nothing ever will: a version that
//! another attempt wanted to write is taken by then.

use std::collections::HashMap;

use deltalake::table::state::DeltaTableState;
use futures::StreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};
use penstock_store::{Incarnation, NodeId};

use super::{Error, LakeTable};

/// An uploaded file of which nobody knows whether it is in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspect<'a> {
    /// The writer of the commit that it was uploaded for.
    pub writer: NodeId,
    /// The incarnation that sealed its rows.
    pub incarnation: Incarnation,
    /// The highest sequence of its rows.
    pub sequence: u64,
    /// From the table's root.
    pub path: &'a str,
}

/// What is known of a [`Suspect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// A version refers to it, the newest or one before.
    Referenced,
    /// No version does, and none ever will.
    Orphan,
    /// Its sequence is not in the table yet: a commit that refers to it may still come.
    Undecided,
}

impl LakeTable {
    /// The fate of each suspect, in order. Reads the table's files, and its removed files if a suspect is not among them.
    ///
    /// # Errors
    /// The log could not be read, or the table there is not ours; nothing is known then.
    pub async fn fates(&self, suspects: &[Suspect<'_>]) -> Result<Vec<Fate>, Error> {
        let Some(snapshot) = self.snapshot(self.published()).await? else {
            return Ok(vec![Fate::Undecided; suspects.len()]);
        };
        let mut fates = Vec::with_capacity(suspects.len());
        for suspect in suspects {
            let committed = snapshot.committed(suspect.writer, suspect.incarnation).await?;
            let covered = committed >= Some(suspect.sequence);
            fates.push(if covered { Fate::Orphan } else { Fate::Undecided });
        }
        // Names are unique to an upload, whatever directory a log says they are in, however written.
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        by_name.extend(suspects.iter().enumerate().map(|(at, suspect)| (name(suspect.path), at)));
        for file in snapshot.eager().log_data().iter() {
            if let Some(at) = by_name.get(name(&file.path())) {
                fates[*at] = Fate::Referenced;
            }
        }
        if fates.contains(&Fate::Orphan) {
            // What was removed since is still read by those who look at an older version.
            let state = DeltaTableState::new(snapshot.eager().as_ref().clone());
            let log_store = snapshot.log_store();
            let mut removed = state.all_tombstones(log_store.as_ref());
            while let Some(file) = removed.next().await {
                let file = file.map_err(|error| Error::delta("reading removed files of", self.url(), error))?;
                if let Some(at) = by_name.get(name(&file.path())) {
                    fates[*at] = Fate::Referenced;
                }
            }
        }
        Ok(fates)
    }

    /// Deletes a file that is an [`Orphan`](Fate::Orphan), and what a killed process may have left of its upload.
    ///
    /// # Errors
    /// The store failed. A file that is not there is no failure.
    pub async fn remove_orphan(&self, path: &str) -> Result<(), Error> {
        let failed = |error| Error::store("removing", path, error);
        let file = Path::parse(path).map_err(|error| failed(StoreError::from(error)))?;
        match self.parts.store.delete(&file).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(failed(error)),
        }
        if let Some((durable, log)) = &self.parts.durable {
            let table = log.parent().unwrap_or_default();
            let whole = Path::from_iter(table.parts().chain(file.parts()));
            durable.remove_staged(&whole).await.map_err(failed)?;
        }
        Ok(())
    }
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
