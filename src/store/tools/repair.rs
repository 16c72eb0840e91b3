//! Gets a damaged directory to start again with everything that is intact, and says exactly what is lost.
//!
//! ```text
//!  plan: read everything, change nothing -> refused? -> quarantine copies, report -> lane files: new file, edit -> log: see `log`
//! ```
//!
//! **Lane files.** Extents that are intact move into a new lane file; one edit adds it and drops the damaged file. Of a file that is
//! missing, or whose index is damaged, nothing is known but its size: it is dropped.
//!
//! **The log.** Records are not moved and not rewritten: all that is intact is applied as at a start, moved into lane files with its
//! LSNs as a checkpoint would, and said in a new manifest file, at a checkpoint that is the log's end. There the log begins anew. So
//! no LSN is given twice, and every step but the last leaves either the damaged directory or the repaired one.
//!
//! Refused, with nothing changed: damage of the node's manifest, a lane's guard or a shard's manifest, a log file that is missing at
//! the end or whose header is destroyed, a definition that is lost while rows need it, and stretches that may have had a Seal
//! (see [`super::salvage`]).

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::quarantine::Quarantine;
use super::salvage::{LostStretch, salvage};
use super::site::Site;
use super::tolerant::{self, CheckedFile, Problem, TolerantShard};
use super::verify::{Affected, of_extent, of_record};
use super::walk::{self, LostPart, Part};
use crate::checkpoint::lanes::{Barrier, Lanes};
use crate::error::OpenError;
use crate::fs::FileSystem;
use crate::manifest::Manifest;
use crate::types::{Bucket, Lsn};
use crate::wal::segment;

mod lane;
mod log;

/// Why nothing was repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The directory cannot be opened or written.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It would not be provably right; nothing was changed.
    #[error("not repaired, and nothing was changed: {}", .0.join("; "))]
    Refused(Vec<String>),
}

/// Rows, or what is known of them, that a repair gives up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// A stretch of the log.
    Log(LostStretch),
    /// An extent of a lane file.
    Extent {
        /// The lane file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// The generation.
        generation: Lsn,
        /// Its rows.
        rows: Affected,
    },
    /// A whole lane file, of which only the size is known.
    LaneFile {
        /// The lane file.
        path: PathBuf,
        /// Its extents, those that nobody needed included.
        extents: u32,
        /// Its bytes.
        bytes: u64,
        /// Why nothing more is known.
        what: String,
    },
}

/// What a repair did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Why it would be refused; empty if it would not, and always after a repair.
    pub refusals: Vec<String>,
    /// Files that are damaged, and no longer count after the repair.
    pub damaged: Vec<PathBuf>,
    /// What is lost.
    pub losses: Vec<Loss>,
    /// What was done, in order; what would be done.
    pub actions: Vec<String>,
    /// The copies, and the report among them.
    pub quarantined: Vec<PathBuf>,
}

impl RepairReport {
    /// Whether there was nothing to repair.
    pub fn is_sound(&self) -> bool {
        self.damaged.is_empty() && self.refusals.is_empty()
    }

    /// The rows that are lost, as far as that can be told.
    pub fn rows(&self) -> Vec<Affected> {
        let rows = |loss: &Loss| match loss {
            Loss::Log(stretch) => stretch.records.iter().flat_map(of_record).collect(),
            Loss::Extent { rows, .. } => vec![rows.clone()],
            Loss::LaneFile { .. } => Vec::new(),
        };
        self.losses.iter().flat_map(rows).collect()
    }

    /// The report as text, for the quarantine.
    pub fn text(&self) -> String {
        let mut text = String::from("What a repair of this data directory did\n\n");
        for action in &self.actions {
            text.push_str(&format!("- {action}\n"));
        }
        text.push_str("\nLost\n\n");
        for loss in &self.losses {
            // Writing to a string does not fail.
            let _ = write_loss(&mut text, loss);
        }
        if self.losses.is_empty() {
            text.push_str("- no rows\n");
        }
        text
    }
}

fn write_rows(text: &mut String, rows: &Affected) -> std::fmt::Result {
    let Affected { table, bucket: Bucket { start, width }, rows, lsns: (from, to), is_guess } = rows;
    let guess = if *is_guess { " (as the damaged bytes read)" } else { "" };
    writeln!(text, "  table {table}, bucket {start} of {width} us: {rows} rows, LSN {from} to {to}{guess}")
}

fn write_loss(text: &mut String, loss: &Loss) -> std::fmt::Result {
    match loss {
        Loss::Log(stretch) => {
            let LostStretch { path, offset, from, to, what, .. } = stretch;
            writeln!(text, "- {} from byte {offset}, within LSN {from} to {to}: {what}", path.display())?;
            for record in &stretch.records {
                writeln!(text, "  a record of kind {} at LSN {}, {} bytes", record.kind, record.lsn, record.len)?;
            }
            for (from, to) in &stretch.unknown {
                writeln!(text, "  whatever was at LSN {from} to {to}")?;
            }
            stretch.records.iter().flat_map(of_record).try_for_each(|rows| write_rows(text, &rows))
        }
        Loss::Extent { path, offset, generation, rows } => {
            writeln!(text, "- {} at byte {offset}, of generation {generation}", path.display())?;
            write_rows(text, rows)
        }
        Loss::LaneFile { path, extents, bytes, what } => {
            writeln!(text, "- {}, {extents} extents, {bytes} bytes: {what}", path.display())
        }
    }
}

/// Repairs a stopped node's directory, or says what it would do. No lanes are those of a node that was given none.
///
/// # Errors
/// [`RepairError::Refused`] with nothing changed (in a dry run the report has the reasons); [`OpenError::Locked`] while a server
/// runs; an I/O error, after which another repair goes on.
pub fn repair(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    lanes: &[PathBuf],
    dry_run: bool,
) -> Result<RepairReport, RepairError> {
    let site = Site::open(fs, dir, lanes)?;
    let manifest = site.manifest()?;
    let lanes = Lanes::open(Arc::clone(fs), site.lane_dirs.clone(), manifest.node, Barrier::FdataSync)?;
    let mut report = RepairReport { dry_run, ..RepairReport::default() };
    let mut plans = Vec::new();
    for shard in 0..manifest.shards() {
        plans.extend(plan(&site, &manifest, shard, &mut report)?);
    }
    if dry_run {
        return Ok(report);
    }
    if !report.refusals.is_empty() {
        return Err(RepairError::Refused(report.refusals));
    }
    if plans.is_empty() {
        return Ok(report);
    }
    let keeping = |e: io::Error| OpenError::io("copying into the quarantine")(e);
    let quarantine = Quarantine::open(fs, dir).map_err(keeping)?;
    for path in report.damaged.clone() {
        match quarantine.copy(&path) {
            Ok(copy) => report.quarantined.push(copy),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(keeping(error).into()),
        }
    }
    // MUST BEFORE anything is given up: after a crash in between nothing else says what was lost.
    report.quarantined.push(quarantine.note("report.txt", &report.text()).map_err(keeping)?);
    for plan in plans {
        let shard = plan.shard;
        if !plan.files.is_empty() {
            lane::repair(&lanes, &manifest, plan)?;
        }
        // Not what the plan read: the lane files are other ones now.
        if report.actions.iter().any(|action| *action == log_action(shard)) {
            log::repair(&site, &lanes, &manifest, shard)?;
        }
    }
    Ok(report)
}

/// What is to be done about one shard.
struct Plan {
    shard: u32,
    loaded: TolerantShard,
    /// Lane files to be replaced, by their place in `loaded`.
    files: Vec<usize>,
}

fn log_action(shard: u32) -> String {
    format!("shard {shard}: what is intact of the log moves into a lane file; the log begins anew behind its end")
}

/// None if nothing is to be done.
fn plan(site: &Site, manifest: &Manifest, shard: u32, report: &mut RepairReport) -> Result<Option<Plan>, OpenError> {
    let mut loaded = tolerant::load(site, manifest, shard, true)?;
    let mut files = Vec::new();
    for (number, file) in loaded.files.iter().enumerate() {
        if plan_file(shard, file, report) {
            files.push(number);
        }
    }
    for (number, entry) in CheckedFile::overlaps(&loaded.files) {
        let path = loaded.files[number].path.display();
        report.refusals.push(format!("{path}: {}", tolerant::overlap(&entry)));
    }
    let shard_dir = segment::shard_dir(&site.dir, manifest.layout, shard);
    let (parts, lost) = walk::list(&site.fs, manifest, &shard_dir, shard)?;
    let state = std::mem::take(&mut loaded.state);
    let is_damaged = plan_log(manifest, (shard, &shard_dir), (&parts, &lost), state, loaded.image.checkpoint, report)?;
    if is_damaged {
        report.actions.push(log_action(shard));
    }
    Ok((is_damaged || !files.is_empty()).then_some(Plan { shard, loaded, files }))
}

/// Whether a lane file is to be replaced.
fn plan_file(shard: u32, file: &CheckedFile, report: &mut RepairReport) -> bool {
    let path = || file.path.clone();
    let mut is_damaged = false;
    for problem in &file.problems {
        match problem {
            Problem::Gone(what) | Problem::Index(what) => {
                let (extents, bytes) = (file.reference.extents, file.reference.bytes);
                report.losses.push(Loss::LaneFile { path: path(), extents, bytes, what: what.clone() });
            }
            Problem::Extent(entry) if !file.is_live(entry) => continue,
            Problem::Extent(entry) => {
                let (offset, generation, rows) = (entry.offset, entry.generation, of_extent(entry));
                report.losses.push(Loss::Extent { path: path(), offset, generation, rows });
            }
            Problem::Header(_) => {}
            Problem::Violation(what, _) => report.refusals.push(format!("{}: {what}", file.path.display())),
        }
        is_damaged = true;
    }
    if is_damaged {
        report.damaged.push(path());
        let what = if file.is_lost() { "no longer counts" } else { "is replaced by a file with its intact extents" };
        report.actions.push(format!("shard {shard}: lane file {} {what}", file.path.display()));
    }
    is_damaged
}

/// Whether the log is to begin anew.
fn plan_log(
    manifest: &Manifest,
    (shard, shard_dir): (u32, &Path),
    (parts, lost): (&[Part], &[LostPart]),
    state: crate::bucket::state::ShardState,
    checkpoint: Lsn,
    report: &mut RepairReport,
) -> Result<bool, OpenError> {
    let known = manifest.logs[shard as usize].durable;
    for file in lost {
        // What a later segment begins below the checkpoint, nobody needs.
        let needed = !parts.iter().any(|p| (file.base..=checkpoint).contains(&p.segment.header.base));
        if needed {
            report.refusals.push(format!(
                "{}: {}; its records cannot be found without it",
                file.path.display(),
                file.what
            ));
        }
        report.damaged.push(file.path.clone());
    }
    if parts.is_empty() {
        if lost.is_empty() {
            report.refusals.push(format!("{}: the log of this shard is missing; restore it", shard_dir.display()));
        }
        return Ok(false);
    }
    let salvaged = salvage(state, parts, checkpoint, known, false, &mut |_, _| Ok(()))?;
    let begins_late = parts[0].segment.header.base > checkpoint;
    if begins_late {
        let what = format!("the log from LSN {checkpoint} on is missing, a file before this one; restore it");
        report.refusals.push(format!("{}: {what}", parts[0].segment.path.display()));
    }
    let headers = parts.iter().filter(|p| p.header_damage.is_some());
    let mut paths: Vec<PathBuf> = headers.map(|p| p.segment.path.clone()).collect();
    paths.extend(salvaged.stretches.iter().map(|s| s.path.clone()));
    paths.sort();
    paths.dedup();
    let is_damaged = !paths.is_empty() || !lost.is_empty() || !salvaged.is_sound;
    report.damaged.extend(paths);
    report.refusals.extend(salvaged.refusals);
    let loses = |s: &LostStretch| !s.records.is_empty() || !s.unknown.is_empty();
    report.losses.extend(salvaged.stretches.into_iter().filter(loses).map(Loss::Log));
    Ok(is_damaged)
}
