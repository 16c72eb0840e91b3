use bytes::Bytes;
use uuid::Uuid;

use super::generation::Totals;
use super::state::{Applied, ApplyError, ShardState};
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
    state.apply(Lsn(lsn), Record::Slices(slices.to_vec())).expect("should apply");
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
    let lsns: Vec<Lsn> = view.generations[0].slices().iter().map(|s| s.lsn).collect();
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
    assert_eq!((state.unflushed(), state.needed_from()), ((0, 0), None));
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
    let left: Vec<_> = state.summaries()[0].sealed.iter().map(|s| (s.seal.incarnation, s.seal.sequence)).collect();
    assert_eq!(left, [(THEN, 1), (THEN, 2), (NOW, 2)]);
    commit(&mut state, 9100, THEN, 7);
    assert_eq!(state.summaries()[0].sealed.len(), 1);
    assert_eq!(state.unflushed().0, 1);
    // Again, and for a table that nobody knows.
    commit(&mut state, 9200, THEN, 7);
    let unknown = Commit { table: table(8), incarnation: NOW, sequence: 1, version: 1 };
    state.apply(Lsn(9300), Record::Commit(unknown)).expect("should apply");
    commit(&mut state, 9400, NOW, 2);
    assert_eq!((state.unflushed(), state.summaries().len()), ((0, 0), 0));
}

#[test]
fn the_log_is_needed_from_the_oldest_live_generation() {
    let mut state = ShardState::default();
    assert_eq!(state.needed_from(), None);
    // One record opens two generations; both have to go before its segment may.
    rows(&mut state, 100, &[slice(table(1), bucket(0), 1), slice(table(2), bucket(0), 1)]);
    rows(&mut state, 200, &[slice(table(1), bucket(10), 1)]);
    seal(&mut state, 300, seal_of(100, NOW, 1));
    commit(&mut state, 400, NOW, 1);
    assert_eq!(state.needed_from(), Some(Lsn(100)));
    seal(&mut state, 500, Seal { table: table(2), ..seal_of(100, NOW, 1) });
    let other = Commit { table: table(2), incarnation: NOW, sequence: 1, version: 1 };
    state.apply(Lsn(600), Record::Commit(other)).expect("should apply");
    assert_eq!(state.needed_from(), Some(Lsn(200)));
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
    assert_eq!(view.generations[0].slices().len(), 1);
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
    let below = |lsn| state.definitions_below(Lsn(lsn)).len();
    assert_eq!([below(200), below(201), below(301)], [0, 1, 2]);
}

#[test]
fn a_definition_that_is_carried_forward_moves() {
    let mut state = ShardState::default();
    define(&mut state, 100, 1, 3);
    define(&mut state, 900, 1, 3);
    assert_eq!(state.definitions_below(Lsn(900)).len(), 0);
    assert_eq!(state.definitions_below(Lsn(901)).len(), 1);
}

#[test]
fn rows_without_a_definition_are_noticed() {
    let mut state = ShardState::default();
    rows(&mut state, 100, &[slice(table(1), bucket(0), 1)]);
    assert_eq!(state.undefined_table(), Some(table(1)));
    define(&mut state, 200, 1, 1);
    assert_eq!(state.undefined_table(), None);
}
