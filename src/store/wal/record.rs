//! What can be said in the log.
//!
//! | kind | record | body |
//! |---|---|---|
//! | 1 | Slices | `count u32, mark_len u32 (0, 32 or 56)`, then the mark, see below, then per slice `table u128, schema_version u32, encoding u8, reserved [u8; 3], bucket.start i64, bucket.width i64, rows u32, payload_len u32, min_time i64, max_time i64`; the payloads follow the directory in the same order |
//! | 2 | Seal | `table u128, bucket.start i64, bucket.width i64, generation u64, incarnation u64, sequence u64` |
//! | 3 | Commit | `table u128, incarnation u64, sequence u64, version u64` |
//! | 4 | Define | `table u128, schema_version u32, reserved u32`, then the definition's bytes as payload |
//! | 5 | (a table's drop; not written yet) | |
//!
//! A mark says by what a repeat is known: `id u128, epoch u32, kind u32, sequence u64, digest u64, accepted u32, rejected u32, at u32,
//! reserved u32`. Of kind 0 the id is a producer; of kind 1 it is a post's key, and epoch and sequence are zero. Earlier builds wrote
//! the first 32 bytes only, of kind 0.
//!
//! A record is all or nothing: one frame. Integers are little-endian. Body version 1.

use bytes::Bytes;
use uuid::Uuid;

use super::codec::Reader;
use super::frame::{self, HEADER_LEN};
use crate::types::{Bucket, Incarnation, Lsn, Mark, Note, PostId, PostKey, ProducerId, SliceInput, Stamp, TableId};

/// The body encoding that is written.
pub const BODY_VERSION: u8 = 1;

/// Most slices in one record.
pub const MAX_SLICES: usize = 65_536;

const KIND_SLICES: u8 = 1;
const KIND_SEAL: u8 = 2;
const KIND_COMMIT: u8 = 3;
const KIND_DEFINE: u8 = 4;

/// Directory bytes before the mark, or before the first slice's entry if there is none.
const SLICES_HEAD_LEN: usize = 8;
/// Directory bytes of a mark.
const MARK_LEN: u32 = 56;
/// Directory bytes of a mark as earlier builds wrote it.
const BARE_STAMP_LEN: u32 = 32;
const KIND_SEQUENCE: u32 = 0;
const KIND_KEY: u32 = 1;
/// Directory bytes of one slice.
const SLICE_ENTRY_LEN: usize = 64;
/// Payloads below this are copied next to the directory; larger ones are written from where they lie.
const INLINE_PAYLOAD_MAX: usize = 4096;

/// A generation's seal: fixes its membership and its place in the table's commit order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// The table.
    pub table: TableId,
    /// The bucket.
    pub bucket: Bucket,
    /// LSN of the generation's first record: its name.
    pub generation: Lsn,
    /// The start that sealed.
    pub incarnation: Incarnation,
    /// The generation's place among those of the table that this start sealed, from 1.
    pub sequence: u64,
}

/// The table's Delta log holds every generation sealed under `incarnation` up to `sequence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// The table.
    pub table: TableId,
    /// The start that sealed.
    pub incarnation: Incarnation,
    /// The highest sequence that Delta holds, and with it all below.
    pub sequence: u64,
    /// Delta version of the commit.
    pub version: u64,
}

/// What readers of the log need to know of a table before its first slice. The body is the caller's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Define {
    /// The table.
    pub table: TableId,
    /// Counts from 1; rows name the version they were encoded with.
    pub schema_version: u32,
    /// Whatever the caller needs to make the table again.
    pub body: Bytes,
}

/// Rows that become durable together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// By what a repeat is known; then all slices are of one table, since identities count within one.
    pub mark: Option<Mark>,
    /// At least one.
    pub slices: Vec<SliceInput>,
}

/// Rows that are taken as often as they come.
impl From<Vec<SliceInput>> for Rows {
    fn from(slices: Vec<SliceInput>) -> Self {
        Self { mark: None, slices }
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Rows.
    Slices(Rows),
    /// A generation is closed.
    Seal(Seal),
    /// Delta holds rows.
    Commit(Commit),
    /// A table's definition.
    Define(Define),
}

/// A record as it will be written, but for LSN and salt.
#[derive(Debug)]
pub struct Encoded {
    /// Room for the frame's header, the directory, small payloads; padded if nothing follows.
    buf: Vec<u8>,
    /// Payloads written from where they lie.
    tail: Vec<Bytes>,
    header: frame::Header,
}

impl Encoded {
    /// Bytes in the log, with the padding behind the frame.
    pub fn padded_len(&self) -> usize {
        frame::padded_len(self.header.len as usize)
    }

    /// Gives the frame its place.
    pub fn seal(&mut self, lsn: Lsn, salt: u64) {
        self.header.lsn = lsn;
        frame::write_header(&mut self.buf, &self.header, salt);
    }

    /// The bytes to write, in order; together [`Self::padded_len`] long.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        static ZEROS: [u8; frame::FRAME_ALIGN] = [0; frame::FRAME_ALIGN];
        let written: usize = self.buf.len() + self.tail.iter().map(Bytes::len).sum::<usize>();
        let padding = &ZEROS[..self.padded_len() - written];
        std::iter::once(self.buf.as_slice())
            .chain(self.tail.iter().map(|b| &b[..]))
            .chain((!padding.is_empty()).then_some(padding))
    }
}

/// Why a record cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// No slice.
    #[error("a record needs at least one slice")]
    Empty,
    /// More than [`MAX_SLICES`].
    #[error("{0} slices in one record; at most {MAX_SLICES} are allowed")]
    TooManySlices(usize),
    /// No window of time.
    #[error("a bucket of {0} microseconds; its width has to be positive")]
    BucketWidth(i64),
    /// A mark, and slices of several tables: the identity could count within one of them only.
    #[error("a record whose repeats are to be known has slices of several tables; one is allowed")]
    MarkedTables,
    /// More than a frame holds, bytes.
    #[error("a record of {0} bytes; a frame holds at most {max} bytes", max = u32::MAX / 2)]
    TooLong(usize),
}

impl Record {
    /// Lays the record out and checksums its body.
    ///
    /// # Errors
    /// If it could not be read back.
    pub fn encode(&self) -> Result<Encoded, EncodeError> {
        match self {
            Self::Slices(rows) => encode_slices(rows),
            Self::Seal(seal) => encode_plain(KIND_SEAL, &[], |buf| {
                put_table(buf, seal.table);
                put_bucket(buf, seal.bucket);
                buf.extend_from_slice(&seal.generation.0.to_le_bytes());
                buf.extend_from_slice(&seal.incarnation.0.to_le_bytes());
                buf.extend_from_slice(&seal.sequence.to_le_bytes());
            }),
            Self::Commit(commit) => encode_plain(KIND_COMMIT, &[], |buf| {
                put_table(buf, commit.table);
                buf.extend_from_slice(&commit.incarnation.0.to_le_bytes());
                buf.extend_from_slice(&commit.sequence.to_le_bytes());
                buf.extend_from_slice(&commit.version.to_le_bytes());
            }),
            Self::Define(define) => encode_plain(KIND_DEFINE, std::slice::from_ref(&define.body), |buf| {
                put_table(buf, define.table);
                buf.extend_from_slice(&define.schema_version.to_le_bytes());
                buf.extend_from_slice(&[0; 4]);
            }),
        }
    }

    /// Reads a record back from its frame's body; the payloads share `body`'s memory. None if the bytes are not a record that this
    /// version knows.
    pub fn decode(header: &frame::Header, body: &Bytes) -> Option<Self> {
        if header.version != BODY_VERSION {
            return None;
        }
        let directory = body.get(..header.dir_len as usize)?;
        let payload = body.slice(header.dir_len as usize..);
        let mut reader = Reader::new(directory);
        let record = match header.kind {
            KIND_SLICES => return decode_slices(&mut reader, &payload),
            KIND_SEAL => Self::Seal(Seal {
                table: take_table(&mut reader)?,
                bucket: take_bucket(&mut reader)?,
                generation: Lsn(reader.u64()?),
                incarnation: Incarnation(reader.u64()?),
                sequence: reader.u64()?,
            }),
            KIND_COMMIT => Self::Commit(Commit {
                table: take_table(&mut reader)?,
                incarnation: Incarnation(reader.u64()?),
                sequence: reader.u64()?,
                version: reader.u64()?,
            }),
            KIND_DEFINE => {
                let table = take_table(&mut reader)?;
                let schema_version = reader.u32()?;
                let _reserved = reader.u32()?;
                return reader.is_empty().then_some(Self::Define(Define { table, schema_version, body: payload }));
            }
            _ => return None,
        };
        (reader.is_empty() && payload.is_empty()).then_some(record)
    }
}

fn encode_slices(Rows { mark, slices }: &Rows) -> Result<Encoded, EncodeError> {
    if slices.is_empty() {
        return Err(EncodeError::Empty);
    }
    if slices.len() > MAX_SLICES {
        return Err(EncodeError::TooManySlices(slices.len()));
    }
    // MUST BEFORE it gets into the log: a record that decoding refuses keeps the node from ever starting again.
    if let Some(slice) = slices.iter().find(|s| s.bucket.width <= 0) {
        return Err(EncodeError::BucketWidth(slice.bucket.width));
    }
    if mark.is_some() && !of_one_table(slices) {
        return Err(EncodeError::MarkedTables);
    }
    let mark_len = if mark.is_some() { MARK_LEN } else { 0 };
    let payloads: Vec<Bytes> = slices.iter().map(|s| s.payload.clone()).collect();
    encode_plain(KIND_SLICES, &payloads, |buf| {
        buf.reserve(SLICES_HEAD_LEN + mark_len as usize + slices.len() * SLICE_ENTRY_LEN);
        let count = u32::try_from(slices.len()).expect("should be at most MAX_SLICES");
        buf.extend_from_slice(&count.to_le_bytes());
        buf.extend_from_slice(&mark_len.to_le_bytes());
        if let Some(mark) = mark {
            put_mark(buf, mark);
        }
        for slice in slices {
            put_table(buf, slice.table);
            buf.extend_from_slice(&slice.schema_version.to_le_bytes());
            buf.extend_from_slice(&[slice.encoding, 0, 0, 0]);
            put_bucket(buf, slice.bucket);
            buf.extend_from_slice(&slice.rows.to_le_bytes());
            // A longer payload makes the whole record too long, which is refused below.
            buf.extend_from_slice(&u32::try_from(slice.payload.len()).unwrap_or(u32::MAX).to_le_bytes());
            buf.extend_from_slice(&slice.min_time.to_le_bytes());
            buf.extend_from_slice(&slice.max_time.to_le_bytes());
        }
    })
}

fn encode_plain(kind: u8, payloads: &[Bytes], directory: impl FnOnce(&mut Vec<u8>)) -> Result<Encoded, EncodeError> {
    let mut buf = vec![0; HEADER_LEN];
    directory(&mut buf);
    let dir_len = buf.len() - HEADER_LEN;
    // Once one payload lies outside the buffer, the ones behind it must too: the order is the format.
    let inline = payloads.iter().take_while(|p| p.len() < INLINE_PAYLOAD_MAX).count();
    for payload in &payloads[..inline] {
        buf.extend_from_slice(payload);
    }
    let tail: Vec<Bytes> = payloads[inline..].to_vec();
    let len = buf.len() + tail.iter().map(Bytes::len).sum::<usize>();
    if len > (u32::MAX / 2) as usize {
        return Err(EncodeError::TooLong(len));
    }
    let body_crc = frame::body_crc(std::iter::once(&buf[HEADER_LEN..]).chain(tail.iter().map(|b| &b[..])));
    if tail.is_empty() {
        buf.resize(frame::padded_len(len), 0);
    }
    let narrow = |n: usize| u32::try_from(n).expect("should be below u32::MAX / 2");
    let header = frame::Header {
        len: narrow(len),
        lsn: Lsn(0),
        kind,
        version: BODY_VERSION,
        dir_len: narrow(dir_len),
        body_crc,
    };
    Ok(Encoded { buf, tail, header })
}

fn decode_slices(reader: &mut Reader<'_>, payload: &Bytes) -> Option<Record> {
    let count = reader.u32()? as usize;
    let mark_len = reader.u32()?;
    if count == 0 || count > MAX_SLICES {
        return None;
    }
    let mark = match mark_len {
        0 => None,
        BARE_STAMP_LEN | MARK_LEN => Some(take_mark(reader, mark_len)?),
        _ => return None,
    };
    let mut slices = Vec::with_capacity(count);
    let mut at = 0_usize;
    for _ in 0..count {
        let table = take_table(reader)?;
        let schema_version = reader.u32()?;
        let encoding = reader.u8()?;
        reader.take(3)?;
        let bucket = take_bucket(reader)?;
        let rows = reader.u32()?;
        let end = at.checked_add(reader.u32()? as usize)?;
        let min_time = reader.i64()?;
        let max_time = reader.i64()?;
        if end > payload.len() {
            return None;
        }
        let payload = payload.slice(at..end);
        at = end;
        slices.push(SliceInput { table, schema_version, encoding, bucket, rows, min_time, max_time, payload });
    }
    let sound = reader.is_empty() && at == payload.len() && (mark.is_none() || of_one_table(&slices));
    sound.then_some(Record::Slices(Rows { mark, slices }))
}

fn of_one_table(slices: &[SliceInput]) -> bool {
    slices.windows(2).all(|pair| pair[0].table == pair[1].table)
}

fn put_table(buf: &mut Vec<u8>, table: TableId) {
    buf.extend_from_slice(&table.0.as_u128().to_le_bytes());
}

fn put_bucket(buf: &mut Vec<u8>, bucket: Bucket) {
    buf.extend_from_slice(&bucket.start.to_le_bytes());
    buf.extend_from_slice(&bucket.width.to_le_bytes());
}

pub(crate) fn take_table(reader: &mut Reader<'_>) -> Option<TableId> {
    reader.u128().map(|id| TableId(Uuid::from_u128(id)))
}

fn put_mark(buf: &mut Vec<u8>, Mark { id, note, at }: &Mark) {
    let (number, epoch, kind, sequence) = match id {
        PostId::Sequence(stamp) => (stamp.producer.0, stamp.epoch, KIND_SEQUENCE, stamp.sequence),
        PostId::Key(key) => (key.0, 0, KIND_KEY, 0),
    };
    buf.extend_from_slice(&number.to_le_bytes());
    buf.extend_from_slice(&epoch.to_le_bytes());
    buf.extend_from_slice(&kind.to_le_bytes());
    buf.extend_from_slice(&sequence.to_le_bytes());
    put_note(buf, note);
    buf.extend_from_slice(&at.to_le_bytes());
    buf.extend_from_slice(&[0; 4]);
}

fn take_mark(reader: &mut Reader<'_>, len: u32) -> Option<Mark> {
    let (number, epoch, kind, sequence) = (reader.u128()?, reader.u32()?, reader.u32()?, reader.u64()?);
    let id = match kind {
        KIND_SEQUENCE => PostId::Sequence(Stamp { producer: ProducerId(number), epoch, sequence }),
        KIND_KEY if (epoch, sequence) == (0, 0) => PostId::Key(PostKey(number)),
        _ => return None,
    };
    if len == BARE_STAMP_LEN {
        return (kind == KIND_SEQUENCE).then_some(Mark { id, note: Note::default(), at: 0 });
    }
    let (note, at) = (take_note(reader)?, reader.u32()?);
    let _reserved = reader.u32()?;
    Some(Mark { id, note, at })
}

pub(crate) fn put_note(buf: &mut Vec<u8>, note: &Note) {
    buf.extend_from_slice(&note.digest.to_le_bytes());
    buf.extend_from_slice(&note.accepted.to_le_bytes());
    buf.extend_from_slice(&note.rejected.to_le_bytes());
}

pub(crate) fn take_note(reader: &mut Reader<'_>) -> Option<Note> {
    Some(Note { digest: reader.u64()?, accepted: reader.u32()?, rejected: reader.u32()? })
}

fn take_bucket(reader: &mut Reader<'_>) -> Option<Bucket> {
    let bucket = Bucket { start: reader.i64()?, width: reader.i64()? };
    (bucket.width > 0).then_some(bucket)
}

#[cfg(test)]
mod tests;
