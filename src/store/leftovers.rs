//! What nobody needs any more, or never did: lane files that a crash left before their edit or after the edit that dropped them,
//! and what a change of the layout left of the old one, or of the new one if it was cut short.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use crate::checkpoint::lane_file;
use crate::checkpoint::lanes::Lanes;
use crate::fs::FileSystem;
use crate::types::NodeId;
use crate::wal::segment;

/// Removes the lane files that are not `used` (lane, shard and id), and the logs of all layouts but `layout`. Best effort: what stays
/// is found again by the next start.
///
/// MUST AFTER everything has been read and believed, and after the manifest that says `layout` is durable: before that, what is
/// removed here may be what the next start needs.
pub(crate) fn remove(
    fs: &dyn FileSystem,
    dir: &Path,
    (node, layout): (NodeId, u32),
    lanes: &Lanes,
    used: &HashSet<(u32, u32, u64)>,
) {
    if let Err(error) = remove_lane_files(lanes, node, |file| !used.contains(&file)) {
        tracing::warn!(%error, "lane files that nobody needs were not removed");
    }
    if let Err(error) = remove_logs(fs, dir, layout) {
        tracing::warn!(%error, "logs of another layout were not removed");
    }
}

/// Removes the lane files (lane, shard and id) that are unneeded, but for another node's.
pub(crate) fn remove_lane_files(
    lanes: &Lanes,
    node: NodeId,
    unneeded: impl Fn((u32, u32, u64)) -> bool,
) -> io::Result<()> {
    for (lane, shard, id) in lanes.list_all()? {
        if unneeded((lane, shard, id)) {
            let path = lanes.path(shard, lane, id)?;
            // The guard cannot tell two nodes apart whose first starts were given the same lane while it was empty.
            if lanes.is_anothers(&path, node)? {
                tracing::warn!(path = %path.display(), "a lane has a lane file of another data directory");
                continue;
            }
            tracing::info!(file = lane_file::file_name(shard, id), lane, "a lane file that nobody needs is removed");
            lanes.fs().remove(&path)?;
        }
    }
    Ok(())
}

/// Removes the logs of all layouts but `layout`.
pub(crate) fn remove_logs(fs: &dyn FileSystem, dir: &Path, layout: u32) -> io::Result<()> {
    for name in fs.list_dirs(dir)? {
        if segment::parse_wal_dir(&name).is_some_and(|of| of != layout) {
            let path = dir.join(name);
            tracing::info!(path = %path.display(), layout, "the logs of another layout are removed");
            fs.remove_dir_all(&path)?;
        }
    }
    Ok(())
}
