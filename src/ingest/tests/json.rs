use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use bytes::Bytes;

use super::{NOW, assert_reject, json, ndjson, receipt_table, table};
use crate::ingest::{Format, Limits, Reject, RejectKind};
use crate::schema::TimeUnit;
use crate::schema::arrow::arrow_schema;

const TS: &str = r#""ts":"2026-01-31T12:34:56Z""#;

/// Decodes rows whose only column besides the time is `v`.
fn values(kind: &str, values: &[&str]) -> Result<arrow::array::ArrayRef, Reject> {
    let spec = table(None, &format!("v {kind}"));
    let body: String = values.iter().map(|v| format!("{{{TS},\"v\":{v}}}\n")).collect();
    ndjson(&spec, &body).map(|d| d.batch.column(1).clone())
}

fn refused(kind: &str, value: &str, code: &str) {
    let reject = assert_reject(values(kind, &["null", value]), code, 2, "v");
    assert!(reject.message.contains("line 2"), "{reject:?}");
}

#[test]
fn every_type_is_read() {
    let spec = crate::schema::tests::every_type();
    let body = r#"{"ts":1769862896000,"b":true,"i":-7,"l":"9223372036854775807","f":0.5,"d":1e3,"s":"h\u00e9\n","bin":"AAEC","day":"2026-01-31","at":1769862896789012,"dec":"12345678901234567.25","tags":["a",null],"pos":{"y":2.5,"x":1,"names":[]},"attrs":{"k":1,"l":null}}"#;
    let decoded = ndjson(&spec, body).unwrap();
    let batch = decoded.batch;
    assert_eq!(batch.schema(), arrow_schema(&spec));
    assert_eq!(decoded.times, [NOW]);
    let column = |name: &str| batch.column_by_name(name).unwrap();
    assert!(column("b").as_boolean().value(0));
    assert_eq!(column("i").as_primitive::<Int32Type>().value(0), -7);
    assert_eq!(column("l").as_primitive::<Int64Type>().value(0), i64::MAX);
    assert_eq!(column("f").as_primitive::<Float32Type>().value(0), 0.5);
    assert_eq!(column("d").as_primitive::<Float64Type>().value(0), 1_000.0);
    assert_eq!(column("s").as_string::<i32>().value(0), "hé\n");
    assert_eq!(column("bin").as_binary::<i32>().value(0), [0, 1, 2]);
    assert_eq!(column("day").as_primitive::<Date32Type>().value(0), 20_484);
    assert_eq!(column("at").as_primitive::<TimestampMicrosecondType>().value(0), NOW + 789_012);
    assert_eq!(column("dec").as_primitive::<Decimal128Type>().value(0), 1_234_567_890_123_456_725);
    let tags = column("tags").as_list::<i32>().value(0);
    assert_eq!(tags.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), None]);
    let pos = column("pos").as_struct();
    assert_eq!(pos.column(0).as_primitive::<Float64Type>().value(0), 1.0);
    assert_eq!(pos.column(1).as_primitive::<Float64Type>().value(0), 2.5);
    let entries = column("attrs").as_map().value(0);
    assert_eq!(entries.column(0).as_string::<i32>().value(1), "l");
    assert!(entries.column(1).is_null(1));
}

#[test]
fn missing_and_null_are_null_and_nulls_nest() {
    let spec = crate::schema::tests::every_type();
    let batch = ndjson(&spec, "{\"ts\":1}\n{\"ts\":2,\"pos\":null,\"tags\":null,\"attrs\":null,\"s\":null,\"i\":null}")
        .unwrap()
        .batch;
    for column in &batch.columns()[1..] {
        assert_eq!(column.null_count(), 2);
        column.to_data().validate_full().unwrap();
    }
    let inner = ndjson(&spec, r#"{"ts":1,"pos":{}}"#).unwrap().batch;
    let pos = inner.column_by_name("pos").unwrap().as_struct();
    assert!(pos.is_valid(0) && pos.column(0).is_null(0) && pos.column(2).is_null(0));
}

#[test]
fn a_column_that_may_not_be_null_needs_a_value() {
    let spec = table(None, "v long not null");
    assert_reject(ndjson(&spec, &format!("{{{TS},\"v\":1}}\n{{{TS}}}")), "missing_value", 2, "v");
    assert_reject(ndjson(&spec, &format!("{{{TS},\"v\":null}}")), "missing_value", 1, "v");
    assert_reject(ndjson(&spec, "{\"v\":1}"), "missing_value", 1, "ts");
    assert_reject(ndjson(&spec, "{\"v\":1,\"ts\":null}"), "missing_value", 1, "ts");
}

#[test]
fn keys_come_in_any_order() {
    let spec = table(Some(TimeUnit::Us), "a long; b long; c long");
    let body = "{\"ts\":1,\"a\":1,\"b\":2,\"c\":3}\n{\"c\":6,\"b\":5,\"a\":4,\"ts\":2}\n{\"b\":8,\"ts\":3}\n{\"ts\":4,\"a\":9,\"b\":10,\"c\":11}";
    let batch = ndjson(&spec, body).unwrap().batch;
    let column = |at: usize| batch.column(at).as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
    assert_eq!(column(1), [Some(1), Some(4), None, Some(9)]);
    assert_eq!(column(2), [Some(2), Some(5), Some(8), Some(10)]);
    assert_eq!(column(3), [Some(3), Some(6), None, Some(11)]);
}

#[test]
fn unknown_columns_and_repeated_keys_are_refused() {
    let spec = table(Some(TimeUnit::Us), "a long; s struct<x:long>; m map<string,long>");
    assert_reject(ndjson(&spec, r#"{"ts":1,"nope":[{"deep":1}]}"#), "unknown_column", 1, "nope");
    assert_reject(ndjson(&spec, r#"{"ts":1,"A":1}"#), "ambiguous_column_name", 1, "A");
    assert_reject(ndjson(&spec, r#"{"ts":1,"a b":1}"#), "invalid_column_name", 1, "a b");
    assert_reject(ndjson(&spec, r#"{"ts":1,"s":{"X":1}}"#), "ambiguous_column_name", 1, "s.X");
    assert_reject(ndjson(&spec, r#"{"ts":1,"s":{"y":1}}"#), "unknown_column", 1, "s.y");
    assert_reject(ndjson(&spec, r#"{"ts":1,"a":1,"a":1}"#), "duplicate_key", 1, "a");
    assert_reject(ndjson(&spec, r#"{"ts":1,"a":1,"\u0061":1}"#), "duplicate_key", 1, "a");
    assert_reject(ndjson(&spec, r#"{"ts":1,"s":{"x":1,"x":2}}"#), "duplicate_key", 1, "s.x");
    assert_reject(ndjson(&spec, r#"{"ts":1,"m":{"k":1,"j":1,"k":2}}"#), "duplicate_key", 1, "m");
    assert!(ndjson(&spec, "{\"ts\":1,\"m\":{\"k\":1}}\n{\"ts\":1,\"m\":{\"k\":1}}").is_ok());
    let long = "k".repeat(10_000);
    let reject = ndjson(&spec, &format!("{{\"ts\":1,\"{long}\":1}}")).unwrap_err();
    assert!(reject.column.unwrap().chars().count() <= 80 && reject.message.len() < 400);
}

#[test]
fn longs_are_exact() {
    let column =
        values("long", &["9223372036854775807", "\"-9223372036854775808\"", "1.0", "1e3", "\"42\"", "-0"]).unwrap();
    assert_eq!(column.as_primitive::<Int64Type>().values(), &[i64::MAX, i64::MIN, 1, 1_000, 42, 0]);
    refused("long", "18446744073709551615", "out_of_range");
    refused("long", "\"18446744073709551615\"", "out_of_range");
    refused("long", "1.5", "inexact_number");
    refused("long", "\"x\"", "type_mismatch");
    refused("long", "\"\"", "type_mismatch");
    refused("long", "\" 1\"", "type_mismatch");
    refused("long", "true", "type_mismatch");
    refused("long", "[1]", "type_mismatch");
    refused("long", "{\"a\":1}", "type_mismatch");
    refused("int", "2147483648", "out_of_range");
    refused("int", "\"1\"", "type_mismatch");
}

#[test]
fn doubles_take_whole_numbers_that_they_hold() {
    let column = values("double", &["9007199254740992", "-1", "0.1", "123456789012345"]).unwrap();
    assert_eq!(
        column.as_primitive::<Float64Type>().values(),
        &[9_007_199_254_740_992.0, -1.0, 0.1, 123_456_789_012_345.0]
    );
    refused("double", "9007199254740993", "inexact_number");
    refused("double", "1e999", "out_of_range");
    refused("double", "\"0.1\"", "type_mismatch");
    refused("float", "16777217", "inexact_number");
}

/// Doubles are the nearest ones, to the last bit.
#[test]
fn fractions_are_read_as_rust_reads_them() {
    for text in ["0.3", "1.7976931348623157e308", "5e-324", "0.000001234567890123456789", "123.45600000000000307"] {
        let column = values("double", &[text]).unwrap();
        assert_eq!(column.as_primitive::<Float64Type>().value(0).to_bits(), text.parse::<f64>().unwrap().to_bits());
    }
}

#[test]
fn decimals_are_exact() {
    let column = values("decimal(20,0)", &["18446744073709551615", "\"18446744073709551615\"", "-1", "5.0"]).unwrap();
    assert_eq!(column.as_primitive::<Decimal128Type>().values(), &[u64::MAX.into(), u64::MAX.into(), -1, 5]);
    let column = values("decimal(38,2)", &["123456789012345678901234567890123456.78"]).unwrap();
    assert_eq!(column.as_primitive::<Decimal128Type>().value(0), 12_345_678_901_234_567_890_123_456_789_012_345_678);
    refused("decimal(10,2)", "0.001", "inexact_number");
    refused("decimal(3,2)", "10", "out_of_range");
    refused("decimal(3,2)", "\"ten\"", "type_mismatch");
}

#[test]
fn other_types_take_their_own_values_only() {
    refused("string", "1", "type_mismatch");
    refused("string", "true", "type_mismatch");
    refused("string", "[\"a\"]", "type_mismatch");
    refused("string", "{}", "type_mismatch");
    refused("boolean", "1", "type_mismatch");
    refused("boolean", "\"true\"", "type_mismatch");
    refused("binary", "\"***\"", "invalid_base64");
    refused("binary", "[1,2]", "type_mismatch");
    refused("date", "\"2026-02-30\"", "invalid_date");
    refused("date", "20484", "type_mismatch");
    refused("list<long>", "1", "type_mismatch");
    refused("list<long>", "\"[1]\"", "type_mismatch");
    refused("list<long>", "[1,\"x\"]", "type_mismatch");
    refused("struct<x:long>", "[1]", "type_mismatch");
    refused("map<string,long>", "\"x\"", "type_mismatch");
    let nested =
        assert_reject(values("struct<x:struct<y:long>>", &[r#"{"x":{"y":"no"}}"#]), "type_mismatch", 1, "v.x.y");
    assert!(nested.message.contains("\"no\""), "{nested:?}");
}

#[test]
fn values_in_messages_are_cut() {
    let long = format!("\"{}\"", "!".repeat(100_000));
    for kind in
        ["long", "double", "boolean", "date", "binary", "timestamp", "decimal(5,1)", "list<long>", "map<string,long>"]
    {
        let reject = values(kind, &[&long]).unwrap_err();
        assert!(reject.message.len() < 400, "{kind}: {}", reject.message.len());
    }
    assert!(values("string", &[&format!("[{long}]")]).unwrap_err().message.len() < 400);
}

#[test]
fn timestamps_are_text_or_microseconds() {
    let column =
        values("timestamp", &["\"2026-01-31T14:34:56+02:00\"", "\"2026-01-31 12:34:56\"", "1769862896000000"]).unwrap();
    assert_eq!(column.as_primitive::<TimestampMicrosecondType>().values(), &[NOW; 3]);
    refused("timestamp", "\"2023-11-14T22:13:20.335226412Z\"", "timestamp_precision");
    refused("timestamp", "\"1769862896000000\"", "invalid_timestamp");
    refused("timestamp", "\"20260131\"", "invalid_timestamp");
    refused("timestamp", "1.5", "timestamp_precision");
    refused("timestamp", "999999999999999999", "out_of_range");
    refused("timestamp", "false", "type_mismatch");
}

#[test]
fn event_times_count_the_declared_unit() {
    let cases = [
        (TimeUnit::S, "1769862896"),
        (TimeUnit::Ms, "1769862896000"),
        (TimeUnit::Us, "1769862896000000"),
        (TimeUnit::Ns, "1769862896000000000"),
        (TimeUnit::Ns, "\"1769862896000000000\""),
        (TimeUnit::S, "1769862896.000000"),
        (TimeUnit::Ns, "\"2026-01-31T12:34:56Z\""),
    ];
    for (unit, value) in cases {
        let spec = table(Some(unit), "");
        assert_eq!(ndjson(&spec, &format!("{{\"ts\":{value}}}")).unwrap().times, [NOW], "{unit} {value}");
    }
    let spec = table(Some(TimeUnit::Ns), "");
    let reject = assert_reject(ndjson(&spec, r#"{"ts":1700000000335226412}"#), "timestamp_precision", 1, "ts");
    assert!(reject.message.contains("microseconds"), "{reject:?}");
    assert_reject(ndjson(&table(None, ""), r#"{"ts":1769862896}"#), "time_unit_needed", 1, "ts");
    assert_reject(ndjson(&table(Some(TimeUnit::S), ""), r#"{"ts":1769862896000}"#), "out_of_range", 1, "ts");
}

#[test]
fn the_server_times_rows_that_have_no_time() {
    let spec = receipt_table("id long");
    let decoded = ndjson(&spec, "{\"id\":1}\n{}\n").unwrap();
    assert_eq!(decoded.times, [NOW, NOW]);
    assert_eq!(decoded.batch.column(1).as_primitive::<TimestampMicrosecondType>().values(), &[NOW, NOW]);
    assert_eq!(decoded.batch.schema(), arrow_schema(&spec));
    assert_reject(
        ndjson(&spec, r#"{"id":1,"_received_at":"2026-01-31T12:34:56Z"}"#),
        "reserved_column",
        1,
        "_received_at",
    );
    assert_eq!(ndjson(&spec, r#"{"id":1,"_received_at":null}"#).unwrap().times, [NOW]);
}

#[test]
fn a_post_is_refused_whole_at_its_first_bad_row() {
    let spec = receipt_table("id long");
    let reject =
        assert_reject(ndjson(&spec, "{\"id\":1}\n\n  \r\n{\"id\":\"x\"}\n{\"id\":\"y\"}"), "type_mismatch", 2, "id");
    assert!(reject.message.contains("line 4") && reject.message.contains("\"x\""), "{reject:?}");
}

#[test]
fn lines_may_be_blank_and_end_as_they_like() {
    let spec = receipt_table("id long");
    for body in [
        "{\"id\":1}\n{\"id\":2}",
        "{\"id\":1}\r\n{\"id\":2}\r\n",
        "\n\n{\"id\":1}\n \t \n{\"id\":2}\n\n",
        "\u{feff}{\"id\":1}\n{\"id\":2}",
    ] {
        assert_eq!(ndjson(&spec, body).unwrap().batch.num_rows(), 2, "{body:?}");
    }
}

#[test]
fn json_is_an_array_or_one_object() {
    let spec = receipt_table("id long");
    assert_eq!(json(&spec, r#" [ {"id":1} , {"id":2} ] "#).unwrap().batch.num_rows(), 2);
    assert_eq!(json(&spec, "\n{\"id\":1}\n").unwrap().batch.num_rows(), 1);
    assert_eq!(json(&spec, "\u{feff}[{\"id\":1}]").unwrap().batch.num_rows(), 1);
    assert_reject(json(&spec, r#"[{"id":1},{"id":"x"}]"#), "type_mismatch", 2, "id");
    let reject = json(&spec, "[{\"id\":1},\n{\"id\":2},\n]").unwrap_err();
    assert_eq!((reject.code, reject.status), ("invalid_json", RejectKind::Invalid));
    assert!(reject.message.contains("line 3"), "{reject:?}");
    for body in ["[{\"id\":1}]x", "{\"id\":1}{\"id\":2}", "{\"id\":1}\n{\"id\":2}", "[{\"id\":1}", "[{\"id\":1}}"] {
        assert_eq!(json(&spec, body).unwrap_err().code, "invalid_json", "{body:?}");
    }
}

#[test]
fn bodies_without_rows_are_refused() {
    let spec = receipt_table("id long");
    for body in ["", "\n", "   \n\t\r\n", "\u{feff}"] {
        assert_eq!(ndjson(&spec, body).unwrap_err().code, "empty_body", "{body:?}");
        let reject = json(&spec, body).unwrap_err();
        assert_eq!((reject.code, reject.status), ("empty_body", RejectKind::Invalid), "{body:?}");
    }
    assert_eq!(json(&spec, "[]").unwrap_err().code, "empty_body");
}

#[test]
fn rows_are_objects() {
    let spec = receipt_table("id long");
    for body in ["1", "\"x\"", "null", "true", "[1]"] {
        let reject = ndjson(&spec, body).unwrap_err();
        assert!(["row_not_object", "type_mismatch"].contains(&reject.code), "{reject:?}");
        assert_eq!(reject.row, Some(1));
    }
    assert_eq!(json(&spec, "[[{\"id\":1}]]").unwrap_err().row, Some(1));
    assert_eq!(json(&spec, "\"text\"").unwrap_err().row, Some(1));
}

#[test]
fn broken_json_is_told_by_line() {
    let spec = receipt_table("id long; s string");
    for line in [
        "{",
        "{\"id\":}",
        "{\"id\":1",
        "{\"id\":1}}",
        "{\"id\":01}",
        "{id:1}",
        "{\"s\":\"\u{1}\"}",
        r#"{"s":"\ud800"}"#,
        r#"{"s":"\x"}"#,
        "{\"id\":1,}",
        "{\"id\":nul}",
        "{\"id\":NaN}",
    ] {
        let reject = ndjson(&spec, &format!("{{\"id\":1}}\n{line}\n")).unwrap_err();
        assert_eq!(reject.code, "invalid_json", "{line} {reject:?}");
        assert_eq!(reject.row, Some(2));
        assert!(reject.message.contains("line 2"), "{line}: {reject:?}");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_named() {
    let spec = receipt_table("s string");
    let body = Bytes::from_static(b"{\"s\":\"a\xffb\"}");
    let reject = crate::ingest::decode(&spec, Format::Json, &body, NOW, &Limits::default()).unwrap_err();
    assert_eq!((reject.code, reject.status), ("invalid_utf8", RejectKind::Invalid));
    assert!(reject.message.contains("byte 7"), "{reject:?}");
}

#[test]
fn deep_nesting_is_refused_without_a_deep_stack() {
    let spec = receipt_table("id long; l list<list<long>>; m map<string,long>");
    let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
    for column in ["id", "l", "nope", "m"] {
        assert!(ndjson(&spec, &format!("{{\"{column}\":{deep}}}")).is_err());
        assert!(json(&spec, &format!("[{{\"{column}\":{deep}}}]")).is_err());
    }
    assert!(json(&spec, &deep).is_err());
    assert!(json(&spec, &"[".repeat(1_000_000)).is_err());
    let objects = "{\"id\":".repeat(200_000);
    assert!(json(&spec, &objects).is_err());
}

#[test]
fn limits_hold() {
    let spec = receipt_table("id long; tags list<struct<a:long,b:long>>");
    let limits = Limits { max_rows: 3, ..Limits::default() };
    let decode = |body: &str, limits: &Limits| {
        crate::ingest::decode(&spec, Format::Ndjson, &Bytes::copy_from_slice(body.as_bytes()), NOW, limits)
    };
    assert!(decode(&"{\"id\":1}\n".repeat(3), &limits).is_ok());
    let reject = decode(&"{\"id\":1}\n".repeat(4), &limits).unwrap_err();
    assert_eq!((reject.code, reject.status), ("too_many_rows", RejectKind::TooLarge));
    let limits = Limits { max_decoded_bytes: 10, ..Limits::default() };
    assert_eq!(decode("{\"id\":1234567}", &limits).unwrap_err().code, "body_too_large");
    let limits = Limits { max_batch_bytes: 1_000, ..Limits::default() };
    assert_eq!(decode(&"{}\n".repeat(100), &limits).unwrap_err().code, "batch_too_large");
    let many = format!("{{\"tags\":[{}{{}}]}}", "{},".repeat(100));
    assert_eq!(decode(&many, &limits).unwrap_err().status, RejectKind::TooLarge);
}

/// Every prefix of a body, and every body with one byte changed, is answered.
#[test]
fn no_damaged_body_panics() {
    let spec = crate::schema::tests::every_type();
    let body = r#"[{"ts":1769862896000,"i":-7,"l":"92","f":0.5,"s":"h\u00e9\n","bin":"AAEC","day":"2026-01-31","at":"2026-01-31T12:34:56.5+02:00","dec":"1.25","tags":["a",null],"pos":{"y":2.5,"x":1e0},"attrs":{"k":1}}]"#;
    assert!(json(&spec, body).is_ok());
    for end in 0..body.len() {
        assert!(json(&spec, &body[..end]).is_err(), "{end}");
    }
    let limits = Limits::default();
    for at in 0..body.len() {
        for byte in [0, b'"', b'\\', b'{', b']', b'9', b'-', b'.', b'e', 0xc3, 0xff] {
            let mut damaged = body.as_bytes().to_vec();
            damaged[at] = byte;
            let damaged = Bytes::from(damaged);
            let _ = crate::ingest::decode(&spec, Format::Json, &damaged, NOW, &limits);
            let _ = crate::ingest::infer("t".parse().unwrap(), Format::Json, &damaged, None, &limits);
        }
    }
}
