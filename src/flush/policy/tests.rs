use super::*;

const HOUR: i64 = 3_600_000_000;

fn open_for(seconds: u64) -> Candidate {
    Candidate { bytes: 1_000, age: Duration::from_secs(seconds), window_end: HOUR }
}

fn reason(candidate: Candidate, now: i64, relief: bool) -> Option<Reason> {
    seal_reason(&candidate, &Options::default(), now, relief, || true)
}

#[test]
fn a_fresh_bucket_stays_open() {
    assert_eq!(reason(open_for(10), HOUR / 2, false), None);
}

#[test]
fn the_window_and_its_grace_have_to_pass() {
    assert_eq!(reason(open_for(10), HOUR + 9_999_999, false), None);
    assert_eq!(reason(open_for(10), HOUR + 10_000_000, false), Some(Reason::Window));
}

#[test]
fn a_clock_that_jumps_ahead_does_not_seal_what_has_just_been_opened() {
    assert_eq!(reason(open_for(4), i64::MAX, false), None);
    assert_eq!(reason(open_for(5), i64::MAX, false), Some(Reason::Window));
}

#[test]
fn a_clock_that_jumps_back_does_not_freeze_sealing() {
    assert_eq!(reason(open_for(60), i64::MIN, false), Some(Reason::Age));
}

#[test]
fn size_seals_at_once() {
    let large = Candidate { bytes: 64 << 20, ..open_for(0) };
    assert_eq!(reason(large, 0, false), Some(Reason::Size));
}

#[test]
fn pressure_seals_the_open_bucket_but_not_crumbs() {
    assert_eq!(reason(open_for(0), 0, true), None);
    assert_eq!(reason(open_for(1), 0, true), Some(Reason::Pressure));
    assert_eq!(reason(Candidate { bytes: 256 << 10, ..open_for(0) }, 0, true), Some(Reason::Pressure));
}

#[test]
fn a_table_that_was_sealed_from_lately_waits_for_its_cadence_and_only_where_a_window_has_passed() {
    let reason = |candidate, relief| seal_reason(&candidate, &Options::default(), i64::MAX, relief, || false);
    assert_eq!(reason(open_for(10), false), None);
    assert_eq!(reason(open_for(10), true), Some(Reason::Pressure));
    assert_eq!(reason(open_for(60), false), Some(Reason::Age));
    assert_eq!(reason(Candidate { bytes: 64 << 20, ..open_for(0) }, false), Some(Reason::Size));
}
