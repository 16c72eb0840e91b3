//! Running queries: how many, for how long, on which threads.
//!
//! A query runs on threads of its own, so that a heavy one does not hold up posts. Its task ends at the deadline whether the client
//! still reads or not, and at once when the client goes away.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use penstock_store::Store;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::session::Sessions;
use super::{Error, Options};
use crate::lake::Lake;
use crate::schema::registry::Registry;

/// Batches that a query may be ahead of its reader.
const BATCHES_AHEAD: usize = 2;
/// Stack of a query thread. Touched only as deep as a plan is: planning recurses once for each operator of a statement.
const STACK_BYTES: usize = 256 << 20;
/// Longest that any query may run, whatever the settings say.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Answers SQL.
#[derive(Debug)]
pub struct Sql {
    options: Options,
    sessions: Arc<Sessions>,
    permits: Arc<Semaphore>,
    /// None once it is being dropped.
    runtime: Option<Runtime>,
}

/// A running query: read its batches to the end, or drop it to cancel.
#[derive(Debug)]
pub struct Query {
    pub schema: SchemaRef,
    batches: mpsc::Receiver<RecordBatch>,
    task: Task,
}

impl Sql {
    /// Queries over these tables.
    ///
    /// # Errors
    /// If the runtime cannot be set up.
    pub fn new(store: Arc<Store>, lake: Arc<Lake>, registry: Arc<Registry>, options: Options) -> Result<Self, Error> {
        let sessions = Arc::new(Sessions::new(store, lake, registry, options.memory.as_u64())?);
        let runtime = Builder::new_multi_thread()
            .thread_name("penstock-query")
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build();
        let runtime = Some(runtime.map_err(|e| Error::Failed(format!("starting the query threads: {e}")))?);
        let permits = Arc::new(Semaphore::new(options.concurrency.clamp(1, Semaphore::MAX_PERMITS)));
        Ok(Self { options, sessions, permits, runtime })
    }

    /// Starts one statement; it is planned when this returns.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is not a read-only statement; others as they come.
    pub async fn query(&self, sql: &str) -> Result<Query, Error> {
        let shutting_down = || Error::Busy("the server is shutting down".to_owned());
        if sql.len() as u64 > self.options.max_sql.as_u64() {
            return Err(Error::Limit(format!(
                "a statement of {} bytes; the limit is {}",
                sql.len(),
                self.options.max_sql
            )));
        }
        let limit = self.options.timeout.min(MAX_TIMEOUT);
        let deadline = Instant::now() + limit;
        let permit = timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await;
        let permit = permit
            .map_err(|_| Error::Busy(format!("{} queries are running already", self.options.concurrency)))?
            .map_err(|_| shutting_down())?;
        let runtime = self.runtime.as_ref().ok_or_else(shutting_down)?;
        let (tell_schema, schema) = oneshot::channel();
        let (hand_over, batches) = mpsc::channel(BATCHES_AHEAD);
        let (sessions, sql) = (Arc::clone(&self.sessions), sql.to_owned());
        let permits = Arc::clone(&self.permits);
        let most = self.options.concurrency.max(1);
        let mut task = Task(Some(runtime.spawn(async move {
            let done = timeout_at(deadline, sessions.run(&sql, tell_schema, hand_over)).await;
            let alone = permits.available_permits() + 1 >= most;
            drop(permit);
            match done {
                Err(_) => {
                    Err(Error::Limit(format!("the query ran for longer than {}", humantime::format_duration(limit))))
                }
                // It might have had the memory to itself.
                Ok(Err(Error::Limit(text))) if !alone => Err(Error::Busy(text)),
                Ok(done) => done,
            }
        })));
        match schema.await {
            Ok(schema) => Ok(Query { schema, batches, task }),
            Err(_) => Err(task.end().await.err().unwrap_or_else(shutting_down)),
        }
    }
}

impl Drop for Sql {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Whoever drops may be a thread that must not wait; queries change nothing.
            runtime.shutdown_background();
        }
    }
}

impl Query {
    /// The next batch; none at the end.
    ///
    /// # Errors
    /// The query failed or ran out of time.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, Error> {
        match self.batches.recv().await {
            Some(batch) => Ok(Some(batch)),
            None => self.task.end().await.map(|()| None),
        }
    }
}

/// A query's task, cancelled when dropped. None once it has ended.
#[derive(Debug)]
struct Task(Option<JoinHandle<Result<(), Error>>>);

impl Task {
    async fn end(&mut self) -> Result<(), Error> {
        let Some(task) = self.0.as_mut() else { return Ok(()) };
        let ended = task.await;
        self.0 = None;
        ended.unwrap_or_else(|error| {
            Err(if error.is_panic() {
                Error::Failed("the query panicked".to_owned())
            } else {
                Error::Busy("the server is shutting down".to_owned())
            })
        })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
