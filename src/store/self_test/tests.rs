use super::*;

#[test]
fn what_is_replayed_is_a_whole_log_with_all_its_rows() {
    let segment = synthetic();
    let mut records = 0;
    let mut state = ShardState::new(Lsn(0));
    let tail = scan::replay(std::slice::from_ref(&segment), Lsn(0), segment.limit(), |lsn, record| {
        records += 1;
        state.apply(lsn, record).map(drop).map_err(|e| scan::Refusal::Contradiction(e.to_string()))
    });
    let tail = tail.expect("should be whole");
    assert_eq!(tail.end, segment.limit());
    assert!(!tail.torn && tail.in_doubt.is_empty());
    assert!(tail.end.0 >= LOG_BYTES && tail.end.0 < 2 * LOG_BYTES, "{}", tail.end);
    let (rows, bytes) = state.unflushed();
    assert_eq!((rows, bytes), (records * 10, records * PAYLOAD as u64));
    // Mostly rows, as a real one.
    assert!(bytes > tail.end.0 / 2, "{bytes} of {}", tail.end);
}

#[test]
fn the_rate_is_that_of_the_slowest_shard() {
    let second = Duration::from_secs(1);
    assert_eq!(rate(vec![(1_000, second), (1_000, second * 2), (3_000, second * 2)]), 500);
    assert_eq!(rate(Vec::new()), 0);
    let segment = synthetic();
    let (weight, took) = replay_for(&segment, Duration::ZERO);
    assert!(weight > segment.limit().0, "once, at least");
    assert!(took > Duration::ZERO);
    assert!(replay_rate(3) > 0);
}
