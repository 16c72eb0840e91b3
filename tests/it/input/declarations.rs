//! PUT of tables.

use serde_json::{Value, json};

use super::{Case, Victim};
use crate::kit::{JSON, Reply};

async fn put(victim: &Victim, table: &str, body: String) -> Reply {
    let request = victim.server.http().put(victim.server.at(&format!("/v1/tables/{table}")));
    Reply::of(request.header("content-type", JSON).body(body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_that_are_wrong_are_refused() {
    let victim = Victim::start(&[]).await;
    let long = json!([{ "name": "a", "type": "long" }]);
    let typed = |kind: &str| json!({ "columns": [{ "name": "a", "type": kind }] });
    let many: Vec<Value> = (0..10_000).map(|i| json!({ "name": format!("c{i}"), "type": "long" })).collect();
    let deep = format!("{}long{}", "list<".repeat(500), ">".repeat(500));
    let cases: Vec<(&str, Value, &[&str])> = vec![
        ("no columns", json!({}), &["columns"]),
        ("columns of no kind", json!({ "columns": 7 }), &["columns", "for example"]),
        ("an unknown key", json!({ "columns": long, "colour": 1 }), &["colour", "event_time"]),
        ("an unknown type", typed("quux"), &["quux", "boolean"]),
        ("a decimal beyond all", typed("decimal(99,2)"), &["decimal"]),
        ("a type that does not end", typed("list<long"), &["list<long"]),
        ("a map with other keys", typed("map<long,long>"), &["map"]),
        ("a deep type", typed(&deep), &["list<"]),
        ("10,000 columns", json!({ "columns": many }), &["1000"]),
        (
            "columns twice",
            json!({ "columns": [{ "name": "a", "type": "long" }, { "name": "A", "type": "long" }] }),
            &["case"],
        ),
        ("a name with a comma", json!({ "columns": [{ "name": "a,b", "type": "long" }] }), &["a,b"]),
        ("a name without letters", json!({ "columns": [{ "name": "", "type": "long" }] }), &["name"]),
        ("an event time that is not there", json!({ "columns": long, "event_time": "b" }), &["b", "not among"]),
        ("an event time that is none", json!({ "columns": long, "event_time": "a" }), &["timestamp"]),
        ("a bucket of 7 hours", json!({ "columns": long, "bucket": "7h" }), &["divide a day"]),
        ("a bucket of nothing", json!({ "columns": long, "bucket": "0s" }), &["divide a day"]),
        ("a bucket of 2 days", json!({ "columns": long, "bucket": "2d" }), &["divide a day"]),
        ("a bucket that is no time", json!({ "columns": long, "bucket": "soon" }), &["duration"]),
        ("a sort column that is not there", json!({ "columns": long, "sort": ["b"] }), &["b", "not among"]),
        ("a unit that is none", json!({ "columns": long, "event_time_unit": "h" }), &["ms"]),
        ("a partition that is none", json!({ "columns": long, "partition": "yes" }), &["boolean"]),
    ];
    for (what, body, says) in cases {
        let reply = put(&victim, "bad", body.to_string()).await;
        Case { what, reply, status: &[400, 422], says }.check();
    }
    for (what, body, status) in [
        ("no JSON", "{".to_owned(), 400),
        ("nothing", String::new(), 400),
        ("deep JSON", format!("{{\"columns\":{}", "[".repeat(100_000)), 400),
        ("5 MiB", format!("{{\"columns\":[{}]}}", " ".repeat(5 << 20)), 413),
    ] {
        Case { what, reply: put(&victim, "bad", body).await, status: vec![status].leak(), says: &[] }.check();
    }
    let reply = put(&victim, "Bad", json!({ "columns": long }).to_string()).await;
    Case { what: "a name with capitals", reply, status: &[400], says: &["lower case"] }.check();
    let reply = put(&victim, "good", json!({ "columns": long }).to_string()).await;
    Case { what: "another definition", reply, status: &[409], says: &["another definition"] }.check();
    let reply = victim.server.get("/v1/tables/nothing").await;
    Case { what: "a table that is not there", reply, status: &[404], says: &["nothing", "PUT"] }.check();
    for (what, body, status) in [
        ("a flush of a table that is not there", json!({ "tables": ["nothing"] }).to_string(), 404),
        ("a flush that takes no time", json!({ "timeout": "soon" }).to_string(), 400),
        ("a flush of something else", json!({ "table": "good" }).to_string(), 400),
        ("a flush that is no JSON", "{".to_owned(), 400),
    ] {
        let reply = victim.server.send("/v1/flush", &[("content-type", JSON)], body).await;
        Case { what, reply, status: vec![status].leak(), says: &[] }.check();
    }
    victim.check(&["good"]).await;
}
