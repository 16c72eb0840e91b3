//! The end of uploaded files that no commit refers to: those of failed attempts, of attempts that another one overtook, and of
//! processes that were killed between upload and commit.
//!
//! - Every file is in the [journal](super::journal) before any of it is in the store; names carry a random id. Where the journal takes
//!   nothing (it may be on the disk that is full, which uploads empty), uploads go on, and only a crash can then leave files behind.
//! - Once the commit that refers to it is in the table and its rows are let go of, its entry ends. That is all there is to do for most.
//! - An entry that stays is looked at when it is [`age`](Sweep::new) old (a request that was given up may still arrive) and no job
//!   holds it: the table itself says whether its sequence is covered, and whether any version refers to the file. Only what is
//!   covered and not referred to is deleted; the rest waits. Nothing is ever deleted because of what this process remembers.
//! - After a crash the journal's entries are looked at in the same way, table by table, in the background.
//!
//! A journal and not file names to be listed: a LIST of a directory costs by the files of a whole date, and the steady state would
//! have to be told from the rest by a convention that other writers need not respect.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use deltalake::kernel::Add;
use parking_lot::Mutex;
use penstock_store::{Incarnation, NodeId, Sealed, TableId};
use tokio::sync::Notify;

use super::journal::{Journal, JournalError, Pen, Upload};
use crate::lake::{self, Announce, Fate, Lake, Suspect};
use crate::schema::TableName;

#[cfg(test)]
mod tests;

/// Between two rounds at least: the ends of many commits are one write of the journal.
const SETTLE: Duration = Duration::from_millis(200);
/// Between two rounds at most.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The wait of a table whose entries could not be decided: as long as files have to be old, within these; doubles.
const MIN_FIRST_WAIT: Duration = Duration::from_secs(1);
const FIRST_WAIT: Duration = Duration::from_secs(10);
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// See the module.
#[derive(Debug)]
pub struct Sweep {
    journal: Arc<dyn Journal>,
    pen: Pen,
    age: Duration,
    state: Mutex<State>,
    nudge: Notify,
    removed: AtomicU64,
    /// The journal took no upload lately.
    broken: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<TableId, Vec<Open>>,
    /// In commits, or decided: to be forgotten by the journal.
    ended: Vec<Upload>,
    /// Tables that are not looked at before a time.
    waits: HashMap<TableId, Wait>,
}

/// A file that is in the journal.
#[derive(Debug)]
struct Open {
    upload: Upload,
    /// Alive while a job uploads it.
    job: Weak<()>,
    /// A commit of ours refers to it.
    landed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    until: Instant,
    length: Duration,
}

/// What the sweep has to show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Files that are uploaded, or being uploaded, and not known to be in a commit.
    pub open: u64,
    /// Files removed since the start.
    pub removed: u64,
}

impl Sweep {
    /// A file is not removed before it is `age` old.
    pub fn new(journal: Arc<dyn Journal>, age: Duration) -> Arc<Self> {
        let (pen, state, nudge, removed, broken) = Default::default();
        Arc::new(Self { journal, pen, age, state, nudge, removed, broken })
    }

    /// An attempt to upload one generation's rows for a commit of `writer`; it holds its files for as long as it lives.
    pub fn attempt(self: &Arc<Self>, table: TableId, name: &TableName, writer: NodeId, rows: &Sealed) -> Arc<Attempt> {
        let (incarnation, sequence) = (rows.seal.incarnation, rows.seal.sequence);
        let (sweep, name, job) = (Arc::clone(self), name.clone(), Arc::new(()));
        Arc::new(Attempt { sweep, table, name, writer, incarnation, sequence, job })
    }

    /// A commit that refers to these files is in the table's log.
    pub fn landed(&self, table: TableId, adds: &[Add]) {
        let mut state = self.state.lock();
        let Some(open) = state.open.get_mut(&table) else { return };
        let names: HashSet<&str> = adds.iter().map(|add| file_name(&add.path)).collect();
        for open in open.iter_mut().filter(|open| names.contains(file_name(&open.upload.path))) {
            open.landed = true;
        }
    }

    /// What landed may not be in the table after all: its log is not what we believed.
    pub fn doubted(&self, table: TableId) {
        let mut state = self.state.lock();
        state.open.get_mut(&table).into_iter().flatten().for_each(|open| open.landed = false);
    }

    /// The table holds, for good, everything up to a sequence: the entries of landed files end, others can be decided.
    pub fn covered(&self, table: TableId, incarnation: Incarnation, sequence: u64) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(open) = state.open.get_mut(&table) else { return };
        let covered = |open: &Open| open.upload.incarnation == incarnation && open.upload.sequence <= sequence;
        state.ended.extend(open.extract_if(.., |open| open.landed && covered(open)).map(|open| open.upload));
        if open.iter().any(covered) {
            state.waits.remove(&table);
        }
        if open.is_empty() {
            state.open.remove(&table);
        }
        self.nudge.notify_one();
    }

    /// What there is to show.
    pub fn figures(&self) -> Figures {
        let open = self.state.lock().open.values().map(Vec::len).sum::<usize>();
        Figures { open: open as u64, removed: self.removed.load(Ordering::Relaxed) }
    }

    /// Takes up what earlier processes have left, then sweeps for as long as it is polled.
    pub async fn run(self: Arc<Self>, lake: Arc<Lake>) {
        while let Err(error) = self.take_up().await {
            tracing::warn!(error = error.as_ref(), "the journal of uploads cannot be read");
            tokio::time::sleep(FIRST_WAIT).await;
        }
        loop {
            self.round(&lake).await;
            tokio::select! {
                () = tokio::time::sleep(self.age.clamp(SETTLE, MAX_PAUSE)) => {}
                () = self.nudge.notified() => tokio::time::sleep(SETTLE).await,
            }
        }
    }

    /// Reads the journal. Uploads of this process are known already.
    async fn take_up(&self) -> Result<(), JournalError> {
        let left = self.journal.open().await?;
        let mut state = self.state.lock();
        for upload in left {
            let open = state.open.entry(upload.table).or_default();
            if !open.iter().any(|known| known.upload.path == upload.path) {
                open.push(Open { upload, job: Weak::new(), landed: false });
            }
        }
        Ok(())
    }

    /// Ends what has ended, and looks at every table that is due.
    async fn round(&self, lake: &Lake) {
        self.tidy().await;
        let wall = wall_clock();
        let due = self.state.lock().due(wall, self.age, Instant::now());
        for (table, uploads) in due {
            if let Err(error) = self.look_at(lake, table, uploads).await {
                tracing::debug!(%table, %error, "uploads that may be orphaned cannot be decided now");
            }
        }
        self.tidy().await;
    }

    /// Lets the journal forget what has ended. What it does not forget now is decided again by the next start.
    pub async fn tidy(&self) {
        let ended = std::mem::take(&mut self.state.lock().ended);
        if ended.is_empty() {
            return;
        }
        if let Err(error) = self.journal.end(&ended).await {
            tracing::warn!(error = error.as_ref(), "the journal of uploads does not forget");
            self.state.lock().ended.extend(ended);
        }
    }

    async fn look_at(&self, lake: &Lake, table: TableId, uploads: Vec<Upload>) -> Result<(), lake::Error> {
        let Some(first) = uploads.first() else { return Ok(()) };
        // MUST BEFORE anything else: whatever goes wrong below, the table is not asked again at once.
        self.state.lock().put_off(table, self.age, Instant::now());
        let name = first.name.clone();
        let handle = lake.table(table, &name);
        let suspects: Vec<Suspect<'_>> = uploads.iter().map(suspect).collect();
        let fates = handle.fates(&suspects).await?;
        // One file that cannot be removed now does not keep the others.
        let (mut decided, mut failed) = (0_usize, None);
        for (upload, fate) in uploads.iter().zip(fates) {
            match fate {
                Fate::Undecided => continue,
                Fate::Referenced => {}
                Fate::Orphan => {
                    if let Err(error) = handle.remove_orphan(&upload.path).await {
                        failed = Some(error);
                        continue;
                    }
                    self.removed.fetch_add(1, Ordering::Relaxed);
                    tracing::info!(table = %name, path = upload.path, "removed a file that no commit refers to");
                }
            }
            decided += 1;
            self.state.lock().decided(upload);
        }
        if decided > 0 {
            // What is getting on need not wait for longer each time.
            self.state.lock().begin_anew(table, self.age, Instant::now());
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Directories may be written in more than one way; the name alone is unique.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn suspect(upload: &Upload) -> Suspect<'_> {
    let Upload { writer, incarnation, sequence, ref path, .. } = *upload;
    Suspect { writer, incarnation, sequence, path }
}

fn wall_clock() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}

impl State {
    /// What is to be looked at now, by table.
    fn due(&self, wall: i64, age: Duration, now: Instant) -> Vec<(TableId, Vec<Upload>)> {
        let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
        let old = |open: &&Open| wall.saturating_sub(open.upload.began) >= age;
        // MUST: what a job still uploads may be removed, and then be there again, with nobody left who knows of it.
        let free = |open: &&Open| open.job.strong_count() == 0;
        let waits = |table: &TableId| self.waits.get(table).is_some_and(|wait| now < wait.until);
        let tables = self.open.iter().filter(|(table, _)| !waits(table));
        let due = tables.map(|(table, open)| {
            let uploads = open.iter().filter(old).filter(free).map(|open| open.upload.clone());
            (*table, uploads.collect::<Vec<_>>())
        });
        due.filter(|(_, uploads)| !uploads.is_empty()).collect()
    }

    fn put_off(&mut self, table: TableId, age: Duration, now: Instant) {
        let first = age.clamp(MIN_FIRST_WAIT, FIRST_WAIT);
        let length = self.waits.get(&table).map_or(first, |wait| (wait.length * 2).min(MAX_WAIT));
        self.waits.insert(table, Wait { until: now + length, length });
    }

    /// The wait of a table of which something was decided: the first one again, if anything is left.
    fn begin_anew(&mut self, table: TableId, age: Duration, now: Instant) {
        if self.waits.remove(&table).is_some() {
            self.put_off(table, age, now);
        }
    }

    fn decided(&mut self, upload: &Upload) {
        let Some(open) = self.open.get_mut(&upload.table) else { return };
        open.retain(|known| known.upload.path != upload.path);
        if open.is_empty() {
            self.open.remove(&upload.table);
            self.waits.remove(&upload.table);
        }
        self.ended.push(upload.clone());
    }
}

/// One attempt to upload a generation's rows. Its files are not looked at while it lives.
#[derive(Debug)]
pub struct Attempt {
    sweep: Arc<Sweep>,
    table: TableId,
    name: TableName,
    writer: NodeId,
    incarnation: Incarnation,
    sequence: u64,
    job: Arc<()>,
}

#[async_trait]
impl Announce for Attempt {
    async fn announce(&self, path: &str) {
        let upload = Upload {
            table: self.table,
            name: self.name.clone(),
            writer: self.writer,
            incarnation: self.incarnation,
            sequence: self.sequence,
            path: path.to_owned(),
            began: wall_clock(),
        };
        let open = Open { upload: upload.clone(), job: Arc::downgrade(&self.job), landed: false };
        // MUST BEFORE it is in the journal: dropped in between, nobody here would end the entry.
        self.sweep.state.lock().open.entry(self.table).or_default().push(open);
        let begun = self.sweep.pen.begin(self.sweep.journal.as_ref(), &upload).await;
        // The upload goes on all the same: the journal may be on the disk that is full, and it is emptied by uploads. What is lost is
        // the knowledge of one file, and only if this process ends before its commit.
        let broken = begun.is_err();
        if self.sweep.broken.swap(broken, Ordering::Relaxed) != broken {
            match begun {
                Err(error) => tracing::warn!(
                    error = error.as_ref(),
                    "uploads cannot be written down: a crash now may leave files in the lake that no commit refers to"
                ),
                Ok(()) => tracing::info!("uploads are written down again"),
            }
        }
    }
}
