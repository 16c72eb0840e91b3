//! The bytes of a commit: newline-separated JSON actions, ours written and anybody's read.
//!
//! Two marks make a commit recognisable as ours. `txn` (application id and sequence) lives in the table for good and says
//! *which rows* are in; `commitInfo.txnId` is unique to one call and says *which attempt* put the entry there. The
//! second is for the moment after the PUT only: checkpoints drop it.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use deltalake::kernel::Add;
use object_store::path::Path;
use penstock_store::{Incarnation, NodeId, TableId};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::{Value, json};
use uuid::Uuid;

use super::definition::{Metadata, Protocol};
use super::{Error, schema};
use crate::schema::TableSpec;

/// What all our application ids begin with.
pub(super) const APP_PREFIX: &str = "penstock/";

/// The application id under which an incarnation's seal sequences are recorded in a table's log.
pub fn app_id(node: NodeId, incarnation: Incarnation) -> String {
    format!("{APP_PREFIX}{node}/{incarnation}")
}

/// Where an entry lies, from the table's root.
pub(super) fn path(version: u64) -> Path {
    Path::from_iter(["_delta_log".to_owned(), format!("{version:020}.json")])
}

/// A `txn` action.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Txn {
    #[serde(rename = "appId")]
    pub(super) app: String,
    pub(super) version: i64,
}

/// The entry that appends data files, and with them gives the table the columns that it lacks for them.
pub(super) fn append(commit: Uuid, txn: &Txn, spec: &TableSpec, adds: &[Add], change: Option<&Metadata>) -> Bytes {
    let partition_by = json!(spec.partition.iter().collect::<Vec<_>>()).to_string();
    let info = info(commit, "WRITE", json!({ "mode": "Append", "partitionBy": partition_by }), true);
    // Without `lastUpdated`: a time would let a retention setting expire the id, and with it our memory of the rows.
    let txn = json!({ "txn": { "appId": txn.app, "version": txn.version } });
    let change = change.map(|metadata| json!({ "metaData": metadata.action() }));
    let adds = adds.iter().map(|add| json!({ "add": add }));
    lines([info].into_iter().chain(change).chain([txn]).chain(adds))
}

/// The entry that creates the table, version 0.
pub(super) fn create(commit: Uuid, id: TableId, spec: &TableSpec) -> Bytes {
    let partition: Vec<&String> = spec.partition.iter().collect();
    let parameters = json!({ "mode": "ErrorIfExists", "partitionBy": json!(partition).to_string() });
    let protocol = json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 2 } });
    let metadata = json!({ "metaData": {
        "id": id.to_string(),
        "name": spec.name.to_string(),
        "format": { "provider": "parquet", "options": {} },
        "schemaString": schema::of(spec).to_string(),
        "partitionColumns": partition,
        "configuration": {},
        "createdTime": now_millis(),
    }});
    lines([info(commit, "CREATE TABLE", parameters, true), protocol, metadata].into_iter())
}

pub(super) fn info(commit: Uuid, operation: &str, parameters: Value, blind: bool) -> Value {
    json!({ "commitInfo": {
        "timestamp": now_millis(),
        "operation": operation,
        "operationParameters": parameters,
        "isBlindAppend": blind,
        "engineInfo": concat!("penstock/", env!("CARGO_PKG_VERSION")),
        "txnId": commit.to_string(),
    }})
}

pub(super) fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn lines(actions: impl Iterator<Item = Value>) -> Bytes {
    actions.map(|action| action.to_string()).collect::<Vec<_>>().join("\n").into()
}

/// What of an entry matters to the next commit.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) commit: Option<Uuid>,
    pub(super) txns: Vec<Txn>,
    pub(super) protocol: Option<Protocol>,
    pub(super) metadata: Option<Metadata>,
}

impl Entry {
    /// Reads the entry of `version`, whoever wrote it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a line is no JSON, or an action that matters is not what the protocol says.
    pub(super) fn parse(location: &str, version: u64, bytes: &[u8]) -> Result<Self, Error> {
        Self::read(bytes).map_err(|error| Error::Corrupt {
            location: format!("{location} version {version}"),
            reason: format!("the commit entry: {error}"),
        })
    }

    fn read(bytes: &[u8]) -> serde_json::Result<Self> {
        let mut entry = Self::default();
        let mut actions = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>().peekable();
        if actions.peek().is_none() {
            return Err(serde_json::Error::custom("it is empty"));
        }
        for action in actions {
            let mut action = action?;
            if let Some(info) = action.get("commitInfo") {
                entry.commit = info.get("txnId").and_then(Value::as_str).and_then(|id| id.parse().ok());
            } else if let Some(txn) = action.get_mut("txn") {
                entry.txns.push(serde_json::from_value(txn.take())?);
            } else if let Some(protocol) = action.get_mut("protocol") {
                entry.protocol = Some(serde_json::from_value(protocol.take())?);
            } else if let Some(metadata) = action.get_mut("metaData") {
                entry.metadata = Some(serde_json::from_value(metadata.take())?);
            }
        }
        Ok(entry)
    }
}
