//! The first start of a data directory: everything that has to exist, durably, before there is a manifest.
//!
//! A first start that was cut short is begun again. What it must never do is to begin again over somebody's rows.

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::checkpoint::edits::EditLog;
use crate::checkpoint::lanes::MAX_LANES;
use crate::checkpoint::snapshot;
use crate::error::OpenError;
use crate::fs::FileSystem;
use crate::manifest::{self, LogPosition, MAX_SHARDS, Manifest, REPLAY_RATES};
use crate::options::Options;
use crate::recovery::{self, Fresh};
use crate::types::{Incarnation, Lsn, NodeId};
use crate::wal::segment::{self, MIN_SEGMENT_BYTES};
use crate::wal::{GROUP_ALIGN, scan};

/// The manifest of a directory that has none, if it may be made anew: logs without a manifest are somebody's rows.
///
/// # Errors
/// Settings that cannot be, a log without a manifest, or an I/O error.
pub fn manifest(fs: &dyn FileSystem, dir: &Path, options: &Options, lanes: usize) -> Result<Manifest, OpenError> {
    let Options { shards, segment_bytes, .. } = *options;
    let settings_error = |what: String| OpenError::Layout { path: dir.to_owned(), what };
    if shards == 0 || shards > MAX_SHARDS {
        return Err(settings_error(format!("{shards} shards; choose 1 to {MAX_SHARDS}")));
    }
    if lanes > MAX_LANES {
        return Err(settings_error(format!("{lanes} lanes; choose at most {MAX_LANES}")));
    }
    if segment_bytes < MIN_SEGMENT_BYTES || !segment_bytes.is_multiple_of(GROUP_ALIGN) {
        let wanted = format!("choose a multiple of {GROUP_ALIGN}, at least {MIN_SEGMENT_BYTES}");
        let what = format!("log segments of {segment_bytes} bytes; {wanted}");
        return Err(settings_error(what));
    }
    let manifest = Manifest {
        version: manifest::VERSION,
        node: NodeId(uuid::Uuid::new_v4()),
        incarnation: Incarnation(0),
        starts: 0,
        created_unix_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64),
        segment_bytes,
        lanes: u32::try_from(lanes).expect("should be at most MAX_LANES"),
        layout: 0,
        replay_rates: [0; REPLAY_RATES],
        logs: vec![LogPosition::default(); shards as usize],
        history: Vec::new(),
    };
    // Another layout's logs are made beside a manifest only, so it was there; and what is not of the first layout would be removed.
    let dirs = fs.list_dirs(dir).map_err(OpenError::io(format!("reading {}", dir.display())))?;
    if dirs.iter().any(|name| segment::parse_wal_dir(name).is_some_and(|layout| layout > 0)) {
        return Err(settings_error("the manifest is missing, but there is a log; restore the manifest".to_owned()));
    }
    // All that there can be: the number of shards that is configured now need not be the one that the lost manifest had.
    for shard in 0..MAX_SHARDS {
        let shard_dir = segment::shard_dir(dir, 0, shard);
        let names = match fs.list(&shard_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            listed => listed.map_err(OpenError::io(format!("reading {}", shard_dir.display())))?,
        };
        if names.iter().any(|n| segment::parse_file_name(n).is_some_and(|base| base > Lsn(0))) {
            return Err(settings_error("the manifest is missing, but there is a log; restore the manifest".to_owned()));
        }
        refuse_written_log(fs, &shard_dir)?;
    }
    Ok(manifest)
}

/// A first start that was cut short leaves empty logs, which are made anew; a log with groups is not ours to overwrite.
fn refuse_written_log(fs: &dyn FileSystem, shard_dir: &Path) -> Result<(), OpenError> {
    let segments = recovery::list_segments(fs, shard_dir)?;
    let mut records = 0_u64;
    let tail = scan::replay(&segments, Lsn(0), Lsn(0), |_, _| {
        records += 1;
        Ok(())
    })?;
    if records > 0 || tail.torn || !tail.in_doubt.is_empty() {
        let what = "the manifest is missing, but there is a log; restore the manifest".to_owned();
        return Err(OpenError::Layout { path: shard_dir.to_owned(), what });
    }
    Ok(())
}

/// Makes empty logs, and everything that leads to them durable. MUST BEFORE the manifest: with it, a missing log is lost rows.
///
/// # Errors
/// The I/O error.
pub fn make_shards(fs: &dyn FileSystem, dir: &Path, manifest: &Manifest) -> Result<(), OpenError> {
    let making = || OpenError::io(format!("making the log in {}", dir.display()));
    for shard in 0..manifest.shards() {
        let shard_dir = segment::shard_dir(dir, manifest.layout, shard);
        fs.create_dir_all(&shard_dir).map_err(making())?;
        let edits = snapshot::empty(Lsn(0));
        let made = EditLog::create(fs, &shard_dir, shard, manifest.node, 1, &edits);
        made.map_err(|e| making()(io::Error::other(e)))?;
        let fresh = Fresh { shard, base: Lsn(0), salt: rand::random(), kept_from: Lsn(0) };
        recovery::fresh_segment(fs, &shard_dir, manifest, fresh, &[]).map_err(making())?;
    }
    fs.sync_dir(&segment::wal_dir(dir, manifest.layout)).map_err(making())?;
    fs.sync_dir(dir).map_err(making())?;
    sync_ancestors(fs, dir).map_err(making())
}

/// Makes the data directory's own name durable, and those of all directories above it: which of them are new is not known, because
/// an earlier start may have made them and been cut short.
///
/// # Errors
/// The I/O error.
pub(crate) fn sync_ancestors(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    for above in dir.ancestors().skip(1) {
        // A relative path hangs off the current directory, which exists.
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        match fs.sync_dir(above) {
            // A directory that we may not read or write is one in which we made nothing.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) =>
            {
                break;
            }
            synced => synced?,
        }
    }
    Ok(())
}
