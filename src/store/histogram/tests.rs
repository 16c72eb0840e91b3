use super::*;

#[test]
fn a_bound_belongs_to_its_own_class() {
    let histogram = Histogram::default();
    let micros = Duration::from_micros;
    for duration in [micros(10), micros(10) + Duration::from_nanos(1), micros(5_000), micros(5_001), micros(600_000)] {
        histogram.count(duration);
    }
    let read = histogram.read();
    assert_eq!((read.counts[0], read.counts[1]), (1, 1));
    assert_eq!(read.longer_than(5_000), 2);
    assert_eq!(read.longer_than(10), 4);
    assert_eq!(read.longer_than(500_000), 1);
    assert_eq!(read.longest_within(), None);
    assert_eq!(read.micros, 610_021);
}

#[test]
fn a_window_does_not_know_what_came_before() {
    let histogram = Histogram::default();
    assert_eq!(histogram.read().longest_within(), Some(0));
    histogram.count(Duration::from_millis(300));
    let before = histogram.read();
    histogram.count(Duration::from_micros(120));
    let window = histogram.read().since(&before);
    assert_eq!(window.longest_within(), Some(200));
    assert_eq!(window.longer_than(5_000), 0);
    assert_eq!(window.micros, 120);
}
