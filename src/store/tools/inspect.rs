//! What a stopped node's data directory holds, in figures; and the records of its log one by one. Nothing is changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::salvage::{kind_name, salvage};
use super::site::Site;
use super::tolerant::{self, TolerantShard};
use super::walk::{self, Event, LostPart, Part};
use crate::bucket::dirty::SealProgress;
use crate::bucket::{Generation, PARTS};
use crate::error::OpenError;
use crate::fs::FileSystem;
use crate::manifest::Manifest;
use crate::types::{Bucket, Incarnation, Lsn, NodeId, PostId, TableId};
use crate::wal::record::Record;
use crate::wal::segment;

/// A data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Which one.
    pub node: NodeId,
    /// The newest start.
    pub incarnation: Incarnation,
    /// Starts so far.
    pub starts: u64,
    /// Of the node's manifest.
    pub format_version: u32,
    /// The lanes' directories.
    pub lanes: Vec<PathBuf>,
    /// Log bytes a second that recent starts replayed, newest first; those that were measured.
    pub replay_rates: Vec<u64>,
    /// Its shards.
    pub shards: Vec<ShardInspection>,
}

/// One shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardInspection {
    /// Its number.
    pub shard: u32,
    /// The number of its manifest's file.
    pub manifest_file: u64,
    /// Sequence of the last edit.
    pub edits: u64,
    /// The log is read from here on.
    pub checkpoint: Lsn,
    /// Where the log ends.
    pub end: Lsn,
    /// A torn group lies behind the end: what a crash left, which nobody was told of.
    pub torn: bool,
    /// Places in the log behind the checkpoint that are damaged; `verify` says more.
    pub damaged: u64,
    /// Its log files, in LSN order.
    pub segments: Vec<SegmentInspection>,
    /// Rows that are not in Delta as far as the log says: sealed generations in commit order, then open ones, by table.
    pub generations: Vec<GenerationInspection>,
    /// Lane files that count.
    pub lane_files: Vec<LaneFileInspection>,
    /// How far sequences are.
    pub watermarks: Vec<Watermark>,
    /// Newest definition of each table.
    pub definitions: Vec<Definition>,
    /// (table, producer) pairs that are remembered.
    pub producers: u64,
    /// (table, key) pairs that are remembered.
    pub keys: u64,
}

/// One log file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentInspection {
    /// Its name.
    pub file: String,
    /// LSN of its first byte.
    pub base: Lsn,
    /// The start that wrote it.
    pub incarnation: u64,
    /// Bytes that groups can take.
    pub capacity: u64,
    /// Bytes that groups take.
    pub used: u64,
    /// Intact groups, and damaged ones whose header is intact.
    pub groups: u64,
    /// Intact records by kind.
    pub records: RecordCounts,
    /// What is wrong with its header.
    pub damage: Option<String>,
}

/// Records by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Of rows.
    pub slices: u64,
    /// Generations that were closed.
    pub seals: u64,
    /// Words that Delta has rows.
    pub commits: u64,
    /// Definitions of tables.
    pub defines: u64,
}

/// One generation that is not in Delta as far as the log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationInspection {
    /// The table.
    pub table: TableId,
    /// The bucket.
    pub bucket: Bucket,
    /// LSN of its first record: its name.
    pub generation: Lsn,
    /// Start, sequence and LSN of its Seal; none while it is open.
    pub seal: Option<(Incarnation, u64, Lsn)>,
    /// Slices.
    pub slices: u64,
    /// Rows.
    pub rows: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Extents in lane files.
    pub extents: u64,
    /// Slices that only the log has.
    pub log_slices: u64,
}

/// One lane file that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneFileInspection {
    /// Its id.
    pub id: u64,
    /// Its lane.
    pub lane: u32,
    /// Its name.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of extents of generations that were live at the checkpoint.
    pub live_bytes: u64,
    /// Extents.
    pub extents: u64,
    /// Those of generations that were live at the checkpoint.
    pub live_extents: u64,
    /// Whether header or index are damaged, or the file is missing.
    pub damaged: bool,
}

/// How far the seals of a table under one start are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermark {
    /// The table.
    pub table: TableId,
    /// The start.
    pub incarnation: Incarnation,
    /// The highest sequence that was sealed.
    pub sealed: u64,
    /// The highest that Delta is known to hold.
    pub committed: u64,
}

/// A table's newest definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definition {
    /// The table.
    pub table: TableId,
    /// Its schema version.
    pub schema_version: u32,
    /// Bytes of its body.
    pub bytes: u64,
}

/// One intact record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordInfo {
    /// The shard.
    pub shard: u32,
    /// Where it starts.
    pub lsn: Lsn,
    /// `slices`, `seal`, `commit` or `define`.
    pub kind: &'static str,
    /// The tables it is about; each once.
    pub tables: Vec<TableId>,
    /// Its rows.
    pub rows: u64,
    /// Bytes in the log, without padding.
    pub bytes: u32,
    /// By what a repeat is known.
    pub id: Option<PostId>,
    /// Whether nothing shows it to be durable: the next start decides about it.
    pub in_doubt: bool,
}

/// Looks at a stopped node's directory. No lanes are those of a node that was given none.
///
/// # Errors
/// [`OpenError::Locked`] while a server runs; a manifest that cannot be read; an I/O error. Damage elsewhere is counted.
pub fn inspect(fs: &Arc<dyn FileSystem>, dir: &Path, lanes: &[PathBuf]) -> Result<Inspection, OpenError> {
    let site = Site::open(fs, dir, lanes)?;
    let manifest = site.manifest()?;
    let shards = (0..manifest.shards()).map(|shard| inspect_shard(&site, &manifest, shard));
    Ok(Inspection {
        node: manifest.node,
        incarnation: manifest.incarnation,
        starts: manifest.starts,
        format_version: manifest.version,
        lanes: site.lane_dirs.clone(),
        replay_rates: manifest.replay_rates.iter().copied().filter(|rate| *rate > 0).collect(),
        shards: shards.collect::<Result<_, _>>()?,
    })
}

fn inspect_shard(site: &Site, manifest: &Manifest, shard: u32) -> Result<ShardInspection, OpenError> {
    let shard_dir = segment::shard_dir(&site.dir, manifest.layout, shard);
    let TolerantShard { edits, image, state, files } = tolerant::load(site, manifest, shard, false)?;
    let (parts, lost) = walk::list(&site.fs, manifest, &shard_dir, shard)?;
    let known = manifest.logs[shard as usize].durable;
    let (mut segments, torn) = segments(&parts, known)?;
    segments.extend(lost.iter().map(|LostPart { path, base, what }| SegmentInspection {
        file: name_of(path),
        base: *base,
        damage: Some(what.clone()),
        ..SegmentInspection::default()
    }));
    segments.sort_by_key(|s| s.base);
    let salvaged = salvage(state, &parts, image.checkpoint, known, false, &mut |_, _| Ok(()))?;
    let state = &salvaged.state;
    let mut inspection = ShardInspection {
        shard,
        manifest_file: edits.number(),
        edits: image.sequence,
        checkpoint: image.checkpoint,
        end: salvaged.end,
        torn,
        damaged: salvaged.stretches.len() as u64 + lost.len() as u64,
        segments,
        generations: state.generations().map(generation).collect(),
        lane_files: Vec::with_capacity(files.len()),
        watermarks: Vec::new(),
        definitions: Vec::new(),
        producers: state.producers().len() as u64,
        keys: state.keys().len() as u64,
    };
    for facts in (0..PARTS).map(|part| state.facts(part, salvaged.end)) {
        let watermark = |(table, incarnation, p): (TableId, Incarnation, SealProgress)| Watermark {
            table,
            incarnation,
            sealed: p.sealed,
            committed: p.committed,
        };
        inspection.watermarks.extend(facts.progress.into_iter().map(watermark));
        inspection.definitions.extend(facts.defines.iter().map(|d| Definition {
            table: d.table,
            schema_version: d.schema_version,
            bytes: d.body.len() as u64,
        }));
    }
    inspection.watermarks.sort_by_key(|w| (w.table, w.incarnation));
    inspection.definitions.sort_by_key(|d| d.table);
    inspection.generations.sort_by_key(|g| (g.table, g.seal.is_none(), g.seal.map(|s| s.2), g.bucket, g.generation));
    for file in &files {
        let (live_extents, live_bytes) = file.live();
        inspection.lane_files.push(LaneFileInspection {
            id: file.reference.id,
            lane: file.reference.lane,
            path: file.path.clone(),
            bytes: file.reference.bytes,
            live_bytes,
            extents: u64::from(file.reference.extents),
            live_extents,
            damaged: !file.problems.is_empty(),
        });
    }
    Ok(inspection)
}

fn generation(generation: &Arc<Generation>) -> GenerationInspection {
    let totals = generation.totals();
    let (extents, log_slices) = generation.places();
    GenerationInspection {
        table: generation.table,
        bucket: generation.bucket,
        generation: generation.first_lsn,
        seal: generation.seal().map(|s| (s.incarnation, s.sequence, s.lsn)),
        slices: totals.slices as u64,
        rows: totals.rows,
        bytes: totals.bytes,
        extents: extents as u64,
        log_slices: log_slices as u64,
    }
}

/// The log files' figures, and whether a torn group lies behind the end.
fn segments(parts: &[Part], known: Lsn) -> Result<(Vec<SegmentInspection>, bool), OpenError> {
    let mut segments: Vec<SegmentInspection> = Vec::with_capacity(parts.len());
    let end = walk::walk(parts, known, &mut |event| {
        let last = segments.last_mut();
        match (event, last) {
            (Event::Segment(part), _) => segments.push(SegmentInspection {
                file: name_of(&part.segment.path),
                base: part.segment.header.base,
                incarnation: part.segment.header.incarnation.0,
                capacity: part.segment.header.capacity,
                damage: part.header_damage.clone(),
                ..SegmentInspection::default()
            }),
            (Event::Group(_, header), Some(last)) => {
                last.groups += 1;
                last.used = header.lsn.0 + crate::wal::align_group(u64::from(header.len)) - last.base.0;
            }
            (Event::Record(_, _, _, record), Some(last)) => match record {
                Record::Slices(_) => last.records.slices += 1,
                Record::Seal(_) => last.records.seals += 1,
                Record::Commit(_) => last.records.commits += 1,
                Record::Define(_) => last.records.defines += 1,
            },
            _ => {}
        }
        Ok(())
    })?;
    Ok((segments, end.torn))
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Tells every intact record of the retained log, shard by shard in LSN order; one group at a time is in memory.
///
/// # Errors
/// As [`inspect`].
pub fn records(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    lanes: &[PathBuf],
    mut visit: impl FnMut(RecordInfo),
) -> Result<(), OpenError> {
    let site = Site::open(fs, dir, lanes)?;
    let manifest = site.manifest()?;
    for shard in 0..manifest.shards() {
        let shard_dir = segment::shard_dir(&site.dir, manifest.layout, shard);
        let (parts, _) = walk::list(&site.fs, &manifest, &shard_dir, shard)?;
        walk::walk(&parts, manifest.logs[shard as usize].durable, &mut |event| {
            let (in_doubt, lsn, header, record) = match event {
                Event::Record(_, lsn, header, record) => (false, lsn, header, record),
                Event::InDoubt(_, lsn, header, record) => (true, lsn, header, record),
                _ => return Ok(()),
            };
            let (mut tables, rows, id) = match record {
                Record::Slices(rows) => {
                    let count = rows.slices.iter().map(|s| u64::from(s.rows)).sum();
                    (rows.slices.iter().map(|s| s.table).collect(), count, rows.mark.map(|mark| mark.id))
                }
                Record::Seal(seal) => (vec![seal.table], 0, None),
                Record::Commit(commit) => (vec![commit.table], 0, None),
                Record::Define(define) => (vec![define.table], 0, None),
            };
            tables.sort_unstable();
            tables.dedup();
            let kind = kind_name(header.kind);
            visit(RecordInfo { shard, lsn, kind, tables, rows, bytes: header.len, id, in_doubt });
            Ok(())
        })?;
    }
    Ok(())
}
