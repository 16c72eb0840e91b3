//! What a Prometheus server scrapes: every metric that the program names, described, with the figures of what was just done.

use std::collections::BTreeMap;

use penstock::telemetry::metrics::{ALL, Kind, Metric};
use serde_json::json;

use crate::kit::{self, Launch, Server};

/// Series by their full name, labels included.
fn series(text: &str) -> BTreeMap<&str, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("should have a name and a value");
            (name, value.parse().expect("should be a number"))
        })
        .collect()
}

async fn scrape(server: &Server) -> String {
    let reply = server.get("/metrics").await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    reply.text()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_names_every_metric_and_counts_what_was_done() {
    let dir = kit::directory();
    let server = Launch::on(dir.path()).set("store.shards", "1").start().await;
    let rows = |from: u64| (from..from + 10).map(|id| json!({ "ts": "2026-05-01T10:00:00Z", "id": id }));
    server.append("metered", rows(0)).await;
    let text = scrape(&server).await;
    for Metric { name, help, kind, .. } in ALL {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let described = text.contains(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        // No Delta version before the first flush.
        assert!(described || *name == "penstock_table_delta_version", "{name}:\n{text}");
    }
    for Metric { name, kind, .. } in ALL {
        // What has a unit says so at its end; counts of things name the things.
        let base = name.trim_end_matches("_total");
        let is_time = ["seconds"].iter().any(|unit| base.ends_with(unit));
        assert!(is_time || !base.contains("second") || base.contains("per_second"), "{name}");
        assert!(!name.contains("millis") && !name.contains("micros") && !name.contains("_ms"), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
    }
    let open = series(&text);
    assert_eq!(open["penstock_ready"], 1.0);
    assert_eq!(open["penstock_unflushed_rows"], 10.0);
    assert_eq!(open["penstock_table_unflushed_rows{table=\"default.metered\"}"], 10.0);
    assert_eq!(open["penstock_table_open_generations{table=\"default.metered\"}"], 1.0);
    assert_eq!(open["penstock_log_sync_seconds_count{shard=\"0\"}"], open["penstock_log_groups_total{shard=\"0\"}"]);
    assert_eq!(
        open["penstock_log_sync_seconds_bucket{shard=\"0\",le=\"+Inf\"}"],
        open["penstock_log_sync_seconds_count{shard=\"0\"}"]
    );
    assert_eq!(open["penstock_log_group_records_count{shard=\"0\"}"], open["penstock_log_groups_total{shard=\"0\"}"]);
    assert_eq!(open["penstock_log_group_records_sum{shard=\"0\"}"], open["penstock_log_records_total{shard=\"0\"}"]);
    assert_eq!(open["penstock_admission_admissions_total"], 1.0);
    assert!(open["penstock_replay_rate_bytes_per_second"] > 0.0, "by a self-test");
    assert_eq!(open["penstock_replay_rate_measured"], 0.0);
    assert!(
        open["penstock_disk_free_bytes{disk=\"data\"}"] > 0.0
            && open["penstock_disk_free_bytes{disk=\"lane-0\"}"] > 0.0
    );
    for name in ["seal", "encode", "upload", "commit", "confirm"] {
        assert_eq!(open[format!("penstock_flush_{name}_seconds_count").as_str()], 0.0, "{name}");
    }
    assert!(open["process_resident_memory_bytes"] > 1e6 && open["process_cpu_seconds_total"] > 0.0);
    assert!(open[concat!("penstock_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}")] == 1.0);

    server.append("metered", rows(10)).await;
    server.flush().await;
    let flushed = series_of(&scrape(&server).await);
    assert_eq!(flushed["penstock_unflushed_rows"], 0.0);
    assert_eq!(flushed["penstock_table_unflushed_rows{table=\"default.metered\"}"], 0.0);
    for name in ["encode", "upload", "commit"] {
        let (count, sum) =
            (format!("penstock_flush_{name}_seconds_count"), format!("penstock_flush_{name}_seconds_sum"));
        assert!(flushed[&count] >= 1.0 && flushed[&sum] > 0.0 && flushed[&sum] < 60.0, "{name}");
    }
    assert_eq!(flushed["penstock_flush_generations_total"], 1.0);
    assert_eq!(flushed["penstock_table_commits_total{table=\"default.metered\"}"], 1.0);
    assert_eq!(flushed["penstock_table_flush_failures_total{table=\"default.metered\"}"], 0.0);
    assert_eq!((flushed["penstock_cursor_lag_seconds"], flushed["penstock_flush_encoding_bytes"]), (0.0, 0.0));
    let checkpointed = server.send("/v1/checkpoint", &[], "").await;
    assert_eq!(checkpointed.status, 200);
    let phases = series_of(&scrape(&server).await);
    for phase in ["swap", "write", "barrier", "edit", "recycle"] {
        assert!(
            phases[&format!("penstock_checkpoint_phase_seconds_count{{shard=\"0\",phase=\"{phase}\"}}")] >= 1.0,
            "{phase}"
        );
    }
    assert!(flushed["penstock_table_delta_version{table=\"default.metered\"}"] >= 1.0);
    for counter in
        ["penstock_log_records_total", "penstock_log_payload_bytes_total", "penstock_log_written_bytes_total"]
    {
        let name = format!("{counter}{{shard=\"0\"}}");
        assert!(flushed[&name] > open[name.as_str()], "{name} should have grown");
    }
    server.stop().await;
}

fn series_of(text: &str) -> BTreeMap<String, f64> {
    series(text).into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
