use std::sync::Arc;

use arrow::array::{Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use bytes::Bytes;
use penstock_store::{Lsn, Slice};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{column, every_type};
use crate::schema::arrow::arrow_schema;
use crate::schema::packed::{MAX_ITEMS, MAX_ROWS, UnpackError, Unpacker, pack};
use crate::schema::payload::{Batches, ENCODING_IPC, ENCODING_PACKED, PayloadError, decode, encode_slice};
use crate::schema::versions::Change;
use crate::schema::{ColumnSpec, TableSpec};

fn of_json(spec: &TableSpec, lines: &str) -> RecordBatch {
    let mut reader = arrow::json::ReaderBuilder::new(arrow_schema(spec)).build(lines.as_bytes()).unwrap();
    reader.next().unwrap().unwrap()
}

/// A table of these columns, and a time that is not null in front.
fn with_columns(columns: &[(&str, &str)]) -> TableSpec {
    let mut spec = every_type();
    spec.columns.truncate(1);
    spec.columns.extend(columns.iter().map(|(name, kind)| column(name, kind)));
    spec
}

fn rows() -> RecordBatch {
    let json = r#"{"ts":1,"b":true,"i":1,"l":2,"f":0.5,"d":0.25,"s":"x","bin":"000102","day":"2026-01-31","at":"2026-01-31T00:00:00Z","dec":1.25,"tags":["a",null,"b"],"pos":{"x":1.5,"y":2.5,"names":["n"]},"attrs":{"a":1,"b":null}}
{"ts":2}
{"ts":3,"tags":[],"pos":{},"attrs":{},"s":""}
{"ts":4,"b":false,"i":-1,"l":-2,"s":"h\u00e4","tags":["c"],"pos":{"names":[]},"attrs":{"z":9}}"#;
    of_json(&every_type(), json)
}

fn unpack(schema: &SchemaRef, payloads: &[Vec<u8>]) -> Result<RecordBatch, UnpackError> {
    let mut unpacker = Unpacker::new(schema)?;
    for payload in payloads {
        unpacker.add(payload)?;
    }
    unpacker.finish()
}

#[test]
fn rows_survive_together_and_each_by_itself() {
    let batch = rows();
    let schema = batch.schema();
    let together = pack(&batch).unwrap();
    assert_eq!(unpack(&schema, std::slice::from_ref(&together)).unwrap(), batch);
    let apart: Vec<Vec<u8>> = (0..batch.num_rows()).map(|i| pack(&batch.slice(i, 1)).unwrap()).collect();
    for (i, payload) in apart.iter().enumerate() {
        assert_eq!(unpack(&schema, std::slice::from_ref(payload)).unwrap(), batch.slice(i, 1), "row {i}");
    }
    assert_eq!(unpack(&schema, &apart).unwrap(), batch, "many payloads make one batch");
    let twice = concat_batches(&schema, [&batch.slice(1, 3), &batch]).unwrap();
    assert_eq!(unpack(&schema, &[pack(&batch.slice(1, 3)).unwrap(), together]).unwrap(), twice);
}

/// These bytes are in logs: what is written may change, what is read may not.
#[test]
fn the_bytes_are_those_of_the_format() {
    let spec = with_columns(&[
        ("b", "boolean"),
        ("i", "int"),
        ("s", "string"),
        ("t", "list<string>"),
        ("m", "map<string,long>"),
        ("p", "struct<x:double,n:string>"),
        ("d", "decimal(9,2)"),
    ]);
    let batch = of_json(
        &spec,
        r#"{"ts":"1970-01-01T00:00:00.000001Z","b":true,"i":-2,"s":"ab","t":["x",null],"m":{"k":3},"p":{"x":1.0},"d":1.25}
{"ts":"1970-01-01T00:00:00.000258Z","s":"c","p":null}"#,
    );
    let expected = "02 0100000000000000 0201000000000000 \
        02 01 01 \
        02 01 feffffff \
        00 02 01 61 62 63 \
        02 01 02 02 01 01 78 \
        02 01 01 01 6b 00 0300000000000000 \
        02 01 02 01 000000000000f03f 01 \
        02 01 7d000000000000000000000000000000";
    let expected: String = expected.split_whitespace().collect();
    let packed = pack(&batch).unwrap();
    let hex: String = packed.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, expected);
    assert_eq!(unpack(&batch.schema(), &[packed]).unwrap(), batch);
}

#[test]
fn a_row_of_eight_columns_takes_little_more_than_its_values() {
    let spec = with_columns(&["c0", "c1", "c2", "c3", "c4", "c5", "c6"].map(|name| (name, "string")));
    let values: Vec<String> = (0..7).map(|i| format!(r#""c{i}":"{}""#, "v".repeat(24))).collect();
    let batch = of_json(&spec, &format!(r#"{{"ts":1,{}}}"#, values.join(",")));
    let (encoding, payload) = encode_slice(&batch).unwrap();
    assert_eq!((encoding, payload.len()), (ENCODING_PACKED, 1 + 8 + 7 * (1 + 1 + 24)));
}

#[test]
fn many_rows_and_very_long_lists_are_not_packed() {
    let rows = |n: usize| {
        let values = Int64Array::from_iter_values(0..n as i64);
        RecordBatch::try_from_iter([("l", Arc::new(values) as _)]).unwrap()
    };
    assert_eq!(encode_slice(&rows(MAX_ROWS)).unwrap().0, ENCODING_PACKED);
    assert_eq!(encode_slice(&rows(MAX_ROWS + 1)).unwrap().0, ENCODING_IPC);
    let list = |n: usize| {
        let values = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![None; n])]);
        RecordBatch::try_from_iter_with_nullable([("t", Arc::new(values) as _, true)]).unwrap()
    };
    let (longest, longer) = (list(MAX_ITEMS), list(MAX_ITEMS + 1));
    let (encoding, payload) = encode_slice(&longest).unwrap();
    assert_eq!(encoding, ENCODING_PACKED);
    assert_eq!(decode(ENCODING_PACKED, &payload, &longest.schema()).unwrap(), longest);
    assert_eq!(encode_slice(&longer).unwrap().0, ENCODING_IPC);
}

fn slice(encoding: u8, version: u32, payload: Bytes) -> Slice {
    Slice { lsn: Lsn(8), schema_version: version, encoding, rows: 1, min_time: 0, max_time: 0, payload }
}

#[test]
fn slices_of_all_versions_and_encodings_make_the_rows_of_the_newest() {
    let first = every_type();
    let mut wanted = first.clone();
    wanted.columns.push(ColumnSpec { name: "late".to_owned(), kind: "string".parse().unwrap(), nullable: true });
    let Change::Next(second) = first.change_to(&wanted) else { panic!("should be a change") };
    let old = of_json(&first, r#"{"ts":1,"s":"a"}"#);
    let new = of_json(&second, r#"{"ts":2,"s":"b","late":"x"}"#);
    let packed = |batch: &RecordBatch| Bytes::from(pack(batch).unwrap());
    let slices = vec![
        slice(ENCODING_PACKED, 1, packed(&old)),
        slice(ENCODING_PACKED, 1, packed(&old)),
        slice(ENCODING_PACKED, 2, packed(&new)),
        slice(ENCODING_IPC, 2, crate::schema::payload::encode(&new).unwrap()),
        slice(ENCODING_PACKED, 2, packed(&new)),
        slice(ENCODING_PACKED, 2, packed(&new)),
        slice(ENCODING_PACKED, 2, packed(&new)),
    ];
    let schema = arrow_schema(&second);
    let batches: Vec<RecordBatch> =
        Batches::new(Arc::new((*second).clone()), Arc::clone(&schema), slices).collect::<Result<_, _>>().unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [2, 1, 1, 3]);
    let all = concat_batches(&schema, &batches).unwrap();
    let late = all.column_by_name("late").unwrap().as_any().downcast_ref::<StringArray>().unwrap().clone();
    assert_eq!(late, StringArray::from(vec![None, None, Some("x"), Some("x"), Some("x"), Some("x"), Some("x")]));
    let bad = vec![slice(ENCODING_PACKED, 2, packed(&new)), slice(ENCODING_PACKED, 2, Bytes::from_static(b"\x01"))];
    let error = Batches::new(Arc::new((*second).clone()), schema, bad).next().unwrap().unwrap_err();
    assert!(matches!(error.source, PayloadError::Unpack(UnpackError::Truncated)), "{error:?}");
}

#[test]
fn every_truncation_is_an_error() {
    let batch = rows();
    let bytes = pack(&batch).unwrap();
    for end in 0..bytes.len() {
        assert!(unpack(&batch.schema(), &[bytes[..end].to_vec()]).is_err(), "cut at {end}");
    }
    assert!(unpack(&batch.schema(), &[[bytes, vec![0]].concat()]).is_err(), "one byte more");
}

/// Whatever a byte becomes, decoding answers; and what it accepts can be walked through to the last value.
#[test]
fn no_damaged_byte_panics() {
    let batch = rows();
    let bytes = pack(&batch).unwrap();
    let mut accepted = 0;
    for at in 0..bytes.len() {
        for flip in 1..=255 {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            if let Ok(read) = unpack(&batch.schema(), &[damaged]) {
                read.columns().iter().for_each(|c| c.to_data().validate_full().unwrap());
                accepted += 1;
            }
        }
    }
    assert!(accepted > 0, "another number is a number");
}

#[test]
fn other_schemas_are_refused() {
    let batch = rows();
    let bytes = pack(&batch).unwrap();
    let fields: Vec<_> = batch.schema().fields().iter().skip(1).cloned().collect();
    assert!(unpack(&Arc::new(Schema::new(fields)), &[bytes]).is_err());
    let odd = Arc::new(Schema::new(vec![Field::new("u", DataType::UInt64, true)]));
    assert!(matches!(Unpacker::new(&odd).unwrap_err(), UnpackError::Type(DataType::UInt64)));
}

#[test]
fn any_bytes_are_answered() {
    let schema = arrow_schema(&every_type());
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..20_000 {
        let len = random.random_range(0..400);
        // Small numbers are what presence and lengths are made of.
        let noise =
            (0..len).map(|_| if random.random() { random.random() } else { random.random_range(0..3) }).collect();
        if let Ok(read) = unpack(&schema, &[noise]) {
            read.columns().iter().for_each(|c| c.to_data().validate_full().unwrap());
        }
    }
}
