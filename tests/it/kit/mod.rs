//! What every test does with a server.
//!
//! - this file: waiting, rows, bodies;
//! - `server`: the binary's `serve` as a child, and its HTTP API;
//! - `command`: the binary's other commands;
//! - `delta`: a Delta table's rows, read from disk without the server; `replay`: its log by the letter of the protocol, read from
//!   anywhere;
//! - `rough`: an object store that misbehaves; `careless`: one that speaks S3 and ignores `If-None-Match`; `objects`: real ones;
//! - `python`: an interpreter that has the packages a test needs; `three`: three readers that have to agree;
//! - `small_disk`: a file system that can be filled;
//! - `wire`: requests byte by byte; `senders`: posts that come again when they are told to.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

pub mod careless;
pub mod command;
pub mod delta;
pub mod objects;
pub mod python;
pub mod replay;
pub mod rough;
pub mod senders;
pub mod server;
pub mod small_disk;
pub mod three;
pub mod wire;

pub use command::penstock;
pub use server::{Launch, Reply, Server};

/// Longest wait for anything that should happen within moments; generous, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks.
pub const POLL: Duration = Duration::from_millis(20);

pub const NDJSON: &str = "application/x-ndjson";
pub const JSON: &str = "application/json";
pub const ARROW: &str = "application/vnd.apache.arrow.stream";

/// Looks again and again until `look` finds something.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "still waiting after {PATIENCE:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// A fresh directory, removed when dropped.
pub fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("penstock-it-").tempdir().expect("should make a directory")
}

/// Rows, a line each.
pub fn ndjson(rows: impl IntoIterator<Item = Value>) -> String {
    rows.into_iter().map(|row| format!("{row}\n")).collect()
}

/// Settings under which nothing is flushed unless it is asked for.
pub const NO_FLUSH: [(&str, &str); 3] = [("flush.max_age", "1h"), ("flush.min_age", "1h"), ("flush.grace", "1h")];

/// Every file below a directory with its bytes, by path.
pub fn files(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).expect("should list the directory") {
            let path = entry.expect("should read the entry").path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let bytes = std::fs::read(&path).expect("should read the file");
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}

/// A table's objects as they lie on disk, by their path in it.
pub fn objects_in(table: &Path) -> replay::Objects {
    if !table.exists() {
        return replay::Objects::new();
    }
    let name = |path: &Path| path.strip_prefix(table).expect("should be below it").display().to_string();
    files(table).into_iter().map(|(path, bytes)| (name(&path), bytes.into())).collect()
}

/// A file lake that cannot be written: a file stands where a namespace's directory has to be. Removing it repairs the lake.
pub fn block_namespace(lake: &Path, namespace: &str) -> std::path::PathBuf {
    std::fs::create_dir_all(lake).expect("should make the lake's directory");
    let stone = lake.join(namespace);
    std::fs::write(&stone, "in the way").expect("should write the file");
    stone
}
