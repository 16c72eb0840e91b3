//! The rows of one new shard, from wherever the old layout has them into new lane files.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::bucket::extent::LaneFile;
use crate::bucket::generation::{Generation, Slice};
use crate::checkpoint::edit::LaneFileRef;
use crate::checkpoint::lane_file;
use crate::checkpoint::lane_writer::{DEFAULT_CHUNK_BYTES, LaneWriter};
use crate::checkpoint::lanes::Lanes;
use crate::checkpoint::moving::Identity;
use crate::error::OpenError;

/// Payload bytes that make one extent, if so many come together: what lay in many small ones is read faster from one.
const EXTENT_BYTES: usize = 4 << 20;

/// Where the rows of one shard go.
#[derive(Debug)]
pub(super) struct Target<'a> {
    /// The new lanes.
    pub lanes: &'a Lanes,
    /// The new shard.
    pub identity: Identity,
    /// Id of its first lane file.
    pub first_id: u64,
    /// Payload bytes from which on the next lane file begins.
    pub file_bytes: u64,
}

/// Writes all slices of these generations into lane files, in their order, and makes them durable. Each file's path is in `made`
/// before it is there. At any time a part of one generation is in memory that was not before.
///
/// # Errors
/// Rows that cannot be read or written, or are not as many as they were.
pub(super) fn write(
    target: &Target<'_>,
    generations: &[Arc<Generation>],
    made: &mut Vec<PathBuf>,
) -> Result<Vec<LaneFileRef>, OpenError> {
    let Target { lanes, identity, first_id, file_bytes } = *target;
    let mut files = Vec::new();
    let mut rest = generations;
    while !rest.is_empty() {
        let mut bytes = 0;
        let whole = rest.iter().take_while(|g| {
            let fits = bytes < file_bytes;
            bytes += g.totals().bytes;
            fits
        });
        let (now, behind) = rest.split_at(whole.count().max(1));
        rest = behind;
        let id = first_id + files.len() as u64;
        let lane = lanes.choose(identity.shard, id);
        let written = lanes.path(identity.shard, lane, id).and_then(|path| {
            made.push(path.clone());
            write_file(target, (lane, id), path, now)
        });
        let what = || format!("moving rows into a lane file of shard {}", identity.shard);
        files.push(written.map_err(OpenError::io(what()))?);
    }
    Ok(files)
}

fn write_file(
    target: &Target<'_>,
    (lane, id): (u32, u64),
    path: PathBuf,
    generations: &[Arc<Generation>],
) -> io::Result<LaneFileRef> {
    let Identity { shard, node, incarnation } = target.identity;
    let file = target.lanes.fs().create(&path)?;
    let header = lane_file::Header { shard, id, node, incarnation };
    // Nothing else is written meanwhile that would have to wait.
    let mut pace = |_| Ok(());
    let mut writer = LaneWriter::new(&*file, &header, DEFAULT_CHUNK_BYTES, &mut pace)?;
    for generation in generations {
        write_generation(&mut writer, generation)?;
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
    target.lanes.barrier(&[Arc::new(LaneFile::new(reference, path, file))])?;
    Ok(reference)
}

fn write_generation(writer: &mut LaneWriter<'_>, generation: &Generation) -> io::Result<()> {
    let Generation { table, bucket, first_lsn, .. } = *generation;
    let totals = generation.totals();
    let (mut slices, mut rows) = (0, 0);
    let mut waiting: Vec<Slice> = Vec::new();
    let mut bytes = 0;
    for part in generation.parts(totals.slices) {
        for slice in part.read()? {
            slices += 1;
            rows += u64::from(slice.rows);
            bytes += slice.payload.len();
            waiting.push(slice);
        }
        if bytes >= EXTENT_BYTES {
            writer.push(table, bucket, first_lsn, &waiting)?;
            waiting.clear();
            bytes = 0;
        }
    }
    writer.push(table, bucket, first_lsn, &waiting)?;
    // MUST BEFORE the switch: with it, what is missing here is lost.
    if (slices, rows) != (totals.slices, totals.rows) {
        let what = format!("table {table}: {rows} rows of {} were read", totals.rows);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(())
}
