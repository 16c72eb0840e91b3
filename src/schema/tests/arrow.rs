use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Date32Type, Field, Schema, TimeUnit};

use super::{column, every_type};
use crate::schema::arrow::{arrow_schema, column_type, data_type, table_arrow_schema, with_partition};
use crate::schema::time::bucket_of;
use crate::schema::{ColumnType, EventTime, TableSpec};

#[test]
fn rows_have_the_columns_and_the_table_has_the_partition_last() {
    let spec = every_type();
    let rows = arrow_schema(&spec);
    assert_eq!(rows.fields().len(), spec.columns.len());
    assert_eq!(*rows.field(0).data_type(), DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())));
    assert!(!rows.field(0).is_nullable());
    let table = table_arrow_schema(&spec);
    assert_eq!(table.fields().len(), spec.columns.len() + 1);
    assert_eq!(table.fields().last().unwrap().name(), "date");
    assert_eq!(*table.fields().last().unwrap().data_type(), DataType::Date32);
    let unpartitioned = TableSpec { partition: None, ..spec };
    assert_eq!(table_arrow_schema(&unpartitioned), rows);
}

#[test]
fn nested_fields_are_named_as_deltas_kernel_names_them() {
    let DataType::List(item) = data_type(&"list<long>".parse().unwrap()) else { panic!() };
    assert_eq!((item.name().as_str(), item.is_nullable()), ("element", true));
    let DataType::Map(entries, false) = data_type(&"map<string,long>".parse().unwrap()) else { panic!() };
    assert_eq!((entries.name().as_str(), entries.is_nullable()), ("key_value", false));
    let DataType::Struct(fields) = entries.data_type() else { panic!() };
    assert_eq!((fields[0].name().as_str(), fields[0].is_nullable()), ("key", false));
    assert_eq!((fields[1].name().as_str(), fields[1].is_nullable()), ("value", true));
}

#[test]
fn every_type_comes_back_from_arrow() {
    for column in every_type().columns {
        assert_eq!(column_type(&data_type(&column.kind)), Some(column.kind));
    }
}

#[test]
fn foreign_types_map_to_what_holds_them() {
    let cases = [
        (DataType::Int8, "int"),
        (DataType::UInt16, "int"),
        (DataType::UInt32, "long"),
        (DataType::UInt64, "decimal(20,0)"),
        (DataType::Float16, "float"),
        (DataType::LargeUtf8, "string"),
        (DataType::Utf8View, "string"),
        (DataType::Null, "string"),
        (DataType::FixedSizeBinary(16), "binary"),
        (DataType::Date64, "date"),
        (DataType::Timestamp(TimeUnit::Nanosecond, Some("Australia/Melbourne".into())), "timestamp"),
        (DataType::Decimal256(38, 2), "decimal(38,2)"),
        (DataType::Decimal128(5, -3), "decimal(8,0)"),
        (DataType::Decimal256(76, 38), "decimal(38,38)"),
        (DataType::Decimal128(38, -1), "decimal(38,0)"),
        (DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)), "string"),
        (DataType::new_large_list(DataType::Int8, true), "list<int>"),
        (DataType::new_fixed_size_list(DataType::Float32, 3, true), "list<float>"),
    ];
    for (arrow, text) in cases {
        assert_eq!(column_type(&arrow).map(|k| k.to_string()), Some(text.to_owned()), "{arrow}");
    }
    for none in [
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Duration(TimeUnit::Second),
        DataType::Decimal256(76, 39),
        DataType::new_list(DataType::Time32(TimeUnit::Second), true),
    ] {
        assert_eq!(column_type(&none), None, "{none}");
    }
}

#[test]
fn the_partition_is_the_utc_date_of_the_bucket() {
    let mut spec = every_type();
    spec.columns = vec![column("v", "long")];
    spec.event_time = EventTime::Receipt { column: "v".to_owned() };
    let schema = Arc::new(Schema::new(vec![Field::new("v", data_type(&ColumnType::Long), true)]));
    let batch = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![1, 2, 3]))]).unwrap();
    for (micros, days) in [(1_769_862_896_000_000, 20_484), (-1, -1), (0, 0)] {
        let with = with_partition(&spec, &batch, bucket_of(micros, 3_600_000_000));
        assert_eq!(with.schema(), table_arrow_schema(&spec));
        assert_eq!(with.column(1).as_primitive::<Date32Type>().values(), &[days; 3]);
        assert_eq!(with.column(1).null_count(), 0);
    }
    spec.partition = None;
    assert_eq!(with_partition(&spec, &batch, bucket_of(0, 1_000_000)), batch);
}
