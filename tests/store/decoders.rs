//! Every decoder of bytes that come from a disk, as one function each: no bytes may make it panic, or take memory beyond what they are
//! long. Driven here by damaged samples of each format (`PENSTOCK_FUZZ_ROUNDS` for more), and by a coverage-guided fuzzer in `fuzz/`.

use std::path::Path;

use bytes::Bytes;
use penstock_store::checkpoint::edit::Edit;
use penstock_store::checkpoint::{edit_file, edits::EditLog, lane_file, lanes};
use penstock_store::fs::{FileSystem, MemoryFileSystem};
use penstock_store::manifest::Manifest;
use penstock_store::wal::record::Record;
use penstock_store::wal::{frame, group, segment};
use penstock_store::{Lsn, NodeId};
use uuid::Uuid;

/// The salt of every sample.
const SALT: u64 = 0x5A17;

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    for (to, from) in number.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    u64::from_le_bytes(number)
}

fn manifest(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::decode(bytes) {
        assert!(manifest.shards() > 0);
    }
}

fn segment_header(bytes: &[u8]) {
    drop(segment::Header::decode(bytes));
}

fn group_header(bytes: &[u8]) {
    if let Some(header) = group::Header::decode(bytes, Lsn(number(bytes, 8)), SALT) {
        assert!(header.durable_lsn <= header.lsn);
    }
}

/// A frame's header and its record, whose body's checksum is made to fit: it is no protection against bytes made on purpose.
fn record(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let Some((version, rest)) = rest.split_first() else { return };
    let dir_len = (number(rest, 0) as usize % (rest.len() + 1)) as u32;
    let header = frame::Header {
        len: (frame::HEADER_LEN + rest.len()) as u32,
        lsn: Lsn(0),
        kind: kind % 8,
        version: version % 3,
        dir_len,
        body_crc: 0,
    };
    if let Some(record) = Record::decode(&header, &Bytes::copy_from_slice(rest)) {
        record.encode().expect("what was read should be writable");
    }
    let _header = frame::read_header(rest, Lsn(number(rest, 8)), SALT);
}

fn lane_header(bytes: &[u8]) {
    drop(lane_file::Header::decode(bytes));
}

fn lane_index(bytes: &[u8]) {
    if let Some(entries) = lane_file::decode_index(bytes) {
        assert!(entries.iter().all(|e| e.is_sound()));
    }
}

fn lane_extent(bytes: &[u8]) {
    let count = number(bytes, 0) as u32;
    for count in [1, 2, count, count % 64] {
        if let Some(slices) = lane_file::decode_extent(Bytes::copy_from_slice(bytes), count) {
            assert_eq!(slices.len(), count as usize);
        }
    }
}

fn lane_guard(bytes: &[u8]) {
    drop(lanes::decode_guard(bytes));
}

fn edit(bytes: &[u8]) {
    if let Some(edit) = Edit::decode(bytes) {
        let written = edit.encode().expect("what was read should be writable");
        // What an earlier build wrote has another form now.
        let is_present = bytes[33] == written[33];
        assert_eq!(if is_present { bytes } else { &written[..] }, written);
        assert_eq!(Edit::decode(&written), Some(edit));
    }
}

/// A whole manifest of a shard, as a start reads it.
fn edits(bytes: &[u8]) {
    let fs = MemoryFileSystem::new();
    let path = Path::new("/").join(edit_file::file_name(1));
    let file = fs.create(&path).expect("should be made");
    file.write_all_at(bytes, 0).expect("should be written");
    drop(EditLog::load(&fs, Path::new("/"), 0, NodeId(Uuid::nil()), |_| Ok(())));
}

/// A decoder, and its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 10] = [
    ("manifest", manifest),
    ("segment_header", segment_header),
    ("group_header", group_header),
    ("record", record),
    ("lane_header", lane_header),
    ("lane_index", lane_index),
    ("lane_extent", lane_extent),
    ("lane_guard", lane_guard),
    ("edit", edit),
    ("edits", edits),
];
