use std::fmt::Write;

use arrow::array::AsArray;
use arrow::datatypes::Int32Type;
use bytes::Bytes;

use super::{assert_reject, columns, infer_ndjson, ndjson};
use crate::ingest::{Decoded, Format, Limits, RejectKind, decode, infer};
use crate::schema::{EventTime, TableSpec, TimeUnit};

#[test]
fn columns_come_in_order_with_types_that_hold_them() {
    let body = r#"{"ts":"2026-01-31T12:34:56Z","z":1,"a":1.5,"s":"x","b":true,"n":null,"l":[1,null],"o":{"y":1,"x":"s"},"e":[],"m":{}}
{"ts":"2026-01-31T12:34:57Z","late":-1,"u":18446744073709551615,"o":{"w":[{"k":1},{"v":true}]}}"#;
    let spec = infer_ndjson(None, body).unwrap();
    assert_eq!(
        columns(&spec),
        "ts timestamp; z long; a double; s string; b boolean; l list<long>; \
         o struct<y:long,x:string,w:list<struct<k:long,v:boolean>>>; e list<string>; m map<string,string>; \
         late long; u decimal(20,0)"
    );
    assert_eq!(spec.event_time, EventTime::Column { name: "ts".to_owned(), unit: None });
    assert!(!spec.columns[0].nullable);
    assert!(spec.columns[1..].iter().all(|c| c.nullable));
    assert_eq!((spec.schema_version, spec.bucket_seconds, spec.partition.as_deref()), (1, 3_600, Some("date")));
    assert!(spec.sort.is_empty());
    assert_eq!(ndjson(&spec, body).unwrap().batch.num_rows(), 2);
}

/// The same post twice: the first creates the table, the second must fit it.
#[test]
fn the_same_post_fits_the_table_it_created() {
    let bodies = [
        r#"{"timestamp":"2026-01-31T12:34:56+02:00","body":"x","attributes":{"a":"b"},"big":18446744073709551615}"#,
        r#"{"id":1,"v":[1.5,2],"empty":{},"none":null}"#,
        "{\"v\":1}\n{\"v\":2.5}",
    ];
    for body in bodies {
        let spec = infer_ndjson(None, body).unwrap();
        let first = ndjson(&spec, body).unwrap();
        assert_eq!(ndjson(&spec, body).unwrap(), first, "{body}");
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<crate::schema::TableSpec>(&json).unwrap(), spec);
    }
}

#[test]
fn the_event_time_is_the_first_of_three_names() {
    let event = |body: &str, unit| infer_ndjson(unit, body).map(|s| s.event_time.column().to_owned());
    let t = r#""2026-01-31T12:34:56Z""#;
    assert_eq!(event(&format!(r#"{{"ts":{t},"time":{t},"timestamp":{t}}}"#), None).unwrap(), "timestamp");
    assert_eq!(event(&format!(r#"{{"ts":{t},"time":{t}}}"#), None).unwrap(), "time");
    assert_eq!(event(&format!(r#"{{"ts":{t}}}"#), None).unwrap(), "ts");
    assert_eq!(event(&format!(r#"{{"at":{t}}}"#), None).unwrap(), "_received_at");
    let spec = infer_ndjson(None, &format!(r#"{{"ts":"not a time","time":{t}}}"#)).unwrap();
    assert_eq!(columns(&spec), "ts string; time timestamp");
}

#[test]
fn numbers_as_event_time_need_a_unit() {
    let body = r#"{"ts":1769862896000,"v":1}"#;
    let reject = assert_reject(infer_ndjson(None, body), "time_unit_needed", 1, "ts");
    assert!(reject.help.contains("?time_unit=s|ms|us|ns"), "{reject:?}");
    let spec = infer_ndjson(Some(TimeUnit::Ms), body).unwrap();
    assert_eq!(spec.event_time, EventTime::Column { name: "ts".to_owned(), unit: Some(TimeUnit::Ms) });
    assert_eq!(ndjson(&spec, body).unwrap().times, [super::NOW]);
}

/// The rows, those that do not fit told apart.
fn decoded(spec: &TableSpec, body: &str) -> Decoded {
    decode(spec, Format::Ndjson, &Bytes::copy_from_slice(body.as_bytes()), super::NOW, &Limits::default()).unwrap()
}

/// Where none is a time the post is refused, and says what is wrong; otherwise the rows without one do not fit.
#[test]
fn an_event_time_is_a_time_in_any_row() {
    assert_reject(infer_ndjson(None, "{\"time\":\"yesterday\"}"), "invalid_timestamp", 1, "time");
    assert_reject(infer_ndjson(None, "{\"time\":{\"h\":1}}"), "type_mismatch", 1, "time");
    assert_reject(infer_ndjson(None, "{\"time\":null}"), "missing_value", 1, "time");
    let t = r#""2026-01-31T12:34:56Z""#;
    let bodies = [
        format!("{{\"ts\":{t}}}\n{{\"v\":1}}\n{{\"ts\":null}}\n{{\"ts\":\"later\"}}"),
        format!("{{\"ts\":\"later\"}}\n{{\"ts\":null}}\n{{\"v\":1}}\n{{\"ts\":{t}}}"),
    ];
    for body in bodies {
        let spec = infer_ndjson(None, &body).unwrap();
        assert_eq!(spec.event_time.column(), "ts", "{body}");
        let decoded = decoded(&spec, &body);
        assert_eq!((decoded.batch.num_rows(), decoded.rejected.len()), (1, 3), "{body}");
    }
}

/// The type that holds the most values, whatever their order.
#[test]
fn mixed_types_are_decided_by_their_numbers() {
    let cases = [
        (vec!["1", "2", "\"x\""], "long", 1),
        (vec!["1", "\"x\"", "\"y\""], "string", 1),
        (vec!["1", "\"x\""], "string", 1),
        (vec!["1", "\"2\"", "\"18\""], "long", 0),
        (vec!["\"1\"", "\"2\""], "string", 0),
        (vec!["1", "18446744073709551615", "\"18446744073709551614\""], "decimal(20,0)", 0),
        (vec!["1", "0.5", "\"NaN\"", "\"-Infinity\""], "double", 0),
        (vec!["\"NaN\""], "string", 0),
        (vec!["9007199254740993", "0.5", "0.25"], "double", 1),
        (vec!["9007199254740993", "0.5", "9007199254740995"], "long", 1),
        (vec!["true", "1", "false"], "boolean", 1),
        (vec!["true", "1"], "long", 1),
        (vec!["[1]", "{\"a\":1}", "[2]"], "list<long>", 1),
        (vec!["[1,2]", "[\"x\",3]", "null"], "list<long>", 1),
        (vec!["{\"a\":1}", "{\"a\":false}", "{\"a\":2}"], "struct<a:long>", 1),
        (vec!["{\"a\":null}", "{\"b\":1}"], "struct<a:string,b:long>", 0),
    ];
    for (mut values, kind, rejected) in cases {
        for _ in 0..values.len() {
            values.rotate_left(1);
            let body: String = values.iter().map(|v| format!("{{\"v\":{v}}}\n")).collect();
            let spec = infer_ndjson(None, &body).unwrap();
            let found = &spec.columns[0].kind;
            // Fields stand in the order of their first appearance.
            let found = if kind.contains("a:string,b") { kind.to_owned() } else { found.to_string() };
            assert_eq!(found, kind, "{body}");
            assert_eq!(decoded(&spec, &body).rejected.len(), rejected, "{body}");
        }
    }
}

#[test]
fn numbers_get_the_narrowest_type_that_holds_them() {
    let kind = |body: &str| infer_ndjson(None, body).unwrap().columns[0].kind.to_string();
    assert_eq!(kind("{\"v\":1}\n{\"v\":0.5}"), "double");
    assert_eq!(kind("{\"v\":9223372036854775807}\n{\"v\":-9223372036854775808}"), "long");
    assert_eq!(kind("{\"v\":9223372036854775808}\n{\"v\":-9223372036854775808}"), "decimal(20,0)");
    let beyond = "{\"v\":18446744073709551616}\n{\"v\":1}";
    let decoded = decoded(&infer_ndjson(None, beyond).unwrap(), beyond);
    assert_eq!(decoded.rejected.rows()[0].reason.code, "inexact_number");
}

#[test]
fn nanoseconds_get_a_column_of_their_own() {
    let body = r#"{"ts":"2023-11-14T22:13:20.335226412Z","v":1}"#;
    let spec = infer_ndjson(None, body).unwrap();
    assert_eq!(columns(&spec), "ts timestamp; ts_ns int; v long");
    let batch = ndjson(&spec, body).unwrap().batch;
    assert_eq!(batch.column(1).as_primitive::<Int32Type>().value(0), 412);
    let spec = infer_ndjson(Some(TimeUnit::Ns), r#"{"ts":1700000000335226412}"#).unwrap();
    assert_eq!(columns(&spec), "ts timestamp; ts_ns int");
    // A name that is taken is left alone, and the row does not fit.
    let taken = r#"{"ts":"2023-11-14T22:13:20.335226412Z","TS_NS":"x"}"#;
    assert_eq!(columns(&infer_ndjson(None, taken).unwrap()), "ts timestamp; TS_NS string");
}

#[test]
fn too_many_keys_overflow_and_too_many_fields_are_refused() {
    let mut row = String::from("{");
    for i in 0..10_633 {
        write!(row, "\"key{i}\":{i},").unwrap();
    }
    row.pop();
    row.push('}');
    let spread: String = (0..1_001).map(|i| format!("{{\"key{i}\":1}}\n")).collect();
    for body in [&row, &spread] {
        let spec = infer_ndjson(None, body).unwrap();
        assert_eq!((spec.columns.len(), spec.overflow_index()), (1_000, Some(998)));
    }
    let nested = format!("{{\"o\":{row}}}");
    let reject = infer_ndjson(None, &nested).unwrap_err();
    assert_eq!((reject.code, reject.status), ("too_many_columns", RejectKind::Unprocessable));
    assert!(reject.help.contains("map<string"), "{reject:?}");
}

#[test]
fn too_deep_values_are_refused() {
    let nested = |levels: usize| format!("{{\"v\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(infer_ndjson(None, &nested(15)).is_ok());
    for levels in [16, 100, 200, 100_000] {
        assert_reject(infer_ndjson(None, &nested(levels)), "too_deep", 1, "v");
    }
    let objects = format!("{}1{}", "{\"a\":".repeat(50_000), "}".repeat(50_000));
    assert!(infer_ndjson(None, &objects).is_err());
    let time = format!("{{\"ts\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(infer_ndjson(None, &time).is_err());
}

/// A table does not get them; rows with a value under them are rejected one by one.
#[test]
fn names_that_no_column_can_have_are_left_out() {
    let long = "k".repeat(256);
    let cases = [
        (r#"{"a b":1}"#, "invalid_column_name", "a b"),
        (r#"{"":1}"#, "invalid_column_name", ""),
        (r#"{"a":1,"A":2}"#, "ambiguous_column_name", "a"),
        (r#"{"o":{"a:b":1,"c":1}}"#, "unknown_column", "o.a:b"),
        (r#"{"o":[{"":1,"c":1}]}"#, "invalid_column_name", "o."),
        (r#"{"_received_at":1}"#, "reserved_column", "_received_at"),
        (&format!("{{\"{long}\":1}}"), "invalid_column_name", &crate::ingest::reject::excerpt(&long)),
    ];
    for (row, code, column) in cases {
        let body = format!("{row}\n{{\"v\":1}}\n");
        let spec = infer_ndjson(None, &body).unwrap();
        let decoded = decoded(&spec, &body);
        assert_eq!(decoded.batch.num_rows(), 1, "{row}");
        let reason = &decoded.rejected.rows()[0].reason;
        assert_eq!((reason.code, reason.column.as_deref()), (code, Some(column)), "{row}");
        assert!(!reason.help.is_empty());
    }
    // Of names that differ in case only the one that most rows have.
    let spec = infer_ndjson(None, "{\"Host\":1}\n{\"host\":1}\n{\"host\":2}").unwrap();
    assert_eq!(columns(&spec), "host long; _received_at timestamp");
}

#[test]
fn a_date_of_the_rows_keeps_its_name() {
    let spec = infer_ndjson(None, r#"{"date":"2026-01-31"}"#).unwrap();
    assert_eq!(spec.partition.as_deref(), Some("event_date"));
    assert_eq!(columns(&spec), "date string; _received_at timestamp");
}

#[test]
fn empty_and_broken_bodies_create_nothing() {
    assert_eq!(infer_ndjson(None, "").unwrap_err().code, "empty_body");
    assert_eq!(infer_ndjson(None, "{\"a\":").unwrap_err().code, "invalid_json");
    assert_eq!(infer_ndjson(None, "1").unwrap_err().row, Some(1));
    let empty = Bytes::from_static(b"[]");
    let name = "t".parse().unwrap();
    assert_eq!(infer(name, Format::Json, &empty, None, &Limits::default()).unwrap_err().code, "empty_body");
    // A row without keys has a time of receipt and nothing else.
    assert_eq!(columns(&infer_ndjson(None, "{}").unwrap()), "_received_at timestamp");
}
