use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, Result};

use super::{Deadline, Exceeded, each_within};

const LIMIT: Duration = Duration::from_millis(20);

fn is_exceeded<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Generic { source, .. }) if source.is::<Exceeded>())
}

#[tokio::test]
async fn a_stream_that_stalls_fails_once_and_ends() {
    let items = stream::iter([Ok(1), Ok(2)]).chain(stream::pending::<Result<i32>>());
    let items: Vec<_> = each_within(LIMIT, items).collect().await;
    assert_eq!(items.len(), 3);
    assert!(is_exceeded(&items[2]));
}

#[tokio::test]
async fn a_stream_that_is_slow_and_moves_is_left_alone() {
    let items = stream::iter(0..6).then(|i| async move {
        tokio::time::sleep(LIMIT / 4).await;
        Ok(i)
    });
    let items: Vec<Result<i32>> = each_within(LIMIT, Box::pin(items)).collect().await;
    assert_eq!(items.iter().filter(|item| item.is_ok()).count(), 6);
}

#[tokio::test]
async fn calls_in_time_are_passed_on() {
    let store = Deadline::new(Arc::new(InMemory::new()), LIMIT);
    let path = Path::from("a/b");
    store.put(&path, "text".into()).await.expect("should put");
    let read = store.get(&path).await.expect("should get").bytes().await.expect("should read");
    assert_eq!(read.as_ref(), b"text");
    assert_eq!(store.list(None).count().await, 1);
    store.delete(&path).await.expect("should delete");
    assert!(matches!(store.head(&path).await, Err(Error::NotFound { .. })));
}
