//! Blocking file work, off the async threads.

/// Runs `work` on a blocking thread and waits for it. Dropping the future does not stop the work.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> object_store::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(object_store::Error::from)
}
