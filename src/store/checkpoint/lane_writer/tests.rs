use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::checkpoint::lane_file::{HEADER_LEN, MAX_EXTENT_BYTES, decode_index, encode_index};
use crate::fs::{Fault, FaultKind, FileSystem, MemoryFileSystem, Operation};
use crate::types::{Incarnation, NodeId};

const PATH: &str = "/lane";

fn header() -> Header {
    Header { shard: 1, id: 2, node: NodeId(Uuid::from_u128(3)), incarnation: Incarnation(4) }
}

fn table(id: u128) -> TableId {
    TableId(Uuid::from_u128(id))
}

fn slice(lsn: u64, payload: Bytes) -> Slice {
    Slice { lsn: Lsn(lsn), schema_version: 1, encoding: 2, rows: 3, min_time: 4, max_time: 5, payload }
}

fn file() -> (MemoryFileSystem, Arc<dyn File>) {
    let fs = MemoryFileSystem::new();
    let file = fs.create(Path::new(PATH)).expect("should be created");
    (fs, file)
}

const BUCKET: Bucket = Bucket { start: 0, width: 60 };

/// Checks all that the index says against the file's bytes; answers the payloads in order.
fn read_back(fs: &MemoryFileSystem, written: &Written) -> Vec<Bytes> {
    let bytes = Bytes::from(fs.dump(Path::new(PATH)).expect("should be there"));
    assert_eq!(bytes.len() as u64, written.bytes);
    assert_eq!(Header::decode(&bytes[..HEADER_LEN as usize]), Ok(header()));
    let index = &bytes[written.index_at as usize..];
    assert_eq!(index.len() as u64, written.index_len);
    assert_eq!(crc32c::crc32c(index), written.index_crc);
    assert_eq!(index, encode_index(&written.entries));
    assert_eq!(decode_index(index).as_ref(), Some(&written.entries));
    assert_eq!(written.entries.last().map_or(HEADER_LEN, ExtentEntry::end), written.index_at);
    let slices = |entry: &ExtentEntry| {
        let extent = bytes.slice(entry.offset as usize..entry.end() as usize);
        entry.decode(extent).expect("should be what the index says")
    };
    written.entries.iter().flat_map(slices).map(|slice| slice.payload).collect()
}

proptest! {
    #[test]
    fn what_is_pushed_is_read_back(
        groups in proptest::collection::vec(proptest::collection::vec(0..9000_usize, 0..5), 0..6),
        chunk in 0..6000_usize,
    ) {
        let (fs, file) = file();
        let paced = RefCell::new(Vec::new());
        let mut pace = |bytes| {
            paced.borrow_mut().push(bytes);
            Ok(())
        };
        let mut writer = LaneWriter::new(&*file, &header(), chunk, &mut pace).expect("should start");
        let mut payloads = Vec::new();
        for (id, lens) in groups.iter().enumerate() {
            let slices: Vec<_> = lens.iter().map(|len| slice(7, vec![id as u8; *len].into())).collect();
            payloads.extend(slices.iter().map(|slice| slice.payload.clone()));
            writer.push(table(id as u128 / 2), BUCKET, Lsn(7), &slices).expect("should be written");
        }
        let written = writer.finish().expect("should be finished");
        prop_assert_eq!(written.entries.len(), groups.iter().filter(|lens| !lens.is_empty()).count());
        prop_assert_eq!(read_back(&fs, &written), payloads);
        let (last, whole) = paced.borrow().split_last().map(|(last, whole)| (*last, whole.to_vec())).unwrap_or_default();
        prop_assert!(whole.iter().all(|bytes| *bytes == chunk.max(1) as u64), "whole chunks until the last");
        prop_assert!(last <= chunk.max(1) as u64);
        prop_assert_eq!(whole.iter().sum::<u64>() + last, written.bytes);
    }
}

proptest! {
    #[test]
    fn what_there_was_room_for_does_not_reach_the_file(
        lens in proptest::collection::vec(0..3000_usize, 1..20),
        chunk in 4096..20_000_usize,
    ) {
        let (fs, file) = file();
        let writes = RefCell::new(0);
        let mut pace = |_| {
            *writes.borrow_mut() += 1;
            Ok(())
        };
        let mut writer = LaneWriter::new(&*file, &header(), chunk, &mut pace).expect("should start");
        for (id, len) in lens.iter().enumerate() {
            let needed = lane_file::SLICE_ENTRY_LEN + len;
            writer.make_room(needed).expect("should be written");
            let before = *writes.borrow();
            // What is left of a page stays in the buffer.
            let fits = needed + PAGE <= chunk;
            writer.push(table(id as u128), BUCKET, Lsn(7), &[slice(7, vec![1; *len].into())]).expect("should be written");
            prop_assert!(!fits || *writes.borrow() == before, "{len} bytes were written at once");
        }
        let written = writer.finish().expect("should be finished");
        let payloads: Vec<Bytes> = lens.iter().map(|len| vec![1; *len].into()).collect();
        prop_assert_eq!(read_back(&fs, &written), payloads);
    }
}

#[test]
fn a_file_without_extents_has_an_index() {
    let (fs, file) = file();
    let mut pace = |_| Ok(());
    let writer = LaneWriter::new(&*file, &header(), DEFAULT_CHUNK_BYTES, &mut pace).expect("should start");
    let written = writer.finish().expect("should be finished");
    assert_eq!((written.index_at, written.index_len), (HEADER_LEN, 4));
    assert!(read_back(&fs, &written).is_empty());
}

#[test]
fn a_generation_is_split_where_an_extent_is_full() {
    let (fs, file) = file();
    let mut pace = |_| Ok(());
    let mut writer = LaneWriter::new(&*file, &header(), DEFAULT_CHUNK_BYTES, &mut pace).expect("should start");
    let large = Bytes::from(vec![1; MAX_EXTENT_BYTES as usize]);
    let lens = [10, 30 << 20, 30 << 20, 30 << 20, MAX_EXTENT_BYTES as usize, 5, 6];
    let slices: Vec<_> = (1..).zip(lens).map(|(lsn, len)| slice(lsn, large.slice(..len))).collect();
    writer.push(table(1), BUCKET, Lsn(1), &slices).expect("should be written");
    let written = writer.finish().expect("should be finished");
    let counts: Vec<_> = written.entries.iter().map(|entry| entry.slices).collect();
    assert_eq!(counts, [3, 1, 1, 2]);
    let lsns: Vec<_> = written.entries.iter().map(|entry| (entry.first_lsn.0, entry.last_lsn.0)).collect();
    assert_eq!(lsns, [(1, 3), (4, 4), (5, 5), (6, 7)]);
    assert!(written.entries.iter().all(|entry| entry.generation == Lsn(1)));
    assert_eq!(read_back(&fs, &written).len(), lens.len());
}

/// Remembers where the bytes that it is given lie.
#[derive(Debug, Default)]
struct Addresses(Mutex<Vec<usize>>);

impl File for Addresses {
    fn read_exact_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn write_vectored_at(&self, bufs: &[io::IoSlice<'_>], _: u64) -> io::Result<()> {
        self.0.lock().extend(bufs.iter().map(|buf| buf.as_ptr().addr()));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn len(&self) -> io::Result<u64> {
        Err(ErrorKind::Unsupported.into())
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
}

#[test]
fn large_payloads_are_written_from_where_they_lie() {
    let file = Addresses::default();
    let mut pace = |_| Ok(());
    let mut writer = LaneWriter::new(&file, &header(), 8192, &mut pace).expect("should start");
    let payload = Bytes::from(vec![1; 40_000]);
    writer.push(table(1), BUCKET, Lsn(1), &[slice(1, payload.clone())]).expect("should be written");
    let within = payload.as_ptr().addr()..payload.as_ptr().addr() + payload.len();
    let direct = file.0.lock().iter().filter(|address| within.contains(address)).count();
    assert_eq!(direct, 4, "all whole chunks but the one that the buffer began");
}

#[test]
fn an_extent_is_copied_as_it_is() {
    let (fs, file) = file();
    let mut pace = |_| Ok(());
    let mut writer = LaneWriter::new(&*file, &header(), 100, &mut pace).expect("should start");
    writer.push(table(1), BUCKET, Lsn(1), &[slice(1, "dead".into())]).expect("should be written");
    writer
        .push(table(2), BUCKET, Lsn(2), &[slice(2, "live".into()), slice(3, "too".into())])
        .expect("should be written");
    let written = writer.finish().expect("should be finished");
    let old = written.entries[1];
    let bytes = fs.dump(Path::new(PATH)).expect("should be there");
    let extent = &bytes[old.offset as usize..old.end() as usize];

    let (fs, file) = self::file();
    let mut writer = LaneWriter::new(&*file, &header(), 100, &mut pace).expect("should start");
    let mut damaged = extent.to_vec();
    damaged[0] ^= 1;
    let refused = writer.push_raw(old, &damaged).expect_err("should be refused");
    assert_eq!(refused.kind(), ErrorKind::InvalidData);
    writer.push_raw(old, &extent[1..]).expect_err("should be refused");
    writer.push_raw(old, extent).expect("should be copied");
    let written = writer.finish().expect("should be finished");
    assert_eq!(written.entries, [ExtentEntry { offset: HEADER_LEN, ..old }]);
    assert_eq!(read_back(&fs, &written), ["live", "too"]);
}

#[test]
fn what_could_not_be_read_back_is_refused() {
    let (fs, file) = file();
    let mut pace = |_| Ok(());
    let mut writer = LaneWriter::new(&*file, &header(), 100, &mut pace).expect("should start");
    let two = |first, second| [slice(first, "a".into()), slice(second, "b".into())];
    let no_width = Bucket { start: 0, width: 0 };
    for (bucket, generation, slices) in [(no_width, 1, two(1, 2)), (BUCKET, 2, two(1, 2)), (BUCKET, 1, two(2, 1))] {
        let refused = writer.push(table(1), bucket, Lsn(generation), &slices).expect_err("should be refused");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
    writer.push(table(1), BUCKET, Lsn(1), &two(1, 1)).expect("should be written");
    assert_eq!(read_back(&fs, &writer.finish().expect("should be finished")), ["a", "b"]);
}

#[test]
fn a_failed_write_and_the_callers_word_end_it() {
    let (fs, file) = file();
    fs.fail(Fault {
        operation: Operation::Write,
        nth: 2,
        path_contains: None,
        error: FaultKind::Enospc,
        sticky: false,
    });
    let mut pace = |_| Ok(());
    let mut writer = LaneWriter::new(&*file, &header(), 4096, &mut pace).expect("should start");
    let payload = Bytes::from(vec![1; 5000]);
    let refused = writer.push(table(1), BUCKET, Lsn(1), &[slice(1, payload)]).expect_err("should fail");
    assert_eq!(refused.kind(), ErrorKind::StorageFull);

    let mut pace = |_| Err(io::Error::other("stop"));
    let refused = LaneWriter::new(&*file, &header(), 4096, &mut pace).expect_err("should fail");
    assert_eq!(refused.to_string(), "stop");
}
