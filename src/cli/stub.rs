//! A server for tests: answers as the HTTP API promises, and keeps nothing but counts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use arrow::ipc::writer::StreamWriter;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// What the stub knows, and what tests make it do.
#[derive(Debug, Default)]
pub struct Shared {
    pub tables: Mutex<BTreeMap<String, StubTable>>,
    /// Posts still to be refused with 503.
    pub refuse: AtomicU64,
    /// Rows each acknowledgement leaves out.
    pub forget: AtomicU64,
    /// Bodies of flush requests.
    pub flushes: Mutex<Vec<Value>>,
    /// Statements received.
    pub statements: Mutex<Vec<String>>,
    /// Media types of posts received.
    pub media_types: Mutex<Vec<String>>,
}

/// One table.
#[derive(Debug, Clone, Default)]
pub struct StubTable {
    pub spec: Value,
    pub rows: u64,
    pub flushed: u64,
}

/// A running stub; ends with the runtime.
#[derive(Debug)]
pub struct Stub {
    pub address: SocketAddr,
    pub shared: Arc<Shared>,
}

impl Stub {
    pub async fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let router = Router::new()
            .route("/readyz", get(async || "ready"))
            .route("/v1/tables", get(list))
            .route("/v1/tables/{table}", put(create).get(show))
            .route("/v1/tables/{table}/rows", post(append))
            .route("/v1/sql", post(sql))
            .route("/v1/status", get(status))
            .route("/v1/flush", post(flush))
            .route("/v1/checkpoint", post(checkpoint))
            .with_state(Arc::clone(&shared));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn refusal(status: StatusCode, code: &str, message: &str, help: &str) -> Response {
    (status, json!({"error": {"code": code, "message": message, "help": help}}).to_string()).into_response()
}

fn unknown(table: &str) -> Response {
    refusal(StatusCode::NOT_FOUND, "unknown_table", &format!("there is no table {table}"), "see `penstock tables list`")
}

async fn list(State(shared): State<Arc<Shared>>) -> String {
    let specs: Vec<Value> = shared.tables.lock().values().map(|t| t.spec.clone()).collect();
    json!({"tables": specs}).to_string()
}

async fn create(State(shared): State<Arc<Shared>>, Path(name): Path<String>, body: Bytes) -> Response {
    let asked: Value = serde_json::from_slice(&body).unwrap();
    let event_time = match &asked["event_time"] {
        Value::Null => json!({"from": "receipt", "column": "_received_at"}),
        column => json!({"from": "column", "name": column, "unit": asked["event_time_unit"]}),
    };
    let spec = json!({
        "name": name, "schema_version": 1, "columns": asked["columns"], "event_time": event_time,
        "bucket_seconds": 3600, "partition": if asked["partition"] == true { json!("date") } else { Value::Null },
        "sort": asked["sort"],
    });
    let mut tables = shared.tables.lock();
    match tables.get(&name) {
        Some(table) if table.spec == spec => spec.to_string().into_response(),
        Some(_) => refusal(StatusCode::CONFLICT, "table_exists", "the table differs", "drop it first"),
        None => {
            tables.insert(name, StubTable { spec: spec.clone(), ..StubTable::default() });
            (StatusCode::CREATED, spec.to_string()).into_response()
        }
    }
}

async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Response {
    let Some(table) = shared.tables.lock().get(&name).cloned() else { return unknown(&name) };
    json!({
        "table": table.spec, "id": "6f1e", "location": format!("file:///nowhere/{name}"), "delta_version": null,
        "delta_rows": table.flushed, "delta_files": 0, "unflushed_rows": table.rows - table.flushed,
    })
    .to_string()
    .into_response()
}

async fn append(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if shared.refuse.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
        let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "too much is not flushed yet", "");
        response.headers_mut().insert(header::RETRY_AFTER, "0".parse().unwrap());
        return response;
    }
    let media_type = headers[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    let rows = if media_type == super::client::NDJSON {
        body.iter().filter(|b| **b == b'\n').count() as u64
    } else {
        let batches = arrow::ipc::reader::StreamReader::try_new(body.as_ref(), None).unwrap();
        batches.map(|batch| batch.unwrap().num_rows() as u64).sum()
    };
    shared.media_types.lock().push(media_type);
    let mut tables = shared.tables.lock();
    let Some(table) = tables.get_mut(&name) else { return unknown(&name) };
    table.rows += rows;
    let acked = rows - shared.forget.load(Ordering::Relaxed).min(rows);
    json!({"table": name, "rows": acked, "durability": "synced", "receipt": "n.i.0:1", "created": null})
        .to_string()
        .into_response()
}

async fn sql(State(shared): State<Arc<Shared>>, body: String) -> Response {
    shared.statements.lock().push(body.clone());
    let lower = body.to_lowercase();
    if let Some(name) = lower.strip_prefix("select count(*) from ") {
        let rows = shared.tables.lock().get(name.trim()).map(|t| t.rows as i64);
        let Some(rows) = rows else { return unknown(name) };
        let count: ArrayRef = Arc::new(Int64Array::from(vec![rows]));
        return stream(&[RecordBatch::try_from_iter([("count(*)", count)]).unwrap()]).into_response();
    }
    match lower.as_str() {
        "select cut" => {
            let mut bytes = stream(&[sample_batch(), sample_batch()]);
            bytes.truncate(bytes.len() - 40);
            bytes.into_response()
        }
        "select none" => stream(&[sample_batch().slice(0, 0)]).into_response(),
        statement if statement.starts_with("selct") => {
            refusal(StatusCode::BAD_REQUEST, "bad_sql", "expected a statement, found selct", "SQL is read only")
        }
        _ => stream(&[sample_batch(), sample_batch()]).into_response(),
    }
}

/// Two rows: a number, a text with a null, a list.
pub fn sample_batch() -> RecordBatch {
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), Some(2)]), None]);
    RecordBatch::try_from_iter_with_nullable([
        ("n", Arc::new(Int64Array::from(vec![1, 22])) as ArrayRef, true),
        ("name", Arc::new(StringArray::from(vec![Some("a,\u{1b}[31m"), None])), true),
        ("list", Arc::new(lists), true),
    ])
    .unwrap()
}

fn stream(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), batches[0].schema_ref()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap()
}

async fn status(State(shared): State<Arc<Shared>>) -> String {
    let tables = shared.tables.lock();
    let rows: u64 = tables.values().map(|t| t.rows).sum();
    let each: Vec<Value> = tables
        .iter()
        .map(|(name, t)| {
            json!({"table": name, "open_generations": 1, "sealed_generations": 0, "unflushed_rows": t.rows,
                   "unflushed_bytes": t.rows * 100, "delta_version": null, "last_error": "no space left on device"})
        })
        .collect();
    json!({
        "node": "7b1c", "incarnation": "00000000000000aa", "version": "0.1.0", "uptime_seconds": 61.5, "ready": true,
        "reason": null, "lake_url": "file:///lake/", "process": {"cpu_seconds": rows as f64 / 1e6, "resident_bytes": 1 << 20},
        "store": {"shards": [{"shard": 0, "durable_lsn": 4096, "retained_bytes": 8192, "poisoned": null}],
            "records": rows, "groups": 1, "syncs": rows / 2, "payload_bytes": rows * 100, "written_bytes": rows * 150,
            "unflushed_bytes": rows * 100, "unflushed_rows": rows},
        "admission": {"limit_bytes": 1 << 30, "in_flight_bytes": 0, "refusals": 0},
        "tables": each,
    })
    .to_string()
}

async fn checkpoint() -> String {
    json!({"shards": [{"shard": 0, "checkpoint_lsn": 4096, "lane_bytes": 8192, "extents": 3, "segments_freed": 1,
                       "files_dropped": 2, "millis": 7}]})
    .to_string()
}

async fn flush(State(shared): State<Arc<Shared>>, body: Bytes) -> String {
    shared.flushes.lock().push(serde_json::from_slice(&body).unwrap());
    let mut tables = shared.tables.lock();
    let flushed: Vec<Value> = tables
        .iter_mut()
        .map(|(name, t)| {
            let rows = t.rows - t.flushed;
            t.flushed = t.rows;
            json!({"table": name, "delta_version": 1, "rows_flushed": rows})
        })
        .collect();
    json!({"tables": flushed}).to_string()
}
