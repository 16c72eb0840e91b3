//! The payload of a slice: its rows in a versioned encoding that the store carries and never looks into.
//!
//! Encoding 1 is one encapsulated Arrow IPC message (a record batch, V5, uncompressed, buffers on 8 bytes) without the
//! schema message in front: the slice's schema version says how it is to be read. Laid out as in an IPC stream:
//!
//! ```text
//! 0xFFFFFFFF | header length: u32 LE | header (flatbuffer, padded to 8) | body (buffers, each padded to 8)
//! ```
//!
//! Encoding 2 is for few rows: see [`packed`](super::packed).

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message};
use arrow::ipc::{MessageHeader, MetadataVersion};
use bytes::Bytes;

use super::TableSpec;
use super::arrow::arrow_schema;
use super::ipc::{IpcError, IpcLimits, Message, Split, read_batch};
use super::packed::{self, UnpackError, Unpacker};

mod batches;

pub use batches::{Batches, Unreadable};

/// One Arrow IPC record batch message without its schema.
pub const ENCODING_IPC: u8 = 1;

/// A few rows, packed.
pub const ENCODING_PACKED: u8 = 2;

const ALIGNMENT: usize = 8;

/// Why a payload cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// Written by a later version of Penstock.
    #[error("slice encoding {0} is not known to this version")]
    UnknownEncoding(u8),
    /// The bytes are not what the encoding and the schema say.
    #[error("the payload of a slice is damaged or of another schema version: {0}")]
    Damaged(#[from] IpcError),
    /// The same of packed rows.
    #[error("the payload of a slice is damaged or of another schema version: {0}")]
    Unpack(#[from] UnpackError),
    /// Acknowledged under a schema version that the definition at hand does not know.
    #[error("rows of schema version {version}, and the definition at hand is of version {newest}")]
    UnknownVersion {
        /// The rows'.
        version: u32,
        /// The definition's.
        newest: u32,
    },
    /// The batch cannot be encoded, or not be brought to a newer schema version.
    #[error("rows cannot be encoded: {0}")]
    Encode(#[source] ArrowError),
}

/// Encodes rows in the encoding that suits their number, and says which.
pub fn encode_slice(batch: &RecordBatch) -> Result<(u8, Bytes), PayloadError> {
    match packed::pack(batch) {
        Some(bytes) => Ok((ENCODING_PACKED, bytes.into())),
        None => Ok((ENCODING_IPC, encode(batch)?)),
    }
}

/// Encodes rows as [`ENCODING_IPC`].
pub fn encode(batch: &RecordBatch) -> Result<Bytes, PayloadError> {
    encode_message(batch).map(Bytes::from).map_err(PayloadError::Encode)
}

fn encode_message(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)?;
    let mut dictionaries = DictionaryTracker::new(true);
    let mut context = IpcWriteContext::default();
    let (extra, message) = IpcDataGenerator::default().encode(batch, &mut dictionaries, &options, &mut context)?;
    if !extra.is_empty() {
        return Err(ArrowError::InvalidArgumentError("dictionary columns have no place in a slice".to_owned()));
    }
    let mut bytes = Vec::with_capacity(message.ipc_message.len() + message.arrow_data.len() + 2 * ALIGNMENT);
    write_message(&mut bytes, message, &options)?;
    Ok(bytes)
}

/// Decodes a payload of the given encoding and schema. Any bytes are safe to pass: what is damaged is an error.
/// Buffers are shared with `payload` where they happen to be aligned.
pub fn decode(encoding: u8, payload: &Bytes, schema: &SchemaRef) -> Result<RecordBatch, PayloadError> {
    match encoding {
        ENCODING_IPC => Ok(decode_message(payload, schema)?),
        ENCODING_PACKED => {
            let mut rows = Unpacker::new(schema)?;
            rows.add(payload)?;
            Ok(rows.finish()?)
        }
        _ => Err(PayloadError::UnknownEncoding(encoding)),
    }
}

/// Decodes a payload that was acknowledged under any schema version of a table, as rows of the definition: `schema` is its
/// Arrow schema. Columns that came later are null, types that became wider hold the same values.
///
/// # Errors
/// As [`decode`], or the version is newer than the definition.
pub fn decode_as(
    spec: &TableSpec,
    schema: &SchemaRef,
    version: u32,
    encoding: u8,
    payload: &Bytes,
) -> Result<RecordBatch, PayloadError> {
    match definition_then(spec, version)? {
        None => decode(encoding, payload, schema),
        Some(then) => fill_up(decode(encoding, payload, &arrow_schema(&then))?, schema),
    }
}

/// The definition as it was when the rows were acknowledged; none if it is still the same.
fn definition_then(spec: &TableSpec, version: u32) -> Result<Option<TableSpec>, PayloadError> {
    let newest = spec.schema_version;
    if version == newest {
        return Ok(None);
    }
    spec.at(version).map(Some).ok_or(PayloadError::UnknownVersion { version, newest })
}

/// Rows of an earlier version as rows of `schema`.
fn fill_up(older: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, PayloadError> {
    let filled = schema.fields().iter().enumerate().map(|(at, field)| match older.columns().get(at) {
        Some(column) if column.data_type() == field.data_type() => Ok(Arc::clone(column)),
        Some(narrower) => cast(narrower, field.data_type()),
        None => Ok(new_null_array(field.data_type(), older.num_rows())),
    });
    let filled = filled.collect::<Result<Vec<_>, ArrowError>>().map_err(PayloadError::Encode)?;
    RecordBatch::try_new(Arc::clone(schema), filled).map_err(PayloadError::Encode)
}

fn decode_message(payload: &Bytes, schema: &SchemaRef) -> Result<RecordBatch, IpcError> {
    let Split::Message(message) = Message::split(payload, 0)? else {
        return Err(IpcError::Truncated);
    };
    if message.end != payload.len() {
        return Err(IpcError::Malformed("bytes follow the message"));
    }
    let header = message
        .header
        .header_as_record_batch()
        .filter(|_| message.header.header_type() == MessageHeader::RecordBatch)
        .ok_or(IpcError::Malformed("the message is no record batch"))?;
    if header.compression().is_some() {
        return Err(IpcError::Unsupported("slices are not compressed"));
    }
    let limits = IpcLimits { max_rows: u32::MAX as usize, max_bytes: payload.len() };
    read_batch(header, &message.body(), schema, &HashMap::new(), message.header.version(), limits)
}
