use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const MINUTE: KeyLimits = KeyLimits { max: 3, keep: Duration::from_secs(60) };

fn table(n: u128) -> TableId {
    TableId(Uuid::from_u128(n))
}

fn fact(key: u128, lsn: u64, at: u32) -> KeyFact {
    KeyFact { table: table(1), key: PostKey(key), record: Lsn(lsn).into(), at }
}

fn known(keys: &Keys) -> Vec<KeyFact> {
    let mut all: Vec<KeyFact> = (0..keys.parts()).flat_map(|part| keys.part(part)).collect();
    all.sort_by_key(|fact| fact.record.lsn);
    all
}

fn with(limits: KeyLimits, facts: impl IntoIterator<Item = KeyFact>) -> Keys {
    let mut keys = Keys::new(limits);
    facts.into_iter().for_each(|fact| keys.record(fact));
    keys
}

#[test]
fn a_key_counts_within_its_table_and_the_oldest_is_forgotten_once_it_is_old_enough() {
    let keys = with(MINUTE, [fact(1, 10, 100), fact(2, 20, 101), fact(3, 30, 102)]);
    assert_eq!(keys.check(table(1), PostKey(1), 0), Verdict::Repeat(Lsn(10).into()));
    assert_eq!(keys.check(table(2), PostKey(1), 160), Verdict::TooMany, "another table's, and there is no place");
    assert_eq!(keys.check(table(2), PostKey(1), 161), Verdict::New);
    assert!(keys.has_room(PostKey(9), 1, 161) && !keys.has_room(PostKey(9), 2, 161));
    let keys = with(MINUTE, [fact(1, 10, 100), fact(2, 20, 101), fact(3, 30, 102), fact(4, 40, 162)]);
    assert_eq!(known(&keys).iter().map(|f| f.key.0).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(keys.check(table(1), PostKey(1), 161), Verdict::TooMany, "forgotten");
    let none = with(KeyLimits { max: 0, ..MINUTE }, [fact(1, 10, 0)]);
    assert!(none.is_empty());
    assert_eq!(none.check(table(1), PostKey(1), u32::MAX), Verdict::TooMany);
}

#[test]
fn a_clock_that_went_back_makes_nothing_old() {
    let keys = with(MINUTE, [fact(1, 10, 1_000), fact(2, 20, 1_000), fact(3, 30, 1_000)]);
    assert_eq!(keys.check(table(1), PostKey(4), 5), Verdict::TooMany);
}

#[test]
fn a_key_that_was_forgotten_and_came_again_has_its_newer_record() {
    let keys = with(MINUTE, [fact(1, 10, 1), fact(2, 20, 1), fact(1, 30, 99), fact(1, 10, 1)]);
    assert_eq!(known(&keys), [fact(2, 20, 1), fact(1, 30, 99)]);
}

#[test]
fn many_keys_are_spread_over_parts() {
    let limits = KeyLimits { max: 40_000, keep: Duration::ZERO };
    let hash = |n: u64| u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    let keys = with(limits, (0..60_000).map(|n| fact(hash(n), n, 0)));
    // Each part has its share, rounded up.
    assert_eq!((keys.parts(), keys.len() <= 11 * 3_637, keys.len() > 39_000), (11, true, true));
    assert_eq!(keys.check(table(1), PostKey(hash(59_999)), 0), Verdict::Repeat(Lsn(59_999).into()));
    assert_eq!(keys.check(table(1), PostKey(hash(0)), 9), Verdict::New);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever was let in, and wherever a checkpoint cut the records, and in whatever order it kept them: a start remembers what was
    /// remembered.
    #[test]
    fn a_start_remembers_what_was_remembered(
        sent in vec((0..12_u128, 0..40_u32), 0..120),
        max in 0..8_usize,
        cut: prop::sample::Index,
        turn in 0..50_usize,
    ) {
        let limits = KeyLimits { max, keep: Duration::from_secs(60) };
        let mut live = Keys::new(limits);
        let (mut log, mut kept, mut now) = (Vec::new(), Vec::new(), 0);
        let cut = cut.index(sent.len() + 1);
        for (n, (key, later)) in sent.iter().enumerate() {
            if n == cut {
                kept = log.clone();
            }
            now += later;
            let before = known(&live);
            match live.check(table(1), PostKey(*key), now) {
                Verdict::Repeat(record) => {
                    // The newest record of that key, which no other of it has followed.
                    let newest = log.iter().rev().find(|f: &&KeyFact| f.key.0 == *key).map(|f| f.record);
                    prop_assert_eq!(Some(record), newest);
                }
                Verdict::New => {
                    let fact = fact(*key, n as u64, now);
                    live.record(fact);
                    log.push(fact);
                    let after = known(&live);
                    let gone: Vec<_> = before.into_iter().filter(|f| !after.contains(f)).collect();
                    prop_assert!(gone.iter().all(|f| now - f.at > 60), "{:?} were forgotten at {}", gone, now);
                }
                verdict => prop_assert_eq!(verdict, Verdict::TooMany),
            }
            prop_assert!(live.len() <= max);
        }
        // A checkpoint may also have kept what was forgotten since.
        let len = kept.len();
        if len > 0 {
            kept.rotate_left(turn % len);
        }
        let again = with(limits, kept.iter().copied().chain(log[len..].iter().copied()));
        prop_assert_eq!(known(&again), known(&live));
    }
}
