//! Walks the fields of a schema along the nodes and buffers of a record batch message, in the order in which
//! arrow-ipc reads them, and compares every declared length with what the type needs.

use std::collections::VecDeque;

use arrow::datatypes::{DataType, Field, Fields};
use arrow::ipc;

use super::{IpcError, IpcLimits};

/// Prefix of a compressed buffer: its length before compression, or -1 where it is stored as it is.
const COMPRESSED_PREFIX: usize = 8;

/// Checks that the message has exactly the nodes and buffers that `fields` need, that they lie within the body, that
/// together they claim no byte twice, and that none declares more than the limits allow.
pub fn check_batch(
    batch: ipc::RecordBatch<'_>,
    body: &[u8],
    fields: &Fields,
    limits: IpcLimits,
) -> Result<(), IpcError> {
    let rows = length(batch.length())?;
    at_most("a number of rows", rows, limits.max_rows)?;
    let buffers = buffer_lengths(&batch, body, limits)?;
    let nodes = batch.nodes().ok_or(IpcError::Malformed("the message has no field nodes"))?;
    let variadic = batch.variadicBufferCounts().into_iter().flatten().collect();
    // A node without bytes of its own (nulls, empty structs) may be as long as the rows; any other is bounded by bits.
    let longest = buffers.iter().sum::<usize>().saturating_mul(8).max(limits.max_rows);
    let nodes = nodes.iter().map(|n| node(n, longest)).collect::<Result<VecDeque<_>, _>>()?;
    let mut walk = Walk { nodes, buffers: buffers.into(), variadic };
    for field in fields {
        if walk.field(field)?.rows != rows {
            return Err(IpcError::Malformed("a column's length differs from the batch's"));
        }
    }
    if walk.nodes.is_empty() && walk.buffers.is_empty() && walk.variadic.is_empty() {
        return Ok(());
    }
    Err(IpcError::Malformed("the message has more parts than the schema has columns"))
}

fn length(declared: i64) -> Result<usize, IpcError> {
    usize::try_from(declared).map_err(|_| IpcError::Malformed("a length is negative"))
}

fn at_most(what: &'static str, found: usize, limit: usize) -> Result<(), IpcError> {
    if found <= limit {
        return Ok(());
    }
    Err(IpcError::TooLarge { what, found: found as u64, limit: limit as u64 })
}

fn node(node: &ipc::FieldNode, longest: usize) -> Result<Node, IpcError> {
    let (rows, nulls) = (length(node.length())?, length(node.null_count())?);
    at_most("a column's length", rows, longest)?;
    if nulls > rows {
        return Err(IpcError::Malformed("a column has more nulls than values"));
    }
    Ok(Node { rows, nulls })
}

/// The length of each buffer once it is decompressed.
fn buffer_lengths(batch: &ipc::RecordBatch<'_>, body: &[u8], limits: IpcLimits) -> Result<Vec<usize>, IpcError> {
    let compressed = match batch.compression() {
        None => false,
        // The lz4 reader decompresses whatever the frame holds and compares lengths afterwards, so that no check
        // made here could bound it.
        Some(by) if by.codec() == ipc::CompressionType::ZSTD => true,
        Some(_) => return Err(IpcError::Unsupported("buffers compressed with lz4 are not read; use zstd or none")),
    };
    let buffers = batch.buffers().ok_or(IpcError::Malformed("the message has no buffers"))?;
    let mut lengths = Vec::with_capacity(buffers.len());
    let (mut stored, mut decoded) = (0_usize, 0_usize);
    for buffer in buffers {
        let (start, size) = (length(buffer.offset())?, length(buffer.length())?);
        let bytes = start
            .checked_add(size)
            .and_then(|end| body.get(start..end))
            .ok_or(IpcError::Malformed("a buffer lies outside the message's body"))?;
        let plain = if compressed { decompressed_length(bytes)? } else { size };
        stored = stored.saturating_add(size);
        decoded = decoded.saturating_add(plain);
        lengths.push(plain);
    }
    if stored > body.len() {
        return Err(IpcError::Malformed("buffers overlap"));
    }
    at_most("a number of bytes", decoded, limits.max_bytes)?;
    Ok(lengths)
}

fn decompressed_length(bytes: &[u8]) -> Result<usize, IpcError> {
    if bytes.is_empty() {
        return Ok(0);
    }
    let prefix = bytes.get(..COMPRESSED_PREFIX).and_then(|b| <[u8; COMPRESSED_PREFIX]>::try_from(b).ok());
    match prefix.map(i64::from_le_bytes) {
        Some(-1) => Ok(bytes.len() - COMPRESSED_PREFIX),
        Some(declared) => length(declared),
        None => Err(IpcError::Malformed("a compressed buffer is shorter than its length prefix")),
    }
}

/// Bytes of a string view.
const VIEW: usize = 16;

#[derive(Clone, Copy)]
struct Node {
    rows: usize,
    nulls: usize,
}

struct Walk {
    nodes: VecDeque<Node>,
    buffers: VecDeque<usize>,
    variadic: VecDeque<i64>,
}

impl Walk {
    /// Consumes what one field occupies.
    fn field(&mut self, field: &Field) -> Result<Node, IpcError> {
        let node = self.nodes.pop_front().ok_or(IpcError::Malformed("a column's node is missing"))?;
        let rows = node.rows;
        if matches!(field.data_type(), DataType::Null) {
            return if node.nulls == rows {
                Ok(node)
            } else {
                Err(IpcError::Malformed("a column of nulls counts other values"))
            };
        }
        if let DataType::RunEndEncoded(ends, values) = field.data_type() {
            self.runs(ends, values)?;
            return Ok(node);
        }
        let validity = if node.nulls > 0 { bits(rows) } else { 0 };
        self.buffer(validity)?;
        match field.data_type() {
            DataType::Boolean => self.buffer(bits(rows))?,
            DataType::Utf8 | DataType::Binary => self.offsets_and_values(rows, 4)?,
            DataType::LargeUtf8 | DataType::LargeBinary => self.offsets_and_values(rows, 8)?,
            DataType::Utf8View | DataType::BinaryView => self.views(rows)?,
            DataType::FixedSizeBinary(width) => self.buffer(rows.saturating_mul(length(i64::from(*width))?))?,
            DataType::List(item) => self.list(rows, 4, item)?,
            DataType::LargeList(item) => self.list(rows, 8, item)?,
            DataType::ListView(item) => self.list_view(rows, 4, item)?,
            DataType::LargeListView(item) => self.list_view(rows, 8, item)?,
            DataType::Map(entries, _) => {
                self.whole(offsets(rows, 4), 4)?;
                if self.field(entries)?.nulls > 0 {
                    return Err(IpcError::Malformed("a map's entries are null"));
                }
            }
            DataType::FixedSizeList(item, width) => {
                let items = rows.checked_mul(length(i64::from(*width))?);
                if items != Some(self.field(item)?.rows) {
                    return Err(IpcError::Malformed("a fixed-size list's items do not match its length"));
                }
            }
            DataType::Struct(fields) => {
                for child in fields {
                    if self.field(child)?.rows != rows {
                        return Err(IpcError::Malformed("a struct's fields differ in length"));
                    }
                }
            }
            DataType::Dictionary(keys, _) => self.fixed_width(rows, keys)?,
            plain => self.fixed_width(rows, plain)?,
        }
        Ok(node)
    }

    fn buffer(&mut self, needed: usize) -> Result<(), IpcError> {
        match self.buffers.pop_front() {
            Some(size) if size >= needed => Ok(()),
            Some(_) => Err(IpcError::Malformed("a buffer is shorter than its column")),
            None => Err(IpcError::Malformed("a buffer is missing")),
        }
    }

    /// A buffer that is read as values of `width` bytes from its first byte to its last.
    fn whole(&mut self, needed: usize, width: usize) -> Result<(), IpcError> {
        if self.buffers.front().is_some_and(|size| size % width != 0) {
            return Err(IpcError::Malformed("a buffer ends inside a value"));
        }
        self.buffer(needed)
    }

    fn fixed_width(&mut self, rows: usize, kind: &DataType) -> Result<(), IpcError> {
        let width = kind.primitive_width().ok_or(IpcError::Unsupported("the stream has a type that is not read"))?;
        self.whole(rows.saturating_mul(width), width)
    }

    fn offsets_and_values(&mut self, rows: usize, width: usize) -> Result<(), IpcError> {
        self.whole(offsets(rows, width), width)?;
        self.buffer(0)
    }

    fn views(&mut self, rows: usize) -> Result<(), IpcError> {
        self.whole(rows.saturating_mul(VIEW), VIEW)?;
        let blocks = self.variadic.pop_front().ok_or(IpcError::Malformed("a view column's block count is missing"))?;
        let blocks = length(blocks)?;
        if blocks > self.buffers.len() {
            return Err(IpcError::Malformed("a buffer is missing"));
        }
        self.buffers.drain(..blocks);
        Ok(())
    }

    /// Offsets and sizes, one each for every list.
    fn list_view(&mut self, rows: usize, width: usize, item: &Field) -> Result<(), IpcError> {
        self.whole(rows.saturating_mul(width), width)?;
        self.whole(rows.saturating_mul(width), width)?;
        self.field(item).map(|_| ())
    }

    /// Run ends and values, which are two columns; the runs themselves have no buffer, not even one that says which are null.
    fn runs(&mut self, ends: &Field, values: &Field) -> Result<(), IpcError> {
        let (ends, values) = (self.field(ends)?, self.field(values)?);
        if ends.nulls > 0 || ends.rows != values.rows {
            return Err(IpcError::Malformed("run ends and values do not match"));
        }
        Ok(())
    }

    fn list(&mut self, rows: usize, width: usize, item: &Field) -> Result<(), IpcError> {
        self.whole(offsets(rows, width), width)?;
        self.field(item).map(|_| ())
    }
}

fn bits(rows: usize) -> usize {
    rows.div_ceil(8)
}

/// A column of no rows may leave its one offset out.
fn offsets(rows: usize, width: usize) -> usize {
    if rows == 0 { 0 } else { rows.saturating_add(1).saturating_mul(width) }
}
