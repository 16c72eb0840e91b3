//! Removes what no reader needs any more: log files behind a checkpoint that was read back, and older than the table's
//! log retention.

use std::sync::Arc;
use std::time::SystemTime;

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;

use super::View;
use super::checkpoint::{Verified, hint_path, path};
use super::contents::{self, Unread};
use super::law::{Listed, LogFile, horizon, removable, role_of};
use crate::lake::Error;
use crate::lake::retention::{self, LogRetention};

/// What a clean-up did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cleaned {
    pub(super) removed: u64,
    pub(super) listed: Listed,
}

impl View {
    /// Removes what is behind the checkpoint, which was read back just now.
    ///
    /// # Errors
    /// The store's own; some files may be gone then, the oldest first.
    pub(super) async fn clean_up(&self, verified: &Verified) -> Result<Option<Cleaned>, Error> {
        // A table whose settings are not safe is refused by its next commit, with the reason; here it is left alone.
        let Ok(LogRetention { keep, clean_up: true }) = retention::log(&verified.properties) else { return Ok(None) };
        let Some(cutoff) = SystemTime::now().checked_sub(keep) else { return Ok(None) };
        let log = self.listed(cutoff).await?;
        let horizon = horizon(&log, verified.version);
        let gone = horizon.map(|horizon| removable(&log, horizon)).unwrap_or_default();
        let left = log.len() - gone.len();
        let listed = Listed { at: verified.version, files: u64::try_from(left).unwrap_or(u64::MAX) };
        if let Some(horizon) = horizon.filter(|_| !gone.is_empty()) {
            self.check_horizon(horizon, verified).await?;
            // MUST BEFORE the removal: of a checkpoint that a power cut takes back, and of the entries behind it, one has to
            // be there.
            self.settle_checkpoints([horizon, verified.version]).await?;
            self.remove(&gone).await?;
        }
        Ok(Some(Cleaned { removed: u64::try_from(gone.len()).unwrap_or(u64::MAX), listed }))
    }

    async fn listed(&self, cutoff: SystemTime) -> Result<Vec<LogFile>, Error> {
        let directory = Path::from("_delta_log");
        let failed = |error| Error::store("listing", &directory, error);
        let mut found = self.store.list(Some(&directory));
        let mut log = Vec::new();
        while let Some(meta) = found.try_next().await.map_err(failed)? {
            // Names below directories of the log are not the log's.
            let parts = meta.location.parts().count();
            let Some(name) = meta.location.filename().filter(|_| parts == 2) else { continue };
            if let Some((role, version)) = role_of(name) {
                let expired = SystemTime::from(meta.last_modified) < cutoff;
                log.push(LogFile { name: name.to_owned(), role, version, expired });
            }
        }
        Ok(log)
    }

    /// An older checkpoint, from which the versions inside the retention are read from now on, is read back as well.
    async fn check_horizon(&self, horizon: u64, verified: &Verified) -> Result<(), Error> {
        if horizon == verified.version {
            return Ok(());
        }
        let wrong = |reason: String| Error::Checkpoint { location: self.location(), version: horizon, reason };
        let found = match contents::read(&self.remembering(None)?.store, &path(horizon)).await {
            Ok(found) => found,
            Err(Unread::Store(error)) => return Err(error),
            Err(Unread::Damaged(reason)) => return Err(wrong(reason)),
        };
        // Where an application id stands only grows: an older checkpoint that is ahead is not of this log.
        let ahead = found.txns.iter().find(|(app, version)| verified.txns.get(*app) < Some(version));
        ahead.map_or(Ok(()), |(app, version)| {
            Err(wrong(format!("transaction {app} is at {version}, and the newer checkpoint has less")))
        })
    }

    /// On a local lake: makes the checkpoints, the pointer and their names durable. Another process may have written them.
    async fn settle_checkpoints(&self, versions: [u64; 2]) -> Result<(), Error> {
        let Some((durable, log)) = &self.durable else { return Ok(()) };
        for file in versions.map(path).into_iter().chain([hint_path()]) {
            let name = file.filename().unwrap_or_default();
            let file = log.clone().join(name);
            durable.settle_file(&file).await.map_err(|error| Error::store("syncing", &file, error))?;
        }
        Ok(())
    }

    async fn remove(&self, names: &[String]) -> Result<(), Error> {
        let paths: Vec<_> = names.iter().map(|name| Ok(Path::from_iter(["_delta_log", name.as_str()]))).collect();
        let mut removed = Arc::clone(&self.store).delete_stream(futures::stream::iter(paths).boxed());
        while let Some(one) = removed.next().await {
            match one {
                // Another node may clean up as well.
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(Error::store("removing log files of", self.location(), error)),
            }
        }
        Ok(())
    }
}
