//! Every checksum and every invariant of a stopped node's directory. A finding does not end the check.
//!
//! An **error** is what a start or a read would refuse, or rows that cannot be read. A **note** is what nobody needs: orphan files,
//! damage below the checkpoint or in what Delta has, a torn tail.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::salvage::{LostRecord, salvage, stretch};
use super::site::Site;
use super::tolerant::{self, CheckedFile, Problem, TolerantShard};
use super::walk::{self, Event, Part};
use crate::checkpoint::invariants;
use crate::checkpoint::lane_file::ExtentEntry;
use crate::checkpoint::lanes::{self, Barrier, Lanes};
use crate::checkpoint::{edit_file, lane_file};
use crate::error::OpenError;
use crate::fs::FileSystem;
use crate::manifest::{FILE_NAME, Manifest};
use crate::types::{Bucket, Lsn, TableId};
use crate::wal::segment;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nobody needs what is concerned.
    Note,
    /// Refused by a start or by a read, or rows are lost.
    Error,
}

/// Rows that a finding concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affected {
    /// The table.
    pub table: TableId,
    /// The bucket.
    pub bucket: Bucket,
    /// Rows.
    pub rows: u64,
    /// LSNs of the first and of the last record concerned.
    pub lsns: (Lsn, Lsn),
    /// Whether it is read from damaged bytes, and may be wrong.
    pub is_guess: bool,
}

/// Something that is not as it was written, or not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The shard; none for what is the node's.
    pub shard: Option<u32>,
    /// The file or directory.
    pub path: PathBuf,
    /// Where in the file.
    pub offset: Option<u64>,
    /// Log position: the first one concerned, and the first one behind.
    pub lsns: Option<(Lsn, Lsn)>,
    /// What was found.
    pub what: String,
    /// The rows concerned, as far as that can be told.
    pub rows: Vec<Affected>,
}

/// What was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Groups of the log.
    pub groups: u64,
    /// Records of the log.
    pub records: u64,
    /// Extents in lane files.
    pub extents: u64,
    /// Edits of the shards' manifests since their snapshots began.
    pub edits: u64,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// What was checked.
    pub checked: Checked,
    /// What was found, in the order of the check.
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    /// Findings that are errors.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|f| f.severity == Severity::Error)
    }
}

/// Checks a stopped node's directory. No lanes are those of a node that was given none.
///
/// # Errors
/// [`OpenError::Locked`] while a server runs; no data directory; another number of lanes; an I/O error. Damage is a finding.
pub fn verify(fs: &Arc<dyn FileSystem>, dir: &Path, lanes: &[PathBuf]) -> Result<VerifyReport, OpenError> {
    let site = Site::open(fs, dir, lanes)?;
    let mut check = Check { site: &site, report: VerifyReport::default() };
    let manifest = match site.manifest() {
        Ok(manifest) => manifest,
        // Without it nothing is known of the rest: not even the number of shards.
        Err(refused) => {
            check.refused(None, &dir.join(FILE_NAME), refused)?;
            return Ok(check.report);
        }
    };
    check.file(&dir.join(FILE_NAME))?;
    check.guards(&manifest)?;
    for shard in 0..manifest.shards() {
        check.shard(&manifest, shard)?;
    }
    check.orphan_lane_files(&manifest)?;
    Ok(check.report)
}

struct Check<'a> {
    site: &'a Site,
    report: VerifyReport,
}

impl Check<'_> {
    fn find(&mut self, severity: Severity, shard: Option<u32>, path: &Path, what: impl Into<String>) -> &mut Finding {
        let (path, what) = (path.to_owned(), what.into());
        self.report.findings.push(Finding { severity, shard, path, offset: None, lsns: None, what, rows: Vec::new() });
        self.report.findings.last_mut().expect("should have what was just pushed")
    }

    /// A refusal that says what is wrong with a file is a finding; others end the check.
    fn refused(&mut self, shard: Option<u32>, path: &Path, refused: OpenError) -> Result<(), OpenError> {
        match refused {
            OpenError::Corrupt { path, offset, what } => {
                self.find(Severity::Error, shard, &path, what).offset = Some(offset);
            }
            OpenError::Layout { path, what } => drop(self.find(Severity::Error, shard, &path, what)),
            OpenError::Io { ref source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                self.find(Severity::Error, shard, path, refused.to_string());
            }
            other => return Err(other),
        }
        Ok(())
    }

    fn file(&mut self, path: &Path) -> Result<(), OpenError> {
        let reading = || OpenError::io(format!("reading {}", path.display()));
        let file = self.site.fs.open(path, crate::fs::OpenMode::Read).map_err(reading())?;
        self.report.checked.files += 1;
        self.report.checked.bytes += file.len().map_err(reading())?;
        Ok(())
    }

    fn guards(&mut self, manifest: &Manifest) -> Result<(), OpenError> {
        for (lane, dir) in (0..).zip(&self.site.lane_dirs) {
            match lanes::check_guard(&*self.site.fs, dir, manifest.node, lane) {
                Ok(()) => self.file(&dir.join(lanes::GUARD_NAME))?,
                Err(refused) => self.refused(None, dir, refused)?,
            }
        }
        Ok(())
    }

    fn shard(&mut self, manifest: &Manifest, shard: u32) -> Result<(), OpenError> {
        let shard_dir = segment::shard_dir(&self.site.dir, manifest.layout, shard);
        let loaded = match tolerant::load(self.site, manifest, shard, true) {
            Ok(loaded) => Some(loaded),
            Err(refused) => {
                self.refused(Some(shard), &shard_dir, refused)?;
                None
            }
        };
        let listed = match walk::list(&self.site.fs, manifest, &shard_dir, shard) {
            Ok(listed) => listed,
            Err(refused) => return self.refused(Some(shard), &shard_dir, refused),
        };
        let known = manifest.logs[shard as usize];
        let (parts, lost) = listed;
        for part in &lost {
            self.file(&part.path)?;
            let found = self.find(Severity::Error, Some(shard), &part.path, part.what.clone());
            (found.offset, found.lsns) = (Some(0), Some((part.base, part.base)));
        }
        let mut checkpoint = Lsn(0);
        if let Some(loaded) = &loaded {
            checkpoint = loaded.image.checkpoint;
            self.file(loaded.edits.path())?;
            self.report.checked.edits += loaded.image.sequence;
            if loaded.edits.is_torn() {
                let what = "a torn edit at the end, which nothing was done on the word of; the next start cuts it off";
                self.find(Severity::Note, Some(shard), loaded.edits.path(), what).offset =
                    Some(loaded.edits.len_bytes());
            }
            for file in &loaded.files {
                self.lane_file(shard, file)?;
            }
            for (number, entry) in CheckedFile::overlaps(&loaded.files) {
                let path = loaded.files[number].path.clone();
                let found = self.find(Severity::Error, Some(shard), &path, tolerant::overlap(&entry));
                found.rows.push(of_extent(&entry));
            }
        }
        if parts.is_empty() {
            if lost.is_empty() {
                self.find(Severity::Error, Some(shard), &shard_dir, "the log of this shard is missing");
            }
            return Ok(());
        }
        let end = self.log(shard, &parts, checkpoint, known.durable)?;
        if let Some(TolerantShard { image, state, edits, .. }) = loaded {
            let bases: Vec<Lsn> = parts.iter().map(|p| p.segment.header.base).collect();
            if let Err(violation) = invariants::check_log(&bases, end.kept_from, &image) {
                self.find(Severity::Error, Some(shard), &shard_dir, violation.to_string());
            }
            let is_gone = bases[0] < known.segment && !bases.contains(&known.segment);
            if is_gone && !lost.iter().any(|l| l.base == known.segment) {
                let what = format!("{} is missing", segment::file_name(known.segment));
                self.find(Severity::Error, Some(shard), &shard_dir, what);
            }
            // What the records say together; damage has been told.
            let salvaged = salvage(state, &parts, image.checkpoint, known.durable, false, &mut |_, _| Ok(()))?;
            for what in salvaged.refusals {
                self.find(Severity::Error, Some(shard), &shard_dir, what);
            }
            self.older_edits(shard, &shard_dir, edits.number())?;
        }
        Ok(())
    }

    fn log(&mut self, shard: u32, parts: &[Part], checkpoint: Lsn, known: Lsn) -> Result<walk::End, OpenError> {
        for part in parts {
            self.file(&part.segment.path)?;
            if let Some(what) = &part.header_damage {
                self.find(Severity::Error, Some(shard), &part.segment.path, what.clone()).offset = Some(0);
            }
        }
        let mut damages = Vec::new();
        let checked = &mut self.report.checked;
        let end = walk::walk(parts, known, &mut |event| {
            match event {
                Event::Group(..) => checked.groups += 1,
                Event::Record(..) | Event::InDoubt(..) => checked.records += 1,
                Event::Damage(damage) => damages.push(stretch(damage)),
                Event::Segment(_) => {}
            }
            Ok(())
        })?;
        for damage in damages {
            let needed = damage.to > checkpoint;
            let (severity, suffix) = if needed {
                (Severity::Error, "")
            } else {
                (Severity::Note, "; below the checkpoint, nobody needs it")
            };
            let mut what = format!("{}{suffix}", damage.what);
            for (from, to) in &damage.unknown {
                what.push_str(&format!("; nothing is known of LSN {from} to {to}"));
            }
            let found = self.find(severity, Some(shard), &damage.path, what);
            found.offset = Some(damage.offset);
            found.lsns = Some((damage.from, damage.to));
            found.rows = damage.records.iter().flat_map(of_record).collect();
        }
        if let Some(last) = parts.last().filter(|_| end.torn) {
            let what = "a torn group at the end, which nobody was told of; the next start leaves it out";
            self.find(Severity::Note, Some(shard), &last.segment.path, what).lsns = Some((end.end, end.end));
        }
        Ok(end)
    }

    fn lane_file(&mut self, shard: u32, file: &CheckedFile) -> Result<(), OpenError> {
        if file.file.is_some() {
            self.file(&file.path)?;
        }
        self.report.checked.extents += file.extents.len() as u64;
        for problem in &file.problems {
            let reference = file.reference;
            let lost = format!("{} extents, {} bytes", reference.extents, reference.bytes);
            let (offset, what, entry) = match problem {
                Problem::Gone(what) => (0, format!("{what}; rows are lost with it: {lost}"), None),
                Problem::Header(what) => (0, what.clone(), None),
                Problem::Index(what) => (reference.index_at, format!("{what}; rows are lost with it: {lost}"), None),
                Problem::Extent(entry) => (entry.offset, "rows do not match their checksum".to_owned(), Some(entry)),
                Problem::Violation(what, entry) => (reference.index_at, what.clone(), Some(entry)),
            };
            let dead = matches!(problem, Problem::Extent(entry) if !file.is_live(entry));
            let (severity, what) = if dead {
                (Severity::Note, format!("{what}; Delta has them, nobody needs them here"))
            } else {
                (Severity::Error, what)
            };
            let found = self.find(severity, Some(shard), &file.path, what);
            found.offset = Some(offset);
            found.lsns = entry.map(|e| (e.first_lsn, e.last_lsn));
            found.rows = entry.map(of_extent).into_iter().collect();
        }
        Ok(())
    }

    fn older_edits(&mut self, shard: u32, dir: &Path, number: u64) -> Result<(), OpenError> {
        for name in self.site.fs.list(dir).map_err(OpenError::io(format!("listing {}", dir.display())))? {
            if edit_file::parse_file_name(&name).is_some_and(|n| n < number) {
                self.find(
                    Severity::Note,
                    Some(shard),
                    &dir.join(name),
                    "an older manifest of the shard; nobody needs it",
                );
            }
        }
        Ok(())
    }

    /// Lane files that no manifest names: what a crash left.
    fn orphan_lane_files(&mut self, manifest: &Manifest) -> Result<(), OpenError> {
        let lanes = Lanes::unmade(Arc::clone(&self.site.fs), self.site.lane_dirs.clone(), Barrier::Auto);
        for shard in 0..manifest.shards() {
            let Ok(loaded) = tolerant::load(self.site, manifest, shard, false) else { continue };
            // A lane that is not there has been told.
            for (lane, id) in lanes.list(shard).unwrap_or_default() {
                if loaded.files.iter().any(|f| (f.reference.lane, f.reference.id) == (lane, id)) {
                    continue;
                }
                let path = self.site.lane_dirs[lane as usize].join(lane_file::file_name(shard, id));
                self.find(Severity::Note, Some(shard), &path, "a lane file that no manifest names; nobody needs it");
            }
        }
        Ok(())
    }
}

/// The rows of an extent.
pub(super) fn of_extent(entry: &ExtentEntry) -> Affected {
    Affected {
        table: entry.table,
        bucket: entry.bucket,
        rows: u64::from(entry.rows),
        lsns: (entry.first_lsn, entry.last_lsn),
        is_guess: false,
    }
}

/// The rows of a record whose frame's header is intact, as its damaged body reads.
pub(super) fn of_record(record: &LostRecord) -> impl Iterator<Item = Affected> {
    record.slices.iter().map(|(table, bucket, rows)| Affected {
        table: *table,
        bucket: *bucket,
        rows: u64::from(*rows),
        lsns: (record.lsn, record.lsn),
        is_guess: true,
    })
}
