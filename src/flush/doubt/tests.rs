use penstock_store::{Incarnation, SealProgress};
use uuid::Uuid;

use super::*;

const NODE: NodeId = NodeId(Uuid::from_u128(7));

fn history(starts: &[(u64, u64)], complete: bool) -> SealHistory {
    let progress = |sealed| SealProgress { sealed, committed: 0 };
    SealHistory { starts: starts.iter().map(|(i, s)| (Incarnation(*i), progress(*s))).collect(), complete }
}

fn at(start: u64, sequence: u64) -> (String, u64) {
    (app_id(NODE, Incarnation(start)), sequence)
}

#[test]
fn a_table_that_holds_what_was_sealed_here_is_in_no_doubt() {
    let history = history(&[(1, 5), (2, 3)], true);
    assert_eq!(doubts(NODE, &[], &history, |_| None), []);
    assert_eq!(doubts(NODE, &[at(1, 5), at(2, 1)], &history, |_| None), []);
}

#[test]
fn what_was_never_sealed_here_gives_a_copy_away() {
    let history = history(&[(1, 5), (2, 3)], true);
    let expected = Doubt { app: app_id(NODE, Incarnation(2)), committed: 4, sealed: 3 };
    assert_eq!(expected.incarnation(), Some(Incarnation(2)));
    assert_eq!(doubts(NODE, &[at(1, 5), at(2, 4)], &history, |_| None), [expected]);
}

#[test]
fn a_start_that_the_table_forgot_is_told_from_one_of_another_directory() {
    let (mine, another) = (Some(true), Some(false));
    let forgotten = history(&[(5, 5)], false);
    let told = |has_started| doubts(NODE, &[at(5, 5), at(2, 1)], &forgotten, |_| has_started).len();
    assert_eq!([mine, another, None].map(told), [0, 1, 0]);
}

#[test]
fn a_start_that_is_not_known_gives_a_copy_away_unless_it_may_be_forgotten() {
    let expected = Doubt { app: app_id(NODE, Incarnation(9)), committed: 1, sealed: 0 };
    assert_eq!(doubts(NODE, &[at(9, 1)], &history(&[(1, 5)], true), |_| None), [expected]);
    assert_eq!(doubts(NODE, &[at(9, 1)], &history(&[(1, 5)], false), |_| None), []);
}
