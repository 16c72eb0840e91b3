//! Whether what we have put is a part of the table: the other half of a commit.
//!
//! A create-only PUT proves only that its key was free. Where the log was cleaned away, or the table was dropped or made
//! anew, version N+1 is free too, and the rows would be in a hole. So a commit counts once a later look shows it in the
//! log of the same table:
//!
//! - **Continued.** The anchor, an entry that was seen before, is still the same object, and every version from it to ours
//!   is there. One LIST that begins at the anchor, for all commits since; the anchor then moves on. An entry that is deleted
//!   never comes back as the same object, so a table that was dropped in between, however it was filled again, shows.
//! - **Read anew.** If anything does not fit, the head is read from nothing, like at first contact. Only what its `txn`s
//!   say is in the table then, and [`Error::Changed`] tells the caller to ask and to upload again: files of ours may be
//!   gone with the log that is gone ([`super::undo`] sees to those that a commit refers to).
//!
//! Our entries that are not a part of the log are removed, wherever they were put: behind a gap they make the table
//! unreadable to others, and once others have filled the gap they would add rows for a second time.
//!
//! Deliberately not by reading our entry back each time: that is a call per commit, and says nothing about the versions before it.

use std::time::Instant;

use super::anchor::{Anchor, Mark, look};
use super::head::{Books, Head, Landed, State};
use super::lean::{self, Log};
use super::{Error, LakeTable, retention};

/// Entries behind a gap that are looked into. Ours are few: each one is confirmed soon after it was put.
const MAX_STRAYS: usize = 256;

impl LakeTable {
    /// Asks whether everything that was committed is in the table; without a call if nothing was committed since the last
    /// time. What was committed before counts from then on. Gives the version that is published then; none if there is no table.
    ///
    /// # Errors
    /// By [`kind`](Error::kind): `Unavailable`, nothing is known, ask again; `Stale`, resolve: what was committed since
    /// the last time may be gone, and uploaded files with it (told once, so that one caller has to ask for all); `Refused`,
    /// another table is in our place.
    pub async fn confirm(&self) -> Result<Option<u64>, Error> {
        let mut books = self.books.lock().await;
        self.parts.fence.check()?;
        self.confirmed(&mut books).await?;
        Ok(self.published())
    }

    /// The head, with nothing in doubt about it.
    pub(super) async fn confirmed(&self, books: &mut Books) -> Result<(), Error> {
        if books.is_confirmed() { Ok(()) } else { self.look_again(books).await }
    }

    /// The head, seen not too long ago.
    pub(super) async fn contact(&self, books: &mut Books) -> Result<(), Error> {
        let fresh = books.confirmed_at.is_some_and(|at| at.elapsed() < self.parts.head_ttl);
        // MUST BEFORE the next PUT: in less than the time that entries are kept, nobody has cleaned away what is at and
        // behind our head; later, the version behind it may be a hole.
        if fresh && !matches!(books.state, State::Unknown) { Ok(()) } else { self.look_again(books).await }
    }

    async fn look_again(&self, books: &mut Books) -> Result<(), Error> {
        if let (State::Known(head), Some(anchor)) = (&books.state, &books.anchor)
            && let Some(mark) = self.continued(anchor, head.version).await?
        {
            let version = head.version;
            books.anchor = Some(Anchor { version, mark: Some(mark) });
            books.confirmed_at = Some(Instant::now());
            books.landed.clear();
            self.publish(version);
            return Ok(());
        }
        books.state = State::Unknown;
        self.open(books).await
    }

    /// The mark of version `to`, if the log goes from the anchor to it without a gap.
    async fn continued(&self, anchor: &Anchor, to: u64) -> Result<Option<Mark>, Error> {
        let found = look(&self.parts, anchor.version, to).await?;
        // Others may be ahead; but what lies behind a gap may be a PUT of ours that landed late, and is to be removed.
        let end = found.keys().next_back().copied().unwrap_or(to).max(to);
        let whole = (anchor.version..=end).all(|version| found.contains_key(&version));
        Ok(found.get(&to).filter(|_| whole && anchor.is(found.get(&anchor.version))).cloned())
    }

    /// Reads the head from nothing, and finds out what became of the commits that were not confirmed.
    async fn open(&self, books: &mut Books) -> Result<(), Error> {
        let reading = lean::read(&self.parts, self.parts.fence.live()).await?;
        let Some(mut log) = reading.log else {
            self.sweep(books, &reading.beyond, None).await?;
            return self.nothing_there(books);
        };
        // MUST BEFORE the id is looked at: another's table, made where ours was, is unreadable behind a gap.
        self.sweep(books, &reading.beyond, Some(&log)).await?;
        if let Err(refused) = self.check_definition(&log.definition) {
            self.snapshots.forget();
            return Err(refused);
        }
        *self.stats_columns.lock() = retention::stats_columns(log.definition.properties());
        self.check_fence(books, &log)?;
        // MUST BEFORE anybody believes the log: an entry that a killed process left visible may still be lost with the
        // power, and the rows it covers would be dropped from our log as committed.
        self.settle().await?;

        let mut reason = self.what_changed(books, &log).await?;
        if reason.is_some()
            && let Some(stood) = self.undo(books, &log).await?
        {
            log.version += 1;
            let mark = look(&self.parts, log.version, log.version).await?.remove(&log.version);
            log.tip = Anchor { version: log.version, mark };
            log.txns.extend(stood);
            reason = Some("files of what was put are gone".to_owned());
        }
        books.anchor = Some(log.tip);
        books.confirmed_at = Some(Instant::now());
        books.landed.clear();
        books.open.retain(|(version, _)| *version > log.version);
        books.state = State::Known(Box::new(Head::new(log.version, log.definition, log.txns)));
        let Some(reason) = reason else {
            self.publish(log.version);
            return Ok(());
        };
        self.snapshots.forget();
        self.republish(Some(log.version));
        Err(self.changed(reason))
    }

    fn nothing_there(&self, books: &mut Books) -> Result<(), Error> {
        let was_there = books.anchor.is_some();
        *books = Books { given: books.given, confirmed_at: Some(Instant::now()), ..Books::default() };
        books.state = State::Missing;
        if !was_there {
            return Ok(());
        }
        self.snapshots.forget();
        self.republish(None);
        Err(self.changed("the table is gone".to_owned()))
    }

    /// Why this is not the log that was written to; none if it is, or if none was.
    async fn what_changed(&self, books: &Books, log: &Log) -> Result<Option<String>, Error> {
        if let Some(lost) = books.landed.iter().find(|l| !log.holds(l)) {
            return Ok(Some(format!("version {}, which was put, is no part of it", lost.version)));
        }
        let Some(anchor) = &books.anchor else { return Ok(None) };
        let there = match log.marks.get(&anchor.version) {
            Some(mark) => Some(mark.clone()),
            None => look(&self.parts, anchor.version, anchor.version).await?.remove(&anchor.version),
        };
        // Also where it was only cleaned away: to upload again costs little, and files that went with a log cost rows.
        let same = anchor.is(there.as_ref()) && anchor.version <= log.version;
        Ok((!same).then(|| format!("version {} is not what it was", anchor.version)))
    }

    pub(super) fn changed(&self, reason: String) -> Error {
        let table = self.url().to_string();
        tracing::warn!(table, reason, "the log of a table was replaced or cleaned under our feet");
        Error::Changed { table, reason }
    }

    /// Whether the table is ours and of a kind that we may append to, whatever its columns.
    pub(super) fn check_definition(&self, definition: &super::definition::Definition) -> Result<(), Error> {
        let location = self.url().as_str();
        definition.check_table(location, &self.identity)?;
        retention::check_log(location, definition.properties(), self.parts.head_ttl, self.parts.patience.whole)
    }

    /// Nobody but us may have written as us.
    fn check_fence(&self, books: &Books, log: &Log) -> Result<(), Error> {
        let Some(live) = self.parts.fence.live() else { return Ok(()) };
        let seen = books.anchor.as_ref().map(|anchor| anchor.version);
        let strange = |(version, id): &&(u64, _)| seen.is_none_or(|seen| *version > seen) && !books.is_ours(*id);
        if let Some((version, _)) = log.live.iter().find(strange) {
            return Err(self.parts.fence.trip(self.url().as_str(), Some(*version)));
        }
        if log.txns.get(live).is_some_and(|sequence| *sequence > books.given) {
            return Err(self.parts.fence.trip(self.url().as_str(), None));
        }
        Ok(())
    }

    /// Removes entries of ours that are no part of the log.
    ///
    /// MUST BEFORE their rows are committed again: once others have written up to such an entry, it counts.
    async fn sweep(&self, books: &Books, beyond: &[u64], log: Option<&Log>) -> Result<(), Error> {
        // Below its checkpoint entries do not count, and those that are ours were put into a hole.
        let in_hole = |l: &&Landed| log.is_some_and(|log| log.checkpoint > Some(l.version) && !log.holds(l));
        let holes = books.landed.iter().filter(in_hole).map(|l| l.version);
        let mut foreign = beyond.get(MAX_STRAYS).copied();
        let beyond = &beyond[..beyond.len().min(MAX_STRAYS)];
        for version in holes.chain(beyond.iter().copied()) {
            let Some(entry) = self.read_entry(version).await? else { continue };
            let ours =
                entry.txns.iter().any(|txn| self.parts.fence.is_of_node(&txn.app)) || books.is_ours(entry.commit);
            if !ours {
                foreign = foreign.or(beyond.contains(&version).then_some(version));
                continue;
            }
            self.remove_entry(version).await?;
        }
        let Some(version) = foreign else { return Ok(()) };
        let missing = log.map_or(0, |log| log.version + 1);
        let reason = format!("version {missing} is missing, though version {version} is there; another writer put it");
        Err(Error::Corrupt { location: self.url().to_string(), reason })
    }
}
