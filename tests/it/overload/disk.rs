//! Disks that are full: the log's, and a lane's. Nothing is acknowledged that is not on disk, every refusal says when to come again, and
//! once there is room it goes on without a restart.

use std::path::Path;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::figure;
use crate::kit::careless::Careless;
use crate::kit::replay::replay;
use crate::kit::senders::{self, Habit, Senders};
use crate::kit::small_disk::SmallDisk;
use crate::kit::{self, Launch, NDJSON, NO_FLUSH};

fn habits() -> Vec<Habit> {
    let of = |table| {
        [Habit { table, rows: 1..5, pad: 100, pause: 0..10 }, Habit { table, rows: 100..300, pad: 1_000, pause: 0..50 }]
    };
    ["disk.a", "disk.b"].into_iter().flat_map(of).collect()
}

fn launch(store: &Careless, data: &Path) -> Launch {
    store.launch(Launch::on(data).set_all(&NO_FLUSH)).set_all(&[
        ("store.segment", "2MiB"),
        ("store.shards", "1"),
        ("admission.table_share", "1.0"),
        ("admission.namespace_share", "1.0"),
        ("flush.shutdown_timeout", "60s"),
    ])
}

fn refused(senders: &Senders, status: u16) -> u64 {
    let ledger = senders.ledger.lock();
    ledger.refusals.iter().filter(|((s, _), _)| *s == status).map(|(_, n)| n).sum()
}

fn acks(senders: &Senders) -> usize {
    senders.ledger.lock().acks.values().map(Vec::len).sum()
}

fn check(senders: &Senders, store: &Careless) {
    let ledger = senders.ledger.lock();
    println!("{} rows; refusals {:?}", ledger.rows(), ledger.refusals);
    for table in ["disk.a", "disk.b"] {
        let objects = store.objects(&format!("lake/{}/", table.replace('.', "/")));
        ledger.check(table, &replay(table, &objects).longs(table, &objects, "id"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_nothing_is_acknowledged_that_is_not_kept_and_room_ends_it_without_a_restart() {
    let _turn = super::alone().await;
    let Some(disk) = SmallDisk::new(96) else { return };
    let store = Careless::start().await;
    store.mend();
    let launch = disk.launch(launch(&store, &disk.inside().join("data")));
    let mut server = launch.start().await;
    let (mut senders, mut random) = (Senders::default(), StdRng::seed_from_u64(11));
    senders.start(&server.url, &habits(), &mut random);
    kit::until("some acks", async || (acks(&senders) > 50).then_some(())).await;
    disk.fill(1 << 20);
    kit::until("refusals for want of room", async || (refused(&senders, 507) > 8).then_some(())).await;
    assert_eq!(server.get("/readyz").await.status, 200, "it ends by itself: no reason to take the node out");
    // A new table needs the catalog as well.
    let row = json!({ "ts": "2026-04-01T10:00:00Z", "id": 1 });
    let reply = server.post("disk.new", NDJSON, format!("{row}\n")).await;
    let wait = senders::wait(&reply);
    assert_eq!((reply.status, reply.refusal().as_str()), (507, "no_space"), "{}, {wait:?}", reply.text());
    // Power of another kind: what was acknowledged is there, on a disk that is still full.
    server.kill();
    senders.ended().await;
    server = launch.start().await;
    for table in ["disk.a", "disk.b"] {
        let acked = senders.ledger.lock().acked[table].len() as u64;
        let counted = server.count(table).await;
        assert!(counted >= acked, "{table}: {acked} acknowledged, {counted} there");
    }
    senders.start(&server.url, &habits(), &mut random);
    let before = refused(&senders, 507);
    kit::until("refusals again", async || (refused(&senders, 507) > before + 4).then_some(())).await;
    let before = acks(&senders);
    disk.empty();
    kit::until("acks once there is room", async || (acks(&senders) > before + 20).then_some(())).await;
    senders.finish().await;
    let reply = server.post("disk.new", NDJSON, format!("{row}\n")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    server.flush().await;
    server.stop().await;
    check(&senders, &store);
}

fn postponed(status: &Value) -> bool {
    status["store"]["shards"][0]["postponed"].is_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_lane_puts_checkpoints_off_until_the_budget_is_full_and_room_ends_it() {
    let _turn = super::alone().await;
    let Some(disk) = SmallDisk::new(32) else { return };
    let (store, dir) = (Careless::start().await, kit::directory());
    store.mend();
    let lane = format!("[{:?}]", disk.inside().join("lane").display().to_string());
    let launch = disk
        .launch(launch(&store, dir.path()).set("store.lanes", &lane))
        .set_all(&[("store.checkpoint_interval", "300ms"), ("admission.replay_budget", "80ms")]);
    let server = launch.start().await;
    let mut senders = Senders::default();
    senders.start(&server.url, &habits(), &mut StdRng::seed_from_u64(12));
    kit::until("a checkpoint", async || {
        (figure(&server.status().await, "/store/shards/0/checkpoints") > 0).then_some(())
    })
    .await;
    disk.fill(0);
    kit::until("a checkpoint put off", async || postponed(&server.status().await).then_some(())).await;
    // The log takes what the lane does not, up to the budget.
    kit::until("refusals", async || (refused(&senders, 503) > 4).then_some(())).await;
    {
        let ledger = senders.ledger.lock();
        assert!(ledger.refusals.contains_key(&(503, "over_replay_budget".to_owned())), "{:?}", ledger.refusals);
    }
    let status = server.status().await;
    assert!(super::estimate(&status) <= 0.08, "{status}");
    assert!(server.count("disk.a").await > 0, "reads go on");
    let before = acks(&senders);
    disk.empty();
    kit::until("acks once there is room", async || (acks(&senders) > before + 20).then_some(())).await;
    // A flush frees the lane again, so that it goes on for as long as rows reach Delta.
    server.flush().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.flush().await;
    senders.finish().await;
    server.flush().await;
    // The next one clears the word of the last.
    kit::until("checkpoints again", async || (!postponed(&server.status().await)).then_some(())).await;
    server.stop().await;
    check(&senders, &store);
}
