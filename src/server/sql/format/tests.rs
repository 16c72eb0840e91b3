use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::ipc::reader::StreamReader;

use super::*;

fn batch(from: i64) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(from), None]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a\nb"), Some("c,\"d\"")]));
    RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).expect("should be a batch")
}

fn write(format: Format, batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = Writer::new(format, batch(0).schema(), Instant::now());
    let mut out = Vec::new();
    for batch in batches {
        out.extend_from_slice(&writer.batch(batch).expect("should write"));
    }
    out.extend_from_slice(&writer.finish().expect("should finish"));
    out
}

#[test]
fn json_is_one_document_however_many_batches() {
    for count in 0..3_i64 {
        let batches: Vec<_> = (0..count).map(batch).collect();
        let value: serde_json::Value = serde_json::from_slice(&write(Format::Json, &batches)).expect("should be JSON");
        assert_eq!(value["row_count"], count * 2);
        assert_eq!(value["rows"].as_array().expect("should be rows").len() as i64, count * 2);
        assert_eq!(value["columns"][0]["name"], "n");
        if count == 2 {
            assert_eq!(value["rows"][2]["n"], 1);
            assert_eq!(value["rows"][1]["n"], serde_json::Value::Null);
            assert_eq!(value["rows"][0]["t"], "a\nb");
        }
    }
}

#[test]
fn csv_has_one_header_also_without_rows() {
    assert_eq!(write(Format::Csv, &[]), b"n,t\n");
    let text = String::from_utf8(write(Format::Csv, &[batch(1), batch(2)])).expect("should be UTF-8");
    assert_eq!(text.matches("n,t").count(), 1);
    assert!(text.contains("\"c,\"\"d\"\"\""), "{text}");
}

#[test]
fn arrow_is_a_stream_also_without_rows() {
    for count in 0..3 {
        let batches: Vec<_> = (0..count).map(batch).collect();
        let bytes = write(Format::Arrow, &batches);
        let read: Vec<_> = StreamReader::try_new(&bytes[..], None)
            .expect("should be a stream")
            .collect::<Result<_, _>>()
            .expect("should read");
        assert_eq!(read, batches);
    }
}

#[test]
fn accept_chooses_the_first_format_we_write() {
    let accept = |text: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, axum::http::HeaderValue::from_static(text));
        Format::from_accept(&headers)
    };
    assert_eq!(Format::from_accept(&HeaderMap::new()), Ok(Format::Json));
    assert_eq!(accept("*/*"), Ok(Format::Json));
    assert_eq!(accept("text/html, text/csv;q=0.9"), Ok(Format::Csv));
    assert_eq!(accept("application/vnd.apache.arrow.stream"), Ok(Format::Arrow));
    assert_eq!(accept("image/png").map_err(|e| e.status), Err(StatusCode::NOT_ACCEPTABLE));
}
