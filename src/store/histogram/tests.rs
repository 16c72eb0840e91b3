use super::*;

#[test]
fn a_bound_belongs_to_its_own_class() {
    let histogram = Histogram::default();
    let micros = Duration::from_micros;
    for duration in
        [micros(10), micros(10) + Duration::from_nanos(1), micros(5_000), micros(5_001), micros(600_000_000)]
    {
        histogram.count(duration);
    }
    let read = histogram.read();
    assert_eq!((read.counts[3], read.counts[4], read.count()), (1, 1, 5));
    assert_eq!(read.larger_than(5_000), 2);
    assert_eq!(read.larger_than(10), 4);
    assert_eq!(read.larger_than(100_000_000), 1);
    assert_eq!(read.largest_within(), None);
    assert_eq!(read.sum, 600_010_021);
}

#[test]
fn a_window_does_not_know_what_came_before() {
    let histogram = Histogram::default();
    assert_eq!(histogram.read().largest_within(), Some(0));
    histogram.count(Duration::from_millis(300));
    let before = histogram.read();
    histogram.count(Duration::from_micros(120));
    let window = histogram.read().since(&before);
    assert_eq!(window.largest_within(), Some(200));
    assert_eq!(window.larger_than(5_000), 0);
    assert_eq!(window.sum, 120);
}

#[test]
fn sizes_are_counted_as_they_are() {
    let histogram = Histogram::default();
    [0, 1, 2, 3, 5, 6, u64::MAX].into_iter().for_each(|size| histogram.count_size(size));
    let read = histogram.read();
    assert_eq!(read.counts[..4], [2, 1, 2, 1]);
    assert_eq!((read.counts[BOUNDS.len()], read.count()), (1, 7));
}
