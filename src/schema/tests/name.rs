use crate::schema::TableName;
use crate::schema::name::NameError;

#[test]
fn a_name_without_a_namespace_is_in_the_default_one() {
    let name: TableName = "cpu".parse().unwrap();
    assert_eq!((name.namespace(), name.name()), ("default", "cpu"));
    assert_eq!(name.to_string(), "default.cpu");
    assert_eq!(name, "default.cpu".parse().unwrap());
}

#[test]
fn a_name_is_one_json_string() {
    let name: TableName = "metrics.cpu_load".parse().unwrap();
    let json = serde_json::to_string(&name).unwrap();
    assert_eq!(json, r#""metrics.cpu_load""#);
    assert_eq!(serde_json::from_str::<TableName>(&json).unwrap(), name);
    assert!(serde_json::from_str::<TableName>(r#""Metrics.cpu""#).is_err());
}

#[test]
fn upper_case_is_refused_with_the_name_to_use() {
    let error = "metrics.CPU".parse::<TableName>().unwrap_err();
    assert_eq!(error, NameError::UpperCase("CPU".to_owned(), "cpu".to_owned()));
    assert!(error.to_string().contains("use \"cpu\""));
}

#[test]
fn what_could_leave_the_lakes_root_or_need_quotes_is_refused() {
    for text in
        ["", ".", "a.", ".a", "..", "../x", "a/b", "a b", "1a", "a-b", "ä", "a.b.c", "a\0", "a\"b", &"x".repeat(64)]
    {
        assert!(text.parse::<TableName>().is_err(), "{text:?}");
    }
    assert!("x".repeat(63).parse::<TableName>().is_ok());
    assert!("_a1".parse::<TableName>().is_ok());
}

#[test]
fn errors_repeat_only_the_start_of_a_long_text() {
    let error = "é".repeat(100_000).parse::<TableName>().unwrap_err();
    assert!(error.to_string().len() < 400);
}
