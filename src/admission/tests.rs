use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::policy::{RETRY_MAX, RETRY_MIN, relief_bytes, wants_checkpoint};
use super::*;

const LIMITS: Limits =
    Limits { max_unflushed: 1_000, max_in_flight: 400, table: 1_000, namespace: 1_000, replay: 10_000, max_lag: None };

fn usage(unflushed: u64, in_flight: u64) -> Usage {
    Usage { unflushed, in_flight, ..Usage::default() }
}

fn refusal(decision: Decision) -> Refusal {
    match decision {
        Decision::Refuse(refusal) => refusal,
        other => panic!("should be refused: {other:?}"),
    }
}

#[test]
fn admits_up_to_the_limit_and_refuses_beyond() {
    let at = |unflushed, in_flight, bytes| policy(&usage(unflushed, in_flight), bytes, &LIMITS);
    assert_eq!(at(0, 0, 400), Decision::Admit);
    assert!(matches!(at(600, 0, 400), Decision::Delay(_)));
    assert_eq!(refusal(at(601, 0, 400)).code(), "over_unflushed_limit");
    assert_eq!(refusal(at(0, 200, 201)).code(), "over_in_flight_limit");
    assert_eq!(refusal(at(0, 0, 401)), Refusal::NeverFits { bytes: 401, limit: 400 });
}

#[test]
fn each_budget_is_named_and_says_whose_it_is() {
    let limits = Limits { table: 500, namespace: 800, max_lag: Some(Duration::from_secs(60)), ..LIMITS };
    let cases = [
        (Usage { table: 499, ..usage(499, 0) }, "over_table_share", true),
        (Usage { table: 100, namespace: 799, ..usage(799, 0) }, "over_namespace_share", true),
        (Usage { lag: Duration::from_secs(61), ..usage(1, 0) }, "over_cursor_lag", true),
        (Usage { replay: 9_999, ..usage(1, 0) }, "over_replay_budget", false),
        (usage(999, 0), "over_unflushed_limit", false),
        (usage(0, 399), "over_in_flight_limit", false),
    ];
    for (usage, code, own) in cases {
        let refusal = refusal(policy(&usage, 2, &limits));
        assert_eq!((refusal.code(), refusal.is_own()), (code, own));
        assert!(Refusal::CODES.contains(&code));
    }
    // One byte less in each, and it is let in.
    assert!(!matches!(policy(&Usage { table: 498, ..usage(498, 0) }, 2, &limits), Decision::Refuse(_)));
}

#[test]
fn delays_grow_without_a_step_from_nothing_to_a_second() {
    let delay = |unflushed| match policy(&usage(unflushed, 0), 0, &LIMITS) {
        Decision::Admit => Duration::ZERO,
        Decision::Delay(delay) => delay,
        Decision::Refuse(refusal) => panic!("{refusal}"),
    };
    assert_eq!(delay(800), Duration::ZERO);
    assert_eq!(delay(900), Duration::from_millis(250));
    assert_eq!(delay(1_000), Duration::from_secs(1));
    let mut last = Duration::ZERO;
    for unflushed in 0..=1_000 {
        let delay = delay(unflushed);
        assert!(delay >= last && delay - last < Duration::from_millis(20), "{unflushed}: {last:?} to {delay:?}");
        last = delay;
    }
}

#[test]
fn a_refused_post_is_told_when_the_measured_rate_will_have_made_room() {
    let full = Usage { drain_rate: 20, ..usage(1_000, 0) };
    // From 1,001 down to nine tenths of 1,000 at 20 bytes a second.
    assert_eq!(refusal(policy(&full, 1, &LIMITS)).retry_after(), Some(Duration::from_secs_f64(101.0 / 20.0)));
    let slow = Usage { drain_rate: 1, ..full };
    assert_eq!(refusal(policy(&slow, 1, &LIMITS)).retry_after(), Some(RETRY_MAX));
    let fast = Usage { drain_rate: 1_000_000, ..full };
    assert_eq!(refusal(policy(&fast, 1, &LIMITS)).retry_after(), Some(RETRY_MIN));
    assert_eq!(Refusal::NeverFits { bytes: 1, limit: 0 }.retry_after(), None);
}

#[test]
fn relief_and_checkpoints_come_before_anybody_is_held_up() {
    for (unflushed, wanted) in [(0, 0), (500, 0), (501, 1), (1_000, 500), (2_000, 1_500)] {
        assert_eq!(relief_bytes(unflushed, &LIMITS), wanted);
    }
    for (replay, wanted) in [(0, false), (4_999, false), (5_000, true), (u64::MAX, true)] {
        assert_eq!(wants_checkpoint(replay, &LIMITS), wanted, "{replay}");
    }
    assert!(!wants_checkpoint(0, &Limits { replay: 0, ..LIMITS }), "nothing can be moved out of an empty log");
}

#[test]
fn budgets_become_bytes() {
    let options = Options { replay_budget: Duration::from_secs(10), ..Options::default() };
    let limits = options.limits(1_000, Duration::from_secs(2));
    assert_eq!(limits.replay, 8_000);
    assert_eq!((limits.table, limits.namespace), (1 << 29, ((1_u64 << 30) as f64 * 0.8) as u64));
    assert_eq!(limits.max_lag, None);
    // Loading takes all of it: a tenth is left, or nothing could ever be written.
    assert_eq!(options.limits(1_000, Duration::from_secs(20)).replay, 1_000);
}

#[test]
fn settings_that_cannot_be_are_named() {
    let share = Options { table_share: 1.5, ..Options::default() };
    assert!(share.validate().expect_err("should be refused").to_string().contains("admission.table_share = 1.5"));
    let nan = Options { namespace_share: f64::NAN, ..Options::default() };
    assert!(nan.validate().expect_err("should be refused").to_string().contains("namespace_share"));
    let nothing = Options { replay_budget: Duration::ZERO, ..Options::default() };
    assert_eq!(nothing.validate(), Err(OptionsError::Nothing("replay_budget")));
    assert_eq!(Options::default().validate(), Ok(()));
}

fn lease(admission: &Arc<Admission>, bytes: u64, unflushed: u64) -> Result<Lease, Refusal> {
    admission.lease(None, bytes, waiting(unflushed)).map(|(lease, _)| lease)
}

fn waiting(unflushed: u64) -> Backlog {
    Backlog { unflushed, ..Backlog::default() }
}

#[test]
fn leases_are_counted_grown_and_given_back() {
    let admission = Admission::new(LIMITS);
    let mut first = lease(&admission, 100, 0).expect("should be admitted");
    let second = lease(&admission, 200, 0).expect("should be admitted");
    assert_eq!(admission.in_flight(), 300);
    assert!(first.grow_to(201, waiting(0)).is_err());
    assert_eq!((admission.in_flight(), admission.refusals()), (300, 1));
    assert_eq!(admission.refusals_by_reason(), [("over_in_flight_limit", 1)]);
    first.grow_to(200, waiting(0)).expect("should fit");
    first.grow_to(50, waiting(0)).expect("should stay");
    assert_eq!(admission.in_flight(), 400);
    drop(second);
    drop(first);
    assert_eq!(admission.in_flight(), 0);
}

#[test]
fn what_working_on_a_post_takes_counts_for_the_node_and_for_nobodys_share() {
    let admission = Admission::new(Limits { table: 150, ..LIMITS });
    let share = share(&admission, 1, "a");
    let (mut first, _) = admission.lease(share.clone(), 100, waiting(0)).expect("should be admitted");
    let mut second = lease(&admission, 50, 0).expect("should be admitted");
    first.work(200).expect("should fit");
    assert_eq!(admission.in_flight(), 350);
    // Fifty bytes more are there, for whoever asks first.
    assert_eq!(second.work(51).expect_err("should be refused").code(), "over_in_flight_limit");
    assert_eq!((admission.in_flight(), admission.refusals()), (350, 1));
    second.work(50).expect("should fit");
    assert_eq!(admission.lease(share.clone(), 1, waiting(0)).expect_err("is full").code(), "over_in_flight_limit");
    first.work(0).expect("less is never refused");
    // The table's share has room for what it does not hold as rows.
    drop(admission.lease(share, 50, waiting(0)).expect("should be admitted"));
    drop(second);
    // Alone it may take twice as much as all together, and no more.
    first.work(700).expect("should fit");
    assert_eq!(first.work(701).expect_err("should be refused"), Refusal::NeverFits { bytes: 801, limit: 800 });
    assert!(lease(&admission, 1, 0).is_err());
    drop(first);
    assert_eq!(admission.in_flight(), 0);
}

#[test]
fn what_is_announced_is_judged_and_not_held() {
    let admission = Admission::new(LIMITS);
    let mut first = lease(&admission, 10, 0).expect("should be admitted");
    first.would_grow_to(400, waiting(0)).expect("would fit");
    assert_eq!(admission.in_flight(), 10);
    assert!(first.would_grow_to(401, waiting(0)).is_err());
    assert!(first.would_grow_to(100, waiting(950)).is_err());
    drop(lease(&admission, 390, 0).expect("should be admitted"));
    drop(first);
    assert_eq!(admission.in_flight(), 0);
}

#[test]
fn the_log_is_looked_at_with_each_post() {
    let admission = Admission::new(LIMITS);
    let replay = |replay| admission.lease(None, 10, Backlog { unflushed: 0, replay }).map(|(lease, _)| lease);
    drop(replay(9_990).expect("should be admitted"));
    assert_eq!(replay(9_991).expect_err("should be refused").code(), "over_replay_budget");
}

#[test]
fn a_post_that_grows_beyond_what_ever_fits_is_told_so() {
    let admission = Admission::new(LIMITS);
    let mut lease = lease(&admission, 300, 0).expect("should be admitted");
    let refusal = lease.grow_to(401, waiting(0)).expect_err("should be refused");
    assert_eq!(refusal, Refusal::NeverFits { bytes: 401, limit: 400 });
    assert_eq!(admission.in_flight(), 300);
}

fn share(admission: &Admission, number: u128, namespace: &str) -> Option<Arc<Share>> {
    share_of(admission, number, namespace, &Arc::default())
}

fn share_of(
    admission: &Admission,
    number: u128,
    namespace: &str,
    usage: &Arc<penstock_store::TableUsage>,
) -> Option<Arc<Share>> {
    let table = penstock_store::TableId(uuid::Uuid::from_u128(number));
    admission.share(table, namespace, || Some(Arc::clone(usage)))
}

#[test]
fn a_table_fills_its_own_share_and_nobody_elses() {
    let limits = Limits { max_in_flight: 1_000, table: 300, namespace: 500, ..LIMITS };
    let admission = Admission::new(limits);
    let [first, second, third] = [(1, "a"), (2, "a"), (3, "b")].map(|(n, namespace)| share(&admission, n, namespace));
    let of = |share: &Option<Arc<Share>>, bytes| admission.lease(share.clone(), bytes, waiting(0));
    let full = of(&first, 300).expect("should have its share");
    assert_eq!(of(&first, 1).expect_err("should be refused").code(), "over_table_share");
    let beside = of(&second, 200).expect("should have what is left of the namespace");
    assert_eq!(of(&second, 1).expect_err("should be refused").code(), "over_namespace_share");
    drop(of(&third, 300).expect("another namespace is not touched"));
    drop((full, beside));
    let usage = admission.fullest(70);
    assert_eq!((usage.table, usage.namespace, usage.in_flight, usage.unflushed), (0, 0, 0, 70));
    let some = of(&first, 300).expect("should be given back");
    let usage = admission.fullest(70);
    assert_eq!((usage.table, usage.namespace, usage.in_flight), (300, 300, 300));
    drop(some);
    // The same share, however often it is asked for.
    assert!(Arc::ptr_eq(&first.expect("should be known"), &share(&admission, 1, "a").expect("should be known")));
}

#[test]
fn a_namespace_never_has_more_waiting_than_the_node() {
    let admission = Admission::new(Limits { namespace: 500, ..LIMITS });
    let usage = Arc::new(penstock_store::TableUsage::default());
    let share = share_of(&admission, 1, "a", &usage);
    usage.set(1, 490, 490);
    admission.observe(Observed::default());
    assert_eq!(
        admission.lease(share.clone(), 20, waiting(490)).expect_err("should be refused").code(),
        "over_namespace_share"
    );
    // Flushed since the last look.
    usage.set(0, 0, 0);
    drop(admission.lease(share, 20, waiting(0)).expect("should be let in"));
}

#[test]
fn a_table_whose_rows_wait_for_too_long_is_held_back_alone() {
    let admission = Admission::new(Limits { max_lag: Some(Duration::from_secs(5)), ..LIMITS });
    let usage = Arc::new(penstock_store::TableUsage::default());
    usage.set(1, 1, 1);
    let [late, other] = [1, 2].map(|n| share_of(&admission, n, "a", &usage));
    let id = |number| penstock_store::TableId(uuid::Uuid::from_u128(number));
    admission.observe_lag(id(1), Duration::from_secs(6));
    admission.observe_lag(id(9), Duration::from_secs(6));
    assert_eq!(admission.lease(late.clone(), 1, waiting(0)).expect_err("should be refused").code(), "over_cursor_lag");
    drop(admission.lease(other, 1, waiting(0)).expect("should be let in"));
    admission.observe_lag(id(1), Duration::ZERO);
    drop(admission.lease(late.clone(), 1, waiting(0)).expect("should be let in again"));
    // All of it has reached Delta: nobody looks at the table any more, and nothing waits.
    admission.observe_lag(id(1), Duration::from_secs(6));
    assert!(admission.lease(late.clone(), 1, waiting(0)).is_err());
    usage.set(0, 0, 0);
    drop(admission.lease(late, 1, waiting(0)).expect("should be let in with nothing waiting"));
}

#[test]
fn limits_change_while_posts_are_in_flight() {
    let admission = Admission::new(LIMITS);
    let held = lease(&admission, 300, 0).expect("should be admitted");
    admission.set_limits(Limits { max_in_flight: 100, ..LIMITS });
    assert!(lease(&admission, 1, 0).is_err());
    drop(held);
    drop(lease(&admission, 100, 0).expect("should be admitted"));
    assert_eq!(admission.limits().max_in_flight, 100);
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

fn any_usage(rng: &mut StdRng) -> Usage {
    let mut any = || any(rng);
    let lag = Duration::from_millis(any() % 100);
    let in_flight = any();
    let (unflushed, work) = (any(), any().min(in_flight));
    let (table, namespace, replay, drain_rate) = (any(), any(), any(), any());
    Usage { unflushed, in_flight, work, table, namespace, replay, lag, drain_rate }
}

#[test]
fn properties_of_the_policy() {
    for seed in 0..50_000 {
        let rng = &mut StdRng::seed_from_u64(seed);
        // Sums saturate, so that a limit of all there is would be no limit.
        let mut limit = || any(rng).min(u64::MAX - 1);
        let limits = Limits {
            max_unflushed: limit(),
            max_in_flight: limit(),
            table: limit(),
            namespace: limit(),
            replay: limit(),
            max_lag: Some(Duration::from_millis(limit() % 100)).filter(|lag| !lag.is_zero()),
        };
        let (usage, bytes) = (any_usage(rng), any(rng));
        let at = format!("seed {seed}: {usage:?} {bytes} {limits:?}");
        let most = limits.largest();
        match policy(&usage, bytes, &limits) {
            Decision::Refuse(Refusal::NeverFits { .. }) => assert!(bytes > most, "{at}"),
            Decision::Refuse(refusal) => {
                assert!(bytes <= most, "{at}");
                let wait = refusal.retry_after().expect("should say when");
                assert!((RETRY_MIN..=RETRY_MAX).contains(&wait), "{wait:?}; {at}");
                let fuller = Usage {
                    unflushed: usage.unflushed.saturating_add(any(rng)),
                    in_flight: usage.in_flight.saturating_add(any(rng)),
                    table: usage.table.saturating_add(any(rng)),
                    namespace: usage.namespace.saturating_add(any(rng)),
                    replay: usage.replay.saturating_add(any(rng)),
                    lag: usage.lag + Duration::from_millis(any(rng) % 50),
                    work: usage.work,
                    drain_rate: usage.drain_rate,
                };
                assert!(matches!(policy(&fuller, bytes, &limits), Decision::Refuse(_)), "fuller refuses too; {at}");
            }
            admitted => {
                let within = |used: u64, limit: u64| used.checked_add(bytes).is_some_and(|sum| sum <= limit);
                let coming = (usage.in_flight + bytes).saturating_sub(usage.work);
                let node = usage.unflushed.checked_add(coming);
                assert!(within(usage.in_flight, limits.max_in_flight), "{at}");
                assert!(node.is_some_and(|used| used <= limits.max_unflushed), "{at}");
                assert!(within(usage.table, limits.table) && within(usage.namespace, limits.namespace), "{at}");
                assert!(limits.max_lag.is_none_or(|lag| usage.lag <= lag), "{at}");
                let smaller = rng.random_range(0..=bytes);
                let less = policy(&usage, smaller, &limits);
                assert!(!matches!(less, Decision::Refuse(_)), "less is admitted too; {at}");
                assert!(delay(less) <= delay(admitted) && delay(admitted) <= Duration::from_secs(1), "{at}");
            }
        }
        assert!(relief_bytes(usage.unflushed, &limits) <= usage.unflushed, "{at}");
    }
}

fn delay(decision: Decision) -> Duration {
    match decision {
        Decision::Admit => Duration::ZERO,
        Decision::Delay(delay) => delay,
        Decision::Refuse(_) => Duration::MAX,
    }
}

/// Posts that come, grow, fail, are acknowledged, and reach Delta, in any order.
#[test]
fn what_is_held_never_exceeds_the_limits_and_everything_is_given_back() {
    for seed in 0..500 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let (max_unflushed, max_in_flight) = (rng.random_range(1..2_000), rng.random_range(1..1_000));
        let (table, namespace) = (max_unflushed, max_unflushed);
        let limits = Limits { max_unflushed, max_in_flight, table, namespace, ..LIMITS };
        let admission = Admission::new(limits);
        let mut leases: Vec<(Lease, u64)> = Vec::new();
        let mut unflushed = 0;
        for _ in 0..300 {
            match rng.random_range(0..5) {
                0 | 1 => {
                    let bytes = rng.random_range(0..500);
                    leases.extend(lease(&admission, bytes, unflushed).ok().map(|lease| (lease, bytes)));
                }
                2 if !leases.is_empty() => {
                    let at = rng.random_range(0..leases.len());
                    let bytes = leases[at].1 + rng.random_range(0..100);
                    if leases[at].0.grow_to(bytes, waiting(unflushed)).is_ok() {
                        leases[at].1 = bytes;
                    }
                }
                3 if !leases.is_empty() => {
                    let (lease, bytes) = leases.swap_remove(rng.random_range(0..leases.len()));
                    drop(lease);
                    if rng.random_bool(0.7) {
                        unflushed += bytes;
                    }
                }
                _ => unflushed -= rng.random_range(0..=unflushed),
            }
            let held: u64 = leases.iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(admission.in_flight(), held, "seed {seed}");
            assert!(held <= limits.max_in_flight && held + unflushed <= limits.max_unflushed, "seed {seed}");
        }
        leases.clear();
        assert_eq!(admission.in_flight(), 0, "seed {seed}");
    }
}
