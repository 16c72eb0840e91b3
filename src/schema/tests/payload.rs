use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, new_null_array};
use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;

use super::every_type;
use crate::schema::arrow::arrow_schema;
use crate::schema::payload::{ENCODING_IPC, PayloadError, decode, encode};

/// Rows with a value, a null, an empty and a full list in every column where there can be one.
fn rows() -> RecordBatch {
    let json = r#"{"ts":1,"b":true,"i":1,"l":2,"f":0.5,"d":0.25,"s":"x","bin":"000102","day":"2026-01-31","at":"2026-01-31T00:00:00Z","dec":1.25,"tags":["a",null,"b"],"pos":{"x":1.5,"y":2.5,"names":["n"]},"attrs":{"a":1,"b":null}}
{"ts":2}
{"ts":3,"tags":[],"pos":{},"attrs":{},"s":""}
{"ts":4,"b":false,"i":-1,"l":-2,"s":"h\u00e4","tags":["c"],"pos":{"names":[]},"attrs":{"z":9}}"#;
    let mut reader = arrow::json::ReaderBuilder::new(arrow_schema(&every_type())).build(json.as_bytes()).unwrap();
    reader.next().unwrap().unwrap()
}

#[test]
fn rows_survive_the_encoding() {
    let batch = rows();
    let bytes = encode(&batch).unwrap();
    assert_eq!(bytes.len() % 8, 0);
    assert_eq!(decode(ENCODING_IPC, &bytes, &batch.schema()).unwrap(), batch);
}

#[test]
fn no_rows_and_nothing_but_nulls_survive() {
    let schema = arrow_schema(&every_type());
    let empty = RecordBatch::new_empty(schema.clone());
    assert_eq!(decode(ENCODING_IPC, &encode(&empty).unwrap(), &schema).unwrap(), empty);
    let nullable = Arc::new(Schema::new(schema.fields().iter().skip(1).cloned().collect::<Vec<_>>()));
    let columns = nullable.fields().iter().map(|f| new_null_array(f.data_type(), 20)).collect();
    let nulls = RecordBatch::try_new(nullable.clone(), columns).unwrap();
    assert_eq!(decode(ENCODING_IPC, &encode(&nulls).unwrap(), &nullable).unwrap(), nulls);
}

#[test]
fn a_cut_of_a_batch_carries_only_its_own_rows() {
    let long: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
    let text: ArrayRef = Arc::new(StringArray::from_iter_values((0..10_000).map(|i| format!("value {i}"))));
    let batch = RecordBatch::try_from_iter([("l", long), ("s", text)]).unwrap();
    let cut = batch.slice(5_000, 3);
    let bytes = encode(&cut).unwrap();
    assert!(bytes.len() < 600, "{}", bytes.len());
    assert_eq!(decode(ENCODING_IPC, &bytes, &cut.schema()).unwrap(), cut);
}

#[test]
fn bytes_at_any_alignment_decode() {
    let batch = rows();
    let encoded = encode(&batch).unwrap();
    for shift in 0..16 {
        let mut shifted = vec![0; shift];
        shifted.extend_from_slice(&encoded);
        let payload = Bytes::from(shifted).slice(shift..);
        assert_eq!(decode(ENCODING_IPC, &payload, &batch.schema()).unwrap(), batch);
    }
}

#[test]
fn unknown_encodings_are_named() {
    let error = decode(7, &Bytes::new(), &arrow_schema(&every_type())).unwrap_err();
    assert!(matches!(error, PayloadError::UnknownEncoding(7)));
}

#[test]
fn another_schema_is_refused() {
    let batch = rows();
    let bytes = encode(&batch).unwrap();
    let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    fields.pop();
    assert!(decode(ENCODING_IPC, &bytes, &Arc::new(Schema::new(fields.clone()))).is_err());
    fields.push(Arc::new(Field::new("attrs", DataType::Int64, true)));
    assert!(decode(ENCODING_IPC, &bytes, &Arc::new(Schema::new(fields))).is_err());
}

#[test]
fn every_truncation_is_an_error() {
    let batch = rows();
    let bytes = encode(&batch).unwrap();
    for end in 0..bytes.len() {
        assert!(decode(ENCODING_IPC, &bytes.slice(..end), &batch.schema()).is_err(), "cut at {end}");
    }
    let longer: Vec<u8> = bytes.iter().copied().chain([0; 8]).collect();
    assert!(decode(ENCODING_IPC, &Bytes::from(longer), &batch.schema()).is_err());
}

/// Whatever a byte becomes, decoding answers; and what it accepts can be walked through to the last value.
#[test]
fn no_damaged_byte_panics() {
    let batch = rows();
    let bytes = encode(&batch).unwrap();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= flip;
            match decode(ENCODING_IPC, &Bytes::from(damaged), &batch.schema()) {
                Err(PayloadError::Damaged(crate::schema::ipc::IpcError::ReaderPanic)) => {
                    panic!("the checks in front of arrow-ipc let byte {at} ^ {flip:#x} through")
                }
                Err(_) => {}
                Ok(read) => {
                    assert_eq!(read.num_columns(), batch.num_columns());
                    read.columns().iter().for_each(|c| c.to_data().validate_full().unwrap());
                }
            }
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let schema = arrow_schema(&every_type());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for length in 0..2_000 {
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(length)
        .collect();
        assert!(decode(ENCODING_IPC, &Bytes::from(noise), &schema).is_err());
    }
}
