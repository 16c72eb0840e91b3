use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LIMITS: ProducerLimits = ProducerLimits { max: 2, idle: DAY };
const TABLE: TableId = TableId(Uuid::from_u128(1));

fn stamp(producer: u128, epoch: u32, sequence: u64) -> Stamp {
    Stamp { producer: ProducerId(producer), epoch, sequence }
}

fn window(sequences: impl IntoIterator<Item = u64>) -> Window {
    let mut window = Window::default();
    for sequence in sequences {
        window.insert(sequence, Lsn(sequence * 10));
    }
    window
}

fn saved(producers: &Producers) -> Vec<ProducerWindow> {
    producers
        .entries()
        .map(|(table, producer, epoch, window)| ProducerWindow::new(table, producer, epoch, window))
        .collect()
}

fn restored<'a>(limits: ProducerLimits, saved: impl IntoIterator<Item = &'a ProducerWindow>) -> Producers {
    let mut producers = Producers::new(limits, Instant::now());
    saved.into_iter().for_each(|window| producers.restore(window));
    producers
}

#[test]
fn a_repeat_gets_the_first_receipt() {
    let mut window = window(0..3);
    assert_eq!(window.check(1), Verdict::Repeat(Lsn(10).into()));
    assert_eq!(window.insert(1, Lsn(99)), 0);
    assert_eq!(window.check(1), Verdict::Repeat(Lsn(10).into()));
    assert_eq!(window.check(3), Verdict::New);
}

#[test]
fn a_late_arrival_is_not_a_repeat() {
    let mut window = window([5, 2, 9]);
    for sequence in [0, 1, 3, 4, 6, 7, 8] {
        assert_eq!(window.check(sequence), Verdict::New);
    }
    assert_eq!(window.insert(4, Lsn(7)), 0);
    assert_eq!(window.check(4), Verdict::Repeat(Lsn(7).into()));
    assert!(window.seen().map(|(sequence, _)| sequence).eq([2, 4, 5, 9]));
}

#[test]
fn the_window_ends_where_it_says() {
    let mut window = window(0..WINDOW);
    assert_eq!(window.check(0), Verdict::Repeat(Lsn(0).into()));
    assert_eq!(window.insert(WINDOW, Lsn(1)), 0);
    assert_eq!(window.check(0), Verdict::Unknown);
    assert_eq!(window.check(1), Verdict::Repeat(Lsn(10).into()));
    assert_eq!(window.seen().len() as u64, WINDOW);
}

#[test]
fn what_falls_below_the_window_unseen_is_counted_once() {
    let mut window = window([0, 2]);
    assert_eq!(window.insert(WINDOW, Lsn(1)), 0, "0 was seen");
    assert_eq!(window.insert(WINDOW + 2, Lsn(1)), 1, "1 was not");
    assert_eq!(window.insert(1, Lsn(2)), 0);
    assert_eq!(window.check(1), Verdict::Unknown, "nothing below the window is remembered");
    assert_eq!(window.insert(WINDOW + 2, Lsn(3)), 0);
}

#[test]
fn a_jump_costs_what_was_seen() {
    let mut window = window(0..4);
    let floor = u64::MAX - (WINDOW - 1);
    assert_eq!(window.insert(u64::MAX, Lsn(1)), floor - 4);
    assert_eq!(window.seen().len(), 1);
    assert_eq!(window.check(floor - 1), Verdict::Unknown);
    assert_eq!(window.check(floor), Verdict::New);
    assert_eq!(window.check(u64::MAX), Verdict::Repeat(Lsn(1).into()));
}

#[test]
fn memory_is_for_one_window() {
    let window = window(0..WINDOW * 5);
    assert_eq!(window.seen.capacity() as u64, WINDOW);
}

#[test]
fn who_is_not_remembered_has_to_begin() {
    let producers = Producers::new(LIMITS, Instant::now());
    assert_eq!(producers.check(TABLE, stamp(1, 0, WINDOW - 1), producers.started), Verdict::New);
    assert_eq!(producers.check(TABLE, stamp(1, 0, WINDOW), producers.started), Verdict::Unknown);
}

#[test]
fn of_a_producer_that_was_forgotten_in_between_nothing_older_is_known() {
    let now = Instant::now();
    let mut producers = Producers::new(LIMITS, now);
    let at = WINDOW * 3;
    assert_eq!(producers.record(TABLE, stamp(1, 0, at), Lsn(1), now), 0, "it is not known that anything is missing");
    for producers in [&producers, &restored(LIMITS, &saved(&producers))] {
        assert_eq!(producers.check(TABLE, stamp(1, 0, at - 1), now), Verdict::Unknown);
        assert_eq!(producers.check(TABLE, stamp(1, 0, at), now), Verdict::Repeat(Lsn(1).into()));
        assert_eq!(producers.check(TABLE, stamp(1, 0, at + 2), now), Verdict::New);
    }
    assert_eq!(producers.record(TABLE, stamp(1, 0, at + WINDOW + 1), Lsn(2), now), 1);
    assert_eq!(producers.gaps(TABLE), 1);
}

#[test]
fn a_newer_epoch_replaces_an_older_one() {
    let now = Instant::now();
    let mut producers = Producers::new(LIMITS, now);
    producers.record(TABLE, stamp(1, 3, 0), Lsn(1), now);
    assert_eq!(producers.check(TABLE, stamp(1, 2, 0), now), Verdict::Fenced { newest: 3 });
    assert_eq!(producers.check(TABLE, stamp(1, 4, 0), now), Verdict::New);
    assert_eq!(producers.check(TABLE, stamp(1, 4, WINDOW), now), Verdict::Unknown);
    assert_eq!(producers.check(TABLE, stamp(1, 3, 0), now), Verdict::Repeat(Lsn(1).into()), "asking changes nothing");

    producers.record(TABLE, stamp(1, 4, 1), Lsn(2), now);
    assert_eq!(producers.check(TABLE, stamp(1, 3, 1), now), Verdict::Fenced { newest: 4 });
    assert_eq!(producers.check(TABLE, stamp(1, 4, 0), now), Verdict::New);
    producers.record(TABLE, stamp(1, 3, 0), Lsn(3), now);
    assert_eq!(producers.check(TABLE, stamp(1, 4, 0), now), Verdict::New);
    assert_eq!(producers.len(), 1);
}

#[test]
fn tables_and_producers_do_not_mix() {
    let now = Instant::now();
    let mut producers = Producers::new(ProducerLimits::default(), now);
    let other = TableId(Uuid::from_u128(2));
    producers.record(TABLE, stamp(1, 0, 0), Lsn(1), now);
    assert_eq!(producers.check(other, stamp(1, 0, 0), now), Verdict::New);
    assert_eq!(producers.check(TABLE, stamp(2, 0, 0), now), Verdict::New);
    producers.record(TABLE, stamp(1, 0, WINDOW + 1), Lsn(2), now);
    assert_eq!((producers.gaps(TABLE), producers.gaps(other)), (1, 0));
}

#[test]
fn a_place_is_free_only_after_the_idle_time() {
    let start = Instant::now();
    let mut producers = Producers::new(LIMITS, start);
    producers.record(TABLE, stamp(1, 0, 0), Lsn(1), start);
    producers.record(TABLE, stamp(2, 0, 0), Lsn(2), start + DAY / 2);
    let check = |producers: &Producers, now| producers.check(TABLE, stamp(3, 0, 0), now);
    assert_eq!(check(&producers, start + DAY), Verdict::TooMany);
    assert_eq!(producers.check(TABLE, stamp(3, 0, WINDOW), start + DAY), Verdict::Unknown, "waiting would not help");
    assert_eq!(producers.check(TABLE, stamp(1, 0, 1), start + DAY), Verdict::New, "it has its place");
    assert_eq!(producers.check(TABLE, stamp(1, 1, 0), start + DAY), Verdict::New, "in whatever epoch");

    let later = start + DAY + Duration::from_nanos(1);
    assert_eq!(check(&producers, later), Verdict::New);
    assert!(!producers.has_room(2, later) && producers.has_room(2, later + DAY) && !producers.has_room(3, later + DAY));
    producers.record(TABLE, stamp(1, 0, 1), Lsn(3), later);
    assert_eq!(check(&producers, later), Verdict::TooMany, "it was used again");
}

#[test]
fn the_longest_idle_one_is_forgotten() {
    let now = Instant::now();
    let mut producers = Producers::new(LIMITS, now);
    for (lsn, producer) in [(1, 1), (2, 2), (3, 1), (4, 3)] {
        producers.record(TABLE, stamp(producer, 0, lsn), Lsn(lsn), now);
    }
    let kept: Vec<_> = producers.entries().map(|(_, producer, ..)| producer.0).collect();
    assert_eq!(kept, [1, 3]);
    let none = ProducerLimits { max: 0, ..LIMITS };
    let mut producers = Producers::new(none, now);
    assert_eq!(producers.check(TABLE, stamp(1, 0, 0), now + 2 * DAY), Verdict::TooMany);
    producers.record(TABLE, stamp(1, 0, 0), Lsn(1), now);
    assert!(producers.is_empty() && producers.by_use.is_empty());
}

#[test]
fn restoring_merges_replaces_or_ignores() {
    let saved_as = |epoch, seen: &[(u64, u64)]| ProducerWindow {
        table: TABLE,
        producer: ProducerId(1),
        epoch,
        floor: 0,
        seen: seen.iter().map(|(sequence, lsn)| (*sequence, Lsn(*lsn).into())).collect(),
    };
    let cases = [
        (saved_as(2, &[(1, 30), (4, 40)]), saved_as(2, &[(0, 10), (1, 20), (4, 40)]), "merged, the first receipt kept"),
        (saved_as(3, &[(7, 5)]), saved_as(3, &[(7, 5)]), "newer"),
        (saved_as(1, &[(7, 50)]), saved_as(2, &[(0, 10), (1, 20)]), "older"),
        (saved_as(3, &[]), saved_as(2, &[(0, 10), (1, 20)]), "says nothing"),
    ];
    for (second, expected, what) in cases {
        let first = saved_as(2, &[(1, 20), (0, 10)]);
        let producers = restored(LIMITS, [&first, &second]);
        assert_eq!(saved(&producers), [expected], "{what}");
        assert_eq!((producers.by_use.len(), producers.gaps(TABLE)), (1, 0));
    }
    let ahead = restored(LIMITS, [&saved_as(0, &[(0, 1), (5, 2)]), &saved_as(0, &[(WINDOW + 2, 3)])]);
    assert_eq!(ahead.check(TABLE, stamp(1, 0, 2), ahead.started), Verdict::Unknown);
    assert_eq!(ahead.check(TABLE, stamp(1, 0, 5), ahead.started), Verdict::Repeat(Lsn(2).into()));
}

#[test]
fn restored_ones_count_as_used_at_the_start() {
    let mut producers = Producers::new(LIMITS, Instant::now());
    producers.record(TABLE, stamp(1, 0, 0), Lsn(1), producers.started);
    producers.record(TABLE, stamp(2, 0, 0), Lsn(2), producers.started);
    let producers = restored(LIMITS, &saved(&producers));
    assert_eq!(producers.check(TABLE, stamp(3, 0, 0), producers.started + DAY), Verdict::TooMany);
    assert_eq!(producers.check(TABLE, stamp(3, 0, 0), producers.started + 2 * DAY), Verdict::New);
}

/// All that was ever durable of a producer's newest epoch.
#[derive(Default)]
struct Naive {
    epoch: u32,
    seen: HashMap<u64, Lsn>,
}

impl Naive {
    fn highest(&self) -> u64 {
        self.seen.keys().max().copied().unwrap_or(0)
    }

    fn check(&self, stamp: Stamp) -> Verdict {
        if !self.seen.is_empty() && stamp.epoch < self.epoch {
            return Verdict::Fenced { newest: self.epoch };
        }
        let begins = self.seen.is_empty() || stamp.epoch > self.epoch;
        match self.seen.get(&stamp.sequence).filter(|_| !begins) {
            _ if begins && stamp.sequence >= WINDOW => Verdict::Unknown,
            _ if !begins && u128::from(stamp.sequence) + u128::from(WINDOW) <= u128::from(self.highest()) => {
                Verdict::Unknown
            }
            Some(lsn) => Verdict::Repeat((*lsn).into()),
            None => Verdict::New,
        }
    }

    /// Sequences below the window that were not seen.
    fn missing(&self) -> u64 {
        let floor = (self.highest() + 1).saturating_sub(WINDOW);
        floor - self.seen.keys().filter(|sequence| **sequence < floor).count() as u64
    }

    /// Returns how many more are missing.
    fn record(&mut self, stamp: Stamp, lsn: Lsn) -> u64 {
        if stamp.epoch > self.epoch {
            *self = Self { epoch: stamp.epoch, ..Self::default() };
        }
        let before = self.missing();
        self.seen.insert(stamp.sequence, lsn);
        self.missing() - before
    }
}

/// Which sequence is sent, from the highest that was.
#[derive(Debug, Clone, Copy)]
enum Pick {
    From(u64),
    Behind(u64),
    Ahead(u64),
}

impl Pick {
    fn sequence(self, highest: u64) -> u64 {
        match self {
            Self::From(sequence) => sequence,
            Self::Behind(by) => highest.saturating_sub(by),
            Self::Ahead(by) => highest.saturating_add(by),
        }
    }
}

fn picks() -> impl Strategy<Value = Pick> {
    prop_oneof![
        2 => (0..WINDOW + 5).prop_map(Pick::From),
        4 => (0..20_u64).prop_map(Pick::Behind),
        2 => (WINDOW - 5..WINDOW + 5).prop_map(Pick::Behind),
        6 => (0..4_u64).prop_map(Pick::Ahead),
        1 => (0..3 * WINDOW).prop_map(Pick::Ahead),
        1 => (0..1_u64 << 50).prop_map(Pick::Ahead),
    ]
}

/// Table, producer, epoch, sequence.
fn sends() -> impl Strategy<Value = (u128, u128, u32, Pick)> {
    (0..2_u128, 0..2_u128, prop_oneof![20 => Just(1_u32), 1 => 0..4_u32], picks())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn says_what_a_memory_of_everything_would(sends in vec(sends(), 0..400), cut: prop::sample::Index, from: prop::sample::Index) {
        let now = Instant::now();
        let mut live = Producers::new(ProducerLimits::default(), now);
        let mut naive: HashMap<Key, Naive> = HashMap::new();
        let mut gaps: HashMap<TableId, u64> = HashMap::new();
        let mut log = Vec::new();
        let mut checkpoint = (Vec::new(), 0);
        let cut = if sends.is_empty() { 0 } else { cut.index(sends.len()) };
        for (at, (table, producer, epoch, pick)) in sends.into_iter().enumerate() {
            if at == cut {
                checkpoint = (saved(&live), log.len());
            }
            let table = TableId(Uuid::from_u128(table));
            let model = naive.entry((table, ProducerId(producer))).or_default();
            let stamp = stamp(producer, epoch, pick.sequence(model.highest()));
            let verdict = live.check(table, stamp, now);
            prop_assert_eq!(verdict, model.check(stamp));
            if verdict == Verdict::New {
                let lsn = Lsn(at as u64 * 64);
                let more = model.record(stamp, lsn);
                prop_assert_eq!(live.record(table, stamp, lsn, now), more);
                *gaps.entry(table).or_default() += more;
                log.push((table, stamp, lsn));
            }
        }
        for (table, gaps) in gaps {
            prop_assert_eq!(live.gaps(table), gaps);
        }
        let again = restored(ProducerLimits::default(), saved(&live).iter().rev());
        prop_assert_eq!(saved(&again), saved(&live));
        // Records that the checkpoint has already may be replayed too.
        let (kept, len) = checkpoint;
        let mut replayed = restored(ProducerLimits::default(), &kept);
        for (table, stamp, lsn) in &log[from.index(len + 1)..] {
            replayed.record(*table, *stamp, *lsn, now);
        }
        prop_assert_eq!(saved(&replayed), saved(&live));
    }

    /// Whatever the clock says, and whoever had to be forgotten.
    #[test]
    fn a_replay_forgets_whom_the_first_run_forgot(
        records in vec((0..6_u128, 0..3_u32, 0..3 * WINDOW, 0..3_u32), 1..200),
        max in 0..5_usize,
        cut: prop::sample::Index,
    ) {
        let limits = ProducerLimits { max, ..LIMITS };
        let cut = cut.index(records.len());
        let mut now = Instant::now();
        let mut live = Producers::new(limits, now);
        let mut kept = Vec::new();
        let mut whole = Producers::new(limits, now);
        for (at, (producer, epoch, sequence, days)) in records.iter().enumerate() {
            if at == cut {
                kept = saved(&live);
            }
            now += *days * DAY;
            live.record(TABLE, stamp(*producer, *epoch, *sequence), Lsn(at as u64), now);
            prop_assert!(live.len() <= max && live.by_use.len() == live.len());
        }
        let mut rest = restored(limits, kept.iter().rev());
        for (at, (producer, epoch, sequence, _)) in records.iter().enumerate() {
            let stamp = stamp(*producer, *epoch, *sequence);
            whole.record(TABLE, stamp, Lsn(at as u64), now);
            if at >= cut {
                rest.record(TABLE, stamp, Lsn(at as u64), now);
            }
        }
        prop_assert_eq!(saved(&whole), saved(&live));
        prop_assert_eq!(saved(&rest), saved(&live));
    }
}
