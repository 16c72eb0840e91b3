use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::ingest::{ContentEncoding, Format, RejectKind, decompress};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).unwrap()
}

#[test]
fn headers_name_encodings_and_formats() {
    assert_eq!(ContentEncoding::from_header("gzip"), Some(ContentEncoding::Gzip));
    assert_eq!(ContentEncoding::from_header(" GZip "), Some(ContentEncoding::Gzip));
    assert_eq!(ContentEncoding::from_header("zstd"), Some(ContentEncoding::Zstd));
    assert_eq!(ContentEncoding::from_header("identity"), Some(ContentEncoding::Identity));
    assert_eq!(ContentEncoding::from_header("br"), None);
    assert_eq!(ContentEncoding::from_header("gzip, zstd"), None);
    assert_eq!(Format::from_content_type("application/json; charset=utf-8"), Some(Format::Json));
    assert_eq!(Format::from_content_type("Application/X-NDJSON"), Some(Format::Ndjson));
    assert_eq!(Format::from_content_type("application/vnd.apache.arrow.stream"), Some(Format::ArrowStream));
    assert_eq!(Format::from_content_type("text/csv"), None);
    assert_eq!(Format::from_content_type(""), None);
}

#[test]
fn bodies_come_back_whole() {
    let text = b"{\"a\":1}\n".repeat(1_000);
    for (encoding, body) in [
        (ContentEncoding::Identity, text.clone()),
        (ContentEncoding::Gzip, gzip(&text)),
        (ContentEncoding::Zstd, zstd(&text)),
    ] {
        assert_eq!(decompress(encoding, Bytes::from(body.clone()), text.len()).unwrap(), text);
        let reject = decompress(encoding, Bytes::from(body), text.len() - 1).unwrap_err();
        assert_eq!((reject.code, reject.status), ("body_too_large", RejectKind::TooLarge));
    }
}

#[test]
fn several_members_and_frames_are_one_body() {
    let gz = [gzip(b"one\n"), gzip(b"two\n")].concat();
    assert_eq!(decompress(ContentEncoding::Gzip, gz.into(), 100).unwrap(), "one\ntwo\n");
    let frames = [zstd(b"one\n"), zstd(b"two\n")].concat();
    assert_eq!(decompress(ContentEncoding::Zstd, frames.into(), 100).unwrap(), "one\ntwo\n");
}

#[test]
fn a_bomb_stops_at_the_limit() {
    let bomb = gzip(&vec![0; 32 << 20]);
    assert!(bomb.len() < 1 << 18);
    let reject = decompress(ContentEncoding::Gzip, bomb.into(), 1 << 20).unwrap_err();
    assert_eq!(reject.code, "body_too_large");
    let bomb = zstd(&vec![0; 32 << 20]);
    assert!(bomb.len() < 10_000);
    assert_eq!(decompress(ContentEncoding::Zstd, bomb.into(), 1 << 20).unwrap_err().code, "body_too_large");
}

#[test]
fn a_frame_that_asks_for_a_huge_window_is_refused() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(b"x").unwrap();
    let frame = encoder.finish().unwrap();
    assert_eq!(decompress(ContentEncoding::Zstd, frame.into(), 100).unwrap_err().code, "invalid_encoding");
}

#[test]
fn every_truncation_is_refused() {
    let text = b"{\"a\":1}\n".repeat(50);
    for (encoding, body) in [(ContentEncoding::Gzip, gzip(&text)), (ContentEncoding::Zstd, zstd(&text))] {
        for end in 1..body.len() {
            let reject = decompress(encoding, Bytes::copy_from_slice(&body[..end]), 1 << 20).unwrap_err();
            assert_eq!((reject.code, reject.status), ("invalid_encoding", RejectKind::Invalid), "{encoding:?} {end}");
        }
        let trailing = [body, b"junk".to_vec()].concat();
        assert_eq!(decompress(encoding, trailing.into(), 1 << 20).unwrap_err().code, "invalid_encoding");
    }
}

/// Room for so many bytes; remembers the most that was asked for.
#[derive(Debug)]
struct Narrow(usize, std::sync::atomic::AtomicUsize);

impl crate::ingest::room::Room for Narrow {
    fn take(&self, bytes: usize) -> bool {
        self.1.fetch_max(bytes, std::sync::atomic::Ordering::Relaxed);
        bytes <= self.0
    }
}

#[test]
fn memory_is_asked_for_before_it_is_taken() {
    let narrow = |bytes| std::sync::Arc::new(Narrow(bytes, Default::default()));
    let text = vec![b'x'; 4 << 20];
    let body = Bytes::from(gzip(&text));
    let room = narrow(1 << 20);
    let reject = crate::ingest::decompress_in(ContentEncoding::Gzip, body.clone(), 64 << 20, &*room).unwrap_err();
    assert_eq!(reject.code, "no_room");
    assert!(room.1.load(std::sync::atomic::Ordering::Relaxed) < 4 << 20, "asked in steps: {room:?}");
    assert_eq!(crate::ingest::decompress_in(ContentEncoding::Gzip, body, 64 << 20, &*narrow(16 << 20)).unwrap(), text);

    // Few bytes that are many columns.
    let columns: Vec<String> = (0..500).map(|n| format!("c{n} long")).collect();
    let spec = super::receipt_table(&columns.join("; "));
    let rows = Bytes::from("{}\n".repeat(1_000));
    let decode = |room| {
        let limits = crate::ingest::Limits::default();
        crate::ingest::decode_in(&spec, crate::ingest::Format::Ndjson, &rows, super::NOW, &limits, room)
    };
    assert_eq!(decode(narrow(1 << 20)).unwrap_err().code, "no_room");
    let room = narrow(1 << 30);
    let batch = decode(std::sync::Arc::clone(&room) as _).unwrap().batch;
    let asked = room.1.load(std::sync::atomic::Ordering::Relaxed);
    assert!(asked >= batch.get_array_memory_size(), "{asked} for {}", batch.get_array_memory_size());
}
