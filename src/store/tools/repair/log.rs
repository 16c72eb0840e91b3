//! A damaged log of one shard: what is intact of it, in lane files; a manifest that says so; and an empty log behind the old one's end.
//!
//! ```text
//!  1 rows -> lane files, barrier   2 empty segment at the end   3 new manifest, its name   4 old segments go
//! ```
//!
//! Up to 3 the old manifest counts, and another repair does the same again: the empty segment begins where the log ended. From 3 on
//! the new one counts, and the old segments lie below the checkpoint, where nobody looks but for their headers.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::bucket::extent::LaneFile;
use crate::bucket::state::MarkLimits;
use crate::checkpoint::base;
use crate::checkpoint::edits::EditLog;
use crate::checkpoint::invariants::Image;
use crate::checkpoint::lanes::Lanes;
use crate::checkpoint::moving::{Identity, Load, MoveError};
use crate::checkpoint::pace::Pace;
use crate::checkpoint::snapshot;
use crate::checkpoint::trigger::Trigger;
use crate::error::OpenError;
use crate::fs::FileSystem;
use crate::manifest::Manifest;
use crate::recovery::{self, Fresh};
use crate::shard::{Rhythm, Shared};
use crate::spill::Spill;
use crate::tools::salvage::{Salvaged, salvage};
use crate::tools::site::Site;
use crate::tools::tolerant;
use crate::tools::walk;
use crate::types::Lsn;
use crate::wal::segment;

/// Payload bytes that are in memory at once.
const MEMORY: u64 = 256 << 20;

/// Begins the log anew.
pub fn repair(site: &Site, lanes: &Lanes, manifest: &Manifest, shard: u32) -> Result<(), OpenError> {
    let fs = &*site.fs;
    let shard_dir = segment::shard_dir(&site.dir, manifest.layout, shard);
    let writing = || OpenError::io(format!("writing the log of shard {shard} anew"));
    let limits: MarkLimits = tolerant::limits();
    let loaded = base::load(&site.fs, &shard_dir, shard, manifest.node, lanes, limits)?;
    let Some((mut edits, base)) = loaded else {
        return Err(OpenError::Layout { path: shard_dir, what: "the shard's manifest is missing".to_owned() });
    };
    edits.make_sure(fs).map_err(writing())?;
    let known = manifest.logs[shard as usize].durable;
    let (parts, _) = walk::list(&site.fs, manifest, &shard_dir, shard)?;
    let old = base.image.clone();
    // 1
    let identity = Identity { shard, node: manifest.node, incarnation: manifest.incarnation };
    let first_id = lanes.next_id(shard, old.next_lane_file).map_err(writing())?;
    let mut spill = Spill::new(lanes, identity, first_id, MEMORY);
    let mut before = |lsn, state: &mut _| spill.before(lsn, state).map_err(writing());
    let salvaged = salvage(base.state, &parts, old.checkpoint, known, true, &mut before)?;
    if let Some(refusal) = salvaged.refusals.first() {
        return Err(OpenError::Layout { path: shard_dir, what: refusal.clone() });
    }
    let Salvaged { state, end, .. } = salvaged;
    let mut added = spill.into_files();
    let next_id = first_id + added.len() as u64;
    added.extend(move_rest(&state, lanes, identity, next_id, end).map_err(writing())?);
    // 2
    let fresh = Fresh { shard, base: end, salt: rand::random(), kept_from: old.checkpoint };
    recovery::fresh_segment(fs, &shard_dir, manifest, fresh, &[]).map_err(writing())?;
    // 3. MUST AFTER the rows and the segment: it says that both are there.
    let mut image = Image { checkpoint: end, segment: end, next_lane_file: next_id + 1, ..old.clone() };
    image.files.extend(added.iter().map(|f| (f.reference.id, f.reference)));
    let shared = Shared::new(shard, state, 0, (end, 0), Rhythm::new(None, u64::MAX));
    let snapshot = snapshot::edits(&shared, &image);
    let mut check = old;
    for edit in &snapshot {
        let invalid = |v: crate::checkpoint::invariants::Violation| writing()(io::Error::other(v));
        check.follow(edit).map_err(invalid)?;
    }
    let made = EditLog::create(fs, &shard_dir, shard, manifest.node, edits.number() + 1, &snapshot);
    let edits = made.map_err(|e| writing()(io::Error::other(e)))?;
    // 4. MUST AFTER the manifest is durable: until then they have the rows.
    remove_below(fs, &shard_dir, end).map_err(writing())?;
    edits.remove_older(fs).map_err(writing())
}

/// Moves what is in memory into a lane file, durably.
fn move_rest(
    state: &crate::bucket::state::ShardState,
    lanes: &Lanes,
    identity: Identity,
    id: u64,
    end: Lsn,
) -> io::Result<Option<Arc<LaneFile>>> {
    let trigger = Trigger::default();
    let touched = state.touched();
    let moved = Load::new(touched.iter()).write(lanes, identity, id, end, &mut Pace::new(&trigger, None));
    let moved = moved.map_err(|error| match error {
        MoveError::Undone(error) | MoveError::Unreadable(_, error) | MoveError::Sync(error) => error,
    })?;
    let Some(moved) = moved else { return Ok(None) };
    lanes.barrier(&[Arc::clone(&moved.file)])?;
    Ok(Some(moved.install()))
}

fn remove_below(fs: &dyn FileSystem, shard_dir: &Path, end: Lsn) -> io::Result<()> {
    for name in fs.list(shard_dir)? {
        if segment::parse_file_name(&name).is_some_and(|base| base < end) {
            fs.remove(&shard_dir.join(name))?;
        }
    }
    fs.sync_dir(shard_dir)
}
