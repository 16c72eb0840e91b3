//! Reading Arrow IPC messages from bytes that nobody vouches for.
//!
//! arrow-ipc verifies the flatbuffer and the values of the arrays, and trusts what lies between: it slices the body
//! by the offsets the message gives, allocates by the lengths it declares, and panics where they do not fit. So:
//!
//! - [`Message::split`] cuts one message off the front, with its body inside the bytes that are really there;
//! - [`check_schema`] bounds a schema message before it is expanded;
//! - [`read_batch`] walks fields, nodes and buffers together, and lets arrow-ipc read only what fits;
//! - [`guarded`] turns a panic that remains in arrow-ipc into an error.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc;
use bytes::Bytes;

use super::spec::{MAX_COLUMNS, MAX_TYPE_DEPTH};

mod walk;

pub use walk::check_batch;

const CONTINUATION: u32 = u32::MAX;

/// Most fields a schema message may have, nested ones included. A flatbuffer may use one table many times, so that
/// a small message can describe a huge tree.
const MAX_FIELDS: usize = 4 * MAX_COLUMNS;

/// Why bytes are not a message that can be read.
#[derive(Debug, thiserror::Error)]
pub enum IpcError {
    /// The bytes end inside a message.
    #[error("the bytes end inside a message")]
    Truncated,
    /// A part of the message contradicts another, or the bytes that are there.
    #[error("{0}")]
    Malformed(&'static str),
    /// The flatbuffer does not verify.
    #[error("the message header does not verify: {0}")]
    Flatbuffer(String),
    /// The message holds more than the reader allows.
    #[error("{what} of {found} is above the limit of {limit}")]
    TooLarge {
        /// What is counted.
        what: &'static str,
        /// What the message declares.
        found: u64,
        /// What is allowed.
        limit: u64,
    },
    /// A feature of the format that is not read.
    #[error("{0}")]
    Unsupported(&'static str),
    /// arrow-ipc refuses the message.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// arrow-ipc panicked on the message.
    #[error("the Arrow reader failed on this message")]
    ReaderPanic,
}

/// What one message may declare.
#[derive(Debug, Clone, Copy)]
pub struct IpcLimits {
    /// Most rows, and most items of a nested column that occupies no bytes.
    pub max_rows: usize,
    /// Most bytes of all buffers together, decompressed.
    pub max_bytes: usize,
}

/// One encapsulated message: its verified header and its body.
#[derive(Debug)]
pub struct Message<'a> {
    /// The header.
    pub header: ipc::Message<'a>,
    body: std::ops::Range<usize>,
    source: &'a Bytes,
    /// Position behind the message.
    pub end: usize,
}

impl<'a> Message<'a> {
    /// What stands at `start`: a message whose body lies within the bytes, or the end.
    pub fn split(source: &'a Bytes, start: usize) -> Result<Split<'a>, IpcError> {
        let bytes = source.as_ref();
        if start == bytes.len() {
            return Ok(Split::End { at: start });
        }
        let (mut length, mut at) = read_u32(bytes, start)?;
        if length == CONTINUATION {
            (length, at) = read_u32(bytes, at)?;
        }
        if length == 0 {
            return Ok(Split::End { at });
        }
        let body_start = at.checked_add(length as usize).ok_or(IpcError::Truncated)?;
        let metadata = bytes.get(at..body_start).ok_or(IpcError::Truncated)?;
        let header = ipc::root_as_message(metadata).map_err(|e| IpcError::Flatbuffer(e.to_string()))?;
        let body_len =
            usize::try_from(header.bodyLength()).map_err(|_| IpcError::Malformed("a body length is negative"))?;
        let end = body_start.checked_add(body_len).filter(|end| *end <= bytes.len()).ok_or(IpcError::Truncated)?;
        Ok(Split::Message(Self { header, body: body_start..end, source, end }))
    }

    /// The body, without a copy.
    pub fn body(&self) -> Buffer {
        Buffer::from(self.source.slice(self.body.clone()))
    }
}

/// What stands at a position of an IPC stream.
#[derive(Debug)]
pub enum Split<'a> {
    /// A message.
    Message(Message<'a>),
    /// The end of the stream.
    End {
        /// Position behind the end marker, or of the end of the bytes where there is no marker.
        at: usize,
    },
}

fn read_u32(bytes: &[u8], at: usize) -> Result<(u32, usize), IpcError> {
    let end = at.checked_add(4).ok_or(IpcError::Truncated)?;
    let four = bytes.get(at..end).and_then(|b| <[u8; 4]>::try_from(b).ok()).ok_or(IpcError::Truncated)?;
    Ok((u32::from_le_bytes(four), end))
}

/// Checks a schema message before [`ipc::convert::fb_to_schema`] expands it. That function still panics on types it
/// does not know, so call it through [`guarded`].
pub fn check_schema(schema: ipc::Schema<'_>) -> Result<(), IpcError> {
    if schema.endianness() != ipc::Endianness::Little {
        return Err(IpcError::Unsupported("big-endian streams are not read"));
    }
    let fields = schema.fields().ok_or(IpcError::Malformed("the schema has no fields"))?;
    let mut budget = MAX_FIELDS;
    fields.iter().try_for_each(|field| count_fields(field, MAX_TYPE_DEPTH * 2, &mut budget))
}

/// A map counts two levels in Arrow and one in a column type, hence twice the depth.
fn count_fields(field: ipc::Field<'_>, depth: usize, budget: &mut usize) -> Result<(), IpcError> {
    let too_many =
        IpcError::TooLarge { what: "a number of fields", found: MAX_FIELDS as u64 + 1, limit: MAX_FIELDS as u64 };
    *budget = budget.checked_sub(1).ok_or(too_many)?;
    let depth = depth.checked_sub(1).ok_or(IpcError::Malformed("types nest too deep"))?;
    let children = field.children().into_iter().flatten();
    children.into_iter().try_for_each(|child| count_fields(child, depth, budget))
}

/// Reads a record batch message whose body is `body`. Values are validated in full: UTF-8, offsets, null counts.
pub fn read_batch(
    header: ipc::RecordBatch<'_>,
    body: &Buffer,
    schema: &SchemaRef,
    dictionaries: &HashMap<i64, ArrayRef>,
    version: ipc::MetadataVersion,
    limits: IpcLimits,
) -> Result<RecordBatch, IpcError> {
    check_batch(header, body, schema.fields(), limits)?;
    guarded(|| ipc::reader::read_record_batch(body, header, schema.clone(), dictionaries, None, &version))
}

/// Runs a part of arrow-ipc on checked input. The last guard, for what the checks do not know: a panic on hostile
/// bytes must cost one request, not the thread that serves others. Nothing outlives the closure but its result, so
/// there is no state that an unwound reader could leave half done.
pub fn guarded<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, IpcError> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|_| IpcError::ReaderPanic)?.map_err(IpcError::Arrow)
}
