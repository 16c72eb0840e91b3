use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use uuid::Uuid;

use super::*;

/// Counts its writes, and waits in each until it is let go on.
#[derive(Debug)]
struct Slow {
    writes: AtomicUsize,
    rows: Mutex<Vec<String>>,
    go_on: tokio::sync::Semaphore,
}

#[async_trait]
impl Journal for Slow {
    async fn begin(&self, uploads: &[Upload]) -> Result<(), JournalError> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.go_on.acquire().await.expect("should be open").forget();
        self.rows.lock().extend(uploads.iter().map(|u| u.path.clone()));
        Ok(())
    }

    async fn end(&self, _: &[Upload]) -> Result<(), JournalError> {
        Ok(())
    }

    async fn open(&self) -> Result<Vec<Upload>, JournalError> {
        Ok(Vec::new())
    }
}

fn upload(path: &str) -> Upload {
    Upload {
        table: TableId(Uuid::nil()),
        name: "cpu".parse().expect("should be a name"),
        writer: NodeId(Uuid::nil()),
        incarnation: Incarnation(1),
        sequence: 1,
        path: path.to_owned(),
        began: 0,
    }
}

fn slow() -> (Arc<Slow>, Arc<Pen>) {
    let slow = Slow { writes: AtomicUsize::new(0), rows: Mutex::default(), go_on: tokio::sync::Semaphore::new(0) };
    (Arc::new(slow), Arc::new(Pen::default()))
}

fn begin(journal: &Arc<Slow>, pen: &Arc<Pen>, path: &str) -> tokio::task::JoinHandle<Result<(), JournalError>> {
    let (journal, pen, upload) = (Arc::clone(journal), Arc::clone(pen), upload(path));
    tokio::spawn(async move { pen.begin(journal.as_ref(), &upload).await })
}

async fn until(mut condition: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not come about");
}

#[tokio::test]
async fn uploads_that_begin_during_a_write_share_the_next_one() {
    let (journal, pen) = slow();
    let mut begun = vec![begin(&journal, &pen, "0")];
    until(|| journal.writes.load(Ordering::SeqCst) == 1).await;
    begun.extend((1..20).map(|i| begin(&journal, &pen, &i.to_string())));
    until(|| pen.waiting.lock().len() == 19).await;
    assert!(begun.iter().all(|task| !task.is_finished()), "nothing is durable yet");
    journal.go_on.add_permits(2);
    for task in begun {
        task.await.expect("should not panic").expect("should be written down");
    }
    assert_eq!((journal.writes.load(Ordering::SeqCst), journal.rows.lock().len()), (2, 20));
}

#[tokio::test]
async fn who_waits_for_a_writer_that_is_dropped_writes_itself() {
    let (journal, pen) = slow();
    // Three, of which the second writes for itself and the third.
    let first = begin(&journal, &pen, "first");
    until(|| journal.writes.load(Ordering::SeqCst) == 1).await;
    let second = begin(&journal, &pen, "second");
    until(|| pen.waiting.lock().len() == 1).await;
    let third = begin(&journal, &pen, "third");
    until(|| pen.waiting.lock().len() == 2).await;
    journal.go_on.add_permits(1);
    first.await.expect("should not panic").expect("should be written down");
    until(|| journal.writes.load(Ordering::SeqCst) == 2).await;
    second.abort();
    until(|| journal.writes.load(Ordering::SeqCst) == 3).await;
    journal.go_on.add_permits(1);
    third.await.expect("should not panic").expect("should be written down");
    assert_eq!(*journal.rows.lock(), ["first", "third"]);
}
