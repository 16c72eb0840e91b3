//! Lakes in real object stores, SeaweedFS and Azurite: several tables, rows all the time, the store ended and started again on the
//! way, and the server killed once. In the end every acknowledged row is there once, by a replay of the logs and by three readers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::kit::objects::{Kind, ObjectServer};
use crate::kit::replay::replay;
use crate::kit::three::{self, DATES, by_date};
use crate::kit::{self, Launch, NDJSON, Server, penstock, python};

const TABLES: [&str; 3] = ["metrics.cpu", "metrics.memory", "logs.web"];
const SETTINGS: [(&str, &str); 4] =
    [("flush.max_age", "300ms"), ("flush.min_age", "200ms"), ("flush.grace", "1h"), ("lake.call_timeout", "5s")];

type Acked = BTreeMap<&'static str, Vec<i64>>;

/// Rows of each table in turn, until it is told to stop.
async fn write(server: Arc<Server>, acked: Arc<Mutex<Acked>>, stop: Arc<AtomicBool>) {
    for post in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let table = TABLES[post % TABLES.len()];
        let first = acked.lock().entry(table).or_default().last().map_or(0, |last| last + 1);
        let ids = first..first + 20;
        server.post(table, NDJSON, kit::ndjson(ids.clone().map(three::row))).await.ok();
        acked.lock().entry(table).or_default().extend(ids);
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// Writes for a while, with something happening in between; the server comes back alone.
async fn meanwhile(server: Server, acked: &Arc<Mutex<Acked>>, happens: impl Future<Output = ()>) -> Server {
    let (server, stop) = (Arc::new(server), Arc::new(AtomicBool::new(false)));
    let writer = tokio::spawn(write(Arc::clone(&server), Arc::clone(acked), Arc::clone(&stop)));
    happens.await;
    stop.store(true, Ordering::SeqCst);
    writer.await.expect("should not panic");
    Arc::into_inner(server).expect("should be nobody else's")
}

fn pause(millis: u64) -> impl Future<Output = ()> {
    tokio::time::sleep(Duration::from_millis(millis))
}

async fn survives(kind: Kind) {
    let Some(program) = python::with(&[&three::MODULES[..], &["boto3"]].concat()) else { return };
    let Some(mut store) = ObjectServer::start(kind, &program).await else { return };
    let arguments = store.doctor();
    let said = penstock(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await.ok();
    assert!(said.contains("the lake is fit"), "{said}");

    let (dir, acked) = (kit::directory(), Arc::new(Mutex::new(Acked::new())));
    let launch = store.launch(Launch::on(dir.path()).set_all(&SETTINGS));
    let server = launch.start().await;
    let server = meanwhile(server, &acked, pause(2_500)).await;
    server.flush().await;
    store.hold().await;
    let server = meanwhile(server, &acked, async {
        // Long enough for uploads and commits to be on their way.
        pause(1_000).await;
        store.kill().await;
        pause(1_500).await;
        store.restart().await;
        pause(1_500).await;
    })
    .await;
    let versions: Vec<_> = server.status().await["tables"]
        .as_array()
        .expect("tables")
        .iter()
        .map(|t| t["delta_version"].clone())
        .collect();
    assert!(
        versions.iter().all(|version| version.as_u64() >= Some(2)),
        "commits on both sides of the outage: {versions:?}"
    );
    // With rows on their way; whatever was acknowledged is in the log.
    store.keeps_secrets(&server.process.log());
    server.kill();
    let server = launch.start().await;
    let server = meanwhile(server, &acked, pause(1_500)).await;
    server.flush().await;
    let acked = acked.lock().clone();
    for (table, ids) in &acked {
        let wanted = json!({ "n": ids.len(), "ids": ids.iter().sum::<i64>() });
        assert_eq!(server.row(&format!("select count(*) as n, sum(id) as ids from {table}")).await, wanted, "{table}");
    }
    store.keeps_secrets(&server.status().await.to_string());
    store.keeps_secrets(&server.stop().await);
    check(&store, &program, &acked).await;
}

const READ: &str = r#"
import json, sys
import deltalake, pyarrow.compute as pc
options, found = json.loads(sys.argv[1]), []
for table in sys.argv[2:]:
    ids = deltalake.DeltaTable(table, storage_options=options).to_pyarrow_table(columns=["id"])["id"]
    found.append([len(ids), len(pc.unique(ids)), pc.sum(ids).as_py()])
print(json.dumps(found))
"#;

async fn check(store: &ObjectServer, program: &str, acked: &Acked) {
    let copy = kit::directory();
    let lake = store.dump(copy.path()).await;
    let (mut paths, mut urls, mut sums) = (Vec::new(), vec![store.storage_options().to_string()], Vec::new());
    for (table, ids) in acked {
        let path = lake.join(table.replace('.', "/"));
        let objects = kit::objects_in(&path);
        let log = replay(table, &objects);
        let mut found = log.longs(table, &objects, "id");
        found.sort_unstable();
        assert!(found == *ids, "{table} has {} rows in place of {}", found.len(), ids.len());
        paths.push((path, by_date(ids)));
        urls.push(format!("{}/{}", store.lake(), table.replace('.', "/")));
        sums.push(json!([ids.len(), ids.len(), ids.iter().sum::<i64>()]));
    }
    let tables: Vec<(&Path, &three::Wanted)> = paths.iter().map(|(path, wanted)| (path.as_path(), wanted)).collect();
    three::agree(program, DATES[0], &tables).await;
    let found = python::run(program, READ, &urls.iter().map(String::as_str).collect::<Vec<_>>(), &[]).await;
    assert_eq!(found, Value::from(sums), "read from the store itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lake_in_seaweedfs_survives_the_end_of_the_store_and_of_the_server() {
    survives(Kind::Seaweed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lake_in_azurite_survives_the_end_of_the_store_and_of_the_server() {
    survives(Kind::Azurite).await;
}
