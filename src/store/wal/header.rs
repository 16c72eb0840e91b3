//! The header of a file: what it is and whose, under one checksum. Segments, lane files and manifests all begin with one.
//!
//! ```text
//!  0  magic    8 bytes
//!  8  version  u32
//! 12  fields   of the format
//!     crc      u32  CRC32C of everything before it
//!     zeros    up to the header's length
//! ```
//!
//! Integers are little-endian. The zeros were written with the fields: a changed byte there is damage, though it says nothing.

use super::codec::Reader;

const CRC_LEN: usize = 4;

/// Why a file's header is not one of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The bytes do not match their checksum.
    #[error("the header is damaged")]
    Damaged,
    /// Written by another build.
    #[error("format version {found}; this build reads version {read}")]
    Version {
        /// In the file.
        found: u32,
        /// The one that is read.
        read: u32,
    },
}

/// What makes a kind of header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub magic: [u8; 8],
    pub version: u32,
    /// Bytes before the checksum: magic, version and fields.
    pub fields_len: usize,
    /// All bytes.
    pub len: usize,
}

impl Layout {
    /// The header with these fields.
    pub fn encode(&self, fields: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        bytes.extend_from_slice(&self.magic);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        fields.iter().for_each(|field| bytes.extend_from_slice(field));
        debug_assert_eq!(bytes.len(), self.fields_len);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.resize(self.len, 0);
        bytes
    }

    /// A reader of the fields, all of which are there and undamaged.
    ///
    /// # Errors
    /// If the header is damaged or of another version.
    pub fn fields<'a>(&self, bytes: &'a [u8]) -> Result<Reader<'a>, HeaderError> {
        let found = self.sound(bytes).ok_or(HeaderError::Damaged)?;
        if found != self.version {
            return Err(HeaderError::Version { found, read: self.version });
        }
        let start = self.magic.len() + size_of::<u32>();
        bytes.get(start..self.fields_len).map(Reader::new).ok_or(HeaderError::Damaged)
    }

    /// The version of a header whose bytes are those that were written. What another version has behind the checksum is its own.
    fn sound(&self, bytes: &[u8]) -> Option<u32> {
        let mut reader = Reader::new(bytes);
        let magic_ok = reader.take(self.magic.len())? == self.magic;
        let version = reader.u32()?;
        let (fields, rest) = bytes.split_at_checked(self.fields_len)?;
        let mut rest = Reader::new(rest);
        let crc_ok = rest.u32()? == crc32c::crc32c(fields);
        let zeros = bytes.get(self.fields_len + CRC_LEN..self.len)?;
        let rest_ok = bytes.len() == self.len && zeros.iter().all(|b| *b == 0);
        (magic_ok && crc_ok && (rest_ok || version != self.version)).then_some(version)
    }
}
