use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::policy::relief_bytes;
use super::*;

const LIMITS: Limits = Limits { max_unflushed: 1_000, max_in_flight: 400 };

#[test]
fn admits_up_to_the_limit_and_refuses_beyond() {
    let at = |unflushed, in_flight, bytes| policy(Usage { unflushed, in_flight }, bytes, LIMITS);
    assert_eq!(at(0, 0, 400), Decision::Admit);
    assert_eq!(at(600, 0, 400), Decision::Admit);
    assert!(matches!(at(601, 0, 400), Decision::Refuse(Refusal::Unflushed { .. })));
    assert!(matches!(at(0, 200, 201), Decision::Refuse(Refusal::InFlight { .. })));
    let never = at(0, 0, 401);
    assert_eq!(never, Decision::Refuse(Refusal::NeverFits { bytes: 401, limit: 400 }));
}

#[test]
fn a_refusal_says_when_to_come_again_but_for_what_never_fits() {
    for unflushed in [1_000, 2_000, u64::MAX] {
        let Decision::Refuse(refusal) = policy(Usage { unflushed, in_flight: 0 }, 1, LIMITS) else {
            panic!("{unflushed} should be refused")
        };
        let wait = refusal.retry_after().expect("should say when").as_secs_f64();
        assert!((1.0..=10.0).contains(&wait), "{wait}");
    }
    assert_eq!(Refusal::NeverFits { bytes: 1, limit: 0 }.retry_after(), None);
}

#[test]
fn relief_is_wanted_before_anybody_is_refused() {
    for (unflushed, wanted) in [(0, 0), (500, 0), (501, 1), (1_000, 500), (2_000, 1_500)] {
        assert_eq!(relief_bytes(Usage { unflushed, in_flight: 0 }, LIMITS), wanted);
    }
}

#[test]
fn leases_are_counted_grown_and_given_back() {
    let admission = Admission::new(LIMITS);
    let mut first = admission.lease(100, 0).expect("should be admitted");
    let second = admission.lease(200, 0).expect("should be admitted");
    assert_eq!(admission.in_flight(), 300);
    assert!(first.grow_to(201, 0).is_err());
    assert_eq!((admission.in_flight(), admission.refusals()), (300, 1));
    first.grow_to(200, 0).expect("should fit");
    first.grow_to(50, 0).expect("should stay");
    assert_eq!(admission.in_flight(), 400);
    drop(second);
    drop(first);
    assert_eq!(admission.in_flight(), 0);
}

#[test]
fn a_post_that_grows_beyond_what_ever_fits_is_told_so() {
    let admission = Admission::new(LIMITS);
    let mut lease = admission.lease(300, 0).expect("should be admitted");
    let refusal = lease.grow_to(401, 0).expect_err("should be refused");
    assert_eq!(refusal, Refusal::NeverFits { bytes: 401, limit: 400 });
    assert_eq!(admission.in_flight(), 300);
}

/// Small numbers around the limits, and the ends of the range.
fn any(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..10) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX - rng.random_range(0..5),
        _ => rng.random_range(0..40),
    }
}

fn wait(decision: Decision) -> Option<Duration> {
    match decision {
        Decision::Admit => None,
        Decision::Refuse(refusal) => Some(refusal.retry_after().unwrap_or(Duration::MAX)),
    }
}

#[test]
fn properties_of_the_policy() {
    for seed in 0..50_000 {
        let rng = &mut StdRng::seed_from_u64(seed);
        // Sums saturate, so that a limit of all there is would be no limit.
        let mut limit = || any(rng).min(u64::MAX - 1);
        let limits = Limits { max_unflushed: limit(), max_in_flight: limit() };
        let (usage, bytes) = (Usage { unflushed: any(rng), in_flight: any(rng) }, any(rng));
        let at = format!("seed {seed}: {usage:?} {bytes} {limits:?}");
        let decision = policy(usage, bytes, limits);
        let fits = bytes <= limits.max_unflushed.min(limits.max_in_flight);
        assert_eq!(
            fits,
            policy(Usage::default(), bytes, limits) == Decision::Admit,
            "an idle node takes what fits; {at}"
        );
        assert_eq!(!fits, matches!(decision, Decision::Refuse(Refusal::NeverFits { .. })), "{at}");
        if decision == Decision::Admit {
            assert!(usage.in_flight.checked_add(bytes).is_some_and(|b| b <= limits.max_in_flight), "{at}");
            let total = usage.unflushed.checked_add(usage.in_flight).and_then(|b| b.checked_add(bytes));
            assert!(total.is_some_and(|b| b <= limits.max_unflushed), "{at}");
            let smaller = rng.random_range(0..=bytes);
            assert_eq!(policy(usage, smaller, limits), Decision::Admit, "less is admitted too; {at}");
        } else if fits {
            let wait = wait(decision).expect("should wait").as_secs_f64();
            assert!((1.0..=10.0).contains(&wait), "{wait}; {at}");
            let fuller = Usage {
                unflushed: usage.unflushed.saturating_add(any(rng)),
                in_flight: usage.in_flight.saturating_add(any(rng)),
            };
            assert_ne!(policy(fuller, bytes, limits), Decision::Admit, "a fuller node refuses too; {at}");
        }
        assert!(relief_bytes(usage, limits) <= usage.unflushed, "{at}");
        if matches!(decision, Decision::Refuse(Refusal::Unflushed { .. })) && usage.in_flight == 0 && bytes == 1 {
            assert!(relief_bytes(usage, limits) > 0 || limits.max_unflushed < 2, "refused without relief; {at}");
        }
    }
}

/// Posts that come, grow, fail, are acknowledged, and reach Delta, in any order.
#[test]
fn what_is_held_never_exceeds_the_limits_and_everything_is_given_back() {
    for seed in 0..500 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let limits = Limits { max_unflushed: rng.random_range(1..2_000), max_in_flight: rng.random_range(1..1_000) };
        let admission = Admission::new(limits);
        let mut leases: Vec<(Lease, u64)> = Vec::new();
        let mut unflushed = 0;
        for _ in 0..300 {
            match rng.random_range(0..5) {
                0 | 1 => {
                    let bytes = rng.random_range(0..500);
                    leases.extend(admission.lease(bytes, unflushed).ok().map(|lease| (lease, bytes)));
                }
                2 if !leases.is_empty() => {
                    let at = rng.random_range(0..leases.len());
                    let bytes = leases[at].1 + rng.random_range(0..100);
                    if leases[at].0.grow_to(bytes, unflushed).is_ok() {
                        leases[at].1 = bytes;
                    }
                }
                3 if !leases.is_empty() => {
                    let (lease, bytes) = leases.swap_remove(rng.random_range(0..leases.len()));
                    if rng.random_bool(0.8) {
                        unflushed += bytes;
                    }
                    drop(lease);
                }
                _ => unflushed -= rng.random_range(0..=unflushed),
            }
            let in_flight: u64 = leases.iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(admission.in_flight(), in_flight, "seed {seed}");
            assert!(in_flight <= limits.max_in_flight && in_flight + unflushed <= limits.max_unflushed, "seed {seed}");
        }
        leases.clear();
        assert_eq!(admission.in_flight(), 0, "seed {seed}");
        assert!(admission.lease(1, 0).is_ok(), "an empty node takes posts again; seed {seed}");
    }
}
