use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn tables() -> impl Strategy<Value = TableId> {
    any::<u128>().prop_map(|id| TableId(Uuid::from_u128(id)))
}

fn buckets() -> impl Strategy<Value = Bucket> {
    (any::<i64>(), 1..=i64::MAX).prop_map(|(start, width)| Bucket { start, width })
}

/// Around the size from which payloads are written from where they lie.
fn payloads() -> impl Strategy<Value = Bytes> {
    prop_oneof![0..40_usize, INLINE_PAYLOAD_MAX - 2..INLINE_PAYLOAD_MAX + 3, 0..10_000_usize]
        .prop_flat_map(|len| any::<u8>().prop_map(move |byte| Bytes::from(vec![byte; len])))
}

fn slices() -> impl Strategy<Value = SliceInput> {
    let numbers = (any::<u32>(), any::<u8>(), any::<u32>(), any::<i64>(), any::<i64>());
    (tables(), numbers, buckets(), payloads()).prop_map(|(table, numbers, bucket, payload)| {
        let (schema_version, encoding, rows, min_time, max_time) = numbers;
        SliceInput { table, schema_version, encoding, bucket, rows, min_time, max_time, payload }
    })
}

fn marks() -> impl Strategy<Value = Mark> {
    let stamp = any::<(u128, u32, u64)>().prop_map(|(producer, epoch, sequence)| {
        PostId::Sequence(Stamp { producer: ProducerId(producer), epoch, sequence })
    });
    let key = any::<u128>().prop_map(|key| PostId::Key(PostKey(key)));
    (prop_oneof![stamp, key], any::<u64>(), any::<[u32; 3]>()).prop_map(|(id, digest, [accepted, rejected, at])| Mark {
        id,
        note: Note { digest, accepted, rejected },
        at,
    })
}

fn rows() -> impl Strategy<Value = Rows> {
    let stamped = (marks(), tables(), vec(slices(), 1..6)).prop_map(|(stamp, table, mut slices)| {
        slices.iter_mut().for_each(|slice| slice.table = table);
        Rows { mark: Some(stamp), slices }
    });
    prop_oneof![vec(slices(), 1..6).prop_map(Rows::from), stamped]
}

fn records() -> impl Strategy<Value = Record> {
    let seal =
        (tables(), buckets(), any::<[u64; 3]>()).prop_map(|(table, bucket, [generation, incarnation, sequence])| {
            Record::Seal(Seal {
                table,
                bucket,
                generation: Lsn(generation),
                incarnation: Incarnation(incarnation),
                sequence,
            })
        });
    let commit = (tables(), any::<[u64; 3]>()).prop_map(|(table, [incarnation, sequence, version])| {
        Record::Commit(Commit { table, incarnation: Incarnation(incarnation), sequence, version })
    });
    let define = (tables(), any::<u32>(), payloads())
        .prop_map(|(table, schema_version, body)| Record::Define(Define { table, schema_version, body }));
    prop_oneof![rows().prop_map(Record::Slices), seal, commit, define]
}

fn written(record: &Record, lsn: Lsn, salt: u64) -> Vec<u8> {
    let mut encoded = record.encode().expect("should be encodable");
    encoded.seal(lsn, salt);
    let bytes: Vec<u8> = encoded.parts().flatten().copied().collect();
    assert_eq!(bytes.len(), encoded.padded_len());
    bytes
}

fn read(bytes: &[u8], lsn: Lsn, salt: u64) -> Option<Record> {
    let header = frame::read_header(bytes, lsn, salt)?;
    let body = Bytes::copy_from_slice(bytes.get(HEADER_LEN..header.len as usize)?);
    (frame::body_crc([&body[..]]) == header.body_crc).then_some(())?;
    Record::decode(&header, &body)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn reads_what_it_wrote(record in records(), lsn: u64, salt: u64) {
        let bytes = written(&record, Lsn(lsn), salt);
        prop_assert_eq!(read(&bytes, Lsn(lsn), salt), Some(record));
    }

    #[test]
    fn any_changed_byte_shows(record in records(), at: prop::sample::Index, by in 1..=255_u8) {
        let mut bytes = written(&record, Lsn(8), 1);
        let len = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        bytes[at.index(len)] ^= by;
        prop_assert_eq!(read(&bytes, Lsn(8), 1), None);
    }

    #[test]
    fn any_cut_shows(record in records(), at: prop::sample::Index) {
        let bytes = written(&record, Lsn(8), 1);
        let len = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        prop_assert_eq!(read(&bytes[..at.index(len)], Lsn(8), 1), None);
    }

    /// Behind a checksum that is right: what another build, or a bug, could have written.
    #[test]
    fn decoding_never_panics(kind in 0..8_u8, body in vec(any::<u8>(), 0..300), dir_len: prop::sample::Index) {
        let dir_len = dir_len.index(body.len() + 1) as u32;
        let len = (HEADER_LEN + body.len()) as u32;
        let header = frame::Header { len, lsn: Lsn(0), kind, version: BODY_VERSION, dir_len, body_crc: 0 };
        Record::decode(&header, &body.into());
    }

    #[test]
    fn a_damaged_directory_never_panics(record in records(), at: prop::sample::Index, by in 1..=255_u8) {
        let bytes = written(&record, Lsn(0), 0);
        let header = frame::read_header(&bytes, Lsn(0), 0).expect("should be sound");
        let mut body = bytes[HEADER_LEN..header.len as usize].to_vec();
        let at = at.index(body.len());
        body[at] ^= by;
        Record::decode(&header, &body.into());
    }
}

fn slice(payload: impl Into<Bytes>) -> SliceInput {
    SliceInput {
        table: TableId(Uuid::from_u128(7)),
        schema_version: 1,
        encoding: 1,
        bucket: Bucket { start: 0, width: 1 },
        rows: 1,
        min_time: 0,
        max_time: 0,
        payload: payload.into(),
    }
}

#[test]
fn a_record_of_another_version_is_not_guessed_at() {
    let bytes = written(&Record::Slices(vec![slice("x")].into()), Lsn(0), 0);
    let header = frame::read_header(&bytes, Lsn(0), 0).expect("should be sound");
    let body = Bytes::copy_from_slice(&bytes[HEADER_LEN..header.len as usize]);
    assert!(Record::decode(&header, &body).is_some());
    assert_eq!(Record::decode(&frame::Header { version: 2, ..header }, &body), None);
}

#[test]
fn limits_are_enforced_before_anything_is_written() {
    let refused = |slices: Vec<SliceInput>| Record::Slices(slices.into()).encode().expect_err("should be refused");
    assert_eq!(refused(Vec::new()), EncodeError::Empty);
    let many = vec![slice(""); MAX_SLICES + 1];
    assert_eq!(refused(many), EncodeError::TooManySlices(MAX_SLICES + 1));
    for width in [0, -1, i64::MIN] {
        let slice = SliceInput { bucket: Bucket { start: 0, width }, ..slice("") };
        assert_eq!(refused(vec![slice]), EncodeError::BucketWidth(width));
    }
}

#[test]
fn large_payloads_are_not_copied() {
    let payload = Bytes::from(vec![1; 10_000]);
    let encoded = Record::Slices(vec![slice("small"), slice(payload.clone()), slice("behind it")].into()).encode();
    let encoded = encoded.expect("should be encodable");
    assert!(encoded.parts().any(|part| part.as_ptr() == payload.as_ptr()));
}

const STAMP: Stamp = Stamp { producer: ProducerId(0x0102_0304), epoch: 5, sequence: 6 };
const NOTE: Note = Note { digest: 7, accepted: 8, rejected: 9 };

fn mark(id: PostId) -> Mark {
    Mark { id, note: NOTE, at: 10 }
}

/// The frame's header and body of a record of `slices` slices with this mark.
fn marked(id: PostId, slices: usize) -> (frame::Header, Vec<u8>) {
    let rows = Rows { mark: Some(mark(id)), slices: vec![slice("x"); slices] };
    let bytes = written(&Record::Slices(rows), Lsn(0), 0);
    let header = frame::read_header(&bytes, Lsn(0), 0).expect("should be sound");
    let body = bytes[HEADER_LEN..header.len as usize].to_vec();
    (header, body)
}

#[test]
fn a_mark_lies_between_the_head_and_the_entries() {
    let bare = written(&Record::Slices(vec![slice("x")].into()), Lsn(0), 0);
    let entry = &bare[HEADER_LEN + SLICES_HEAD_LEN..][..SLICE_ENTRY_LEN];
    let expected = |epoch: u8, kind: u8, sequence: u8| {
        let mut expected = vec![1, 0, 0, 0, 56, 0, 0, 0];
        expected.extend_from_slice(&[4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[epoch, 0, 0, 0, kind, 0, 0, 0, sequence, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(entry);
        expected.push(b'x');
        expected
    };
    let (header, body) = marked(PostId::Sequence(STAMP), 1);
    assert_eq!(body, expected(5, 0, 6));
    assert_eq!((header.version, header.dir_len as usize), (1, SLICES_HEAD_LEN + 56 + SLICE_ENTRY_LEN));
    assert_eq!(marked(PostId::Key(PostKey(0x0102_0304)), 1).1, expected(0, 1, 0));
}

#[test]
fn a_stamp_of_an_earlier_build_is_read() {
    let (mut header, mut body) = marked(PostId::Sequence(STAMP), 1);
    body[4..8].copy_from_slice(&32_u32.to_le_bytes());
    body.drain(SLICES_HEAD_LEN + 32..SLICES_HEAD_LEN + 56);
    header.dir_len -= 24;
    let Some(Record::Slices(rows)) = Record::decode(&header, &body.clone().into()) else { panic!("should be rows") };
    assert_eq!(rows.mark, Some(STAMP.into()));
    assert_eq!(rows.slices, [slice("x")]);
    // There were no keys then.
    body[SLICES_HEAD_LEN + 20] = 1;
    body[SLICES_HEAD_LEN + 16] = 0;
    body[SLICES_HEAD_LEN + 24] = 0;
    assert_eq!(Record::decode(&header, &body.into()), None);
}

#[test]
fn a_mark_of_another_length_or_kind_is_not_guessed_at() {
    let (header, body) = marked(PostId::Sequence(STAMP), 1);
    assert!(Record::decode(&header, &body.clone().into()).is_some());
    for len in [0, 1, 31, 32, 33, 55, 57, 96, u32::MAX] {
        let mut body = body.clone();
        body[4..8].copy_from_slice(&len.to_le_bytes());
        assert_eq!(Record::decode(&header, &body.into()), None);
    }
    for kind in [1, 2, u32::MAX] {
        let mut body = body.clone();
        body[SLICES_HEAD_LEN + 20..][..4].copy_from_slice(&kind.to_le_bytes());
        assert_eq!(Record::decode(&header, &body.into()), None, "a key has no epoch");
    }
}

#[test]
fn a_mark_is_for_one_table() {
    let other = SliceInput { table: TableId(Uuid::from_u128(8)), ..slice("x") };
    let slices = vec![slice("x"), slice("x"), other];
    let refused = Record::Slices(Rows { mark: Some(STAMP.into()), slices: slices.clone() }).encode();
    assert_eq!(refused.expect_err("should be refused"), EncodeError::MarkedTables);
    assert!(Record::Slices(slices.into()).encode().is_ok());

    let (header, mut body) = marked(PostId::Sequence(STAMP), 2);
    assert!(Record::decode(&header, &body.clone().into()).is_some());
    body[SLICES_HEAD_LEN + MARK_LEN as usize + SLICE_ENTRY_LEN] ^= 1;
    assert_eq!(Record::decode(&header, &body.into()), None);
}
