//! How a post says what makes a repeat of it one: a key of its own, or its place among those of a numbered producer.
//!
//! Both count within one table. The hashes are written to disk, so they never change.

use penstock_store::{PostId, PostKey, ProducerId, Stamp, TableId};

use super::Format;

/// Most bytes of a key, and of a producer's name.
pub const MAX_NAME: usize = 256;

/// What is wrong with what a post says of itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Nothing, or too much.
    #[error("{what} of {len} bytes; it has 1 to {MAX_NAME}")]
    Length {
        /// Of what.
        what: &'static str,
        /// Bytes.
        len: usize,
    },
    /// No number of its kind.
    #[error("{what} {text:?} is not a number from 0 to {max}")]
    Number {
        /// Of what.
        what: &'static str,
        /// The start of what was sent.
        text: String,
        /// The highest.
        max: u64,
    },
    /// Numbers belong to a producer, and a producer's posts are numbered.
    #[error("{0}")]
    Incomplete(&'static str),
}

/// What a post may say of itself, as it was sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Said<'a> {
    /// A key of its own.
    pub key: Option<&'a [u8]>,
    /// The producer's name.
    pub producer: Option<&'a [u8]>,
    /// The producer's life, a number; 0 if not said.
    pub epoch: Option<&'a [u8]>,
    /// The post's number among those of the producer to the table in this life, from 0.
    pub sequence: Option<&'a [u8]>,
}

/// By what a repeat of the post is known; none if it says nothing.
///
/// # Errors
/// [`Invalid`].
pub fn id(said: Said<'_>) -> Result<Option<PostId>, Invalid> {
    match said {
        Said { key: Some(_), producer: Some(_), .. } => {
            Err(Invalid::Incomplete("a post has a key of its own or is numbered by its producer, not both"))
        }
        Said { key: Some(key), producer: None, epoch: None, sequence: None } => {
            Ok(Some(PostId::Key(PostKey(hash(b"key\0", named("a key", key)?)))))
        }
        Said { key: None, producer: Some(producer), epoch, sequence: Some(sequence) } => {
            let producer = ProducerId(hash(b"producer\0", named("a producer's name", producer)?));
            let epoch = epoch.map_or(Ok(0), |epoch| number("the epoch", epoch, u64::from(u32::MAX)))?;
            // Every sequence needs one behind it.
            let sequence = number("the sequence", sequence, u64::MAX - 1)?;
            let epoch = u32::try_from(epoch).expect("should be at most u32::MAX");
            Ok(Some(PostId::Sequence(Stamp { producer, epoch, sequence })))
        }
        Said { producer: Some(_), sequence: None, .. } => {
            Err(Invalid::Incomplete("a producer's post has no sequence; number its posts to each table from 0"))
        }
        Said { producer: None, key: None, epoch: None, sequence: None } => Ok(None),
        Said { producer: None, .. } => Err(Invalid::Incomplete("an epoch or a sequence, and no producer")),
    }
}

fn named<'a>(what: &'static str, name: &'a [u8]) -> Result<&'a [u8], Invalid> {
    if (1..=MAX_NAME).contains(&name.len()) { Ok(name) } else { Err(Invalid::Length { what, len: name.len() }) }
}

fn number(what: &'static str, text: &[u8], max: u64) -> Result<u64, Invalid> {
    let digits = std::str::from_utf8(text).ok().filter(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).filter(|n| *n <= max).ok_or_else(|| {
        let text = String::from_utf8_lossy(text).chars().take(40).collect();
        Invalid::Number { what, text, max }
    })
}

/// By what rows that a post left in another table, as dead letters, are known there: they are taken once too, in a record of their own that
/// MUST be durable before the post's. Keys and numbers count within a table, so this is made of both.
pub fn beside(id: PostId, table: TableId) -> PostId {
    let (kind, number, epoch, sequence) = match id {
        PostId::Key(key) => (0_u8, key.0, 0, 0),
        PostId::Sequence(stamp) => (1, stamp.producer.0, stamp.epoch, stamp.sequence),
    };
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&epoch.to_le_bytes());
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(table.0.as_bytes());
    PostId::Key(PostKey(hash(b"beside\0", &bytes)))
}

/// What of a post is compared with its repeats: the rows as they were sent, without their compression. (It finds mistakes. It is no
/// defence against somebody who wants another body to look the same.)
pub fn digest(format: Format, body: &[u8]) -> u64 {
    let kind = match format {
        Format::Ndjson => 0,
        Format::Json => 1,
        Format::ArrowStream => 2,
    };
    let len = body.len() as u64;
    (u64::from(crc32c::crc32c(body)) << 32) ^ (len << 2) ^ kind
}

/// FNV-1a of 128 bits.
fn hash(kind: &[u8], name: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let bytes = kind.iter().chain(name);
    bytes.fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Said<'_> {
        Said { key: Some(text.as_bytes()), ..Said::default() }
    }

    fn numbered<'a>(producer: &'a str, epoch: Option<&'a str>, sequence: &'a str) -> Said<'a> {
        Said {
            key: None,
            producer: Some(producer.as_bytes()),
            epoch: epoch.map(str::as_bytes),
            sequence: Some(sequence.as_bytes()),
        }
    }

    #[test]
    fn ids_never_change() {
        // On disk, of builds before this one: a change here takes every repeat of an older post for a new one.
        let of_key = PostId::Key(PostKey(0x482c_d187_93dd_fafd_408b_d206_d27d_87e9));
        assert_eq!(id(key("order 7")), Ok(Some(of_key)));
        let producer = ProducerId(0x1a90_ed6b_c686_9ff4_06b2_0ef2_b78a_3388);
        let stamp = Stamp { producer, epoch: 3, sequence: 9 };
        assert_eq!(id(numbered("agent-1", Some("3"), "9")), Ok(Some(PostId::Sequence(stamp))));
        assert_eq!(id(numbered("agent-1", None, "9")), Ok(Some(PostId::Sequence(Stamp { epoch: 0, ..stamp }))));
        assert_eq!(id(Said::default()), Ok(None));
        assert_eq!(digest(Format::Ndjson, b"{\"a\":1}\n"), digest(Format::Ndjson, b"{\"a\":1}\n"));
        assert_eq!(digest(Format::Ndjson, b"{\"a\":1}\n"), 0x3374_37e6_0000_0020);
    }

    #[test]
    fn a_key_and_a_producer_of_one_name_are_not_each_other() {
        let (Ok(Some(PostId::Key(key))), Ok(Some(PostId::Sequence(stamp)))) =
            (id(key("x")), id(numbered("x", None, "0")))
        else {
            panic!("should be ids")
        };
        assert_ne!(key.0, stamp.producer.0);
    }

    #[test]
    fn what_lies_beside_is_of_one_post_to_one_table() {
        let table = |n| TableId(uuid::Uuid::from_u128(n));
        let stamp = |epoch, sequence| PostId::Sequence(Stamp { producer: ProducerId(7), epoch, sequence });
        let posts = [PostId::Key(PostKey(7)), PostId::Key(PostKey(8)), stamp(0, 0), stamp(1, 0), stamp(0, 1)];
        let beside: std::collections::HashSet<PostId> =
            posts.iter().flat_map(|id| [beside(*id, table(1)), beside(*id, table(2))]).collect();
        assert_eq!(beside.len(), 2 * posts.len());
        assert!(posts.iter().all(|id| !beside.contains(id)));
    }

    #[test]
    fn another_body_or_format_has_another_digest() {
        let bodies: [(Format, &[u8]); 5] = [
            (Format::Ndjson, b"{\"a\":1}"),
            (Format::Json, b"{\"a\":1}"),
            (Format::Ndjson, b"{\"a\":2}"),
            (Format::Ndjson, b"{\"a\":1} "),
            (Format::ArrowStream, b"{\"a\":1}"),
        ];
        let digests: std::collections::HashSet<u64> =
            bodies.iter().map(|(format, body)| digest(*format, body)).collect();
        assert_eq!(digests.len(), bodies.len());
    }

    #[test]
    fn mistakes_are_named() {
        let long = "k".repeat(MAX_NAME + 1);
        let nothing = Said::default();
        let cases = [
            (key(""), "a key of 0 bytes; it has 1 to 256"),
            (key(&long), "a key of 257 bytes"),
            (numbered("", None, "0"), "a producer's name of 0 bytes"),
            (numbered("p", None, "-1"), "the sequence \"-1\" is not a number from 0 to 18446744073709551614"),
            (numbered("p", None, "18446744073709551615"), "the sequence"),
            (numbered("p", None, ""), "the sequence \"\""),
            (numbered("p", Some("4294967296"), "0"), "the epoch \"4294967296\" is not a number from 0 to 4294967295"),
            (Said { producer: Some(b"p"), ..nothing }, "no sequence"),
            (Said { sequence: Some(b"1"), ..nothing }, "no producer"),
            (Said { epoch: Some(b"1"), ..nothing }, "no producer"),
            (Said { key: Some(b"k"), sequence: Some(b"1"), ..nothing }, "no producer"),
            (Said { key: Some(b"k"), ..numbered("p", None, "1") }, "not both"),
        ];
        for (said, expected) in cases {
            let error = id(said).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(id(key(&long[1..])).is_ok());
        assert!(id(key("\u{e9}")).is_ok(), "any bytes");
    }
}
