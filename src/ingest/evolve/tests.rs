use std::sync::Arc;

use ::arrow::array::*;
use ::arrow::datatypes::Int32Type;
use ::arrow::ipc::writer::StreamWriter;

use super::*;
use crate::ingest::tests::{NOW, columns, table};
use crate::ingest::{Decoded, decode};
use crate::schema::TimeUnit;
use crate::schema::spec::Rules;

fn evolving(columns: &str) -> TableSpec {
    TableSpec { rules: Rules { schema: SchemaMode::Evolve, ..Rules::any_time() }, ..table(Some(TimeUnit::Us), columns) }
}

fn read(spec: &TableSpec, format: Format, body: &Bytes, limits: &Limits) -> Decoded {
    let decoded = decode(spec, format, body, NOW, limits).unwrap();
    decoded.batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
    decoded
}

fn step(spec: &TableSpec, format: Format, body: &Bytes, limits: &Limits) -> Option<TableSpec> {
    next(spec, format, body, &read(spec, format, body, limits).rejected, limits)
}

fn overflow(decoded: &Decoded, row: usize) -> Vec<(String, String)> {
    let maps = decoded.batch.column_by_name(OVERFLOW_COLUMN).unwrap().as_map();
    if maps.is_null(row) {
        return Vec::new();
    }
    let entries = maps.value(row);
    let texts = |at: usize| entries.column(at).as_string::<i32>().clone();
    let (keys, values) = (texts(0), texts(1));
    (0..entries.len()).map(|at| (keys.value(at).to_owned(), values.value(at).to_owned())).collect()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn new_keys_become_columns_in_the_order_they_come_in() {
    let spec = evolving("a long");
    let body = Bytes::from(
        "{\"ts\":1,\"a\":1}\n{\"ts\":2,\"z\":\"x\",\"n\":null,\"y\":1}\n{\"ts\":3,\"y\":1.5,\"s\":{\"k\":[true]}}",
    );
    for format in [Format::Ndjson, Format::Json] {
        let body = match format {
            Format::Json => Bytes::from(format!("[{}]", String::from_utf8_lossy(&body).replace('\n', ","))),
            _ => body.clone(),
        };
        let next = step(&spec, format, &body, &Limits::default()).unwrap();
        assert_eq!(columns(&next), "ts timestamp; a long; z string; y double; s struct<k:list<boolean>>");
        assert_eq!(next.schema_version, 2);
        let decoded = read(&next, format, &body, &Limits::default());
        assert!(decoded.rejected.is_empty() && decoded.batch.num_rows() == 3);
        assert_eq!(super::next(&next, format, &body, &decoded.rejected, &Limits::default()), None);
    }
    let strict = TableSpec { rules: Rules::any_time(), ..spec };
    assert_eq!(step(&strict, Format::Ndjson, &body, &Limits::default()), None);
}

#[test]
fn types_widen_where_readers_follow_and_nowhere_else() {
    let spec = evolving("i int; f float; l long; s string");
    let limits = Limits::default();
    let to = |row: &str| step(&spec, Format::Ndjson, &Bytes::from(row.to_owned()), &limits).map(|spec| columns(&spec));
    assert_eq!(to(r#"{"ts":1,"i":3000000000}"#).unwrap(), "ts timestamp; i long; f float; l long; s string");
    assert_eq!(to(r#"{"ts":1,"f":16777217}"#).unwrap(), "ts timestamp; i int; f double; l long; s string");
    for other in [r#""i":1e30"#, r#""i":1.5"#, r#""i":"x""#, r#""l":1e30"#, r#""s":1"#, r#""l":1.5"#, r#""f":1e400"#] {
        assert_eq!(to(&format!("{{\"ts\":1,{other}}}")), None, "{other}");
    }
}

#[test]
fn keys_of_two_types_get_the_one_of_most_values() {
    let body = Bytes::from("{\"ts\":1,\"x\":1}\n{\"ts\":2,\"x\":\"a\",\"y\":1}\n{\"ts\":3,\"x\":2}");
    let next = step(&evolving("a long"), Format::Ndjson, &body, &Limits::default()).unwrap();
    assert_eq!(columns(&next), "ts timestamp; a long; x long; y long");
    let decoded = read(&next, Format::Ndjson, &body, &Limits::default());
    assert_eq!((decoded.batch.num_rows(), decoded.rejected.len()), (2, 1));
}

#[test]
fn what_has_no_room_overflows() {
    let limits = Limits { max_columns: 5, ..Limits::default() };
    let body = Bytes::from(
        "{\"ts\":1,\"b\":1,\"c\":\"x\",\"d\":{\"deep\": [1, \"é\"]},\"e\":1}\n{\"ts\":2,\"A\":null,\"f\":2}\n{\"ts\":3,\"a\":1}\n{\"ts\":4,\"odd name\":1}\n{\"ts\":5,\"B\":1}",
    );
    let next = step(&evolving("a long"), Format::Ndjson, &body, &limits).unwrap();
    assert_eq!(columns(&next), "ts timestamp; a long; b long; c string; _overflow map<string,string>");
    let decoded = read(&next, Format::Ndjson, &body, &limits);
    let codes: Vec<_> = decoded.rejected.rows().iter().map(|row| row.reason.code).collect();
    assert_eq!((decoded.batch.num_rows(), codes), (3, vec!["invalid_column_name", "ambiguous_column_name"]));
    assert_eq!(overflow(&decoded, 0), [pair("d", "{\"deep\": [1, \"é\"]}"), pair("e", "1")]);
    assert_eq!(overflow(&decoded, 1), [pair("f", "2")]);
    assert!(overflow(&decoded, 2).is_empty());
    // With room again, new keys are columns.
    let body = Bytes::from("{\"ts\":1,\"d\":[1]}");
    let again = step(&next, Format::Ndjson, &body, &Limits::default()).unwrap();
    assert_eq!(columns(&again), format!("{}; d list<long>", columns(&next)));
}

#[test]
fn rows_do_not_fill_the_overflow_themselves_and_name_no_key_twice() {
    let limits = Limits { max_columns: 3, ..Limits::default() };
    let spec = evolving("a long; _overflow map<string,string>");
    let body = Bytes::from(
        "{\"ts\":1,\"x\":1,\"x\":2}\n{\"ts\":2,\"_overflow\":{\"k\":\"v\"}}\n{\"ts\":3,\"x\":1,\"a\":\"no\"}\n{\"ts\":4,\"y\":1}",
    );
    let decoded = read(&spec, Format::Ndjson, &body, &limits);
    let codes: Vec<_> = decoded.rejected.rows().iter().map(|row| row.reason.code).collect();
    assert_eq!(codes, ["duplicate_key", "reserved_column", "type_mismatch"]);
    assert_eq!(overflow(&decoded, 0), [pair("y", "1")]);
}

#[test]
fn columns_of_a_stream_have_their_own_types() {
    let fields: [(&str, ArrayRef); 5] = [
        ("ts", Arc::new(TimestampMicrosecondArray::from(vec![1, 2]))),
        ("small", Arc::new(Int32Array::from(vec![Some(1), None]))),
        ("none", Arc::new(Int64Array::from(vec![None, None]))),
        ("at", Arc::new(TimestampMillisecondArray::from(vec![None, Some(5)]))),
        ("word", Arc::new(vec![Some("x"), None].into_iter().collect::<DictionaryArray<Int32Type>>())),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(fields.map(|(n, a)| (n, a, true))).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    let body = Bytes::from(writer.into_inner().unwrap());
    let whole = step(&evolving("a long"), Format::ArrowStream, &body, &Limits::default()).unwrap();
    assert_eq!(columns(&whole), "ts timestamp; a long; small int; word string; at timestamp");
    let limits = Limits { max_columns: 4, ..Limits::default() };
    let next = step(&evolving("a long"), Format::ArrowStream, &body, &limits).unwrap();
    assert_eq!(columns(&next), "ts timestamp; a long; small int; _overflow map<string,string>");
    let decoded = read(&next, Format::ArrowStream, &body, &limits);
    assert!(decoded.rejected.is_empty());
    assert_eq!(
        (overflow(&decoded, 0), overflow(&decoded, 1)),
        (vec![pair("word", "\"x\"")], vec![pair("at", "\"1970-01-01T00:00:00.005Z\"")])
    );
}

/// SD-5: a first post with more keys than a table may have columns.
#[test]
fn a_table_is_made_of_more_keys_than_it_may_have_columns() {
    let keys: String = (0..10_633).map(|i| format!(",\"c{i}\":{i}")).collect();
    let limits = Limits::default();
    for (first, event) in [("\"v\":1", "_received_at"), ("\"ts\":\"2026-01-31T12:34:56Z\"", "ts")] {
        let body = Bytes::from(format!("{{{first}{keys}}}"));
        let spec = crate::ingest::infer("t".parse().unwrap(), Format::Json, &body, None, &limits).unwrap();
        assert_eq!((spec.columns.len(), spec.event_time.column()), (1_000, event));
        let decoded = read(&spec, Format::Json, &body, &limits);
        assert!(decoded.rejected.is_empty());
        let own = spec.columns.iter().filter(|column| column.name.starts_with('c')).count();
        assert_eq!(own + overflow(&decoded, 0).len(), 10_633);
    }
}

/// Also of one that is no event time; but not of a field, and not where the name is taken.
#[test]
fn a_time_with_nanoseconds_gets_the_column_that_takes_them() {
    let spec = evolving("at timestamp; o struct<t:timestamp>");
    let row = |column: &str, value: &str| Bytes::from(format!("{{\"ts\":1,\"{column}\":{value}}}"));
    let time = "\"2026-01-31T12:34:56.000000789Z\"";
    let next = step(&spec, Format::Ndjson, &row("at", time), &Limits::default()).unwrap();
    assert_eq!(columns(&next), "ts timestamp; at timestamp; o struct<t:timestamp>; at_ns int");
    let decoded = read(&next, Format::Ndjson, &row("at", time), &Limits::default());
    assert_eq!(decoded.batch.column(3).as_primitive::<Int32Type>().value(0), 789);
    assert_eq!(step(&spec, Format::Ndjson, &row("o", &format!("{{\"t\":{time}}}")), &Limits::default()), None);
    let taken = evolving("at timestamp; AT_NS string");
    assert_eq!(step(&taken, Format::Ndjson, &row("at", time), &Limits::default()), None);
    assert_eq!(
        step(&spec, Format::Ndjson, &row("at", "\"2026-01-31T12:34:56.0000007891Z\""), &Limits::default()),
        None
    );
}
