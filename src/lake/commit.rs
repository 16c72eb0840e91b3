//! The commit: one create-only PUT, and what follows when its answer does not say what happened.
//!
//! - A version is *placed* by putting our bytes under its name if that is free. On any error the entry is read back: our
//!   id in it means that it landed; another's means that the version is taken; nothing there means that the same bytes
//!   are put under the same name again. The next version is never tried before this one is settled, or a PUT that
//!   arrives late could write the rows a second time.
//! - A version that is *taken* moves the head on: its actions are checked, and if it is an earlier attempt of ours, the
//!   commit is adopted.
//! - A commit that stays open leaves the head unknown: the next attempt reads the table's `txn` first.
//!
//! Deliberately not delta-rs's `CommitBuilder`: it lists the log and carries all files through each commit, and does
//! not look at `txn`.

use std::time::Instant;

use bytes::Bytes;
use deltalake::kernel::Add;
use object_store::{ObjectStoreExt, PutMode, PutOptions};
use penstock_store::{Incarnation, NodeId};
use uuid::Uuid;

use super::definition::Definition;
use super::entry::{self, Entry, Txn, app_id};
use super::head::{Head, State};
use super::{Error, LakeTable};
use crate::failpoint;
use crate::schema::TableSpec;

/// One or more consecutive sealed generations of one incarnation, as files that are uploaded and synced.
#[derive(Debug, Clone, Copy)]
pub struct Commit<'a> {
    /// The node that sealed.
    pub node: NodeId,
    /// The incarnation that sealed.
    pub incarnation: Incarnation,
    /// The lowest seal sequence whose rows are in `adds`.
    pub first_sequence: u64,
    /// The highest seal sequence whose rows are in `adds`.
    pub sequence: u64,
    /// The definition that the files were written with.
    pub spec: &'a TableSpec,
    /// What [`write_data`](LakeTable::write_data) returned.
    pub adds: &'a [Add],
}

/// The rows are in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// A version that holds them.
    pub version: u64,
    /// An earlier attempt had landed: the files in the table are that one's, and the ones of this call are not in it.
    pub adopted: bool,
}

/// What became of the version that was to be written.
enum Placed {
    Landed,
    Taken(Box<Entry>),
}

struct Attempt<'a> {
    id: Uuid,
    txn: Txn,
    bytes: Bytes,
    request: &'a Commit<'a>,
    until: Instant,
}

impl LakeTable {
    /// Appends the files, exactly once for each sequence of the incarnation, and creates the table if there is none.
    ///
    /// Dropping the future leaves the commit open: it may land, and the next call finds out.
    ///
    /// # Errors
    /// By [`kind`](Error::kind): `Unavailable`, try the same again; `Stale`, resolve and commit the rest; `Refused`, the
    /// table is not one that we may append to.
    pub async fn commit(&self, request: Commit<'_>) -> Result<Committed, Error> {
        // MUST BEFORE the first PUT: on a store that ignores "create only" two commits of one version both succeed, and the rows of
        // one are gone.
        self.parts.proof.ensure().await?;
        let mut state = self.head.lock().await;
        let done = self.commit_locked(&mut state, &request).await;
        match &done {
            Ok(committed) => self.publish(committed.version),
            // Whatever went wrong, what we believe about the head may be part of it.
            Err(_) => *state = State::Unknown,
        }
        done
    }

    async fn commit_locked(&self, state: &mut State, request: &Commit<'_>) -> Result<Committed, Error> {
        let app = app_id(request.node, request.incarnation);
        let version = i64::try_from(request.sequence).map_err(|_| Error::Sequence(request.sequence))?;
        let until = Instant::now() + self.parts.patience.whole;

        self.open_head(state).await?;
        if let State::Missing = state {
            self.create(state, request.spec, until).await?;
        }
        let State::Known(head) = state else { return Err(self.lost_races(0)) };
        if let Some(done) = self.covered(head, &app, request).await? {
            return Ok(done);
        }
        head.check_rows(self.url().as_str(), request.spec)?;

        let (id, txn) = (Uuid::new_v4(), Txn { app, version });
        let bytes = entry::append(id, &txn, request.spec, request.adds);
        self.land(head, &Attempt { id, txn, bytes, request, until }).await
    }

    async fn land(&self, head: &mut Head, attempt: &Attempt<'_>) -> Result<Committed, Error> {
        let location = self.url().as_str();
        loop {
            let version = head.version + 1;
            let mut taken = match self.place(version, &attempt.bytes, attempt.id, attempt.until).await? {
                Placed::Landed => {
                    let ours = Entry { txns: vec![attempt.txn.clone()], ..Entry::default() };
                    self.snapshots.note(version, head.absorb(location, version, ours)?);
                    return Ok(Committed { version, adopted: false });
                }
                Placed::Taken(entry) => Some(*entry),
            };
            // Others may be far ahead: read on to their last entry before the next PUT.
            while let Some(entry) = taken {
                let version = head.version + 1;
                if entry.txns.iter().any(|txn| txn.app == attempt.txn.app) {
                    // MUST BEFORE the head knows it: an attempt that a killed process made may not be synced, and
                    // once it is in the head it counts, also for a caller that comes after this one was dropped.
                    self.settle().await?;
                }
                self.snapshots.note(version, head.absorb(location, version, entry)?);
                head.definition.check_table(location, &self.identity)?;
                head.check_rows(location, attempt.request.spec)?;
                if let Some(done) = self.covered(head, &attempt.txn.app, attempt.request).await? {
                    return Ok(done);
                }
                taken = self.read_entry(head.version + 1).await?;
            }
            if Instant::now() >= attempt.until {
                return Err(self.lost_races(head.version));
            }
        }
    }

    /// Whether the table holds the sequences already.
    async fn covered(&self, head: &mut Head, app: &str, request: &Commit<'_>) -> Result<Option<Committed>, Error> {
        let Some(committed) = self.committed(head, app).await? else { return Ok(None) };
        if committed >= request.sequence {
            return Ok(Some(Committed { version: head.version, adopted: true }));
        }
        if committed >= request.first_sequence {
            let (first, last) = (request.first_sequence, request.sequence);
            return Err(Error::PartlyCommitted { table: self.url().to_string(), committed, first, last });
        }
        Ok(None)
    }

    /// Writes version 0, or opens the table that another node has created in the meantime.
    async fn create(&self, state: &mut State, spec: &TableSpec, until: Instant) -> Result<(), Error> {
        let id = Uuid::new_v4();
        let bytes = entry::create(id, self.identity.own(), spec);
        if let Placed::Taken(_) = self.place(0, &bytes, id, until).await? {
            *state = State::Unknown;
            return self.open_head(state).await;
        }
        let location = self.url().as_str();
        let Entry { protocol: Some(protocol), metadata: Some(metadata), .. } = Entry::parse(location, 0, &bytes)?
        else {
            return Err(Error::Corrupt { location: location.to_owned(), reason: "our version 0".to_owned() });
        };
        let definition = Definition::new(location, protocol, metadata)?;
        definition.check_table(location, &self.identity)?;
        *state = State::Known(Box::new(Head::new(0, definition, true)));
        self.publish(0);
        Ok(())
    }

    /// Puts `bytes` under `version`, until it is known what lies there.
    async fn place(&self, version: u64, bytes: &Bytes, id: Uuid, until: Instant) -> Result<Placed, Error> {
        let path = entry::path(version);
        let mut tries = 0;
        loop {
            let options = PutOptions::from(PutMode::Create);
            failpoint::reach("lake::place::before");
            let put = self.parts.store.put_opts(&path, bytes.clone().into(), options).await;
            failpoint::reach("lake::place::after");
            let Err(error) = put else { return Ok(Placed::Landed) };
            tries += 1;
            // Also for "already exists": stores answer so after their own retries, and for conflicts in which
            // nothing was written.
            let last = match self.read_entry(version).await {
                Ok(Some(entry)) if entry.commit == Some(id) => {
                    // MUST BEFORE it counts: the PUT may have failed in the sync of the directory, and an entry that
                    // can be read can still be lost.
                    self.settle().await?;
                    return Ok(Placed::Landed);
                }
                Ok(Some(entry)) => return Ok(Placed::Taken(Box::new(entry))),
                Ok(None) => Error::store("writing", &path, error),
                Err(corrupt @ Error::Corrupt { .. }) => return Err(corrupt),
                Err(unread) => unread,
            };
            let wait = self.parts.patience.wait(tries);
            if tries >= self.parts.patience.tries || Instant::now() + wait >= until {
                let table = self.url().to_string();
                return Err(Error::Unsettled { table, version, tries, last: Box::new(last) });
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn read_entry(&self, version: u64) -> Result<Option<Entry>, Error> {
        let path = entry::path(version);
        let read = async { self.parts.store.get(&path).await?.bytes().await };
        match read.await {
            Ok(bytes) => Entry::parse(self.url().as_str(), version, &bytes).map(Some),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::store("reading", &path, error)),
        }
    }

    fn lost_races(&self, version: u64) -> Error {
        Error::LostRaces { table: self.url().to_string(), version }
    }
}
