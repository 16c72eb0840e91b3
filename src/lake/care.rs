//! Care for a table's log, off the commit path: Delta checkpoints, so that whoever opens the table reads few entries, and
//! the removal of entries that nobody needs any more.
//!
//! In flow order:
//!
//! - a commit that is in and confirmed tells its version; [`law`] decides from that number alone whether anything is due;
//! - then one background task (at most one a table, and few at a time over all tables) does the rest:
//! - [`checkpoint`]: written by the kernel, read back by [`contents`] and compared with what the log says without it:
//!   protocol, metadata, our transaction ids, number of files ([`cached`]: each file is read once for all of that; [`memory`]: the
//!   bytes of entries that this process wrote or read itself, which are not read at all);
//! - [`clean`]: removal, only behind a checkpoint that was read back.
//!
//! **The law.** A checkpoint costs in the files of the table, and one of `f` files is written every
//! `max(checkpoint_every, f / 100)` versions: 100 files rewritten a commit, whatever the table's size, up to 500,000 files
//! (behind that the interval stays at 5,000 versions, as every reader reads the entries since the last checkpoint). The
//! log is listed when a tenth of its files are new. Both numbers are our own bookkeeping: a commit costs no request. A
//! checkpoint costs two listings, two PUTs (the file and the pointer to it), and three GETs (both read back, and the pointer before
//! it); entries of others, and our own that are no longer in memory, a GET each.
//!
//! **Failures.** Whatever goes wrong here is logged and shown, and changes nothing else: a commit is never undone,
//! repeated or delayed by it, and nothing is removed without proof. The next try comes as many versions later.
//!
//! Absent here: data files that nothing refers to (their sweep is the flush's), compaction, sidecars of other writers'
//! checkpoints (they stay when their checkpoint goes).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use deltalake::logstore::LogStoreRef;
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use super::durable::Durable;
use super::identity::Identity;
use super::table::Parts;
use super::{Error, LakeTable, entry};
use checkpoint::Verified;
use law::{Listed, Standing};
use memory::Memory;

mod cached;
mod checkpoint;
mod clean;
mod contents;
mod law;
mod memory;
#[cfg(test)]
mod tests;

/// Tables that are cared for at the same time.
const AT_ONCE: usize = 2;

/// The lake's settings of it, and what all its tables share.
#[derive(Debug)]
pub(super) struct Care {
    checkpoint_every: u64,
    clean_up: bool,
    turns: Semaphore,
    memory: Arc<Memory>,
}

impl Care {
    /// `checkpoint_every` of 0: none.
    pub(super) fn new(checkpoint_every: u64, clean_up: bool) -> Arc<Self> {
        let (turns, memory) = (Semaphore::new(AT_ONCE), Arc::default());
        Arc::new(Self { checkpoint_every, clean_up, turns, memory })
    }
}

/// How the log of a table is cared for, since this process started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogCare {
    /// The newest checkpoint that was written and read back.
    pub checkpoint: Option<u64>,
    /// Log files that were removed behind checkpoints.
    pub removed: u64,
    /// Why the last try failed; none if it did not.
    pub last_error: Option<String>,
}

/// The parts of a table that care for its log needs.
struct View {
    identity: Arc<Identity>,
    log_store: LogStoreRef,
    /// Rooted at the table.
    store: Arc<dyn ObjectStore>,
    durable: Option<(Arc<Durable>, Path)>,
    memory: Arc<Memory>,
}

impl View {
    /// Where the table lies in the store.
    fn root(&self) -> Result<Path, Error> {
        Path::from_url_path(self.log_store.root_url().path())
            .map_err(|error| Error::Corrupt { location: self.location(), reason: error.to_string() })
    }

    fn location(&self) -> String {
        self.log_store.root_url().to_string()
    }
}

/// The caretaker of one table.
pub(super) struct Caretaker {
    view: View,
    care: Arc<Care>,
    state: Mutex<State>,
    /// Told when the task ends.
    rested: Notify,
}

#[derive(Default)]
struct State {
    standing: Standing,
    verified: Option<Arc<Verified>>,
    listed: Option<Listed>,
    /// The one task of this table.
    busy: bool,
    shown: LogCare,
}

impl fmt::Debug for Caretaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caretaker({} {:?})", self.view.location(), self.state.lock().standing)
    }
}

impl Caretaker {
    pub(super) fn new(identity: Arc<Identity>, parts: &Parts) -> Arc<Self> {
        let view = View {
            identity,
            log_store: Arc::clone(&parts.log_store),
            store: Arc::clone(&parts.store),
            durable: parts.durable.clone(),
            memory: Arc::clone(&parts.care.memory),
        };
        Arc::new(Self { view, care: Arc::clone(&parts.care), state: Mutex::default(), rested: Notify::new() })
    }

    /// Takes note of a version. MUST AFTER it is confirmed, and durable where we see to that: a checkpoint of a version that
    /// is lost or taken back would hold its rows for ever. Costs no call to the store; what is due runs in the background.
    pub(super) fn committed(self: &Arc<Self>, version: u64) {
        let mut state = self.state.lock();
        state.standing.version = state.standing.version.max(version);
        let due = law::checkpoint_due(self.care.checkpoint_every, &state.standing);
        // Without a runtime there is nobody to do it; the next commit asks again.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if due && !state.busy {
            state.busy = true;
            drop(state);
            runtime.spawn(Turn(Arc::clone(self)).run());
        }
    }

    /// Keeps the bytes of an entry that was written or read just now, so that the checkpoint that covers it need not read it.
    /// `tag` is what the store gave with them.
    pub(super) fn note(&self, version: u64, tag: Option<&str>, bytes: &Bytes) {
        if self.care.checkpoint_every == 0 {
            return;
        }
        if let Ok(root) = self.view.root() {
            let location = root.parts().chain(entry::path(version).parts()).collect();
            self.view.memory.note(location, tag, bytes);
        }
    }

    /// Waits until nothing runs. A commit in the meantime may bring on the next.
    pub(super) async fn rest(&self) {
        loop {
            let rested = self.rested.notified();
            if !self.state.lock().busy {
                return;
            }
            rested.await;
        }
    }

    fn is_due(&self) -> bool {
        law::checkpoint_due(self.care.checkpoint_every, &self.state.lock().standing)
    }

    async fn round(&self) -> Result<(), Error> {
        let read = self.view.remembering(Some(&self.view.memory))?;
        let hint = self.view.hint(&read).await?;
        if let Some((hint, _)) = &hint {
            // Another writer's counts as well; it is only not trusted for a clean-up.
            self.known_checkpoint(hint.version, hint.num_of_add_files);
            if !self.is_due() {
                return Ok(());
            }
        }
        let (version, known) = {
            let state = self.state.lock();
            (state.standing.version, state.verified.clone())
        };
        let Some(verified) = self.view.checkpoint(version, read, hint, known.as_deref()).await? else {
            self.known_checkpoint(version, None);
            return Ok(());
        };
        let verified = Arc::new(verified);
        self.known_checkpoint(version, Some(verified.files));
        let listed = {
            let mut state = self.state.lock();
            state.verified = Some(Arc::clone(&verified));
            state.shown.checkpoint = Some(version);
            state.listed
        };
        if self.care.clean_up && law::clean_up_due(self.care.checkpoint_every, version, listed) {
            let cleaned = self.view.clean_up(&verified).await?;
            if let Some(cleaned) = cleaned {
                let mut state = self.state.lock();
                state.listed = Some(cleaned.listed);
                state.shown.removed += cleaned.removed;
            }
        }
        Ok(())
    }

    fn known_checkpoint(&self, version: u64, files: Option<u64>) {
        let mut state = self.state.lock();
        if state.standing.checkpoint <= Some(version) {
            state.standing.checkpoint = Some(version);
            state.standing.files = files.unwrap_or(state.standing.files);
        }
    }

    fn ended(&self, done: Result<(), Error>) {
        let mut state = self.state.lock();
        match done {
            Ok(()) => {
                state.standing.failed_at = None;
                state.shown.last_error = None;
            }
            Err(error) => {
                tracing::warn!(table = %self.view.location(), %error, "a checkpoint or clean-up failed; commits go on");
                state.standing.failed_at = Some(state.standing.version);
                state.shown.last_error = Some(error.to_string());
            }
        }
    }
}

/// The right to be the table's one task; given back however it ends.
struct Turn(Arc<Caretaker>);

impl Turn {
    async fn run(self) {
        let table = &self.0;
        // Never closed.
        let Ok(_turn) = table.care.turns.acquire().await else { return };
        // Commits that came in meanwhile may make the next one due already; the law bounds how often.
        while table.is_due() {
            table.ended(table.round().await);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.state.lock().busy = false;
        self.0.rested.notify_waiters();
    }
}

impl LakeTable {
    /// How its log is cared for.
    pub fn log_care(&self) -> LogCare {
        self.caretaker.state.lock().shown.clone()
    }
}
