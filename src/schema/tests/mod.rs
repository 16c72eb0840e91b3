mod arrow;
mod kind;
mod name;
mod packed;
mod payload;
mod remainder;
mod spec;
mod time;
mod versions;

use super::{ColumnSpec, ColumnType, EventTime, TableSpec, TimeUnit};

pub(crate) fn column(name: &str, kind: &str) -> ColumnSpec {
    ColumnSpec { name: name.to_owned(), kind: kind.parse().unwrap(), nullable: true }
}

/// A table with one column of each type.
pub(crate) fn every_type() -> TableSpec {
    let ts = ColumnSpec { name: "ts".to_owned(), kind: ColumnType::Timestamp, nullable: false };
    let columns = vec![
        ts,
        column("b", "boolean"),
        column("i", "int"),
        column("l", "long"),
        column("f", "float"),
        column("d", "double"),
        column("s", "string"),
        column("bin", "binary"),
        column("day", "date"),
        column("at", "timestamp"),
        column("dec", "decimal(20,2)"),
        column("tags", "list<string>"),
        column("pos", "struct<x:double,y:double,names:list<string>>"),
        column("attrs", "map<string,long>"),
    ];
    TableSpec {
        name: "every_type".parse().unwrap(),
        schema_version: 1,
        partition: Some(TableSpec::partition_name(&columns)),
        columns,
        event_time: EventTime::Column { name: "ts".to_owned(), unit: Some(TimeUnit::Ms) },
        bucket_seconds: 3_600,
        sort: vec!["s".to_owned()],
        history: vec![],
        bloom: vec![],
        rules: crate::schema::Rules::default(),
    }
}
