//! Another number of shards or lanes for a node that does not run, without losing a row.
//!
//! ```text
//!  read all, as a start does -> beside it: lanes, lane files, wal-<n+1> -> read that -> MANIFEST -> remove the old layout
//!                                                                                    the switch
//! ```
//!
//! The new layout is built beside the old one, and the manifest, which is replaced whole, says which one counts: cut short before,
//! the old one is as it was; cut short behind, the new one is whole. What then is left of the other one is removed by the next start.
//!
//! A table's rows stay together and in order, its generations keep their names (the LSNs of their first records on the old shard),
//! their seals and their sequences; its producers' windows and its keys come along, so that a repeat still gets its first receipt. For
//! this the new logs begin at one LSN that no old log has reached: no name is used again, no watermark goes back, and everything
//! lies below the new shards' first checkpoints, in lane files. The logs begin empty.
//!
//! The new logs lie in the data directory itself. A file system that is mounted at `wal` is not used any more.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bucket::state::ShardState;
use crate::checkpoint::edits::EditLog;
use crate::checkpoint::lanes::{self as lane, GUARD_NAME, Lanes};
use crate::checkpoint::moving::Identity;
use crate::error::OpenError;
use crate::first_start;
use crate::fs::FileSystem;
use crate::leftovers;
use crate::manifest::{LogPosition, MAX_SHARDS, Manifest, VERSION_1};
use crate::options::{self, Options};
use crate::progress::Progress;
use crate::recovery::{self, Fresh, Source};
use crate::store;
use crate::types::Lsn;
use crate::wal::{align_group, segment};

mod facts;
mod lanes;
mod rows;

use facts::{Contents, Share};
use lanes::Added;

/// What a change of the layout is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Read the present layout, as a start does.
    Reading,
    /// Write a new shard.
    Writing {
        /// Its number, from 0.
        shard: u32,
        /// How many there are to write.
        shards: u32,
    },
    /// Read the new layout, as a start will.
    Checking,
    /// Replace the manifest: the present layout counts before, the new one afterwards.
    Switching,
    /// Remove the old layout.
    Removing,
}

/// What a change of the layout did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReshapeReport {
    /// Shards before.
    pub shards_before: u32,
    /// Shards now.
    pub shards: u32,
    /// Lanes before.
    pub lanes_before: u32,
    /// Lanes now.
    pub lanes: u32,
    /// Tables that are defined.
    pub tables: u64,
    /// Generations whose rows are not in Delta.
    pub generations: u64,
    /// Their rows, all of which were moved.
    pub rows: u64,
    /// Their payload bytes.
    pub bytes: u64,
}

/// Why the layout was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ReshapeError {
    /// What was asked for cannot be done. Nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// The present layout cannot be read, or the new one cannot be written. The present one counts, and is as it was.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The manifest was not replaced for certain: either layout may count, and is whole. The next start tells which one does, and
    /// removes the other.
    #[error("it is not known whether the layout was changed, start the node to find out: {0}")]
    InDoubt(#[source] io::Error),
}

/// Changes the number of shards to `shards`, and the lanes to the directories `lanes` (none: the default one), of a node that does not
/// run. `present` says how it is opened until then, `tell` is told what is done. Blocks; needs room for all unflushed rows once more,
/// and memory as a start does.
///
/// The present lanes stay the first ones, in their order: lanes are added at the end, or removed from it.
///
/// # Errors
/// [`ReshapeError`]; but for [`ReshapeError::InDoubt`] the node is opened as before.
pub fn reshape(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    present: &Options,
    shards: u32,
    lanes: &[PathBuf],
    tell: &mut dyn FnMut(Step),
) -> Result<ReshapeReport, ReshapeError> {
    if shards == 0 || shards > MAX_SHARDS {
        return Err(ReshapeError::Refused(format!("{shards} shards; choose 1 to {MAX_SHARDS}")));
    }
    // MUST BEFORE the lock, which makes a file: a wrong path is not to be written to.
    load_manifest(&**fs, dir)?;
    let _lock = store::lock(&**fs, dir)?;
    let mut before = load_manifest(&**fs, dir)?;
    let (old_dirs, new_dirs) = (options::lane_dirs(dir, &present.lanes), options::lane_dirs(dir, lanes));
    before.check_counts(present.shards, old_dirs.len())?;
    if before.shards() == shards && before.lanes as usize == new_dirs.len() {
        return Err(ReshapeError::Refused("the data directory has as many shards and lanes already".to_owned()));
    }
    let added = lanes::plan(&**fs, &new_dirs, &before)?;
    let old_lanes = Lanes::open(Arc::clone(fs), old_dirs, before.node, present.barrier)?;
    let layout = before.layout.checked_add(1);
    let layout = layout.ok_or_else(|| ReshapeError::Refused("the layout was changed too often".to_owned()))?;
    before.incarnation = recovery::new_incarnation();
    let after = Manifest {
        starts: before.starts + 1,
        lanes: u32::try_from(new_dirs.len()).expect("should be at most MAX_LANES"),
        layout,
        logs: vec![LogPosition::default(); shards as usize],
        ..before.clone()
    };
    let mut change = Change { fs, dir, present, before, after, old_lanes, new_dirs, made: Made::default() };
    let (contents, new_lanes, first_id) = change.build(&added, tell).inspect_err(|_| change.undo())?;
    tell(Step::Switching);
    let Change { before, after, old_lanes, .. } = change;
    after.store(&**fs, dir).map_err(ReshapeError::InDoubt)?;
    tell(Step::Removing);
    remove_old(fs, dir, &before, &after, &old_lanes, &new_lanes, first_id, present);
    Ok(ReshapeReport {
        shards_before: before.shards(),
        shards,
        lanes_before: before.lanes,
        lanes: after.lanes,
        tables: contents.tables,
        generations: contents.generations,
        rows: contents.rows,
        bytes: contents.bytes,
    })
}

fn load_manifest(fs: &dyn FileSystem, dir: &Path) -> Result<Manifest, ReshapeError> {
    let Some(manifest) = Manifest::load(fs, dir)? else {
        return Err(ReshapeError::Refused(format!("{} is not a data directory", dir.display())));
    };
    if manifest.version == VERSION_1 {
        let what = format!("{} was written by an earlier build; start the node once with this one", dir.display());
        return Err(ReshapeError::Refused(what));
    }
    Ok(manifest)
}

/// One change of the layout, up to the switch.
struct Change<'a> {
    fs: &'a Arc<dyn FileSystem>,
    dir: &'a Path,
    present: &'a Options,
    before: Manifest,
    after: Manifest,
    old_lanes: Lanes,
    new_dirs: Vec<PathBuf>,
    made: Made,
}

/// What is removed again if it comes to nothing.
#[derive(Debug, Default)]
struct Made {
    /// Lane files and guards.
    files: Vec<PathBuf>,
    /// Whether the new layout's logs are begun.
    logs: bool,
}

impl Change<'_> {
    /// Builds the new layout beside the present one, durably, and checks it. Answers what is in it, its lanes, and the first id of its
    /// lane files: all of the old ones have lower ids.
    fn build(&mut self, added: &[Added], tell: &mut dyn FnMut(Step)) -> Result<(Contents, Lanes, u64), ReshapeError> {
        let Self { fs, dir, present, .. } = *self;
        tell(Step::Reading);
        let (states, base) = self.read()?;
        let shards = self.after.shards();
        let shares = facts::sort(&states, shards, base, present.marks())?;
        // Generations are held by their shares; what else the states have is no longer needed.
        drop(states);
        let making = |what: &Path| OpenError::io(format!("making {}", what.display()));
        // MUST BEFORE anything is written: the manifest that was read may be in the page cache only. If an older one came back, what is
        // overwritten here could be what that one needs.
        fs.sync_dir(dir).map_err(making(dir))?;
        self.make_lanes(added)?;
        // Also finds one directory that was given under two names.
        let new_lanes = Lanes::open(Arc::clone(fs), self.new_dirs.clone(), self.after.node, present.barrier)?;
        let first_id = self.first_id(&new_lanes).map_err(OpenError::io("listing the lanes"))?;
        let wal_dir = segment::wal_dir(dir, self.after.layout);
        self.made.logs = true;
        // What an attempt left that was cut short.
        fs.remove_dir_all(&wal_dir).and_then(|()| fs.sync_dir(dir)).map_err(making(&wal_dir))?;
        self.after.logs = vec![LogPosition { durable: base, segment: base }; shards as usize];
        let mut expected = Vec::with_capacity(shares.len());
        for (shard, share) in (0..).zip(shares) {
            tell(Step::Writing { shard, shards });
            expected.push(share.contents);
            self.make_shard(shard, share, &new_lanes, first_id, base)?;
        }
        fs.sync_dir(&wal_dir).map_err(making(&wal_dir))?;
        // MUST BEFORE the switch, as all of the above: with it, a log that is not there is lost rows.
        fs.sync_dir(dir).map_err(making(dir))?;
        tell(Step::Checking);
        self.check(&new_lanes, &expected)?;
        let mut all = Contents::default();
        expected.into_iter().for_each(|of_shard| all.add(of_shard));
        Ok((all, new_lanes, first_id))
    }

    /// The present shards' states, with what was in doubt decided as a start would; and an LSN that none of their logs has reached.
    fn read(&mut self) -> Result<(Vec<ShardState>, Lsn), OpenError> {
        let (read, _) = recovery::read_all(self.source(&self.before, &self.old_lanes, &Progress::new()))?;
        // They are of no use to anybody, whatever comes of this.
        self.made.files.extend(read.iter().flat_map(|r| &r.spilled).map(|f| f.path.clone()));
        let mut states = Vec::with_capacity(read.len());
        let mut end = Lsn(0);
        for (shard, read) in (0..).zip(read) {
            let shard_dir = segment::shard_dir(self.dir, self.before.layout, shard);
            let (read, _, head) = recovery::settle(read, &shard_dir, 0)?;
            end = end.max(head);
            states.push(read.state);
        }
        Ok((states, Lsn(align_group(end.0))))
    }

    fn source<'s>(&'s self, manifest: &'s Manifest, lanes: &'s Lanes, progress: &'s Progress) -> Source<'s> {
        let (marks, replay_bytes) = (self.present.marks(), self.present.replay_bytes);
        Source { fs: self.fs, dir: self.dir, manifest, lanes, marks, replay_bytes, progress }
    }

    fn make_lanes(&mut self, added: &[Added]) -> Result<(), OpenError> {
        let fs = &**self.fs;
        for Added { number, dir, is_new } in added {
            let making = || OpenError::io(format!("making the lane {}", dir.display()));
            fs.create_dir_all(dir).map_err(making())?;
            if *is_new {
                self.made.files.push(dir.join(GUARD_NAME));
            }
            lane::write_guard(fs, dir, self.after.node, *number).map_err(making())?;
            first_start::sync_ancestors(fs, dir).map_err(making())?;
        }
        Ok(())
    }

    /// An id that no lane file of any shard has, in the old lanes or the new ones.
    fn first_id(&self, new_lanes: &Lanes) -> io::Result<u64> {
        let files = self.old_lanes.list_all()?.into_iter().chain(new_lanes.list_all()?);
        Ok(files.map(|(_, _, id)| id + 1).fold(1, u64::max))
    }

    fn make_shard(
        &mut self,
        shard: u32,
        share: Share,
        lanes: &Lanes,
        first_id: u64,
        base: Lsn,
    ) -> Result<(), OpenError> {
        let Manifest { node, incarnation, layout, .. } = self.after;
        // As many as a node that runs may have without merging them at once.
        let most_files = (self.present.lane_files / 2).max(1) as u64;
        let target = rows::Target {
            lanes,
            identity: Identity { shard, node, incarnation },
            first_id,
            file_bytes: self.present.checkpoint_bytes.max(share.contents.bytes / most_files),
        };
        let files = rows::write(&target, &share.generations, &mut self.made.files)?;
        let next_id = first_id + files.len() as u64;
        let shard_dir = segment::shard_dir(self.dir, layout, shard);
        let making = || OpenError::io(format!("making the log in {}", shard_dir.display()));
        self.fs.create_dir_all(&shard_dir).map_err(making())?;
        let edits = share.into_edits(base, next_id, files);
        let made = EditLog::create(&**self.fs, &shard_dir, shard, node, 1, &edits);
        made.map_err(|e| making()(io::Error::other(e)))?;
        let fresh = Fresh { shard, base, salt: rand::random(), kept_from: base };
        recovery::fresh_segment(&**self.fs, &shard_dir, &self.after, fresh, &[]).map_err(making())?;
        Ok(())
    }

    /// Reads the new layout as the next start will. MUST BEFORE the switch: with the old one goes the chance to do better.
    fn check(&self, lanes: &Lanes, expected: &[Contents]) -> Result<(), OpenError> {
        let (read, _) = recovery::read_all(self.source(&self.after, lanes, &Progress::new()))?;
        for (shard, (read, expected)) in (0..).zip(read.iter().zip(expected)) {
            let found = Contents::of(&read.state);
            if found != *expected {
                let what = format!("written and read again, this is {found:?} where {expected:?} was meant");
                return Err(OpenError::Layout { path: segment::shard_dir(self.dir, self.after.layout, shard), what });
            }
        }
        Ok(())
    }

    /// Removes what was made. MUST NOT once the manifest may be the new one.
    fn undo(&self) {
        let mut failed = None;
        for path in &self.made.files {
            match self.fs.remove(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => failed = Some(error),
                _ => {}
            }
        }
        if self.made.logs
            && let Err(error) = self.fs.remove_dir_all(&segment::wal_dir(self.dir, self.after.layout))
        {
            failed = Some(error);
        }
        if let Some(error) = failed {
            tracing::warn!(%error, "what was made of the new layout was not removed; the next start does it");
        }
    }
}

/// Removes the old layout, best effort: the next start removes what stays, but for that of lanes that were removed.
///
/// MUST AFTER the switch is durable.
#[expect(clippy::too_many_arguments, reason = "both layouts, and what tells them apart")]
fn remove_old(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    before: &Manifest,
    after: &Manifest,
    old_lanes: &Lanes,
    new_lanes: &Lanes,
    first_id: u64,
    present: &Options,
) {
    // By their ids, which tell old from new also where one directory has two names.
    let is_old = |(_, _, id): (u32, u32, u64)| id < first_id;
    let removed = leftovers::remove_logs(&**fs, dir, after.layout)
        .and(leftovers::remove_lane_files(old_lanes, after.node, is_old))
        .and(leftovers::remove_lane_files(new_lanes, after.node, is_old))
        .and_then(|()| {
            let dirs = options::lane_dirs(dir, &present.lanes);
            // Without its guard the directory is nobody's, and may become somebody's lane.
            (after.lanes..before.lanes).try_for_each(|lane| fs.remove(&dirs[lane as usize].join(GUARD_NAME)))
        });
    if let Err(error) = removed {
        tracing::warn!(%error, "not all of the old layout was removed");
    }
}
