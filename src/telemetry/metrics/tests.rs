use std::collections::HashSet;

use super::*;

#[test]
fn names_follow_the_rules() {
    let mut seen = HashSet::new();
    for metric in ALL {
        let Metric { name, help, kind, .. } = *metric;
        assert!(seen.insert(name), "{name} is there twice");
        assert!(name.starts_with("penstock_") || name.starts_with("process_"), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
        assert!(help.ends_with('.') && help.len() > 10, "{name}: {help}");
        if kind == Kind::Histogram {
            assert!(name.ends_with("_seconds") || name.ends_with("_records"), "{name}");
        }
    }
}

#[test]
fn the_text_is_what_prometheus_reads() {
    let mut scrape = Scrape::default();
    scrape.add(LOG_RECORDS, &["0"], 7_u64);
    scrape.add(LOG_RECORDS, &["1"], 8_u64);
    scrape.add(READY, &[], true);
    scrape.add(UPTIME, &[], 1.5);
    scrape.add(TABLE_ROWS, &["a\"b\\c\n"], 1_u64);
    let buckets = vec![(0.001, 2), (0.01, 3)];
    scrape.add(LOG_SYNC, &["0"], Value::Histogram { buckets, beyond: 1, sum: 0.25 });
    let text = scrape.into_text();
    for line in [
        "# HELP penstock_log_records_total Records made durable.",
        "# TYPE penstock_log_records_total counter",
        "penstock_log_records_total{shard=\"0\"} 7",
        "penstock_log_records_total{shard=\"1\"} 8",
        "# TYPE penstock_ready gauge",
        "penstock_ready 1",
        "penstock_uptime_seconds 1.5",
        r#"penstock_table_unflushed_rows{table="a\"b\\c\n"} 1"#,
        "# TYPE penstock_log_sync_seconds histogram",
        "penstock_log_sync_seconds_bucket{shard=\"0\",le=\"0.001\"} 2",
        "penstock_log_sync_seconds_bucket{shard=\"0\",le=\"0.01\"} 5",
        "penstock_log_sync_seconds_bucket{shard=\"0\",le=\"+Inf\"} 6",
        "penstock_log_sync_seconds_sum{shard=\"0\"} 0.25",
        "penstock_log_sync_seconds_count{shard=\"0\"} 6",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is missing in:\n{text}");
    }
    assert_eq!(text.matches("# TYPE penstock_log_records_total").count(), 1);
}
