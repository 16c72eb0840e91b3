use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Over the whole range of what can be configured and measured, seeded.
#[test]
fn an_interval_is_within_its_bounds_and_falls_as_the_rate_grows() {
    let mut random = StdRng::seed_from_u64(4);
    for round in 0..20_000 {
        let least = Duration::from_secs_f64(10_f64.powf(random.random_range(-3.0..3.0)));
        let most = Duration::from_secs_f64(10_f64.powf(random.random_range(-3.0..5.0)));
        let target = random.random_range(1..1_u64 << 34);
        let rate = 10_f64.powf(random.random_range(-3.0..12.0));
        let here = interval(rate, target, least, most);
        let context = format!("round {round}: {rate} {target} {least:?} {most:?}: {here:?}");
        assert!(here >= least && here <= most.max(least), "{context}");
        assert!(interval(rate * 2.0, target, least, most) <= here, "{context}");
        assert!(interval(rate, target / 2, least, most) <= here, "{context}");
        if here > least && here < most {
            let filled = here.as_secs_f64() * rate / target as f64;
            assert!((filled - 1.0).abs() < 1e-3, "a file of the target size: {context}: {filled}");
        }
    }
}

#[test]
fn a_rate_that_is_none_waits_for_the_longest() {
    for rate in [0.0, f64::NAN, f64::MIN_POSITIVE, -1.0, f64::INFINITY] {
        let here = interval(rate, 1 << 28, 5 * SECOND, 60 * SECOND);
        let expected = if rate == f64::INFINITY { 5 * SECOND } else { 60 * SECOND };
        assert_eq!(here, expected, "{rate}");
    }
}

/// A table that fills files fast is sealed often, one that trickles once in `max_age`.
#[test]
fn tables_find_their_own_pace() {
    let options = Options::default();
    let begin = Instant::now();
    let pace = |bytes_a_second: u64| {
        let (mut cadence, mut now, mut seals) = (Cadence::default(), begin, Vec::new());
        assert!(cadence.is_due(&options, now), "the first seal waits for nothing");
        cadence.sealed(bytes_a_second, now);
        let mut open = 0;
        while now < begin + 1_000 * SECOND {
            now += SECOND;
            open += bytes_a_second;
            if cadence.is_due(&options, now) {
                cadence.sealed(open, now);
                cadence.encoded(open, open / 10);
                seals.push(now);
                open = 0;
            }
        }
        let last = &seals[seals.len() - 2..];
        last[1] - last[0]
    };
    assert_eq!(pace(1_000), options.max_age);
    assert_eq!(pace(10 << 30), options.commit_interval);
    let between = pace(100 << 20);
    let expected = 256.0 / 10.0;
    assert!((between.as_secs_f64() - expected).abs() <= 2.0, "{between:?}");
}

#[test]
fn a_load_beyond_what_can_be_done_says_what_would_do() {
    let mut load = Load { active_tables: 10_000, ..Load::default() };
    assert_eq!(load.infeasible(4, 64, 60 * SECOND), None, "nothing was measured");
    load.uploaded(Duration::from_millis(180));
    load.committed(Duration::from_millis(100));
    assert_eq!(load.round(4, 64), Some(450 * SECOND));
    let why = load.infeasible(4, 64, 60 * SECOND).expect("should not be feasible");
    assert!(why.contains("450.0 s") && why.contains("flush.parallelism to 30 "), "{why}");
    assert_eq!(load.infeasible(30, 64, 60 * SECOND), None);
    load.active_tables = 1_000;
    assert_eq!(load.infeasible(4, 64, 60 * SECOND), None);
}

#[test]
fn averages_follow_slowly() {
    let mut load = Load::default();
    load.committed(SECOND);
    load.committed(2 * SECOND);
    assert_eq!(load.commit, Some(Duration::from_millis(1_300)));
    let mut cadence = Cadence::default();
    cadence.encoded(0, 5);
    cadence.encoded(100, 20);
    assert!((cadence.ratio - FIRST_RATIO).abs() < 1e-9);
}
