//! What the scheduler shows to others, and what they tell it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Instant, SystemTime};

use dashmap::DashMap;
use parking_lot::Mutex;
use penstock_store::TableId;
use tokio::sync::{Notify, watch};

use super::Decision;
use super::cadence::Load;
use super::figures::Tally;
use super::permits::Memory;

/// How far one table is, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableProgress {
    /// Rows that reached the table since the start.
    pub rows_flushed: u64,
    /// Delta version of the last commit.
    pub version: Option<u64>,
    /// When it was, by the wall clock.
    pub committed_at: Option<SystemTime>,
    /// Sealed generations that wait to be uploaded.
    pub waiting: u64,
    /// Generations that are being encoded or uploaded.
    pub uploading: u64,
    /// Generations whose files wait for their commit.
    pub ready: u64,
    /// Generations whose commit waits to be confirmed.
    pub landed: u64,
    /// A commit of the table is being made, or the table is being asked what it holds.
    pub committing: bool,
    /// The table waits after a failure, until then.
    pub paused_until: Option<Instant>,
    /// Commits since the start.
    pub commits: u64,
    /// Failures since the start, of any step.
    pub failures: u64,
    /// Why the last attempt failed; none once one succeeds.
    pub last_error: Option<String>,
    /// Generations that went to the dead letters since the start.
    pub dead_generations: u64,
    /// Their rows.
    pub dead_rows: u64,
}

/// Sealed generations by what they wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    pub to_upload: u64,
    /// Being encoded or uploaded.
    pub uploading: u64,
    pub to_commit: u64,
}

impl Waiting {
    /// Of one table.
    pub fn of(table: &TableProgress) -> Self {
        Self { to_upload: table.waiting, uploading: table.uploading, to_commit: table.ready }
    }
}

impl std::ops::Add for Waiting {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            to_upload: self.to_upload + other.to_upload,
            uploading: self.uploading + other.uploading,
            to_commit: self.to_commit + other.to_commit,
        }
    }
}

/// Shared by the scheduler and its handle.
#[derive(Debug)]
pub struct Shared {
    pub tables: DashMap<TableId, TableProgress>,
    /// What all tables together cost, as last measured.
    pub load: Mutex<Load>,
    pub tally: Arc<Tally>,
    /// Commits that were told to whoever keeps the history.
    pub told: AtomicU64,
    /// Who waits for rows to leave the store, by table.
    departures: DashMap<TableId, watch::Sender<()>>,
    /// Tables that are to be flushed now, also where they wait after a failure.
    demanded: Mutex<HashSet<TableId>>,
    /// What is to become of rows that are in doubt, until the table was asked.
    decisions: Mutex<HashMap<TableId, Decision>>,
    /// There may be something new to see in the store.
    pub nudge: Notify,
    /// There may be room for another upload.
    pub room: Arc<Notify>,
    /// What is being encoded and uploaded has its room here.
    pub memory: Arc<Memory>,
    /// A commit was recorded: its generations have left the store.
    pub recorded: Notify,
    pub stop: watch::Sender<bool>,
}

impl Shared {
    pub fn new() -> Self {
        let (tables, load, told, departures, demanded, decisions, nudge, recorded) = Default::default();
        let (room, stop) = (Arc::new(Notify::new()), watch::Sender::new(false));
        let (memory, tally) = (Memory::new(Arc::clone(&room)), Arc::default());
        Self { tables, load, told, departures, tally, demanded, decisions, nudge, room, memory, recorded, stop }
    }

    /// Changes each time that rows of the table have left the store.
    pub fn departures(&self, table: TableId) -> watch::Receiver<()> {
        self.departures.entry(table).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Rows of the table have left the store.
    pub fn departed(&self, table: TableId) {
        if let Some(waiting) = self.departures.get(&table) {
            waiting.send_replace(());
        }
        // Nobody waits any more: a table is flushed for longer than anybody asks about it.
        self.departures.remove_if(&table, |_, waiting| waiting.receiver_count() == 0);
    }

    /// Asks for these tables to be flushed now.
    pub fn demand(&self, tables: impl Iterator<Item = TableId>) {
        self.demanded.lock().extend(tables);
        self.nudge.notify_one();
    }

    /// Says what is to become of the rows of these tables that are in doubt.
    pub fn decide(&self, tables: impl Iterator<Item = TableId>, decision: Decision) {
        self.decisions.lock().extend(tables.map(|table| (table, decision)));
    }

    /// What was decided about a table that has not been asked since.
    pub fn decision(&self, table: TableId) -> Option<Decision> {
        self.decisions.lock().get(&table).copied()
    }

    /// The table was asked, and what was decided is done.
    pub fn decided(&self, table: TableId) {
        self.decisions.lock().remove(&table);
    }

    /// The tables that were asked for since the last call.
    pub fn take_demanded(&self) -> HashSet<TableId> {
        std::mem::take(&mut *self.demanded.lock())
    }

    /// Ends the scheduler and its tasks.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}
