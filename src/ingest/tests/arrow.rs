use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::*;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use bytes::Bytes;

use super::{NOW, all, assert_reject, columns, receipt_table, table};
use crate::ingest::{Decoded, Format, Limits, Reject, RejectKind, infer};
use crate::schema::arrow::arrow_schema;
use crate::schema::{TableSpec, TimeUnit as Unit};

fn stream(batches: &[RecordBatch]) -> Bytes {
    stream_with(batches, IpcWriteOptions::default())
}

fn stream_with(batches: &[RecordBatch], options: IpcWriteOptions) -> Bytes {
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options).unwrap();
    batches.iter().for_each(|b| writer.write(b).unwrap());
    writer.finish().unwrap();
    Bytes::from(writer.into_inner().unwrap())
}

fn times(rows: usize) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter_values((0..rows as i64).map(|i| NOW + i)))
}

/// A batch of `ts` and a column `v`.
fn batch(values: ArrayRef) -> RecordBatch {
    let ts = times(values.len());
    RecordBatch::try_from_iter_with_nullable([("ts", ts, false), ("v", values, true)]).unwrap()
}

fn decode(spec: &TableSpec, body: &Bytes) -> Result<Decoded, Reject> {
    all(crate::ingest::decode(spec, Format::ArrowStream, body, NOW, &Limits::default()))
}

/// Decodes a column `v` into a type.
fn convert(values: ArrayRef, kind: &str) -> Result<ArrayRef, Reject> {
    let spec = table(None, &format!("v {kind}"));
    let decoded = decode(&spec, &stream(&[batch(values)]))?;
    assert_eq!(decoded.batch.schema(), arrow_schema(&spec));
    decoded.batch.column(1).to_data().validate_full().unwrap();
    Ok(decoded.batch.column(1).clone())
}

fn infer_arrow(body: &Bytes, unit: Option<Unit>) -> Result<TableSpec, Reject> {
    infer("t".parse().unwrap(), Format::ArrowStream, body, unit, &Limits::default())
}

#[test]
fn a_first_post_creates_the_table_that_it_fits() {
    let entries = {
        let mut map = MapBuilder::new(None, LargeStringBuilder::new(), UInt32Builder::new());
        map.keys().append_value("k");
        map.values().append_value(7);
        map.append(true).unwrap();
        map.append(false).unwrap();
        map.finish()
    };
    let mut list = LargeListBuilder::new(Int16Builder::new());
    list.append_value([Some(1), None]);
    list.append_null();
    let fields: [(&str, ArrayRef); 9] = [
        ("n", Arc::new(NullArray::new(2))),
        ("u", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
        ("s", Arc::new(StringViewArray::from(vec!["a string that is longer than a view", "b"]))),
        ("dict", Arc::new(vec![Some("x"), None].into_iter().collect::<DictionaryArray<Int8Type>>())),
        ("d64", Arc::new(Date64Array::from(vec![86_400_000, -86_400_000]))),
        ("at", Arc::new(TimestampNanosecondArray::from(vec![1_000, 2_000]).with_timezone("Australia/Melbourne"))),
        ("map", Arc::new(entries)),
        ("list", Arc::new(list.finish())),
        ("time", Arc::new(TimestampMillisecondArray::from(vec![1, 2]))),
    ];
    let body = stream(&[RecordBatch::try_from_iter(fields).unwrap()]);
    let spec = infer_arrow(&body, None).unwrap();
    assert_eq!(
        columns(&spec),
        "u decimal(20,0); s string; dict string; d64 date; at timestamp; map map<string,long>; \
         list list<int>; time timestamp"
    );
    let first = decode(&spec, &body).unwrap();
    assert_eq!(first.times, [1_000, 2_000]);
    assert_eq!(decode(&spec, &body).unwrap(), first);
    assert_eq!(first.batch.column(4).as_primitive::<TimestampMicrosecondType>().values(), &[1, 2]);
    assert_eq!(first.batch.column(0).as_primitive::<Decimal128Type>().value(0), u64::MAX.into());
    assert_eq!(first.batch.column(3).as_primitive::<Date32Type>().values(), &[1, -1]);
    assert_eq!(first.batch.column(2).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("x"), None]);
}

#[test]
fn several_batches_are_one() {
    let spec = table(None, "v long");
    let batches = [
        batch(Arc::new(Int64Array::from(vec![1, 2]))),
        batch(Arc::new(Int64Array::from(Vec::<i64>::new()))),
        batch(Arc::new(Int64Array::from(vec![Some(3), None]))),
    ];
    let decoded = decode(&spec, &stream(&batches)).unwrap();
    assert_eq!(decoded.times, [NOW, NOW + 1, NOW, NOW + 1]);
    let values = decoded.batch.column(1).as_primitive::<Int64Type>();
    assert_eq!(values.iter().collect::<Vec<_>>(), [Some(1), Some(2), Some(3), None]);
    let bad = [batch(Arc::new(UInt64Array::from(vec![1, 2]))), batch(Arc::new(UInt64Array::from(vec![3, u64::MAX])))];
    assert_reject(decode(&spec, &stream(&bad)), "out_of_range", 4, "v");
}

#[test]
fn columns_are_found_by_name() {
    let spec = table(None, "a long; b string");
    let swapped =
        RecordBatch::try_from_iter([("b", Arc::new(StringArray::from(vec!["x"])) as ArrayRef), ("ts", times(1))]);
    let decoded = decode(&spec, &stream(&[swapped.unwrap()])).unwrap();
    assert_eq!(decoded.batch.column(1).null_count(), 1);
    assert_eq!(decoded.batch.column(2).as_string::<i32>().value(0), "x");
    assert_reject(decode(&spec, &stream(&[batch(Arc::new(Int64Array::from(vec![1])))])), "unknown_column", 1, "v");
    let without = RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
    assert_reject(decode(&spec, &stream(&[without])), "missing_value", 1, "ts");
    let null_time: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![Some(1), None]));
    let null_time = RecordBatch::try_from_iter([("ts", null_time)]).unwrap();
    assert_reject(decode(&spec, &stream(&[null_time])), "missing_value", 2, "ts");
    let schema = Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("a", DataType::Int64, true)]);
    let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let twice = RecordBatch::try_new(Arc::new(schema), vec![one.clone(), one]).unwrap();
    assert_reject(decode(&spec, &stream(&[twice])), "duplicate_key", 1, "a");
}

#[test]
fn the_server_times_rows_that_have_no_time() {
    let spec = receipt_table("v long");
    let one: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let rows = RecordBatch::try_from_iter([("v", one.clone())]).unwrap();
    assert_eq!(decode(&spec, &stream(std::slice::from_ref(&rows))).unwrap().times, [NOW, NOW]);
    assert_eq!(columns(&infer_arrow(&stream(&[rows]), None).unwrap()), "v long; _received_at timestamp");
    let own = RecordBatch::try_from_iter([("v", one), ("_received_at", times(2))]).unwrap();
    assert_reject(decode(&spec, &stream(&[own])), "reserved_column", 1, "_received_at");
}

#[test]
fn integers_fit_or_are_refused() {
    let v = |a: ArrayRef| convert(a, "int").map(|c| c.as_primitive::<Int32Type>().values().to_vec());
    assert_eq!(v(Arc::new(Int8Array::from(vec![-1, 127]))).unwrap(), [-1, 127]);
    assert_eq!(v(Arc::new(UInt16Array::from(vec![65_535]))).unwrap(), [65_535]);
    assert_eq!(v(Arc::new(Int64Array::from(vec![5]))).unwrap(), [5]);
    assert_reject(v(Arc::new(Int64Array::from(vec![0, 1 << 31]))), "out_of_range", 2, "v");
    let long = |a: ArrayRef| convert(a, "long").map(|c| c.as_primitive::<Int64Type>().values().to_vec());
    assert_eq!(long(Arc::new(UInt32Array::from(vec![u32::MAX]))).unwrap(), [4_294_967_295]);
    assert_eq!(long(Arc::new(UInt64Array::from(vec![i64::MAX as u64]))).unwrap(), [i64::MAX]);
    assert_reject(long(Arc::new(UInt64Array::from(vec![u64::MAX]))), "out_of_range", 1, "v");
    assert_reject(long(Arc::new(Float64Array::from(vec![1.0]))), "type_mismatch", 1, "v");
    assert_reject(long(Arc::new(StringArray::from(vec!["1"]))), "type_mismatch", 1, "v");
}

#[test]
fn floats_widen_and_take_exact_integers() {
    let d = |a: ArrayRef| convert(a, "double").map(|c| c.as_primitive::<Float64Type>().values().to_vec());
    assert_eq!(d(Arc::new(Float32Array::from(vec![0.5]))).unwrap(), [0.5]);
    assert_eq!(d(Arc::new(Int64Array::from(vec![1 << 53]))).unwrap(), [9_007_199_254_740_992.0]);
    assert_reject(d(Arc::new(Int64Array::from(vec![(1 << 53) + 1]))), "inexact_number", 1, "v");
    let half: ArrayRef = arrow::compute::cast(&Float32Array::from(vec![1.5]), &DataType::Float16).unwrap();
    assert_eq!(d(half.clone()).unwrap(), [1.5]);
    assert_eq!(convert(half, "float").unwrap().as_primitive::<Float32Type>().values(), &[1.5]);
    assert_reject(convert(Arc::new(Float64Array::from(vec![0.5])), "float"), "type_mismatch", 1, "v");
}

#[test]
fn times_become_microseconds_in_utc_or_are_refused() {
    let t =
        |a: ArrayRef| convert(a, "timestamp").map(|c| c.as_primitive::<TimestampMicrosecondType>().values().to_vec());
    assert_eq!(t(Arc::new(TimestampSecondArray::from(vec![-1]))).unwrap(), [-1_000_000]);
    assert_eq!(t(Arc::new(TimestampMillisecondArray::from(vec![1]).with_timezone("+02:00"))).unwrap(), [1_000]);
    assert_eq!(t(Arc::new(TimestampNanosecondArray::from(vec![-1_000]))).unwrap(), [-1]);
    assert_eq!(t(Arc::new(Int64Array::from(vec![7]))).unwrap(), [7]);
    assert_eq!(t(Arc::new(StringArray::from(vec!["2026-01-31T12:34:56Z"]))).unwrap(), [NOW]);
    let ns = TimestampNanosecondArray::from(vec![0, 1_700_000_000_335_226_412]);
    assert_reject(t(Arc::new(ns)), "timestamp_precision", 2, "v");
    assert_reject(t(Arc::new(TimestampSecondArray::from(vec![i64::MAX]))), "out_of_range", 1, "v");
    assert_reject(t(Arc::new(TimestampMicrosecondArray::from(vec![i64::MIN]))), "out_of_range", 1, "v");
    assert_reject(t(Arc::new(Date32Array::from(vec![1]))), "type_mismatch", 1, "v");
    assert_reject(convert(Arc::new(Date64Array::from(vec![1])), "date"), "inexact_number", 1, "v");
    assert_reject(convert(Arc::new(Date32Array::from(vec![i32::MAX])), "date"), "out_of_range", 1, "v");
    let long: ArrayRef = Arc::new(Int64Array::from(vec![1_769_862_896]));
    let event = stream(&[RecordBatch::try_from_iter([("ts", long)]).unwrap()]);
    assert_eq!(decode(&table(Some(Unit::S), ""), &event).unwrap().times, [NOW]);
    assert_reject(decode(&table(None, ""), &event), "time_unit_needed", 1, "ts");
    assert_eq!(infer_arrow(&event, Some(Unit::S)).unwrap().columns.len(), 1);
}

#[test]
fn decimals_keep_their_value() {
    let d = |a: ArrayRef, kind| convert(a, kind).map(|c| c.as_primitive::<Decimal128Type>().values().to_vec());
    let two_places = |values: Vec<i128>| -> ArrayRef {
        Arc::new(Decimal128Array::from(values).with_precision_and_scale(10, 2).unwrap())
    };
    assert_eq!(d(two_places(vec![125]), "decimal(12,4)").unwrap(), [12_500]);
    assert_eq!(d(two_places(vec![120]), "decimal(12,1)").unwrap(), [12]);
    assert_reject(d(two_places(vec![125]), "decimal(12,1)"), "inexact_number", 1, "v");
    assert_reject(d(two_places(vec![0, 12_500]), "decimal(4,2)"), "out_of_range", 2, "v");
    assert_eq!(d(Arc::new(UInt64Array::from(vec![u64::MAX])), "decimal(20,0)").unwrap(), [u64::MAX.into()]);
    let wide = Decimal256Array::from(vec![i256::from_i128(-5)]).with_precision_and_scale(38, 0).unwrap();
    assert_eq!(d(Arc::new(wide), "decimal(3,1)").unwrap(), [-50]);
    let huge = Decimal256Array::from(vec![i256::MAX]).with_precision_and_scale(38, 0).unwrap();
    assert_reject(d(Arc::new(huge), "decimal(38,0)"), "out_of_range", 1, "v");
}

#[test]
fn binaries_and_strings_of_every_kind() {
    let b = |a: ArrayRef| convert(a, "binary").map(|c| c.as_binary::<i32>().value(0).to_vec());
    assert_eq!(b(Arc::new(LargeBinaryArray::from(vec![b"ab".as_slice()]))).unwrap(), b"ab");
    assert_eq!(b(Arc::new(BinaryViewArray::from(vec![b"a longer value than a view".as_slice()]))).unwrap().len(), 26);
    assert_eq!(b(Arc::new(FixedSizeBinaryArray::try_from_iter([[1_u8, 2]].into_iter()).unwrap())).unwrap(), [1, 2]);
    assert_reject(b(Arc::new(StringArray::from(vec!["x"]))), "type_mismatch", 1, "v");
    let s = |a: ArrayRef| convert(a, "string").map(|c| c.as_string::<i32>().value(0).to_owned());
    assert_eq!(s(Arc::new(LargeStringArray::from(vec!["x"]))).unwrap(), "x");
    assert_reject(s(Arc::new(BinaryArray::from(vec![b"x".as_slice()]))), "type_mismatch", 1, "v");
    assert_reject(s(Arc::new(BooleanArray::from(vec![true]))), "type_mismatch", 1, "v");
}

#[test]
fn lists_drop_what_no_row_has() {
    // The null list covers an item that no long holds; it is no row's value.
    let items: ArrayRef = Arc::new(UInt64Array::from(vec![9, 1, u64::MAX, 2, 3]));
    let field = Arc::new(Field::new_list_field(DataType::UInt64, true));
    let offsets = OffsetBuffer::new(vec![1, 2, 3, 3, 5].into());
    let nulls = NullBuffer::from(vec![true, false, true, true]);
    let list = ListArray::new(field.clone(), offsets, items.clone(), Some(nulls));
    let read = convert(Arc::new(list), "list<long>").unwrap();
    let lists: Vec<_> =
        read.as_list::<i32>().iter().map(|l| l.map(|l| l.as_primitive::<Int64Type>().values().to_vec())).collect();
    assert_eq!(lists, [Some(vec![1]), None, Some(vec![]), Some(vec![2, 3])]);
    let visible = ListArray::new(field, OffsetBuffer::new(vec![0, 2, 2, 5].into()), items, None);
    assert_reject(convert(Arc::new(visible), "list<long>"), "out_of_range", 3, "v");
    let fixed = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>([Some([Some(1.0), None]), None], 2);
    let read = convert(Arc::new(fixed), "list<double>").unwrap();
    assert_eq!((read.as_list::<i32>().value_length(0), read.null_count()), (2, 1));
}

#[test]
fn structs_are_matched_by_name_beneath_their_nulls() {
    let x: ArrayRef = Arc::new(UInt64Array::from(vec![1, u64::MAX]));
    let dict: ArrayRef = Arc::new(vec!["p", "q"].into_iter().collect::<DictionaryArray<Int32Type>>());
    let fields =
        Fields::from(vec![Field::new("y", dict.data_type().clone(), true), Field::new("x", DataType::UInt64, true)]);
    let nulls = NullBuffer::from(vec![true, false]);
    let hidden = StructArray::new(fields.clone(), vec![dict.clone(), x.clone()], Some(nulls));
    let read = convert(Arc::new(hidden), "struct<x:long,y:string,z:double>").unwrap();
    assert_eq!(read.null_count(), 1);
    assert_eq!(read.as_struct().column(0).as_primitive::<Int64Type>().value(0), 1);
    assert_eq!(read.as_struct().column(1).as_string::<i32>().value(0), "p");
    assert_eq!(read.as_struct().column(2).null_count(), 2);
    let shown: ArrayRef = Arc::new(StructArray::new(fields, vec![dict, x], None));
    assert_reject(convert(shown.clone(), "struct<x:long,y:string>"), "out_of_range", 2, "v.x");
    assert_reject(convert(shown, "struct<x:long>"), "unknown_column", 1, "v.y");
}

#[test]
fn maps_have_each_key_once() {
    let map = |keys: &[&str]| -> ArrayRef {
        let mut map = MapBuilder::new(None, StringBuilder::new(), Int8Builder::new());
        map.append(true).unwrap();
        for key in keys {
            map.keys().append_value(key);
            map.values().append_value(1);
        }
        map.append(true).unwrap();
        Arc::new(map.finish())
    };
    assert_eq!(convert(map(&["a", "b"]), "map<string,long>").unwrap().as_map().value_length(1), 2);
    assert_reject(convert(map(&["a", "b", "a"]), "map<string,long>"), "duplicate_key", 2, "v");
    assert_reject(convert(map(&["a"]), "map<string,string>"), "type_mismatch", 2, "v");
}

#[test]
fn types_without_a_counterpart_are_refused() {
    let columns: [ArrayRef; 3] = [
        Arc::new(Time64MicrosecondArray::from(vec![1])),
        Arc::new(DurationSecondArray::from(vec![1])),
        Arc::new(IntervalYearMonthArray::from(vec![1])),
    ];
    for column in columns {
        let reject = infer_arrow(&stream(&[batch(column)]), None).unwrap_err();
        assert_eq!((reject.code, reject.column.as_deref()), ("unsupported_type", Some("v")));
    }
}

#[test]
fn streams_without_rows_are_empty() {
    let spec = table(None, "v long");
    assert_eq!(decode(&spec, &Bytes::new()).unwrap_err().code, "empty_body");
    let none = batch(Arc::new(Int64Array::from(Vec::<i64>::new())));
    assert_eq!(decode(&spec, &stream(std::slice::from_ref(&none))).unwrap_err().code, "empty_body");
    assert_eq!(infer_arrow(&stream(&[none]), None).unwrap_err().code, "empty_body");
}

fn rich_stream() -> (TableSpec, Bytes) {
    let words = vec![Some("a"), None, Some("b")].into_iter().collect::<DictionaryArray<Int8Type>>();
    let mut list = ListBuilder::new(StringBuilder::new());
    list.append_value([Some("x"), None]);
    list.append_null();
    list.append_value([Some("y")]);
    let list: ArrayRef = Arc::new(list.finish());
    let point = Fields::from(vec![Field::new("x", DataType::Int16, true)]);
    let nulls = Some(NullBuffer::from(vec![true, false, true]));
    let point = StructArray::new(point, vec![Arc::new(Int16Array::from(vec![1, 2, 3]))], nulls);
    let fields: [(&str, ArrayRef); 7] = [
        ("ts", times(3)),
        ("w", Arc::new(words)),
        ("l", list),
        ("p", Arc::new(point)),
        ("v", Arc::new(StringViewArray::from(vec![Some("a value that is longer than a view"), None, Some("b")]))),
        ("b", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("n", Arc::new(NullArray::new(3))),
    ];
    let spec = table(None, "w string; l list<string>; p struct<x:int>; v string; b boolean; n long");
    let batch = RecordBatch::try_from_iter_with_nullable(fields.map(|(n, a)| (n, a, true))).unwrap();
    (spec, stream(&[batch.clone(), batch]))
}

#[test]
fn every_truncation_is_refused_or_ends_between_batches() {
    let (spec, body) = rich_stream();
    let whole = decode(&spec, &body).unwrap();
    assert_eq!(whole.batch.num_rows(), 6);
    let mut accepted = Vec::new();
    for end in 0..body.len() {
        if let Ok(decoded) = decode(&spec, &body.slice(..end)) {
            accepted.push(decoded.batch.num_rows());
        }
    }
    // A stream may end without its end marker: the format says so.
    assert_eq!(accepted, [3, 6]);
    let longer = [body.as_ref(), b"rest"].concat();
    assert_eq!(decode(&spec, &longer.into()).unwrap_err().code, "invalid_arrow");
}

#[test]
fn no_damaged_byte_panics() {
    let (spec, body) = rich_stream();
    for at in 0..body.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = body.to_vec();
            damaged[at] ^= flip;
            let damaged = Bytes::from(damaged);
            if let Ok(decoded) = decode(&spec, &damaged) {
                decoded.batch.columns().iter().for_each(|c| c.to_data().validate_full().unwrap());
            }
            let _ = infer_arrow(&damaged, None);
        }
    }
}

#[test]
fn declared_lengths_are_compared_with_the_bytes_that_are_there() {
    let spec = table(None, "v long");
    let header = |length: u32| [u32::MAX.to_le_bytes(), length.to_le_bytes()].concat();
    for length in [1, 8, 1 << 20, i32::MAX as u32, u32::MAX] {
        let reject = decode(&spec, &header(length).into()).unwrap_err();
        assert_eq!((reject.code, reject.status), ("invalid_arrow", RejectKind::Invalid));
    }
    assert!(decode(&spec, &header(0).into()).is_err());
}

#[test]
fn buffers_may_be_compressed_with_zstd() {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..10_000).map(|i| i % 7)));
    let rows = batch(values.clone());
    let with = |codec| {
        stream_with(std::slice::from_ref(&rows), IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap())
    };
    let spec = table(None, "v long");
    let zstd = with(CompressionType::ZSTD);
    assert_eq!(decode(&spec, &zstd).unwrap().batch.column(1), &values);
    let limits = Limits { max_batch_bytes: 100_000, ..Limits::default() };
    let reject = crate::ingest::decode(&spec, Format::ArrowStream, &zstd, NOW, &limits).unwrap_err();
    assert_eq!(reject.status, RejectKind::TooLarge);
    assert_eq!(decode(&spec, &with(CompressionType::LZ4_FRAME)).unwrap_err().code, "unsupported_arrow");
}

#[test]
fn shared_values_count_for_every_row_that_has_them() {
    let long = "x".repeat(1 << 20);
    let keys = Int8Array::from(vec![0; 10_000]);
    let dictionary = DictionaryArray::new(keys, Arc::new(StringArray::from(vec![long.as_str()])));
    let reject = convert(Arc::new(dictionary), "string").unwrap_err();
    assert_eq!((reject.code, reject.status), ("batch_too_large", RejectKind::TooLarge));
    let mut views = StringViewBuilder::new();
    let block = views.append_block(long.into_bytes().into());
    (0..10_000).for_each(|_| views.try_append_view(block, 0, 1 << 20).unwrap());
    let reject = convert(Arc::new(views.finish()), "string").unwrap_err();
    assert_eq!((reject.code, reject.status), ("batch_too_large", RejectKind::TooLarge));
}

#[test]
fn rows_are_limited() {
    let spec = table(None, "v long");
    let body = stream(&[batch(Arc::new(Int64Array::from(vec![1, 2]))), batch(Arc::new(Int64Array::from(vec![3, 4])))]);
    let limits = Limits { max_rows: 3, ..Limits::default() };
    let reject = crate::ingest::decode(&spec, Format::ArrowStream, &body, NOW, &limits).unwrap_err();
    assert_eq!((reject.code, reject.status), ("too_many_rows", RejectKind::TooLarge));
}
