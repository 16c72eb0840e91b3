//! What a sender may rely on, as a table of cases: every row is posted to the real server by every protocol that can carry it, into a
//! table of its own, and what was accepted is read back from Delta by `deltalake`, which knows nothing of us.
//!
//! `case`: the lines of `tests/fixtures/conformance.txt`; `random`: more of them, by chance; `sent`: their bodies; `arrow.py` writes Arrow streams, so that another
//! implementation than ours decides what their bytes are; `read.py` reads the tables.

mod case;
mod random;
mod sent;

use futures::stream::{self, StreamExt};
use serde_json::{Value, json};

use crate::kit::{self, Launch, NO_FLUSH, Server, python};
use case::{Case, Expected, Fate, Protocol};
use sent::{Bodies, post};

const READ: &str = include_str!("read.py");
const MODULES: [&str; 2] = ["deltalake", "pyarrow"];
/// Posts in flight.
const PARALLEL: usize = 16;

/// A case by one protocol, and its table.
#[derive(Debug)]
struct Run {
    case: Case,
    protocol: Protocol,
}

impl Run {
    fn table(&self) -> String {
        format!("suite.line{}_{}", self.case.line, format!("{:?}", self.protocol).to_lowercase())
    }

    fn fates(&self) -> &[Fate] {
        if let Expected::Rows(fates) = &self.case.expected { fates } else { &[] }
    }

    fn accepted(&self) -> Vec<usize> {
        (0..self.fates().len()).filter(|at| matches!(self.fates()[*at], Fate::Read(_))).collect()
    }
}

fn runs(cases: Vec<Case>) -> Vec<Run> {
    let each =
        |case: Case| case.protocols.clone().into_iter().map(move |protocol| Run { case: case.clone(), protocol });
    cases.into_iter().flat_map(each).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_has_its_answer_and_its_rows() {
    let cases = case::all();
    assert!(cases.len() >= 150, "{} cases", cases.len());
    let Some(program) = python::with(&MODULES) else { return };
    suite(&program, "UTC", cases).await;
}

/// Neither what is accepted nor what is read back depends on where the server runs.
#[tokio::test(flavor = "multi_thread")]
async fn every_case_has_the_same_answer_and_rows_in_melbourne() {
    let Some(program) = python::with(&MODULES) else { return };
    suite(&program, "Australia/Melbourne", case::all()).await;
}

/// `PENSTOCK_SEED` chooses other tables and rows.
#[tokio::test(flavor = "multi_thread")]
async fn random_rows_are_read_back_as_they_were_sent() {
    let Some(program) = python::with(&MODULES) else { return };
    let seed = std::env::var("PENSTOCK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    suite(&program, "Australia/Melbourne", random::cases(seed)).await;
}

async fn suite(program: &str, zone: &str, cases: Vec<Case>) {
    let runs = runs(cases);
    let bodies = Bodies::of(program, &runs).await;
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set_all(&NO_FLUSH).env("TZ", zone).start().await;
    let answered: Vec<Result<(), String>> =
        stream::iter(&runs).map(|run| post(&server, run, &bodies)).buffered(PARALLEL).collect().await;
    server.flush().await;
    let paths: Vec<String> = stream::iter(&runs)
        .map(|run| location(&server, run))
        .buffered(PARALLEL)
        .filter_map(async |p| p)
        .collect()
        .await;
    server.stop().await;
    let mut found = read(program, &paths).await.into_iter();
    let mut failures = Vec::new();
    for (run, answer) in runs.iter().zip(answered) {
        let rows = if run.accepted().is_empty() { Ok(()) } else { check_rows(run, found.next().unwrap_or_default()) };
        failures.extend([answer, rows].into_iter().filter_map(Result::err).map(|e| told(run, &e)));
    }
    assert!(failures.is_empty(), "{} of {} runs fail:\n{}", failures.len(), runs.len(), failures.join("\n"));
}

fn told(run: &Run, what: &str) -> String {
    format!("line {} ({}) by {:?}: {what}", run.case.line, run.case.name, run.protocol)
}

/// Where the table lies, if rows are expected in it.
async fn location(server: &Server, run: &Run) -> Option<String> {
    if run.accepted().is_empty() {
        return None;
    }
    let reply = server.get(&format!("/v1/tables/{}", run.table())).await;
    Some(reply.json()["location"].as_str().unwrap_or("").to_owned())
}

/// The rows of each table, as another reader finds them.
async fn read(program: &str, paths: &[String]) -> Vec<Value> {
    let scratch = kit::directory();
    let list = scratch.path().join("tables");
    std::fs::write(&list, json!(paths).to_string()).expect("should write the list");
    let found = python::run(program, READ, &[&list.display().to_string()], &[]).await;
    found.as_array().expect("should be a list").clone()
}

fn check_rows(run: &Run, found: Value) -> Result<(), String> {
    let found = found.as_array().cloned().ok_or_else(|| format!("cannot be read: {found}"))?;
    let accepted = run.accepted();
    if found.len() != accepted.len() {
        return Err(format!("{} rows were accepted, and the table has {found:?}", accepted.len()));
    }
    for (row, at) in found.iter().zip(accepted) {
        let Fate::Read(wanted) = &run.fates()[at] else { unreachable!("accepted rows are read") };
        if row["n"] != json!(at + 1) {
            return Err(format!("row {} is not there: {found:?}", at + 1));
        }
        let wanted = wanted.as_object().ok_or_else(|| format!("row {} is no object: {wanted}", at + 1))?;
        for (column, value) in wanted {
            if !row.get(column).is_some_and(|found| same(found, value)) {
                return Err(format!("row {}: {column} should be {value}: {row}", at + 1));
            }
        }
    }
    Ok(())
}

/// Whether a value that was found is the wanted one. Doubles are compared by their bits, and 1 may be wanted of one.
fn same(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::String(text), Value::Number(wanted)) => {
            let found = text.strip_prefix("float:").and_then(|text| text.parse::<f64>().ok());
            found.zip(wanted.as_f64()).is_some_and(|(found, wanted)| found.to_bits() == wanted.to_bits())
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|wanted| same(value, wanted)))
        }
        (a, b) => a == b,
    }
}
