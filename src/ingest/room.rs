//! Memory for a post while it is worked on, asked for before it is taken. A few bytes on the wire may stand for many: compressed ones,
//! rows that leave most columns out, values that rows share.

use std::fmt::Debug;
use std::sync::Arc;

use parking_lot::Mutex;

use super::reject::{Reject, RejectKind};
use crate::admission::{Backlog, Lease, POST_OVERHEAD, Refusal};

/// Says whether a post may take more.
pub trait Room: Debug + Send + Sync {
    /// Whether so many bytes in all, beside those of the body, may be taken. Where not, and where less is asked for than before, what
    /// was taken stays taken.
    fn take(&self, bytes: usize) -> bool;
}

/// Room without end, for whoever decodes what is his own.
#[derive(Debug)]
pub struct Boundless;

impl Room for Boundless {
    fn take(&self, _bytes: usize) -> bool {
        true
    }
}

/// The refusal that a decoder gives where there is no room; the room knows why.
pub fn none_left() -> Reject {
    let message = "there is no memory for the rows of this post now";
    Reject::new(RejectKind::TooLarge, "no_room", message, "send the same post again after a while")
}

/// A post's lease, as its room.
#[derive(Debug)]
pub struct Leased(Mutex<Held>);

#[derive(Debug)]
struct Held {
    lease: Lease,
    /// Beside the bytes of the body.
    work: u64,
    refused: Option<Refusal>,
}

impl Held {
    fn set(&mut self, work: u64) -> bool {
        match self.lease.work(POST_OVERHEAD + work) {
            Ok(()) => {
                self.work = work;
                true
            }
            Err(refusal) => {
                self.refused = Some(refusal);
                false
            }
        }
    }
}

impl Leased {
    pub fn new(lease: Lease) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Held { lease, work: 0, refused: None })))
    }

    /// Extends the lease to `bytes` of rows in all.
    ///
    /// # Errors
    /// The refusal; the lease stays as it was.
    pub fn hold(&self, bytes: u64, backlog: Backlog) -> Result<(), Refusal> {
        self.0.lock().lease.grow_to(bytes, backlog)
    }

    /// So many bytes are taken beside those of the body, no longer more; false if there is no room for them.
    pub fn settle(&self, bytes: usize) -> bool {
        self.0.lock().set(bytes as u64)
    }

    /// What a decoder's refusal says: that of the lease, where that is behind it.
    pub fn explain<E: From<Refusal> + From<Reject>>(&self, reject: Reject) -> E {
        self.0.lock().refused.take().map_or_else(|| reject.into(), Into::into)
    }
}

impl Room for Leased {
    fn take(&self, bytes: usize) -> bool {
        let mut held = self.0.lock();
        let bytes = bytes as u64;
        bytes <= held.work || held.set(bytes)
    }
}
