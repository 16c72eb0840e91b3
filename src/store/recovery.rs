//! From a data directory to running shards.
//!
//! Nothing that counts is written before everything has been read and believed: a refused start leaves the directory as it was. Rows
//! that do not fit into the memory that the replay may have go into lane files that no manifest names, and that a refused start
//! removes.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::bucket::extent::LaneFile;
use crate::bucket::state::{MarkLimits, ShardState};
use crate::checkpoint::base;
use crate::checkpoint::edits::EditLog;
use crate::checkpoint::invariants::{self, Image};
use crate::checkpoint::lanes::Lanes;
use crate::checkpoint::moving::Identity;
use crate::checkpoint::snapshot;
use crate::error::OpenError;
use crate::fs::{FileSystem, OpenMode};
use crate::manifest::{Manifest, VERSION_1};
use crate::progress::Progress;
use crate::replay_cost;
use crate::spill::Spill;
use crate::types::{Incarnation, Lsn, TableId};
use crate::wal::group::{self, Kind};
use crate::wal::record::Record;
use crate::wal::segment::{self, Segment};
use crate::wal::{GROUP_ALIGN, align_group, pool, scan};

/// What a start reads from.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The file system.
    pub fs: &'a Arc<dyn FileSystem>,
    /// The data directory.
    pub dir: &'a Path,
    /// What it is.
    pub manifest: &'a Manifest,
    /// Its lanes.
    pub lanes: &'a Lanes,
    /// How much a shard remembers to know repeats.
    pub marks: MarkLimits,
    /// Bytes that the rows of all shards together may take in memory while the log is read.
    pub replay_bytes: u64,
    /// Where it tells how far it is.
    pub progress: &'a Progress,
}

/// A shard as its manifest, its lane files and its log describe it.
#[derive(Debug)]
pub struct ReadShard {
    segments: Vec<Segment>,
    pub(crate) state: ShardState,
    edits: Option<EditLog>,
    image: Image,
    files: Vec<Arc<LaneFile>>,
    pub(crate) spilled: Vec<Arc<LaneFile>>,
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
    /// The shard's manifest, made sure.
    pub edits: EditLog,
    /// What it adds up to.
    pub image: Image,
    /// Lane files in the manifest.
    pub files: Vec<Arc<LaneFile>>,
    /// Lane files that no edit has named yet.
    pub spilled: Vec<Arc<LaneFile>>,
    /// Records that were read.
    pub records: u64,
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
    /// Microseconds that all of it took.
    pub micros: u64,
    /// Microseconds that the manifests and the lane files' indexes took, in the slowest shard.
    pub load_micros: u64,
    /// Microseconds that the logs took, in the slowest shard.
    pub replay_micros: u64,
    /// Bytes that were moved into lane files because they did not fit into the memory for it.
    pub spilled: u64,
    /// Weight a second of the shard that took longest, if it had enough to read to tell; see `replay_cost`.
    pub rate: Option<u64>,
}

/// The rate of one shard's replay; none if it was too short to tell.
fn measured_rate(bytes: u64, records: u64, micros: u64) -> Option<u64> {
    const ENOUGH: u64 = 16 << 20;
    let weight = replay_cost::weight(bytes, records);
    (weight >= ENOUGH && micros > 0).then(|| replay_cost::rate(weight, micros))
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

/// Reads every shard, in parallel.
///
/// # Errors
/// The first shard's reason to refuse the start.
pub fn read_all(source: Source<'_>) -> Result<(Vec<ReadShard>, Report), OpenError> {
    let started = Instant::now();
    let mut report = Report::default();
    let mut shards = Vec::new();
    let read: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..source.manifest.shards()).map(|shard| scope.spawn(move || read_shard(source, shard))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    for read in read {
        let (shard, of_shard): (ReadShard, Report) = read?;
        report.records += of_shard.records;
        report.bytes += of_shard.bytes;
        report.rewritten += of_shard.rewritten;
        report.torn += of_shard.torn;
        report.spilled += of_shard.spilled;
        report.load_micros = report.load_micros.max(of_shard.load_micros);
        if of_shard.replay_micros >= report.replay_micros {
            report.replay_micros = of_shard.replay_micros;
            report.rate = of_shard.rate;
        }
        shards.push(shard);
    }
    report.micros = started.elapsed().as_micros() as u64;
    Ok((shards, report))
}

fn read_shard(source: Source<'_>, shard: u32) -> Result<(ReadShard, Report), OpenError> {
    let Source { fs, dir, manifest, lanes, .. } = source;
    let started = Instant::now();
    let shard_dir = segment::shard_dir(dir, manifest.layout, shard);
    let segments = checked_segments(source, shard, &shard_dir)?;
    let is_old = manifest.version == VERSION_1;
    let loaded = base::load(fs, &shard_dir, shard, manifest.node, lanes, source.marks)?;
    let (edits, mut state, image, files) = match loaded {
        Some((edits, base)) => (Some(edits), base.state, base.image, base.files),
        None if is_old => {
            let first = segments[0].header.base;
            let image = Image { sequence: 1, checkpoint: first, segment: first, next_lane_file: 1, ..Image::default() };
            let mut state = ShardState::new(first);
            state.limit_marks(source.marks);
            (None, state, image, Vec::new())
        }
        None => {
            let what = "the shard's manifest (edits-...) is missing; restore it".to_owned();
            return Err(OpenError::Layout { path: shard_dir, what });
        }
    };
    let load_micros = started.elapsed().as_micros() as u64;
    let bases: Vec<Lsn> = segments.iter().map(|s| s.header.base).collect();
    let broken = |v: invariants::Violation| OpenError::Layout { path: shard_dir.clone(), what: v.to_string() };
    invariants::check_log(&bases, Lsn(0), &image).map_err(broken)?;
    let known = manifest.logs[shard as usize];
    let identity = Identity { shard, node: manifest.node, incarnation: manifest.incarnation };
    let budget = source.replay_bytes / u64::from(manifest.shards());
    // Lanes that are not there yet take nothing.
    let (next_id, budget) = if is_old {
        (image.next_lane_file, u64::MAX)
    } else {
        (lanes.next_id(shard, image.next_lane_file).map_err(OpenError::io("listing the lanes"))?, budget)
    };
    let mut spill = Spill::new(lanes, identity, next_id, budget);
    let mut meter = source.progress.meter(&segments, image.checkpoint);
    let replay = Instant::now();
    let mut records = 0;
    let replayed = scan::replay(&segments, image.checkpoint, known.durable, |lsn, record| {
        records += 1;
        meter.at(lsn);
        let spilled = spill.before(lsn, &mut state).map_err(OpenError::io("moving rows of a long log into a lane"));
        spilled.map_err(scan::Refusal::Failed)?;
        state.apply(lsn, record).map(drop).map_err(|e| scan::Refusal::Contradiction(e.to_string()))
    });
    let checked = replayed.and_then(|tail| {
        if !is_old {
            invariants::check_log(&bases, tail.kept_from, &image).map_err(broken)?;
        } else if bases[0] > tail.kept_from {
            let what = format!("the log from LSN {} on is missing, a file before this one; restore it", tail.kept_from);
            return Err(OpenError::Layout { path: segments[0].path.clone(), what });
        }
        if tail.end < known.durable {
            let last = segments.last().expect("should have a segment");
            let what = format!("the log ends at LSN {}, but was durable up to {}", tail.end, known.durable);
            return Err(OpenError::Layout { path: last.path.clone(), what });
        }
        Ok(tail)
    });
    let tail = match checked {
        Ok(tail) => tail,
        Err(refused) => {
            spill.discard();
            return Err(refused);
        }
    };
    drop(meter);
    let (bytes, replay_micros) = (tail.end.0 - image.checkpoint.0, replay.elapsed().as_micros() as u64);
    let report = Report {
        records,
        bytes,
        rewritten: tail.in_doubt.len() as u64,
        torn: u32::from(tail.torn),
        micros: started.elapsed().as_micros() as u64,
        load_micros,
        replay_micros,
        spilled: spill.bytes(),
        rate: measured_rate(bytes, records, replay_micros),
    };
    tracing::debug!(shard, checkpoint = image.checkpoint.0, end = tail.end.0, ?report, "shard read");
    let spilled = spill.into_files();
    Ok((ReadShard { segments, state, edits, image, files, spilled, tail, records }, report))
}

/// The segments of a shard, of which there has to be one, and none another's.
fn checked_segments(source: Source<'_>, shard: u32, shard_dir: &Path) -> Result<Vec<Segment>, OpenError> {
    let Source { fs, manifest, .. } = source;
    let missing = |what: &str| OpenError::Layout { path: shard_dir.to_owned(), what: what.to_owned() };
    let segments = match list_segments(&**fs, shard_dir) {
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
    Ok(segments)
}

/// Gives a shard the fresh segment in which it goes on. What was in doubt is in it, synced, before the file has its name; and the
/// shard's manifest is made sure.
///
/// # Errors
/// The I/O error.
pub fn resume(source: Source<'_>, read: ReadShard, shard: u32) -> Result<ReadyShard, OpenError> {
    let Source { fs, dir, manifest, .. } = source;
    let shard_dir = segment::shard_dir(dir, manifest.layout, shard);
    let salt = rand::random();
    let (read, content, head) = settle(read, &shard_dir, salt)?;
    let ReadShard { segments, state, edits, image, files, spilled, tail, records } = read;
    let kept_from = image.checkpoint;
    let writing = || OpenError::io(format!("writing the manifest in {}", shard_dir.display()));
    let edits = match edits {
        Some(mut edits) => {
            edits.make_sure(&**fs).map_err(writing())?;
            edits
        }
        None => {
            let made = EditLog::create(&**fs, &shard_dir, shard, manifest.node, 1, &snapshot::empty(image.checkpoint));
            made.map_err(|e| writing()(io::Error::other(e)))?
        }
    };
    // MUST BEFORE anybody sees what was in doubt: shown now and gone after the next power loss, it would have been taken back.
    let fresh = Fresh { shard, base: tail.end, salt, kept_from };
    let segment = fresh_segment(&**fs, &shard_dir, manifest, fresh, &content)
        .map_err(OpenError::io(format!("starting a log segment in {}", shard_dir.display())))?;
    // MUST AFTER the manifest is sure of what is in use.
    edits.remove_older(&**fs).map_err(writing())?;
    // The segment that ended where the new one starts held nothing else, and has lost its name to it.
    let mut segments: VecDeque<Segment> = segments.into_iter().filter(|s| s.header.base < tail.end).collect();
    segments.push_back(segment);
    Ok(ReadyShard { segments, state, head, edits, image, files, spilled, records })
}

/// Decides what was in doubt: what is intact of it counts from now on, and is in the state. Answers it as one group, to be written at
/// the log's end with this salt, and where the log goes on behind it. Nothing is written here.
///
/// # Errors
/// Rows without a definition, or records that contradict those before.
pub(crate) fn settle(mut read: ReadShard, shard_dir: &Path, salt: u64) -> Result<(ReadShard, Vec<u8>, Lsn), OpenError> {
    let ReadShard { state, tail, image, .. } = &mut read;
    let in_doubt = only_defined(state, std::mem::take(&mut tail.in_doubt));
    // MUST also without records, if the log had published that its end lies behind them: a watermark never goes back.
    let rewrites = tail.holds_group || !in_doubt.is_empty();
    let (content, applied, head) = if rewrites {
        lay_out(tail.end, image.checkpoint, in_doubt, salt)?
    } else {
        (Vec::new(), Vec::new(), tail.end)
    };
    for (lsn, record) in applied {
        let refused = |what| OpenError::Layout { path: shard_dir.to_owned(), what: format!("{what} (LSN {lsn})") };
        state.apply(lsn, record).map_err(|e| refused(e.to_string()))?;
    }
    if let Some(table) = state.undefined_table() {
        let what = format!("the log has rows of table {table}, but no definition of it");
        return Err(OpenError::Layout { path: shard_dir.to_owned(), what });
    }
    Ok((read, content, head))
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
            Record::Slices(rows)
                if rows.slices.iter().any(|s| defined.get(&s.table).is_none_or(|known| s.schema_version > *known)) =>
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

/// Room for groups in the segment of a start that finds the disk full, bytes.
const SHORT_SEGMENT: u64 = 16 * GROUP_ALIGN;

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
    let (spare, capacity) = match pool::claim(fs, shard_dir, capacity) {
        // What empties a full disk may have used up the spare ones. A short one will do until there is room.
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            let short = align_group(content.len() as u64) + SHORT_SEGMENT;
            (pool::claim(fs, shard_dir, short.min(capacity)).map_err(|_| error)?, short.min(capacity))
        }
        claimed => (claimed?, capacity),
    };
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
