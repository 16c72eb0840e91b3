use super::*;
use crate::bucket::GenerationFact;
use crate::bucket::generation::SealInfo;
use crate::checkpoint::edit::Counter;
use crate::types::{Bucket, Incarnation, TableId};
use uuid::Uuid;

const TABLE: TableId = TableId(Uuid::from_u128(1));
const BUCKET: Bucket = Bucket { start: 0, width: 10 };

fn file(id: u64) -> LaneFileRef {
    LaneFileRef { id, lane: 0, index_at: 4096, index_len: 4, index_crc: 0, extents: 0, bytes: 4100 }
}

fn image() -> Image {
    let mut image = Image::default();
    let begin = Edit {
        sequence: 5,
        part: Part::SnapshotBegin,
        checkpoint: Lsn(100),
        next_lane_file: 3,
        added: vec![file(1), file(2)],
        ..Edit::default()
    };
    image.follow(&begin).expect("should begin");
    image
}

fn next() -> Edit {
    Edit { sequence: 6, checkpoint: Lsn(200), segment: Lsn(50), next_lane_file: 3, ..Edit::default() }
}

/// The number of the invariant that this edit breaks behind [`image`]; 0 for none. What is refused leaves no trace.
fn breaks(edit: Edit) -> u8 {
    let mut after = image();
    match after.follow(&edit) {
        Ok(()) => 0,
        Err(violation) => {
            assert_eq!(after, image());
            violation.number
        }
    }
}

#[test]
fn an_edit_follows_the_one_before_it() {
    assert_eq!(breaks(next()), 0);
    assert_eq!(breaks(Edit { sequence: 7, ..next() }), 1);
    assert_eq!(breaks(Edit { sequence: 5, ..next() }), 1);
    assert_eq!(breaks(Edit { checkpoint: Lsn(99), ..next() }), 2);
    assert_eq!(breaks(Edit { checkpoint: Lsn(100), ..next() }), 0);
}

#[test]
fn lane_files_come_once_and_go_once() {
    assert_eq!(breaks(Edit { added: vec![file(3)], next_lane_file: 4, ..next() }), 0);
    assert_eq!(breaks(Edit { added: vec![file(3)], ..next() }), 3, "not below the next one");
    assert_eq!(breaks(Edit { added: vec![file(2)], ..next() }), 3, "is there");
    assert_eq!(breaks(Edit { added: vec![file(2)], dropped: vec![2], ..next() }), 3, "its id is used up");
    assert_eq!(breaks(Edit { next_lane_file: 2, ..next() }), 3);
    assert_eq!(breaks(Edit { dropped: vec![1, 2], ..next() }), 0);
    assert_eq!(breaks(Edit { dropped: vec![1, 1], ..next() }), 3);
    assert_eq!(breaks(Edit { dropped: vec![7], ..next() }), 3);
}

#[test]
fn what_lies_behind_the_checkpoint_is_not_in_the_edit() {
    let fact = |generation, seal: Option<u64>| Edit {
        generations: vec![GenerationFact {
            table: TABLE,
            bucket: BUCKET,
            generation: Lsn(generation),
            seal: seal.map(|lsn| SealInfo { incarnation: Incarnation(1), sequence: 1, lsn: Lsn(lsn) }),
        }],
        ..next()
    };
    assert_eq!(breaks(fact(199, None)), 0);
    assert_eq!(breaks(fact(200, None)), 5);
    assert_eq!(breaks(fact(150, Some(199))), 0);
    assert_eq!(breaks(fact(150, Some(200))), 5);
    assert_eq!(breaks(fact(150, Some(150))), 5);
    let counter = |sealed, committed| Edit {
        counters: vec![Counter { table: TABLE, incarnation: Incarnation(1), sealed, committed }],
        ..next()
    };
    assert_eq!([breaks(counter(2, 2)), breaks(counter(2, 3))], [0, 7]);
}

#[test]
fn an_extent_lies_below_its_checkpoint() {
    let entry = |last| ExtentEntry {
        table: TABLE,
        bucket: BUCKET,
        generation: Lsn(10),
        first_lsn: Lsn(10),
        last_lsn: Lsn(last),
        offset: 4096,
        len: 40,
        slices: 1,
        rows: 1,
        payload_bytes: 0,
        crc: 0,
    };
    assert_eq!(check_extents(&[entry(10), entry(199)], Lsn(200)), Ok(()));
    assert_eq!(check_extents(&[entry(10), entry(200)], Lsn(200)).map_err(|v| v.number), Err(4));
}

#[test]
fn extents_of_a_generation_do_not_overlap() {
    let extent = |file, first, last| {
        let entry = ExtentEntry {
            table: TABLE,
            bucket: BUCKET,
            generation: Lsn(10),
            first_lsn: Lsn(first),
            last_lsn: Lsn(last),
            offset: 4096,
            len: 40,
            slices: 1,
            rows: 1,
            payload_bytes: 0,
            crc: 0,
        };
        (file, entry)
    };
    let check = |extents: &[(u64, ExtentEntry)]| check_overlap(extents.iter().copied()).map_err(|v| v.number);
    assert_eq!(check(&[extent(2, 50, 60), extent(1, 10, 40)]), Ok(()));
    assert_eq!(check(&[extent(2, 40, 60), extent(1, 10, 40)]), Err(8), "a record in two files");
    assert_eq!(check(&[extent(1, 40, 60), extent(1, 10, 40)]), Ok(()), "a record cut within a file");
    assert_eq!(check(&[extent(1, 10, 40), extent(2, 30, 35)]), Err(8));
}

#[test]
fn the_log_has_what_the_checkpoint_leaves_to_it() {
    let mut image = image();
    image.follow(&next()).expect("should follow");
    let check = |bases: &[u64], kept_from| {
        let bases: Vec<Lsn> = bases.iter().map(|b| Lsn(*b)).collect();
        check_log(&bases, Lsn(kept_from), &image).map_err(|v| v.number)
    };
    assert_eq!(check(&[0, 50, 300], 0), Ok(()));
    assert_eq!(check(&[200], 200), Ok(()), "the checkpoint's segment ended there, and is recycled");
    assert_eq!(check(&[0, 300], 0), Err(9), "its segment is missing");
    assert_eq!(check(&[300], 0), Err(9));
    assert_eq!(check(&[50], 201), Err(9), "the manifest is older than the log");
}
