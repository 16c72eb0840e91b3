//! A Delta table's rows, read from disk without the server: the log says which files, their own bytes say what is in them.

use std::fs::File;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use url::Url;

/// A table as it lies on disk.
#[derive(Debug, Default)]
pub struct OnDisk {
    pub version: u64,
    /// Each data file's path in the table, and its rows.
    pub files: Vec<(String, Vec<RecordBatch>)>,
}

/// Reads the whole table; none if there is no Delta log.
pub async fn read(location: &str) -> Option<OnDisk> {
    let url = Url::parse(location).expect("should be a URL");
    let root = url.to_file_path().expect("should be a local table");
    if !root.join("_delta_log").exists() {
        return None;
    }
    let table = deltalake::open_table(url).await.expect("should open the table");
    let snapshot = table.snapshot().expect("should have a snapshot");
    let mut found = OnDisk { version: snapshot.version(), files: Vec::new() };
    for file in snapshot.log_data().iter() {
        let path = file.object_store_path().to_string();
        let data = File::open(root.join(&path)).expect("should find every file that the log names");
        let reader = ParquetRecordBatchReaderBuilder::try_new(data).and_then(|b| b.build()).expect("should be Parquet");
        let batches: Vec<RecordBatch> = reader.map(|b| b.expect("should read the rows")).collect();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(file.num_records(), Some(rows), "{path}: the statistics should count its rows");
        found.files.push((path, batches));
    }
    Some(found)
}

impl OnDisk {
    /// Rows of all files.
    pub fn rows(&self) -> u64 {
        self.files.iter().flat_map(|(_, batches)| batches).map(|b| b.num_rows() as u64).sum()
    }

    /// All values of a 64-bit column.
    pub fn longs(&self, column: &str) -> Vec<i64> {
        let values = |batch: &RecordBatch| {
            let column = batch.column_by_name(column).expect("should have the column");
            column.as_primitive::<Int64Type>().values().to_vec()
        };
        self.files.iter().flat_map(|(_, batches)| batches).flat_map(values).collect()
    }

    /// Checks that every row lies in the `date` partition of its time (UTC), and that files are sorted by it.
    pub fn check_dates(&self, time: &str) {
        const DAY: i64 = 86_400_000_000;
        for (path, batches) in &self.files {
            let date = path.strip_prefix("date=").and_then(|p| p.get(..10)).expect("should be a partition by date");
            let midnight = format!("{date}T00:00:00Z").parse::<humantime::Timestamp>().expect("should be a date");
            let since_epoch = std::time::SystemTime::from(midnight).duration_since(std::time::UNIX_EPOCH);
            let start = i64::try_from(since_epoch.expect("should be after 1970").as_micros()).expect("should fit");
            let mut last = i64::MIN;
            for batch in batches {
                let column = batch.column_by_name(time).expect("should have the event time");
                for micros in column.as_primitive::<TimestampMicrosecondType>().values() {
                    assert!((start..start + DAY).contains(micros), "{path} has a row of {micros}");
                    assert!(*micros >= last, "{path} should be sorted by {time}");
                    last = *micros;
                }
            }
        }
    }
}
