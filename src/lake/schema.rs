//! A table's definition as a Delta schema, and whether a Delta table's schema takes rows of a definition.
//!
//! **Wider types.** A column's type in the table may become wider while the files that are there keep the narrower one, if
//! every reader follows. Tried with deltalake 1.6.6 (pyarrow and DataFusion), duckdb 1.5.5 and polars 2.1, on partitioned
//! tables with file statistics and without the table feature `typeWidening`, reading all rows and by filters on the column:
//!
//! | change | followed by |
//! |---|---|
//! | `int` to `long`, `float` to `double` | all of them |
//! | `decimal(p,s)` to more digits, same `s` | all rows by all of them; filters for one value missed rows in deltalake |
//! | `int` to `double` or a decimal, `long` to a decimal, a decimal to another `s`, `date` to `timestamp` | not by polars |
//!
//! So the first line is done, and everything else is refused: a column of another name takes the wider values. Spark was
//! not tried; the Delta protocol asks for `typeWidening` there, which delta-rs does not write (and with it we refuse the
//! table), so who reads with an older Spark should add a column of another name for these as well.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::schema::{ColumnSpec, ColumnType, TableSpec};

/// A field of a Delta schema.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Field {
    pub(super) name: String,
    /// A primitive's name, or an object for a nested type.
    #[serde(rename = "type")]
    pub(super) kind: Value,
    pub(super) nullable: bool,
    #[serde(default)]
    pub(super) metadata: HashMap<String, Value>,
}

#[derive(Deserialize)]
struct Struct {
    fields: Vec<Field>,
}

/// The fields of a metaData action's `schemaString`.
pub(super) fn parse(schema_string: &str) -> serde_json::Result<Vec<Field>> {
    serde_json::from_str::<Struct>(schema_string).map(|root| root.fields)
}

/// The definition's columns, the derived partition column last, as Delta writes a schema down.
pub(super) fn of(spec: &TableSpec) -> Value {
    let mut fields: Vec<Value> = spec.columns.iter().map(field).collect();
    fields.extend(spec.partition.iter().map(|name| named(name, json!("date"), true)));
    json!({ "type": "struct", "fields": fields })
}

fn field(column: &ColumnSpec) -> Value {
    named(&column.name, kind(&column.kind), column.nullable)
}

fn named(name: &str, kind: Value, nullable: bool) -> Value {
    json!({ "name": name, "type": kind, "nullable": nullable, "metadata": {} })
}

fn kind(column: &ColumnType) -> Value {
    match column {
        ColumnType::Boolean => json!("boolean"),
        ColumnType::Int => json!("integer"),
        ColumnType::Long => json!("long"),
        ColumnType::Float => json!("float"),
        ColumnType::Double => json!("double"),
        ColumnType::String => json!("string"),
        ColumnType::Binary => json!("binary"),
        ColumnType::Date => json!("date"),
        ColumnType::Timestamp => json!("timestamp"),
        ColumnType::Decimal { precision, scale } => json!(format!("decimal({precision},{scale})")),
        ColumnType::List(item) => json!({ "type": "array", "elementType": kind(item), "containsNull": true }),
        ColumnType::Struct(fields) => {
            json!({ "type": "struct", "fields": fields.iter().map(field).collect::<Vec<_>>() })
        }
        ColumnType::Map(value) => {
            json!({ "type": "map", "keyType": "string", "valueType": kind(value), "valueContainsNull": true })
        }
    }
}

/// Why a table with these fields would not take rows of the definition; empty where it does. The table may have more
/// columns than the rows, as long as they may be null, and wider types. Columns that it is [`lacking`] and types that are
/// too narrow in it are no reason: it gets them.
pub(super) fn problems(spec: &TableSpec, table: &[Field]) -> Vec<String> {
    let mut problems = Vec::new();
    let lacking: HashSet<&str> = lacking(spec, table).into_iter().map(|column| column.name.as_str()).collect();
    for name in &lacking {
        if let Some(twin) = table.iter().find(|field| field.name.eq_ignore_ascii_case(name)) {
            problems
                .push(format!("column {name:?} is {:?} in the table, and readers do not tell them apart", twin.name));
        }
    }
    match serde_json::from_value::<Struct>(of(spec)) {
        Ok(mut ours) => {
            ours.fields.retain(|field| !lacking.contains(field.name.as_str()));
            compare_fields("", &ours.fields, table, &mut problems);
        }
        Err(error) => problems.push(format!("the definition has no Delta schema: {error}")),
    }
    problems
}

/// The columns of the definition that a table with these fields does not have and can get: its rows have none of them.
pub(super) fn lacking<'a>(spec: &'a TableSpec, table: &[Field]) -> Vec<&'a ColumnSpec> {
    let there: HashSet<&str> = table.iter().map(|field| field.name.as_str()).collect();
    spec.columns.iter().filter(|column| column.nullable && !there.contains(column.name.as_str())).collect()
}

/// The table's schema string with the columns that it lacks behind its own, and types as wide as the definition's; none if
/// that is what it has.
pub(super) fn merged(spec: &TableSpec, schema_string: &str, table: &[Field]) -> Option<String> {
    let lacking = lacking(spec, table);
    let there: HashMap<&str, &Value> = table.iter().map(|field| (field.name.as_str(), &field.kind)).collect();
    let is_narrow = |column: &&ColumnSpec| {
        there.get(column.name.as_str()).is_some_and(|theirs| widens(theirs, &kind(&column.kind)))
    };
    let wider: HashMap<&str, Value> =
        spec.columns.iter().filter(is_narrow).map(|column| (column.name.as_str(), kind(&column.kind))).collect();
    if lacking.is_empty() && wider.is_empty() {
        return None;
    }
    let mut schema: Value = serde_json::from_str(schema_string).ok()?;
    let fields = schema.get_mut("fields")?.as_array_mut()?;
    for field in fields.iter_mut() {
        if let Some(kind) = field["name"].as_str().and_then(|name| wider.get(name)) {
            field["type"] = kind.clone();
        }
    }
    fields.extend(lacking.into_iter().map(field));
    Some(schema.to_string())
}

/// As [`ColumnType::widens_to`], by the types' Delta names.
fn widens(narrow: &Value, wide: &Value) -> bool {
    [(ColumnType::Int, ColumnType::Long), (ColumnType::Float, ColumnType::Double)]
        .iter()
        .any(|(from, to)| from.widens_to(to) && *narrow == kind(from) && *wide == kind(to))
}

fn compare_fields(parent: &str, ours: &[Field], theirs: &[Field], problems: &mut Vec<String>) {
    for field in ours {
        let path = format!("{parent}{}", field.name);
        let Some(other) = theirs.iter().find(|other| other.name == field.name) else {
            problems.push(format!("column {path:?} is missing"));
            continue;
        };
        if field.nullable && !other.nullable {
            problems.push(format!("column {path:?} may be null here and not in the table"));
        }
        // Both ways: files may have the narrower type, and the table gets the wider one.
        let whole_column = parent.is_empty();
        if whole_column && (widens(&field.kind, &other.kind) || widens(&other.kind, &field.kind)) {
            continue;
        }
        compare_kinds(&path, &field.kind, &other.kind, problems);
    }
    for other in theirs.iter().filter(|other| !other.nullable) {
        if !ours.iter().any(|field| field.name == other.name) {
            problems.push(format!("column \"{parent}{}\" must not be null, and rows do not have it", other.name));
        }
    }
}

fn compare_kinds(path: &str, ours: &Value, theirs: &Value, problems: &mut Vec<String>) {
    let (Value::Object(mine), Value::Object(other)) = (ours, theirs) else {
        if ours != theirs {
            problems.push(format!("column {path:?} is {} in the table and {} here", name(theirs), name(ours)));
        }
        return;
    };
    if mine.get("type") != other.get("type") {
        problems.push(format!("column {path:?} is {} in the table and {} here", name(theirs), name(ours)));
        return;
    }
    let null = Value::Null;
    let both = |key: &str| (mine.get(key).unwrap_or(&null), other.get(key).unwrap_or(&null));
    match mine.get("type").and_then(Value::as_str) {
        Some("struct") => {
            let (mine, other) = (fields(ours), fields(theirs));
            compare_fields(&format!("{path}."), &mine, &other, problems);
        }
        Some("array") => {
            compare_nulls(path, both("containsNull"), problems);
            let (mine, other) = both("elementType");
            compare_kinds(&format!("{path}[]"), mine, other, problems);
        }
        _ => {
            compare_nulls(path, both("valueContainsNull"), problems);
            let (mine, other) = both("keyType");
            compare_kinds(&format!("{path} (key)"), mine, other, problems);
            let (mine, other) = both("valueType");
            compare_kinds(&format!("{path} (value)"), mine, other, problems);
        }
    }
}

fn compare_nulls(path: &str, (ours, theirs): (&Value, &Value), problems: &mut Vec<String>) {
    if ours == &json!(true) && theirs == &json!(false) {
        problems.push(format!("items of {path:?} may be null here and not in the table"));
    }
}

fn fields(kind: &Value) -> Vec<Field> {
    Struct::deserialize(kind).map(|kind| kind.fields).unwrap_or_default()
}

fn name(kind: &Value) -> &str {
    kind.as_str().or_else(|| kind.get("type").and_then(Value::as_str)).unwrap_or("of an unknown type")
}
