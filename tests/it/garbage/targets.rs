//! Every decoder of bytes that a sender chooses, as one function each: no bytes may make it panic, or give rows that are not what they
//! say. Driven here by damaged samples of each format, and by a coverage-guided fuzzer in `fuzz/`.

use bytes::Bytes;
use penstock::ingest::declare::Declaration;
use penstock::ingest::{ContentEncoding, Decoded, Format, Limits, decode, decompress, infer, slices};
use penstock::schema::arrow::arrow_schema;
use penstock::schema::{TableSpec, TimeUnit, payload};
use penstock_store::TableId;
use uuid::Uuid;

/// A column of every type, and an event time that has a place for its nanoseconds.
pub const DECLARATION: &str = r#"{"columns":[
    {"name":"ts","type":"timestamp","nullable":false},{"name":"ts_ns","type":"int"},{"name":"b","type":"boolean"},
    {"name":"i","type":"int"},{"name":"l","type":"long"},{"name":"f","type":"float"},{"name":"d","type":"double"},
    {"name":"s","type":"string"},{"name":"bin","type":"binary"},{"name":"day","type":"date"},{"name":"at","type":"timestamp"},
    {"name":"dec","type":"decimal(20,2)"},{"name":"list","type":"list<list<long>>"},
    {"name":"o","type":"struct<x:long,t:timestamp,t_ns:int,p:struct<y:string>>"},
    {"name":"m","type":"map<string,struct<k:list<string>>>"}],"event_time":"ts","event_time_unit":"ns"}"#;

/// Small, so that what grows beyond its bytes is noticed.
fn limits() -> Limits {
    Limits { max_decoded_bytes: 1 << 20, max_batch_bytes: 16 << 20, max_rows: 10_000, ..Limits::default() }
}

/// When the samples are received, microseconds: rows far ahead of it are rejected.
pub const NOW: i64 = 1_770_000_000_000_000;

/// The table of [`DECLARATION`].
pub fn table() -> TableSpec {
    let declaration: Declaration = serde_json::from_str(DECLARATION).expect("should be a declaration");
    declaration.into_spec("t".parse().expect("should be a name"), None).expect("should be a definition")
}

fn rows(format: Format, bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    let spec = table();
    if let Ok(decoded) = decode(&spec, format, &body, NOW, &limits()) {
        check(&spec, decoded);
    }
    for unit in [None, Some(TimeUnit::Ns)] {
        let Ok(spec) = infer("t".parse().expect("should be a name"), format, &body, unit, &limits()) else { continue };
        spec.validate().expect("what rows make should be a table");
        if let Ok(decoded) = decode(&spec, format, &body, NOW, &limits()) {
            check(&spec, decoded);
        }
    }
}

/// Rows are of their table's types, and come back from the log as they went in.
fn check(spec: &TableSpec, decoded: Decoded) {
    assert_eq!(decoded.batch.schema(), arrow_schema(spec));
    assert_eq!(decoded.batch.num_rows(), decoded.times.len());
    for column in decoded.batch.columns() {
        column.to_data().validate_full().expect("columns should be sound");
    }
    assert!(decoded.rejected.rows().iter().all(|row| row.reason.row.is_some() && !row.reason.message.is_empty()));
    let all = decoded.batch.num_rows();
    let Ok(cut) = slices(TableId(Uuid::nil()), spec, decoded, i64::MIN) else { return };
    let read = cut.iter().map(|slice| {
        payload::decode(slice.encoding, &slice.payload, &arrow_schema(spec)).expect("should be read again").num_rows()
    });
    assert_eq!(read.sum::<usize>(), all);
}

fn ndjson(bytes: &[u8]) {
    rows(Format::Ndjson, bytes);
}

fn json(bytes: &[u8]) {
    rows(Format::Json, bytes);
}

fn arrow(bytes: &[u8]) {
    rows(Format::ArrowStream, bytes);
}

fn encoded(encoding: ContentEncoding, bytes: &[u8]) {
    if let Ok(body) = decompress(encoding, Bytes::copy_from_slice(bytes), 1 << 20) {
        assert!(body.len() <= 1 << 20);
    }
}

fn gzip(bytes: &[u8]) {
    encoded(ContentEncoding::Gzip, bytes);
}

fn zstd(bytes: &[u8]) {
    encoded(ContentEncoding::Zstd, bytes);
}

fn declaration(bytes: &[u8]) {
    let Ok(declaration) = serde_json::from_slice::<Declaration>(bytes) else { return };
    let Ok(spec) = declaration.into_spec("t".parse().expect("should be a name"), None) else { return };
    let text = serde_json::to_vec(&spec).expect("should be written");
    assert_eq!(serde_json::from_slice::<TableSpec>(&text).expect("should be read again"), spec);
}

fn slice(encoding: u8, bytes: &[u8]) {
    if let Ok(batch) = payload::decode(encoding, &Bytes::copy_from_slice(bytes), &arrow_schema(&table())) {
        batch.columns().iter().for_each(|c| c.to_data().validate_full().expect("columns should be sound"));
    }
}

fn slice_of_many(bytes: &[u8]) {
    slice(payload::ENCODING_IPC, bytes);
}

fn slice_of_few(bytes: &[u8]) {
    slice(payload::ENCODING_PACKED, bytes);
}

/// A decoder, and its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 8] = [
    ("ndjson", ndjson),
    ("json", json),
    ("arrow", arrow),
    ("gzip", gzip),
    ("zstd", zstd),
    ("declaration", declaration),
    ("slice_of_many", slice_of_many),
    ("slice_of_few", slice_of_few),
];
