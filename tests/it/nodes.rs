//! Two nodes and an outside writer at one table: each with its own log, nothing between them but the object store's create-only PUT.
//! They make the table at the same moment, one of them is killed on the way, and the outside writer appends and compacts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::replay::replay;
use crate::kit::three::{self, DATES, by_date};
use crate::kit::{self, Launch, NDJSON, Reply, Server, python};

/// Ids of a writer.
const STEP: i64 = 10_000_000;
/// How long all of them write.
const RUN: Duration = Duration::from_secs(6);

const SETTINGS: [(&str, &str); 3] = [("flush.max_age", "150ms"), ("flush.min_age", "50ms"), ("flush.grace", "1h")];

/// Appends some rows to each date and compacts now and then, until a file tells it to stop; prints the first id that was not used.
const OUTSIDE: &str = r#"
import datetime, json, os, sys, time
import deltalake, pyarrow as pa
path, first, stop = sys.argv[1], int(sys.argv[2]), sys.argv[3]
while not os.path.exists(os.path.join(path, "_delta_log", "00000000000000000001.json")):
    time.sleep(0.05)
schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("id", pa.int64()), ("date", pa.date32())])
next_id, appends, compactions, lost = first, 0, 0, 0
while not os.path.exists(stop):
    days = [datetime.datetime(2026, 5, 1 + i % 2, 12, tzinfo=datetime.timezone.utc) for i in range(10)]
    rows = pa.table([days, list(range(next_id, next_id + 10)), [day.date() for day in days]], schema=schema)
    deltalake.write_deltalake(path, rows, mode="append")
    next_id, appends = next_id + 10, appends + 1
    if appends % 4 == 0:
        try:
            compactions += deltalake.DeltaTable(path).optimize.compact()["numFilesRemoved"] > 0
        except deltalake.exceptions.CommitFailedError:
            lost += 1
    time.sleep(0.05)
print(json.dumps({"next": next_id, "appends": appends, "compactions": compactions, "lost": lost}))
"#;

async fn post(server: &Server, from: i64, count: i64) -> bool {
    let body = kit::ndjson((from..from + count).map(three::row));
    let request = server.http().post(server.at("/v1/tables/shared.events/rows")).header("content-type", NDJSON);
    Reply::try_of(request.body(body)).await.is_ok_and(|reply| reply.status == 200)
}

/// Posts until it is told to stop; gives the first id that was not used.
async fn write(server: &Server, mut next: i64, stop: &AtomicBool) -> i64 {
    while !stop.load(Ordering::SeqCst) {
        assert!(post(server, next, 20).await);
        next += 20;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    next
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_and_an_outside_writer_lose_and_double_nothing() {
    let Some(program) = python::with(&three::MODULES) else { return };
    let (lake, one, two, scratch) = (kit::directory(), kit::directory(), kit::directory(), kit::directory());
    let url = url::Url::from_directory_path(lake.path()).expect("should be a URL");
    let launch = |dir: &Path| Launch::on(dir).set("lake.url", url.as_str()).set_all(&SETTINGS);
    let (first, second) =
        tokio::join!(async { launch(one.path()).start().await }, async { launch(two.path()).start().await });
    let (table, stop_file) = (lake.path().join("shared/events"), scratch.path().join("stop"));
    let outside = tokio::spawn({
        let arguments = [table.display().to_string(), (2 * STEP).to_string(), stop_file.display().to_string()];
        async move { python::run(&program, OUTSIDE, &arguments.each_ref().map(String::as_str), &[]).await }
    });

    let stop = Arc::new(AtomicBool::new(false));
    let a = tokio::spawn({
        let stop = Arc::clone(&stop);
        async move {
            let next = write(&first, 0, &stop).await;
            (first, next)
        }
    });
    let halfway = AtomicBool::new(false);
    let ((), next) = tokio::join!(
        async {
            tokio::time::sleep(RUN / 2).await;
            halfway.store(true, Ordering::SeqCst);
        },
        write(&second, STEP, &halfway)
    );
    // Everything acknowledged so far, some of it on its way.
    second.kill();
    let second = launch(two.path()).start().await;
    let until = AtomicBool::new(false);
    let ((), next) = tokio::join!(
        async {
            tokio::time::sleep(RUN / 2).await;
            until.store(true, Ordering::SeqCst);
        },
        write(&second, next, &until)
    );
    stop.store(true, Ordering::SeqCst);
    let (first, a_next) = a.await.expect("should not panic");
    first.flush().await;
    second.flush().await;
    std::fs::write(&stop_file, "").expect("should write");
    let outside: Value = outside.await.expect("should not panic");
    println!("{outside}, {a_next} rows of one node, {} of the other", next - STEP);
    assert!(outside["appends"].as_i64() >= Some(5) && outside["compactions"].as_i64() >= Some(1), "{outside}");

    let mut ids: Vec<i64> = (0..a_next).chain(STEP..next).collect();
    ids.extend(2 * STEP..outside["next"].as_i64().expect("should be a number"));
    // A node sees at least what it has acknowledged itself, and nothing twice.
    for (server, own) in [(&first, 0..STEP), (&second, STEP..2 * STEP)] {
        let sql = format!(
            "select count(*) as n, count(distinct id) as d from shared.events where id >= {} and id < {}",
            own.start, own.end
        );
        let count = ids.iter().filter(|id| own.contains(id)).count();
        assert_eq!(server.row(&sql).await, json!({ "n": count, "d": count }));
    }
    first.stop().await;
    second.stop().await;
    check(&table, &ids).await;
}

async fn check(table: &Path, ids: &[i64]) {
    let objects = kit::objects_in(table);
    let log = replay("events", &objects);
    let mut found = log.longs("events", &objects, "id");
    found.sort_unstable();
    assert!(found == ids, "{} rows in place of {}", found.len(), ids.len());
    let apps = log.txns.keys().filter(|app| app.starts_with("penstock/")).count();
    assert!(apps >= 3, "two nodes and three starts: {:?}", log.txns);
    let program = python::with(&three::MODULES).expect("should still be there");
    three::agree(&program, DATES[0], &[(table, &by_date(ids))]).await;
}
