//! Dead letters: read through SQL, replayed through ingest.
//!
//! A node shows the letters of all nodes that write to its namespace, as far as they are in Delta, and replays its own: two nodes that
//! replayed the same letter would append its row twice. Within a node one replay runs at a time.

use std::collections::{BTreeMap, HashSet};

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimestampMicrosecondType};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Engine;
use crate::ingest::letters::replay::{Letter as Row, MAX_BYTES, MAX_LETTERS, Replayed};
use crate::ingest::post::PostError;
use crate::query;
use crate::schema::letters::{self, REJECTED, REPLAYED, REPLAYING};
use crate::schema::{TableName, name};

/// Most letters that are listed or replayed at once.
pub const MAX_SHOWN: usize = 100_000;

/// What letters are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wanted {
    pub namespace: String,
    /// Of one table; `namespace.table`, or a table of the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// With this reason code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// These.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// Those that were replayed as well.
    pub all: bool,
    pub limit: usize,
}

impl Default for Wanted {
    fn default() -> Self {
        let namespace = name::DEFAULT_NAMESPACE.to_owned();
        Self { namespace, table: None, code: None, ids: Vec::new(), all: false, limit: 100 }
    }
}

/// A letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    pub id: String,
    /// `pending`, `replaying` or `replayed`.
    pub state: String,
    pub table: String,
    /// Microseconds since the epoch.
    pub received_at: i64,
    pub node: String,
    pub source: String,
    pub sender: String,
    pub row: i64,
    pub code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    pub reason: String,
    pub help: String,
    /// The row as it was sent; where that is no UTF-8, with replacement characters (SQL has the bytes).
    pub original: String,
    #[serde(skip)]
    pub bytes: Bytes,
}

/// Why letters cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Wanted(String),
    #[error(transparent)]
    Query(#[from] query::Error),
    #[error(transparent)]
    Post(#[from] PostError),
}

/// What a replay came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Letters whose rows were appended.
    pub replayed: u64,
    /// Of these, letters of replays that had been cut short.
    pub resumed: u64,
    /// Letters that their tables still cannot hold.
    pub still_rejected: u64,
    /// Pending letters that other nodes have, and replay.
    pub elsewhere: u64,
    /// Why, of the first of them.
    pub errors: Vec<Still>,
}

/// A letter that cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Still {
    pub id: String,
    pub code: String,
    pub message: String,
    pub help: String,
}

/// Most reasons that are told.
const MAX_ERRORS: usize = 10;

impl Engine {
    /// The letters that are wanted, the oldest first.
    ///
    /// # Errors
    /// [`Error`]
    pub async fn letters(&self, wanted: &Wanted) -> Result<Vec<Letter>, Error> {
        let filter = filter(wanted)?;
        let name = letters::table_name(&wanted.namespace);
        if self.registry.by_name(&name).is_none() {
            return Ok(Vec::new());
        }
        let (table, limit) = (quoted(&name), wanted.limit.min(MAX_SHOWN));
        let open = if wanted.all { "" } else { "and d.id is null" };
        let sql = format!(
            "select l.id, l.node, l.table_name, l.source, l.sender, l.code, l.column_name, l.value, l.reason, l.help, \
             l.row_number, l.received_at, l.original, d.state as reached \
             from {table} l left join (select id, min(state) as state from {table} where state <> '{REJECTED}' group by id) d \
             on d.id = l.id where l.state = '{REJECTED}' {open}{filter} order by l.received_at, l.row_number, l.id limit {limit}"
        );
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for batch in self.rows_of(&sql).await? {
            found.extend(Letter::all(&batch)?.into_iter().filter(|letter| seen.insert(letter.id.clone())));
        }
        Ok(found)
    }

    /// Replays this node's pending letters that are wanted; before that, what earlier replays have left open in the namespace.
    ///
    /// # Errors
    /// [`Error`]; what was appended until then is not appended again.
    pub async fn replay_letters(&self, wanted: &Wanted) -> Result<Outcome, Error> {
        let _alone = self.replaying.lock().await;
        let mut outcome = Outcome::default();
        self.resume_replays(&wanted.namespace, &mut outcome).await?;
        let node = self.store.node().to_string();
        let pending = self.letters(&Wanted { all: false, ..wanted.clone() }).await?;
        let (own, others): (Vec<_>, Vec<_>) = pending.into_iter().partition(|letter| letter.node == node);
        outcome.elsewhere = others.len() as u64;
        for (name, rows) in by_table(own) {
            for chunk in chunks(&rows) {
                outcome.add(self.ingest.replay(&name, chunk).await?);
            }
        }
        Ok(outcome)
    }

    async fn resume_replays(&self, namespace: &str, outcome: &mut Outcome) -> Result<(), Error> {
        check_namespace(namespace)?;
        let name = letters::table_name(namespace);
        if self.registry.by_name(&name).is_none() {
            return Ok(());
        }
        let (table, node) = (quoted(&name), self.store.node());
        let sql = format!(
            "select distinct l.id, l.node, l.table_name, l.source, l.sender, l.code, l.column_name, l.value, l.reason, l.help, \
             l.row_number, l.received_at, l.original, b.replay as reached \
             from {table} b join {table} l on l.id = b.id and l.state = '{REJECTED}' \
             where b.state = '{REPLAYING}' and b.node = '{node}' \
             and b.id not in (select id from {table} where state = '{REPLAYED}')"
        );
        let mut open: BTreeMap<String, Vec<Letter>> = BTreeMap::new();
        let mut seen = HashSet::new();
        for batch in self.rows_of(&sql).await? {
            for letter in Letter::all(&batch)? {
                if seen.insert(letter.id.clone()) {
                    open.entry(letter.state.clone()).or_default().push(letter);
                }
            }
        }
        for (replay, of) in open {
            let Ok(replay) = Uuid::parse_str(&replay) else { continue };
            for (name, rows) in by_table(of) {
                let replayed = self.ingest.replay_again(replay, &name, &rows).await?;
                outcome.resumed += replayed.done.len() as u64;
                outcome.add(replayed);
            }
        }
        Ok(())
    }

    async fn rows_of(&self, sql: &str) -> Result<Vec<RecordBatch>, query::Error> {
        let mut query = self.sql.query(sql).await?;
        let mut batches = Vec::new();
        while let Some(batch) = query.next().await? {
            batches.push(batch);
        }
        Ok(batches)
    }
}

impl Outcome {
    fn add(&mut self, replayed: Replayed) {
        self.replayed += replayed.done.len() as u64;
        self.still_rejected += replayed.still.len() as u64;
        let room = MAX_ERRORS.saturating_sub(self.errors.len());
        self.errors.extend(replayed.still.into_iter().take(room).map(|(id, reason)| Still {
            id,
            code: reason.code.to_owned(),
            message: reason.message,
            help: reason.help,
        }));
    }
}

impl Letter {
    /// The letters of a result whose last column says how far each has come.
    fn all(batch: &RecordBatch) -> Result<Vec<Self>, query::Error> {
        let column = |at: usize, kind: &DataType| {
            cast(batch.column(at), kind).map_err(|e| query::Error::Failed(format!("a dead letter: {e}")))
        };
        let texts = (0..10).chain([13]).map(|at| column(at, &DataType::Utf8)).collect::<Result<Vec<_>, _>>()?;
        let text = |at: usize, row: usize| {
            let texts = texts[at].as_string::<i32>();
            (!arrow::array::Array::is_null(texts, row)).then(|| texts.value(row).to_owned())
        };
        let rows = column(10, &DataType::Int64)?;
        let micros = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
        let (times, originals) = (column(11, &micros)?, column(12, &DataType::Binary)?);
        let letter = |row: usize| {
            let required = |at| text(at, row).unwrap_or_default();
            let bytes = Bytes::copy_from_slice(originals.as_binary::<i32>().value(row));
            Self {
                id: required(0),
                state: text(10, row).unwrap_or_else(|| "pending".to_owned()),
                table: required(2),
                received_at: times.as_primitive::<TimestampMicrosecondType>().value(row),
                node: required(1),
                source: required(3),
                sender: required(4),
                row: rows.as_primitive::<Int64Type>().value(row),
                code: required(5),
                column: text(6, row),
                value: text(7, row),
                reason: required(8),
                help: required(9),
                original: String::from_utf8_lossy(&bytes).into_owned(),
                bytes,
            }
        };
        Ok((0..batch.num_rows()).map(letter).collect())
    }
}

/// The letters of each table; those of one that is no name are of none.
fn by_table(letters: Vec<Letter>) -> BTreeMap<TableName, Vec<Row>> {
    let mut tables: BTreeMap<TableName, Vec<Row>> = BTreeMap::new();
    for Letter { id, table, received_at, bytes: original, .. } in letters {
        if let Ok(table) = table.parse::<TableName>() {
            tables.entry(table.clone()).or_default().push(Row { id, table, received_at, original });
        }
    }
    tables
}

/// Parts that one replay takes up.
fn chunks(rows: &[Row]) -> Vec<&[Row]> {
    let (mut chunks, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (at, row) in rows.iter().enumerate() {
        bytes += row.original.len();
        if at > from && (at - from >= MAX_LETTERS || bytes > MAX_BYTES) {
            chunks.push(&rows[from..at]);
            (from, bytes) = (at, row.original.len());
        }
    }
    if from < rows.len() {
        chunks.push(&rows[from..]);
    }
    chunks
}

fn quoted(name: &TableName) -> String {
    format!("\"{}\".{}", name.namespace(), name.name())
}

fn check_namespace(namespace: &str) -> Result<(), Error> {
    TableName::new(namespace, letters::TABLE_NAME).map(drop).map_err(|e| Error::Wanted(e.to_string()))
}

/// The conditions, of texts that need no quoting.
fn filter(wanted: &Wanted) -> Result<String, Error> {
    use std::fmt::Write;
    check_namespace(&wanted.namespace)?;
    let mut filter = String::new();
    if let Some(table) = &wanted.table {
        let table = match table.contains('.') {
            true => table.parse(),
            false => TableName::new(&wanted.namespace, table),
        };
        let table = table.map_err(|e| Error::Wanted(e.to_string()))?;
        if table.namespace() != wanted.namespace {
            return Err(Error::Wanted(format!("{table} is not in the namespace {}", wanted.namespace)));
        }
        let _ = write!(filter, " and l.table_name = '{table}'");
    }
    if let Some(code) = &wanted.code {
        if code.is_empty() || !code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit()) {
            return Err(Error::Wanted(format!("{code:?} is no reason code, such as type_mismatch")));
        }
        let _ = write!(filter, " and l.code = '{code}'");
    }
    if wanted.ids.len() > MAX_LETTERS {
        return Err(Error::Wanted(format!("at most {MAX_LETTERS} letters can be named at once")));
    }
    if let Some(bad) = wanted.ids.iter().find(|id| !is_id(id)) {
        let bad: String = bad.chars().take(64).collect();
        return Err(Error::Wanted(format!("{bad:?} is not the id of a dead letter")));
    }
    if !wanted.ids.is_empty() {
        let _ = write!(filter, " and l.id in ('{}')", wanted.ids.join("','"));
    }
    Ok(filter)
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 64 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-' || b == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_texts_become_part_of_a_query() {
        let wanted = |change: fn(&mut Wanted)| {
            let mut wanted = Wanted::default();
            change(&mut wanted);
            filter(&wanted).map_err(|e| e.to_string())
        };
        assert_eq!(wanted(|_| ()).expect("should do"), "");
        assert_eq!(
            wanted(|w| {
                w.table = Some("cpu".into());
                w.code = Some("type_mismatch".into());
                w.ids = vec!["0a-1.7".into()];
            })
            .expect("should do"),
            " and l.table_name = 'default.cpu' and l.code = 'type_mismatch' and l.id in ('0a-1.7')"
        );
        assert!(wanted(|w| w.namespace = "a\" b".into()).is_err());
        assert!(wanted(|w| w.table = Some("x' or 1=1".into())).is_err());
        assert!(wanted(|w| w.table = Some("other.x".into())).expect_err("should fail").contains("other.x"));
        assert!(wanted(|w| w.code = Some("a'b".into())).is_err());
        assert!(wanted(|w| w.ids = vec!["x'".into()]).is_err());
    }

    #[test]
    fn a_replay_takes_up_a_bounded_part() {
        let row = |bytes: usize| Row {
            id: "1".into(),
            table: "t".parse().expect("should be a name"),
            received_at: 0,
            original: Bytes::from(vec![b' '; bytes]),
        };
        let sizes = |rows: &[Row]| chunks(rows).into_iter().map(<[Row]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), Vec::<usize>::new());
        assert_eq!(sizes(&vec![row(1); MAX_LETTERS + 1]), [MAX_LETTERS, 1]);
        assert_eq!(sizes(&[row(MAX_BYTES + 1), row(1), row(MAX_BYTES - 1), row(1)]), [1, 2, 1]);
    }
}
