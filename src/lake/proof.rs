//! Proof that the lake's store is fit to be committed to: that it can be written, and that it honours create-only PUTs. Every commit
//! relies on the second one: a store that ignores it lets two commits of one version both succeed, and the rows of one are gone.
//!
//! - Nothing is uploaded or committed by a process that has not had the proof. It is had once, by whoever needs it first; a table's
//!   first contact waits for it.
//! - A server starts without it, is ready, and takes rows within its budgets: an outage at start is an outage like any other. What
//!   stands in the way is said in the log, in the status and as each waiting table's last error, and is looked into again and again:
//!   a store that was set up wrongly needs no restart of ours once it is put right.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use parking_lot::Mutex;
use uuid::Uuid;

use super::Error;
use super::stores::Stores;

/// For how long a failure answers for the store: tables that wait ask together, and each question is some calls.
const FAILURE_HOLDS: Duration = Duration::from_secs(1);

/// Whether the store is known to be fit.
#[derive(Debug)]
pub(super) struct Proof {
    stores: Stores,
    proven: AtomicBool,
    /// The last failure, for people.
    problem: Mutex<Option<Arc<Error>>>,
    /// One asks, the others wait for the answer: when it was asked last, without success.
    asking: tokio::sync::Mutex<Option<Instant>>,
}

impl Proof {
    /// Nothing is known of the store.
    pub(super) fn open(stores: Stores) -> Arc<Self> {
        Arc::new(Self {
            stores,
            proven: AtomicBool::new(false),
            problem: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        })
    }

    /// The store is taken at its word.
    #[cfg(test)]
    pub(super) fn assumed(stores: Stores) -> Arc<Self> {
        let proof = Self::open(stores);
        proof.proven.store(true, Ordering::Release);
        proof
    }

    /// What stands in the way; none while nothing is known, and once the store is proven fit.
    pub(super) fn problem(&self) -> Option<Arc<Error>> {
        self.problem.lock().clone()
    }

    /// Has the proof, or gets it.
    ///
    /// # Errors
    /// [`Error::Unproven`] with what the store did, now or a moment ago.
    pub(super) async fn ensure(&self) -> Result<(), Error> {
        if self.proven.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut failed = self.asking.lock().await;
        if self.proven.load(Ordering::Acquire) {
            return Ok(());
        }
        if let (Some(at), Some(problem)) = (*failed, self.problem())
            && at.elapsed() < FAILURE_HOLDS
        {
            return Err(Error::Unproven(problem));
        }
        match probe(&self.stores).await {
            Ok(()) => {
                if self.problem.lock().take().is_some() {
                    tracing::info!(lake = %self.stores.url, "the lake's store answers, and honours create-only PUTs");
                }
                self.proven.store(true, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                let error = Arc::new(error);
                *self.problem.lock() = Some(Arc::clone(&error));
                *failed = Some(Instant::now());
                Err(Error::Unproven(error))
            }
        }
    }
}

/// Writes an object, tries to create it again, and removes it.
pub(super) async fn probe(stores: &Stores) -> Result<(), Error> {
    let path = stores.prefix.clone().join(format!("penstock-probe-{}", Uuid::new_v4()));
    let outcome = create_twice(stores, &path).await;
    // Whatever came of it: a PUT that was answered with an error may have landed all the same.
    let removed = stores.store.delete(&path).await;
    outcome?;
    removed.map_err(|error| Error::store("removing", &path, error))
}

/// A create-only PUT, and a second one of the same key, which has to be refused and to change nothing.
pub(super) async fn create_twice(stores: &Stores, path: &Path) -> Result<(), Error> {
    create(stores, path, "first").await.map_err(|error| Error::store("creating", path, error))?;
    match create(stores, path, "second").await {
        Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
        Ok(()) => return Err(Error::NoConditionalPut { url: stores.url.to_string() }),
        Err(error) => return Err(Error::store("creating again", path, error)),
    }
    let read = async { stores.store.get(path).await?.bytes().await };
    let found = read.await.map_err(|error| Error::store("reading", path, error))?;
    // An answer that says no and a store that did it all the same.
    if found.as_ref() != b"first" {
        return Err(Error::NoConditionalPut { url: stores.url.to_string() });
    }
    Ok(())
}

/// One create-only PUT.
pub(super) async fn create(stores: &Stores, path: &Path, text: &'static str) -> object_store::Result<()> {
    stores.store.put_opts(path, text.into(), PutOptions::from(PutMode::Create)).await.map(drop)
}
