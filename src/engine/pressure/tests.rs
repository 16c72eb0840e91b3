use super::*;

#[test]
fn the_rate_is_what_left_over_the_window_and_idle_time_does_not_count() {
    let mut drain = Drain::default();
    let start = Instant::now();
    let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
    assert_eq!(drain.look(at(0.0), 0, 0), 0);
    // A flush of 10,000 bytes every five seconds.
    let mut rate = 0;
    for tick in 0..400_u32 {
        let seconds = f64::from(tick) / 10.0;
        let left = (seconds / 5.0) as u64 * 10_000;
        rate = drain.look(at(seconds), left, 1);
        if seconds > 12.0 {
            assert!((900..=3_100).contains(&rate), "{rate} at {seconds}");
        }
    }
    assert!(rate > 0);
    // An hour without a row, then rows again: the rate is not one over an hour.
    assert_eq!(drain.look(at(3_600.0), 80_000, 0), rate);
    assert_eq!(drain.look(at(3_601.0), 80_000, 1), rate);
    assert_eq!(drain.look(at(3_602.0), 80_000, 1), rate);
}

#[test]
fn an_outage_brings_the_rate_to_nothing() {
    let mut drain = Drain::default();
    let start = Instant::now();
    let mut rate = u64::MAX;
    for tick in 0..300_u32 {
        let left = u64::from(tick.min(100)) * 1_000;
        rate = drain.look(start + TICK * tick, left, 1);
    }
    assert_eq!(rate, 0);
}
