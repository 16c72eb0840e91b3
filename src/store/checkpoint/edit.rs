//! What one checkpoint changes, as the shard's manifest says it; a snapshot says all of it anew, in one edit or several.
//!
//! ```text
//!  0  sequence        u64  from 1, no gaps
//!  8  checkpoint      u64  LSN: what was before is in lane files or needs no keeping
//! 16  segment         u64  base LSN of the log segment that the checkpoint lies in
//! 24  next_lane_file  u64  id of the next lane file
//! 32  part            u8   0 delta, 1 a snapshot begins, 2 the snapshot goes on
//! 33  format          u8   1; 0 of earlier builds
//! 34  reserved        2 bytes, zero
//! 36  counts          7 x u32  of the lists behind, in their order
//! ```
//!
//! | list | one item |
//! |---|---|
//! | defines | `table u128, schema_version u32, body_len u32`, then the body |
//! | generations | `table u128, bucket.start i64, bucket.width i64, generation u64, incarnation u64, sequence u64, lsn u64`; the last three are of the seal, and zero without one |
//! | counters | `table u128, incarnation u64, sealed u64, committed u64` |
//! | producers | `table u128, producer u128, epoch u32, seen u32, floor u64`, then per seen record `sequence u64, lsn u64, digest u64, accepted u32, rejected u32` |
//! | added | `id u64, lane u32, extents u32, index_at u64, index_len u64, bytes u64, index_crc u32, reserved u32` |
//! | dropped | `id u64` |
//! | keys | `table u128, key u128, lsn u64, digest u64, accepted u32, rejected u32, at u32, reserved u32` |
//!
//! Of format 0 there are six lists, no keys among them, and of a producer's record `sequence u64, lsn u64` only.
//!
//! Integers are little-endian. The checksum is the frame's, see `edit_file`.

use bytes::Bytes;

use crate::bucket::GenerationFact;
use crate::bucket::generation::SealInfo;
use crate::bucket::keys::KeyFact;
use crate::bucket::producer::{ProducerWindow, Seen};
use crate::types::{Bucket, Incarnation, Lsn, Note, PostKey, ProducerId, TableId};
use crate::wal::codec::Reader;
use crate::wal::record::{Define, EncodeError, put_note, take_note, take_table};

/// Bytes of an edit of format 0 that says nothing: no edit is shorter.
pub const MIN_LEN: usize = 60;

/// Most bytes of an edit; a larger snapshot takes several.
pub const MAX_LEN: usize = (u32::MAX / 2) as usize;

const DEFINE_LEN: usize = 24;
const GENERATION_LEN: usize = 64;
const COUNTER_LEN: usize = 40;
const PRODUCER_LEN: usize = 48;
const SEEN_LEN: usize = 32;
/// As it was in format 0.
const BARE_SEEN_LEN: usize = 16;
const ADDED_LEN: usize = 48;
const DROPPED_LEN: usize = 8;
const KEY_LEN: usize = 64;
/// Of the count that format 0 has not.
const COUNT_LEN: usize = 4;
/// The format that is written.
const FORMAT: u8 = 1;

/// How an edit stands to those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Part {
    /// Changes what they said.
    #[default]
    Delta,
    /// What they said is forgotten; all of it is said anew from here on.
    SnapshotBegin,
    /// Goes on with the snapshot that the one before it begins or goes on with.
    SnapshotMore,
}

/// One edit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edit {
    /// From 1, no gaps.
    pub sequence: u64,
    /// How it stands to the edits before it.
    pub part: Part,
    /// The log is needed from here on; what was before is in lane files or needs no keeping.
    pub checkpoint: Lsn,
    /// Base of the log segment that the checkpoint lies in: without it, rows are missing.
    pub segment: Lsn,
    /// Id of the next lane file.
    pub next_lane_file: u64,
    /// Definitions that are new.
    pub defines: Vec<Define>,
    /// Generations that were sealed; in a snapshot all that are live.
    pub generations: Vec<GenerationFact>,
    /// Counters that changed.
    pub counters: Vec<Counter>,
    /// Producers that changed.
    pub producers: Vec<ProducerWindow>,
    /// Lane files that count from now on; durable before this edit was written.
    pub added: Vec<LaneFileRef>,
    /// Ids of lane files that do not count any more.
    pub dropped: Vec<u64>,
    /// Keys of posts that are new.
    pub keys: Vec<KeyFact>,
}

/// How far a table's seals under one start have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// The table.
    pub table: TableId,
    /// The start that sealed.
    pub incarnation: Incarnation,
    /// The highest sequence that was given.
    pub sealed: u64,
    /// The highest sequence that Delta holds, and with it all below.
    pub committed: u64,
}

/// A lane file that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneFileRef {
    /// Its id.
    pub id: u64,
    /// The checkpoint directory it is in.
    pub lane: u32,
    /// Where its index starts.
    pub index_at: u64,
    /// Bytes of the index.
    pub index_len: u64,
    /// CRC32C of the index.
    pub index_crc: u32,
    /// Extents in it.
    pub extents: u32,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Edit {
    /// The edit's bytes.
    ///
    /// # Errors
    /// If it could not be read back.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let len = self.encoded_len();
        if len > MAX_LEN {
            return Err(EncodeError::TooLong(len));
        }
        // MUST BEFORE it gets into the file: an edit that decoding refuses keeps the node from ever starting again.
        if let Some(fact) = self.generations.iter().find(|fact| fact.bucket.width <= 0) {
            return Err(EncodeError::BucketWidth(fact.bucket.width));
        }
        let mut buf = Vec::with_capacity(len);
        buf.extend_from_slice(&self.sequence.to_le_bytes());
        buf.extend_from_slice(&self.checkpoint.0.to_le_bytes());
        buf.extend_from_slice(&self.segment.0.to_le_bytes());
        buf.extend_from_slice(&self.next_lane_file.to_le_bytes());
        let part = match self.part {
            Part::Delta => 0,
            Part::SnapshotBegin => 1,
            Part::SnapshotMore => 2,
        };
        buf.extend_from_slice(&[part, FORMAT, 0, 0]);
        let (defines, generations, counters) = (self.defines.len(), self.generations.len(), self.counters.len());
        for count in [
            defines,
            generations,
            counters,
            self.producers.len(),
            self.added.len(),
            self.dropped.len(),
            self.keys.len(),
        ] {
            put_count(&mut buf, count);
        }
        self.encode_lists(&mut buf);
        Ok(buf)
    }

    fn encode_lists(&self, buf: &mut Vec<u8>) {
        for define in &self.defines {
            put_u128(buf, define.table.0.as_u128());
            buf.extend_from_slice(&define.schema_version.to_le_bytes());
            put_count(buf, define.body.len());
            buf.extend_from_slice(&define.body);
        }
        for fact in &self.generations {
            put_u128(buf, fact.table.0.as_u128());
            buf.extend_from_slice(&fact.bucket.start.to_le_bytes());
            buf.extend_from_slice(&fact.bucket.width.to_le_bytes());
            // Sequences count from 1: a zero is no seal.
            let seal = fact.seal.map_or([0; 3], |s| [s.incarnation.0, s.sequence, s.lsn.0]);
            put_u64s(buf, [fact.generation.0]);
            put_u64s(buf, seal);
        }
        for counter in &self.counters {
            put_u128(buf, counter.table.0.as_u128());
            put_u64s(buf, [counter.incarnation.0, counter.sealed, counter.committed]);
        }
        for window in &self.producers {
            put_u128(buf, window.table.0.as_u128());
            put_u128(buf, window.producer.0);
            buf.extend_from_slice(&window.epoch.to_le_bytes());
            put_count(buf, window.seen.len());
            buf.extend_from_slice(&window.floor.to_le_bytes());
            for (sequence, record) in &window.seen {
                put_u64s(buf, [*sequence, record.lsn.0]);
                put_note(buf, &record.note);
            }
        }
        for added in &self.added {
            buf.extend_from_slice(&added.id.to_le_bytes());
            buf.extend_from_slice(&added.lane.to_le_bytes());
            buf.extend_from_slice(&added.extents.to_le_bytes());
            put_u64s(buf, [added.index_at, added.index_len, added.bytes]);
            buf.extend_from_slice(&added.index_crc.to_le_bytes());
            buf.extend_from_slice(&[0; 4]);
        }
        for id in &self.dropped {
            buf.extend_from_slice(&id.to_le_bytes());
        }
        for fact in &self.keys {
            put_u128(buf, fact.table.0.as_u128());
            put_u128(buf, fact.key.0);
            put_u64s(buf, [fact.record.lsn.0]);
            put_note(buf, &fact.record.note);
            buf.extend_from_slice(&fact.at.to_le_bytes());
            buf.extend_from_slice(&[0; 4]);
        }
    }

    /// Bytes of the edit when it is encoded, for keeping a snapshot's edits short.
    pub fn encoded_len(&self) -> usize {
        MIN_LEN
            + COUNT_LEN
            + self.defines.iter().map(|define| DEFINE_LEN + define.body.len()).sum::<usize>()
            + self.generations.len() * GENERATION_LEN
            + self.counters.len() * COUNTER_LEN
            + self.producers.iter().map(|window| PRODUCER_LEN + window.seen.len() * SEEN_LEN).sum::<usize>()
            + self.added.len() * ADDED_LEN
            + self.dropped.len() * DROPPED_LEN
            + self.keys.len() * KEY_LEN
    }

    /// Reads an edit. None if these bytes are not exactly one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let sequence = reader.u64()?;
        let checkpoint = Lsn(reader.u64()?);
        let segment = Lsn(reader.u64()?);
        let next_lane_file = reader.u64()?;
        let part = match reader.u8()? {
            0 => Part::Delta,
            1 => Part::SnapshotBegin,
            2 => Part::SnapshotMore,
            _ => return None,
        };
        let format = reader.u8().filter(|format| *format <= FORMAT)?;
        zeros(&mut reader, 2)?;
        let mut counts = [0; 7];
        let lists = if format == 0 { 6 } else { 7 };
        for count in &mut counts[..lists] {
            *count = reader.u32()?;
        }
        let [defines, generations, counters, producers, added, dropped, keys] = counts;
        let edit = Self {
            sequence,
            part,
            checkpoint,
            segment,
            next_lane_file,
            defines: take_list(&mut reader, defines, DEFINE_LEN, take_define)?,
            generations: take_list(&mut reader, generations, GENERATION_LEN, take_generation)?,
            counters: take_list(&mut reader, counters, COUNTER_LEN, take_counter)?,
            producers: take_list(&mut reader, producers, PRODUCER_LEN, |reader| take_producer(reader, format))?,
            added: take_list(&mut reader, added, ADDED_LEN, take_added)?,
            dropped: take_list(&mut reader, dropped, DROPPED_LEN, Reader::u64)?,
            keys: take_list(&mut reader, keys, KEY_LEN, take_key)?,
        };
        reader.is_empty().then_some(edit)
    }
}

fn put_u128(buf: &mut Vec<u8>, value: u128) {
    buf.extend_from_slice(&value.to_le_bytes());
}

fn put_u64s<const N: usize>(buf: &mut Vec<u8>, values: [u64; N]) {
    for value in values {
        buf.extend_from_slice(&value.to_le_bytes());
    }
}

fn put_count(buf: &mut Vec<u8>, count: usize) {
    buf.extend_from_slice(&u32::try_from(count).expect("should be below MAX_LEN").to_le_bytes());
}

/// Takes `count` items of at least `min_len` bytes each.
fn take_list<'a, T>(
    reader: &mut Reader<'a>,
    count: u32,
    min_len: usize,
    take: impl Fn(&mut Reader<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let count = count as usize;
    let mut ahead = *reader;
    // MUST BEFORE the allocation: the count may be anything, the items are there.
    ahead.take(count.checked_mul(min_len)?)?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(take(reader)?);
    }
    Some(items)
}

/// Reserved bytes, which were written as zeros.
fn zeros(reader: &mut Reader<'_>, len: usize) -> Option<()> {
    reader.take(len)?.iter().all(|b| *b == 0).then_some(())
}

fn take_define(reader: &mut Reader<'_>) -> Option<Define> {
    let table = take_table(reader)?;
    let schema_version = reader.u32()?;
    let len = reader.u32()? as usize;
    // Copied: a definition lives for long, and would keep all of a snapshot in memory.
    let body = Bytes::copy_from_slice(reader.take(len)?);
    Some(Define { table, schema_version, body })
}

fn take_generation(reader: &mut Reader<'_>) -> Option<GenerationFact> {
    let table = take_table(reader)?;
    let bucket = Bucket { start: reader.i64()?, width: reader.i64()? };
    let generation = Lsn(reader.u64()?);
    let seal = SealInfo { incarnation: Incarnation(reader.u64()?), sequence: reader.u64()?, lsn: Lsn(reader.u64()?) };
    let none = SealInfo { incarnation: Incarnation(0), sequence: 0, lsn: Lsn(0) };
    let sound = bucket.width > 0 && (seal.sequence > 0 || seal == none);
    sound.then_some(GenerationFact { table, bucket, generation, seal: (seal != none).then_some(seal) })
}

fn take_counter(reader: &mut Reader<'_>) -> Option<Counter> {
    Some(Counter {
        table: take_table(reader)?,
        incarnation: Incarnation(reader.u64()?),
        sealed: reader.u64()?,
        committed: reader.u64()?,
    })
}

fn take_producer(reader: &mut Reader<'_>, format: u8) -> Option<ProducerWindow> {
    let table = take_table(reader)?;
    let producer = ProducerId(reader.u128()?);
    let epoch = reader.u32()?;
    let count = reader.u32()?;
    let floor = reader.u64()?;
    let (seen_len, has_note) = if format == 0 { (BARE_SEEN_LEN, false) } else { (SEEN_LEN, true) };
    let seen = take_list(reader, count, seen_len, |reader| {
        let (sequence, lsn) = (reader.u64()?, Lsn(reader.u64()?));
        let note = if has_note { take_note(reader)? } else { Note::default() };
        Some((sequence, Seen { lsn, note }))
    })?;
    Some(ProducerWindow { table, producer, epoch, floor, seen })
}

fn take_key(reader: &mut Reader<'_>) -> Option<KeyFact> {
    let table = take_table(reader)?;
    let key = PostKey(reader.u128()?);
    let record = Seen { lsn: Lsn(reader.u64()?), note: take_note(reader)? };
    let at = reader.u32()?;
    zeros(reader, 4)?;
    Some(KeyFact { table, key, record, at })
}

fn take_added(reader: &mut Reader<'_>) -> Option<LaneFileRef> {
    let id = reader.u64()?;
    let lane = reader.u32()?;
    let extents = reader.u32()?;
    let index_at = reader.u64()?;
    let index_len = reader.u64()?;
    let bytes = reader.u64()?;
    let index_crc = reader.u32()?;
    zeros(reader, 4)?;
    Some(LaneFileRef { id, lane, index_at, index_len, index_crc, extents, bytes })
}

#[cfg(test)]
mod tests;
