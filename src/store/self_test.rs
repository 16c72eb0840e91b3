//! How fast this machine replays a log, before a start has shown it: a synthetic log, read and applied as a start does it.
//!
//! The log is in memory, so that nothing is written anywhere: what a disk adds is not measured.
//! The rate of a real replay takes its place with the first start that reads enough. It takes some ten milliseconds.

use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use uuid::Uuid;

use crate::bucket::state::ShardState;
use crate::fs::File;
use crate::replay_cost;
use crate::types::{Bucket, Incarnation, Lsn, NodeId, SliceInput, TableId};
use crate::wal::record::Record;
use crate::wal::segment::{self, Segment};
use crate::wal::{GROUP_ALIGN, align_group, group, scan};

/// Bytes of a shard's synthetic log, about.
const LOG_BYTES: u64 = 1 << 20;
/// Payload bytes of a record: what a post of some rows brings.
const PAYLOAD: usize = 2_000;
/// Records that share a sync.
const GROUP: usize = 16;
/// Replays go on for this long, and end with the one that is under way.
const LENGTH: Duration = Duration::from_millis(10);

/// Weight of log a second (see `replay_cost`) that a start with so many shards reads of each from memory.
#[must_use]
pub fn replay_rate(shards: u32) -> u64 {
    // As many as read at the same time; more would only share the processors.
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let readers = (shards as usize).clamp(1, processors);
    let segment = synthetic();
    let replays = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..readers).map(|_| scope.spawn(|| replay_for(&segment, LENGTH))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    rate(replays)
}

/// Weight a second of the slowest.
fn rate(replays: Vec<(u64, Duration)>) -> u64 {
    let of_one = |(weight, took): (u64, Duration)| replay_cost::rate(weight, took.as_micros() as u64);
    replays.into_iter().map(of_one).min().unwrap_or_default()
}

/// Replays the log again and again.
fn replay_for(segment: &Segment, length: Duration) -> (u64, Duration) {
    let began = Instant::now();
    let mut weight = 0;
    loop {
        weight += replay(segment);
        let took = began.elapsed();
        if took >= length {
            return (weight, took);
        }
    }
}

/// Replays the log once, and answers its weight.
fn replay(segment: &Segment) -> u64 {
    let (mut state, mut records) = (ShardState::new(Lsn(0)), 0);
    let tail = scan::replay(std::slice::from_ref(segment), Lsn(0), segment.limit(), |lsn, record| {
        records += 1;
        state.apply(lsn, record).map(drop).map_err(|e| scan::Refusal::Contradiction(e.to_string()))
    });
    let end = tail.unwrap_or_else(|error| unreachable!("a log that was just made is whole: {error}")).end;
    replay_cost::weight(end.0, records)
}

/// A log of one segment, in memory.
fn synthetic() -> Segment {
    let (salt, node, incarnation) = (1, NodeId(Uuid::nil()), Incarnation(1));
    let mut image = vec![0; segment::HEADER_LEN as usize];
    let mut lsn = Lsn(0);
    for number in 0.. {
        if lsn.0 >= LOG_BYTES {
            break;
        }
        let content = one_group(lsn, number, salt);
        lsn = Lsn(lsn.0 + content.len() as u64);
        image.extend_from_slice(&content);
    }
    let header =
        segment::Header { shard: 0, base: Lsn(0), salt, capacity: lsn.0, node, incarnation, kept_from: Lsn(0) };
    // A page behind the end, as a segment has it.
    image.resize(image.len() + GROUP_ALIGN as usize, 0);
    Segment { header, path: PathBuf::from("self-test"), file: Arc::new(Image(image)) }
}

fn one_group(start: Lsn, number: u64, salt: u64) -> Vec<u8> {
    let mut content = vec![0; group::HEADER_LEN];
    for record in 0..GROUP {
        let at = Lsn(start.0 + content.len() as u64);
        let mut encoded = record_of(number, record).encode().unwrap_or_else(|e| unreachable!("it is short: {e}"));
        encoded.seal(at, salt);
        encoded.parts().for_each(|part| content.extend_from_slice(part));
    }
    let header = group::Header {
        lsn: start,
        durable_lsn: start,
        kept_from: Lsn(0),
        len: content.len() as u32,
        frames: GROUP as u32,
        kind: group::Kind::Group,
    };
    content[..group::HEADER_LEN].copy_from_slice(&header.encode(salt));
    content.resize(align_group(content.len() as u64) as usize, 0);
    content
}

fn record_of(group: u64, record: usize) -> Record {
    let slice = SliceInput {
        table: TableId(Uuid::from_u128(1 + record as u128)),
        schema_version: 1,
        encoding: 1,
        bucket: Bucket { start: (group % 4) as i64 * 1_000_000, width: 1_000_000 },
        rows: 10,
        min_time: 0,
        max_time: 0,
        payload: Bytes::from(vec![record as u8; PAYLOAD]),
    };
    Record::Slices(vec![slice].into())
}

/// A file that is only read.
#[derive(Debug)]
struct Image(Vec<u8>);

fn unsupported() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

impl File for Image {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = self.0.get(from..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_vectored_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<()> {
        Err(unsupported())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(unsupported())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Err(unsupported())
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Err(unsupported())
    }
}

#[cfg(test)]
mod tests;
