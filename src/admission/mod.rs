//! What may come in now. [`policy`] is the decision, a pure function; [`Admission`] gathers its numbers and holds the leases.
//!
//! A lease covers a post's bytes while it is received, decoded and queued. It ends at the ack, from where the store's own counter of
//! unflushed bytes holds them until they are in Delta.

mod lease;
pub mod policy;

#[cfg(test)]
mod tests;

pub use lease::{Admission, Lease};
pub use policy::{Decision, Limits, Refusal, Usage, policy};

use serde::{Deserialize, Serialize};

/// The `[admission]` settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Most bytes that are acknowledged and not yet in Delta, those in flight included. Default 1 GiB.
    pub max_unflushed: bytesize::ByteSize,
    /// Most bytes of posts between their first byte and their ack. Default 256 MiB.
    pub max_in_flight: bytesize::ByteSize,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_unflushed: bytesize::ByteSize::gib(1), max_in_flight: bytesize::ByteSize::mib(256) }
    }
}
