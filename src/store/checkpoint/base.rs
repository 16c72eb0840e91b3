//! A shard at its checkpoint: what the manifest's edits and the lane files' indexes say together.
//!
//! A snapshot lists all live generations, so that what lies in an older lane file and is not among them is dead. What a later lane
//! file has is live unless its generation's seal is at or below what the edits say is committed.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::edit::{Edit, Part};
use super::edits::EditLog;
use super::index_reader::{self, Unreadable};
use super::invariants::{self, Image, Violation, broken};
use super::lane_file::ExtentEntry;
use super::lanes::Lanes;
use crate::bucket::dirty::SealProgress;
use crate::bucket::extent::{Extent, LaneFile};
use crate::bucket::generation::{Generation, SealInfo, Sealed};
use crate::bucket::keys::KeyFact;
use crate::bucket::producer::ProducerWindow;
use crate::bucket::state::{MarkLimits, ShardState};
use crate::error::OpenError;
use crate::fs::FileSystem;
use crate::types::{Bucket, Incarnation, Lsn, NodeId, ProducerId, TableId};

/// A shard at its checkpoint.
#[derive(Debug)]
pub struct Base {
    /// Its tables.
    pub state: ShardState,
    /// What the edits add up to.
    pub image: Image,
    /// The lane files that are in use, by id.
    pub files: Vec<Arc<LaneFile>>,
}

pub(crate) type Key = (TableId, Bucket, Lsn);

/// What is gathered from the edits, before any lane file is looked at.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) image: Image,
    pub(crate) state: ShardState,
    progress: HashMap<(TableId, Incarnation), SealProgress>,
    seals: HashMap<Key, SealInfo>,
    producers: HashMap<(TableId, ProducerId), ProducerWindow>,
    keys: Vec<KeyFact>,
    /// Open generations of the snapshot.
    open: HashSet<Key>,
    /// Lane files with lower ids are older than the snapshot.
    snapshot_files: u64,
}

/// Reads a shard's manifest and the indexes of its lane files; none without a manifest.
///
/// # Errors
/// A damaged or contradictory manifest, a missing or damaged lane file, or an I/O error.
pub fn load(
    fs: &Arc<dyn FileSystem>,
    shard_dir: &Path,
    shard: u32,
    node: NodeId,
    lanes: &Lanes,
    limits: MarkLimits,
) -> Result<Option<(EditLog, Base)>, OpenError> {
    let mut gathered = Gathered::default();
    let log = EditLog::load(&**fs, shard_dir, shard, node, |edit| gathered.take(edit).map_err(|v| v.to_string()))?;
    let Some(log) = log else { return Ok(None) };
    gathered.prepare(limits);
    let references: Vec<_> = gathered.image.files.values().copied().collect();
    let open = |reference| lanes.open_file(shard, node, reference).map(Arc::new);
    let files = references.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut sealed: HashMap<Key, Arc<Generation>> = HashMap::new();
    let merged = index_reader::merge(&files, |run| {
        let (file, _) = run.first().expect("should be a run of at least one");
        gathered.attach(run, &mut sealed).map_err(|v| damaged(file, v.to_string()))
    });
    merged?;
    let (state, image) = gathered.finish(sealed);
    Ok(Some((log, Base { state, image, files })))
}

impl From<Unreadable> for OpenError {
    fn from(Unreadable { file, error }: Unreadable) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => damaged(&file, error.to_string()),
            _ => Self::io(format!("reading {}", file.path.display()))(error),
        }
    }
}

fn damaged(file: &LaneFile, what: String) -> OpenError {
    OpenError::Corrupt { path: file.path.clone(), offset: file.reference.index_at, what }
}

impl Gathered {
    pub(crate) fn take(&mut self, edit: Edit) -> Result<(), Violation> {
        self.image.follow(&edit)?;
        if edit.part == Part::SnapshotBegin {
            let image = std::mem::take(&mut self.image);
            *self = Self { image, ..Self::default() };
        }
        if edit.part != Part::Delta {
            self.snapshot_files = edit.next_lane_file;
        }
        edit.defines.into_iter().for_each(|define| self.state.restore_define(define));
        for fact in &edit.generations {
            let key = (fact.table, fact.bucket, fact.generation);
            match fact.seal {
                Some(seal) => drop(self.seals.insert(key, seal)),
                None => drop(self.open.insert(key)),
            }
        }
        for counter in &edit.counters {
            let progress = SealProgress { sealed: counter.sealed, committed: counter.committed };
            self.state.restore_progress(counter.table, counter.incarnation, progress);
            let known = self.progress.entry((counter.table, counter.incarnation)).or_default();
            known.sealed = known.sealed.max(progress.sealed);
            known.committed = known.committed.max(progress.committed);
        }
        for window in edit.producers {
            self.learn(window);
        }
        self.keys.extend(edit.keys);
        Ok(())
    }

    /// After the last edit, before the first extent.
    pub(crate) fn prepare(&mut self, limits: MarkLimits) {
        self.state.limit_marks(limits);
        for mut window in std::mem::take(&mut self.producers).into_values() {
            window.seen.sort_unstable();
            self.state.restore_producer(&window);
        }
        std::mem::take(&mut self.keys).into_iter().for_each(|fact| self.state.restore_key(fact));
        self.state.set_log_start(self.image.checkpoint);
    }

    /// After the last extent; `sealed` is what [`Self::attach`] filled.
    pub(crate) fn finish(self, sealed: HashMap<Key, Arc<Generation>>) -> (ShardState, Image) {
        let Self { mut state, image, seals, .. } = self;
        let sealed = sealed.into_iter().map(|(key, generation)| Sealed { generation, seal: seals[&key] });
        state.finish_restore(sealed);
        (state, image)
    }

    /// Windows are put together before any is taken over: with too many producers one could be forgotten between two of its parts.
    fn learn(&mut self, window: ProducerWindow) {
        match self.producers.entry((window.table, window.producer)) {
            Entry::Vacant(entry) => drop(entry.insert(window)),
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                if window.epoch > known.epoch {
                    *known = window;
                } else if window.epoch == known.epoch {
                    known.floor = known.floor.max(window.floor);
                    known.seen.retain(|(sequence, _)| *sequence >= known.floor);
                    known.seen.extend(window.seen);
                }
            }
        }
    }

    /// Gives extents to their generation, if that is live. Those of lane files that are older than the snapshot count only if it
    /// lists the generation.
    pub(crate) fn attach(
        &mut self,
        run: &[(Arc<LaneFile>, ExtentEntry)],
        sealed: &mut HashMap<Key, Arc<Generation>>,
    ) -> Result<(), Violation> {
        let Some((_, first)) = run.first() else { return Ok(()) };
        for (_, entry) in run {
            invariants::check_extents(std::slice::from_ref(entry), self.image.checkpoint)?;
        }
        let key = (first.table, first.bucket, first.generation);
        let seal = self.seals.get(&key);
        let is_dead = seal.is_some_and(|seal| {
            let progress = self.progress.get(&(first.table, seal.incarnation));
            progress.is_some_and(|p| p.committed >= seal.sequence)
        });
        let is_listed = seal.is_some() || self.open.contains(&key);
        let counts = |file: &LaneFile| !is_dead && (is_listed || file.reference.id >= self.snapshot_files);
        let live = || run.iter().filter(|(file, _)| counts(file));
        match live().count() {
            0 => return Ok(()),
            1 => {}
            _ => invariants::check_overlap(live().map(|(file, entry)| (file.reference.id, *entry)))?,
        }
        let generation = if seal.is_some() {
            let made = || Arc::new(Generation::new(first.table, first.bucket, first.generation));
            Arc::clone(sealed.entry(key).or_insert_with(made))
        } else {
            let other = || broken(6, format!("table {}, generation {}", first.table, first.generation));
            let open = self.state.restore_open(first.table, first.bucket, first.generation);
            open.ok_or_else(other)?
        };
        generation.restore(live().map(|(file, entry)| (Extent::new(file, entry), entry)));
        Ok(())
    }
}
