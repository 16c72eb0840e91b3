use super::*;

fn table(name: &str, bytes: u64) -> Table {
    Table { table: name.to_owned(), unflushed_bytes: bytes, unflushed_rows: 1, ..Table::default() }
}

#[test]
fn many_tables_make_no_more_series_than_allowed_and_nothing_is_left_out() {
    let mut scrape = Scrape::default();
    tables(&mut scrape, (0..1_000).map(|n| table(&format!("t{n}"), n)).collect());
    let text = scrape.into_text();
    let series: Vec<&str> = text.lines().filter(|l| l.starts_with("penstock_table_unflushed_bytes{")).collect();
    assert_eq!(series.len(), MAX_TABLES + 1);
    assert!(text.contains("penstock_table_unflushed_bytes{table=\"t999\"} 999\n"), "{text}");
    assert!(text.contains("penstock_table_unflushed_rows{table=\"(other)\"} 900\n"), "{text}");
    let sum: u64 = series.iter().filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    assert_eq!(sum, (0..1_000).sum::<u64>());
    assert!(text.contains("penstock_tables 1000\n"), "{text}");
}

#[test]
fn a_histogram_counts_what_is_beyond_its_bounds() {
    let mut durations = Durations::default();
    durations.counts[0] = 2;
    durations.counts[BOUNDS_MICROS.len()] = 3;
    durations.micros = 2_000_000;
    let Value::Histogram { buckets, beyond, sum } = histogram(&durations) else { panic!("should be a histogram") };
    assert_eq!((buckets[0], buckets.len(), beyond), ((0.00001, 2), BOUNDS_MICROS.len(), 3));
    assert!((sum - 2.0).abs() < 1e-9);
}
