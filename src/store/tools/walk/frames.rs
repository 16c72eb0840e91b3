//! The frames of one group, or of a stretch where groups should be: which are intact, which are lost, and where nothing is known.

use bytes::Bytes;

use super::{Damage, LostFrame, Part, Walker};
use crate::error::OpenError;
use crate::types::Lsn;
use crate::wal::frame;
use crate::wal::group;
use crate::wal::record::Record;
use crate::wal::scan::read_at;
use crate::wal::segment::Segment;

/// Smallest frame of any kind: a definition without a body.
const SMALLEST_FRAME: u64 = 56;
/// Bytes of the frame of a Seal.
const SEAL_FRAME: u64 = 88;
const KIND_SEAL: u8 = 2;
const KIND_COMMIT: u8 = 3;

/// A group's header of which one byte was changed.
pub(super) fn group_made_good(head: &[u8], lsn: Lsn, salt: u64) -> Option<group::Header> {
    let mut head = head.get(..group::HEADER_LEN)?.to_vec();
    for at in 0..head.len() {
        for change in 1..=u8::MAX {
            head[at] ^= change;
            if let Some(header) = group::Header::decode(&head, lsn, salt) {
                return Some(header);
            }
            head[at] ^= change;
        }
    }
    None
}

/// The body of a Seal or a Commit of which one byte was changed: short enough that its checksum leaves no doubt. Without a Seal it
/// could not be told which rows are in the lake.
fn body_made_good(header: &frame::Header, body: &Bytes) -> Option<Bytes> {
    if !matches!(header.kind, KIND_SEAL | KIND_COMMIT) || frame::body_crc([&body[..]]) == header.body_crc {
        return None;
    }
    let mut guess = body.to_vec();
    for at in 0..guess.len() {
        for change in 1..=u8::MAX {
            guess[at] ^= change;
            if frame::body_crc([&guess[..]]) == header.body_crc {
                return Some(Bytes::from(guess));
            }
            guess[at] ^= change;
        }
    }
    None
}

impl Walker<'_> {
    /// The frames between a group's start and `to`. Behind a frame whose header is damaged, the next one is looked for: its own
    /// header names its LSN, so that nothing else passes for it.
    pub(super) fn frames(&self, lsn: Lsn, to: Lsn, group: Option<group::Header>) -> Result<Found, OpenError> {
        let segment = &self.part.segment;
        let bytes = Bytes::from(read_at(segment, lsn, to.0 - lsn.0, self.file_len)?);
        let salt = segment.header.salt;
        let wanted = group.map(|g| g.frames as usize);
        let used = group.map_or(bytes.len(), |g| (g.len as usize).min(bytes.len()));
        let mut state = FrameWalk { bad_at: group.is_none().then_some(0), ..FrameWalk::default() };
        let mut at = group::HEADER_LEN;
        while wanted.is_none_or(|w| state.seen < w) && at + frame::HEADER_LEN <= used {
            let here = Lsn(lsn.0 + at as u64);
            let Some(header) = frame::read_header(&bytes[at..], here, salt).filter(|h| at + h.len as usize <= used)
            else {
                let aligned =
                    (at + frame::FRAME_ALIGN..used.saturating_sub(frame::HEADER_LEN - 1)).step_by(frame::FRAME_ALIGN);
                let is_frame = |i: &usize| frame::read_header(&bytes[*i..], Lsn(lsn.0 + *i as u64), salt).is_some();
                let next = aligned.into_iter().find(is_frame).unwrap_or(used);
                state.bad(at);
                state.unknown.push((here, Lsn(lsn.0 + next as u64)));
                at = next;
                continue;
            };
            let end = at + header.len as usize;
            let body = bytes.slice(at + frame::HEADER_LEN..end);
            let good = body_made_good(&header, &body);
            if good.is_some() || frame::body_crc([&body[..]]) == header.body_crc {
                if good.is_some() {
                    state.bad(at);
                }
                let body = good.unwrap_or(body);
                let record = Record::decode(&header, &body).ok_or_else(|| unknown_record(segment, here, &header))?;
                state.records.push((here, header, record));
            } else {
                state.bad(at);
                state.lost.push(LostFrame { header, body });
            }
            state.seen += 1;
            at = end.next_multiple_of(frame::FRAME_ALIGN);
            state.check_zeros(&bytes, end, at);
        }
        if group.is_some() {
            state.check_zeros(&bytes, at, bytes.len());
        }
        let missing = wanted.map(|w| w - state.seen.min(w));
        Ok(state.into_found((self.part, self.rewrites), (lsn, to), group, missing))
    }
}

fn unknown_record(segment: &Segment, lsn: Lsn, header: &frame::Header) -> OpenError {
    let what =
        format!("LSN {lsn}: a record of kind {} version {} that this build does not know", header.kind, header.version);
    OpenError::Layout { path: segment.path.clone(), what }
}

#[derive(Default)]
struct FrameWalk {
    records: Vec<(Lsn, frame::Header, Record)>,
    lost: Vec<LostFrame>,
    unknown: Vec<(Lsn, Lsn)>,
    bad_at: Option<usize>,
    seen: usize,
}

/// What was found where a group is, or should be.
pub(super) struct Found {
    pub(super) header: Option<group::Header>,
    pub(super) records: Vec<(Lsn, frame::Header, Record)>,
    pub(super) damage: Option<Damage>,
}

impl FrameWalk {
    fn bad(&mut self, at: usize) {
        self.bad_at = Some(self.bad_at.map_or(at, |before| before.min(at)));
    }

    fn check_zeros(&mut self, bytes: &[u8], from: usize, to: usize) {
        // A file that ends in the padding was trimmed, and lacks nothing.
        let padding = bytes.get(from..to.min(bytes.len())).unwrap_or_default();
        if let Some(i) = padding.iter().position(|b| *b != 0) {
            self.bad(from + i);
        }
    }

    fn into_found(
        mut self,
        (part, rewrites): (&Part, bool),
        (from, to): (Lsn, Lsn),
        group: Option<group::Header>,
        missing: Option<usize>,
    ) -> Found {
        if missing.is_some_and(|m| m > 0) && self.unknown.is_empty() {
            self.bad(group::HEADER_LEN);
            self.unknown.push((Lsn(from.0 + group::HEADER_LEN as u64), to));
        }
        let Some(bad_at) = self.bad_at else { return Found { header: group, records: self.records, damage: None } };
        let unknown_bytes: u64 = self.unknown.iter().map(|(a, b)| b.0 - a.0).sum();
        let may_hide_seal = match missing {
            Some(0) => false,
            Some(1) => unknown_bytes.next_multiple_of(frame::FRAME_ALIGN as u64) == SEAL_FRAME,
            Some(n) => unknown_bytes >= SEAL_FRAME + (n as u64 - 1) * SMALLEST_FRAME,
            // A group without frames may end the region, and pages of zeros are no frames.
            None => unknown_bytes >= SEAL_FRAME,
        };
        let may_hide_seal = may_hide_seal || self.lost.iter().any(|l| l.header.kind == KIND_SEAL);
        let loses = !self.lost.is_empty() || (!self.unknown.is_empty() && missing != Some(0));
        let what = match (&group, loses) {
            (_, true) => "a record that had been acknowledged is unreadable",
            (None, false) => "the group's header is damaged; its records are intact",
            (Some(_), false) => "bytes between the records are changed; the records are intact",
        };
        let damage = Damage {
            path: part.segment.path.clone(),
            incarnation: part.segment.header.incarnation,
            offset: part.segment.offset_of(from) + bad_at as u64,
            from,
            to,
            what: what.to_owned(),
            lost: self.lost,
            unknown: self.unknown,
            may_hide_seal,
            may_be_older: rewrites && from == part.segment.header.base,
            loses,
        };
        Found { header: group, records: self.records, damage: Some(damage) }
    }
}

impl Found {
    /// The group's header was damaged too, though it could be made good.
    pub(super) fn with_damaged_header(mut self, part: &Part, (from, to): (Lsn, Lsn)) -> Self {
        let damage = Damage {
            path: part.segment.path.clone(),
            incarnation: part.segment.header.incarnation,
            offset: part.segment.offset_of(from),
            from,
            to,
            what: "the group's header is damaged; its records are intact".to_owned(),
            lost: Vec::new(),
            unknown: Vec::new(),
            may_hide_seal: false,
            may_be_older: false,
            loses: false,
        };
        self.damage.get_or_insert(damage).offset = part.segment.offset_of(from);
        self
    }
}
