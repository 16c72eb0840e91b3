use std::time::Duration;

use super::*;

const ENDLESS: &str = "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t";
const MANY_ROWS: &str = "select a.value from generate_series(1, 100000000) a";

#[tokio::test]
async fn a_query_ends_at_its_time_limit() {
    let kit = Kit::with(Options { timeout: Duration::from_millis(200), ..Options::default() });
    let began = std::time::Instant::now();
    let error = kit.run(ENDLESS).await.expect_err("should end");
    assert!(matches!(&error, Error::Limit(text) if text.contains("200ms")), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_no_turn_beyond_the_time_limit() {
    let kit = Kit::with(Options { timeout: Duration::from_secs(2), concurrency: 1, ..Options::default() });
    let mut idle = kit.sql.query(MANY_ROWS).await.expect("should start");
    let early = kit.run("select 1");
    assert!(tokio::time::timeout(Duration::from_secs(1), early).await.is_err(), "it should wait for its turn");
    // Its own time lasts longer than what is left of the first one's.
    assert_eq!(kit.ask("select 1").await, "1");
    let error = loop {
        match idle.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a part of the rows should not look like all of them"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Limit(_)), "{error:?}");
}

#[tokio::test]
async fn a_query_that_does_not_get_its_turn_is_told_to_come_again() {
    let kit = Kit::with(Options { timeout: Duration::from_secs(1), concurrency: 1, ..Options::default() });
    let waiting: Vec<_> = (0..4).map(|_| kit.run(ENDLESS)).collect();
    let errors = futures::future::join_all(waiting).await;
    let busy = errors.iter().filter(|error| matches!(error, Err(Error::Busy(_)))).count();
    let limit = errors.iter().filter(|error| matches!(error, Err(Error::Limit(_)))).count();
    assert!(busy >= 2 && limit >= 1 && busy + limit == 4, "{errors:?}");
}

#[tokio::test]
async fn a_query_that_is_dropped_is_cancelled() {
    let kit = Kit::with(Options { concurrency: 1, ..Options::default() });
    for _ in 0..3 {
        let mut query = kit.sql.query(MANY_ROWS).await.expect("should start");
        query.next().await.expect("should run").expect("should have rows");
        drop(query);
    }
    // Not only one that runs: also one that is still being planned or waits for its first rows.
    let waiting = tokio::time::timeout(Duration::from_millis(100), kit.run(ENDLESS)).await;
    assert!(waiting.is_err());
    let after = tokio::time::timeout(Duration::from_secs(20), kit.ask("select 1")).await;
    assert_eq!(after.expect("should have its turn"), "1");
}

#[tokio::test]
async fn memory_is_limited_and_the_error_says_so() {
    let kit = Kit::with(Options { memory: bytesize::ByteSize::mib(2), ..Options::default() });
    let sql = "select value from generate_series(1, 3000000) order by value * -1";
    let error = kit.run(sql).await.expect_err("should hit the limit");
    assert!(matches!(error, Error::Limit(_)), "{error:?}");
}

#[tokio::test]
async fn a_statement_may_not_be_too_large_to_plan() {
    let kit = Kit::with(Options { max_sql: bytesize::ByteSize::kib(256), ..Options::default() });
    kit.table("t", "n long").await;
    let doubled: String =
        (1..60).map(|i| format!(", a{i} as (select * from a{0} union all select * from a{0})", i - 1)).collect();
    let crossed: String = (0..200).map(|i| format!(", t t{i}")).collect();
    for sql in [
        format!("select '{}'", "x".repeat(300_000)),
        format!("select {}1", "1 + ".repeat(20_000)),
        format!("select n from t where {} n = 1", "n = 2 or ".repeat(5_000)),
        format!("{} select 1", "select 1 union all ".repeat(5_000)),
        format!("select n{} from t", " is null".repeat(5_000)),
        format!("select count(*) from t {crossed}"),
        format!("explain select count(*) from t {crossed}"),
        format!("with a0 as (select 1) {doubled} select count(*) from a59"),
    ] {
        let error = kit.run(&sql).await.map(|rows| format!("{rows:?}")).expect_err("should be refused");
        assert!(matches!(error, Error::Limit(_)), "{}: {error:?}", &sql[..40]);
    }
    let nested = format!("select {}1{}", "(".repeat(20_000), ")".repeat(20_000));
    assert!(matches!(kit.run(&nested).await.expect_err("should be refused"), Error::Invalid(_)));
}

#[tokio::test]
async fn large_statements_of_the_usual_kinds_are_fine() {
    let kit = Kit::new();
    let table = kit.table("t", "n long").await;
    kit.append(&table, 1, "{\"n\":-7}").await;
    let values: String = (1..5_000).map(|i| format!("-{i}, ")).collect();
    assert_eq!(kit.ask(&format!("select count(*) from t where n in ({values} 0)")).await, "1");
    let columns: Vec<String> = (0..1_000).map(|i| format!("n as n{i}")).collect();
    assert_eq!(
        kit.run(&format!("select {} from t", columns.join(", "))).await.expect("should run")[0].num_columns(),
        1_000
    );
    let terms = "1 + ".repeat(300);
    assert_eq!(kit.ask(&format!("select {terms} 1")).await, "301");
}
