//! A shard at its checkpoint, as a start would load it; but what is wrong with a lane file is named, and its rows are left out.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::site::Site;
use crate::bucket::extent::LaneFile;
use crate::bucket::generation::Generation;
use crate::bucket::keys::KeyLimits;
use crate::bucket::producer::ProducerLimits;
use crate::bucket::state::MarkLimits;
use crate::bucket::state::ShardState;
use crate::checkpoint::base::{Gathered, Key};
use crate::checkpoint::edit::LaneFileRef;
use crate::checkpoint::edits::EditLog;
use crate::checkpoint::invariants::{self, Image};
use crate::checkpoint::lane_file::{self, ExtentEntry};
use crate::checkpoint::lanes::{Barrier, Lanes};
use crate::error::OpenError;
use crate::fs::OpenMode;
use crate::manifest::Manifest;
use crate::wal::segment;

/// A shard as manifest and lane files describe it.
#[derive(Debug)]
pub struct TolerantShard {
    /// Its manifest; not made sure.
    pub edits: EditLog,
    /// What the edits add up to.
    pub image: Image,
    /// Its tables; what is in no readable lane file is missing.
    pub state: ShardState,
    /// The lane files that the manifest names.
    pub files: Vec<CheckedFile>,
}

/// One lane file that the manifest names.
#[derive(Debug)]
pub struct CheckedFile {
    /// As the manifest has it.
    pub reference: LaneFileRef,
    /// Its name.
    pub path: PathBuf,
    /// The file; none if it is missing or cannot be opened.
    pub file: Option<Arc<LaneFile>>,
    /// Its extents, in file order, as far as the index can be read, and whether a live generation needs each.
    pub extents: Vec<(ExtentEntry, bool)>,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

/// Something wrong with a lane file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// It is missing, too short for its index, or cannot be read. None of its rows can be reached.
    Gone(String),
    /// The header page; the extents are not concerned.
    Header(String),
    /// The index: where the rows are is not known.
    Index(String),
    /// An extent's bytes are not those that were written.
    Extent(ExtentEntry),
    /// Manifest and index contradict each other.
    Violation(String, ExtentEntry),
}

/// How much is remembered to know repeats.
pub(super) fn limits() -> MarkLimits {
    // All that is on disk is kept: how much a start remembers is its own matter.
    let producers = ProducerLimits { max: usize::MAX, idle: Duration::MAX };
    MarkLimits { producers, keys: KeyLimits { max: usize::MAX, keep: Duration::MAX } }
}

/// Loads a shard. With `extents` every extent is read and decoded, one at a time.
///
/// # Errors
/// The shard's manifest is missing or damaged, or an I/O error.
pub fn load(site: &Site, manifest: &Manifest, shard: u32, extents: bool) -> Result<TolerantShard, OpenError> {
    let shard_dir = segment::shard_dir(&site.dir, manifest.layout, shard);
    let mut gathered = Gathered::default();
    let take = |edit| gathered.take(edit).map_err(|v| v.to_string());
    let edits = EditLog::load(&*site.fs, &shard_dir, shard, manifest.node, take)?;
    let Some(edits) = edits else {
        let what = "the shard's manifest (edits-...) is missing; restore it".to_owned();
        return Err(OpenError::Layout { path: shard_dir, what });
    };
    gathered.prepare(limits());
    let lanes = Lanes::unmade(Arc::clone(&site.fs), site.lane_dirs.clone(), Barrier::Auto);
    let references: Vec<_> = gathered.image.files.values().copied().collect();
    let mut sealed: HashMap<Key, Arc<Generation>> = HashMap::new();
    let mut files = Vec::with_capacity(references.len());
    for reference in references {
        let path = lanes.path(shard, reference.lane, reference.id);
        let path = path.map_err(OpenError::io(format!("looking for a lane file of shard {shard}")))?;
        let mut checked = CheckedFile { reference, path, file: None, extents: Vec::new(), problems: Vec::new() };
        checked.open(site, manifest, shard)?;
        checked.read_index(&mut gathered, &mut sealed);
        if extents {
            checked.read_extents();
        }
        files.push(checked);
    }
    let (state, image) = gathered.finish(sealed);
    Ok(TolerantShard { edits, image, state, files })
}

impl CheckedFile {
    fn open(&mut self, site: &Site, manifest: &Manifest, shard: u32) -> Result<(), OpenError> {
        let reading = || OpenError::io(format!("reading {}", self.path.display()));
        let file = match site.fs.open(&self.path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.problems.push(Problem::Gone("the file is missing".to_owned()));
                return Ok(());
            }
            opened => opened.map_err(reading())?,
        };
        let len = file.len().map_err(reading())?;
        let mut page = vec![0; lane_file::HEADER_LEN.min(len) as usize];
        if let Err(error) = file.read_exact_at(&mut page, 0) {
            self.problems.push(Problem::Header(error.to_string()));
        } else {
            match lane_file::Header::decode(&page) {
                Err(error) => self.problems.push(Problem::Header(format!("of a lane file: {error}"))),
                Ok(h) if (h.node, h.shard, h.id) != (manifest.node, shard, self.reference.id) => {
                    let what = format!("this is file {} of shard {} of node {}", h.id, h.shard, h.node);
                    self.problems.push(Problem::Gone(what));
                    return Ok(());
                }
                Ok(_) => {}
            }
        }
        let end = self.reference.index_at.checked_add(self.reference.index_len);
        if len < self.reference.bytes || end.is_none_or(|end| end > self.reference.bytes) {
            let what = format!("{len} bytes long, but {} were written", self.reference.bytes);
            self.problems.push(Problem::Gone(what));
            return Ok(());
        }
        self.file = Some(Arc::new(LaneFile::new(self.reference, self.path.clone(), file)));
        Ok(())
    }

    fn read_index(&mut self, gathered: &mut Gathered, sealed: &mut HashMap<Key, Arc<Generation>>) {
        let Some(file) = self.file.clone() else { return };
        let index = match file.read_index() {
            Ok(index) => index,
            Err(error) => return self.problems.push(Problem::Index(error.to_string())),
        };
        let found = lane_file::decode_index(&index).filter(|entries| {
            let end = entries.last().map_or(lane_file::HEADER_LEN, ExtentEntry::end);
            end == self.reference.index_at && entries.len() == self.reference.extents as usize
        });
        let Some(entries) = found else {
            return self.problems.push(Problem::Index("the index cannot be read".to_owned()));
        };
        for entry in entries {
            let before = file.live_bytes();
            match gathered.attach(&[(Arc::clone(&file), entry)], sealed) {
                Ok(()) => self.extents.push((entry, file.live_bytes() > before)),
                Err(violation) => {
                    self.problems.push(Problem::Violation(violation.to_string(), entry));
                    self.extents.push((entry, true));
                }
            }
        }
    }

    fn read_extents(&mut self) {
        let Some(file) = &self.file else { return };
        for (entry, _) in &self.extents {
            let read = file.read(entry.offset, entry.len, entry.crc);
            if read.ok().and_then(|bytes: Bytes| entry.decode(bytes)).is_none() {
                self.problems.push(Problem::Extent(*entry));
            }
        }
    }

    /// Extents that a live generation needs, and their bytes.
    pub fn live(&self) -> (u64, u64) {
        let live = self.extents.iter().filter(|(_, live)| *live);
        live.fold((0, 0), |(count, bytes), (entry, _)| (count + 1, bytes + u64::from(entry.len)))
    }

    /// Whether a live generation needs the extent at this offset.
    pub fn is_live(&self, entry: &ExtentEntry) -> bool {
        self.extents.iter().any(|(e, live)| *live && e.offset == entry.offset)
    }

    /// Whether its rows, or where they are, can be read at all.
    pub fn is_lost(&self) -> bool {
        self.problems.iter().any(|p| matches!(p, Problem::Gone(_) | Problem::Index(_)))
    }

    /// Generations whose extents overlap (8), with the later extent, among the live ones of `files`.
    pub fn overlaps(files: &[Self]) -> Vec<(usize, ExtentEntry)> {
        let mut by_generation: HashMap<Key, Vec<(usize, ExtentEntry)>> = HashMap::new();
        for (number, file) in files.iter().enumerate() {
            for (entry, _) in file.extents.iter().filter(|(_, live)| *live) {
                let key = (entry.table, entry.bucket, entry.generation);
                by_generation.entry(key).or_default().push((number, *entry));
            }
        }
        let mut found = Vec::new();
        for mut extents in by_generation.into_values() {
            extents.sort_by_key(|(number, e)| (e.first_lsn, e.last_lsn, *number, e.offset));
            // One record may reach over two extents: then they have the same LSN.
            let overlapping = extents.windows(2).filter(|pair| pair[1].1.first_lsn < pair[0].1.last_lsn);
            found.extend(overlapping.map(|pair| pair[1]));
        }
        found
    }
}

/// What is wrong with an extent of [`CheckedFile::overlaps`].
pub(super) fn overlap(entry: &ExtentEntry) -> String {
    let what = format!("extents of generation {} of table {} overlap", entry.generation, entry.table);
    invariants::broken(8, what).to_string()
}
