//! Definitions that get columns, and rows of every version under them.

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;

use super::{column, every_type};
use crate::schema::arrow::arrow_schema;
use crate::schema::payload::{ENCODING_IPC, PayloadError, decode_as, encode};
use crate::schema::spec::Earlier;
use crate::schema::versions::Change;
use crate::schema::{ColumnSpec, ColumnType, EventTime, TableSpec};

fn with(spec: &TableSpec, columns: &[(&str, &str)]) -> TableSpec {
    let mut wider = spec.clone();
    wider.columns.extend(columns.iter().map(|(name, kind)| column(name, kind)));
    wider
}

fn next(spec: &TableSpec, wanted: &TableSpec) -> TableSpec {
    match spec.change_to(wanted) {
        Change::Next(next) => *next,
        other => panic!("should get columns: {other:?}"),
    }
}

#[test]
fn columns_are_added_behind_those_that_are_there_whatever_the_order_of_the_declaration() {
    let first = every_type();
    assert_eq!(first.change_to(&TableSpec { schema_version: 7, ..first.clone() }), Change::None);
    let mut wanted = with(&first, &[("x", "long"), ("y", "map<string,string>")]);
    wanted.columns.reverse();
    let second = next(&first, &wanted);
    assert_eq!((second.schema_version, &second.history), (2, &vec![Earlier::of(14)]));
    assert_eq!(second.columns[..14], first.columns[..]);
    assert_eq!(second.columns[14..].iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["y", "x"]);
    let third = next(&second, &with(&second, &[("z", "double")]));
    assert_eq!((third.schema_version, &third.history), (3, &vec![Earlier::of(14), Earlier::of(16)]));
    assert_eq!(third.at(1), Some(first));
    assert_eq!(third.at(2), Some(second));
    assert_eq!(third.at(3), Some(third.clone()));
    assert_eq!((third.at(0), third.at(4)), (None, None));
}

#[test]
fn a_definition_of_an_older_build_had_its_columns_from_the_start() {
    let old = TableSpec { schema_version: 4, ..every_type() };
    let columns_at = |spec: &TableSpec, version| spec.at(version).map(|spec| spec.columns.len());
    assert_eq!(columns_at(&old, 2), Some(14));
    let next = next(&old, &with(&old, &[("x", "long")]));
    assert_eq!((next.schema_version, columns_at(&next, 2), columns_at(&next, 5)), (5, Some(14), Some(15)));
    next.validate().expect("should be valid");
}

#[test]
fn types_become_wider_where_readers_follow_and_older_rows_are_read_with_their_own() {
    let first = every_type();
    let wider = |spec: &TableSpec, name: &str, kind: ColumnType| {
        let mut wanted = spec.clone();
        let at = wanted.column_index(name).expect("should be a column");
        wanted.columns[at].kind = kind;
        wanted
    };
    let second = next(&first, &with(&wider(&first, "i", ColumnType::Long), &[("x", "int")]));
    let third = next(&second, &wider(&wider(&second, "f", ColumnType::Double), "x", ColumnType::Long));
    let kinds =
        |spec: &TableSpec| ["i", "f", "x"].map(|n| spec.column_index(n).map(|at| spec.columns[at].kind.clone()));
    use ColumnType::{Double, Float, Int, Long};
    assert_eq!(kinds(&third), [Some(Long), Some(Double), Some(Long)]);
    assert_eq!(kinds(&third.at(2).expect("should be known")), [Some(Long), Some(Float), Some(Int)]);
    assert_eq!(kinds(&third.at(1).expect("should be known")), [Some(Int), Some(Float), None]);
    assert_eq!((third.at(1), third.at(2)), (Some(first.clone()), Some(second.clone())));
    assert!(matches!(third.change_to(&wider(&third, "i", Int)), Change::Refused(_)), "and never narrower");
    for kind in [ColumnType::Double, ColumnType::Decimal { precision: 20, scale: 0 }, ColumnType::String] {
        assert!(matches!(first.change_to(&wider(&first, "i", kind)), Change::Refused(_)));
    }

    let json = r#"{"ts":1,"i":-7,"f":0.1}"#;
    let mut reader = arrow::json::ReaderBuilder::new(arrow_schema(&first)).build(json.as_bytes()).expect("should read");
    let payload = encode(&reader.next().expect("should have rows").expect("should be rows")).expect("should encode");
    let rows = decode_as(&third, &arrow_schema(&third), 1, ENCODING_IPC, &payload).expect("should decode");
    assert_eq!(rows["i"].as_primitive::<Int64Type>().values(), &[-7]);
    let ratio = rows["f"].as_primitive::<arrow::datatypes::Float64Type>().value(0);
    assert_eq!(ratio, f64::from(0.1_f32), "the value that was acknowledged");
    assert_eq!(rows["x"].null_count(), 1);
}

#[test]
fn everything_else_is_refused_with_what_to_do() {
    let spec = every_type();
    let refused = |change: &dyn Fn(&mut TableSpec)| {
        let mut wanted = spec.clone();
        change(&mut wanted);
        match spec.change_to(&wanted) {
            Change::Refused(reasons) => reasons.join("; "),
            other => panic!("should be refused: {other:?}"),
        }
    };
    let error = refused(&|s| drop(s.columns.remove(3)));
    assert_eq!(error, "column \"l\" is missing: a column cannot be dropped; leave it in, rows may leave it out");
    let error = refused(&|s| s.columns[3].kind = ColumnType::String);
    assert!(error.starts_with("column \"l\" is long and cannot become string, "), "{error}");
    assert!(error.ends_with("add a column of another name"), "{error}");
    let error = refused(&|s| s.columns[3].nullable = false);
    assert_eq!(error, "column \"l\" may be null, and that cannot change");
    let error = refused(&|s| s.columns.push(ColumnSpec { nullable: false, ..column("x", "long") }));
    assert!(error.contains("new column \"x\" must be nullable"), "{error}");
    let error = refused(&|s| {
        s.columns.push(column("date", "date"));
        s.partition = Some(TableSpec::partition_name(&s.columns));
    });
    assert!(error.contains("\"date\" is the column that the table is partitioned by"), "{error}");
    let error = refused(&|s| s.columns.push(column("L", "long")));
    assert!(error.contains("differ in case only"), "{error}");
    let error = refused(&|s| s.bucket_seconds = 60);
    assert_eq!(error, "the bucket is 3600s and not 60s, and cannot change");
    assert!(refused(&|s| s.sort.clear()).contains("sorted by"));
    assert!(refused(&|s| s.partition = None).contains("partitioned by"));
    let error = refused(&|s| s.event_time = EventTime::Receipt { column: "ts".to_owned() });
    assert!(error.contains("the event time is \"ts\" in ms and not that of receipt"), "{error}");
    let error = refused(&|s| {
        s.columns.remove(0);
        s.columns[0].kind = ColumnType::Int;
    });
    assert!(error.contains("\"ts\" is missing") && error.contains("\"b\" is boolean"), "all reasons: {error}");
    let many = refused(&|s| s.columns.extend((0..1_000).map(|i| column(&format!("c{i}"), "long"))));
    assert!(many.contains("at most 1000"), "{many}");
}

#[test]
fn rows_of_every_version_are_rows_of_the_newest_with_nulls_behind() {
    let first = every_type();
    let second = next(&first, &with(&first, &[("x", "long"), ("deep", "list<struct<a:long>>")]));
    let rows = |spec: &TableSpec, json: &str| {
        let mut reader =
            arrow::json::ReaderBuilder::new(arrow_schema(spec)).build(json.as_bytes()).expect("should read");
        reader.next().expect("should have rows").expect("should be rows")
    };
    let old = encode(&rows(&first, "{\"ts\":1,\"l\":5}\n{\"ts\":2,\"l\":6}")).expect("should encode");
    let new = encode(&rows(&second, "{\"ts\":3,\"l\":7,\"x\":9}")).expect("should encode");
    let schema = arrow_schema(&second);
    let old = decode_as(&second, &schema, 1, ENCODING_IPC, &old).expect("should decode");
    assert_eq!((old.schema(), old.num_rows()), (schema.clone(), 2));
    assert_eq!(old["l"].as_primitive::<Int64Type>().values(), &[5, 6]);
    assert_eq!((old["x"].null_count(), old["deep"].null_count()), (2, 2));
    let new_rows = decode_as(&second, &schema, 2, ENCODING_IPC, &new).expect("should decode");
    assert_eq!(new_rows["x"].as_primitive::<Int64Type>().values(), &[9]);
    arrow::compute::concat_batches(&schema, [&old, &new_rows]).expect("both should fit into one file");

    let unknown = decode_as(&second, &schema, 3, ENCODING_IPC, &new).expect_err("should be refused");
    assert!(matches!(unknown, PayloadError::UnknownVersion { version: 3, newest: 2 }), "{unknown}");
    assert!(decode_as(&second, &schema, 1, ENCODING_IPC, &new).is_err(), "the version is not the rows'");
}

#[test]
fn bloom_filters_may_change_and_rows_of_every_version_are_read_as_before() {
    let first = every_type();
    let second = next(&first, &TableSpec { bloom: vec!["l".into()], ..first.clone() });
    assert_eq!((second.schema_version, &second.columns), (2, &first.columns));
    assert_eq!(second.change_to(&second), Change::None);
    let third = next(&second, &first);
    assert!(third.bloom.is_empty());
    assert_eq!(third.at(1).map(|spec| spec.columns), Some(first.columns.clone()));
    for (name, error) in [("nowhere", "not among the columns"), ("b", "cannot have a Bloom filter")] {
        let wanted = TableSpec { bloom: vec![name.into()], ..first.clone() };
        let refused = wanted.validate().expect_err("should be refused").to_string();
        assert!(refused.contains(error), "{refused}");
        assert!(matches!(first.change_to(&wanted), Change::Refused(_)));
    }
}
