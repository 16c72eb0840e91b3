//! Senders at several times the drain rate, tiny posts and huge ones, and one table's commits hung.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::{FIXED_MEMORY, estimate, figure, length, peak_memory};
use crate::kit::careless::Careless;
use crate::kit::replay::replay;
use crate::kit::senders::{Habit, Senders};
use crate::kit::{self, Launch, Server};

const UNFLUSHED: u64 = 24 << 20;
const IN_FLIGHT: u64 = 20 << 20;
const FLUSH: u64 = 16 << 20;
const BUDGET: f64 = 0.15;
/// Bytes a second that the store takes: about a third of what is sent.
const LINE: u64 = 512 << 10;

const SETTINGS: [(&str, &str); 14] = [
    ("admission.max_unflushed", "24MiB"),
    ("admission.max_in_flight", "20MiB"),
    ("admission.table_share", "0.2"),
    ("admission.namespace_share", "0.8"),
    ("admission.replay_budget", "150ms"),
    ("flush.memory", "16MiB"),
    ("flush.parallelism", "1"),
    ("flush.seal_bytes", "2MiB"),
    ("flush.max_age", "2s"),
    ("flush.min_age", "500ms"),
    ("flush.confirm_delay", "200ms"),
    ("lake.call_timeout", "20s"),
    ("query.memory", "64MiB"),
    ("store.segment", "4MiB"),
];

const TABLES: [&str; 4] = ["load.a", "load.b", "other.c", "stuck.t"];

fn habits() -> Vec<Habit> {
    let of = |table| {
        [
            Habit { table, rows: 1..2, pad: 20, pause: 5..20 },
            Habit { table, rows: 20..60, pad: 200, pause: 20..60 },
            Habit { table, rows: 400..1_000, pad: 1_500, pause: 200..900 },
        ]
    };
    TABLES.into_iter().flat_map(of).collect()
}

/// Looks at the figures for a while: nothing is ever over what is allowed.
async fn watch(server: &Server, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let status = server.status().await;
        assert!(estimate(&status) <= BUDGET, "a restart may take {BUDGET} s: {status}");
        assert!(figure(&status, "/store/unflushed_bytes") <= UNFLUSHED, "{status}");
        assert!(figure(&status, "/admission/in_flight_bytes") <= IN_FLIGHT, "{status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_at_three_times_the_drain_rate_are_held_to_the_limits_and_all_get_through() {
    let _turn = super::alone().await;
    let (store, dir) = (Careless::start().await, kit::directory());
    store.mend();
    store.slow_down(LINE);
    let server = store.launch(Launch::on(dir.path()).set_all(&SETTINGS)).start().await;
    store.hang(Some("stuck/t/_delta_log"));
    let mut senders = Senders::default();
    let began = Instant::now();
    senders.start(&server.url, &habits(), &mut StdRng::seed_from_u64(5));
    let time = length(20);
    watch(&server, time).await;
    {
        let ledger = senders.ledger.lock();
        println!("after {:?}: {} rows, {} bytes; {:?}", began.elapsed(), ledger.rows(), ledger.bytes, ledger.refusals);
        let refused =
            |status: u16| ledger.refusals.iter().filter(|((s, _), _)| *s == status).map(|(_, n)| n).sum::<u64>();
        assert!(refused(429) > 0, "the stuck table should have filled its share: {:?}", ledger.refusals);
        assert!(refused(429) + refused(503) > 10, "not much of an overload: {:?}", ledger.refusals);
        for table in TABLES.into_iter().filter(|table| *table != "stuck.t") {
            let late = ledger.acks[table].iter().filter(|at| **at > time / 2).count();
            assert!(late > 10, "{table} got {late} acks in the second half: the stuck table should hold up nobody");
        }
    }
    // Everybody who was refused comes again as he was told, and gets through; the stuck table too once it can commit.
    store.hang(None);
    store.slow_down(0);
    tokio::time::timeout(Duration::from_secs(90), senders.finish()).await.expect("everybody should get through");
    server.flush().await;
    let peak = peak_memory(&server);
    println!("peak {} MiB; attempts {:?}", peak >> 20, senders.ledger.lock().attempts);
    // An encoder takes up to three times its rows.
    assert!(peak <= FIXED_MEMORY + UNFLUSHED + IN_FLIGHT + 3 * FLUSH, "{} MiB", peak >> 20);
    server.stop().await;
    let ledger = senders.ledger.lock();
    for table in TABLES {
        let objects = store.objects(&format!("lake/{}/", table.replace('.', "/")));
        ledger.check(table, &replay(table, &objects).longs(table, &objects, "id"));
    }
}
