use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn tables() -> impl Strategy<Value = TableId> {
    any::<u128>().prop_map(|id| TableId(Uuid::from_u128(id)))
}

fn defines() -> impl Strategy<Value = Define> {
    (tables(), any::<u32>(), vec(any::<u8>(), 0..50)).prop_map(|(table, schema_version, body)| Define {
        table,
        schema_version,
        body: body.into(),
    })
}

fn generations() -> impl Strategy<Value = GenerationFact> {
    (tables(), any::<i64>(), 1..=i64::MAX, any::<[u64; 3]>(), prop::option::of(1..=u64::MAX)).prop_map(
        |(table, start, width, [generation, incarnation, lsn], sequence)| GenerationFact {
            table,
            bucket: Bucket { start, width },
            generation: Lsn(generation),
            seal: sequence.map(|sequence| SealInfo { incarnation: Incarnation(incarnation), sequence, lsn: Lsn(lsn) }),
        },
    )
}

fn counters() -> impl Strategy<Value = Counter> {
    (tables(), any::<[u64; 3]>()).prop_map(|(table, [incarnation, sealed, committed])| Counter {
        table,
        incarnation: Incarnation(incarnation),
        sealed,
        committed,
    })
}

fn windows() -> impl Strategy<Value = ProducerWindow> {
    (tables(), any::<u128>(), any::<(u32, u64)>(), vec(any::<(u64, u64)>(), 0..6)).prop_map(
        |(table, producer, (epoch, floor), seen)| {
            let note = |digest: u64| Note { digest, accepted: digest as u32, rejected: (digest >> 32) as u32 };
            let record = |lsn: u64| Seen { lsn: Lsn(lsn), note: note(lsn.rotate_left(7)) };
            let seen = seen.into_iter().map(|(sequence, lsn)| (sequence, record(lsn))).collect();
            ProducerWindow { table, producer: ProducerId(producer), epoch, floor, seen }
        },
    )
}

fn lane_files() -> impl Strategy<Value = LaneFileRef> {
    (any::<[u64; 4]>(), any::<[u32; 3]>()).prop_map(|([id, index_at, index_len, bytes], [lane, index_crc, extents])| {
        LaneFileRef { id, lane, index_at, index_len, index_crc, extents, bytes }
    })
}

fn keys() -> impl Strategy<Value = KeyFact> {
    (tables(), any::<u128>(), any::<[u64; 2]>(), any::<[u32; 3]>()).prop_map(
        |(table, key, [lsn, digest], [accepted, rejected, at])| KeyFact {
            table,
            key: PostKey(key),
            record: Seen { lsn: Lsn(lsn), note: Note { digest, accepted, rejected } },
            at,
        },
    )
}

fn edits() -> impl Strategy<Value = Edit> {
    let part = prop::sample::select(vec![Part::Delta, Part::SnapshotBegin, Part::SnapshotMore]);
    let lists = (vec(defines(), 0..4), vec(generations(), 0..4), vec(counters(), 0..4), vec(windows(), 0..4));
    (any::<[u64; 4]>(), part, lists, vec(lane_files(), 0..4), vec(any::<u64>(), 0..4), vec(keys(), 0..4)).prop_map(
        |(
            [sequence, checkpoint, segment, next_lane_file],
            part,
            (defines, generations, counters, producers),
            added,
            dropped,
            keys,
        )| Edit {
            sequence,
            part,
            checkpoint: Lsn(checkpoint),
            segment: Lsn(segment),
            next_lane_file,
            defines,
            generations,
            counters,
            producers,
            added,
            dropped,
            keys,
        },
    )
}

proptest! {
    #[test]
    fn reads_what_it_wrote(edit in edits()) {
        let bytes = edit.encode().expect("should be encodable");
        prop_assert_eq!(bytes.len(), edit.encoded_len());
        prop_assert_eq!(Edit::decode(&bytes), Some(edit));
    }

    #[test]
    fn whatever_is_read_has_one_encoding(edit in edits(), at: prop::sample::Index, bit in 0..8) {
        let mut bytes = edit.encode().expect("should be encodable");
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        if let Some(other) = Edit::decode(&bytes) {
            prop_assert!(other != edit, "a changed bit changes what is said");
            prop_assert_eq!(other.encode(), Ok(bytes));
        }
    }

    #[test]
    fn any_cut_and_any_addition_shows(edit in edits(), at: prop::sample::Index) {
        let mut bytes = edit.encode().expect("should be encodable");
        prop_assert_eq!(Edit::decode(&bytes[..at.index(bytes.len())]), None);
        bytes.push(0);
        prop_assert_eq!(Edit::decode(&bytes), None);
    }

    #[test]
    fn never_panics(bytes in vec(any::<u8>(), 0..300)) {
        Edit::decode(&bytes);
    }
}

#[test]
fn an_edit_that_says_nothing_is_as_short_as_can_be() {
    let edit = Edit { sequence: 1, ..Edit::default() };
    let bytes = edit.encode().expect("should be encodable");
    assert_eq!(bytes.len(), MIN_LEN + COUNT_LEN);
    assert_eq!(Edit::decode(&bytes[..MIN_LEN]), None);
}

#[test]
fn an_edit_of_format_0_is_read() {
    let table = TableId(Uuid::from_u128(1));
    let record = |lsn: u64| (lsn / 10, Seen::from(Lsn(lsn)));
    let window =
        ProducerWindow { table, producer: ProducerId(2), epoch: 3, floor: 0, seen: vec![record(40), record(50)] };
    let edit = Edit { sequence: 1, producers: vec![window], dropped: vec![9], ..Edit::default() };
    let mut bytes = edit.encode().expect("should be encodable");
    // The count of the keys, and the notes of both records.
    let first = MIN_LEN + COUNT_LEN + PRODUCER_LEN;
    bytes.drain(first + SEEN_LEN + BARE_SEEN_LEN..first + 2 * SEEN_LEN);
    bytes.drain(first + BARE_SEEN_LEN..first + SEEN_LEN);
    bytes.drain(MIN_LEN..MIN_LEN + COUNT_LEN);
    bytes[33] = 0;
    assert_eq!(Edit::decode(&bytes), Some(edit));
    bytes[33] = 2;
    assert_eq!(Edit::decode(&bytes), None, "of a later build");
}

#[test]
fn counts_beyond_the_bytes_are_refused() {
    let bytes = Edit::default().encode().expect("should be encodable");
    for list in 0..7 {
        for count in [1_u32, 1 << 16, u32::MAX] {
            let mut bytes = bytes.clone();
            bytes[36 + 4 * list..40 + 4 * list].copy_from_slice(&count.to_le_bytes());
            assert_eq!(Edit::decode(&bytes), None, "list {list}, {count}");
        }
    }
}

#[test]
fn limits_are_enforced_before_anything_is_written() {
    let table = TableId(Uuid::nil());
    let fact = |width| GenerationFact { table, bucket: Bucket { start: 0, width }, generation: Lsn(0), seal: None };
    for width in [0, -1, i64::MIN] {
        let edit = Edit { generations: vec![fact(1), fact(width)], ..Edit::default() };
        assert_eq!(edit.encode(), Err(EncodeError::BucketWidth(width)));
    }
    let body = Bytes::from(vec![0; 64 << 20]);
    let defines = vec![Define { table, schema_version: 1, body }; 32];
    let edit = Edit { defines, ..Edit::default() };
    assert_eq!(edit.encode(), Err(EncodeError::TooLong(edit.encoded_len())));
}

#[test]
fn a_definition_does_not_keep_the_edits_memory() {
    let define = Define { table: TableId(Uuid::nil()), schema_version: 1, body: "body".into() };
    let bytes = Edit { defines: vec![define], ..Edit::default() }.encode().expect("should be encodable");
    let found = Edit::decode(&bytes).expect("should be readable");
    assert!(!bytes.as_ptr_range().contains(&found.defines[0].body.as_ptr()));
}
