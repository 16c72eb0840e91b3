use super::*;

const COLUMNS: &str = "n long;host string;load double;on boolean;price decimal(10,2);day date;raw binary;tags map<string,string>;\
                       at struct<x:long,y:string>;many list<long>;small int;ratio float";

/// Six rows on three days, half of them in Delta, with values of every type.
async fn mixed() -> Kit {
    let kit = Kit::new();
    let table = kit.table("cpu", COLUMNS).await;
    let row = |n: i64, host: &str| {
        format!(
            r#"{{"n":{n},"host":"{host}","load":{n}.5,"on":{},"price":"{n}.25","day":"1970-01-0{}","raw":"0{n}","tags":{{"k":"v{n}"}},"at":{{"x":{n},"y":"y{n}"}},"many":[{n},{n}],"small":{n},"ratio":0.5}}"#,
            n % 2 == 0,
            n + 1
        )
    };
    kit.append(&table, 1, &format!("{}\n{}", row(1, "a"), row(2, "b"))).await;
    kit.append(&table, 2, &row(3, "a")).await;
    kit.flush(&table).await;
    kit.append(&table, 2, &row(4, "b")).await;
    kit.append(&table, 3, &format!("{}\n{{\"n\":6}}", row(5, "a"))).await;
    kit
}

#[tokio::test]
async fn flushed_and_unflushed_rows_are_one_table() {
    let kit = mixed().await;
    for (sql, wanted) in [
        ("select count(*) from cpu", "6"),
        ("select count(host), count(*) from cpu", "5 6"),
        ("select n from cpu order by n", "1|2|3|4|5|6"),
        ("select n from cpu order by n desc limit 2 offset 1", "5|4"),
        ("select count(*) from (select * from cpu limit 4)", "4"),
        (
            "select host, sum(n), avg(load) from cpu where host is not null group by host order by host",
            "a 9 3.5|b 6 3.5",
        ),
        ("select date, count(*) from cpu group by date order by date", "1970-01-02 2|1970-01-03 2|1970-01-04 2"),
        ("select n from cpu where date = '1970-01-03' order by n", "3|4"),
        ("select n from cpu where date >= date '1970-01-03' and host = 'a' order by n", "3|5"),
        ("select n from cpu where date in ('1970-01-02', '1970-01-04') order by n", "1|2|5|6"),
        ("select n from cpu where ts >= '1970-01-03T00:00:00Z' order by n", "3|4|5|6"),
        ("select n from cpu where host = 'a' limit 10", "1|3|5"),
        ("select n from cpu where host is null", "6"),
        ("select max(ts), min(date) from cpu", "1970-01-04T00:00:00.000001Z 1970-01-02"),
        ("select n, tags['k'] from cpu where tags['k'] in ('v1', 'v4') order by n", "1 v1|4 v4"),
        ("select n, at['y'], many[2] from cpu where at['x'] > 2 order by n", "3 y3 3|4 y4 4|5 y5 5"),
        (
            "select sum(price), bool_or(\"on\"), max(day), sum(small), sum(ratio) from cpu",
            "16.25 true 1970-01-06 15 2.5",
        ),
        ("select encode(raw, 'hex') from cpu where n in (2, 4) order by n", "02|04"),
        ("select upper(host) from cpu where n between 2 and 4 order by n", "B|A|B"),
        ("with h as (select host, count(*) c from cpu group by host) select max(c) from h", "3"),
        ("select count(*) from cpu where false", "0"),
        ("select count(*) from penstock.default.cpu", "6"),
        ("select a.n from cpu a where exists (select 1 from cpu b where b.n = a.n + 5)", "1"),
    ] {
        let sorted = kit.ask(sql).await;
        if sql.contains("limit 10") {
            let mut rows: Vec<_> = sorted.split('|').collect();
            rows.sort_unstable();
            assert_eq!(rows.join("|"), wanted, "{sql}");
        } else {
            assert_eq!(sorted, wanted, "{sql}");
        }
    }
}

#[tokio::test]
async fn tables_join_whether_they_are_flushed_or_not() {
    let kit = mixed().await;
    let hosts = kit.table("ops.hosts", "host string;rack long").await;
    kit.append(&hosts, 0, "{\"host\":\"a\",\"rack\":7}").await;
    kit.flush(&hosts).await;
    kit.append(&hosts, 0, "{\"host\":\"b\",\"rack\":8}").await;
    let sql = "select h.rack, count(*) from cpu c join ops.hosts h on c.host = h.host group by h.rack order by 1";
    assert_eq!(kit.ask(sql).await, "7 3|8 2");
    let sql = "select c.n from cpu c left join ops.hosts h using (host) where h.rack is null";
    assert_eq!(kit.ask(sql).await, "6");
    let sql =
        "select c.n from cpu c join ops.hosts h on c.host = h.host and c.date > h.date where h.rack = 8 order by 1";
    assert_eq!(kit.ask(sql).await, "2|4");
}

#[tokio::test]
async fn a_table_without_rows_is_empty_and_has_its_columns() {
    let kit = Kit::new();
    kit.table("cpu", COLUMNS).await;
    assert_eq!(kit.ask("select count(*), count(n) from cpu").await, "0 0");
    let query = kit.sql.query("select * from cpu").await.expect("should run");
    assert_eq!(query.schema.fields().len(), 14);
}

#[tokio::test]
async fn tables_and_columns_are_told_without_the_lake() {
    let kit = Kit::new();
    for name in ["cpu", "ops.disk"] {
        let table = kit.table(name, "n long;tags map<string,string>").await;
        let log = kit.dir.path().join("lake").join(table.spec.name.namespace()).join(table.spec.name.name());
        std::fs::create_dir_all(&log).expect("should make a directory");
        std::fs::write(log.join("_delta_log"), "in the way").expect("should write");
    }
    assert_eq!(kit.ask("show tables").await, "default cpu|ops disk");
    let sql = "select table_name, column_name, data_type from information_schema.columns where column_name in ('n', 'date') \
               and table_schema <> 'information_schema' order by 1, 2";
    assert_eq!(kit.ask(sql).await, "cpu date Date32|cpu n Int64|disk date Date32|disk n Int64");
    let sql = "select table_schema, table_type from information_schema.tables where table_name = 'disk'";
    assert_eq!(kit.ask(sql).await, "ops BASE TABLE");
}

#[tokio::test]
async fn describe_and_explain_work() {
    let kit = mixed().await;
    assert!(kit.ask("describe cpu").await.starts_with("ts Timestamp"));
    assert!(kit.ask("explain select count(*) from cpu").await.contains("UnionExec"));
    assert!(kit.ask("explain analyze select count(*) from cpu").await.contains("output_rows"));
}

#[tokio::test]
async fn nothing_but_reading_is_allowed() {
    let kit = mixed().await;
    let target = kit.dir.path().join("out.csv");
    let copy = format!("copy (select 1) to '{}'", target.display());
    let external = format!("create external table t stored as csv location '{}'", target.display());
    for sql in [
        "insert into cpu (ts, n) values (now(), 1)",
        "delete from cpu",
        "update cpu set n = 1",
        "create table t (a int)",
        "create table t as select 1",
        "create view v as select 1",
        "create schema s",
        "create database d",
        "drop table cpu",
        "set datafusion.execution.batch_size = 1",
        "prepare p as select 1",
        "begin",
        "explain insert into cpu (ts, n) values (now(), 1)",
        "explain analyze delete from cpu",
        copy.as_str(),
        external.as_str(),
        "select 1; select 2",
        "selec 1",
        "",
        "select * from nowhere",
        "select nothing from cpu",
        "select * from other.default.cpu",
        "select * from '/etc/passwd'",
    ] {
        let error = kit.run(sql).await.map(|rows| format!("{rows:?}")).expect_err(sql);
        assert!(matches!(error, Error::Invalid(_)), "{sql}: {error:?}");
    }
    assert!(!target.exists());
    assert_eq!(kit.ask("select count(*) from cpu").await, "6");
}

#[tokio::test]
async fn values_at_fault_are_told_from_statements_at_fault() {
    let kit = mixed().await;
    for sql in [
        "select 1 / 0",
        "select n / (n - 4) from cpu",
        "select cast(host as bigint) from cpu",
        "select to_timestamp(host) from cpu",
        "select cast(9223372036854775807 as int) from cpu",
    ] {
        let error = kit.run(sql).await.map(|rows| format!("{rows:?}")).expect_err(sql);
        assert!(matches!(error, Error::Values(_)), "{sql}: {error:?}");
    }
}

#[tokio::test]
async fn a_column_that_was_added_is_null_in_older_rows_flushed_or_not() {
    let kit = Kit::new();
    let first = kit.table("cpu", "n long; host string").await;
    kit.append(&first, 1, "{\"n\":1,\"host\":\"a\"}").await;
    kit.flush(&first).await;
    kit.append(&first, 2, "{\"n\":2,\"host\":\"b\"}").await;
    let second = kit.extend(&first, "zone string; load double").await;
    assert_eq!(kit.ask("select count(*), count(zone), count(load) from cpu").await, "2 0 0");
    kit.append(&second, 2, "{\"n\":3,\"zone\":\"z\"}").await;
    kit.append(&second, 3, "{\"n\":4,\"load\":0.5}").await;
    // Version 1 in Delta; versions 1 and 2 in one bucket and 2 in another of the log.
    let before = kit.ask("select n, host, zone, load from cpu order by n").await;
    assert_eq!(before, "1 a  |2 b  |3  z |4   0.5");
    let asked = [
        ("select n from cpu where zone = 'z'", "3"),
        ("select sum(n) from cpu where zone is null", "7"),
        ("select zone from cpu where n = 1", ""),
        ("select count(*) from cpu where load > 0.1 or n = 1", "2"),
        ("select zone, count(*) from cpu group by zone order by zone", "z 1| 3"),
        ("select n from cpu where date = '1970-01-03' and zone is not null", "3"),
    ];
    for (sql, answer) in asked {
        assert_eq!(kit.ask(sql).await, answer, "{sql}");
    }
    kit.flush(&second).await;
    assert_eq!(kit.ask("select n, host, zone, load from cpu order by n").await, before);
    for (sql, answer) in asked {
        assert_eq!(kit.ask(sql).await, answer, "flushed: {sql}");
    }
}

#[tokio::test]
async fn a_query_that_looked_a_table_up_before_it_got_a_column_reads_rows_that_have_it() {
    let kit = Kit::new();
    let first = kit.table("cpu", "n long").await;
    let second = kit.extend(&first, "zone string").await;
    kit.append(&second, 1, "{\"n\":1,\"zone\":\"z\"}").await;
    let pinned = crate::query::view::Unflushed::pin(&kit.store, &kit.registry, vec![first]);
    let pinned = pinned.with_snapshots(&kit.lake, kit.store.node()).await.expect("should pin");
    assert_eq!(pinned[0].table.spec, second.spec);
}

#[tokio::test]
async fn a_type_that_became_wider_keeps_its_values_flushed_or_not() {
    let kit = Kit::new();
    let first = kit.table("cpu", "n int; ratio float").await;
    kit.append(&first, 1, "{\"n\":1,\"ratio\":0.5}\n{\"n\":-2}").await;
    kit.flush(&first).await;
    kit.append(&first, 2, "{\"n\":3,\"ratio\":0.25}").await;
    let second = kit.extend(&first, "n long; ratio double").await;
    kit.append(&second, 2, "{\"n\":5000000000,\"ratio\":0.1}").await;
    let asked = [
        ("select n, ratio from cpu order by n", "-2 |1 0.5|3 0.25|5000000000 0.1"),
        ("select sum(n) from cpu", "5000000002"),
        ("select n from cpu where n > 4000000000", "5000000000"),
        ("select n from cpu where n = 1", "1"),
        ("select n from cpu where n < 0", "-2"),
        ("select count(*) from cpu where ratio > 0.2", "2"),
        ("select ratio from cpu where ratio = 0.1", "0.1"),
    ];
    for (sql, answer) in asked {
        assert_eq!(kit.ask(sql).await, answer, "{sql}");
    }
    kit.flush(&second).await;
    for (sql, answer) in asked {
        assert_eq!(kit.ask(sql).await, answer, "flushed: {sql}");
    }
}
