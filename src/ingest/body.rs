//! Undoes the content encoding of a body, up to a limit.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;

use super::reject::{Reject, RejectKind};
use super::room::{self, Boundless, Room};

/// Largest window a zstd frame may ask for, as a power of two: 8 MiB, what RFC 9659 grants to HTTP content. A frame
/// of a few bytes could otherwise claim gigabytes.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// What a body is decompressed into at first, bytes.
const FIRST_STEP: usize = 64 << 10;
/// What telemetry becomes at least when it is decompressed.
const USUAL_RATIO: usize = 4;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentEncoding {
    /// Not at all.
    Identity,
    /// gzip, of one member or several.
    Gzip,
    /// zstd, of one frame or several.
    Zstd,
}

impl ContentEncoding {
    /// The encoding a `Content-Encoding` header names; none where it is not one of ours (also for lists of several).
    pub fn from_header(header: &str) -> Option<Self> {
        match header.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// The body without its content encoding. Decoding stops at `max_bytes`, whatever the body would grow to, with the
/// code `body_too_large`; a body that is damaged or cut short has the code `invalid_encoding`.
pub fn decompress(encoding: ContentEncoding, body: Bytes, max_bytes: usize) -> Result<Bytes, Reject> {
    decompress_in(encoding, body, max_bytes, &Boundless)
}

/// The same, in a room that is asked before memory is taken: nothing about a compressed body says how large it is.
pub fn decompress_in(
    encoding: ContentEncoding,
    body: Bytes,
    max_bytes: usize,
    room: &dyn Room,
) -> Result<Bytes, Reject> {
    match encoding {
        ContentEncoding::Identity if body.len() <= max_bytes => Ok(body),
        ContentEncoding::Identity => Err(Reject::body_too_large(max_bytes)),
        ContentEncoding::Gzip => {
            read_bounded(MultiGzDecoder::new(body.as_ref()), "gzip", (body.len(), max_bytes), room)
        }
        ContentEncoding::Zstd => {
            let decoder = zstd_decoder(&body).map_err(|e| damaged("zstd", &e))?;
            read_bounded(decoder, "zstd", (body.len(), max_bytes), room)
        }
    }
}

fn zstd_decoder(body: &[u8]) -> io::Result<zstd::stream::read::Decoder<'_, &[u8]>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

fn read_bounded(
    mut reader: impl Read,
    name: &str,
    (compressed, max_bytes): (usize, usize),
    room: &dyn Room,
) -> Result<Bytes, Reject> {
    // One byte more than allowed tells "exactly full" from "too large".
    let most = max_bytes.saturating_add(1);
    let (mut decoded, mut filled) = (Vec::new(), 0);
    let first = compressed.saturating_mul(USUAL_RATIO).max(FIRST_STEP);
    loop {
        if filled == decoded.len() {
            if filled == most {
                return Err(Reject::body_too_large(max_bytes));
            }
            let next = (filled * 2).max(first).min(most);
            // Both are there while one is copied into the other.
            if !room.take(filled + next) {
                return Err(room::none_left());
            }
            decoded.reserve_exact(next - filled);
            decoded.resize(next, 0);
        }
        match reader.read(&mut decoded[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(damaged(name, &error)),
        }
    }
    if filled > max_bytes {
        return Err(Reject::body_too_large(max_bytes));
    }
    decoded.truncate(filled);
    Ok(Bytes::from(decoded))
}

fn damaged(name: &str, error: &io::Error) -> Reject {
    Reject::new(
        RejectKind::Invalid,
        "invalid_encoding",
        format!("the body is not complete and valid {name}: {error}"),
        format!("compress the body with {name}, or send it without Content-Encoding"),
    )
}
