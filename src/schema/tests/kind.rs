use crate::schema::ColumnType;

fn round_trip(text: &str) {
    let kind: ColumnType = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(kind.to_string(), text);
    let json = serde_json::to_string(&kind).unwrap();
    assert_eq!(json, format!("{text:?}"));
    assert_eq!(serde_json::from_str::<ColumnType>(&json).unwrap(), kind);
}

#[test]
fn every_type_survives_its_text_form() {
    for plain in ["boolean", "int", "long", "float", "double", "string", "binary", "date", "timestamp"] {
        round_trip(plain);
        round_trip(&format!("list<{plain}>"));
        round_trip(&format!("map<string,{plain}>"));
        round_trip(&format!("struct<a:{plain}>"));
    }
    round_trip("decimal(20,0)");
    round_trip("decimal(38,38)");
    round_trip("struct<a:long,b:map<string,decimal(10,2)>,c:struct<d:list<string>,e:int>>");
    round_trip("map<string,map<string,list<struct<x:double>>>>");
}

#[test]
fn spaces_and_synonyms_are_read() {
    let kind: ColumnType = " struct< a : bigint , b : map< string , integer > > ".parse().unwrap();
    assert_eq!(kind.to_string(), "struct<a:long,b:map<string,int>>");
    assert_eq!("decimal( 10 , 2 )".parse::<ColumnType>().unwrap().to_string(), "decimal(10,2)");
}

#[test]
fn what_is_no_type_is_refused() {
    for text in [
        "",
        "text",
        "LONG",
        "list",
        "list<>",
        "list<long",
        "map<long,string>",
        "map<string>",
        "decimal",
        "decimal(39,0)",
        "decimal(0,0)",
        "decimal(5,6)",
        "decimal(5,-1)",
        "struct<>",
        "struct<a>",
        "struct<a:long,>",
        "long>",
    ] {
        assert!(text.parse::<ColumnType>().is_err(), "{text:?}");
    }
}

#[test]
fn deep_and_long_texts_are_refused_without_a_deep_stack() {
    let deep = format!("{}long{}", "list<".repeat(100_000), ">".repeat(100_000));
    assert!(deep.parse::<ColumnType>().is_err());
    let deep = format!("{}long{}", "list<".repeat(40), ">".repeat(40));
    assert!(deep.parse::<ColumnType>().is_err());
}
