//! Reading a shard's log back, and telling a torn tail from corruption.
//!
//! Only the last group can be in doubt: the owner writes the next one after the sync of the one before. So bad bytes are a torn
//! tail if nothing later shows that they had been durable: no later segment, no later group or mark in the same segment, no
//! durable point in the manifest. Anything else is damage to rows that were acknowledged, and the start is refused with the file
//! and the offset. What is intact of the last group is handed back to be written anew, because page-cache pages that a failed sync
//! left clean would otherwise be read today and be gone tomorrow.

use bytes::Bytes;

use super::frame;
use super::group::{self, Kind};
use super::record::Record;
use super::segment::Segment;
use super::{GROUP_ALIGN, align_group};
use crate::error::OpenError;
use crate::types::Lsn;

/// Where the durable part ends, and what of the last group is to be written anew from there.
#[derive(Debug)]
pub struct Tail {
    /// The log has said that what lies below may be gone.
    pub kept_from: Lsn,
    /// First LSN that is not known to be durable.
    pub end: Lsn,
    /// Intact records of groups behind the end.
    pub in_doubt: Vec<Record>,
    /// An intact group is among them, which may have been acknowledged: it keeps its place, records or not.
    pub holds_group: bool,
    /// Bytes of a torn group were found behind the end.
    pub torn: bool,
}

/// Why a durable record is not applied.
#[derive(Debug)]
pub enum Refusal {
    /// It contradicts those before it.
    Contradiction(String),
    /// Something else failed.
    Failed(OpenError),
}

/// A group that may still turn out to be the last one.
struct Held<'a> {
    segment: &'a Segment,
    lsn: Lsn,
    end: Lsn,
    records: Vec<(Lsn, Record)>,
}

/// What stands at a position where a group should start.
enum Found {
    Group {
        header: group::Header,
        records: Vec<(Lsn, Record)>,
    },
    Note(group::Header),
    /// No intact group. `header` if there is one; the frames that are intact all the same.
    Bad {
        header: Option<group::Header>,
        salvaged: Vec<Record>,
        offset: u64,
    },
}

/// Replays the segments (in LSN order, at least one) from `from` on, where a group starts, calling `apply` for each durable record in
/// LSN order. What lies below is not looked at.
///
/// # Errors
/// Corruption, missing segments, an I/O error, or what `apply` reports (with its position).
pub fn replay(
    segments: &[Segment],
    from: Lsn,
    known_durable: Lsn,
    mut apply: impl FnMut(Lsn, Record) -> Result<(), Refusal>,
) -> Result<Tail, OpenError> {
    let mut durable = known_durable;
    let mut kept_from = Lsn(0);
    let mut held: Option<Held<'_>> = None;
    let needed = segments.iter().skip(1).take_while(|s| s.header.base <= from).count();
    let segments = &segments[needed.min(segments.len())..];
    let mut tail = Tail { kept_from: Lsn(0), end: from, in_doubt: Vec::new(), holds_group: false, torn: false };
    for (i, segment) in segments.iter().enumerate() {
        let next = segments.get(i + 1).map(|s| s.header.base);
        // The next segment was activated after the last sync in this one.
        durable = durable.max(next.unwrap_or_default());
        kept_from = kept_from.max(segment.header.kept_from);
        let mut lsn = if i == 0 { segment.header.base.max(from) } else { segment.header.base };
        if lsn != tail.end {
            return Err(missing(segment, tail.end, "before"));
        }
        let file_len = segment.file.len().map_err(OpenError::io(segment.path.display().to_string()))?;
        while next != Some(lsn) {
            match read_group(segment, lsn, file_len)? {
                Found::Group { header, records } => {
                    durable = durable.max(header.durable_lsn);
                    kept_from = kept_from.max(header.kept_from);
                    let end = Lsn(lsn.0 + align_group(u64::from(header.len)));
                    if next.is_some_and(|n| end > n) {
                        return Err(corrupt(segment, lsn, "a group reaches into the next segment"));
                    }
                    release(held.replace(Held { segment, lsn, end, records }), &mut apply)?;
                    lsn = end;
                }
                Found::Note(header) if header.kind == Kind::Onward => return Err(missing(segment, lsn, "behind")),
                Found::Note(_) if next.is_some() => {
                    return Err(corrupt(segment, lsn, "the log ends here, but a later segment exists"));
                }
                Found::Note(header) => {
                    durable = durable.max(header.durable_lsn);
                    kept_from = kept_from.max(header.kept_from);
                    break;
                }
                Found::Bad { header, salvaged, offset } => {
                    durable = durable.max(header.map_or(Lsn(0), |h| h.durable_lsn));
                    kept_from = kept_from.max(header.map_or(Lsn(0), |h| h.kept_from));
                    let later = find_later_group(segment, lsn, file_len)?;
                    if durable > lsn || later.is_some() {
                        let seen = later.map_or_else(String::new, |l| format!(", and the log goes on at LSN {l}"));
                        let what = format!("a record that had been acknowledged is unreadable{seen}");
                        return Err(OpenError::corrupt(&segment.path, offset, lsn, &what));
                    }
                    tail.torn = header.is_some() || !salvaged.is_empty();
                    tail.in_doubt = salvaged;
                    break;
                }
            }
        }
        tail.end = lsn;
    }
    tail.kept_from = kept_from;
    let Some(last) = held else { return Ok(tail) };
    if last.end <= durable {
        release(Some(last), &mut apply)?;
        return Ok(tail);
    }
    tail.end = last.lsn;
    tail.holds_group = true;
    let torn = std::mem::take(&mut tail.in_doubt);
    tail.in_doubt = last.records.into_iter().map(|(_, record)| record).chain(torn).collect();
    Ok(tail)
}

fn release(
    held: Option<Held<'_>>,
    apply: &mut impl FnMut(Lsn, Record) -> Result<(), Refusal>,
) -> Result<(), OpenError> {
    let Some(Held { segment, records, .. }) = held else { return Ok(()) };
    for (lsn, record) in records {
        apply(lsn, record).map_err(|refusal| match refusal {
            Refusal::Contradiction(what) => corrupt(segment, lsn, &what),
            Refusal::Failed(error) => error,
        })?;
    }
    Ok(())
}

fn corrupt(segment: &Segment, lsn: Lsn, what: &str) -> OpenError {
    OpenError::corrupt(&segment.path, segment.offset_of(lsn), lsn, what)
}

fn missing(segment: &Segment, from: Lsn, side: &str) -> OpenError {
    let what = format!("the log from LSN {from} on is missing, a file {side} this one; restore it");
    OpenError::Layout { path: segment.path.clone(), what }
}

/// Reads what is there of `len` bytes at `lsn`: fewer where the file ends.
pub(crate) fn read_at(segment: &Segment, lsn: Lsn, len: u64, file_len: u64) -> Result<Vec<u8>, OpenError> {
    let offset = segment.offset_of(lsn);
    let len = len.min(file_len.saturating_sub(offset));
    let mut bytes = vec![0; usize::try_from(len).expect("should fit the address space")];
    if bytes.is_empty() {
        return Ok(bytes);
    }
    // Nothing is concluded from bytes that could not be read: taken for a torn tail, they would be acknowledged rows lost.
    let read = segment.file.read_exact_at(&mut bytes, offset);
    read.map_err(OpenError::io(format!("reading {} at byte {offset}", segment.path.display())))?;
    Ok(bytes)
}

fn read_group(segment: &Segment, lsn: Lsn, file_len: u64) -> Result<Found, OpenError> {
    let salt = segment.header.salt;
    let room = segment.limit().0.saturating_sub(lsn.0);
    let head = read_at(segment, lsn, room.min(group::HEADER_LEN as u64), file_len)?;
    let header = group::Header::decode(&head, lsn, salt).filter(|h| u64::from(h.len) <= room);
    if let Some(header) = header.filter(|h| h.kind != Kind::Group) {
        return Ok(Found::Note(header));
    }
    // Without a header the frames may be whole all the same; they say their own lengths.
    let wanted = header.map_or(room, |h| align_group(u64::from(h.len)).min(room));
    if header.is_none() && !frame_follows(segment, lsn, room, file_len)? {
        return Ok(Found::Bad { header: None, salvaged: Vec::new(), offset: segment.offset_of(lsn) });
    }
    let bytes = Bytes::from(read_at(segment, lsn, wanted, file_len)?);
    let Frames { records, complete, bad_at } = read_frames(segment, lsn, &bytes, header)?;
    match header {
        Some(header) if complete => Ok(Found::Group { header, records }),
        _ => Ok(Found::Bad {
            header,
            salvaged: records.into_iter().map(|(_, record)| record).collect(),
            offset: segment.offset_of(lsn) + if header.is_some() { bad_at as u64 } else { 0 },
        }),
    }
}

fn frame_follows(segment: &Segment, lsn: Lsn, room: u64, file_len: u64) -> Result<bool, OpenError> {
    let first = Lsn(lsn.0 + group::HEADER_LEN as u64);
    let len = room.saturating_sub(group::HEADER_LEN as u64).min(frame::HEADER_LEN as u64);
    let head = read_at(segment, first, len, file_len)?;
    Ok(frame::read_header(&head, first, segment.header.salt).is_some())
}

struct Frames {
    records: Vec<(Lsn, Record)>,
    complete: bool,
    /// Offset in the group of the first frame that is not intact.
    bad_at: usize,
}

/// Walks a group's frames. A frame with a sound header and a damaged body is stepped over; a damaged header ends the walk. The zeros
/// between and behind them count too: they were written with the rest.
fn read_frames(segment: &Segment, lsn: Lsn, bytes: &Bytes, group: Option<group::Header>) -> Result<Frames, OpenError> {
    let wanted = group.map(|g| g.frames as usize);
    let mut found = Frames { records: Vec::new(), complete: true, bad_at: 0 };
    let mut at = group::HEADER_LEN;
    let mut seen = 0;
    while wanted.is_none_or(|w| seen < w) {
        let here = Lsn(lsn.0 + at as u64);
        let header = bytes.get(at..).and_then(|b| frame::read_header(b, here, segment.header.salt));
        let Some(header) = header else {
            found.fail(at);
            return Ok(found);
        };
        let end = at + header.len as usize;
        let body = (end <= bytes.len()).then(|| bytes.slice(at + frame::HEADER_LEN..end));
        match body.filter(|b| frame::body_crc([&b[..]]) == header.body_crc) {
            Some(body) => {
                let record = Record::decode(&header, &body).ok_or_else(|| OpenError::Layout {
                    path: segment.path.clone(),
                    what: format!(
                        "LSN {here}: a record of kind {} version {} that this build does not know",
                        header.kind, header.version
                    ),
                })?;
                found.records.push((here, record));
            }
            None => found.fail(at),
        }
        let next = at + frame::padded_len(header.len as usize);
        found.check_zeros(bytes, end, next);
        seen += 1;
        at = next;
    }
    found.check_zeros(bytes, at, bytes.len());
    Ok(found)
}

impl Frames {
    fn fail(&mut self, at: usize) {
        if self.complete {
            self.complete = false;
            self.bad_at = at;
        }
    }

    fn check_zeros(&mut self, bytes: &[u8], from: usize, to: usize) {
        // A file that ends in the padding was trimmed, and lacks nothing.
        let padding = bytes.get(from..to.min(bytes.len())).unwrap_or_default();
        if let Some(i) = padding.iter().position(|b| *b != 0) {
            self.fail(from + i);
        }
    }
}

/// The first group or mark of this segment behind `lsn`, if any: proof that what lies at `lsn` had been durable.
pub(crate) fn find_later_group(segment: &Segment, lsn: Lsn, file_len: u64) -> Result<Option<Lsn>, OpenError> {
    const CHUNK: u64 = 1 << 20;
    let mut at = lsn.0 + GROUP_ALIGN;
    let limit = segment.limit().0;
    while at < limit && segment.offset_of(Lsn(at)) < file_len {
        let bytes = read_at(segment, Lsn(at), CHUNK.min(limit - at), file_len)?;
        for (i, page) in bytes.chunks(GROUP_ALIGN as usize).enumerate() {
            let here = Lsn(at + i as u64 * GROUP_ALIGN);
            if group::Header::decode(page, here, segment.header.salt).is_some() {
                return Ok(Some(here));
            }
        }
        at += CHUNK;
    }
    Ok(None)
}
