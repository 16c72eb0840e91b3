use proptest::prelude::*;

use super::*;

/// What a slice says, for comparing.
fn facts(slice: &Slice) -> (u64, u32, u8, u32, i64, i64, Bytes) {
    let Slice { lsn, schema_version, encoding, rows, min_time, max_time, payload } = slice.clone();
    (lsn.0, schema_version, encoding, rows, min_time, max_time, payload)
}

fn all_facts(slices: &[Slice]) -> Vec<(u64, u32, u8, u32, i64, i64, Bytes)> {
    slices.iter().map(facts).collect()
}

fn headers() -> impl Strategy<Value = Header> {
    (any::<u32>(), any::<u64>(), any::<u128>(), any::<u64>()).prop_map(|(shard, id, node, incarnation)| Header {
        shard,
        id,
        node: NodeId(Uuid::from_u128(node)),
        incarnation: Incarnation(incarnation),
    })
}

fn slices() -> impl Strategy<Value = Vec<Slice>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..100);
    let slice = (any::<u64>(), any::<u32>(), any::<u8>(), 0..1000_u32, any::<[i64; 2]>(), payload);
    proptest::collection::vec(slice, 1..10).prop_map(|mut slices| {
        slices.sort_by_key(|slice| slice.0);
        let slice =
            |(lsn, schema_version, encoding, rows, [min_time, max_time], payload): (_, _, _, _, [i64; 2], Vec<u8>)| {
                Slice { lsn: Lsn(lsn), schema_version, encoding, rows, min_time, max_time, payload: payload.into() }
            };
        slices.into_iter().map(slice).collect()
    })
}

/// Extents back to back, tables in ascending order.
fn entries() -> impl Strategy<Value = Vec<ExtentEntry>> {
    let extent = (0..4_u128, any::<i64>(), 1..=i64::MAX, any::<[u64; 3]>(), any::<[u32; 2]>(), (1..9_u32, 0..9_u32));
    proptest::collection::vec(extent, 0..12).prop_map(|mut extents| {
        extents.sort_by_key(|extent| extent.0);
        let mut offset = HEADER_LEN;
        let entry = |(table, start, width, mut lsns, [rows, crc], (slices, payload_bytes)): (
            _,
            _,
            _,
            [u64; 3],
            [u32; 2],
            (u32, u32),
        )| {
            lsns.sort_unstable();
            let [generation, first_lsn, last_lsn] = lsns.map(Lsn);
            let (table, bucket) = (TableId(Uuid::from_u128(table)), Bucket { start, width });
            let len = slices * SLICE_ENTRY_LEN as u32 + payload_bytes;
            let at = offset;
            offset += u64::from(len);
            let offset = at;
            #[rustfmt::skip]
            let entry = ExtentEntry {
                table, bucket, generation, first_lsn, last_lsn, offset, len, slices, rows, payload_bytes, crc,
            };
            entry
        };
        extents.into_iter().map(entry).collect()
    })
}

fn extent(slices: &[Slice]) -> Bytes {
    let mut bytes = Vec::new();
    encode_extent(slices, &mut bytes);
    bytes.into()
}

fn entry_of(slices: &[Slice]) -> ExtentEntry {
    let bytes = extent(slices);
    let payload_bytes = slices.iter().map(|slice| slice.payload.len() as u32).sum();
    ExtentEntry {
        table: TableId(Uuid::nil()),
        bucket: Bucket { start: 0, width: 1 },
        generation: slices[0].lsn,
        first_lsn: slices[0].lsn,
        last_lsn: slices[slices.len() - 1].lsn,
        offset: HEADER_LEN,
        len: bytes.len() as u32,
        slices: slices.len() as u32,
        rows: slices.iter().map(|slice| slice.rows).sum(),
        payload_bytes,
        crc: crc32c::crc32c(&bytes),
    }
}

proptest! {
    #[test]
    fn headers_are_read_back(header in headers()) {
        let page = header.encode();
        prop_assert_eq!(page.len() as u64, HEADER_LEN);
        prop_assert_eq!(Header::decode(&page), Ok(header));
    }

    #[test]
    fn any_changed_byte_of_the_page_shows(header in headers(), at in 0..HEADER_LEN as usize, by in 1..=255_u8) {
        let mut page = header.encode();
        page[at] ^= by;
        prop_assert_eq!(Header::decode(&page), Err(HeaderError::Damaged));
    }

    #[test]
    fn any_cut_of_the_page_shows(header in headers(), len in 0..HEADER_LEN as usize) {
        prop_assert_eq!(Header::decode(&header.encode()[..len]), Err(HeaderError::Damaged));
    }

    #[test]
    fn names_are_read_back(shard: u32, id: u64, other in "s?[0-9+]{0,4}-?[0-9+]{0,13}(\\.lane)?") {
        prop_assert_eq!(parse_file_name(&file_name(shard, id)), Some((shard, id)));
        if let Some((shard, id)) = parse_file_name(&other) {
            prop_assert_eq!(file_name(shard, id), other);
        }
    }

    #[test]
    fn extents_are_read_back(slices in slices()) {
        let bytes = extent(&slices);
        let found = decode_extent(bytes, slices.len() as u32).expect("should be readable");
        prop_assert_eq!(all_facts(&found), all_facts(&slices));
        let found = entry_of(&slices).decode(extent(&slices)).expect("should be what the entry says");
        prop_assert_eq!(all_facts(&found), all_facts(&slices));
    }

    #[test]
    fn any_changed_bit_of_an_extent_shows(slices in slices(), at: prop::sample::Index, bit in 0..8) {
        let mut bytes = extent(&slices).to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(entry_of(&slices).decode(bytes.into()).is_none());
    }

    #[test]
    fn an_extent_of_another_length_is_refused(slices in slices(), at: prop::sample::Index) {
        let bytes = extent(&slices);
        let count = slices.len() as u32;
        prop_assert!(decode_extent(bytes.slice(..at.index(bytes.len())), count).is_none());
        prop_assert!(decode_extent([&bytes[..], &[0]].concat().into(), count).is_none());
        prop_assert!(decode_extent(bytes, count - 1).is_none());
    }

    #[test]
    fn indexes_are_read_back(entries in entries()) {
        let bytes = encode_index(&entries);
        prop_assert_eq!(decode_index(&bytes), Some(entries));
    }

    #[test]
    fn what_is_taken_for_an_index_is_one(entries in entries(), at: prop::sample::Index, by in 1..=255_u8) {
        let mut bytes = encode_index(&entries);
        let crc = crc32c::crc32c(&bytes);
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        prop_assert_ne!(crc32c::crc32c(&bytes), crc);
        if let Some(found) = decode_index(&bytes) {
            prop_assert!(found.iter().all(ExtentEntry::is_sound));
            prop_assert!(found != entries);
        }
    }

    #[test]
    fn any_cut_and_any_addition_to_an_index_shows(entries in entries(), at: prop::sample::Index) {
        let mut bytes = encode_index(&entries);
        prop_assert_eq!(decode_index(&bytes[..at.index(bytes.len())]), None);
        bytes.push(0);
        prop_assert_eq!(decode_index(&bytes), None);
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), count: u32, name in ".{0,30}") {
        drop(Header::decode(&bytes));
        decode_index(&bytes);
        for count in [count, 0, 1, 2, 3, u32::MAX] {
            decode_extent(bytes.clone().into(), count);
        }
        parse_file_name(&name);
    }
}

fn slice(lsn: u64, rows: u32, payload: Bytes) -> Slice {
    Slice { lsn: Lsn(lsn), schema_version: 1, encoding: 1, rows, min_time: 0, max_time: 0, payload }
}

#[test]
fn payloads_share_the_extents_memory() {
    let bytes = extent(&[slice(1, 1, "ab".into()), slice(2, 1, "cd".into())]);
    let found = decode_extent(bytes.clone(), 2).expect("should be readable");
    assert_eq!(found[1].payload.as_ptr(), bytes[2 * SLICE_ENTRY_LEN + 2..].as_ptr());
}

#[test]
fn slices_out_of_order_are_refused() {
    assert!(decode_extent(extent(&[slice(2, 1, "a".into()), slice(2, 1, "b".into())]), 2).is_some());
    assert!(decode_extent(extent(&[slice(2, 1, "a".into()), slice(1, 1, "b".into())]), 2).is_none());
}

#[test]
fn an_extent_takes_what_fits() {
    let large = Bytes::from(vec![0; MAX_EXTENT_BYTES as usize]);
    let fits = large.slice(SLICE_ENTRY_LEN..);
    assert_eq!(extent_slices(&[]), 0);
    assert_eq!(extent_slices(&[slice(1, 1, fits.clone())]), 1);
    assert_eq!(extent_slices(&[slice(1, 1, fits), slice(2, 1, Bytes::new())]), 1, "64 MiB are full");
    assert_eq!(extent_slices(&[slice(1, 1, large.clone()), slice(2, 1, large)]), 1, "alone beyond the limit");
    let rows = [slice(1, u32::MAX - 1, Bytes::new()), slice(2, 1, Bytes::new()), slice(3, 1, Bytes::new())];
    assert_eq!(extent_slices(&rows), 2, "rows are counted in 32 bits");
}

#[test]
fn what_does_not_agree_is_refused() {
    let sound = entry_of(&[slice(5, 1, "ab".into()), slice(6, 1, "cd".into())]);
    assert!(sound.is_sound());
    let unsound = [
        ExtentEntry { slices: 0, len: 4, ..sound },
        ExtentEntry { slices: 1, ..sound },
        ExtentEntry { payload_bytes: 5, ..sound },
        ExtentEntry { len: sound.len + 1, ..sound },
        ExtentEntry { bucket: Bucket { start: 0, width: 0 }, ..sound },
        ExtentEntry { bucket: Bucket { start: 0, width: i64::MIN }, ..sound },
        ExtentEntry { first_lsn: Lsn(7), ..sound },
        ExtentEntry { generation: Lsn(6), ..sound },
        ExtentEntry { payload_bytes: MAX_EXTENT_BYTES, len: MAX_EXTENT_BYTES + 80, ..sound },
    ];
    for entry in unsound {
        assert_eq!(decode_index(&encode_index(&[entry])), None, "{entry:?}");
    }
    let single = ExtentEntry { slices: 1, payload_bytes: MAX_EXTENT_BYTES, len: MAX_EXTENT_BYTES + 40, ..sound };
    assert_eq!(decode_index(&encode_index(&[single])), Some(vec![single]));
    assert_eq!(decode_index(&[]), None);
    let empty_group = [&1_u32.to_le_bytes()[..], &[0; 20]].concat();
    assert_eq!(decode_index(&empty_group), None);
}

#[test]
fn another_version_is_named() {
    let header = Header { shard: 1, id: 2, node: NodeId(Uuid::nil()), incarnation: Incarnation(3) };
    let mut page = header.encode();
    page[8] = 2;
    let crc = crc32c::crc32c(&page[..LAYOUT.fields_len]);
    page[LAYOUT.fields_len..LAYOUT.fields_len + 4].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Header::decode(&page), Err(HeaderError::Version { found: 2, read: VERSION }));
}

#[test]
fn names_are_as_documented() {
    assert_eq!(file_name(7, 42), "s007-000000000042.lane");
    for stranger in ["s07-000000000042.lane", "s007-42.lane", "s007-000000000042", "s+07-000000000042.lane", "s-.lane"]
    {
        assert_eq!(parse_file_name(stranger), None, "{stranger}");
    }
}
