//! The lake gone for a while: rows are taken until the budget is full, then refused; reads go on; and it goes on by itself once the lake
//! is back. And a start with more waiting than is allowed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::ipc::writer::StreamWriter;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;

use super::{FIXED_MEMORY, figure, peak_memory};
use crate::kit::careless::Careless;
use crate::kit::replay::replay;
use crate::kit::senders::{self, Habit, Senders};
use crate::kit::{self, ARROW, Launch, Server};

const MAX_AGE: Duration = Duration::from_secs(2);
/// After the last failed attempt before the lake was back there is one pause, no longer than the flush interval; then a bucket is
/// uploaded and committed. The rest is for a busy machine.
const RESUMED: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_lake_fills_the_budget_and_ends_by_itself() {
    let _turn = super::alone().await;
    let (store, dir) = (Careless::start().await, kit::directory());
    store.mend();
    let launch = Launch::on(dir.path()).set_all(&[
        ("admission.max_unflushed", "6MiB"),
        ("admission.table_share", "1.0"),
        ("admission.namespace_share", "1.0"),
        ("flush.max_age", "2s"),
        ("flush.min_age", "300ms"),
        ("flush.confirm_delay", "100ms"),
        ("lake.call_timeout", "2s"),
    ]);
    let server = store.launch(launch).start().await;
    let row = |ts: &str, id: i64| json!({ "ts": ts, "id": id });
    server.append("seen.t", (0..10).map(|id| row("2026-03-01T10:00:00Z", id))).await;
    server.flush().await;
    assert_eq!(server.count("seen.t").await, 10);
    let mut senders = Senders::default();
    let habits = vec![Habit { table: "gone.t", rows: 50..100, pad: 1_000, pause: 0..20 }; 4];
    senders.start(&server.url, &habits, &mut StdRng::seed_from_u64(3));
    tokio::time::sleep(Duration::from_secs(2)).await;
    store.leave().await;
    server.append("seen.t", (10..15).map(|id| row("2026-04-01T10:00:00Z", id))).await;
    let refused = || senders.ledger.lock().refusals.values().sum::<u64>();
    kit::until("the budget to be full", async || (refused() > 4).then_some(())).await;
    // Long enough for the pauses between attempts to have become as long as they become.
    tokio::time::sleep(2 * MAX_AGE + Duration::from_secs(4)).await;
    let status = server.status().await;
    assert!(figure(&status, "/store/unflushed_bytes") <= 6 << 20, "{status}");
    let tables = status["tables"].as_array().expect("should list the tables");
    assert!(tables.iter().any(|t| t["table"] == "gone.t" && t["last_error"].is_string()), "{status}");
    assert_eq!(server.get("/readyz").await.status, 200, "an outage of the lake is no reason to take the node out");
    // What is known of a table and not in the lake is read without it; a query that needs more says so, and answers nothing wrong.
    assert_eq!(server.count("seen.t where ts >= '2026-03-15'").await, 5);
    let whole = server.ask("select count(distinct id) as n from seen.t").await;
    match whole.status {
        200 => assert_eq!(whole.json()["rows"][0]["n"], 15),
        _ => assert_eq!((whole.status, whole.refusal().as_str()), (503, "lake_unavailable"), "{}", whole.text()),
    }
    let acks = |ledger: &senders::Ledger| ledger.acks["gone.t"].len();
    let before = acks(&senders.ledger.lock());
    store.come_back().await;
    let back = Instant::now();
    kit::until("acks again", async || (acks(&senders.ledger.lock()) > before).then_some(())).await;
    println!("acks {:?} after the lake was back; {:?}", back.elapsed(), senders.ledger.lock().refusals);
    assert!(back.elapsed() <= RESUMED, "{:?}", back.elapsed());
    senders.finish().await;
    server.flush().await;
    server.stop().await;
    let ids = |table: &str| {
        let objects = store.objects(&format!("lake/{}/", table.replace('.', "/")));
        replay(table, &objects).longs(table, &objects, "id")
    };
    senders.ledger.lock().check("gone.t", &ids("gone.t"));
    let mut seen = ids("seen.t");
    seen.sort_unstable();
    assert_eq!(seen, (0..15).collect::<Vec<_>>());
}

const ROWS: i64 = 4_096;
const PAD: usize = 1_024;

/// Four megabytes that cost little to decode.
fn arrow(first: i64) -> Vec<u8> {
    let text: Vec<String> = (first..first + ROWS).map(|id| format!("{id:0>PAD$}")).collect();
    let columns: [(&str, ArrayRef); 3] = [
        (
            "ts",
            Arc::new(TimestampMicrosecondArray::from(vec![1_772_406_000_000_000; ROWS as usize]).with_timezone("UTC")),
        ),
        ("id", Arc::new(Int64Array::from_iter_values(first..first + ROWS))),
        ("pad", Arc::new(StringArray::from(text))),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("should be a batch");
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref()).expect("should be a stream");
    writer.write(&batch).expect("should be written");
    writer.into_inner().expect("should be whole")
}

async fn post_through(server: &Server, table: &str, body: Vec<u8>) -> u64 {
    let body = bytes::Bytes::from(body);
    for attempt in 0.. {
        let reply = server.post(table, ARROW, body.clone()).await;
        if reply.status == 200 {
            return attempt;
        }
        tokio::time::sleep(senders::wait(&reply)).await;
    }
    unreachable!("attempts do not end")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_more_waiting_than_is_allowed_drains_first_and_takes_rows_then() {
    let _turn = super::alone().await;
    const POSTS: i64 = 48;
    const LIMIT: u64 = 24 << 20;
    let (store, dir) = (Careless::start().await, kit::directory());
    store.mend();
    let shares = [("admission.table_share", "1.0"), ("admission.namespace_share", "1.0"), ("store.segment", "8MiB")];
    let launch = store.launch(Launch::on(dir.path()).set_all(&shares));
    let generous = [
        ("flush.seal_bytes", "1TiB"),
        ("store.checkpoint_interval", "0s"),
        ("store.checkpoint_log", "1GiB"),
        ("admission.replay_budget", "1h"),
    ];
    let server = launch.clone().set_all(&kit::NO_FLUSH).set_all(&generous).start().await;
    for post in 0..POSTS {
        post_through(&server, "back.log", arrow(post * ROWS)).await;
    }
    let waiting = figure(&server.status().await, "/store/unflushed_bytes");
    assert!(waiting > 150 << 20, "{waiting}");
    server.kill();

    store.slow_down(20 << 20);
    let strict = [
        ("admission.max_unflushed", "24MiB"),
        ("admission.max_in_flight", "24MiB"),
        ("store.replay_memory", "16MiB"),
        ("flush.memory", "8MiB"),
        ("flush.parallelism", "1"),
        ("flush.max_age", "1s"),
        ("query.memory", "32MiB"),
    ];
    let server = launch.set_all(&strict).start().await;
    let status = server.status().await;
    assert!(figure(&status, "/store/unflushed_bytes") > LIMIT, "{status}");
    assert!(figure(&status, "/store/recovery/spilled_bytes") > 64 << 20, "{status}");
    let replay_peak = peak_memory(&server);
    println!("{} MiB waiting, peak of the start {} MiB", waiting >> 20, replay_peak >> 20);
    assert!(replay_peak <= FIXED_MEMORY, "{} MiB", replay_peak >> 20);
    let attempts = post_through(&server, "back.log", arrow(POSTS * ROWS)).await;
    assert!(attempts > 0, "there was room at once");
    let status = server.status().await;
    assert!(figure(&status, "/store/unflushed_bytes") <= LIMIT, "below the mark before anything was taken: {status}");
    server.flush().await;
    let peak = peak_memory(&server);
    println!("{attempts} refusals, peak {} MiB", peak >> 20);
    server.stop().await;
    let objects = store.objects("lake/back/log/");
    let mut found = replay("back.log", &objects).longs("back.log", &objects, "id");
    found.sort_unstable();
    assert!(found == (0..(POSTS + 1) * ROWS).collect::<Vec<_>>(), "{} rows", found.len());
}
