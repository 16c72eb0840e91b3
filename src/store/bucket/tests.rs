use bytes::Bytes;
use uuid::Uuid;

use super::dirty::SealProgress;
use super::generation::{SealInfo, Slice, Totals};
use super::state::{Applied, ApplyError, ShardState, TableSummary};
use super::{Facts, PARTS, SealHistory, TableView};
use crate::types::{Bucket, Incarnation, Lsn, SliceInput, TableId};
use crate::wal::record::{Commit, Define, Record, Seal};

const THEN: Incarnation = Incarnation(1);
const NOW: Incarnation = Incarnation(2);

fn table(number: u128) -> TableId {
    TableId(Uuid::from_u128(number))
}

fn bucket(start: i64) -> Bucket {
    Bucket { start, width: 10 }
}

fn slice(table: TableId, bucket: Bucket, rows: u32) -> SliceInput {
    let payload = Bytes::from(vec![0; rows as usize * 10]);
    SliceInput { table, schema_version: 1, encoding: 1, bucket, rows, min_time: 0, max_time: 0, payload }
}

fn rows(state: &mut ShardState, lsn: u64, slices: &[SliceInput]) {
    state.apply(Lsn(lsn), Record::Slices(slices.to_vec().into())).expect("should apply");
}

fn seal(state: &mut ShardState, lsn: u64, seal: Seal) -> Option<super::Sealed> {
    match state.apply(Lsn(lsn), Record::Seal(seal)).expect("should apply") {
        Applied::Sealed(sealed) => Some(sealed),
        Applied::Done => None,
    }
}

fn seal_of(generation: u64, incarnation: Incarnation, sequence: u64) -> Seal {
    Seal { table: table(1), bucket: bucket(0), generation: Lsn(generation), incarnation, sequence }
}

fn commit(state: &mut ShardState, lsn: u64, incarnation: Incarnation, sequence: u64) {
    let commit = Commit { table: table(1), incarnation, sequence, version: 1 };
    state.apply(Lsn(lsn), Record::Commit(commit)).expect("should apply");
}

fn define(state: &mut ShardState, lsn: u64, number: u128, schema_version: u32) {
    let define = Define { table: table(number), schema_version, body: Bytes::new() };
    state.apply(Lsn(lsn), Record::Define(define)).expect("should apply");
}

fn slices_of(view: &TableView) -> Vec<Slice> {
    view.generations[0].slices().expect("should be in memory")
}

fn all(state: &ShardState) -> Vec<TableSummary> {
    (0..PARTS).flat_map(|part| state.unflushed_tables(part)).filter_map(|table| state.summary(table)).collect()
}

#[test]
fn rows_gather_by_table_and_bucket() {
    let mut state = ShardState::default();
    rows(
        &mut state,
        100,
        &[slice(table(1), bucket(0), 1), slice(table(1), bucket(10), 2), slice(table(2), bucket(0), 3)],
    );
    rows(&mut state, 200, &[slice(table(1), bucket(0), 4)]);
    assert_eq!(state.unflushed(), (10, 100));
    let view = state.view(table(1));
    let totals: Vec<Totals> = view.generations.iter().map(|g| g.totals()).collect();
    assert_eq!(totals[0], Totals { slices: 2, rows: 5, bytes: 50 });
    assert_eq!(totals[1], Totals { slices: 1, rows: 2, bytes: 20 });
    let lsns: Vec<Lsn> = slices_of(&view).iter().map(|s| s.lsn).collect();
    assert_eq!(lsns, [Lsn(100), Lsn(200)]);
    assert_eq!(view.generations[0].generation().first_lsn, Lsn(100));
    assert_eq!(state.view(table(9)).generations.len(), 0);
}

#[test]
fn a_seal_closes_what_came_before_it() {
    let mut state = ShardState::default();
    rows(&mut state, 100, &[slice(table(1), bucket(0), 1)]);
    let sealed = seal(&mut state, 200, seal_of(100, NOW, 1)).expect("should seal");
    rows(&mut state, 300, &[slice(table(1), bucket(0), 5)]);
    assert_eq!(sealed.generation.totals().rows, 1);
    assert_eq!(sealed.generation.seal().map(|s| s.lsn), Some(Lsn(200)));
    assert_eq!(state.open_generation(table(1), bucket(0)).map(|g| g.first_lsn), Some(Lsn(300)));
    assert!(
        seal(&mut state, 400, Seal { bucket: bucket(70), ..seal_of(0, NOW, 2) }).is_none(),
        "nothing is open there"
    );
}

#[test]
fn a_seal_of_other_rows_is_a_contradiction() {
    let mut state = ShardState::default();
    rows(&mut state, 100, &[slice(table(1), bucket(0), 1)]);
    for named in [50, 150] {
        let error = state.apply(Lsn(200), Record::Seal(seal_of(named, NOW, 1))).expect_err("should be refused");
        assert_eq!(error, ApplyError::WrongGeneration { table: table(1), named: Lsn(named), open: Lsn(100) });
    }
}

#[test]
fn a_generation_whose_first_segments_are_gone_is_sealed_under_its_old_name() {
    let mut state = ShardState::new(Lsn(100));
    rows(&mut state, 120, &[slice(table(1), bucket(0), 1)]);
    let sealed = seal(&mut state, 200, seal_of(40, NOW, 1)).expect("should seal what is left");
    assert_eq!(sealed.generation.first_lsn, Lsn(120));
    commit(&mut state, 300, NOW, 1);
    assert_eq!(state.unflushed(), (0, 0));
}

#[test]
fn a_commit_covers_its_incarnation_up_to_its_sequence() {
    let mut state = ShardState::default();
    for (n, (incarnation, sequence)) in [(THEN, 1), (THEN, 2), (NOW, 1), (NOW, 2)].into_iter().enumerate() {
        let lsn = 1000 * (n as u64 + 1);
        rows(&mut state, lsn, &[slice(table(1), bucket(0), 1)]);
        seal(&mut state, lsn + 500, seal_of(lsn, incarnation, sequence));
    }
    commit(&mut state, 9000, NOW, 1);
    let left: Vec<_> = all(&state)[0].sealed.iter().map(|s| (s.seal.incarnation, s.seal.sequence)).collect();
    assert_eq!(left, [(THEN, 1), (THEN, 2), (NOW, 2)]);
    commit(&mut state, 9100, THEN, 7);
    assert_eq!(all(&state)[0].sealed.len(), 1);
    assert_eq!(state.unflushed().0, 1);
    // Again, and for a table that nobody knows.
    commit(&mut state, 9200, THEN, 7);
    let unknown = Commit { table: table(8), incarnation: NOW, sequence: 1, version: 1 };
    state.apply(Lsn(9300), Record::Commit(unknown)).expect("should apply");
    commit(&mut state, 9400, NOW, 2);
    assert_eq!((state.unflushed(), all(&state).len()), ((0, 0), 0));
}

#[test]
fn a_swap_takes_what_has_changed_and_nothing_twice() {
    let mut state = ShardState::default();
    define(&mut state, 50, 1, 1);
    rows(&mut state, 100, &[slice(table(1), bucket(0), 1), slice(table(1), bucket(0), 1)]);
    rows(&mut state, 200, &[slice(table(1), bucket(10), 1)]);
    seal(&mut state, 300, seal_of(100, NOW, 1));
    let first = state.take_dirty();
    let touched: Vec<Lsn> = first.generations.iter().map(|g| g.first_lsn).collect();
    assert_eq!((touched, first.seals.len(), first.defines.len()), (vec![Lsn(100), Lsn(200)], 1, 1));
    assert_eq!(first.progress, [(table(1), NOW, SealProgress { sealed: 1, committed: 0 })]);
    assert!(!state.is_dirty(), "a swap should leave nothing");
    rows(&mut state, 400, &[slice(table(1), bucket(10), 1)]);
    commit(&mut state, 500, NOW, 1);
    let second = state.take_dirty();
    assert_eq!(second.generations.iter().map(|g| g.first_lsn).collect::<Vec<_>>(), [Lsn(200)]);
    assert_eq!(second.progress, [(table(1), NOW, SealProgress { sealed: 1, committed: 1 })]);
    assert!(first.generations[0].is_retired());
    let below = |g: &crate::Generation, lsn, most| g.with_memory_below(Lsn(lsn), most, |slices| slices.len());
    assert_eq!(below(&first.generations[0], 1000, 1000), 0, "what is retired has nothing to move");
    // Shown in place, and shared.
    for most in [1000, 0] {
        assert_eq!(below(&second.generations[0], 400, most), 1, "one of its slices lies behind");
        assert_eq!(below(&second.generations[0], 401, most), 2);
    }
}

#[test]
fn facts_are_those_of_the_checkpoint() {
    let mut state = ShardState::default();
    define(&mut state, 50, 1, 1);
    rows(&mut state, 100, &[slice(table(1), bucket(0), 1)]);
    rows(&mut state, 110, &[slice(table(1), bucket(10), 1)]);
    seal(&mut state, 150, seal_of(100, NOW, 1));
    seal(&mut state, 250, Seal { bucket: bucket(10), ..seal_of(110, NOW, 2) });
    rows(&mut state, 300, &[slice(table(1), bucket(20), 1)]);
    let facts: Vec<Facts> = (0..PARTS).map(|part| state.facts(part, Lsn(200))).collect();
    let generations: Vec<_> = facts.iter().flat_map(|f| &f.generations).map(|g| (g.generation, g.seal)).collect();
    let first = SealInfo { incarnation: NOW, sequence: 1, lsn: Lsn(150) };
    assert_eq!(generations, [(Lsn(100), Some(first)), (Lsn(110), None)]);
    assert_eq!(facts.iter().map(|f| f.defines.len()).sum::<usize>(), 1);
}

#[test]
fn a_view_keeps_what_it_saw() {
    let mut state = ShardState::default();
    rows(&mut state, 100, &[slice(table(1), bucket(0), 1)]);
    let view = state.view(table(1));
    rows(&mut state, 200, &[slice(table(1), bucket(0), 1)]);
    seal(&mut state, 300, seal_of(100, NOW, 1));
    commit(&mut state, 400, NOW, 1);
    assert_eq!(view.generations[0].totals().rows, 1);
    assert_eq!(slices_of(&view).len(), 1);
    // The seal is told as it is now: the rows may be in Delta by now.
    assert_eq!(view.generations[0].current_seal().map(|s| s.sequence), Some(1));
    assert_eq!(state.view(table(1)).generations.len(), 0);
}

#[test]
fn sealed_generations_come_first_and_in_commit_order() {
    let mut state = ShardState::default();
    for (n, start) in [30, 10, 20].into_iter().enumerate() {
        let lsn = 100 * (n as u64 + 1);
        rows(&mut state, lsn, &[slice(table(1), bucket(start), 1)]);
        seal(&mut state, lsn + 50, Seal { bucket: bucket(start), ..seal_of(lsn, NOW, n as u64 + 1) });
    }
    rows(&mut state, 900, &[slice(table(1), bucket(0), 1)]);
    let starts: Vec<i64> = state.view(table(1)).generations.iter().map(|g| g.generation().bucket.start).collect();
    assert_eq!(starts, [30, 10, 20, 0]);
}

#[test]
fn the_newest_definition_counts_wherever_it_lies() {
    let mut state = ShardState::default();
    define(&mut state, 100, 1, 1);
    define(&mut state, 200, 1, 2);
    define(&mut state, 300, 2, 1);
    define(&mut state, 400, 1, 1);
    let mut newest: Vec<(TableId, u32)> = state.definitions().map(|d| (d.table, d.schema_version)).collect();
    newest.sort_unstable();
    assert_eq!(newest, [(table(1), 2), (table(2), 1)]);
    assert_eq!((state.schema_version(table(1)), state.schema_version(table(3))), (2, 0));
}

#[test]
fn rows_without_a_definition_are_noticed() {
    let mut state = ShardState::default();
    rows(&mut state, 100, &[slice(table(1), bucket(0), 1)]);
    assert_eq!(state.undefined_table(), Some(table(1)));
    define(&mut state, 200, 1, 1);
    assert_eq!(state.undefined_table(), None);
}

/// A directory that was restored seals and may commit nothing: where its seals had ended must not be forgotten.
#[test]
fn starts_are_forgotten_only_behind_one_that_has_committed() {
    let mut state = ShardState::default();
    let known = |state: &ShardState| state.seal_history(table(1)).starts.iter().map(|(i, _)| i.0).collect::<Vec<_>>();
    assert_eq!(state.seal_history(table(1)), SealHistory { starts: Vec::new(), complete: true });
    for start in 1..=6 {
        commit(&mut state, start * 10, Incarnation(start), 3);
    }
    assert_eq!(known(&state), [3, 4, 5, 6]);
    assert!(!state.seal_history(table(1)).complete);
    for start in 7..=12 {
        let first = start * 100;
        rows(&mut state, first, &[slice(table(1), bucket(0), 1)]);
        seal(&mut state, first + 50, seal_of(first, Incarnation(start), 1));
    }
    assert_eq!(known(&state), [6, 7, 8, 9, 10, 11, 12]);
    let progress = |of: u64| state.progress(table(1), Incarnation(of)).sealed;
    assert_eq!((progress(6), progress(12)), (3, 1));
}

#[test]
fn a_tables_figures_follow_its_rows_and_outlive_them() {
    let mut state = ShardState::default();
    assert!(state.usage(table(1)).is_none());
    rows(&mut state, 100, &[slice(table(1), bucket(0), 3), slice(table(2), bucket(0), 5)]);
    rows(&mut state, 200, &[slice(table(1), bucket(10), 4)]);
    let [first, second] = [1, 2].map(|n| state.usage(table(n)).expect("should be known"));
    let unflushed = |state: &ShardState| state.unflushed();
    assert_eq!((first.rows(), second.rows()), (7, 5));
    assert_eq!((first.rows() + second.rows(), first.bytes() + second.bytes()), unflushed(&state));
    seal(&mut state, 300, seal_of(100, NOW, 1));
    assert_eq!(first.rows(), 7);
    commit(&mut state, 400, NOW, 1);
    assert_eq!(first.rows(), 4);
    assert_eq!((first.rows() + second.rows(), first.bytes() + second.bytes()), unflushed(&state));
    seal(&mut state, 500, Seal { bucket: bucket(10), ..seal_of(200, NOW, 2) });
    commit(&mut state, 600, NOW, 2);
    rows(&mut state, 700, &[slice(table(1), bucket(0), 9)]);
    assert_eq!(first.rows(), 9, "the same figures as before");
}
