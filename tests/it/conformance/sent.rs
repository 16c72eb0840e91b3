//! What is sent: bodies, and what the server made of them.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::{Value, json};

use super::case::{Column, Expected, Fate, Protocol};
use super::{Run, kit, python};
use kit::{ARROW, JSON, NDJSON, Reply, Server};

const WRITE: &str = include_str!("arrow.py");

/// Arrow bodies, by table and rows; the other formats need no other program.
#[derive(Debug)]
pub struct Bodies {
    arrow: HashMap<(String, Vec<usize>), Bytes>,
}

impl Bodies {
    /// Of everything that [`post`] may send.
    pub async fn of(program: &str, runs: &[Run]) -> Self {
        let scratch = kit::directory();
        let mut wanted = Vec::new();
        for run in runs.iter().filter(|run| run.protocol == Protocol::Arrow) {
            wanted.extend(posts(run).into_iter().map(|rows| (run, rows)));
        }
        let path = |at: usize| scratch.path().join(at.to_string());
        let jobs: Vec<Value> = wanted
            .iter()
            .enumerate()
            .map(|(at, (run, rows))| {
                let rows: Vec<String> = rows.iter().map(|row| numbered(run, *row)).collect();
                json!({ "path": path(at).display().to_string(), "columns": arrow_columns(run), "rows": rows })
            })
            .collect();
        let list = scratch.path().join("posts");
        std::fs::write(&list, json!(jobs).to_string()).expect("should write the list");
        let done = python::run(program, WRITE, &[&list.display().to_string()], &[]).await;
        let mut arrow = HashMap::new();
        for (at, (run, rows)) in wanted.into_iter().enumerate() {
            let failed = &done["failed"][path(at).display().to_string()];
            assert!(failed.is_null(), "line {}: pyarrow: {failed}", run.case.line);
            let body = std::fs::read(path(at)).expect("should have been written");
            arrow.insert((run.table(), rows), body.into());
        }
        Self { arrow }
    }

    fn body(&self, run: &Run, rows: &[usize]) -> Bytes {
        let texts = || rows.iter().map(|row| numbered(run, *row)).collect::<Vec<_>>();
        match run.protocol {
            Protocol::Ndjson => texts().join("\n").into(),
            Protocol::Json => format!("[{}]", texts().join(",")).into(),
            Protocol::Arrow => self.arrow[&(run.table(), rows.to_vec())].clone(),
        }
    }
}

/// The rows of each post that a case takes: all of them. While a post with a bad row is refused whole, then also each bad one alone,
/// and the good ones.
fn posts(run: &Run) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..run.case.rows.len()).collect();
    let (good, bad) = (run.accepted(), run.rejected());
    let mut posts = vec![all];
    if !bad.is_empty() {
        posts.extend(bad.iter().map(|row| vec![*row]));
        posts.extend((!good.is_empty()).then_some(good));
    }
    posts.dedup();
    posts
}

/// A row's text, with its number in front if it is an object.
fn numbered(run: &Run, row: usize) -> String {
    let (text, number) = (run.case.rows[row], row + 1);
    match text.strip_prefix('{') {
        Some("}") => format!("{{\"n\":{number}}}"),
        Some(rest) => format!("{{\"n\":{number},{rest}"),
        None => text.to_owned(),
    }
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
fn fields_of(text: &str) -> Vec<(&str, &str)> {
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
    let all: Vec<usize> = (0..run.case.rows.len()).collect();
    let reply = send(server, run, bodies, &all).await;
    if let Expected::Refused(code) = run.case.expected {
        return if reply.status >= 400 && reply.refusal() == code { Ok(()) } else { Err(wrong(&reply, code)) };
    }
    let (good, bad) = (run.accepted(), run.rejected());
    if bad.is_empty() {
        check_accepted(&reply, good.len())?;
    } else {
        check_rejected(run, &reply, &all)?;
        for row in bad.iter().filter(|_| all.len() > 1) {
            check_rejected(run, &send(server, run, bodies, &[*row]).await, &[*row])?;
        }
        if !good.is_empty() {
            check_accepted(&send(server, run, bodies, &good).await, good.len())?;
        }
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
    if let Some((_, unit)) = run.case.settings.iter().find(|(key, _)| *key == "unit") {
        definition["event_time_unit"] = json!(unit);
    }
    let reply = server.declare(&run.table(), &definition).await;
    if reply.status == 201 { Ok(()) } else { Err(wrong(&reply, "the table declared")) }
}

async fn send(server: &Server, run: &Run, bodies: &Bodies, rows: &[usize]) -> Reply {
    let content_type = match run.protocol {
        Protocol::Ndjson => NDJSON,
        Protocol::Json => JSON,
        Protocol::Arrow => ARROW,
    };
    let unit = run.case.settings.iter().find(|(key, _)| *key == "time_unit");
    let query = unit.map(|(key, unit)| format!("?{key}={unit}")).unwrap_or_default();
    let path = format!("/v1/tables/{}/rows{query}", run.table());
    server.send(&path, &[("content-type", content_type)], bodies.body(run, rows)).await
}

fn check_accepted(reply: &Reply, rows: usize) -> Result<(), String> {
    if reply.status == 200 && reply.json()["rows"] == json!(rows) {
        Ok(())
    } else {
        Err(wrong(reply, "its rows taken"))
    }
}

/// A refusal names a row that is to be rejected, with the code and the column of the case.
fn check_rejected(run: &Run, reply: &Reply, rows: &[usize]) -> Result<(), String> {
    let error = if reply.status >= 400 { reply.json()["error"].clone() } else { Value::Null };
    let said =
        error["row"].as_u64().and_then(|row| rows.get(usize::try_from(row).ok()? - 1)).map(|row| &run.fates()[*row]);
    match said {
        Some(Fate::Rejected { code, column })
            if error["code"] == *code && column.is_none_or(|column| error["column"] == column) =>
        {
            Ok(())
        }
        _ => Err(wrong(reply, &format!("a rejection as in {:?}", run.case.expected))),
    }
}

async fn check_columns(server: &Server, run: &Run, after: &[Column]) -> Result<(), String> {
    let table = server.table(&run.table()).await;
    let columns = table["columns"].as_array().cloned().unwrap_or_default();
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
