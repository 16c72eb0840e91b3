//! What is sent: bodies, and what the server made of them.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::{Value, json};

use super::case::{Column, Expected, Fate, Protocol};
use super::{Run, kit, python};
use kit::{ARROW, JSON, NDJSON, Reply, Server};

const WRITE: &str = include_str!("arrow.py");

/// Arrow bodies by table; the other formats need no other program.
#[derive(Debug)]
pub struct Bodies {
    arrow: HashMap<String, Bytes>,
}

impl Bodies {
    /// Of all these.
    pub async fn of(program: &str, runs: &[Run]) -> Self {
        let scratch = kit::directory();
        let wanted: Vec<&Run> = runs.iter().filter(|run| run.protocol == Protocol::Arrow).collect();
        let path = |at: usize| scratch.path().join(at.to_string()).display().to_string();
        let job = |(at, run): (usize, &&Run)| json!({ "path": path(at), "columns": arrow_columns(run), "rows": numbered(run) });
        let jobs: Vec<Value> = wanted.iter().enumerate().map(job).collect();
        let list = scratch.path().join("posts");
        std::fs::write(&list, json!(jobs).to_string()).expect("should write the list");
        let done = python::run(program, WRITE, &[&list.display().to_string()], &[]).await;
        let mut arrow = HashMap::new();
        for (at, run) in wanted.into_iter().enumerate() {
            let failed = &done["failed"][path(at)];
            assert!(failed.is_null(), "line {}: pyarrow: {failed}", run.case.line);
            let body = std::fs::read(path(at)).expect("should have been written");
            arrow.insert(run.table(), body.into());
        }
        Self { arrow }
    }

    fn body(&self, run: &Run) -> Bytes {
        match run.protocol {
            Protocol::Ndjson => numbered(run).join("\n").into(),
            Protocol::Json => format!("[{}]", numbered(run).join(",")).into(),
            Protocol::Arrow => self.arrow[&run.table()].clone(),
        }
    }
}

/// The rows' texts, each with its number in front if it is an object.
fn numbered(run: &Run) -> Vec<String> {
    let number = |(number, text): (usize, &&str)| match text.strip_prefix('{') {
        Some("}") => format!("{{\"n\":{number}}}"),
        Some(rest) => format!("{{\"n\":{number},{rest}"),
        None => (*text).to_owned(),
    };
    (1..).zip(&run.case.rows).map(number).collect()
}

/// Columns and their types as pyarrow says them; not in the table's order.
fn arrow_columns(run: &Run) -> Vec<(String, String)> {
    let mut columns = run.case.arrow.clone().unwrap_or_else(|| {
        let declared = run.case.columns.iter().flatten();
        declared.map(|column| (column.name.clone(), arrow_type(&column.kind))).rev().collect()
    });
    columns.insert(columns.len() / 2, ("n".to_owned(), "int64()".to_owned()));
    columns
}

fn arrow_type(kind: &str) -> String {
    let inner = |name: &str| kind.strip_prefix(name).and_then(|rest| rest.strip_prefix('<')?.strip_suffix('>'));
    if let Some(item) = inner("list") {
        return format!("list_({})", arrow_type(item));
    }
    if let Some(value) = inner("map").and_then(|inner| inner.strip_prefix("string,")) {
        return format!("map_(utf8(),{})", arrow_type(value));
    }
    if let Some(fields) = inner("struct") {
        let fields = fields_of(fields).into_iter().map(|(name, kind)| format!("('{name}',{})", arrow_type(kind)));
        return format!("struct([{}])", fields.collect::<Vec<_>>().join(","));
    }
    match kind {
        "boolean" => "bool_()",
        "int" => "int32()",
        "long" => "int64()",
        "float" => "float32()",
        "double" => "float64()",
        "string" => "utf8()",
        "binary" => "binary()",
        "date" => "date32()",
        "timestamp" => "timestamp('us','UTC')",
        decimal => return decimal.replace("decimal(", "decimal128("),
    }
    .to_owned()
}

/// `a:long,b:list<...>`, cut at the commas that stand outside of brackets.
pub fn fields_of(text: &str) -> Vec<(&str, &str)> {
    let mut depth = 0_i32;
    let pieces = text.split(|c: char| {
        depth += i32::from(c == '<' || c == '(') - i32::from(c == '>' || c == ')');
        c == ',' && depth == 0
    });
    pieces.map(|piece| piece.split_once(':').expect("a struct's field should have a type")).collect()
}

/// Declares the table, if the case does, posts the rows, and compares the answer with what the case expects of it.
pub async fn post(server: &Server, run: &Run, bodies: &Bodies) -> Result<(), String> {
    if let Some(columns) = &run.case.columns {
        declare(server, run, columns).await?;
    }
    let reply = send(server, run, bodies).await;
    match &run.case.expected {
        Expected::Refused(code) => check_refused(&reply, code)?,
        Expected::Rows(fates) => check_fates(&reply, fates)?,
    }
    match &run.case.after {
        Some(after) => check_columns(server, run, after).await,
        None => Ok(()),
    }
}

async fn declare(server: &Server, run: &Run, columns: &[Column]) -> Result<(), String> {
    let mut definition = json!({ "columns": [{ "name": "n", "type": "long" }] });
    let list = definition["columns"].as_array_mut().expect("should be a list");
    list.extend(columns.iter().map(|c| json!({ "name": c.name, "type": c.kind, "nullable": c.nullable })));
    // What a type takes is one question, and whether the table may get another another one.
    let evolves = run.case.settings.iter().any(|(key, _)| *key == "evolve");
    definition["rules"] = json!({ "schema": if evolves { "evolve" } else { "strict" } });
    if let Some((_, unit)) = run.case.settings.iter().find(|(key, _)| *key == "unit") {
        definition["event_time_unit"] = json!(unit);
    }
    let reply = server.declare(&run.table(), &definition).await;
    if reply.status == 201 { Ok(()) } else { Err(wrong(&reply, "the table declared")) }
}

async fn send(server: &Server, run: &Run, bodies: &Bodies) -> Reply {
    let content_type = match run.protocol {
        Protocol::Ndjson => NDJSON,
        Protocol::Json => JSON,
        Protocol::Arrow => ARROW,
    };
    let unit = run.case.settings.iter().find(|(key, _)| *key == "time_unit");
    let query = unit.map(|(key, unit)| format!("?{key}={unit}")).unwrap_or_default();
    let path = format!("/v1/tables/{}/rows{query}", run.table());
    server.send(&path, &[("content-type", content_type)], bodies.body(run)).await
}

/// The post is refused as such: no row is told.
fn check_refused(reply: &Reply, code: &str) -> Result<(), String> {
    let refused = reply.status >= 400 && reply.refusal() == code && reply.json()["errors"].is_null();
    if refused { Ok(()) } else { Err(wrong(reply, code)) }
}

/// The answer counts the rows, and tells each that is rejected, and why.
fn check_fates(reply: &Reply, fates: &[Fate]) -> Result<(), String> {
    let answer = if reply.body.starts_with(b"{") { reply.json() } else { Value::Null };
    let told = answer["errors"].as_array().cloned().unwrap_or_default();
    let rejected = (1..).zip(fates).filter_map(|(row, fate): (u64, _)| match fate {
        Fate::Read(_) => None,
        Fate::Rejected { code, column } => Some((row, *code, *column)),
    });
    let rejected: Vec<_> = rejected.collect();
    let accepted = fates.len() - rejected.len();
    let as_told = |((row, code, column), told): (&(u64, &str, Option<&str>), &Value)| {
        told["row"] == *row && told["code"] == *code && column.is_none_or(|column| told["column"] == column)
    };
    let right = reply.status == if accepted == 0 { 422 } else { 200 }
        && answer["rows"] == accepted
        && answer["rejected"] == rejected.len()
        && told.len() == rejected.len()
        && rejected.iter().zip(&told).all(as_told);
    if right { Ok(()) } else { Err(wrong(reply, &format!("{accepted} rows taken, and rejected {rejected:?}"))) }
}

async fn check_columns(server: &Server, run: &Run, after: &[Column]) -> Result<(), String> {
    let table = server.table(&run.table()).await;
    let columns = table["table"]["columns"].as_array().cloned().unwrap_or_default();
    let found: Vec<String> = columns
        .iter()
        .filter(|column| column["name"] != "n" && column["name"] != "_received_at")
        .map(|c| format!("{}:{}", c["name"].as_str().unwrap_or(""), c["type"].as_str().unwrap_or("")))
        .collect();
    let wanted: Vec<String> = after.iter().map(|c| format!("{}:{}", c.name, c.kind)).collect();
    if found == wanted { Ok(()) } else { Err(format!("the table has {found:?} and not {wanted:?}")) }
}

fn wrong(reply: &Reply, wanted: &str) -> String {
    format!("{} {} instead of {wanted}", reply.status, reply.text())
}
