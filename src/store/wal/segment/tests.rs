use proptest::prelude::*;

use super::*;
use crate::fs::MemoryFileSystem;

fn headers() -> impl Strategy<Value = Header> {
    (any::<u32>(), any::<[u64; 5]>(), any::<u128>()).prop_map(|(shard, numbers, node)| {
        let [base, salt, capacity, incarnation, kept_from] = numbers;
        Header {
            shard,
            base: Lsn(base),
            salt,
            capacity,
            node: NodeId(Uuid::from_u128(node)),
            incarnation: Incarnation(incarnation),
            kept_from: Lsn(kept_from),
        }
    })
}

proptest! {
    #[test]
    fn reads_what_it_wrote(header in headers()) {
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
    fn any_cut_shows(header in headers(), len in 0..HEADER_LEN as usize) {
        prop_assert_eq!(Header::decode(&header.encode()[..len]), Err(HeaderError::Damaged));
    }

    #[test]
    fn names_are_read_back_and_sort_like_positions(a: u64, b: u64) {
        let (name_a, name_b) = (file_name(Lsn(a)), file_name(Lsn(b)));
        prop_assert_eq!(parse_file_name(&name_a), Some(Lsn(a)));
        prop_assert_eq!(name_a.cmp(&name_b), a.cmp(&b));
    }

    #[test]
    fn never_panics(page in proptest::collection::vec(any::<u8>(), 0..200), name in ".{0,30}") {
        drop(Header::decode(&page));
        parse_file_name(&name);
    }
}

fn header(base: u64) -> Header {
    let (node, incarnation) = (NodeId(Uuid::from_u128(1)), Incarnation(2));
    Header { shard: 0, base: Lsn(base), salt: 3, capacity: 1 << 16, node, incarnation, kept_from: Lsn(0) }
}

#[test]
fn another_version_is_named() {
    let mut page = header(0).encode();
    page[8] = 9;
    let crc = crc32c::crc32c(&page[..LAYOUT.fields_len]);
    page[LAYOUT.fields_len..LAYOUT.fields_len + 4].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Header::decode(&page), Err(HeaderError::Version { found: 9, read: VERSION }));
}

#[test]
fn other_names_are_no_segments() {
    for name in ["", ".seg", "1.seg", "spare-1", "0000000000000000000x.seg", "99999999999999999999.seg"] {
        assert_eq!(parse_file_name(name), None, "{name}");
    }
}

#[test]
fn a_segment_has_its_name_only_with_its_content() {
    for seed in 0..40 {
        let fs = MemoryFileSystem::new();
        let dir = Path::new("/log");
        fs.create_dir_all(dir).expect("should be made");
        fs.sync_dir(Path::new("/")).expect("should sync");
        let file = fs.create(&dir.join("spare-0")).expect("should be made");
        file.allocate(HEADER_LEN + (1 << 16)).expect("should fit");
        // Cut short at each step, the power goes.
        for step in 0..4 {
            let fs = fs.snapshot();
            let file = fs.open(&dir.join("spare-0"), crate::fs::OpenMode::ReadWrite).expect("should be there");
            let operation =
                [crate::fs::Operation::SyncData, crate::fs::Operation::Rename, crate::fs::Operation::SyncDir];
            if let Some(operation) = operation.get(step) {
                let error = crate::fs::FaultKind::Eio;
                fs.fail(crate::fs::Fault { operation: *operation, nth: 1, path_contains: None, error, sticky: true });
            }
            let activated = activate(&fs, dir, header(4096), &dir.join("spare-0"), file, &[7; 4096]);
            assert_eq!(activated.is_ok(), step == 3);
            let after = fs.crash(seed);
            let named = after.open(&dir.join(file_name(Lsn(4096))), crate::fs::OpenMode::Read);
            assert!(step < 3 || named.is_ok(), "an active segment is lost");
            if let Ok(file) = named {
                let mut bytes = vec![0; 2 * HEADER_LEN as usize];
                file.read_exact_at(&mut bytes, 0).expect("should be as long");
                assert_eq!(Header::decode(&bytes[..HEADER_LEN as usize]), Ok(header(4096)));
                assert!(bytes[HEADER_LEN as usize..].iter().all(|b| *b == 7));
            }
        }
    }
}
