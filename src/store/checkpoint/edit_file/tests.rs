use proptest::prelude::*;

use super::*;
use crate::checkpoint::edit::LaneFileRef;
use crate::fs::{FileSystem, MemoryFileSystem, OpenMode};
use crate::types::Lsn;

const PATH: &str = "/edits";
const SALT: u64 = 0x5a17;

fn headers() -> impl Strategy<Value = Header> {
    (any::<u32>(), any::<[u64; 2]>(), any::<u128>(), 9..u64::MAX / 8).prop_map(|(shard, [number, salt], node, end)| {
        Header { shard, number, node: NodeId(Uuid::from_u128(node)), salt, snapshot_end: end * FRAME_ALIGN }
    })
}

/// An edit whose length has `files` as its measure.
fn edit(sequence: u64, files: u32) -> Edit {
    let file = |id| LaneFileRef { id, lane: 1, index_at: 2, index_len: 3, index_crc: 4, extents: 5, bytes: 6 };
    let added = (0..u64::from(files)).map(file).collect();
    Edit { sequence, checkpoint: Lsn(sequence), added, dropped: vec![1; files as usize % 3], ..Edit::default() }
}

proptest! {
    #[test]
    fn headers_are_read_back(header in headers()) {
        let bytes = header.encode();
        prop_assert_eq!(bytes.len() as u64, HEADER_LEN);
        prop_assert_eq!(Header::decode(&bytes), Ok(header));
    }

    #[test]
    fn any_changed_byte_and_any_cut_of_a_header_shows(header in headers(), at in 0..HEADER_LEN as usize, by in 1..=255_u8) {
        let mut bytes = header.encode();
        bytes[at] ^= by;
        prop_assert_eq!(Header::decode(&bytes), Err(HeaderError::Damaged));
        prop_assert_eq!(Header::decode(&header.encode()[..at]), Err(HeaderError::Damaged));
    }

    #[test]
    fn names_are_read_back(number: u64, other in "(edits-)?[0-9+]{0,14}") {
        prop_assert_eq!(parse_file_name(&file_name(number)), Some(number));
        if let Some(number) = parse_file_name(&other) {
            prop_assert_eq!(file_name(number), other);
        }
    }

    #[test]
    fn frames_are_read_where_they_belong_only(files in 0..9_u32, at in 0..100_u64, by in 1..9_u64) {
        let (at, other) = (at * FRAME_ALIGN, (at + by) * FRAME_ALIGN);
        let edit = edit(7, files);
        let frame = encode_frame(&edit, at, SALT).expect("should be encodable");
        prop_assert_eq!(frame.len() as u64 % FRAME_ALIGN, 0);
        prop_assert_eq!(decode_frame(&frame), Some(edit));
        let mut found = Vec::new();
        let file = file(&[(at, &frame)]);
        prop_assert!(frames(&*file, SALT).read(at, &mut found).expect("should read"));
        prop_assert_eq!(&found, &frame);
        prop_assert!(!frames(&*file, SALT + 1).read(at, &mut found).expect("should read"), "another file's");
        let file = self::file(&[(other, &frame)]);
        prop_assert!(!frames(&*file, SALT).read(other, &mut found).expect("should read"), "moved");
    }

    #[test]
    fn any_changed_bit_of_a_frame_shows(files in 0..9_u32, at: prop::sample::Index, bit in 0..8) {
        let mut frame = encode_frame(&edit(7, files), 64, SALT).expect("should be encodable");
        let at = at.index(frame.len());
        frame[at] ^= 1_u8 << bit;
        let file = file(&[(64, &frame), (64 + frame.len() as u64, &[0; 1000])]);
        prop_assert!(!frames(&*file, SALT).read(64, &mut Vec::new()).expect("should read"));
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0..500_u64, sequence: u64) {
        drop(Header::decode(&bytes));
        decode_frame(&bytes);
        let file = file(&[(0, &bytes)]);
        prop_assert!(!frames(&*file, SALT).read(at, &mut Vec::new()).expect("should read"));
        let behind = frames(&*file, SALT).search(at, sequence).expect("should read");
        prop_assert!(!matches!(behind, Behind::Frame(_)));
    }
}

fn file(parts: &[(u64, &[u8])]) -> std::sync::Arc<dyn File> {
    let fs = MemoryFileSystem::new();
    let file = fs.create(Path::new(PATH)).expect("should be created");
    for (at, bytes) in parts {
        file.write_all_at(bytes, *at).expect("should be written");
    }
    fs.open(Path::new(PATH), OpenMode::Read).expect("should be there")
}

fn frames(file: &dyn File, salt: u64) -> Frames<'_> {
    Frames { file, salt, len: file.len().expect("should be known") }
}

#[test]
fn a_frame_is_found_wherever_a_chunk_ends() {
    let chunk = SEARCH_BYTES as u64;
    for at in (chunk - 80..chunk + 24).chain(2 * chunk - 24..2 * chunk + 24).filter(|at| at % FRAME_ALIGN == 0) {
        let frame = encode_frame(&edit(9, 3), at, SALT).expect("should be encodable");
        let file = file(&[(0, b"bad"), (at, &frame), (at + frame.len() as u64, &[0; 100])]);
        let search = |from, sequence| frames(&*file, SALT).search(from, sequence).expect("should read");
        assert_eq!(search(0, 8), Behind::Frame(at));
        assert_eq!(search(at - 72, 8), Behind::Frame(at), "one frame fits in between");
        assert_eq!(search(at - 64, 8), Behind::Remains, "none does");
        assert_eq!(search(0, 9), Behind::Remains, "it would have been the next one");
        assert_eq!(search(at + frame.len() as u64, 9), Behind::Zeros);
    }
}

#[test]
fn a_frame_larger_than_a_chunk_is_found() {
    let frame = encode_frame(&edit(9, 5000), 128, SALT).expect("should be encodable");
    assert!(frame.len() > 3 * SEARCH_BYTES);
    let file = file(&[(128, &frame)]);
    assert_eq!(frames(&*file, SALT).search(0, 8).expect("should read"), Behind::Frame(128));
}

#[test]
fn a_length_beyond_the_file_is_not_believed() {
    let mut found = Vec::new();
    for len in [edit::MAX_LEN as u32, u32::MAX, 1000, 0] {
        let file = file(&[(0, &len.to_le_bytes()), (4, &[1; 500])]);
        assert!(!frames(&*file, SALT).read(0, &mut found).expect("should read"));
        assert!(found.capacity() < 1000);
    }
}

#[test]
fn another_version_is_named() {
    let header = Header { shard: 1, number: 2, node: NodeId(Uuid::nil()), salt: 3, snapshot_end: 128 };
    let mut bytes = header.encode();
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..LAYOUT.fields_len]);
    bytes[LAYOUT.fields_len..LAYOUT.fields_len + 4].copy_from_slice(&crc.to_le_bytes());
    let error = read_header(&*file(&[(0, &bytes)]), Path::new(PATH)).expect_err("should be refused");
    assert!(error.to_string().contains("format version 2"), "{error}");
    let error = read_header(&*file(&[(0, &bytes[..60])]), Path::new(PATH)).expect_err("should be refused");
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn an_impossible_snapshot_end_is_damage() {
    for snapshot_end in [0, HEADER_LEN, HEADER_LEN + 4] {
        let header = Header { shard: 1, number: 2, node: NodeId(Uuid::nil()), salt: 3, snapshot_end };
        assert_eq!(Header::decode(&header.encode()), Err(HeaderError::Damaged));
    }
}
