use super::{column, every_type};
use crate::schema::spec::Earlier;
use crate::schema::spec::SpecError;
use crate::schema::{ColumnSpec, ColumnType, EventTime, TableSpec, TimeUnit};

#[test]
fn a_definition_survives_json() {
    let spec = every_type();
    spec.validate().unwrap();
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<TableSpec>(&json).unwrap(), spec);
}

/// The form that catalogs and logs hold: changing it needs a new version of both.
#[test]
fn the_json_form_is_stable() {
    let spec = TableSpec {
        name: "m.cpu".parse().unwrap(),
        schema_version: 3,
        columns: vec![
            ColumnSpec { name: "ts".to_owned(), kind: ColumnType::Timestamp, nullable: false },
            column("v", "double"),
        ],
        event_time: EventTime::Column { name: "ts".to_owned(), unit: Some(TimeUnit::Ns) },
        bucket_seconds: 3_600,
        partition: Some("date".to_owned()),
        sort: vec![],
        history: vec![],
        bloom: vec![],
        rules: crate::schema::Rules::default(),
    };
    let json = concat!(
        r#"{"name":"m.cpu","schema_version":3,"columns":[{"name":"ts","type":"timestamp","nullable":false},"#,
        r#"{"name":"v","type":"double","nullable":true}],"event_time":{"from":"column","name":"ts","unit":"ns"},"#,
        r#""bucket_seconds":3600,"partition":"date","sort":[]}"#
    );
    assert_eq!(serde_json::to_string(&spec).unwrap(), json);
    let types = [("v".to_owned(), ColumnType::Float)].into();
    let later = TableSpec { history: vec![Earlier::of(1), Earlier { columns: 2, types }], ..spec };
    let history = r#""sort":[],"history":[{"columns":1},{"columns":2,"types":{"v":"float"}}]}"#;
    let json = json.replace(r#""sort":[]}"#, history);
    assert_eq!(serde_json::to_string(&later).unwrap(), json);
    assert_eq!(serde_json::from_str::<TableSpec>(&json).unwrap(), later);
    let receipt = EventTime::Receipt { column: "_received_at".to_owned() };
    assert_eq!(serde_json::to_string(&receipt).unwrap(), r#"{"from":"receipt","column":"_received_at"}"#);
}

fn broken(change: impl FnOnce(&mut TableSpec)) -> SpecError {
    let mut spec = every_type();
    change(&mut spec);
    spec.validate().unwrap_err()
}

#[test]
fn names_that_delta_cannot_tell_apart_are_refused() {
    let error = broken(|s| s.columns.push(column("TAGS", "string")));
    assert_eq!(error, SpecError::DuplicateColumn("tags".to_owned(), "TAGS".to_owned()));
    for name in ["", "a b", "a,b", "a;b", "a{b", "a}b", "a(b", "a)b", "a=b", "a\tb", "a\nb", &"n".repeat(256)] {
        assert!(matches!(broken(|s| s.columns.push(column(name, "string"))), SpecError::ColumnName(_)), "{name:?}");
    }
}

#[test]
fn fields_of_structs_obey_the_same_rules_so_that_their_text_can_be_read_again() {
    let with_field = |name: &str| {
        let field = ColumnSpec { name: name.to_owned(), kind: ColumnType::Long, nullable: true };
        ColumnSpec {
            name: "x".to_owned(),
            kind: ColumnType::List(Box::new(ColumnType::Struct(vec![field]))),
            nullable: true,
        }
    };
    for name in ["", "a:b", "a<b", "a>b", "a,b", "a(b"] {
        assert!(matches!(broken(|s| s.columns.push(with_field(name))), SpecError::FieldName { .. }), "{name:?}");
    }
    let twice = column("x", "struct<a:long,A:long>");
    assert!(matches!(broken(|s| s.columns.push(twice)), SpecError::FieldName { .. }));
    let empty = ColumnSpec { name: "x".to_owned(), kind: ColumnType::Struct(vec![]), nullable: true };
    assert!(matches!(broken(|s| s.columns.push(empty)), SpecError::StructFields(_)));
    let decimal =
        ColumnSpec { name: "x".to_owned(), kind: ColumnType::Decimal { precision: 39, scale: 0 }, nullable: true };
    assert!(matches!(broken(|s| s.columns.push(decimal)), SpecError::Decimal { .. }));
    let fields = (0..900).map(|i| ColumnSpec { nullable: true, ..column(&format!("a_rather_long_name_{i}"), "long") });
    let long = ColumnSpec { name: "x".to_owned(), kind: ColumnType::Struct(fields.collect()), nullable: true };
    assert!(matches!(broken(|s| s.columns.push(long)), SpecError::TypeTooLong(_)));
}

#[test]
fn roles_name_columns_that_exist_and_fit() {
    assert!(matches!(broken(|s| s.columns[0].nullable = true), SpecError::EventTimeType(_)));
    assert!(matches!(broken(|s| s.columns[0].kind = ColumnType::Long), SpecError::EventTimeType(_)));
    assert!(matches!(
        broken(|s| s.columns.remove(0).nullable = true),
        SpecError::UnknownColumn { role: "event-time", .. }
    ));
    assert!(matches!(broken(|s| s.sort = vec!["no".to_owned()]), SpecError::UnknownColumn { role: "sort", .. }));
    assert!(matches!(broken(|s| s.sort = vec!["tags".to_owned()]), SpecError::SortType(_)));
    assert!(matches!(broken(|s| s.partition = Some("TAGS".to_owned())), SpecError::DuplicateColumn(..)));
}

#[test]
fn a_bucket_divides_a_day() {
    for seconds in [0, 7, 3_601, 86_401, 172_800] {
        assert_eq!(broken(|s| s.bucket_seconds = seconds), SpecError::BucketWidth(u64::from(seconds)));
    }
    for seconds in [1, 300, 3_600, 21_600, 86_400] {
        let spec = TableSpec { bucket_seconds: seconds, ..every_type() };
        spec.validate().unwrap();
        assert_eq!(spec.bucket_micros(), i64::from(seconds) * 1_000_000);
    }
}

#[test]
fn counts_and_depth_are_bounded() {
    assert_eq!(broken(|s| s.columns.clear()), SpecError::NoColumns);
    let many = |s: &mut TableSpec| s.columns.extend((0..1_000).map(|i| column(&format!("c{i}"), "long")));
    assert_eq!(broken(many), SpecError::TooManyColumns(1_014));
    let deep = format!("{}long{}", "list<".repeat(16), ">".repeat(16));
    assert_eq!(broken(|s| s.columns.push(column("deep", &deep))), SpecError::TooDeep("deep".to_owned()));
}

#[test]
fn a_history_only_adds_columns() {
    for counts in [vec![2, 1], vec![0], vec![99]] {
        let history: Vec<_> = counts.into_iter().map(Earlier::of).collect();
        assert_eq!(broken(|s| s.history.clone_from(&history)), SpecError::History(history));
    }
}

#[test]
fn the_partition_column_gives_way_to_the_rows() {
    let name = |names: &[&str]| {
        let columns: Vec<_> = names.iter().map(|n| column(n, "string")).collect();
        TableSpec::partition_name(&columns)
    };
    assert_eq!(name(&["a"]), "date");
    assert_eq!(name(&["a", "Date"]), "event_date");
    assert_eq!(name(&["date", "event_date"]), "_event_date");
}

#[test]
fn time_units_have_one_spelling() {
    for unit in [TimeUnit::S, TimeUnit::Ms, TimeUnit::Us, TimeUnit::Ns] {
        assert_eq!(unit.to_string().parse::<TimeUnit>().unwrap(), unit);
        assert_eq!(serde_json::to_string(&unit).unwrap(), format!("\"{unit}\""));
    }
    assert!("sec".parse::<TimeUnit>().is_err());
}
