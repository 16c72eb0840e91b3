use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{Date32Type, Int64Type};
use penstock_store::Bucket;

use super::{MAX_BATCH_ROWS, sorted};
use crate::schema::arrow::{arrow_schema, table_arrow_schema};
use crate::schema::{ColumnSpec, ColumnType, EventTime, TableSpec};

const DAY: i64 = 86_400_000_000;

fn spec(partition: bool) -> TableSpec {
    let column = |name: &str, kind, nullable| ColumnSpec { name: name.into(), kind, nullable };
    TableSpec {
        name: "cpu".parse().expect("should be a name"),
        schema_version: 1,
        columns: vec![
            column("ts", ColumnType::Timestamp, false),
            column("host", ColumnType::String, true),
            column("n", ColumnType::Long, true),
        ],
        event_time: EventTime::Column { name: "ts".into(), unit: None },
        bucket_seconds: 3_600,
        partition: partition.then(|| "date".into()),
        sort: vec!["host".into()],
        history: vec![],
        bloom: vec![],
        rules: crate::schema::Rules::default(),
    }
}

fn batch(rows: &[(i64, Option<&str>, i64)]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|r| r.0)).with_timezone("UTC")),
        Arc::new(StringArray::from_iter(rows.iter().map(|r| r.1))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.2))),
    ];
    RecordBatch::try_new(arrow_schema(&spec(true)), columns).expect("should be a batch")
}

fn sort(spec: &TableSpec, batches: Vec<RecordBatch>, bucket: Bucket) -> Vec<RecordBatch> {
    let sorted = sorted(spec, batches, bucket).expect("should sort");
    sorted.collect::<Result<_, _>>().expect("should gather")
}

fn numbers(batches: &[RecordBatch]) -> Vec<i64> {
    batches.iter().flat_map(|b| b.column(2).as_primitive::<Int64Type>().values().to_vec()).collect()
}

#[test]
fn rows_are_sorted_by_column_then_time_and_ties_keep_their_order() {
    let batches = vec![
        batch(&[(DAY + 3, Some("b"), 1), (DAY + 1, Some("b"), 2), (DAY + 9, Some("a"), 3)]),
        batch(&[]),
        batch(&[(DAY + 1, Some("b"), 4), (DAY + 2, None, 5), (DAY + 9, Some("a"), 6)]),
    ];
    let bucket = Bucket { start: DAY, width: 3_600_000_000 };
    let sorted = sort(&spec(true), batches, bucket);
    assert_eq!(numbers(&sorted), [5, 3, 6, 2, 4, 1]);
    assert_eq!(sorted[0].schema(), table_arrow_schema(&spec(true)));
    let dates = sorted[0].column_by_name("date").expect("should have a date").as_primitive::<Date32Type>();
    assert!(dates.values().iter().all(|day| *day == 1));
}

#[test]
fn a_bucket_before_1970_lies_in_the_day_before() {
    let bucket = Bucket { start: -3_600_000_000, width: 3_600_000_000 };
    let sorted = sort(&spec(true), vec![batch(&[(-1, None, 1)])], bucket);
    assert_eq!(sorted[0].column(3).as_primitive::<Date32Type>().value(0), -1);
}

#[test]
fn batches_are_bounded_whether_rows_arrive_in_order_or_not() {
    let bucket = Bucket { start: 0, width: DAY };
    let count = i64::try_from(MAX_BATCH_ROWS * 2 + 7).expect("should fit");
    let rising: Vec<_> = (0..count).map(|i| (i, None, i)).collect();
    let falling: Vec<_> = (0..count).rev().map(|i| (i, None, i)).collect();
    for rows in [rising, falling] {
        let sorted = sort(&spec(false), vec![batch(&rows)], bucket);
        assert_eq!(sorted.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [MAX_BATCH_ROWS, MAX_BATCH_ROWS, 7]);
        assert_eq!(sorted[0].num_columns(), 3, "an unpartitioned table has no date column");
        assert_eq!(numbers(&sorted), (0..count).collect::<Vec<_>>());
    }
}

#[test]
fn nothing_stays_nothing() {
    let bucket = Bucket { start: 0, width: DAY };
    assert!(sort(&spec(true), vec![batch(&[])], bucket).is_empty());
}
