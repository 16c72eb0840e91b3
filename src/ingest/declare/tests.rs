use super::*;

fn declare(json: &str) -> Result<TableSpec, SpecError> {
    let declaration: Declaration = serde_json::from_str(json).expect("should parse");
    declaration.into_spec("cpu".parse().expect("should be a name"), None)
}

#[test]
fn defaults_are_an_hour_and_a_date_partition() {
    let spec = declare(r#"{"columns":[{"name":"ts","type":"timestamp","nullable":false}]}"#).expect("should be valid");
    assert_eq!(spec.bucket_seconds, 3600);
    assert_eq!(spec.partition.as_deref(), Some("date"));
    assert_eq!(spec.event_time, EventTime::Column { name: "ts".to_owned(), unit: None });
}

#[test]
fn without_an_event_time_the_time_of_receipt_is_kept() {
    let spec = declare(r#"{"columns":[{"name":"v","type":"double"}]}"#).expect("should be valid");
    assert_eq!(spec.event_time.column(), "_received_at");
    assert_eq!(spec.columns[1].name, "_received_at");
}

#[test]
fn the_partition_gives_way_to_a_column_called_date() {
    let spec = declare(r#"{"columns":[{"name":"date","type":"string"}]}"#).expect("should be valid");
    assert_eq!(spec.partition.as_deref(), Some("event_date"));
}

#[test]
fn what_cannot_be_is_refused() {
    let columns = r#""columns":[{"name":"v","type":"double"}]"#;
    for (rest, wanted) in [
        (r#""bucket":"7h""#, SpecError::BucketWidth(25_200)),
        (r#""event_time":"t""#, SpecError::UnknownColumn { role: "event-time", name: "t".to_owned() }),
        (r#""event_time":"v""#, SpecError::EventTimeType("v".to_owned())),
        (r#""sort":["w"]"#, SpecError::UnknownColumn { role: "sort", name: "w".to_owned() }),
    ] {
        assert_eq!(declare(&format!("{{{columns},{rest}}}")), Err(wanted), "{rest}");
    }
}

#[test]
fn rules_that_are_not_said_stay_as_they_are() {
    use crate::schema::spec::Action;
    let with = |rules: &str, there| {
        let json = format!(r#"{{"columns":[{{"name":"v","type":"double"}}]{rules}}}"#);
        let declaration: Declaration = serde_json::from_str(&json).expect("should parse");
        declaration.into_spec("cpu".parse().expect("should be a name"), there).expect("should be valid").rules
    };
    assert_eq!(with("", None), Rules::default());
    let late = with(r#","rules":{"late":"dead-letter","late_after":"1h"}"#, None);
    assert_eq!((late.late, late.late_after), (Action::DeadLetter, Duration::from_secs(3_600)));
    assert_eq!(with("", Some(late.clone())), late);
    let both = with(r#","rules":{"early":"reject"}"#, Some(late.clone()));
    assert_eq!(both, Rules { early: Action::Reject, ..late });
    for wrong in [r#"{"late":"never"}"#, r#"{"late_after":"soon"}"#, r#"{"latest":"accept"}"#] {
        assert!(serde_json::from_str::<RulesPatch>(wrong).is_err(), "{wrong}");
    }
}
