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
    let mut counted = Distribution { sum: 2_000_000, ..Distribution::default() };
    for (at, count) in [(0, 2), (3, 5), (4, 7), (BOUNDS.len() - 1, 1), (BOUNDS.len(), 3)] {
        counted.counts[at] = count;
    }
    let Value::Histogram { buckets, beyond, sum } = histogram(&counted, MOMENTS) else {
        panic!("should be a histogram")
    };
    // From 10 us on, with what is smaller; up to 5 s, and what is larger beyond.
    assert_eq!(
        (buckets[0], buckets[1], buckets.last().copied(), beyond),
        ((0.00001, 7), (0.00002, 7), Some((5.0, 0)), 4)
    );
    assert!((sum - 2.0).abs() < 1e-9);
    let Value::Histogram { buckets, sum, .. } = histogram(&counted, RECORDS) else { panic!("should be a histogram") };
    assert_eq!((buckets[0], buckets.len()), ((1.0, 2), 13));
    assert!((sum - 2e6).abs() < 1e-9);
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    assert_eq!(all, 14);
}
