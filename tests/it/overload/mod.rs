//! More than the node can take: what it holds stays within what it was allowed, whoever does as he is told gets through, and
//! whatever was acknowledged is there once.
//!
//! - [`drain`]: senders at several times the rate at which rows reach Delta, one table's commits hung;
//! - [`killed`]: the server killed in the middle of it, and what its next start takes;
//! - [`outage`]: the lake gone for a while; a start with more waiting than is allowed;
//! - [`memory`]: bytes on the wire that stand for more in memory;
//! - [`disk`]: disks that are full;
//! - [`stalled`]: bodies that do not come.
//!
//! Each takes well under a minute; `PENSTOCK_OVERLOAD_SECONDS=300` makes the load of the first two that long.

mod disk;
mod drain;
mod killed;
mod memory;
mod outage;
mod stalled;

use std::time::Duration;

use serde_json::Value;

use crate::kit::Server;

/// What the program takes by itself: code, runtimes, connections, DataFusion and Delta at work; measured at 75 MiB when idle.
const FIXED_MEMORY: u64 = 192 << 20;

/// One of these tests at a time: each loads the machine, and none is about what the others do to it.
async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    TURN.lock().await
}

/// How long a load lasts.
fn length(seconds: u64) -> Duration {
    let more = std::env::var("PENSTOCK_OVERLOAD_SECONDS").ok();
    Duration::from_secs(more.map_or(seconds, |text| text.parse().expect("should be a number of seconds")))
}

/// The most memory that the process ever had resident, bytes.
fn peak_memory(server: &Server) -> u64 {
    memory(server, "VmHWM:")
}

/// What is resident now.
fn resident(server: &Server) -> u64 {
    memory(server, "VmRSS:")
}

fn memory(server: &Server, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process.id())).expect("should be there");
    let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("should have the figure");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("should be a number");
    kib << 10
}

/// A number of the status.
fn figure(status: &Value, pointer: &str) -> u64 {
    status.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no number {pointer} in {status}"))
}

/// Seconds that the server says a restart would take.
fn estimate(status: &Value) -> f64 {
    status["store"]["replay_estimate_seconds"].as_f64().unwrap_or_else(|| panic!("no estimate in {status}"))
}
