//! The cases of `tests/fixtures/conformance.txt`: one line each; the head of that file says what its columns mean.

use serde_json::Value;

const TEXT: &str = include_str!("../../fixtures/conformance.txt");

/// How rows are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Ndjson,
    Json,
    Arrow,
}

/// A column of a table: its name, its type, and whether it may be null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: String,
    pub nullable: bool,
}

/// One line.
#[derive(Debug, Clone)]
pub struct Case {
    /// Where it stands, counted from 1.
    pub line: usize,
    pub name: &'static str,
    pub protocols: Vec<Protocol>,
    /// The Arrow types of the columns as pyarrow expressions, where they are not those that the table's columns have.
    pub arrow: Option<Vec<(String, String)>>,
    /// The declared columns; none if the rows make the table.
    pub columns: Option<Vec<Column>>,
    /// `key=value` settings: `unit` of a declared event time, `time_unit` of the post.
    pub settings: Vec<(&'static str, &'static str)>,
    /// The table's columns once the rows are in it, if the case says so.
    pub after: Option<Vec<Column>>,
    /// The rows as they are sent.
    pub rows: Vec<&'static str>,
    pub expected: Expected,
}

/// What has to become of the post.
#[derive(Debug, Clone)]
pub enum Expected {
    /// Each row is accepted or rejected by itself.
    Rows(Vec<Fate>),
    /// The post is refused whole, with this code.
    Refused(&'static str),
}

/// What has to become of one row.
#[derive(Debug, Clone)]
pub enum Fate {
    /// Accepted, and this is what a reader finds.
    Read(Value),
    /// Rejected with a code, and the column at fault.
    Rejected { code: &'static str, column: Option<&'static str> },
}

/// All of them.
pub fn all() -> Vec<Case> {
    let lines = (1..).zip(TEXT.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|(number, line)| parse(number, line).unwrap_or_else(|e| panic!("line {number}: {e}: {line}"))).collect()
}

fn parse(line: usize, text: &'static str) -> Result<Case, String> {
    let cells: Vec<&str> = text.split(" | ").map(str::trim).collect();
    let [name, protocols, columns, rows, expected] = cells[..] else {
        return Err(format!("{} cells instead of 5", cells.len()));
    };
    let (protocols, arrow) = read_protocols(protocols)?;
    let (before, after) = match columns.split_once("->") {
        Some((before, after)) => (before, Some(read_columns(after)?.0)),
        None => (columns, None),
    };
    let (columns, settings) = read_columns(before)?;
    let columns = if settings.iter().any(|(key, _)| *key == "none") { None } else { Some(columns) };
    let rows: Vec<&str> = rows.split(" ;; ").map(str::trim).collect();
    let expected = read_expected(expected, &rows, after.as_deref().or(columns.as_deref()).unwrap_or_default())?;
    Ok(Case { line, name, protocols, arrow, columns, settings, after, rows, expected })
}

type Protocols = (Vec<Protocol>, Option<Vec<(String, String)>>);

fn read_protocols(text: &'static str) -> Result<Protocols, String> {
    let (mut protocols, mut arrow) = (Vec::new(), None);
    for word in text.split_whitespace() {
        match word {
            "all" => protocols.extend([Protocol::Ndjson, Protocol::Json, Protocol::Arrow]),
            "text" => protocols.extend([Protocol::Ndjson, Protocol::Json]),
            "ndjson" => protocols.push(Protocol::Ndjson),
            "json" => protocols.push(Protocol::Json),
            "arrow" => protocols.push(Protocol::Arrow),
            _ => {
                let types = word.strip_prefix("arrow:").ok_or_else(|| format!("{word:?} is no protocol"))?;
                let pairs = types.split(';').map(|pair| pair.split_once('=').unwrap_or(("v", pair)));
                arrow = Some(pairs.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect());
                protocols.push(Protocol::Arrow);
            }
        }
    }
    protocols.dedup();
    Ok((protocols, arrow))
}

type Columns = (Vec<Column>, Vec<(&'static str, &'static str)>);

fn read_columns(text: &'static str) -> Result<Columns, String> {
    let (mut columns, mut settings) = (Vec::new(), Vec::new());
    for word in text.split_whitespace() {
        if let Some(setting) = word.strip_prefix('@') {
            settings.push(setting.split_once('=').unwrap_or((setting, "")));
            continue;
        }
        let (name, kind) = word.split_once(':').ok_or_else(|| format!("{word:?} is no column"))?;
        let nullable = !kind.ends_with('!');
        columns.push(Column { name: name.to_owned(), kind: kind.trim_end_matches('!').to_owned(), nullable });
    }
    Ok((columns, settings))
}

fn read_expected(text: &'static str, rows: &[&'static str], columns: &[Column]) -> Result<Expected, String> {
    if let Some(code) = text.strip_prefix("!!") {
        return Ok(Expected::Refused(code.trim()));
    }
    let only = if let [column] = columns { Some(column.name.as_str()) } else { None };
    let fates: Vec<&str> = text.split(" ;; ").map(str::trim).collect();
    if fates.len() != rows.len() {
        return Err(format!("{} rows and {} expectations", rows.len(), fates.len()));
    }
    fates
        .into_iter()
        .zip(rows)
        .map(|(fate, row)| read_fate(fate, row, only))
        .collect::<Result<_, _>>()
        .map(Expected::Rows)
}

fn read_fate(fate: &'static str, row: &'static str, only: Option<&str>) -> Result<Fate, String> {
    if let Some(rejected) = fate.strip_prefix('!') {
        let (code, column) = rejected.split_once(' ').map_or((rejected, None), |(code, column)| (code, Some(column)));
        return Ok(Fate::Rejected { code, column });
    }
    let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| format!("{e} in {text:?}"));
    Ok(Fate::Read(match (fate, only) {
        ("=", _) => parse(row)?,
        // With one column the value alone says it.
        (value, Some(name)) => Value::Object([(name.to_owned(), parse(value)?)].into_iter().collect()),
        (values, None) => parse(values)?,
    }))
}
