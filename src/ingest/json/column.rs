//! The columns of a batch while rows are added to them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder,
    Float64Builder, Int32Builder, Int64Builder, ListArray, MapArray, NullBufferBuilder, StringBuilder, StructArray,
    TimestampMicrosecondBuilder,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};

use super::scalar::Scalar;
use crate::ingest::limits::kind_bytes;
use crate::ingest::reject::Fault;
use crate::ingest::text_time::Epochs;
use crate::schema::arrow::{UTC, data_type, entries_field, entry_fields, list_field};
use crate::schema::{ColumnSpec, ColumnType, TableSpec, remainder};

/// One growing column.
#[derive(Debug)]
pub(super) struct Column {
    pub name: String,
    pub nullable: bool,
    pub values: Values,
}

/// The values of a column, by its type.
#[derive(Debug)]
pub(super) enum Values {
    Boolean(BooleanBuilder),
    Int(Int32Builder),
    /// The nanoseconds of a time, added at the end of each object; `said` is what the object has told so far.
    Nanos {
        values: Int32Builder,
        said: Option<i32>,
    },
    Long(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    String(StringBuilder),
    Binary(BinaryBuilder),
    Date(Date32Builder),
    Timestamp(Times),
    Decimal {
        values: Decimal128Builder,
        precision: u8,
        scale: i8,
    },
    List(Box<List>),
    Struct(Box<Struct>),
    Map(Box<Map>),
}

#[derive(Debug)]
pub(super) struct Times {
    values: TimestampMicrosecondBuilder,
    epochs: Epochs,
    /// Whether there is a column for the nanoseconds.
    keeps_nanos: bool,
    /// Those of the last value.
    nanos: Option<i32>,
}

#[derive(Debug)]
pub(super) struct List {
    pub item: Column,
    /// Bytes that one item takes whatever its text is.
    pub item_bytes: usize,
    kind: ColumnType,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

#[derive(Debug)]
pub(super) struct Struct {
    pub fields: Fields,
    kind: ColumnType,
    nulls: NullBufferBuilder,
}

#[derive(Debug)]
pub(super) struct Map {
    pub keys: StringBuilder,
    pub value: Column,
    /// Bytes that one entry takes whatever its text is.
    pub entry_bytes: usize,
    kind: ColumnType,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

/// Columns that are found by name: those of the rows, or the fields of a struct.
#[derive(Debug)]
pub(super) struct Fields {
    pub columns: Vec<Column>,
    index: HashMap<String, usize>,
    /// The columns in the order in which the last object had them. Objects of one sender have one order, so that the
    /// next key is nearly always found with one comparison.
    order: Vec<usize>,
    /// For each column the last object that had it.
    seen: Vec<u64>,
    object: u64,
    /// Keys of this object so far.
    position: usize,
    /// Times that keep their nanoseconds, each with the place of these.
    remainders: Vec<(usize, usize)>,
}

impl Fields {
    /// The columns of a table's rows.
    pub fn for_rows(spec: &TableSpec) -> Self {
        Self::new(&spec.columns, |column| Epochs::of(spec, &column.name))
    }

    fn new(specs: &[ColumnSpec], epochs: impl Fn(&ColumnSpec) -> Epochs) -> Self {
        let mut columns: Vec<Column> = specs
            .iter()
            .map(|c| Column { name: c.name.clone(), nullable: c.nullable, values: Values::new(&c.kind, epochs(c)) })
            .collect();
        let index = columns.iter().enumerate().map(|(at, c)| (c.name.clone(), at)).collect();
        let remainders = remainder::pairs(specs);
        for (time, rest) in &remainders {
            if let Values::Timestamp(times) = &mut columns[*time].values {
                times.keeps_nanos = true;
            }
            columns[*rest].values = Values::Nanos { values: Int32Builder::new(), said: None };
        }
        Self { seen: vec![0; columns.len()], columns, index, order: Vec::new(), object: 0, position: 0, remainders }
    }

    /// Starts an object.
    pub fn begin(&mut self) {
        self.object += 1;
        self.position = 0;
    }

    /// The column of the next key of the object, if there is one of this name.
    pub fn locate(&mut self, key: &str) -> Result<Option<usize>, Fault> {
        let guess = self.order.get(self.position).copied();
        let at = match guess {
            Some(at) if self.columns[at].name == key => at,
            _ => match self.index.get(key) {
                Some(at) => *at,
                None => return Ok(None),
            },
        };
        if std::mem::replace(&mut self.seen[at], self.object) == self.object {
            return Err(Fault::duplicate_key());
        }
        match self.order.get_mut(self.position) {
            Some(known) => *known = at,
            None => self.order.push(at),
        }
        self.position += 1;
        Ok(Some(at))
    }

    /// Adds nulls for the columns that the object left out, except for one that is filled otherwise.
    ///
    /// # Errors
    /// The first one that may not be null.
    pub fn fill_missing(&mut self, except: Option<usize>) -> Result<(), (usize, Fault)> {
        for pair in 0..self.remainders.len() {
            self.settle_nanos(self.remainders[pair])?;
        }
        if self.position == self.columns.len() {
            return Ok(());
        }
        for (at, column) in self.columns.iter_mut().enumerate() {
            if self.seen[at] != self.object && Some(at) != except {
                column.append_null().map_err(|fault| (at, fault))?;
            }
        }
        Ok(())
    }

    /// Adds the nanoseconds of a time of the object, or what the object says of them itself.
    fn settle_nanos(&mut self, (time, rest): (usize, usize)) -> Result<(), (usize, Fault)> {
        let nanos = match &self.columns[time].values {
            Values::Timestamp(times) if self.seen[time] == self.object => times.nanos,
            _ => None,
        };
        let told = std::mem::replace(&mut self.seen[rest], self.object) == self.object;
        let Values::Nanos { values, said } = &mut self.columns[rest].values else { unreachable!("made as one") };
        let said = said.take().filter(|_| told);
        match (said, nanos) {
            (Some(said), Some(nanos)) if nanos != 0 && said != nanos => Err((rest, Fault::other_nanoseconds(nanos))),
            (said, nanos) => {
                values.append_option(said.or(nanos));
                Ok(())
            }
        }
    }

    /// Adds what has no column of its own to the overflow column.
    pub fn append_overflow(&mut self, at: usize, key: &str, json: &str) {
        if let Values::Map(map) = &mut self.columns[at].values {
            map.keys.append_value(key);
            map.value.append_text(json);
        }
    }

    /// Ends the overflow of a row, if there is any.
    pub fn close_overflow(&mut self, at: usize) -> Result<(), (usize, Fault)> {
        let Values::Map(map) = &mut self.columns[at].values else { return Ok(()) };
        if !map.has_open_entries() {
            return Ok(());
        }
        let unique = map.close_unique();
        self.seen[at] = self.object;
        self.position += 1;
        if unique { Ok(()) } else { Err((at, Fault::duplicate_key())) }
    }

    /// Ends a row that stopped anywhere: every column has `len` values then. What is added is no row's value.
    pub fn fill_up(&mut self, len: usize) {
        self.columns.iter_mut().for_each(|column| column.values.fill_up(len));
    }

    /// The finished columns; the fields start anew.
    pub fn finish(&mut self) -> Vec<ArrayRef> {
        self.columns.iter_mut().map(|c| c.values.finish()).collect()
    }
}

impl Column {
    fn nested(name: &str, kind: &ColumnType) -> Self {
        Self { name: name.to_owned(), nullable: true, values: Values::new(kind, Epochs::Micros) }
    }

    /// Adds a null, where the column may have one.
    pub fn append_null(&mut self) -> Result<(), Fault> {
        if !self.nullable {
            return Err(Fault::missing_value());
        }
        self.values.append_null();
        Ok(())
    }

    /// Adds a text to a column of texts.
    fn append_text(&mut self, text: &str) {
        if let Values::String(values) = &mut self.values {
            values.append_value(text);
        }
    }

    /// Adds a time to the receipt-time column.
    pub fn append_time(&mut self, micros: i64) {
        if let Values::Timestamp(times) = &mut self.values {
            times.values.append_value(micros);
            times.nanos = Some(0);
        }
    }

    /// The last value of a column of times.
    pub fn last_time(&self) -> Option<i64> {
        match &self.values {
            Values::Timestamp(times) => times.values.values_slice().last().copied(),
            _ => None,
        }
    }

    /// Adds a value to a column of a plain type.
    pub fn append_scalar(&mut self, scalar: &Scalar<'_>) -> Result<(), Fault> {
        if let Values::Nanos { said, .. } = &mut self.values {
            *said = if matches!(scalar, Scalar::Null) { None } else { Some(scalar.int()?) };
            return Ok(());
        }
        if matches!(scalar, Scalar::Null) {
            return self.append_null();
        }
        match &mut self.values {
            Values::Boolean(values) => values.append_value(scalar.boolean()?),
            Values::Int(values) => values.append_value(scalar.int()?),
            Values::Long(values) => values.append_value(scalar.long()?),
            Values::Float(values) => values.append_value(scalar.float()?),
            Values::Double(values) => values.append_value(scalar.double()?),
            Values::Binary(values) => values.append_value(scalar.binary()?),
            Values::Date(values) => values.append_value(scalar.date()?),
            Values::Timestamp(times) => {
                let time = scalar.timestamp(times.epochs)?;
                let micros = if times.keeps_nanos { time.micros } else { time.whole(scalar.shown())? };
                times.values.append_value(micros);
                times.nanos = Some(time.nanos);
            }
            Values::Decimal { values, precision, scale } => {
                values.append_value(scalar.decimal(*precision, *scale)?);
            }
            Values::Nanos { .. } | Values::String(_) | Values::List(_) | Values::Struct(_) | Values::Map(_) => {
                unreachable!("nanoseconds are dealt with, strings and nested values have visitors of their own")
            }
        }
        Ok(())
    }
}

impl Values {
    fn new(kind: &ColumnType, epochs: Epochs) -> Self {
        match kind {
            ColumnType::Boolean => Self::Boolean(BooleanBuilder::new()),
            ColumnType::Int => Self::Int(Int32Builder::new()),
            ColumnType::Long => Self::Long(Int64Builder::new()),
            ColumnType::Float => Self::Float(Float32Builder::new()),
            ColumnType::Double => Self::Double(Float64Builder::new()),
            ColumnType::String => Self::String(StringBuilder::new()),
            ColumnType::Binary => Self::Binary(BinaryBuilder::new()),
            ColumnType::Date => Self::Date(Date32Builder::new()),
            ColumnType::Timestamp => {
                let values = TimestampMicrosecondBuilder::new();
                Self::Timestamp(Times { values, epochs, keeps_nanos: false, nanos: None })
            }
            ColumnType::Decimal { precision, scale } => {
                Self::Decimal { values: Decimal128Builder::new(), precision: *precision, scale: *scale }
            }
            ColumnType::List(item) => Self::List(Box::new(List {
                item: Column::nested("element", item),
                item_bytes: kind_bytes(item),
                kind: (**item).clone(),
                offsets: vec![0],
                nulls: NullBufferBuilder::new(0),
            })),
            ColumnType::Struct(fields) => Self::Struct(Box::new(Struct {
                fields: Fields::new(fields, |_| Epochs::Micros),
                kind: kind.clone(),
                nulls: NullBufferBuilder::new(0),
            })),
            ColumnType::Map(value) => Self::Map(Box::new(Map {
                keys: StringBuilder::new(),
                value: Column::nested("value", value),
                entry_bytes: 4 + kind_bytes(value),
                kind: (**value).clone(),
                offsets: vec![0],
                nulls: NullBufferBuilder::new(0),
            })),
        }
    }

    fn append_null(&mut self) {
        match self {
            Self::Boolean(values) => values.append_null(),
            Self::Int(values) | Self::Nanos { values, .. } => values.append_null(),
            Self::Long(values) => values.append_null(),
            Self::Float(values) => values.append_null(),
            Self::Double(values) => values.append_null(),
            Self::String(values) => values.append_null(),
            Self::Binary(values) => values.append_null(),
            Self::Date(values) => values.append_null(),
            Self::Timestamp(times) => {
                times.values.append_null();
                times.nanos = None;
            }
            Self::Decimal { values, .. } => values.append_null(),
            Self::List(list) => list.close(false),
            Self::Map(map) => map.close(false),
            Self::Struct(inner) => {
                inner.fields.columns.iter_mut().for_each(|c| c.values.append_null());
                inner.nulls.append_null();
            }
        }
    }

    /// Brings the values to `len`, and with them what is nested in them to where it belongs together.
    fn fill_up(&mut self, len: usize) {
        match self {
            Self::List(list) => {
                list.item.values.fill_up(list.item.values.begun());
                (list.nulls.len()..len).for_each(|_| list.close(false));
            }
            Self::Map(map) => {
                let entries = map.keys.len().max(map.value.values.begun());
                (map.keys.len()..entries).for_each(|_| map.keys.append_value(""));
                map.value.values.fill_up(entries);
                (map.nulls.len()..len).for_each(|_| map.close(false));
            }
            Self::Struct(inner) => {
                inner.fields.fill_up(len);
                (inner.nulls.len()..len).for_each(|_| inner.nulls.append_null());
            }
            plain => (plain.len()..len).for_each(|_| plain.append_null()),
        }
    }

    /// Values, one that has only begun included: else its items would become those of the next one.
    fn begun(&self) -> usize {
        let last = |offsets: &[i32]| offsets.last().map_or(0, |last| last.cast_unsigned() as usize);
        match self {
            Self::List(list) => list.nulls.len() + usize::from(list.item.values.begun() > last(&list.offsets)),
            Self::Map(map) => {
                let entries = map.keys.len().max(map.value.values.begun());
                map.nulls.len() + usize::from(entries > last(&map.offsets))
            }
            Self::Struct(inner) => {
                inner.fields.columns.iter().map(|field| field.values.begun()).fold(inner.nulls.len(), usize::max)
            }
            plain => plain.len(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Boolean(values) => Arc::new(values.finish()),
            Self::Int(values) | Self::Nanos { values, .. } => Arc::new(values.finish()),
            Self::Long(values) => Arc::new(values.finish()),
            Self::Float(values) => Arc::new(values.finish()),
            Self::Double(values) => Arc::new(values.finish()),
            Self::String(values) => Arc::new(values.finish()),
            Self::Binary(values) => Arc::new(values.finish()),
            Self::Date(values) => Arc::new(values.finish()),
            Self::Timestamp(times) => Arc::new(times.values.finish().with_timezone(UTC)),
            Self::Decimal { values, precision, scale } => Arc::new(
                values
                    .finish()
                    .with_precision_and_scale(*precision, *scale)
                    .expect("a decimal type should have been checked when it was parsed"),
            ),
            Self::List(list) => list.finish(),
            Self::Struct(inner) => inner.finish(),
            Self::Map(map) => map.finish(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Boolean(values) => values.len(),
            Self::Int(values) | Self::Nanos { values, .. } => values.len(),
            Self::Long(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Double(values) => values.len(),
            Self::String(values) => values.len(),
            Self::Binary(values) => values.len(),
            Self::Date(values) => values.len(),
            Self::Timestamp(times) => times.values.len(),
            Self::Decimal { values, .. } => values.len(),
            Self::List(list) => list.nulls.len(),
            Self::Struct(inner) => inner.nulls.len(),
            Self::Map(map) => map.nulls.len(),
        }
    }
}

/// Items of one batch are fewer than the bytes of its body, and a body is below 2 GiB.
fn offset(items: usize) -> i32 {
    i32::try_from(items).expect("items should be fewer than the bytes of a body")
}

fn finish_offsets(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(offsets, vec![0])))
}

impl List {
    /// Ends one list behind the items added since the last one.
    pub fn close(&mut self, valid: bool) {
        self.offsets.push(offset(self.item.values.len()));
        self.nulls.append(valid);
    }

    fn finish(&mut self) -> ArrayRef {
        let (offsets, items) = (finish_offsets(&mut self.offsets), self.item.values.finish());
        Arc::new(ListArray::new(list_field(&self.kind), offsets, items, self.nulls.finish()))
    }
}

impl Struct {
    /// Ends one struct whose fields have their values.
    pub fn close(&mut self) {
        self.nulls.append_non_null();
    }

    fn finish(&mut self) -> ArrayRef {
        let arrow::datatypes::DataType::Struct(fields) = data_type(&self.kind) else {
            unreachable!("a struct column has a struct type")
        };
        let (length, nulls) = (self.nulls.len(), self.nulls.finish());
        Arc::new(
            StructArray::try_new_with_length(fields, self.fields.finish(), nulls, length)
                .expect("the fields of a struct should have one value for each struct"),
        )
    }
}

impl Map {
    /// Whether there are entries behind those of the last map.
    fn has_open_entries(&self) -> bool {
        self.keys.len() > self.offsets.last().map_or(0, |last| last.cast_unsigned() as usize)
    }

    /// Ends one map behind the entries added since the last one. False if it has a key twice.
    pub fn close_unique(&mut self) -> bool {
        let first = self.offsets.last().map_or(0, |o| o.cast_unsigned() as usize);
        let bounds = &self.keys.offsets_slice()[first..];
        let bytes = self.keys.values_slice();
        let mut keys: Vec<&[u8]> =
            bounds.windows(2).map(|w| &bytes[w[0].cast_unsigned() as usize..w[1].cast_unsigned() as usize]).collect();
        keys.sort_unstable();
        let unique = keys.windows(2).all(|pair| pair[0] != pair[1]);
        self.close(true);
        unique
    }

    fn close(&mut self, valid: bool) {
        self.offsets.push(offset(self.value.values.len()));
        self.nulls.append(valid);
    }

    fn finish(&mut self) -> ArrayRef {
        let columns = vec![Arc::new(self.keys.finish()) as ArrayRef, self.value.values.finish()];
        let entries = StructArray::new(entry_fields(&self.kind), columns, None);
        let offsets = finish_offsets(&mut self.offsets);
        Arc::new(MapArray::new(entries_field(&self.kind), offsets, entries, self.nulls.finish(), false))
    }
}
