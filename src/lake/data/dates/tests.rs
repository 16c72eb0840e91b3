use arrow::array::{ArrayRef, Date32Array, Int64Array};
use arrow::datatypes::{DataType, Field, Schema};
use object_store::memory::InMemory;
use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::lake::data::Uploading;
use crate::lake::patience::Patience;

fn writers(name: &str) -> Writers {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let patience = Patience { tries: 1, first_wait: Duration::from_millis(1), whole: Duration::from_secs(1) };
    let sink = Sink::uncounted(Arc::new(InMemory::new()), patience, Uploading::default());
    let config = WriterConfig::new(Arc::clone(&schema), vec![], None, None, None, Default::default(), None);
    Writers::new(sink, config, schema, Some(name.to_owned()))
}

fn batch(dates: &[i32]) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(dates.iter().map(|d| i64::from(*d))));
    RecordBatch::try_from_iter([("n", numbers), ("date", Arc::new(Date32Array::from(dates.to_vec())) as ArrayRef)])
        .expect("should be a batch")
}

#[tokio::test]
async fn dates_may_alternate_and_few_files_are_open_at_a_time() {
    let mut writers = writers("date");
    let dates: Vec<i32> = (0..10).flat_map(|day| [day, day, -1]).collect();
    for _ in 0..2 {
        writers.write(batch(&dates)).await.expect("should write");
        assert_eq!(writers.open.len(), MAX_OPEN);
    }
    writers.write(batch(&[])).await.expect("should write nothing");
    let mut rows: BTreeMap<String, u64> = BTreeMap::new();
    for add in writers.close().await.expect("should close") {
        let date = add.partition_values["date"].clone().expect("should have a value");
        assert!(add.path.starts_with(&format!("date={date}/part-")), "{}", add.path);
        let stats: serde_json::Value = serde_json::from_str(add.stats.as_deref().expect("stats")).expect("JSON");
        *rows.entry(date).or_default() += stats["numRecords"].as_u64().expect("should be counted");
    }
    assert_eq!((rows.len(), rows["1969-12-31"], rows["1970-01-10"]), (11, 20, 4));
}

#[tokio::test]
async fn a_name_that_needs_escaping_is_not_in_the_path() {
    let mut writers = writers("d\u{e4}t:e/x");
    writers.write(batch(&[0])).await.expect("should write");
    let adds = writers.close().await.expect("should close");
    assert!(adds[0].path.starts_with("1970-01-01/part-"), "{}", adds[0].path);
    assert_eq!(adds[0].partition_values["d\u{e4}t:e/x"].as_deref(), Some("1970-01-01"));
}

#[tokio::test]
async fn rows_without_a_date_are_refused() {
    let missing: ArrayRef = Arc::new(Date32Array::from(vec![None, Some(1)]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let batch = RecordBatch::try_from_iter([("n", numbers), ("date", missing)]).expect("should be a batch");
    writers("date").write(batch).await.expect_err("should be refused");
}
