use super::column;
use crate::schema::remainder::{name_of, pairs};

#[test]
fn a_time_and_an_int_of_its_name_are_a_pair() {
    let columns = [column("b_ns", "int"), column("a", "timestamp"), column("a_ns", "int"), column("b", "timestamp")];
    assert_eq!(pairs(&columns), [(3, 0), (1, 2)]);
    assert_eq!(name_of("a"), "a_ns");
}

#[test]
fn what_only_looks_like_one_is_none() {
    for (time, rest) in [("timestamp", "long"), ("long", "int"), ("date", "int"), ("list<timestamp>", "int")] {
        assert_eq!(pairs(&[column("a", time), column("a_ns", rest)]), [], "{time} {rest}");
    }
    assert_eq!(pairs(&[column("a", "timestamp"), column("A_ns", "int"), column("_ns", "int")]), []);
    let mut rest = column("a_ns", "int");
    rest.nullable = false;
    assert_eq!(pairs(&[column("a", "timestamp"), rest]), [], "it has to be null where there is no time");
}
