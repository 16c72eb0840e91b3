//! The commit: one create-only PUT, and what follows when its answer does not say what happened.
//!
//! - A version is *placed* by putting our bytes under its name if that is free. On any error the entry is read back: our
//!   id in it means that it landed; another's means that the version is taken; nothing there means that the same bytes
//!   are put under the same name again. The next version is never tried before this one is settled, or a PUT that
//!   arrives late could write the rows a second time.
//! - A version that is *taken* moves the head on: its actions are checked, and if it is an earlier attempt of ours, the
//!   commit is adopted.
//! - A commit that stays open leaves the head unknown: the next attempt reads the table's `txn` first.
//! - An entry of our own process's application id that this process did not put stops everything, see [`super::fence`].
//!
//! A commit that landed is not yet one that counts: see [`super::confirm`].
//!
//! Deliberately not delta-rs's `CommitBuilder`: it lists the log and carries all files through each commit, and does
//! not look at `txn`.

use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use deltalake::kernel::Add;
use object_store::{ObjectStoreExt, PutMode, PutOptions};
use penstock_store::{Incarnation, NodeId};
use uuid::Uuid;

use super::entry::{self, Entry, Txn, app_id};
use super::head::{Books, Head, Landed, State};
use super::{Error, LakeTable, lean, retention};
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

/// The entry is in the log as we know it. The rows MUST NOT leave our own log before [`LakeTable::confirm`] has said that this
/// is the table's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// A version that holds the rows.
    pub version: u64,
    /// An earlier attempt had landed: the files in the table are that one's, and the ones of this call are not in it.
    pub adopted: bool,
}

/// What became of the version that was to be written.
pub(super) enum Placed {
    Landed,
    Taken(Box<Entry>),
}

struct Attempt<'a> {
    id: Uuid,
    txn: Txn,
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
        let mut books = self.books.lock().await;
        self.parts.fence.check()?;
        let done = self.commit_locked(&mut books, &request).await;
        match &done {
            // The second has just been read.
            Ok(_) | Err(Error::Changed { .. }) => {}
            // Whatever went wrong, what we believe about the head may be part of it.
            Err(_) => books.state = State::Unknown,
        }
        done
    }

    async fn commit_locked(&self, books: &mut Books, request: &Commit<'_>) -> Result<Committed, Error> {
        let app = app_id(request.node, request.incarnation);
        let version = i64::try_from(request.sequence).map_err(|_| Error::Sequence(request.sequence))?;
        let until = Instant::now() + self.parts.patience.whole;

        self.contact(books).await?;
        if let State::Missing = books.state {
            // MUST BEFORE: whoever removed a table, or another one in its place, since the upload has removed the files too. It
            // happens once in a table's life, so that the calls do not matter.
            self.check_files(request.adds).await?;
            self.create(books, request.spec, until).await?;
        }
        let State::Known(head) = &mut books.state else { return Err(self.lost_races(0)) };
        if let Some(done) = self.covered(head, &app, request)? {
            return Ok(done);
        }
        head.check_rows(self.url().as_str(), request.spec)?;

        if self.parts.fence.is_live(&app) {
            books.given = books.given.max(request.sequence);
        }
        let (id, txn) = (Uuid::new_v4(), Txn { app, version });
        self.land(books, &Attempt { id, txn, request, until }).await
    }

    async fn land(&self, books: &mut Books, attempt: &Attempt<'_>) -> Result<Committed, Error> {
        let location = self.url().as_str();
        loop {
            let State::Known(head) = &mut books.state else { return Err(self.lost_races(0)) };
            let version = head.version + 1;
            // As the table is now: another writer may have changed it since the last try, or given it the columns itself.
            let change = head.check_rows(location, attempt.request.spec)?;
            let Commit { spec, adds, .. } = attempt.request;
            let bytes = entry::append(attempt.id, &attempt.txn, spec, adds, change.as_ref());
            // MUST BEFORE the PUT: whatever becomes of this call, the entry is known to be ours.
            books.open.push((version, attempt.id));
            let mut taken = match self.place(version, &bytes, attempt.id, attempt.until).await? {
                Placed::Landed => {
                    let before = head.txn(&attempt.txn.app);
                    let ours = Entry { txns: vec![attempt.txn.clone()], metadata: change, ..Entry::default() };
                    self.snapshots.note(version, head.absorb(location, version, ours)?);
                    books.landed.push(Landed { version, id: Some(attempt.id), txn: attempt.txn.clone(), before });
                    books.open.retain(|(open, _)| *open > version);
                    return Ok(Committed { version, adopted: false });
                }
                Placed::Taken(entry) => Some(*entry),
            };
            // Others may be far ahead: read on to their last entry before the next PUT.
            while let Some(entry) = taken {
                let head = self.absorb(books, entry).await?;
                head.check_rows(location, attempt.request.spec)?;
                if let Some(done) = self.covered(head, &attempt.txn.app, attempt.request)? {
                    return Ok(done);
                }
                taken = self.read_entry(head.version + 1).await?;
            }
            if Instant::now() >= attempt.until {
                return Err(self.lost_races(version));
            }
        }
    }

    /// Takes in the entry behind the head, which was there before ours.
    async fn absorb<'a>(&self, books: &'a mut Books, entry: Entry) -> Result<&'a mut Head, Error> {
        let location = self.url().as_str();
        let State::Known(head) = &books.state else { return Err(self.lost_races(0)) };
        let version = head.version + 1;
        let of_node =
            |txn: &&Txn| self.parts.fence.is_of_node(&txn.app) || books.landed.iter().any(|l| l.txn.app == txn.app);
        if entry.txns.iter().any(|txn| self.parts.fence.is_live(&txn.app)) && !books.is_ours(entry.commit) {
            return Err(self.parts.fence.trip(location, Some(version)));
        }
        if entry.txns.iter().any(|txn| txn.app.starts_with(entry::APP_PREFIX)) {
            // MUST BEFORE the head knows it: an attempt that a killed process made may not be synced, and
            // once it is in the head it counts, also for a caller that comes after this one was dropped.
            self.settle().await?;
        }
        let id = entry.commit;
        let landed = entry.txns.iter().filter(of_node).map(|txn| Landed {
            version,
            id,
            txn: txn.clone(),
            before: head.txn(&txn.app),
        });
        let landed: Vec<Landed> = landed.collect();
        books.landed.extend(landed);
        books.open.retain(|(open, _)| *open > version);
        let State::Known(head) = &mut books.state else { return Err(self.lost_races(version)) };
        self.snapshots.note(version, head.absorb(location, version, entry)?);
        self.check_definition(&head.definition)?;
        *self.stats_columns.lock() = retention::stats_columns(head.definition.properties());
        Ok(head)
    }

    async fn check_files(&self, adds: &[Add]) -> Result<(), Error> {
        for add in adds {
            if !self.has_file(&add.path).await? {
                return Err(self.changed(format!("there is no table, and the uploaded file {} is gone", add.path)));
            }
        }
        Ok(())
    }

    /// Whether the table holds the sequences already.
    fn covered(&self, head: &Head, app: &str, request: &Commit<'_>) -> Result<Option<Committed>, Error> {
        let Some(committed) = head.txn(app) else { return Ok(None) };
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
    async fn create(&self, books: &mut Books, spec: &TableSpec, until: Instant) -> Result<(), Error> {
        let id = Uuid::new_v4();
        let placed = self.place(0, &entry::create(id, self.identity.own(), spec), id, until).await?;
        books.state = State::Unknown;
        if let Placed::Landed = placed {
            // Where a table was made and cleaned since we looked, version 0 is free too, and no part of it.
            let reading = lean::read(&self.parts, None).await?;
            if reading.log.is_some_and(|log| log.checkpoint.is_some()) {
                self.remove_entry(0).await?;
            }
        }
        self.contact(books).await
    }

    /// Puts `bytes` under `version`, until it is known what lies there.
    pub(super) async fn place(&self, version: u64, bytes: &Bytes, id: Uuid, until: Instant) -> Result<Placed, Error> {
        let path = entry::path(version);
        let mut tries = 0;
        loop {
            let options = PutOptions::from(PutMode::Create);
            failpoint::reach("lake::place::before");
            let put = self.parts.store.put_opts(&path, bytes.clone().into(), options).await;
            failpoint::reach("lake::place::after");
            let error = match put {
                Ok(put) => {
                    self.caretaker.note(version, put.e_tag.as_deref(), bytes);
                    return Ok(Placed::Landed);
                }
                Err(error) => error,
            };
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
                Ok(Some(entry)) => {
                    self.parts.tally.conflicts.fetch_add(1, Ordering::Relaxed);
                    return Ok(Placed::Taken(Box::new(entry)));
                }
                Ok(None) => Error::store("writing", &path, error),
                Err(corrupt @ Error::Corrupt { .. }) => return Err(corrupt),
                Err(unread) => unread,
            };
            let wait = self.parts.patience.wait(tries);
            if tries >= self.parts.patience.tries || Instant::now() + wait >= until {
                let table = self.url().to_string();
                return Err(Error::Unsettled { table, version, tries, last: Box::new(last) });
            }
            self.parts.tally.commit_retries.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(wait).await;
        }
    }

    pub(super) async fn read_entry(&self, version: u64) -> Result<Option<Entry>, Error> {
        let path = entry::path(version);
        let read = async {
            let found = self.parts.store.get(&path).await?;
            let tag = found.meta.e_tag.clone();
            Ok((tag, found.bytes().await?))
        };
        match read.await {
            Ok((tag, bytes)) => {
                self.caretaker.note(version, tag.as_deref(), &bytes);
                Entry::parse(self.url().as_str(), version, &bytes).map(Some)
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::store("reading", &path, error)),
        }
    }

    /// Removes an entry that we have put and that is no part of the log.
    pub(super) async fn remove_entry(&self, version: u64) -> Result<(), Error> {
        let path = entry::path(version);
        tracing::warn!(table = %self.url(), version, "removing an entry of ours that is no part of the table's log");
        match self.parts.store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::store("removing", &path, error)),
        }
    }

    pub(super) fn lost_races(&self, version: u64) -> Error {
        Error::LostRaces { table: self.url().to_string(), version }
    }
}
