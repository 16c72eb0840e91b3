//! What a Delta table says about itself (its `protocol` and `metaData` actions), and whether we may append to it.
//!
//! Checked when a table is opened, and again for each such action that another writer commits.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Error;
use super::identity::Identity;
use super::retention::{self, Properties, Unsafe};
use super::schema::{self, Field};
use crate::schema::TableSpec;

/// Features that do not concern a writer which only appends whole files, unless [`Definition::in_use`] finds them used.
/// All others are refused by name: they ask something of every writer, or are not known here.
const WRITABLE: [&str; 9] = [
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "generatedColumns",
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
];

/// The `protocol` action.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    min_reader_version: i64,
    min_writer_version: i64,
    #[serde(default)]
    reader_features: Option<Vec<String>>,
    #[serde(default)]
    writer_features: Option<Vec<String>>,
}

/// The `metaData` action.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Metadata {
    known: Known,
    /// All of it, to be written again with another schema.
    action: Value,
}

/// What of it matters here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    id: String,
    #[serde(default)]
    name: Option<String>,
    schema_string: String,
    #[serde(default)]
    partition_columns: Vec<String>,
    #[serde(default)]
    configuration: Properties,
}

impl TryFrom<Value> for Metadata {
    type Error = serde_json::Error;

    fn try_from(action: Value) -> serde_json::Result<Self> {
        Ok(Self { known: Known::deserialize(&action)?, action })
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.known == other.known
    }
}

impl Metadata {
    /// The table's properties.
    pub(super) fn properties(&self) -> &Properties {
        &self.known.configuration
    }

    /// The action as it is written: all that it said, whoever said it.
    pub(super) fn action(&self) -> &Value {
        &self.action
    }

    /// The same table with another schema.
    fn with_schema(&self, schema_string: String) -> Self {
        let mut changed = self.clone();
        if let Value::Object(action) = &mut changed.action {
            action.insert("schemaString".to_owned(), Value::String(schema_string.clone()));
            // Libraries write down what was not there as nothing; no writer expects that.
            action.retain(|_, value| !value.is_null());
        }
        changed.known.schema_string = schema_string;
        changed
    }
}

/// A table's protocol and metadata at one version.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    protocol: Protocol,
    metadata: Metadata,
    fields: Vec<Field>,
}

impl Definition {
    pub(super) fn new(location: &str, protocol: Protocol, metadata: Metadata) -> Result<Self, Error> {
        let fields = schema::parse(&metadata.known.schema_string).map_err(|error| Error::Corrupt {
            location: location.to_owned(),
            reason: format!("its schema string: {error}"),
        })?;
        Ok(Self { protocol, metadata, fields })
    }

    /// The same, from delta-rs's own types of the two actions.
    pub(super) fn of(location: &str, protocol: &impl Serialize, metadata: &impl Serialize) -> Result<Self, Error> {
        let corrupt =
            |error: serde_json::Error| Error::Corrupt { location: location.to_owned(), reason: error.to_string() };
        let protocol = serde_json::to_value(protocol).and_then(serde_json::from_value).map_err(corrupt)?;
        let metadata = serde_json::to_value(metadata).and_then(serde_json::from_value).map_err(corrupt)?;
        Self::new(location, protocol, metadata)
    }

    /// Whether these are the two actions.
    pub(super) fn is_of(&self, protocol: &Protocol, metadata: &Metadata) -> bool {
        self.protocol == *protocol && self.metadata == *metadata
    }

    /// The definition behind a commit that carries one or both of the actions.
    pub(super) fn changed(
        &self,
        location: &str,
        protocol: Option<Protocol>,
        metadata: Option<Metadata>,
    ) -> Result<Self, Error> {
        Self::new(
            location,
            protocol.unwrap_or_else(|| self.protocol.clone()),
            metadata.unwrap_or_else(|| self.metadata.clone()),
        )
    }

    /// Whether the table is ours and of a kind that we may append to, whatever its columns.
    pub(super) fn check_table(&self, location: &str, identity: &Identity) -> Result<(), Error> {
        identity.accept(location, &self.metadata.known.id, self.metadata.known.name.as_deref())?;
        let location = || location.to_owned();
        let features = self.refused_features();
        if !features.is_empty() {
            return Err(Error::Features { location: location(), features });
        }
        retention::check(self.metadata.properties()).map_err(|Unsafe { property, value, reason }| Error::Retention {
            location: location(),
            property,
            value,
            reason,
        })
    }

    /// Whether rows of the definition fit the table's columns, once it has those of [`change_for`](Self::change_for).
    pub(super) fn check_rows(&self, location: &str, spec: &TableSpec) -> Result<(), Error> {
        let expected: Vec<String> = spec.partition.iter().cloned().collect();
        if self.metadata.known.partition_columns != expected {
            let found = self.metadata.known.partition_columns.clone();
            return Err(Error::Partitioning { location: location.to_owned(), found, expected });
        }
        let problems = schema::problems(spec, &self.fields);
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::Schema { location: location.to_owned(), schema_version: spec.schema_version, problems })
    }

    /// The table's properties.
    pub(super) fn properties(&self) -> &Properties {
        self.metadata.properties()
    }

    /// The `metaData` action that gives the table the columns and the width of types of the definition that it lacks: the same
    /// table, everything else as it is. None if it lacks nothing.
    pub(super) fn change_for(&self, spec: &TableSpec) -> Option<Metadata> {
        let merged = schema::merged(spec, &self.metadata.known.schema_string, &self.fields)?;
        Some(self.metadata.with_schema(merged))
    }

    fn refused_features(&self) -> Vec<String> {
        let Protocol { min_reader_version: reader, min_writer_version: writer, .. } = self.protocol;
        if reader > 3 || writer > 7 {
            return vec![format!("protocol reader version {reader}, writer version {writer}")];
        }
        let listed = [&self.protocol.reader_features, &self.protocol.writer_features];
        let mut refused: Vec<String> = listed
            .into_iter()
            .flatten()
            .flatten()
            .filter(|feature| !WRITABLE.contains(&feature.as_str()))
            .cloned()
            .chain(self.in_use())
            .collect();
        refused.sort();
        refused.dedup();
        refused
    }

    /// Features that are harmless until a column or a property uses them.
    fn in_use(&self) -> Vec<String> {
        let configuration = self.metadata.properties();
        let mut used = Vec::new();
        let mapping = configuration.get("delta.columnMapping.mode").and_then(Option::as_deref);
        if mapping.is_some_and(|mode| mode != "none") {
            used.push("columnMapping".to_owned());
        }
        let constraints = configuration.keys().filter(|key| key.starts_with("delta.constraints."));
        used.extend(constraints.map(|key| format!("checkConstraints ({key})")));
        for field in &self.fields {
            used_by_field(field, &mut used);
        }
        used
    }
}

fn used_by_field(field: &Field, used: &mut Vec<String>) {
    for key in field.metadata.keys() {
        let feature = match key.as_str() {
            "delta.invariants" => "invariants",
            "delta.generationExpression" => "generatedColumns",
            key if key.starts_with("delta.identity.") => "identityColumns",
            _ => continue,
        };
        used.push(format!("{feature} (column {:?})", field.name));
    }
    used_by_kind(&field.kind, used);
}

/// Fields of structs, however deep, may carry invariants too.
fn used_by_kind(kind: &Value, used: &mut Vec<String>) {
    for value in kind.as_object().into_iter().flat_map(|object| object.values()) {
        match value {
            Value::Array(fields) => {
                fields.iter().filter_map(|field| Field::deserialize(field).ok()).for_each(|f| used_by_field(&f, used));
            }
            nested => used_by_kind(nested, used),
        }
    }
}
