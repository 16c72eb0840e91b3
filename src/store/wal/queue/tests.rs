use crate::types::SliceInput;
use std::time::Instant;

use bytes::Bytes;
use uuid::Uuid;

use super::*;
use crate::types::Incarnation;
use crate::wal::record::Record;

const SOON: Duration = Duration::from_millis(1);
const TABLE: TableId = TableId(Uuid::from_u128(1));
const BUCKET: Bucket = Bucket { start: 0, width: 1 };

fn append(len: usize) -> (Request, oneshot::Receiver<Result<Appended, AppendError>>) {
    let slices = vec![SliceInput {
        table: TABLE,
        schema_version: 1,
        encoding: 1,
        bucket: BUCKET,
        rows: 1,
        min_time: 0,
        max_time: 0,
        payload: Bytes::from(vec![0; len]),
    }];
    let encoded = Record::Slices(slices.clone().into()).encode().expect("should be encodable");
    let (done, answer) = oneshot::channel();
    (Request::Append { rows: slices.into(), encoded, done }, answer)
}

fn seal() -> (Request, oneshot::Receiver<Result<Option<Sealed>, AppendError>>) {
    let (done, answer) = oneshot::channel();
    (Request::Seal { table: TABLE, bucket: BUCKET, generation: Lsn(0), done }, answer)
}

fn commit() -> (Request, oneshot::Receiver<Result<(), AppendError>>) {
    let commit = Commit { table: TABLE, incarnation: Incarnation(1), sequence: 1, version: 1 };
    let encoded = Record::Commit(commit).encode().expect("should be encodable");
    let (done, answer) = oneshot::channel();
    (Request::Commit { commit, encoded, done }, answer)
}

fn taken(batch: Batch) -> usize {
    match batch {
        Batch::Requests(requests) => requests.len(),
        Batch::Idle | Batch::Closed => 0,
    }
}

#[test]
fn gives_out_in_order_and_up_to_the_cap() {
    let queue = Queue::new(1 << 20);
    let answers: Vec<_> = [1000, 2000, 3000, 9000, 10]
        .map(append)
        .into_iter()
        .map(|(request, answer)| {
            queue.push(request);
            answer
        })
        .collect();
    assert_eq!(taken(queue.take(4000, SOON)), 2);
    assert_eq!(taken(queue.take(4000, SOON)), 1);
    assert_eq!(taken(queue.take(4000, SOON)), 1, "one that is larger than the cap goes alone");
    assert_eq!(taken(queue.take(4000, SOON)), 1);
    assert!(matches!(queue.take(4000, SOON), Batch::Idle));
    drop(answers);
}

#[test]
fn accounts_for_every_byte() {
    let queue = Queue::new(5000);
    for _ in 0..50 {
        let mut answers = Vec::new();
        for len in [0, 1, 7, 4095, 4096, 9000] {
            let (request, answer) = append(len);
            queue.push(request);
            answers.push(answer);
        }
        let (request, _seal) = seal();
        queue.push(request);
        let (request, _commit) = commit();
        queue.push(request);
        while taken(queue.take(3000, SOON)) > 0 {}
        let inner = queue.inner.lock();
        assert_eq!((inner.bytes, inner.urgent, inner.requests.len()), (0, 0, 0));
    }
}

#[test]
fn refuses_rows_when_full_and_never_what_makes_room() {
    let queue = Queue::new(1000);
    let mut waiting = Vec::new();
    let refused = loop {
        let (request, mut answer) = append(500);
        queue.push(request);
        match answer.try_recv() {
            Ok(answer) => break answer,
            Err(_) => waiting.push(answer),
        }
        assert!(waiting.len() < 10, "the queue has no end");
    };
    assert_eq!(refused, Err(AppendError::QueueFull));
    let ((seal, mut sealed), (commit, mut committed)) = (seal(), commit());
    queue.push(seal);
    queue.push(commit);
    assert!(sealed.try_recv().is_err() && committed.try_recv().is_err(), "both wait");
    let mut count = 0;
    loop {
        match taken(queue.take(1 << 20, SOON)) {
            0 => break,
            more => count += more,
        }
    }
    assert_eq!(count, waiting.len() + 2);
}

#[test]
fn commits_wait_for_company_but_not_for_long() {
    let queue = Queue::new(1 << 20);
    let (request, _answer) = commit();
    queue.push(request);
    let started = Instant::now();
    assert_eq!(taken(queue.take(1 << 20, Duration::from_millis(20))), 1);
    assert!(started.elapsed() >= Duration::from_millis(20));
    let ((lazy, _lazy), (urgent, _urgent)) = (commit(), seal());
    queue.push(lazy);
    queue.push(urgent);
    assert_eq!(taken(queue.take(1 << 20, Duration::from_secs(60))), 2, "company is there");
}

#[test]
fn a_push_wakes_who_waits() {
    let queue = Queue::new(1 << 20);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| taken(queue.take(1 << 20, Duration::from_secs(60))));
        let (request, _answer) = seal();
        queue.push(request);
        assert_eq!(waiter.join().expect("should not panic"), 1);
    });
}

#[test]
fn a_closed_queue_gives_out_what_it_has_and_takes_nothing() {
    let queue = Queue::new(1 << 20);
    let (request, mut before) = append(10);
    queue.push(request);
    queue.close(AppendError::Closed);
    let (request, mut after) = append(10);
    queue.push(request);
    assert_eq!(after.try_recv().expect("should be answered"), Err(AppendError::Closed));
    assert_eq!(taken(queue.take(1 << 20, Duration::from_secs(60))), 1);
    assert!(matches!(queue.take(1 << 20, Duration::from_secs(60)), Batch::Closed));
    // Its sender was dropped with the batch.
    assert!(before.try_recv().is_err());
}

#[test]
fn refusing_all_answers_all_with_the_first_reason() {
    let queue = Queue::new(1 << 20);
    let poisoned = AppendError::Poisoned { shard: 0, reason: "a disk".to_owned() };
    let ((a, mut append_answer), (b, mut seal_answer), (c, mut commit_answer)) = (append(10), seal(), commit());
    [a, b, c].into_iter().for_each(|request| queue.push(request));
    queue.close(poisoned.clone());
    queue.close(AppendError::Closed);
    queue.refuse_all(&poisoned);
    assert_eq!(append_answer.try_recv().expect("should be answered"), Err(poisoned.clone()));
    assert!(matches!(seal_answer.try_recv(), Ok(Err(AppendError::Poisoned { .. }))));
    assert!(matches!(commit_answer.try_recv(), Ok(Err(AppendError::Poisoned { .. }))));
    let (request, mut later) = append(10);
    queue.push(request);
    assert_eq!(later.try_recv().expect("should be answered"), Err(poisoned));
    assert_eq!(queue.inner.lock().bytes, 0);
}
