//! Three independent readers from PyPI have to find the same rows in the same tables.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::python;

const SCRIPT: &str = include_str!("../readers3.py");

/// What the readers need.
pub const MODULES: [&str; 5] = ["deltalake", "pyarrow", "duckdb", "duckdb_extension_delta", "polars"];

/// Where the rows of [`row`] lie.
pub const DATES: [&str; 2] = ["2026-05-01", "2026-05-02"];

fn date(id: i64) -> &'static str {
    DATES[usize::try_from(id % 2).expect("should not be negative")]
}

/// A row with this id.
pub fn row(id: i64) -> Value {
    json!({ "ts": format!("{}T10:00:00Z", date(id)), "id": id })
}

/// Ids by date; every reader has to find these and no others.
pub type Wanted = BTreeMap<&'static str, Vec<i64>>;

/// The ids of such rows.
pub fn by_date(ids: &[i64]) -> Wanted {
    let mut wanted = Wanted::new();
    ids.iter().for_each(|id| wanted.entry(date(*id)).or_default().push(*id));
    wanted
}

fn expected(wanted: &Wanted, date: &str) -> Value {
    let all: Vec<i64> = wanted.values().flatten().copied().collect();
    let on_date = wanted.get(date).cloned().unwrap_or_default();
    let dates: BTreeMap<_, _> = wanted.iter().map(|(date, ids)| (date, ids.len())).collect();
    json!({
        "count": all.len(),
        "distinct": all.len(),
        "sum": all.iter().sum::<i64>(),
        "dates": dates,
        "on_date": [on_date.len(), on_date.iter().sum::<i64>()],
    })
}

/// Compares what each reader finds with what has to be there: counts, sums, and both of one partition.
pub async fn agree(program: &str, date: &str, tables: &[(&Path, &Wanted)]) {
    let paths: Vec<String> = tables.iter().map(|(path, _)| path.display().to_string()).collect();
    let mut arguments = vec![date];
    arguments.extend(paths.iter().map(String::as_str));
    let found = python::run(program, SCRIPT, &arguments, &[]).await;
    for reader in ["deltalake", "polars", "duckdb"] {
        for (at, (path, wanted)) in tables.iter().enumerate() {
            assert_eq!(found[reader][at], expected(wanted, date), "{reader}: {}", path.display());
        }
    }
}
