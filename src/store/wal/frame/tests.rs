use proptest::prelude::*;

use super::*;

fn header(len: u32, lsn: u64, kind: u8, dir_len: u32, body_crc: u32) -> Header {
    Header { len, lsn: Lsn(lsn), kind, version: 1, dir_len, body_crc }
}

fn headers() -> impl Strategy<Value = Header> {
    let len = HEADER_LEN as u32..u32::MAX;
    (len, any::<u64>(), any::<u8>(), any::<u32>(), any::<u32>())
        .prop_map(|(len, lsn, kind, dir, crc)| header(len, lsn, kind, dir % (len - HEADER_LEN as u32 + 1), crc))
}

fn encode(header: &Header, salt: u64) -> [u8; HEADER_LEN] {
    let mut bytes = [0xFF; HEADER_LEN];
    write_header(&mut bytes, header, salt);
    bytes
}

proptest! {
    #[test]
    fn reads_what_it_wrote(header in headers(), salt: u64) {
        prop_assert_eq!(read_header(&encode(&header, salt), header.lsn, salt), Some(header));
    }

    #[test]
    fn is_valid_only_at_its_place_and_with_its_salt(header in headers(), salt: u64, other: u64) {
        let bytes = encode(&header, salt);
        prop_assert!(other == header.lsn.0 || read_header(&bytes, Lsn(other), salt).is_none());
        prop_assert!(other == salt || read_header(&bytes, header.lsn, other).is_none());
    }

    #[test]
    fn any_changed_byte_shows(header in headers(), salt: u64, at in 0..HEADER_LEN, by in 1..=255_u8) {
        let mut bytes = encode(&header, salt);
        bytes[at] ^= by;
        prop_assert_eq!(read_header(&bytes, header.lsn, salt), None);
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80), lsn: u64, salt: u64) {
        read_header(&bytes, Lsn(lsn), salt);
    }
}

#[test]
fn too_few_bytes_are_no_header() {
    let header = header(100, 7, 1, 8, 9);
    let bytes = encode(&header, 3);
    assert!((0..HEADER_LEN).all(|len| read_header(&bytes[..len], header.lsn, 3).is_none()));
}

#[test]
fn zeros_are_no_header() {
    assert_eq!(read_header(&[0; 64], Lsn(0), 0), None);
}

#[test]
fn a_checksum_does_not_depend_on_the_parts() {
    let whole = b"the same bytes";
    assert_eq!(body_crc([&whole[..]]), body_crc([&whole[..5], &[], &whole[5..]]));
}

#[test]
fn frames_are_padded_to_eight_bytes() {
    assert_eq!([32, 33, 39, 40].map(padded_len), [32, 40, 40, 40]);
}
