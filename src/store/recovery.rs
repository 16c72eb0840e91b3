//! From a data directory to running shards.
//!
//! Nothing is written before everything has been read and believed: a refused start leaves the directory as it was.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::time::Instant;

use crate::bucket::state::ShardState;
use crate::error::OpenError;
use crate::fs::{FileSystem, OpenMode};
use crate::manifest::Manifest;
use crate::types::{Incarnation, Lsn, TableId};
use crate::wal::group::{self, Kind};
use crate::wal::record::Record;
use crate::wal::segment::{self, Segment};
use crate::wal::{GROUP_ALIGN, align_group, pool, scan};

/// A shard as its log describes it.
#[derive(Debug)]
pub struct ReadShard {
    segments: Vec<Segment>,
    state: ShardState,
    tail: scan::Tail,
    records: u64,
}

/// A shard that is ready to go on.
#[derive(Debug)]
pub struct ReadyShard {
    /// In LSN order; the last one is fresh.
    pub segments: VecDeque<Segment>,
    /// Everything durable and unflushed.
    pub state: ShardState,
    /// Where the log goes on.
    pub head: Lsn,
}

/// What a start found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Records replayed.
    pub records: u64,
    /// Log bytes that were read.
    pub bytes: u64,
    /// Records of groups whose sync was in doubt, to be written anew.
    pub rewritten: u64,
    /// Shards whose last group was torn.
    pub torn: u32,
    /// Microseconds that the replay took.
    pub micros: u64,
}

/// The segments of a shard's directory, in LSN order.
///
/// # Errors
/// A damaged header, a segment of another node, or an I/O error (a missing directory among them).
pub fn list_segments(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<Segment>, OpenError> {
    let mut segments = Vec::new();
    for name in fs.list(dir).map_err(OpenError::io(format!("reading {}", dir.display())))? {
        let Some(base) = segment::parse_file_name(&name) else { continue };
        let path = dir.join(&name);
        let reading = || OpenError::io(format!("reading {}", path.display()));
        let file = fs.open(&path, OpenMode::Read).map_err(reading())?;
        let mut page = vec![0; segment::HEADER_LEN.min(file.len().map_err(reading())?) as usize];
        file.read_exact_at(&mut page, 0).map_err(reading())?;
        let header = segment::Header::decode(&page).map_err(|e| OpenError::Corrupt {
            path: path.clone(),
            offset: 0,
            what: e.to_string(),
        })?;
        if header.base != base {
            let what = format!("the file's name says LSN {base}, its header says {}", header.base);
            return Err(OpenError::Corrupt { path, offset: 0, what });
        }
        segments.push(Segment { header, path, file });
    }
    segments.sort_by_key(|s| s.header.base);
    Ok(segments)
}

/// Reads every shard's log, in parallel.
///
/// # Errors
/// The first shard's reason to refuse the start.
pub fn read_all(fs: &dyn FileSystem, dir: &Path, manifest: &Manifest) -> Result<(Vec<ReadShard>, Report), OpenError> {
    let started = Instant::now();
    let read: Vec<Result<ReadShard, OpenError>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..manifest.shards()).map(|shard| scope.spawn(move || read_shard(fs, dir, manifest, shard))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let shards = read.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut report = Report { micros: started.elapsed().as_micros() as u64, ..Report::default() };
    for shard in &shards {
        report.records += shard.records;
        report.rewritten += shard.tail.in_doubt.len() as u64;
        report.torn += u32::from(shard.tail.torn);
        report.bytes += shard.segments.first().map_or(0, |s| shard.tail.end.0 - s.header.base.0);
    }
    Ok((shards, report))
}

fn read_shard(fs: &dyn FileSystem, dir: &Path, manifest: &Manifest, shard: u32) -> Result<ReadShard, OpenError> {
    let shard_dir = segment::shard_dir(dir, shard);
    let missing = |what: &str| OpenError::Layout { path: shard_dir.clone(), what: what.to_owned() };
    let segments = match list_segments(fs, &shard_dir) {
        Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed?,
    };
    let Some(first) = segments.first() else {
        return Err(missing("the log of this shard is missing; is every file system mounted?"));
    };
    if let Some(stranger) = segments.iter().find(|s| s.header.node != manifest.node || s.header.shard != shard) {
        let what = format!("written by node {} as shard {}", stranger.header.node, stranger.header.shard);
        return Err(OpenError::Layout { path: stranger.path.clone(), what });
    }
    let known = manifest.logs[shard as usize];
    if first.header.base < known.segment && segments.iter().all(|s| s.header.base != known.segment) {
        let name = segment::file_name(known.segment);
        return Err(missing(&format!(
            "{name} is missing, to which the manifest says that rows were written; restore it"
        )));
    }
    let base = first.header.base;
    let mut state = ShardState::new(base);
    let mut records = 0;
    let tail = scan::replay(&segments, known.durable, |lsn, record| {
        records += 1;
        state.apply(lsn, record).map(drop).map_err(|e| e.to_string())
    })?;
    if tail.end < known.durable {
        let last = segments.last().expect("should have a segment");
        let what = format!("the log ends at LSN {}, but was durable up to {}", tail.end, known.durable);
        return Err(OpenError::Layout { path: last.path.clone(), what });
    }
    tracing::debug!(shard, base = base.0, end = tail.end.0, records, "log read");
    Ok(ReadShard { segments, state, tail, records })
}

/// Gives a shard the fresh segment in which it goes on. What was in doubt is in it, synced, before the file has its name.
///
/// # Errors
/// The I/O error.
pub fn resume(
    fs: &dyn FileSystem,
    dir: &Path,
    read: ReadShard,
    manifest: &Manifest,
    shard: u32,
) -> Result<ReadyShard, OpenError> {
    let ReadShard { segments, mut state, tail, .. } = read;
    let shard_dir = segment::shard_dir(dir, shard);
    let kept_from = segments.first().map_or(tail.end, |s| s.header.base);
    let salt = rand::random();
    let in_doubt = only_defined(&state, tail.in_doubt);
    // MUST also without records, if the log had published that its end lies behind them: a watermark never goes back.
    let rewrites = tail.holds_group || !in_doubt.is_empty();
    let (content, applied, head) =
        if rewrites { lay_out(tail.end, kept_from, in_doubt, salt)? } else { (Vec::new(), Vec::new(), tail.end) };
    for (lsn, record) in applied {
        let refused = |what| OpenError::Layout { path: shard_dir.clone(), what: format!("{what} (LSN {lsn})") };
        state.apply(lsn, record).map_err(|e| refused(e.to_string()))?;
    }
    if let Some(table) = state.undefined_table() {
        let what = format!("the log has rows of table {table}, but no definition of it");
        return Err(OpenError::Layout { path: shard_dir, what });
    }
    // MUST BEFORE anybody sees what was in doubt: shown now and gone after the next power loss, it would have been taken back.
    let fresh = Fresh { shard, base: tail.end, salt, kept_from };
    let segment = fresh_segment(fs, &shard_dir, manifest, fresh, &content)
        .map_err(OpenError::io(format!("starting a log segment in {}", shard_dir.display())))?;
    // The segment that ended where the new one starts held nothing else, and has lost its name to it.
    let mut segments: VecDeque<Segment> = segments.into_iter().filter(|s| s.header.base < tail.end).collect();
    segments.push_back(segment);
    Ok(ReadyShard { segments, state, head })
}

/// What remains of a torn group may be rows whose definition, in the same group, does not: nobody was told that they are kept, and
/// with them the log could not be read again.
fn only_defined(state: &ShardState, in_doubt: Vec<Record>) -> Vec<Record> {
    let mut defined: HashMap<TableId, u32> = state.definitions().map(|d| (d.table, d.schema_version)).collect();
    let mut kept = Vec::with_capacity(in_doubt.len());
    for record in in_doubt {
        match &record {
            Record::Define(define) => {
                let known = defined.entry(define.table).or_default();
                *known = define.schema_version.max(*known);
            }
            Record::Slices(slices)
                if slices.iter().any(|s| defined.get(&s.table).is_none_or(|known| s.schema_version > *known)) =>
            {
                tracing::warn!("rows of a torn group are left out: their table's definition was torn too");
                continue;
            }
            Record::Slices(_) | Record::Seal(_) | Record::Commit(_) => {}
        }
        kept.push(record);
    }
    kept
}

type LaidOut = (Vec<u8>, Vec<(Lsn, Record)>, Lsn);

/// One group with these records, at `start`.
fn lay_out(start: Lsn, kept_from: Lsn, records: Vec<Record>, salt: u64) -> Result<LaidOut, OpenError> {
    let mut content = vec![0; group::HEADER_LEN];
    let mut applied = Vec::with_capacity(records.len());
    for record in records {
        let lsn = Lsn(start.0 + content.len() as u64);
        let mut encoded = record.encode().map_err(|e| OpenError::io("writing a record anew")(io::Error::other(e)))?;
        encoded.seal(lsn, salt);
        encoded.parts().for_each(|part| content.extend_from_slice(part));
        applied.push((lsn, record));
    }
    let narrow =
        |n: usize| u32::try_from(n).map_err(|_| OpenError::io("writing a group anew")(io::Error::other("over 4 GiB")));
    let header = group::Header {
        lsn: start,
        durable_lsn: start,
        kept_from,
        len: narrow(content.len())?,
        frames: narrow(applied.len())?,
        kind: Kind::Group,
    };
    content[..group::HEADER_LEN].copy_from_slice(&header.encode(salt));
    content.resize(align_group(content.len() as u64) as usize, 0);
    let head = Lsn(start.0 + content.len() as u64);
    Ok((content, applied, head))
}

/// What is new about a fresh segment.
#[derive(Debug, Clone, Copy)]
pub struct Fresh {
    /// The shard.
    pub shard: u32,
    /// LSN of its first data byte.
    pub base: Lsn,
    /// Seed of its checksums.
    pub salt: u64,
    /// Segments that end at or below may be gone.
    pub kept_from: Lsn,
}

/// A segment made here and now; the pool takes over afterwards.
///
/// # Errors
/// The I/O error.
pub fn fresh_segment(
    fs: &dyn FileSystem,
    shard_dir: &Path,
    manifest: &Manifest,
    fresh: Fresh,
    content: &[u8],
) -> io::Result<Segment> {
    let capacity = manifest.segment_bytes.max(align_group(content.len() as u64 + GROUP_ALIGN));
    let spare = pool::claim(fs, shard_dir, capacity)?;
    let header = segment::Header {
        shard: fresh.shard,
        base: fresh.base,
        salt: fresh.salt,
        capacity,
        node: manifest.node,
        incarnation: manifest.incarnation,
        kept_from: fresh.kept_from,
    };
    segment::activate(fs, shard_dir, header, &spare.path, spare.file, content)
}

/// A random incarnation; 63 bits, so that it fits wherever a signed number is stored.
pub fn new_incarnation() -> Incarnation {
    Incarnation(rand::random::<u64>() >> 1)
}
