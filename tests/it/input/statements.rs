//! SQL.

use super::{Case, Victim};
use crate::kit::{self, JSON};

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_do_not_read_or_make_no_sense_are_refused() {
    let victim = Victim::start(&[]).await;
    let outside = kit::directory();
    let target = outside.path().join("stolen.csv").display().to_string();
    let cases: Vec<(&str, &[&str])> = vec![
        ("selec 1", &["selec"]),
        ("", &["SQL"]),
        ("-- nothing", &["SQL"]),
        ("select 1; select 2", &["single"]),
        ("select", &[]),
        ("select nope from good", &["nope", "good.id"]),
        ("select * from nope", &["nope", "not found"]),
        ("select * from nope.good", &["nope"]),
        ("select * from '/etc/passwd'", &["not found"]),
        ("select * from \"/etc/passwd\"", &["not found"]),
        ("select * from 'file:///etc/passwd'", &["not found"]),
        ("select * from read_csv('/etc/passwd')", &["read_csv"]),
        ("select nope(1)", &["nope"]),
        ("insert into good (id) values (1)", &["read"]),
        ("insert into good select * from good", &["read"]),
        ("update good set id = 1", &["read"]),
        ("delete from good", &["read"]),
        ("truncate table good", &[]),
        ("drop table good", &["read"]),
        ("create table t (a int)", &["read"]),
        ("create table t as select 1 as a", &["read"]),
        ("create view v as select 1", &["read"]),
        ("create schema s", &["read"]),
        ("create database d", &["read"]),
        ("create function f() returns int return 1", &[]),
        ("create external table t stored as csv location '/etc/passwd'", &["read"]),
        ("alter table good add column b int", &[]),
        ("set datafusion.execution.target_partitions = 1", &["read"]),
        ("reset datafusion.execution.target_partitions", &[]),
        ("begin", &[]),
        ("prepare p as select 1", &[]),
        ("execute p", &[]),
        ("explain analyze insert into good select * from good", &[]),
        ("call f()", &[]),
        ("grant all on good to you", &[]),
        // Statements that read, and rows that cannot be read so.
        ("select 1 / (id - id) from good", &["ivide"]),
        ("select cast('x' as int)", &["x"]),
        ("select to_timestamp('never')", &["never"]),
    ];
    for (sql, says) in cases {
        let reply = victim.server.ask(sql).await;
        Case { what: sql, reply, status: &[400, 404, 422], says }.check();
    }
    for sql in [format!("copy good to '{target}'"), format!("copy (select 1) to '{target}' stored as csv")] {
        Case { what: "copy", reply: victim.server.ask(&sql).await, status: &[400], says: &["read"] }.check();
    }
    assert!(kit::files(outside.path()).is_empty(), "nothing may be written");
    victim.check(&["good"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_are_too_large_or_too_deep_are_refused() {
    let victim = Victim::start(&[]).await;
    let many = 100_000;
    let cases = [
        ("brackets", format!("select {}1{}", "(".repeat(many), ")".repeat(many))),
        ("a long sum", format!("select {}", vec!["1"; many].join(" + "))),
        ("many nots", format!("select {}true", "not ".repeat(many))),
        ("many minuses", format!("select {}1", "- ".repeat(many))),
        ("many conditions", format!("select 1 from good where {}", vec!["id = 1"; many].join(" or "))),
        ("subqueries", format!("{}select 1{}", "select * from (".repeat(3_000), ") q".repeat(3_000))),
        ("unions", vec!["select 1"; 20_000].join(" union all ")),
        ("casts", format!("select 1{}", "::int".repeat(many))),
        ("2 MiB", format!("select 1 {}", " ".repeat(2 << 20))),
    ];
    for (what, sql) in cases {
        let reply = victim.server.send("/v1/sql", &[("content-type", "text/plain")], sql).await;
        Case { what, reply, status: &[400, 413, 422], says: &[] }.check();
    }
    victim.check(&["good"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_carry_no_statement_are_refused() {
    let victim = Victim::start(&[]).await;
    let sql = "/v1/sql";
    for (what, headers, body, status) in [
        ("another content type", [("content-type", "text/xml"), ("accept", "*/*")], b"select 1".to_vec(), 415),
        ("a format that is none", [("content-type", "text/plain"), ("accept", "image/png")], b"select 1".to_vec(), 406),
        ("no JSON", [("content-type", JSON), ("accept", "*/*")], b"select 1".to_vec(), 400),
        ("a number", [("content-type", JSON), ("accept", "*/*")], b"{\"sql\":1}".to_vec(), 400),
        ("no UTF-8", [("content-type", "text/plain"), ("accept", "*/*")], b"select '\xff'".to_vec(), 400),
        ("5 MiB", [("content-type", "text/plain"), ("accept", "*/*")], vec![b' '; 5 << 20], 413),
    ] {
        Case { what, reply: victim.server.send(sql, &headers, body).await, status: vec![status].leak(), says: &[] }
            .check();
    }
    // Nested values have no place in CSV but as text.
    let headers = [("content-type", "text/plain"), ("accept", "text/csv")];
    let nested = victim.server.send(sql, &headers, "select id, tags from good").await;
    assert!(nested.status == 200 && nested.text().starts_with("id,tags\n1,"), "{}", nested.text());
    victim.check(&["good"]).await;
}
