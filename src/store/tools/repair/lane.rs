//! Damaged lane files of one shard: what is intact of them, in new ones.

use std::io;
use std::sync::Arc;

use super::Plan;
use crate::bucket::extent::LaneFile;
use crate::checkpoint::edit::{Edit, LaneFileRef, Part};
use crate::checkpoint::lane_file::{self, ExtentEntry};
use crate::checkpoint::lane_writer::{DEFAULT_CHUNK_BYTES, LaneWriter};
use crate::checkpoint::lanes::Lanes;
use crate::error::OpenError;
use crate::manifest::Manifest;
use crate::tools::tolerant::{CheckedFile, Problem};

/// Replaces the damaged files by one edit.
pub fn repair(lanes: &Lanes, manifest: &Manifest, plan: Plan) -> Result<(), OpenError> {
    let Plan { shard, mut loaded, files } = plan;
    let writing = || OpenError::io(format!("replacing lane files of shard {shard}"));
    loaded.edits.make_sure(&**lanes.fs()).map_err(writing())?;
    let mut next_id = lanes.next_id(shard, loaded.image.next_lane_file).map_err(writing())?;
    let (mut added, mut dropped) = (Vec::new(), Vec::new());
    for file in files.iter().map(|number| &loaded.files[*number]) {
        dropped.push(file);
        let intact = intact(file);
        if !intact.is_empty() {
            added.push(copy(lanes, manifest, (shard, next_id), file, &intact).map_err(writing())?);
            next_id += 1;
        }
    }
    // MUST BEFORE the edit: it says that the rows are there.
    lanes.barrier(&added).map_err(writing())?;
    let image = &loaded.image;
    let edit = Edit {
        sequence: image.sequence + 1,
        part: Part::Delta,
        checkpoint: image.checkpoint,
        segment: image.segment,
        next_lane_file: next_id,
        added: added.iter().map(|f| f.reference).collect(),
        dropped: dropped.iter().map(|f| f.reference.id).collect(),
        ..Edit::default()
    };
    let invalid = |what: String| writing()(io::Error::new(io::ErrorKind::InvalidInput, what));
    image.clone().follow(&edit).map_err(|v| invalid(v.to_string()))?;
    loaded.edits.append(&edit).map_err(|e| writing()(io::Error::other(e)))?;
    for file in dropped {
        // A name that stays is removed at the next start.
        if let Err(error) = lanes.fs().remove(&file.path) {
            tracing::debug!(path = %file.path.display(), %error, "a lane file that nobody needs was not removed");
        }
    }
    Ok(())
}

/// Extents that a live generation needs. Others MUST NOT be copied: in a newer file they would count again.
fn intact(file: &CheckedFile) -> Vec<ExtentEntry> {
    let is_bad = |entry: &ExtentEntry| {
        file.problems.iter().any(|p| matches!(p, Problem::Extent(bad) if bad.offset == entry.offset))
    };
    file.extents.iter().filter(|(entry, live)| *live && !is_bad(entry)).map(|(entry, _)| *entry).collect()
}

fn copy(
    lanes: &Lanes,
    manifest: &Manifest,
    (shard, id): (u32, u64),
    from: &CheckedFile,
    entries: &[ExtentEntry],
) -> io::Result<Arc<LaneFile>> {
    let source = from.file.as_ref().ok_or_else(|| io::Error::other("a file without a file"))?;
    let lane = lanes.choose(shard, id);
    let path = lanes.path(shard, lane, id)?;
    let file = lanes.fs().create(&path)?;
    let header = lane_file::Header { shard, id, node: manifest.node, incarnation: manifest.incarnation };
    let mut unpaced = |_| Ok(());
    let mut writer = LaneWriter::new(&*file, &header, DEFAULT_CHUNK_BYTES, &mut unpaced)?;
    for entry in entries {
        let bytes = source.read(entry.offset, entry.len, entry.crc)?;
        writer.push_raw(*entry, &bytes)?;
    }
    let written = writer.finish()?;
    let reference = LaneFileRef {
        id,
        lane,
        index_at: written.index_at,
        index_len: written.index_len,
        index_crc: written.index_crc,
        extents: u32::try_from(written.entries.len()).map_err(io::Error::other)?,
        bytes: written.bytes,
    };
    Ok(Arc::new(LaneFile::new(reference, path, file)))
}
