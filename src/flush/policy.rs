//! When a bucket is sealed.
//!
//! Age is monotonic; only the question whether a window has passed looks at the wall clock, and is guarded by a least age, so that
//! a jump of the clock neither seals everything at once nor freezes sealing.

use std::time::Duration;

use super::Options;

/// An open generation as the policy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Payload bytes.
    pub bytes: u64,
    /// Since its first row, monotonic.
    pub age: Duration,
    /// First microsecond behind its window.
    pub window_end: i64,
}

/// Why a bucket is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Its window and the grace have passed.
    Window,
    /// It is large enough.
    Size,
    /// It has been open for long enough.
    Age,
    /// The node needs room.
    Pressure,
}

impl Reason {
    /// All of them, with a word for each.
    pub const ALL: [(Self, &'static str); 4] =
        [(Self::Window, "window"), (Self::Size, "size"), (Self::Age, "age"), (Self::Pressure, "pressure")];
}

/// Under pressure, a generation below both of these stays open: sealing it would make a tiny file and free next to nothing.
const PRESSURE_MIN_BYTES: u64 = 256 << 10;
const PRESSURE_MIN_AGE: Duration = Duration::from_secs(1);

/// Whether to seal, and why. `now` is the wall clock in microseconds; `relief` says that the node wants room; `is_due`, asked only
/// where it matters, that the table was not sealed from too lately for its cadence.
#[must_use]
pub fn seal_reason(
    candidate: &Candidate,
    options: &Options,
    now: i64,
    relief: bool,
    is_due: impl FnOnce() -> bool,
) -> Option<Reason> {
    if candidate.bytes >= options.seal_bytes.as_u64() {
        return Some(Reason::Size);
    }
    if candidate.age >= options.max_age {
        return Some(Reason::Age);
    }
    let grace = i64::try_from(options.grace.as_micros()).unwrap_or(i64::MAX);
    if candidate.age >= options.min_age && now >= candidate.window_end.saturating_add(grace) && is_due() {
        return Some(Reason::Window);
    }
    if relief && (candidate.bytes >= PRESSURE_MIN_BYTES || candidate.age >= PRESSURE_MIN_AGE) {
        return Some(Reason::Pressure);
    }
    None
}

#[cfg(test)]
mod tests;
