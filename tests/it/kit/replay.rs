//! A Delta log replayed from nothing, by the letter of the protocol: no delta-rs, no kernel, none of our own code. Entry by entry
//! from version 0, so it also finds holes, files added twice, and transactions that go backwards.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

/// The objects of a table, by their path in it.
pub type Objects = BTreeMap<String, Bytes>;

/// A table as its log says.
#[derive(Debug, Default)]
pub struct Replayed {
    /// The newest version.
    pub version: u64,
    /// Data files, with their partition value of `date`.
    pub files: BTreeMap<String, Option<String>>,
    /// The highest version of each application id.
    pub txns: BTreeMap<String, i64>,
    /// Every path that was ever added.
    added: BTreeSet<String>,
}

/// Replays a log.
pub fn replay(what: &str, objects: &Objects) -> Replayed {
    let mut table = Replayed::default();
    let mut version = 0;
    while let Some(entry) = objects.get(&format!("_delta_log/{version:020}.json")) {
        for line in serde_json::Deserializer::from_slice(entry).into_iter::<Value>() {
            let line = line.unwrap_or_else(|e| panic!("{what} version {version}: {e}"));
            table.apply(&format!("{what} version {version}"), &line);
        }
        table.version = version;
        version += 1;
    }
    let entries = objects.keys().filter(|key| is_entry(key)).count() as u64;
    assert_eq!(entries, version, "{what}: the log has a hole behind version {}", table.version);
    table
}

fn is_entry(path: &str) -> bool {
    path.strip_prefix("_delta_log/").and_then(|p| p.strip_suffix(".json")).is_some_and(|p| p.parse::<u64>().is_ok())
}

impl Replayed {
    fn apply(&mut self, what: &str, line: &Value) {
        if let Some(add) = line.get("add") {
            let path = add["path"].as_str().expect("should have a path");
            let path = percent_decoded(path);
            assert!(self.added.insert(path.clone()), "{what} adds {path} a second time");
            let date = add["partitionValues"]["date"].as_str().map(str::to_owned);
            self.files.insert(path, date);
        } else if let Some(remove) = line.get("remove") {
            let path = percent_decoded(remove["path"].as_str().expect("should have a path"));
            assert!(self.files.remove(&path).is_some(), "{what} removes {path}, which is not there");
        } else if let Some(txn) = line.get("txn") {
            let app = txn["appId"].as_str().expect("should have an id").to_owned();
            let version = txn["version"].as_i64().expect("should have a version");
            let before = self.txns.insert(app.clone(), version);
            assert!(before < Some(version), "{what} moves {app} from {before:?} back to {version}");
        }
    }

    /// All values of a 64-bit column.
    pub fn longs(&self, what: &str, objects: &Objects, column: &str) -> Vec<i64> {
        let mut found = Vec::new();
        for path in self.files.keys() {
            let bytes =
                objects.get(path).unwrap_or_else(|| panic!("{what}: {path} is in the log and not in the store"));
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).and_then(|b| b.build());
            for batch in reader.unwrap_or_else(|e| panic!("{what}: {path}: {e}")) {
                let batch = batch.unwrap_or_else(|e| panic!("{what}: {path}: {e}"));
                let column = batch.column_by_name(column).expect("should have the column");
                found.extend(column.as_primitive::<Int64Type>().values());
            }
        }
        found
    }

    /// Data files in the store that no version ever referred to.
    pub fn orphans<'a>(&self, objects: &'a Objects) -> Vec<&'a str> {
        let is_data = |path: &&String| path.ends_with(".parquet") && !path.starts_with("_delta_log/");
        objects.keys().filter(is_data).filter(|path| !self.added.contains(*path)).map(String::as_str).collect()
    }
}

/// Paths in a log are URLs.
fn percent_decoded(path: &str) -> String {
    let url = url::Url::parse("x:///").and_then(|base| base.join(path)).expect("should be a path");
    object_store::path::Path::from_url_path(url.path()).expect("should be a path").to_string()
}

#[test]
fn a_replay_notices_holes_repetitions_and_orphans() {
    let add =
        |path: &str| format!("{{\"add\":{{\"path\":\"{path}\",\"partitionValues\":{{\"date\":\"2026-01-01\"}}}}}}");
    let txn = |version: i64| format!("{{\"txn\":{{\"appId\":\"a\",\"version\":{version}}}}}");
    let table = |entries: &[(u64, String)]| {
        let mut objects: Objects =
            entries.iter().map(|(v, text)| (format!("_delta_log/{v:020}.json"), text.clone().into())).collect();
        objects.extend(["x.parquet", "y z.parquet", "lost.parquet"].map(|path| (path.to_owned(), Bytes::new())));
        objects
    };
    let good = table(&[(0, add("x.parquet")), (1, format!("{}\n{}", add("y%20z.parquet"), txn(3)))]);
    let found = replay("good", &good);
    assert_eq!((found.version, found.files.len(), found.txns["a"]), (1, 2, 3));
    assert_eq!(found.orphans(&good), ["lost.parquet"]);
    for bad in [
        vec![(0, add("x.parquet")), (2, txn(1))],
        vec![(0, add("x.parquet")), (1, add("x.parquet"))],
        vec![(0, txn(2)), (1, txn(2))],
        vec![(0, add("x.parquet")), (1, "{\"remove\":{\"path\":\"z\"}}".to_owned())],
    ] {
        assert!(std::panic::catch_unwind(|| replay("bad", &table(&bad))).is_err(), "{bad:?}");
    }
}
