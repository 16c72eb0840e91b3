//! Named places at which a test has the process killed: `PENSTOCK_FAILPOINT=flush::upload::before` dies the first time that place is reached,
//! `flush::upload::before:3` the third time. As SIGKILL: nothing is written, told or cleaned up any more.
//!
//! Only where debug assertions are on; a release build has neither the places nor the variable.

#[cfg(debug_assertions)]
use std::sync::OnceLock;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable.
pub const VARIABLE: &str = "PENSTOCK_FAILPOINT";

/// Dies here if the environment says so.
#[cfg(debug_assertions)]
pub fn reach(place: &str) {
    static WANTED: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static REACHED: AtomicU64 = AtomicU64::new(0);
    let wanted = WANTED.get_or_init(|| parse(&std::env::var(VARIABLE).ok()?));
    let Some((name, nth)) = wanted else { return };
    if name == place && REACHED.fetch_add(1, Ordering::SeqCst) + 1 == *nth {
        // The signal needs no answer; if it could not be sent, the test finds a process that lives on.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Nothing.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn reach(_place: &str) {}

/// A name, and the how manieth time.
#[cfg(debug_assertions)]
fn parse(text: &str) -> Option<(String, u64)> {
    match text.rsplit_once(':').and_then(|(name, nth)| Some((name, nth.parse().ok()?))) {
        Some((name, nth)) => Some((name.to_owned(), nth)),
        None => Some((text.to_owned(), 1)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_place_has_a_name_and_may_have_a_number() {
        let place = |name: &str, nth| Some((name.to_owned(), nth));
        assert_eq!(super::parse("flush::upload::before"), place("flush::upload::before", 1));
        assert_eq!(super::parse("flush::upload::before:3"), place("flush::upload::before", 3));
    }
}
