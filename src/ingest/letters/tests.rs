use arrow::array::AsArray;
use arrow::datatypes::Int64Type;

use super::*;
use crate::ingest::tests::receipt_table;
use crate::ingest::{Limits, Rejected};
use crate::schema::letters as table;
use crate::schema::payload;

const NOW: i64 = 1_769_862_896_000_000;

fn letters() -> Table {
    Table { id: table::table_id("ops"), spec: table::spec("ops") }
}

fn rejected() -> Rejected {
    let spec = receipt_table("id long");
    let body = bytes::Bytes::from_static(b"{\"id\":\"x\"}\n{\"id\":1}\n{\"id\":\xff}");
    crate::ingest::decode(&spec, Format::Ndjson, &body, NOW, &Limits::default()).unwrap().rejected
}

fn rows(slices: &[SliceInput]) -> RecordBatch {
    let [slice] = slices else { panic!("should be one slice: {slices:?}") };
    assert_eq!((slice.table, slice.min_time, slice.max_time), (table::table_id("ops"), NOW, NOW));
    payload::decode(slice.encoding, &slice.payload, &arrow_schema(&table::spec("ops"))).unwrap()
}

fn texts(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    batch.column_by_name(name).unwrap().as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
}

#[test]
fn the_table_is_a_table_and_has_one_id_everywhere() {
    table::spec("ops").validate().unwrap();
    assert_eq!(table::table_id("ops").0.to_string(), table::table_id("ops").0.to_string());
    assert_ne!(table::table_id("ops"), table::table_id("default"));
    assert_ne!(table::table_id("ops"), table::derived_id("penstock dead letters", "ops"));
}

#[test]
fn a_letter_says_what_was_sent_by_whom_and_why_it_was_rejected() {
    let (post, node) = (Uuid::from_u128(7), NodeId(Uuid::from_u128(8)));
    let name = "ops.requests".parse().unwrap();
    let envelope = Envelope { post, table: &name, format: Format::Ndjson, sender: "10.0.0.9", node, now: NOW };
    let batch = rows(&envelope.seal(&letters(), &rejected().letters()).unwrap());
    let some = |texts: [&str; 2]| texts.map(|text| Some(text.to_owned())).to_vec();
    assert_eq!(texts(&batch, "id"), some([&format!("{post}.1"), &format!("{post}.3")]));
    assert_eq!(texts(&batch, "state"), some([table::REJECTED; 2]));
    assert_eq!(texts(&batch, "table_name"), some(["ops.requests"; 2]));
    assert_eq!(texts(&batch, "source"), some(["ndjson"; 2]));
    assert_eq!(texts(&batch, "sender"), some(["10.0.0.9"; 2]));
    assert_eq!(texts(&batch, "code"), some(["type_mismatch", "invalid_utf8"]));
    assert_eq!(texts(&batch, "column_name"), [Some("id".to_owned()), None]);
    assert_eq!(batch.column_by_name("row_number").unwrap().as_primitive::<Int64Type>().values(), &[1, 3]);
    let originals = batch.column_by_name("original").unwrap().as_binary::<i32>();
    assert_eq!((originals.value(0), originals.value(1)), (&b"{\"id\":\"x\"}"[..], &b"{\"id\":\xff}"[..]));
}

#[test]
fn what_happens_to_a_letter_is_a_row_of_its_own() {
    let (replay, node) = (Uuid::from_u128(9), NodeId(Uuid::from_u128(8)));
    let ids = ["a.1".to_owned(), "a.2".to_owned()];
    for (step, state) in [(Step::Replaying, table::REPLAYING), (Step::Replayed, table::REPLAYED)] {
        let batch = rows(&mark(&letters(), &ids, step, replay, node, NOW).unwrap());
        assert_eq!(texts(&batch, "id"), ids.clone().map(Some));
        assert_eq!(texts(&batch, "state"), [Some(state.to_owned()), Some(state.to_owned())]);
        assert_eq!(texts(&batch, "replay"), [Some(replay.to_string()), Some(replay.to_string())]);
        assert_eq!(texts(&batch, "code"), [None, None]);
    }
}
