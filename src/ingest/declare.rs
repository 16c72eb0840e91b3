//! The body of a table's declaration, and the definition it stands for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::schema::spec::{DEFAULT_BUCKET_SECONDS, RECEIPT_COLUMN, Rules, RulesPatch, SpecError};
use crate::schema::{ColumnSpec, ColumnType, EventTime, TableName, TableSpec, TimeUnit};

/// What `PUT /v1/tables/{table}` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    pub columns: Vec<ColumnSpec>,
    /// The event-time column. Without one: the first of `timestamp`, `time` and `ts` that is a timestamp and not nullable, else
    /// the time of receipt, in a column of its own.
    #[serde(default)]
    pub event_time: Option<String>,
    /// Unit of event times that come as epoch numbers.
    #[serde(default)]
    pub event_time_unit: Option<TimeUnit>,
    /// Width of a bucket; divides a day. Default 1h.
    #[serde(default, with = "humantime_serde")]
    pub bucket: Option<Duration>,
    /// Whether the table is partitioned by the UTC date of the event time. Default true.
    #[serde(default = "partitioned_by_default")]
    pub partition: bool,
    /// Sort columns of the data files; the event time is the last one by itself.
    #[serde(default)]
    pub sort: Vec<String>,
    /// Columns of ids for which the data files carry a Bloom filter.
    #[serde(default)]
    pub bloom: Vec<String>,
    /// What the table takes. What is not said is as it was, and the default of a new table.
    #[serde(default)]
    pub rules: RulesPatch,
}

fn partitioned_by_default() -> bool {
    true
}

const EVENT_TIME_NAMES: [&str; 3] = ["timestamp", "time", "ts"];

impl Declaration {
    /// The table's definition, checked. `rules` are those of the table if it is there.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn into_spec(self, name: TableName, rules: Option<Rules>) -> Result<TableSpec, SpecError> {
        let mut columns = self.columns;
        let event_time = match self.event_time.or_else(|| implied_event_time(&columns)) {
            Some(name) => EventTime::Column { name, unit: self.event_time_unit },
            None => {
                columns.push(ColumnSpec {
                    name: RECEIPT_COLUMN.to_owned(),
                    kind: ColumnType::Timestamp,
                    nullable: false,
                });
                EventTime::Receipt { column: RECEIPT_COLUMN.to_owned() }
            }
        };
        let bucket_seconds = match self.bucket {
            None => DEFAULT_BUCKET_SECONDS,
            Some(width) if width.subsec_nanos() == 0 => {
                u32::try_from(width.as_secs()).map_err(|_| SpecError::BucketWidth(width.as_secs()))?
            }
            Some(width) => return Err(SpecError::BucketWidth(width.as_secs())),
        };
        let partition = self.partition.then(|| TableSpec::partition_name(&columns));
        let spec = TableSpec {
            name,
            schema_version: 1,
            columns,
            event_time,
            bucket_seconds,
            partition,
            sort: self.sort,
            history: Vec::new(),
            bloom: self.bloom,
            rules: self.rules.onto(rules.unwrap_or_default()),
        };
        spec.validate()?;
        Ok(spec)
    }
}

fn implied_event_time(columns: &[ColumnSpec]) -> Option<String> {
    let fits = |c: &&ColumnSpec| c.kind == ColumnType::Timestamp && !c.nullable;
    EVENT_TIME_NAMES
        .iter()
        .find_map(|name| columns.iter().filter(fits).find(|c| c.name == *name))
        .map(|c| c.name.clone())
}

#[cfg(test)]
mod tests;
