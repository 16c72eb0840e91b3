use arrow::array::*;
use arrow::buffer::ScalarBuffer;
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;

use super::*;
use crate::ingest::arrow::size::written_out;
use crate::ingest::arrow::stream;
use crate::ingest::declare::Declaration;
use crate::ingest::{Format, Limits, decode, infer};
use crate::schema::TableSpec;

fn runs_of_text(ends: &[i32], values: &[Option<&str>]) -> ArrayRef {
    let values: StringArray = values.iter().copied().collect();
    Arc::new(RunArray::try_new(&Int32Array::from(ends.to_vec()), &values).expect("should be sound"))
}

/// Lists of `[offset, size]` over numbers from 0 on.
fn views_of(views: &[[i32; 2]], items: i32) -> ArrayRef {
    let item = Arc::new(Field::new_list_field(DataType::Int32, true));
    let part = |at: usize| views.iter().map(|view| view[at]).collect::<ScalarBuffer<i32>>();
    let items = Arc::new(Int32Array::from_iter_values(0..items));
    Arc::new(ListViewArray::new(item, part(0), part(1), items, None))
}

fn text(array: &ArrayRef) -> Vec<Option<String>> {
    array.as_string::<i32>().iter().map(|v| v.map(str::to_owned)).collect()
}

#[test]
fn runs_are_written_out_from_wherever_they_are_cut() {
    let runs = runs_of_text(&[2, 3, 6], &[Some("a"), None, Some("bc")]);
    let all = ["a", "a", "-", "bc", "bc", "bc"].map(|v| (v != "-").then(|| v.to_owned()));
    for start in 0..all.len() {
        for len in 0..=all.len() - start {
            let part = runs.slice(start, len);
            assert_eq!(text(&plain(&part)), all[start..start + len], "{start} {len}");
            let bytes: usize = all[start..start + len].iter().flatten().map(String::len).sum();
            assert_eq!(written_out(&part), bytes);
        }
    }
}

#[test]
fn list_views_overlap_and_stand_in_any_order() {
    let lists = views_of(&[[3, 2], [0, 0], [0, 3], [4, 1], [5, 0]], 5);
    let made = plain(&lists);
    let found: Vec<Vec<i32>> = made
        .as_list::<i64>()
        .iter()
        .map(|list| list.expect("no list is null").as_primitive::<arrow::datatypes::Int32Type>().values().to_vec())
        .collect();
    assert_eq!(found, [vec![3, 4], vec![], vec![0, 1, 2], vec![4], vec![]]);
    made.to_data().validate_full().expect("should be sound");
}

#[test]
fn runs_within_anything_are_written_out() {
    let runs = || runs_of_text(&[1, 4], &[None, Some("x")]);
    let offsets = OffsetBuffer::new(vec![0, 1, 1, 4].into());
    let item = Arc::new(Field::new_list_field(runs().data_type().clone(), true));
    let list: ArrayRef = Arc::new(ListArray::new(item, offsets, runs(), None));
    let fields = Fields::from(vec![Field::new("l", list.data_type().clone(), true)]);
    let nested: ArrayRef = Arc::new(StructArray::new(fields, vec![list], None));
    let made = plain(&nested);
    assert!(is_plain(made.data_type()) && !is_plain(nested.data_type()));
    made.to_data().validate_full().expect("should be sound");
    let items = made.as_struct().column(0).as_list::<i32>().values().clone();
    assert_eq!(text(&items), [None, Some("x".to_owned()), Some("x".to_owned()), Some("x".to_owned())]);
}

/// A few bytes stand for gigabytes: they are counted before they are written out.
#[test]
fn shared_values_are_counted_for_each_that_has_them() {
    let long = "x".repeat(1 << 20);
    let runs = runs_of_text(&[1 << 20], &[Some(&long)]);
    assert_eq!(written_out(&runs), 1 << 40);
    let whole = [0, 1 << 16];
    assert_eq!(written_out(&views_of(&[whole; 1_000], 1 << 16)), 1_000 * (1 << 16) * 5);
    let inner = views_of(&[whole; 1_000], 1 << 16);
    let item = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
    let (starts, sizes) = (ScalarBuffer::from(vec![0; 1_000]), ScalarBuffer::from(vec![1_000; 1_000]));
    let outer: ArrayRef = Arc::new(ListViewArray::new(item, starts, sizes, inner, None));
    assert!(written_out(&outer) > 1_000 * 1_000 * (1 << 16) * 4);
    let words: StringArray = ["", long.as_str()].into_iter().map(Some).collect();
    let keys = Int8Array::from(vec![0, 0, 0, 1]);
    let words: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(words)));
    assert_eq!(written_out(&words), 1 << 20, "a value that is wanted once counts once");
}

fn stream_of(columns: Vec<(&str, ArrayRef)>) -> Bytes {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true)));
    let batch = batch.expect("should make a batch");
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).expect("should begin a stream");
    writer.write(&batch).expect("should write a batch");
    writer.into_inner().expect("should end the stream").into()
}

fn table_of(kind: &str) -> TableSpec {
    let body = format!(r#"{{"columns":[{{"name":"v","type":"{kind}"}}]}}"#);
    let declaration: Declaration = serde_json::from_str(&body).expect("should be a declaration");
    declaration.into_spec("t".parse().expect("a name"), None).expect("should be a definition")
}

#[test]
fn runs_and_views_that_grow_beyond_the_limit_are_refused() {
    let long = "x".repeat(1 << 20);
    let rows = 10_000;
    let views = vec![[0, 1 << 16]; rows];
    let bodies = [
        stream_of(vec![("v", runs_of_text(&[10_000], &[Some(&long)]))]),
        stream_of(vec![("v", views_of(&views, 1 << 16))]),
    ];
    for body in bodies {
        let limits = Limits::default();
        let made = infer("t".parse().expect("a name"), Format::ArrowStream, &body, None, &limits);
        assert_eq!(made.expect_err("should be too large").code, "batch_too_large");
        let spec = table_of(if body.len() > 1 << 20 { "string" } else { "list<int>" });
        let reject = decode(&spec, Format::ArrowStream, &body, 0, &limits).expect_err("should be too large");
        assert_eq!(reject.code, "batch_too_large");
    }
}

#[test]
fn no_damaged_byte_of_runs_and_views_panics() {
    let numbers = RunArray::try_new(&Int16Array::from(vec![1, 3]), &Int64Array::from(vec![Some(-1), None]));
    let body = stream_of(vec![
        ("r", runs_of_text(&[2, 3], &[Some("a value that is longer than a view"), None])),
        ("n", Arc::new(numbers.expect("should be sound"))),
        ("l", views_of(&[[2, 1], [0, 3], [1, 0]], 3)),
    ]);
    let limits = Limits::default();
    let name = || "t".parse().expect("a name");
    let spec = infer(name(), Format::ArrowStream, &body, None, &limits).expect("should be a table");
    let whole = decode(&spec, Format::ArrowStream, &body, 0, &limits).expect("should be decoded");
    assert_eq!(whole.batch.num_rows(), 3);
    for at in 0..body.len() {
        for flip in [0x01, 0x10, 0x80, 0xff] {
            let mut damaged = body.to_vec();
            damaged[at] ^= flip;
            let damaged = Bytes::from(damaged);
            if let Ok(decoded) = decode(&spec, Format::ArrowStream, &damaged, 0, &limits) {
                decoded.batch.columns().iter().for_each(|c| c.to_data().validate_full().expect("should be sound"));
            }
            drop(infer(name(), Format::ArrowStream, &damaged, None, &limits));
            if let Ok((_, batches)) = stream::read(&damaged, &limits) {
                batches.iter().flat_map(RecordBatch::columns).for_each(|column| {
                    let _bytes = written_out(column);
                });
            }
        }
    }
}
