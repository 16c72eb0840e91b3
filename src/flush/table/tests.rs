use super::*;
use crate::flush::kit::Kit;

/// A queue over `count` sealed generations of one start.
async fn queue(count: i64) -> (Queue, Vec<Sealed>) {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    for hour in 0..count {
        kit.append(table, hour, 0..hour + 1).await;
    }
    let sealed = kit.seal(table).await;
    let mut queue = Queue::default();
    assert!(queue.enqueue(sealed.clone()));
    (queue, sealed)
}

fn files(rows: u64) -> DataFiles {
    DataFiles { rows, bytes: rows * 100, ..DataFiles::default() }
}

#[tokio::test]
async fn nothing_is_uploaded_or_committed_before_the_table_was_asked() {
    let (mut queue, sealed) = queue(1).await;
    let now = Instant::now();
    assert!(queue.next_upload(now).is_none() && queue.ready(now).is_none());
    queue.resolved = true;
    assert_eq!(queue.next_upload(now).expect("should be next").seal, sealed[0].seal);
    assert!(queue.next_upload(now).is_none(), "it is being uploaded already");
}

#[tokio::test]
async fn commits_wait_for_the_front_and_take_all_that_follows() {
    let (mut queue, sealed) = queue(4).await;
    let now = Instant::now();
    queue.resolved = true;
    while queue.next_upload(now).is_some() {}
    for i in [2, 1] {
        queue.uploaded(&sealed[i], Some(files(1)));
        assert!(queue.ready(now).is_none(), "the front is not ready");
    }
    queue.uploaded(&sealed[0], Some(files(5)));
    let ready = queue.ready(now).expect("should be ready");
    assert_eq!((ready.first_sequence, ready.sequence, ready.files.rows, ready.files.bytes), (1, 3, 7, 700));
    queue.busy = true;
    assert!(queue.ready(now).is_none(), "one commit at a time");
    queue.busy = false;
    let released = queue.committed(ready.incarnation, 3);
    assert_eq!((released.generations, released.rows), (3, 1 + 2 + 3));
    assert_eq!(released.spans.iter().map(|span| span.sequence).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(queue.ready(now).is_none() && !queue.is_empty());
}

#[tokio::test]
async fn the_list_is_taken_in_once() {
    let (mut queue, sealed) = queue(3).await;
    assert!(!queue.enqueue(sealed.clone()));
    let incarnation = sealed[0].seal.incarnation;
    queue.committed(incarnation, 2);
    assert!(!queue.enqueue(sealed[1..].to_vec()), "what has left must not come back");
    let released = queue.committed(incarnation, 9);
    assert_eq!((released.generations, released.rows), (1, 3));
    assert!(queue.is_empty());
    assert_eq!(queue.moving_bytes(), 0);
}

#[tokio::test]
async fn an_upload_that_ends_after_its_generation_left_is_ignored() {
    let (mut queue, sealed) = queue(2).await;
    let now = Instant::now();
    queue.resolved = true;
    while queue.next_upload(now).is_some() {}
    queue.committed(sealed[0].seal.incarnation, 1);
    queue.uploaded(&sealed[0], Some(files(1)));
    assert!(queue.ready(now).is_none());
    queue.uploaded(&sealed[1], Some(files(2)));
    assert_eq!(queue.ready(now).expect("should be ready").first_sequence, 2);
}

#[tokio::test]
async fn a_failed_upload_is_next_again_after_a_pause_that_grows() {
    let (mut queue, sealed) = queue(1).await;
    let mut now = Instant::now();
    queue.resolved = true;
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let sealed = queue.next_upload(now).expect("should be next");
        queue.uploaded(&sealed, None);
        queue.failed(now, MAX_PAUSE);
        queue.failed(now, MAX_PAUSE);
        assert!(queue.next_upload(now).is_none() && queue.moving_bytes() == 0);
        let end = queue.paused_until.expect("should pause");
        pauses.push(end - now);
        now = end;
    }
    assert_eq!(pauses[..3], [FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4]);
    assert_eq!(pauses[11], MAX_PAUSE);
    queue.failed(now, MAX_PAUSE);
    queue.retry_now();
    assert!(queue.next_upload(now).is_some());
    queue.uploaded(&sealed[0], Some(files(1)));
    queue.committed(sealed[0].seal.incarnation, 1);
    assert_eq!(queue.failures, 0);
}

#[tokio::test]
async fn starts_do_not_share_a_commit() {
    let mut kit = Kit::new();
    let table = kit.table("cpu").await;
    let mut queue = Queue { resolved: true, ..Queue::default() };
    for _ in 0..2 {
        kit.append(table, 0, 0..1).await;
        kit.seal(table).await;
        kit = kit.restart();
    }
    queue.enqueue(kit.store.summaries().remove(0).sealed);
    let now = Instant::now();
    while let Some(sealed) = queue.next_upload(now) {
        queue.uploaded(&sealed, Some(files(1)));
    }
    let [first, second] = queue.incarnations()[..] else { panic!("should be two starts") };
    let ready = queue.ready(now).expect("should be ready");
    assert_eq!((ready.incarnation, ready.sequence, ready.files.rows), (first, 1, 1));
    queue.committed(first, 1);
    assert_eq!(queue.ready(now).expect("should be ready").incarnation, second);
}

fn landed(queue: &mut Queue, ready: &Ready, now: Instant) {
    let (incarnation, sequence) = (ready.incarnation, ready.sequence);
    queue.landed(Landed { incarnation, sequence, version: sequence, bytes: 1, dead: false }, now);
}

const DELAY: Duration = Duration::from_secs(2);

#[tokio::test]
async fn what_has_landed_stays_and_the_next_commit_goes_on_behind_it() {
    let (mut queue, sealed) = queue(3).await;
    let now = Instant::now();
    queue.resolved = true;
    while queue.next_upload(now).is_some() {}
    queue.uploaded(&sealed[0], Some(files(1)));
    let first = queue.ready(now).expect("should be ready");
    landed(&mut queue, &first, now);
    assert!(queue.ready(now).is_none());
    queue.uploaded(&sealed[1], Some(files(1)));
    let second = queue.ready(now).expect("should be ready");
    assert_eq!((second.first_sequence, second.sequence), (2, 2));
    landed(&mut queue, &second, now);
    assert_eq!(queue.unconfirmed(), [(second.incarnation, 2)]);
    let confirmed = queue.confirmed();
    assert_eq!(confirmed.iter().map(|landed| landed.sequence).collect::<Vec<_>>(), [1, 2]);
    for landed in confirmed {
        assert_eq!(queue.committed(landed.incarnation, landed.sequence).generations, 1);
    }
    assert_eq!(queue.confirm_at(now, DELAY, true), None, "nothing is left to confirm");
    assert!(!queue.is_empty());
}

#[tokio::test]
async fn a_look_waits_for_more_commits_unless_somebody_waits_for_it() {
    let count = MAX_UNCONFIRMED + 1;
    let (mut queue, sealed) = queue(i64::try_from(count).expect("should fit")).await;
    let now = Instant::now();
    queue.resolved = true;
    while queue.next_upload(now).is_some() {}
    assert_eq!(queue.confirm_at(now, DELAY, true), None);
    for (at, sealed) in sealed.iter().enumerate().take(MAX_UNCONFIRMED) {
        queue.uploaded(sealed, Some(files(1)));
        let ready = queue.ready(now).expect("should be ready");
        landed(&mut queue, &ready, now);
        let expected = if at + 1 < MAX_UNCONFIRMED { now + DELAY } else { now };
        assert_eq!(queue.confirm_at(now, DELAY, false), Some(expected), "after {} commits", at + 1);
        assert_eq!(queue.confirm_at(now, DELAY, true), Some(now));
    }
    queue.busy = true;
    assert_eq!(queue.confirm_at(now, DELAY, true), None);
    queue.busy = false;
    drop(queue.confirmed());

    let last = sealed.last().expect("should be one");
    queue.uploaded(last, Some(files(1)));
    let ready = queue.ready(now).expect("should be ready");
    landed(&mut queue, &ready, now);
    queue.retry_now();
    assert_eq!(queue.confirm_at(now, DELAY, false), Some(now), "who demands a flush does not wait");
    queue.hurry_to = Some(Lsn(last.seal.lsn.0 - 1));
    queue.entries.retain(|entry| entry.sealed.seal == last.seal);
    assert_eq!(queue.confirm_at(now, DELAY, false), Some(now + DELAY), "what was sealed later is nobody's hurry");
    queue.failed(now, MAX_PAUSE);
    assert_eq!(queue.confirm_at(now, DELAY, true), None, "a table that fails has a pause");
}

#[tokio::test]
async fn behind_a_log_that_was_replaced_everything_is_uploaded_again() {
    let (mut queue, sealed) = queue(4).await;
    let now = Instant::now();
    queue.resolved = true;
    for _ in 0..3 {
        queue.next_upload(now).expect("should be next");
    }
    queue.uploaded(&sealed[0], Some(files(1)));
    let ready = queue.ready(now).expect("should be ready");
    landed(&mut queue, &ready, now);
    queue.uploaded(&sealed[1], Some(files(1)));
    // One has landed, one is uploaded, one is under way, one waits.
    queue.void();
    assert!(!queue.resolved && queue.unconfirmed().is_empty());
    queue.asked();
    queue.uploaded(&sealed[2], Some(files(1)));
    assert!(queue.ready(now).is_none());
    let again: Vec<_> = std::iter::from_fn(|| queue.next_upload(now)).map(|s| s.seal).collect();
    assert_eq!(again, sealed.iter().map(|s| s.seal).collect::<Vec<_>>());
    sealed.iter().for_each(|sealed| queue.uploaded(sealed, Some(files(1))));
    assert_eq!(queue.ready(now).expect("should be ready").sequence, 4);
}

#[tokio::test]
async fn what_landed_and_is_not_in_the_table_when_it_is_asked_is_uploaded_again() {
    let (mut queue, sealed) = queue(1).await;
    let now = Instant::now();
    queue.resolved = true;
    queue.next_upload(now).expect("should be next");
    queue.uploaded(&sealed[0], Some(files(1)));
    let ready = queue.ready(now).expect("should be ready");
    landed(&mut queue, &ready, now);
    queue.resolved = false;
    queue.asked();
    assert_eq!(queue.next_upload(now).expect("should be next").seal, sealed[0].seal);
}

/// Another writer's vacuum deletes what no version refers to, once it is old.
#[tokio::test]
async fn files_that_waited_for_half_a_day_are_uploaded_anew() {
    let (mut queue, sealed) = queue(2).await;
    let now = Instant::now();
    queue.resolved = true;
    while queue.next_upload(now).is_some() {}
    for sealed in &sealed {
        queue.uploaded(sealed, Some(files(1)));
    }
    let late = Instant::now() + MAX_WAIT;
    assert!(queue.ready(now).is_some() && queue.next_upload(now).is_none());
    assert!(queue.ready(late).is_none());
    assert_eq!(queue.next_upload(late).expect("should be uploaded anew").seal, sealed[0].seal);
}

#[tokio::test]
async fn a_dead_letter_waits_for_its_turn_and_has_a_commit_of_its_own() {
    let (mut queue, sealed) = queue(3).await;
    let now = Instant::now();
    queue.resolved = true;
    while queue.next_upload(now).is_some() {}
    queue.uploaded(&sealed[1], None);
    queue.struck(&sealed[1], Some(Fault::Payload), "why", 1);
    assert!(queue.next_upload(now).is_none() && queue.ready(now).is_none());
    for i in [0, 2] {
        queue.uploaded(&sealed[i], Some(files(1)));
    }
    let ready = queue.ready(now).expect("should be ready");
    assert_eq!((ready.first_sequence, ready.sequence, ready.dead.is_none()), (1, 1, true));
    queue.committed(ready.incarnation, 1);
    let ready = queue.ready(now).expect("should be ready");
    assert_eq!((ready.first_sequence, ready.sequence, ready.files.adds.len()), (2, 2, 0));
    assert_eq!(ready.dead.map(|(sealed, why)| (sealed.seal.sequence, why)), Some((2, "why".to_owned())));
    queue.committed(ready.incarnation, 2);
    assert_eq!(queue.ready(now).expect("should be ready").sequence, 3);
}

#[tokio::test]
async fn a_table_that_fails_uploads_one_at_a_time() {
    let (mut queue, sealed) = queue(3).await;
    let now = Instant::now();
    queue.resolved = true;
    let first = queue.next_upload(now).expect("should be next");
    queue.uploaded(&first, None);
    queue.failed(now, MAX_PAUSE);
    let later = queue.paused_until().expect("should pause");
    assert!(queue.next_upload(later).is_some() && queue.next_upload(later).is_none());
    assert_eq!(queue.stages(), Stages { waiting: 2, uploading: 1, ready: 0, landed: 0 });
    queue.uploaded(&sealed[0], Some(files(1)));
    assert_eq!(queue.stages(), Stages { waiting: 2, uploading: 0, ready: 1, landed: 0 });
}
