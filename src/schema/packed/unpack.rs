//! Packed payloads to Arrow arrays. Any bytes are safe to read: what is allocated is bounded by the payload and by
//! [`MAX_ROWS`] and [`MAX_ITEMS`].

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryBuilder, BooleanBuilder, ListArray, MapArray, NullBufferBuilder,
    PrimitiveBuilder, RecordBatch, StringBuilder, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, FieldRef, Fields, Float32Type, Float64Type, Int32Type, Int64Type, SchemaRef,
    TimeUnit, TimestampMicrosecondType,
};
use arrow::error::ArrowError;

use super::{ALL, MAX_ITEMS, MAX_ROWS, NONE, SOME};

/// Why bytes are no packed rows of a schema.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The bytes end inside a value.
    #[error("the bytes end inside a value")]
    Truncated,
    /// The bytes contradict the encoding.
    #[error("{0}")]
    Malformed(&'static str),
    /// The schema has a type that no column has.
    #[error("columns of type {0} are not packed")]
    Type(DataType),
    /// The values do not make the arrays that the schema wants.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

/// Reads payloads of one schema into the same arrays. After an error it is of no use.
#[derive(Debug)]
pub struct Unpacker {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
    bytes: usize,
}

impl Unpacker {
    /// Nothing read yet.
    ///
    /// # Errors
    /// [`UnpackError::Type`].
    pub fn new(schema: &SchemaRef) -> Result<Self, UnpackError> {
        let columns = schema.fields().iter().map(Column::new).collect::<Result<_, _>>()?;
        Ok(Self { schema: Arc::clone(schema), columns, rows: 0, bytes: 0 })
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Adds the rows of one payload.
    ///
    /// # Errors
    /// If the bytes are not what the encoding and the schema say, or all payloads together are more than the offsets of an array reach.
    pub fn add(&mut self, payload: &[u8]) -> Result<(), UnpackError> {
        self.bytes += payload.len();
        if i32::try_from(self.bytes).is_err() {
            return Err(TOO_LARGE);
        }
        let mut bytes = Input(payload);
        let rows = bytes.varint(MAX_ROWS, "more rows than a packed payload has")?;
        for column in &mut self.columns {
            column.read(&mut bytes, rows)?;
        }
        if !bytes.0.is_empty() {
            return Err(UnpackError::Malformed("bytes follow the rows"));
        }
        self.rows += rows;
        Ok(())
    }

    /// All rows read.
    ///
    /// # Errors
    /// If they do not make a batch of the schema.
    pub fn finish(self) -> Result<RecordBatch, UnpackError> {
        let columns = self.columns.into_iter().map(Column::finish).collect::<Result<Vec<_>, _>>()?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(self.schema, columns, &options)?)
    }
}

#[derive(Debug)]
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], UnpackError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(UnpackError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], UnpackError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(UnpackError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn varint(&mut self, most: usize, too_many: &'static str) -> Result<usize, UnpackError> {
        let mut value = 0_u64;
        for shift in (0..).step_by(7) {
            let [byte] = self.array()?;
            if shift >= 63 {
                return Err(UnpackError::Malformed("a number has too many bytes"));
            }
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        usize::try_from(value).ok().filter(|v| *v <= most).ok_or(UnpackError::Malformed(too_many))
    }

    fn bits(&mut self, count: usize) -> Result<impl Iterator<Item = bool> + use<'a>, UnpackError> {
        let bytes = self.take(count.div_ceil(8))?;
        Ok((0..count).map(|i| bytes[i / 8] >> (i % 8) & 1 == 1))
    }

    /// The lengths of lists that have at most [`MAX_ITEMS`] items together.
    fn lengths(&mut self, count: usize) -> Result<(Vec<usize>, usize), UnpackError> {
        let (mut lengths, mut total) = (Vec::with_capacity(count.min(self.0.len())), 0);
        for _ in 0..count {
            let length = self.varint(MAX_ITEMS - total, "more items than a packed payload has")?;
            total += length;
            lengths.push(length);
        }
        Ok((lengths, total))
    }
}

/// Which of a column's next values are there.
#[derive(Debug)]
enum Presence {
    All(usize),
    None(usize),
    Some(Vec<bool>),
}

impl Presence {
    fn read(bytes: &mut Input<'_>, nullable: bool, count: usize) -> Result<Self, UnpackError> {
        if !nullable {
            return Ok(Self::All(count));
        }
        match bytes.array::<1>()? {
            [ALL] => Ok(Self::All(count)),
            [NONE] => Ok(Self::None(count)),
            [SOME] => Ok(Self::Some(bytes.bits(count)?.collect())),
            _ => Err(UnpackError::Malformed("a column's presence is none that is known")),
        }
    }

    fn there(&self) -> usize {
        match self {
            Self::All(count) => *count,
            Self::None(_) => 0,
            Self::Some(bits) => bits.iter().filter(|there| **there).count(),
        }
    }

    /// For each value whether it is there.
    fn each(&self) -> impl Iterator<Item = bool> {
        let (fixed, bits): ((bool, usize), &[bool]) = match self {
            Self::All(count) => ((true, *count), &[]),
            Self::None(count) => ((false, *count), &[]),
            Self::Some(bits) => ((false, 0), bits),
        };
        std::iter::repeat_n(fixed.0, fixed.1).chain(bits.iter().copied())
    }
}

#[derive(Debug)]
struct Column {
    nullable: bool,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Boolean(BooleanBuilder),
    Int(PrimitiveBuilder<Int32Type>),
    Date(PrimitiveBuilder<Date32Type>),
    Float(PrimitiveBuilder<Float32Type>),
    Long(PrimitiveBuilder<Int64Type>),
    Double(PrimitiveBuilder<Float64Type>),
    Timestamp(PrimitiveBuilder<TimestampMicrosecondType>),
    Decimal(PrimitiveBuilder<Decimal128Type>),
    String(StringBuilder),
    Binary(BinaryBuilder),
    List { places: Places, field: FieldRef, items: Box<Column> },
    Map { places: Places, entries: FieldRef, fields: Fields, keys: Box<Column>, values: Box<Column> },
    Struct { nulls: NullBufferBuilder, fields: Fields, columns: Vec<Column>, len: usize },
}

/// Where the lists of a column lie among their items.
#[derive(Debug)]
struct Places {
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Places {
    fn new() -> Self {
        Self { offsets: vec![0], nulls: NullBufferBuilder::new(0) }
    }

    /// Reads the next lists' lengths; answers how many items follow.
    fn read(&mut self, bytes: &mut Input<'_>, presence: &Presence) -> Result<usize, UnpackError> {
        let (lengths, total) = bytes.lengths(presence.there())?;
        let mut lengths = lengths.into_iter();
        let mut end = self.offsets.last().copied().unwrap_or_default();
        for there in presence.each() {
            self.nulls.append(there);
            if there {
                let length = i32::try_from(lengths.next().unwrap_or_default()).ok();
                end = length.and_then(|length| end.checked_add(length)).ok_or(TOO_LARGE)?;
            }
            self.offsets.push(end);
        }
        Ok(total)
    }
}

const TOO_LARGE: UnpackError = UnpackError::Malformed("more items than one array holds");

impl Column {
    fn new(field: &FieldRef) -> Result<Self, UnpackError> {
        let kind = field.data_type();
        let values = match kind {
            DataType::Boolean => Values::Boolean(BooleanBuilder::new()),
            DataType::Int32 => Values::Int(PrimitiveBuilder::new()),
            DataType::Date32 => Values::Date(PrimitiveBuilder::new()),
            DataType::Float32 => Values::Float(PrimitiveBuilder::new()),
            DataType::Int64 => Values::Long(PrimitiveBuilder::new()),
            DataType::Float64 => Values::Double(PrimitiveBuilder::new()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Values::Timestamp(PrimitiveBuilder::new().with_data_type(kind.clone()))
            }
            DataType::Decimal128(_, _) => Values::Decimal(PrimitiveBuilder::new().with_data_type(kind.clone())),
            DataType::Utf8 => Values::String(StringBuilder::new()),
            DataType::Binary => Values::Binary(BinaryBuilder::new()),
            DataType::List(item) => {
                Values::List { places: Places::new(), field: Arc::clone(item), items: Box::new(Self::new(item)?) }
            }
            DataType::Map(entries, false) => {
                let DataType::Struct(fields) = entries.data_type() else { return Err(UnpackError::Type(kind.clone())) };
                let [key, value] = fields.as_ref() else { return Err(UnpackError::Type(kind.clone())) };
                Values::Map {
                    places: Places::new(),
                    entries: Arc::clone(entries),
                    fields: fields.clone(),
                    keys: Box::new(Self::new(key)?),
                    values: Box::new(Self::new(value)?),
                }
            }
            DataType::Struct(fields) => Values::Struct {
                nulls: NullBufferBuilder::new(0),
                fields: fields.clone(),
                columns: fields.iter().map(Self::new).collect::<Result<_, _>>()?,
                len: 0,
            },
            _ => return Err(UnpackError::Type(kind.clone())),
        };
        Ok(Self { nullable: field.is_nullable(), values })
    }

    fn read(&mut self, bytes: &mut Input<'_>, count: usize) -> Result<(), UnpackError> {
        let presence = Presence::read(bytes, self.nullable, count)?;
        // Nothing follows in any type, a struct's fields included.
        let nothing = matches!(presence, Presence::None(_));
        match &mut self.values {
            Values::Boolean(values) => {
                let mut bits = bytes.bits(presence.there())?;
                presence.each().for_each(|there| values.append_option(if there { bits.next() } else { None }));
            }
            Values::Int(values) => fixed(values, bytes, &presence, |b| b.array().map(i32::from_le_bytes))?,
            Values::Date(values) => fixed(values, bytes, &presence, |b| b.array().map(i32::from_le_bytes))?,
            Values::Float(values) => fixed(values, bytes, &presence, |b| b.array().map(f32::from_le_bytes))?,
            Values::Long(values) => fixed(values, bytes, &presence, |b| b.array().map(i64::from_le_bytes))?,
            Values::Double(values) => fixed(values, bytes, &presence, |b| b.array().map(f64::from_le_bytes))?,
            Values::Timestamp(values) => fixed(values, bytes, &presence, |b| b.array().map(i64::from_le_bytes))?,
            Values::Decimal(values) => fixed(values, bytes, &presence, |b| b.array().map(i128::from_le_bytes))?,
            Values::String(values) => each_bytes(bytes, &presence, |value| {
                let text = value.map(std::str::from_utf8).transpose();
                values.append_option(text.map_err(|_| UnpackError::Malformed("a string is not UTF-8"))?);
                Ok(())
            })?,
            Values::Binary(values) => each_bytes(bytes, &presence, |value| {
                values.append_option(value);
                Ok(())
            })?,
            Values::List { places, items, .. } => {
                let total = places.read(bytes, &presence)?;
                if !nothing {
                    items.read(bytes, total)?;
                }
            }
            Values::Map { places, keys, values, .. } => {
                let total = places.read(bytes, &presence)?;
                if !nothing {
                    keys.read(bytes, total)?;
                    values.read(bytes, total)?;
                }
            }
            Values::Struct { nulls, columns, len, .. } => {
                *len += count;
                presence.each().for_each(|there| nulls.append(there));
                for column in columns {
                    if nothing { column.leave_out(count)? } else { column.read(bytes, count)? }
                }
            }
        }
        Ok(())
    }

    /// Adds values that nobody sees, as the struct around them is null.
    fn leave_out(&mut self, count: usize) -> Result<(), UnpackError> {
        let nullable = self.nullable;
        let presence = if nullable { Presence::None(count) } else { Presence::All(count) };
        match &mut self.values {
            Values::Boolean(values) if nullable => values.append_nulls(count),
            Values::Boolean(values) => values.append_n(count, false),
            Values::Int(values) => unseen(values, nullable, count),
            Values::Date(values) => unseen(values, nullable, count),
            Values::Float(values) => unseen(values, nullable, count),
            Values::Long(values) => unseen(values, nullable, count),
            Values::Double(values) => unseen(values, nullable, count),
            Values::Timestamp(values) => unseen(values, nullable, count),
            Values::Decimal(values) => unseen(values, nullable, count),
            Values::String(values) => (0..count).for_each(|_| values.append_option((!nullable).then_some(""))),
            Values::Binary(values) => (0..count).for_each(|_| values.append_option((!nullable).then_some([]))),
            Values::List { places, .. } | Values::Map { places, .. } => {
                let end = places.offsets.last().copied().unwrap_or_default();
                places.offsets.extend(std::iter::repeat_n(end, count));
                presence.each().for_each(|there| places.nulls.append(there));
            }
            Values::Struct { nulls, columns, len, .. } => {
                *len += count;
                presence.each().for_each(|there| nulls.append(there));
                columns.iter_mut().try_for_each(|column| column.leave_out(count))?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<ArrayRef, UnpackError> {
        Ok(match self.values {
            Values::Boolean(mut values) => Arc::new(values.finish()),
            Values::Int(mut values) => Arc::new(values.finish()),
            Values::Date(mut values) => Arc::new(values.finish()),
            Values::Float(mut values) => Arc::new(values.finish()),
            Values::Long(mut values) => Arc::new(values.finish()),
            Values::Double(mut values) => Arc::new(values.finish()),
            Values::Timestamp(mut values) => Arc::new(values.finish()),
            Values::Decimal(mut values) => Arc::new(values.finish()),
            Values::String(mut values) => Arc::new(values.finish()),
            Values::Binary(mut values) => Arc::new(values.finish()),
            Values::List { mut places, field, items } => {
                let offsets = OffsetBuffer::new(places.offsets.into());
                Arc::new(ListArray::try_new(field, offsets, items.finish()?, places.nulls.finish())?)
            }
            Values::Map { mut places, entries, fields, keys, values } => {
                let offsets = OffsetBuffer::new(places.offsets.into());
                let pairs = StructArray::try_new(fields, vec![keys.finish()?, values.finish()?], None)?;
                Arc::new(MapArray::try_new(entries, offsets, pairs, places.nulls.finish(), false)?)
            }
            Values::Struct { mut nulls, fields, columns, len } => {
                let columns = columns.into_iter().map(Self::finish).collect::<Result<Vec<_>, _>>()?;
                Arc::new(StructArray::try_new_with_length(fields, columns, nulls.finish(), len)?)
            }
        })
    }
}

fn fixed<T: ArrowPrimitiveType>(
    values: &mut PrimitiveBuilder<T>,
    bytes: &mut Input<'_>,
    presence: &Presence,
    read: impl Fn(&mut Input<'_>) -> Result<T::Native, UnpackError>,
) -> Result<(), UnpackError> {
    presence.each().try_for_each(|there| {
        values.append_option(if there { Some(read(bytes)?) } else { None });
        Ok(())
    })
}

fn unseen<T: ArrowPrimitiveType>(values: &mut PrimitiveBuilder<T>, nullable: bool, count: usize) {
    if nullable { values.append_nulls(count) } else { values.append_value_n(T::Native::default(), count) }
}

fn each_bytes(
    bytes: &mut Input<'_>,
    presence: &Presence,
    mut put: impl FnMut(Option<&[u8]>) -> Result<(), UnpackError>,
) -> Result<(), UnpackError> {
    let there = presence.there();
    let mut lengths = Vec::with_capacity(there.min(bytes.0.len()));
    for _ in 0..there {
        lengths.push(bytes.varint(usize::MAX, "a length that no memory has")?);
    }
    let mut lengths = lengths.into_iter();
    presence
        .each()
        .try_for_each(|there| put(if there { Some(bytes.take(lengths.next().unwrap_or_default())?) } else { None }))
}
