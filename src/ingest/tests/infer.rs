use std::fmt::Write;

use bytes::Bytes;

use super::{assert_reject, columns, infer_ndjson, ndjson};
use crate::ingest::{Format, Limits, RejectKind, infer};
use crate::schema::{EventTime, TimeUnit};

#[test]
fn columns_come_in_order_with_types_that_hold_them() {
    let body = r#"{"ts":"2026-01-31T12:34:56Z","z":1,"a":1.5,"s":"x","b":true,"n":null,"l":[1,null],"o":{"y":1,"x":"s"},"e":[],"m":{}}
{"ts":"2026-01-31T12:34:57Z","late":-1,"u":18446744073709551615,"o":{"w":[{"k":1},{"v":true}]}}"#;
    let spec = infer_ndjson(None, body).unwrap();
    assert_eq!(
        columns(&spec),
        "ts timestamp; z long; a double; s string; b boolean; n string; l list<long>; \
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

#[test]
fn event_times_must_be_times_in_every_row() {
    assert_reject(infer_ndjson(None, "{\"time\":\"yesterday\"}"), "invalid_timestamp", 1, "time");
    assert_reject(infer_ndjson(None, "{\"time\":{\"h\":1}}"), "type_mismatch", 1, "time");
    let t = r#""2026-01-31T12:34:56Z""#;
    assert_reject(infer_ndjson(None, &format!("{{\"ts\":{t}}}\n{{\"v\":1}}")), "missing_value", 2, "ts");
    assert_reject(infer_ndjson(None, &format!("{{\"v\":1}}\n{{\"ts\":{t}}}")), "missing_value", 1, "ts");
    assert_reject(
        infer_ndjson(None, &format!("{{\"ts\":{t}}}\n{{\"ts\":null}}\n{{\"ts\":{t}}}")),
        "missing_value",
        2,
        "ts",
    );
    assert_reject(infer_ndjson(None, r#"{"ts":"2023-11-14T22:13:20.335226412Z"}"#), "timestamp_precision", 1, "ts");
}

#[test]
fn mixed_types_name_both_rows() {
    let reject = assert_reject(infer_ndjson(None, "{\"id\":1}\n{}\n{\"id\":\"x\"}"), "mixed_types", 3, "id");
    assert!(reject.message.contains("row 1 has a number and row 3 has a string"), "{reject:?}");
    assert_reject(infer_ndjson(None, "{\"id\":true}\n{\"id\":1}"), "mixed_types", 2, "id");
    assert_reject(infer_ndjson(None, "{\"id\":[1]}\n{\"id\":{\"a\":1}}"), "mixed_types", 2, "id");
    assert_reject(infer_ndjson(None, "{\"id\":[1,\"x\"]}"), "mixed_types", 1, "id");
    assert_reject(infer_ndjson(None, "{\"o\":{\"a\":1}}\n{\"o\":{\"a\":false}}"), "mixed_types", 2, "o.a");
}

#[test]
fn numbers_widen_only_without_loss() {
    let kind = |body: &str| infer_ndjson(None, body).map(|s| s.columns[0].kind.to_string());
    assert_eq!(kind("{\"v\":1}\n{\"v\":0.5}").unwrap(), "double");
    assert_eq!(kind("{\"v\":9223372036854775807}\n{\"v\":-9223372036854775808}").unwrap(), "long");
    assert_eq!(kind("{\"v\":9223372036854775808}\n{\"v\":-9223372036854775808}").unwrap(), "decimal(20,0)");
    assert_reject(kind("{\"v\":9007199254740993}\n{\"v\":0.5}"), "inexact_number", 1, "v");
    assert_reject(kind("{\"v\":0.5}\n{\"v\":18446744073709551615}"), "inexact_number", 2, "v");
    let beyond = "{\"v\":18446744073709551616}";
    assert_reject(ndjson(&infer_ndjson(None, beyond).unwrap(), beyond), "inexact_number", 1, "v");
}

#[test]
fn too_many_keys_are_refused() {
    let mut row = String::from("{");
    for i in 0..10_633 {
        write!(row, "\"key{i}\":{i},").unwrap();
    }
    row.pop();
    row.push('}');
    let reject = infer_ndjson(None, &row).unwrap_err();
    assert_eq!((reject.code, reject.status), ("too_many_columns", RejectKind::Unprocessable));
    assert!(reject.help.contains("map<string"), "{reject:?}");
    let nested = format!("{{\"o\":{row}}}");
    assert_eq!(infer_ndjson(None, &nested).unwrap_err().code, "too_many_columns");
    let spread: String = (0..1_001).map(|i| format!("{{\"key{i}\":1}}\n")).collect();
    assert_eq!(infer_ndjson(None, &spread).unwrap_err().code, "too_many_columns");
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

#[test]
fn names_that_no_table_can_have_are_refused() {
    for body in [
        r#"{"a b":1}"#,
        r#"{"":1}"#,
        r#"{"a":1,"A":2}"#,
        r#"{"o":{"a:b":1}}"#,
        r#"{"o":{"a<b":1}}"#,
        r#"{"o":[{"":1}]}"#,
    ] {
        let reject = infer_ndjson(None, body).unwrap_err();
        assert_eq!((reject.code, reject.status), ("invalid_table", RejectKind::Unprocessable), "{body}");
    }
    assert_eq!(infer_ndjson(None, r#"{"_received_at":1}"#).unwrap_err().code, "reserved_column");
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
