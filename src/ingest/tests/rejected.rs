//! A row's fate is its own: the same alone and among others, as JSON and as Arrow.

use std::sync::Arc;

use arrow::array::*;
use arrow::compute::concat_batches;
use arrow::datatypes::{Int8Type, Int64Type};
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{NOW, receipt_table, table};
use crate::ingest::{Decoded, Format, Limits, Reject, RejectKind, RejectedRow, decode, infer};
use crate::schema::{TableSpec, TimeUnit};

fn read(spec: &TableSpec, format: Format, body: impl Into<Bytes>) -> Result<Decoded, Reject> {
    let decoded = decode(spec, format, &body.into(), NOW, &Limits::default())?;
    decoded.batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
    assert_eq!(decoded.batch.num_rows(), decoded.times.len());
    Ok(decoded)
}

fn stream(batch: &RecordBatch) -> Bytes {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    Bytes::from(writer.into_inner().unwrap())
}

/// Row, code, column and value of each rejected row.
fn reasons(decoded: &Decoded) -> Vec<(u64, &'static str, Option<&str>, Option<&str>)> {
    let reason = |row: &RejectedRow| row.reason.row.unwrap();
    let rows = decoded.rejected.rows();
    rows.iter().map(|r| (reason(r), r.reason.code, r.reason.column.as_deref(), r.reason.value.as_deref())).collect()
}

fn originals(decoded: &Decoded) -> Vec<&[u8]> {
    decoded.rejected.rows().iter().map(|row| row.original.as_ref()).collect()
}

fn ids(decoded: &Decoded) -> Vec<i64> {
    decoded.batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn the_good_rows_are_taken_and_the_bad_ones_keep_their_bytes() {
    let spec = receipt_table("id long; l list<list<long>>; s struct<a:string,b:long>; m map<string,long>");
    let lines: [&[u8]; 12] = [
        br#"{"id":1,"l":[[1],[2]],"s":{"a":"x","b":1},"m":{"k":1}}"#,
        br#"  {"id":"x"}  "#,
        br#"{"id":2,"l":[[3]]}"#,
        br#"{"l":[[4,5],[6,"no"]],"id":3}"#,
        br#"{"s":{"a":"y","b":"no"},"id":3}"#,
        br#"{"m":{"k":1,"j":"no"},"id":3}"#,
        br#"{"id":3,"#,
        b"{\"s\":{\"a\":\"\xff\"},\"id\":3}",
        b"[1]",
        br#"{"id":3} trailing"#,
        br#"{"id":4,"nothing":null,"_received_at":null}"#,
        br#"{"id":5,"nothing":0}"#,
    ];
    let decoded = read(&spec, Format::Ndjson, lines.join(&b'\n')).unwrap();
    assert_eq!(ids(&decoded), [1, 2, 4]);
    assert_eq!(decoded.batch.column(1).as_list::<i32>().value(1).len(), 1);
    assert_eq!(decoded.batch.column(3).as_map().value_length(0), 1);
    assert_eq!(decoded.times, [NOW; 3]);
    let codes: Vec<_> = reasons(&decoded).into_iter().map(|(row, code, column, _)| (row, code, column)).collect();
    assert_eq!(
        codes,
        [
            (2, "type_mismatch", Some("id")),
            (4, "type_mismatch", Some("l")),
            (5, "type_mismatch", Some("s.b")),
            (6, "type_mismatch", Some("m")),
            (7, "invalid_json", None),
            (8, "invalid_utf8", None),
            (9, "type_mismatch", None),
            (10, "invalid_json", None),
            (12, "unknown_column", Some("nothing")),
        ]
    );
    assert_eq!(reasons(&decoded)[0].3, Some("\"x\""));
    let kept: Vec<&[u8]> = [1, 3, 4, 5, 6, 7, 8, 9, 11].map(|at: usize| lines[at].trim_ascii()).into();
    assert_eq!(originals(&decoded), kept);
}

#[test]
fn an_array_is_cut_into_rows_or_refused_as_one() {
    let spec = receipt_table("id long");
    let body = "[{\"id\":1},\n{\"id\":\"x\"}, null, {\"id\":\n 1.5} ,{\"id\":2},[],\"\\ud800\"]";
    let decoded = read(&spec, Format::Json, body).unwrap();
    assert_eq!(ids(&decoded), [1, 2]);
    let codes: Vec<_> = reasons(&decoded).into_iter().map(|(row, code, ..)| (row, code)).collect();
    assert_eq!(
        codes,
        [(2, "type_mismatch"), (3, "row_not_object"), (4, "inexact_number"), (6, "type_mismatch"), (7, "invalid_json")]
    );
    assert_eq!(originals(&decoded)[2], b"{\"id\":\n 1.5}");
    let broken = read(&spec, Format::Json, "[{\"id\":1},{\"id\":\"x\"},").unwrap_err();
    assert_eq!((broken.code, broken.status), ("invalid_json", RejectKind::Invalid));
    let one = read(&spec, Format::Json, " {\"id\":true} ").unwrap();
    assert_eq!((one.batch.num_rows(), originals(&one)[0]), (0, &b"{\"id\":true}"[..]));
}

#[test]
fn too_many_bad_rows_refuse_the_post() {
    let spec = receipt_table("id long");
    let body = Bytes::from("{\"id\":true}\n{\"id\":1}\n".repeat(4));
    let with = |max_rejected_rows, max_rejected_bytes| {
        let limits = Limits { max_rejected_rows, max_rejected_bytes, ..Limits::default() };
        decode(&spec, Format::Ndjson, &body, NOW, &limits)
    };
    assert_eq!(with(4, 44).unwrap().rejected.len(), 4);
    for (rows, bytes) in [(3, 44), (4, 43), (0, 0)] {
        let refusal = with(rows, bytes).unwrap_err();
        assert_eq!((refusal.code, refusal.status), ("too_many_rejected", RejectKind::Unprocessable));
        assert!(refusal.message.contains("row 1") && refusal.help.contains("max_rejected_rows"), "{refusal:?}");
    }
    let column: ArrayRef = Arc::new(BooleanArray::from(vec![true; 4]));
    let limits = Limits { max_rejected_rows: 3, ..Limits::default() };
    let body = stream(&RecordBatch::try_from_iter([("id", column)]).unwrap());
    assert_eq!(decode(&spec, Format::ArrowStream, &body, NOW, &limits).unwrap_err().code, "too_many_rejected");
}

#[test]
fn bad_rows_of_a_stream_are_kept_as_json() {
    let spec = receipt_table("id int; s string; at timestamp; tags list<int>; bin binary; dec decimal(20,0)");
    let keys = Int8Array::from(vec![Some(1), None, Some(0), Some(1)]);
    let words = DictionaryArray::<Int8Type>::new(keys, Arc::new(StringArray::from(vec!["a", "\"é\""])));
    let mut tags = ListBuilder::new(Int64Builder::new());
    tags.append_value([Some(1), None]);
    tags.append_value([Some(1 << 40)]);
    tags.append_null();
    tags.append_value([Some(2)]);
    let fields: [(&str, ArrayRef); 7] = [
        ("id", Arc::new(Int64Array::from(vec![Some(1 << 40), Some(2), Some(3), Some(4)]))),
        ("s", Arc::new(words)),
        ("at", Arc::new(TimestampNanosecondArray::from(vec![1_000, 1, -1_000, 2_000]).with_timezone("+10:00"))),
        ("tags", Arc::new(tags.finish())),
        ("bin", Arc::new(BinaryArray::from(vec![&[0, 255][..], &[], &[1], &[2]]))),
        ("dec", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, None, None]))),
        ("extra", Arc::new(Float64Array::from(vec![None, None, None, Some(1e300)]))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(fields.map(|(n, a)| (n, a, true))).unwrap();
    let decoded = read(&spec, Format::ArrowStream, stream(&batch)).unwrap();
    assert_eq!(decoded.batch.num_rows(), 1);
    assert_eq!(
        reasons(&decoded),
        [
            (1, "out_of_range", Some("id"), Some("1099511627776")),
            (2, "timestamp_precision", Some("at"), Some("1 ns")),
            (4, "unknown_column", Some("extra"), None),
        ]
    );
    let shown: Vec<_> = originals(&decoded).into_iter().map(|row| std::str::from_utf8(row).unwrap()).collect();
    assert_eq!(
        shown,
        [
            r#"{"id":1099511627776,"s":"\"é\"","at":"1970-01-01T00:00:00.000001Z","tags":[1,null],"bin":"AP8=","dec":18446744073709551615}"#,
            r#"{"id":2,"at":"1970-01-01T00:00:00.000000001Z","tags":[1099511627776],"bin":""}"#,
            r#"{"id":4,"s":"\"é\"","at":"1970-01-01T00:00:00.000002Z","tags":[2],"bin":"Ag==","extra":1e+300}"#,
        ]
    );
}

#[test]
fn a_first_post_passes_over_lines_that_are_no_rows() {
    let infer = |body: &'static str| {
        let name = "t".parse().unwrap();
        infer(name, Format::Ndjson, &Bytes::from(body), Some(TimeUnit::S), &Limits::default())
    };
    let spec = infer("{\"a\":\n{\"ts\":1,\"a\":1}\n7\n{\"b\":2,\"ts\":2}\n{\"c\":tru\n").unwrap();
    assert_eq!(super::columns(&spec), "ts timestamp; a long; b long");
    assert_eq!(infer("{\"a\":\n1\n").unwrap_err().code, "invalid_json");
    let reject = infer("nope\n{\"ts\":null}\n{\"ts\":\"later\"}\n").unwrap_err();
    assert_eq!((reject.code, reject.row), ("invalid_timestamp", Some(3)));
}

/// A value that fits its column most of the time.
fn value(random: &mut SmallRng, kind: &str) -> String {
    let odd = [
        "null",
        "true",
        "\"\"",
        "-1",
        "1e999",
        "{}",
        "[[]]",
        "{\"x\":[1,{}],\"y\":\"z\"}",
        "[1,\"a\",null]",
        "{\"k\":1,\"k\":2}",
    ];
    if random.random_ratio(1, 12) {
        return odd[random.random_range(0..odd.len())].to_owned();
    }
    let n = random.random_range(-200..200);
    match kind {
        "boolean" => "true".to_owned(),
        "int" | "long" | "float" | "double" => n.to_string(),
        "decimal(20,2)" => format!("{n}.25"),
        "string" => format!("\"s{n}\""),
        "binary" => "\"AAEC\"".to_owned(),
        "date" => "\"2026-01-31\"".to_owned(),
        "timestamp" => "1769862896000".to_owned(),
        "list<string>" => format!("[\"{n}\",null]"),
        "map<string,long>" => format!("{{\"k{n}\":{n}}}"),
        _ => format!("{{\"x\":{n},\"names\":[\"{n}\"]}}"),
    }
}

#[test]
fn a_row_does_not_depend_on_its_neighbours() {
    let spec = crate::schema::tests::every_type();
    let random = &mut SmallRng::seed_from_u64(6);
    for round in 0..60 {
        let row = |random: &mut SmallRng| {
            let mut columns: Vec<_> = spec.columns.iter().filter(|c| !c.nullable || random.random_bool(0.6)).collect();
            let at = random.random_range(0..columns.len());
            columns.rotate_left(at);
            let column =
                |c: &crate::schema::ColumnSpec| format!("\"{}\":{}", c.name, value(random, &c.kind.to_string()));
            format!("{{{}}}", columns.into_iter().map(column).collect::<Vec<_>>().join(","))
        };
        let rows: Vec<String> = (0..20).map(|_| row(random)).collect();
        let alone: Vec<Decoded> = rows.iter().map(|r| read(&spec, Format::Ndjson, r.clone()).unwrap()).collect();
        let schema = alone[0].batch.schema();
        let batch = concat_batches(&schema, alone.iter().map(|d| &d.batch)).unwrap();
        for (format, body) in [(Format::Ndjson, rows.join("\n")), (Format::Json, format!("[{}]", rows.join(",")))] {
            let together = read(&spec, format, body).unwrap();
            assert_eq!(together.batch, batch, "{round}");
            let bad =
                |d: &Decoded| reasons(d).into_iter().map(|(_, c, n, _)| (c, n.map(str::to_owned))).collect::<Vec<_>>();
            assert_eq!(bad(&together), alone.iter().flat_map(bad).collect::<Vec<_>>(), "{round}");
            let bytes: Vec<_> = alone.iter().flat_map(originals).collect();
            assert_eq!(originals(&together), bytes, "{round}");
        }
    }
}

/// The rows of a stream, each written as JSON, meet the same decision.
#[test]
fn arrow_and_json_decide_alike() {
    let spec =
        table(None, "a int; b long; c float; d double; e decimal(6,2); f string; g boolean; h list<int>; i date");
    let random = &mut SmallRng::seed_from_u64(7);
    // Mostly small ones, which fit everywhere.
    let some = |random: &mut SmallRng, range: i64| {
        let range = if random.random_bool(0.9) { 100 } else { range };
        random.random_bool(0.95).then(|| random.random_range(0..range))
    };
    let (mut taken, mut rejected) = (0, 0);
    for round in 0..40 {
        let rows = 16;
        let mut longs = |range: i64| (0..rows).map(|_| some(random, range)).collect::<Int64Array>();
        let (a, b, c, d, e) = (longs(1 << 32), longs(i64::MAX), longs(1 << 25), longs(1 << 54), longs(20_000));
        let times = longs(1 << 50);
        let lists: Vec<Option<Vec<Option<i64>>>> = (0..rows)
            .map(|_| {
                random.random_bool(0.9).then(|| (0..random.random_range(0..3)).map(|_| some(random, 1 << 32)).collect())
            })
            .collect();
        let is_text = random.random_bool(0.5);
        let f: ArrayRef = if is_text || round % 4 != 0 {
            Arc::new(a.iter().map(|v| v.map(|v| v.to_string())).collect::<StringArray>())
        } else {
            Arc::new(a.clone())
        };
        let fields: [(&str, ArrayRef); 9] = [
            ("ts", Arc::new(TimestampMicrosecondArray::from(times.iter().collect::<Vec<_>>()).with_timezone("UTC"))),
            ("a", Arc::new(a)),
            ("b", Arc::new(b.iter().map(|v| v.map(|v| v.cast_unsigned())).collect::<UInt64Array>())),
            ("c", Arc::new(c)),
            ("d", Arc::new(d)),
            ("e", Arc::new(e)),
            ("f", f),
            ("h", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))),
            ("i", Arc::new((0..rows).map(|_| some(random, 4_000_000).map(|v| v as i32)).collect::<Date32Array>())),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(fields.map(|(n, a)| (n, a, true))).unwrap();
        let by_arrow = read(&spec, Format::ArrowStream, stream(&batch)).unwrap();
        let texts =
            (0..rows as usize).map(|row| crate::ingest::arrow::as_json::row(&batch.schema(), batch.columns(), row));
        let lines = texts.map(|text| String::from_utf8(text.to_vec()).unwrap()).collect::<Vec<_>>().join("\n");
        let by_json = read(&spec, Format::Ndjson, lines).unwrap();
        assert_eq!(by_arrow.batch, by_json.batch, "{round}");
        let rows = |d: &Decoded| reasons(d).into_iter().map(|(row, ..)| row).collect::<Vec<_>>();
        assert_eq!(rows(&by_arrow), rows(&by_json), "{round}");
        taken += by_arrow.batch.num_rows();
        rejected += by_arrow.rejected.len();
    }
    assert!(taken > 200 && rejected > 100, "{taken} {rejected}");
}
