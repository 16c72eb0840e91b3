//! A shard's log from its first retained byte to its end, group by group, going on behind what is damaged. Memory: one group, or one
//! damaged region, which is at most a segment.
//!
//! The same rule as a start's tells damage from a torn tail: bad bytes that something later shows to have been durable are damage.

use std::path::PathBuf;

use bytes::Bytes;

use crate::error::OpenError;
use crate::types::{Incarnation, Lsn};
use crate::wal::align_group;
use crate::wal::frame;
use crate::wal::group::{self, Kind};
use crate::wal::record::Record;
use crate::wal::scan::{find_later_group, read_at};
use crate::wal::segment::Segment;

mod frames;
mod list;

pub use list::list;

use frames::{Found, group_made_good};

/// A segment of the log, its header read or made good.
#[derive(Debug, Clone)]
pub struct Part {
    /// The segment.
    pub segment: Segment,
    /// What is wrong with its header, although it could be made good.
    pub header_damage: Option<String>,
}

/// A segment file whose header tells nothing.
#[derive(Debug, Clone)]
pub struct LostPart {
    /// The file.
    pub path: PathBuf,
    /// By its name.
    pub base: Lsn,
    /// Why.
    pub what: String,
}

/// A frame that is not intact, but whose header is.
#[derive(Debug, Clone)]
pub struct LostFrame {
    /// Its header.
    pub header: frame::Header,
    /// Its body, as it is now.
    pub body: Bytes,
}

/// A stretch of the log in which something is damaged.
#[derive(Debug, Clone)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The start that wrote the file.
    pub incarnation: Incarnation,
    /// First byte that is not as it was written, in the file.
    pub offset: u64,
    /// First LSN concerned.
    pub from: Lsn,
    /// First LSN behind.
    pub to: Lsn,
    /// What was found.
    pub what: String,
    /// Frames whose header says what they were.
    pub lost: Vec<LostFrame>,
    /// Stretches of which nothing is known: from and to.
    pub unknown: Vec<(Lsn, Lsn)>,
    /// A Seal may have been in an unknown stretch.
    pub may_hide_seal: bool,
    /// Then it may also be one of a start before the one that wrote the file, which wrote it anew.
    pub may_be_older: bool,
    /// Rows may be missing: false for damage in padding or in a header that is not needed.
    pub loses: bool,
}

/// What the walk comes by, in LSN order.
#[derive(Debug)]
pub enum Event<'a> {
    /// A segment begins.
    Segment(&'a Part),
    /// A group, damaged or not; its records follow.
    Group(&'a Part, group::Header),
    /// Damage. Intact records before its first unknown stretch came before it; those within and behind it follow.
    Damage(&'a Damage),
    /// An intact record of a group that is durable.
    Record(&'a Part, Lsn, &'a frame::Header, Record),
    /// An intact record behind the durable end: nobody was told that it is kept.
    InDoubt(&'a Part, Lsn, &'a frame::Header, Record),
}

/// Where the walk ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct End {
    /// First LSN behind all that is intact, damaged or known to have been durable.
    pub end: Lsn,
    /// First LSN that nothing shows to be durable.
    pub durable: Lsn,
    /// Bytes of a torn group lie behind the end.
    pub torn: bool,
    /// Segments that end at or below may be gone.
    pub kept_from: Lsn,
    /// The log says that it goes on in a file that is not there.
    pub goes_on: bool,
}

/// Walks over the segments, which are in LSN order.
///
/// # Errors
/// An I/O error, a record of a newer build, or what `visit` reports.
pub fn walk(
    parts: &[Part],
    known_durable: Lsn,
    visit: &mut dyn FnMut(Event<'_>) -> Result<(), OpenError>,
) -> Result<End, OpenError> {
    let mut end = End { durable: known_durable, ..End::default() };
    let mut lsn = parts.first().map_or(Lsn(0), |p| p.segment.header.base);
    for (i, part) in parts.iter().enumerate() {
        let base = part.segment.header.base;
        if lsn < base {
            visit(Event::Damage(&missing(part, lsn, base)))?;
        }
        lsn = base;
        visit(Event::Segment(part))?;
        end.kept_from = end.kept_from.max(part.segment.header.kept_from);
        let next = parts.get(i + 1).map(|p| p.segment.header.base);
        let file_len = part.segment.file.len().map_err(OpenError::io(part.segment.path.display().to_string()))?;
        let incarnation = |part: &Part| part.segment.header.incarnation;
        let rewrites = i.checked_sub(1).is_none_or(|before| incarnation(&parts[before]) != incarnation(part));
        lsn = Walker { part, next, file_len, rewrites, end: &mut end }.segment(lsn, visit)?;
    }
    end.end = lsn.max(known_durable);
    end.durable = end.durable.max(if end.torn { lsn } else { Lsn(0) });
    Ok(end)
}

fn missing(behind: &Part, from: Lsn, to: Lsn) -> Damage {
    Damage {
        path: behind.segment.path.clone(),
        incarnation: behind.segment.header.incarnation,
        offset: 0,
        from,
        to,
        what: "the log before this file is missing".to_owned(),
        lost: Vec::new(),
        unknown: vec![(from, to)],
        may_hide_seal: true,
        may_be_older: true,
        loses: true,
    }
}

struct Walker<'a> {
    part: &'a Part,
    /// Base of the next segment.
    next: Option<Lsn>,
    file_len: u64,
    /// A start began with it, whose first group may have records of the start before.
    rewrites: bool,
    end: &'a mut End,
}

impl Walker<'_> {
    /// Walks over one segment; answers where it ends.
    fn segment(
        &mut self,
        from: Lsn,
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), OpenError>,
    ) -> Result<Lsn, OpenError> {
        let segment = &self.part.segment;
        let mut lsn = from;
        while self.next.is_none_or(|next| lsn < next) {
            let room = self.next.unwrap_or(segment.limit()).0.saturating_sub(lsn.0);
            let head = read_at(segment, lsn, room.min(group::HEADER_LEN as u64), self.file_len)?;
            let header = group::Header::decode(&head, lsn, segment.header.salt);
            match header.filter(|h| u64::from(h.len) <= room) {
                Some(header) if header.kind == Kind::Group => {
                    self.end.kept_from = self.end.kept_from.max(header.kept_from);
                    let to = Lsn(lsn.0 + align_group(u64::from(header.len)));
                    let found = self.frames(lsn, to, Some(header))?;
                    if found.damage.is_some() && !self.was_durable(lsn)? {
                        return self.torn(lsn, found, visit);
                    }
                    visit(Event::Group(self.part, header))?;
                    self.tell(found, visit)?;
                    lsn = to;
                    self.end.durable = self.end.durable.max(header.durable_lsn);
                }
                Some(header) if self.next.is_none() => {
                    self.end.kept_from = self.end.kept_from.max(header.kept_from);
                    self.end.durable = self.end.durable.max(lsn);
                    self.end.goes_on = header.kind == Kind::Onward;
                    return Ok(lsn);
                }
                note => {
                    let later = find_later_group(segment, lsn, self.file_len)?
                        .filter(|l| Some(*l) < self.next.or(Some(Lsn(u64::MAX))));
                    let known = Some(self.end.durable).filter(|d| *d > lsn);
                    let Some(to) = later.or(self.next).or(known) else {
                        if !self.written(lsn)? {
                            return Ok(lsn);
                        }
                        self.end.torn = true;
                        let found = self.frames(lsn, segment.limit(), None)?;
                        return self.torn(lsn, found, visit);
                    };
                    let good = if note.is_none() { group_made_good(&head, lsn, segment.header.salt) } else { None };
                    let good = good.filter(|h| h.kind == Kind::Group && lsn.0 + align_group(u64::from(h.len)) == to.0);
                    let mut found = self.frames(lsn, to, good)?;
                    if let Some(damage) = &mut found.damage
                        && note.is_some()
                    {
                        damage.what = "the log says that it ends here, but it goes on".to_owned();
                    }
                    self.tell(found.with_damaged_header(self.part, (lsn, to)), visit)?;
                    lsn = to;
                }
            }
        }
        Ok(lsn)
    }

    /// Whether something shows that bad bytes at `lsn` had been durable.
    fn was_durable(&self, lsn: Lsn) -> Result<bool, OpenError> {
        let later = || find_later_group(&self.part.segment, lsn, self.file_len);
        Ok(self.next.is_some() || self.end.durable > lsn || later()?.is_some())
    }

    /// Whether a group's first frame is at `lsn`. What an earlier use of the file left counts as nothing.
    fn written(&self, lsn: Lsn) -> Result<bool, OpenError> {
        let segment = &self.part.segment;
        let first = Lsn(lsn.0 + group::HEADER_LEN as u64);
        let head = read_at(segment, first, frame::HEADER_LEN as u64, self.file_len)?;
        Ok(frame::read_header(&head, first, segment.header.salt).is_some())
    }

    fn torn(
        &mut self,
        lsn: Lsn,
        found: Found,
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), OpenError>,
    ) -> Result<Lsn, OpenError> {
        self.end.torn |= found.header.is_some();
        for (at, header, record) in found.records {
            visit(Event::InDoubt(self.part, at, &header, record))?;
        }
        Ok(lsn)
    }

    fn tell(&self, found: Found, visit: &mut dyn FnMut(Event<'_>) -> Result<(), OpenError>) -> Result<(), OpenError> {
        let mut damage = found.damage.as_ref();
        let from = damage.map(|d| d.unknown.first().map_or(d.from, |(from, _)| *from));
        for (lsn, header, record) in found.records {
            if from.is_some_and(|from| lsn >= from)
                && let Some(damage) = damage.take()
            {
                visit(Event::Damage(damage))?;
            }
            visit(Event::Record(self.part, lsn, &header, record))?;
        }
        damage.map_or(Ok(()), |damage| visit(Event::Damage(damage)))
    }
}

impl LostFrame {
    /// The record as its damaged body reads: not to be relied upon, but what an operator looks for first. None if it makes no sense.
    pub fn guess(&self) -> Option<Record> {
        Record::decode(&self.header, &self.body)
    }
}
