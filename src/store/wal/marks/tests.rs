use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::bucket::keys::{KeyFact, KeyLimits};
use crate::bucket::producer::ProducerLimits;
use crate::bucket::state::MarkLimits;
use crate::types::{Lsn, Note};

const TABLE: TableId = TableId(Uuid::from_u128(1));

fn stamp(producer: u128, epoch: u32, sequence: u64) -> Mark {
    Stamp { producer: ProducerId(producer), epoch, sequence }.into()
}

fn key(key: u128, digest: u64) -> Mark {
    let note = Note { digest, accepted: 3, rejected: 0 };
    Mark { id: PostId::Key(PostKey(key)), note, at: 1_000 }
}

fn state(limits: MarkLimits) -> ShardState {
    let mut state = ShardState::default();
    state.limit_marks(limits);
    state
}

#[test]
fn a_repeat_in_the_group_waits_for_the_first_one() {
    let state = state(MarkLimits::default());
    let mut marks = Marks::default();
    let mut judge = |mark, place| marks.judge(TABLE, mark, place, &state, Instant::now());
    assert_eq!(judge(stamp(1, 0, 5), 0), Judged::New);
    assert_eq!(judge(stamp(1, 0, 4), 1), Judged::New, "out of order is not a repeat");
    assert_eq!(judge(stamp(1, 0, 5), 2), Judged::Staged(0));
    assert_eq!(judge(stamp(2, 0, 5), 2), Judged::New, "another producer's");
    assert_eq!(judge(stamp(1, 1, 5), 3), Judged::New, "another epoch");
    assert_eq!(judge(stamp(1, 0, 6), 4), Judged::Refused(AppendError::Fenced { newest: 1 }));
    assert_eq!(judge(stamp(1, 1, 5), 4), Judged::Staged(3));
    assert_eq!(judge(stamp(1, 1, 900), 4), Judged::New);
    assert_eq!(judge(stamp(1, 1, 1500), 5), Judged::New);
    assert_eq!(judge(stamp(1, 1, 476), 6), Judged::Refused(AppendError::UnknownSequence(476)));
    assert_eq!(judge(stamp(1, 1, 477), 6), Judged::New);
}

#[test]
fn places_are_promised_once() {
    let limits =
        MarkLimits { producers: ProducerLimits { max: 2, ..ProducerLimits::default() }, ..MarkLimits::default() };
    let mut state = state(limits);
    state.remember(TABLE, stamp(1, 0, 0), Lsn(1));
    let mut marks = Marks::default();
    let mut judge = |mark, place| marks.judge(TABLE, mark, place, &state, Instant::now());
    assert_eq!(judge(stamp(1, 0, 0), 0), Judged::Durable(Lsn(1).into()));
    assert_eq!(judge(stamp(2, 0, 0), 0), Judged::New);
    assert_eq!(judge(stamp(3, 0, 0), 1), Judged::Refused(AppendError::TooManyProducers));
    assert_eq!(judge(stamp(2, 0, 1), 1), Judged::New);
}

#[test]
fn another_body_is_no_repeat_durable_or_not() {
    let mut state = state(MarkLimits::default());
    state.remember(TABLE, key(1, 7), Lsn(1));
    let sent = |sequence, digest| Mark { note: Note { digest, ..Note::default() }, ..stamp(1, 0, sequence) };
    state.remember(TABLE, sent(0, 7), Lsn(2));
    let mut marks = Marks::default();
    let mut judge = |mark, place| marks.judge(TABLE, mark, place, &state, Instant::now());
    let first = Seen { lsn: Lsn(1), note: key(1, 7).note };
    assert_eq!(judge(key(1, 7), 0), Judged::Durable(first));
    assert_eq!(judge(key(1, 8), 0), Judged::Refused(AppendError::Reused));
    assert_eq!(judge(sent(0, 8), 0), Judged::Refused(AppendError::Reused));
    assert_eq!(judge(key(2, 7), 0), Judged::New);
    assert_eq!(judge(key(2, 7), 1), Judged::Staged(0));
    assert_eq!(judge(key(2, 8), 1), Judged::Refused(AppendError::Reused));
    assert_eq!(judge(sent(1, 7), 1), Judged::New);
    assert_eq!(judge(sent(1, 7), 2), Judged::Staged(1));
    assert_eq!(judge(sent(1, 8), 2), Judged::Refused(AppendError::Reused));
    let other = TableId(Uuid::from_u128(2));
    assert_eq!(marks.judge(other, key(1, 8), 2, &state, Instant::now()), Judged::New, "keys count per table");
}

#[test]
fn places_of_keys_are_promised_once() {
    let keys = KeyLimits { max: 2, keep: Duration::from_secs(60) };
    let mut state = state(MarkLimits { keys, ..MarkLimits::default() });
    state.remember(TABLE, Mark { at: 900, ..key(1, 0) }, Lsn(1));
    let mut marks = Marks::default();
    let mut judge = |mark, place| marks.judge(TABLE, mark, place, &state, Instant::now());
    assert_eq!(judge(key(2, 0), 0), Judged::New);
    assert_eq!(judge(key(3, 0), 1), Judged::New, "the old one gives way");
    assert_eq!(judge(key(4, 0), 2), Judged::Refused(AppendError::TooManyKeys));
    assert_eq!(judge(key(3, 0), 2), Judged::Staged(1));
    let fact = |key, lsn| KeyFact { table: TABLE, key: PostKey(key), record: Lsn(lsn).into(), at: 950 };
    let mut full = Keys::new(keys);
    [fact(1, 1), fact(2, 2)].into_iter().for_each(|fact| full.record(fact));
    assert_eq!(full.check(TABLE, PostKey(3), 1_010), Verdict::TooMany, "60 s are not over");
    assert_eq!(full.check(TABLE, PostKey(3), 1_011), Verdict::New);
}
