//! What encoding a generation takes, beside the payload bytes that the store holds anyway. Measured as the kernel counts it, in a process
//! of its own: what other tests do would be in it.

use std::process::Command;

use arrow::array::RecordBatch;
use arrow::json::ReaderBuilder;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::flush::kit::{Kit, on_demand};
use crate::schema::arrow::arrow_schema;
use crate::schema::{ColumnSpec, EventTime, TableSpec};

const PAYLOAD: u64 = 96 << 20;
const CHILD: &str = "flush::tests::memory::child";

fn logs() -> TableSpec {
    let column = |(name, kind, nullable): (&str, &str, bool)| ColumnSpec {
        name: name.into(),
        kind: kind.parse().expect("should be a type"),
        nullable,
    };
    let columns = [
        ("ts", "timestamp", false),
        ("host", "string", false),
        ("service", "string", true),
        ("level", "string", true),
        ("message", "string", true),
        ("duration", "double", true),
        ("attributes", "map<string,string>", true),
    ];
    TableSpec {
        name: "logs".parse().expect("should be a name"),
        schema_version: 1,
        columns: columns.into_iter().map(column).collect(),
        event_time: EventTime::Column { name: "ts".into(), unit: None },
        bucket_seconds: 3_600,
        partition: Some("date".into()),
        sort: vec!["service".into(), "host".into()],
        history: vec![],
        bloom: vec![],
        rules: crate::schema::Rules::default(),
    }
}

/// Log rows in no order.
fn rows(random: &mut StdRng, count: usize) -> RecordBatch {
    let mut text = String::new();
    for _ in 0..count {
        let (host, service) = (random.random_range(0..200), random.random_range(0..30));
        let (second, trace) = (random.random_range(0..60), random.random::<u128>());
        let attributes: Vec<String> =
            (0..12).map(|i| format!(r#""attribute.number.{i}":"value-{}""#, random.random_range(0..50))).collect();
        text.push_str(&format!(
            r#"{{"ts":"1970-01-01T00:00:{second:02}Z","host":"host-{host}.example.org","service":"service-{service}","level":"info","message":"request {trace:032x} handled in {second} ms","duration":{}.5,"attributes":{{{}}}}}"#,
            second,
            attributes.join(",")
        ));
        text.push('\n');
    }
    let reader = ReaderBuilder::new(arrow_schema(&logs())).with_batch_size(count).build(text.as_bytes());
    reader.expect("should read").next().expect("should be rows").expect("should decode")
}

fn resident(field: fn(&procfs::process::Status) -> Option<u64>) -> u64 {
    let status = procfs::process::Process::myself().and_then(|process| process.status()).expect("should have a status");
    field(&status).expect("should be counted") << 10
}

#[test]
fn encoding_a_generation_takes_at_most_three_times_its_payload_in_all() {
    let exe = std::env::current_exe().expect("should be known");
    let child = Command::new(exe).args([CHILD, "--exact", "--ignored", "--nocapture"]).output().expect("should run");
    let text = format!("{}{}", String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
    println!("{text}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child() {
    // One thread: the allocator keeps no arenas that nobody uses any more.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("should start");
    runtime.block_on(async {
        let kit = Kit::new();
        let table = kit.define(logs()).await;
        let mut random = StdRng::seed_from_u64(7);
        let payload = || kit.store.view(table).generations.iter().map(|g| g.totals().bytes).sum::<u64>();
        // Some of them again and again: to make rows takes longer than all the rest.
        let batches: Vec<RecordBatch> = (0..24).map(|_| rows(&mut random, 1_000)).collect();
        for batch in batches.iter().cycle() {
            if payload() >= PAYLOAD {
                break;
            }
            kit.append_batch(table, 0, batch).await;
        }
        let sealed = kit.seal(table).await.remove(0);
        let payload = sealed.generation.totals().bytes;
        let context = kit.context(on_demand());
        // The mark of the highest use begins anew.
        std::fs::write("/proc/self/clear_refs", "5").expect("should reset the mark");
        let before = resident(|status| status.vmrss);
        let files = kit.upload(&context, &sealed).await.expect("should upload");
        let taken = resident(|status| status.vmhwm).saturating_sub(before);
        let times = (payload + taken) as f64 / payload as f64;
        println!(
            "{payload} bytes of payload, {} stored, {taken} taken beside it: {times:.2} times the payload",
            files.bytes
        );
        assert!(times <= 3.0, "{times}");
    });
}
