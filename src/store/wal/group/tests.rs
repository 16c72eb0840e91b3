use proptest::prelude::*;

use super::*;

fn headers() -> impl Strategy<Value = Header> {
    let kind = prop_oneof![Just(Kind::Group), Just(Kind::Mark), Just(Kind::Onward)];
    (any::<u64>(), any::<u64>(), any::<u64>(), HEADER_LEN as u32.., any::<u32>(), kind).prop_map(
        |(lsn, durable, kept, len, frames, kind)| Header {
            lsn: Lsn(lsn),
            durable_lsn: Lsn(durable.min(lsn)),
            kept_from: Lsn(kept.min(lsn)),
            len,
            frames,
            kind,
        },
    )
}

proptest! {
    #[test]
    fn reads_what_it_wrote(header in headers(), salt: u64) {
        prop_assert_eq!(Header::decode(&header.encode(salt), header.lsn, salt), Some(header));
    }

    #[test]
    fn is_valid_only_at_its_place_and_with_its_salt(header in headers(), salt: u64, other: u64) {
        let bytes = header.encode(salt);
        prop_assert!(other == header.lsn.0 || Header::decode(&bytes, Lsn(other), salt).is_none());
        prop_assert!(other == salt || Header::decode(&bytes, header.lsn, other).is_none());
    }

    #[test]
    fn any_changed_byte_shows(header in headers(), salt: u64, at in 0..HEADER_LEN, by in 1..=255_u8) {
        let mut bytes = header.encode(salt);
        bytes[at] ^= by;
        prop_assert_eq!(Header::decode(&bytes, header.lsn, salt), None);
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100), lsn: u64, salt: u64) {
        Header::decode(&bytes, Lsn(lsn), salt);
    }
}

#[test]
fn what_claims_to_know_the_future_is_no_header() {
    let sound = Header::note(Kind::Mark, Lsn(4096), Lsn(0));
    for wrong in [
        Header { durable_lsn: Lsn(4097), ..sound },
        Header { kept_from: Lsn(4097), ..sound },
        Header { len: HEADER_LEN as u32 - 1, ..sound },
    ] {
        assert_eq!(Header::decode(&wrong.encode(1), sound.lsn, 1), None);
    }
}

#[test]
fn too_few_bytes_and_zeros_are_no_header() {
    let header = Header::note(Kind::Onward, Lsn(8192), Lsn(4096));
    let bytes = header.encode(5);
    assert!((0..HEADER_LEN).all(|len| Header::decode(&bytes[..len], header.lsn, 5).is_none()));
    assert_eq!(Header::decode(&[0; 4096], Lsn(0), 0), None);
}
