//! A definition as an Arrow schema. Names of nested fields (`element`, `key_value`, `key`, `value`) are the ones
//! Delta's kernel uses, so that rows in memory and rows in files have one and the same type.

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit as ArrowUnit};
use penstock_store::Bucket;

use super::time::date_of;
use super::{ColumnSpec, ColumnType, TableSpec};

/// The time zone of every timestamp column.
pub const UTC: &str = "UTC";

/// Widest decimal of 128 bits, in digits.
const MAX_DECIMAL_DIGITS: u8 = 38;

/// The columns that rows carry, without the derived partition column.
pub fn arrow_schema(spec: &TableSpec) -> SchemaRef {
    Arc::new(Schema::new(fields_of(&spec.columns)))
}

/// The columns of the table: those of the rows, and the derived partition column last.
pub fn table_arrow_schema(spec: &TableSpec) -> SchemaRef {
    let rows = arrow_schema(spec);
    match &spec.partition {
        None => rows,
        Some(name) => Arc::new(with_partition_field(&rows, name)),
    }
}

/// Appends the derived partition column to rows of one bucket: the UTC date of the bucket's start for all of them,
/// which is each row's own date because a bucket never spans two days. An unpartitioned table's rows stay as they are.
pub fn with_partition(spec: &TableSpec, batch: &RecordBatch, bucket: Bucket) -> RecordBatch {
    let Some(name) = &spec.partition else {
        return batch.clone();
    };
    let dates = Date32Array::from_value(date_of(bucket.start), batch.num_rows());
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(dates) as ArrayRef);
    RecordBatch::try_new(Arc::new(with_partition_field(&batch.schema(), name)), columns)
        .expect("a batch should stay valid with one more column of its own length")
}

fn with_partition_field(rows: &Schema, name: &str) -> Schema {
    let mut fields: Vec<Arc<Field>> = rows.fields().iter().cloned().collect();
    // Nullable, because Delta writes partition values as optional.
    fields.push(Arc::new(Field::new(name, DataType::Date32, true)));
    Schema::new(fields)
}

fn fields_of(columns: &[ColumnSpec]) -> Fields {
    columns.iter().map(|c| Field::new(&c.name, data_type(&c.kind), c.nullable)).collect()
}

/// How values of a column type are held in Arrow.
pub fn data_type(kind: &ColumnType) -> DataType {
    match kind {
        ColumnType::Boolean => DataType::Boolean,
        ColumnType::Int => DataType::Int32,
        ColumnType::Long => DataType::Int64,
        ColumnType::Float => DataType::Float32,
        ColumnType::Double => DataType::Float64,
        ColumnType::String => DataType::Utf8,
        ColumnType::Binary => DataType::Binary,
        ColumnType::Date => DataType::Date32,
        ColumnType::Timestamp => DataType::Timestamp(ArrowUnit::Microsecond, Some(UTC.into())),
        ColumnType::Decimal { precision, scale } => DataType::Decimal128(*precision, *scale),
        ColumnType::List(item) => DataType::List(list_field(item)),
        ColumnType::Struct(fields) => DataType::Struct(fields_of(fields)),
        ColumnType::Map(value) => DataType::Map(entries_field(value), false),
    }
}

/// The field of a list's items.
pub fn list_field(item: &ColumnType) -> Arc<Field> {
    Arc::new(Field::new("element", data_type(item), true))
}

/// The fields of a map's entries.
pub fn entry_fields(value: &ColumnType) -> Fields {
    Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", data_type(value), true)])
}

/// The field that holds a map's entries.
pub fn entries_field(value: &ColumnType) -> Arc<Field> {
    Arc::new(Field::new("key_value", DataType::Struct(entry_fields(value)), false))
}

/// The column type that holds the values of an Arrow type without loss; none where there is no such type.
/// Unsigned 64-bit integers become `decimal(20,0)`, a column of nothing but nulls becomes a string column. Values that do not fit are
/// possible in decimals of more than 38 digits only.
pub fn column_type(data_type: &DataType) -> Option<ColumnType> {
    Some(match data_type {
        DataType::Boolean => ColumnType::Boolean,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => ColumnType::Int,
        DataType::UInt32 | DataType::Int64 => ColumnType::Long,
        DataType::UInt64 => ColumnType::Decimal { precision: 20, scale: 0 },
        DataType::Float16 | DataType::Float32 => ColumnType::Float,
        DataType::Float64 => ColumnType::Double,
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ColumnType::String,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            ColumnType::Binary
        }
        DataType::Date32 | DataType::Date64 => ColumnType::Date,
        DataType::Timestamp(_, _) => ColumnType::Timestamp,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => decimal(*precision, *scale)?,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => ColumnType::List(Box::new(column_type(item.data_type())?)),
        DataType::Struct(fields) => ColumnType::Struct(column_specs(fields)?),
        DataType::Map(entries, _) => map(entries.data_type())?,
        DataType::Dictionary(_, values) => column_type(values)?,
        DataType::RunEndEncoded(_, values) => column_type(values.data_type())?,
        _ => return None,
    })
}

fn column_specs(fields: &Fields) -> Option<Vec<ColumnSpec>> {
    fields
        .iter()
        .map(|f| Some(ColumnSpec { name: f.name().clone(), kind: column_type(f.data_type())?, nullable: true }))
        .collect()
}

fn map(entries: &DataType) -> Option<ColumnType> {
    let DataType::Struct(fields) = entries else {
        return None;
    };
    let [key, value] = fields.as_ref() else {
        return None;
    };
    let string_keys = column_type(key.data_type())? == ColumnType::String;
    string_keys.then_some(ColumnType::Map(Box::new(column_type(value.data_type())?)))
}

/// A negative scale counts zeros before the point; Delta has none, so they become digits. Of more digits than 128 bits hold it is
/// the values that tell whether they fit.
fn decimal(precision: u8, scale: i8) -> Option<ColumnType> {
    let (precision, scale) =
        if scale < 0 { (precision.saturating_add(scale.unsigned_abs()), 0) } else { (precision, scale) };
    let precision = precision.min(MAX_DECIMAL_DIGITS);
    (scale.unsigned_abs() <= precision).then_some(ColumnType::Decimal { precision, scale })
}
