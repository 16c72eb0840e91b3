use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use penstock_store::{Bucket, TableId};
use uuid::Uuid;

use super::{ndjson, table};
use crate::ingest::{Decoded, slices};
use crate::schema::arrow::arrow_schema;
use crate::schema::payload::{ENCODING_PACKED, decode};
use crate::schema::{TableSpec, TimeUnit};

const HOUR: i64 = 3_600_000_000;
const ID: TableId = TableId(Uuid::from_u128(7));

fn rows(spec: &TableSpec, times: &[i64]) -> Decoded {
    let body: String = times.iter().enumerate().map(|(i, t)| format!("{{\"ts\":{t},\"n\":{i}}}\n")).collect();
    ndjson(spec, &body).unwrap()
}

fn numbers(spec: &TableSpec, payload: &bytes::Bytes) -> Vec<i64> {
    let batch = decode(ENCODING_PACKED, payload, &arrow_schema(spec)).unwrap();
    batch.column(1).as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn rows_of_one_bucket_are_one_slice() {
    let spec = TableSpec { schema_version: 4, ..table(Some(TimeUnit::Us), "n long") };
    let slices = slices(ID, &spec, rows(&spec, &[HOUR + 5, HOUR, 2 * HOUR - 1]), i64::MIN).unwrap();
    let [slice] = slices.as_slice() else { panic!("{slices:?}") };
    assert_eq!((slice.table, slice.schema_version, slice.encoding), (ID, 4, ENCODING_PACKED));
    assert_eq!(slice.bucket, Bucket { start: HOUR, width: HOUR });
    assert_eq!((slice.rows, slice.min_time, slice.max_time), (3, HOUR, 2 * HOUR - 1));
    assert_eq!(numbers(&spec, &slice.payload), [0, 1, 2]);
}

#[test]
fn rows_are_cut_by_bucket_and_keep_their_order() {
    let spec = table(Some(TimeUnit::Us), "n long");
    let slices =
        slices(ID, &spec, rows(&spec, &[HOUR, -1, HOUR + 1, 0, -HOUR, HOUR + 2, -HOUR - 1]), i64::MIN).unwrap();
    let cuts: Vec<_> =
        slices.iter().map(|s| (s.bucket.start, s.rows, s.min_time, s.max_time, numbers(&spec, &s.payload))).collect();
    assert_eq!(
        cuts,
        [
            (-2 * HOUR, 1, -HOUR - 1, -HOUR - 1, vec![6]),
            (-HOUR, 2, -HOUR, -1, vec![1, 4]),
            (0, 1, 0, 0, vec![3]),
            (HOUR, 3, HOUR, HOUR + 2, vec![0, 2, 5]),
        ]
    );
}

#[test]
fn nested_rows_survive_the_cut() {
    let spec = table(Some(TimeUnit::Us), "tags list<string>; o struct<m:map<string,long>>");
    let body = format!(
        "{{\"ts\":0,\"tags\":[\"a\",\"b\"],\"o\":{{\"m\":{{\"x\":1}}}}}}\n{{\"ts\":{HOUR}}}\n{{\"ts\":1,\"tags\":[],\"o\":{{}}}}\n"
    );
    let decoded = ndjson(&spec, &body).unwrap();
    let whole = decoded.batch.clone();
    let slices = slices(ID, &spec, decoded, i64::MIN).unwrap();
    let first = decode(ENCODING_PACKED, &slices[0].payload, &arrow_schema(&spec)).unwrap();
    assert_eq!(first.num_rows(), 2);
    assert_eq!((first.slice(0, 1), first.slice(1, 1)), (whole.slice(0, 1), whole.slice(2, 1)));
}

#[test]
fn rows_spread_over_too_many_buckets_are_refused() {
    let spec = TableSpec { rules: crate::schema::Rules::any_time(), ..table(Some(TimeUnit::Us), "n long") };
    let times: Vec<i64> = (0..4_097).map(|i| i * HOUR).collect();
    let reject = slices(ID, &spec, rows(&spec, &times), i64::MIN).unwrap_err();
    assert_eq!(reject.code, "too_many_buckets");
    assert_eq!(slices(ID, &spec, rows(&spec, &times[..4_096]), i64::MIN).unwrap().len(), 4_096);
}

#[test]
fn old_rows_share_the_bucket_of_their_day() {
    let spec = table(Some(TimeUnit::Us), "n long");
    let times = [0, HOUR, 23 * HOUR, 24 * HOUR, 47 * HOUR, 48 * HOUR, 49 * HOUR];
    let slices = slices(ID, &spec, rows(&spec, &times), 48 * HOUR).unwrap();
    let cuts: Vec<_> = slices.iter().map(|s| (s.bucket.start / HOUR, s.bucket.width / HOUR, s.rows)).collect();
    assert_eq!(cuts, [(0, 24, 3), (24, 24, 2), (48, 1, 1), (49, 1, 1)]);
}
