//! What senders get wrong, on purpose or not: each refusal is a 4xx that a person can act on, and the server goes on serving with
//! the memory it had.
//!
//! - this file: the case, and the server that lives through all of them;
//! - `bodies`: posts; `declarations`: PUT; `statements`: SQL; `connections`: bytes that are no request.

use serde_json::{Value, json};

use crate::kit::{self, Launch, NO_FLUSH, Reply, Server};

mod bodies;
mod connections;
mod declarations;
mod statements;

/// Growth of the server's memory that a whole module of bad requests may leave behind, bytes.
const MEMORY_GROWTH: u64 = 300 << 20;

/// A refusal that is expected.
struct Case {
    what: &'static str,
    reply: Reply,
    /// Statuses that are right.
    status: &'static [u16],
    /// Words of the message or the help that tell what is wrong or what to do.
    says: &'static [&'static str],
}

impl Case {
    fn check(&self) {
        let (what, text) = (self.what, self.reply.text());
        assert!(self.status.contains(&self.reply.status), "{what}: {}: {text}", self.reply.status);
        self.reply.refusal();
        for word in self.says {
            assert!(text.contains(word), "{what}: should speak of {word:?}: {text}");
        }
        assert!(text.len() < 4_096, "{what}: a refusal of {} bytes", text.len());
    }
}

/// A server with a good table, and what it was before the bad requests.
struct Victim {
    server: Server,
    _dir: tempfile::TempDir,
    pid: u32,
    memory: u64,
}

impl Victim {
    async fn start(settings: &[(&str, &str)]) -> Self {
        let dir = kit::directory();
        let server = Launch::on(dir.path()).set_all(&NO_FLUSH).set_all(settings).start().await;
        // Declared, so that no row changes it.
        let columns = json!([
            { "name": "ts", "type": "timestamp", "nullable": false },
            { "name": "id", "type": "long" },
            { "name": "tags", "type": "struct<a:string>" },
            { "name": "x", "type": "double" },
        ]);
        assert_eq!(server.declare("good", &json!({ "columns": columns })).await.status, 201);
        server.append("good", [json!({ "ts": "2026-01-01T00:00:00Z", "id": 1, "tags": { "a": "b" }, "x": 0.5 })]).await;
        assert_eq!(server.count("good").await, 1);
        let memory = resident(&server.status().await);
        Self { pid: server.process.id(), server, _dir: dir, memory }
    }

    /// The same process, with about the same memory, takes good rows and finds nothing of the bad ones.
    async fn check(mut self, tables: &[&str]) {
        assert!(self.server.process.exited().is_none(), "the server is gone:\n{}", self.server.process.log());
        let found: Vec<Value> = self.server.sql("show tables").await;
        // Rows that a table could not hold are kept; that table is the server's own.
        let found = found.iter().filter_map(|row| row["table"].as_str()).filter(|table| *table != "dead_letters");
        let found: Vec<&str> = found.collect();
        assert_eq!(found, tables, "refused posts should leave no tables behind");
        assert_eq!(self.server.count("good").await, 1, "refused posts should leave no rows behind");
        self.server.append("good", [json!({ "ts": "2026-01-01T00:00:01Z", "id": 2, "x": 1.5 })]).await;
        self.server.flush().await;
        assert_eq!(self.server.count("good").await, 2);
        let status = self.server.status().await;
        assert_eq!((status["ready"].as_bool(), self.server.process.id()), (Some(true), self.pid));
        assert_eq!(status["admission"]["in_flight_bytes"], 0, "every lease should have been given back: {status}");
        let memory = resident(&status);
        assert!(memory < self.memory + MEMORY_GROWTH, "from {} to {memory} bytes", self.memory);
        let log = self.server.stop().await;
        // Arrow's reader panics on metadata that makes no sense; there that is caught, and becomes a refusal.
        let panics = log.lines().filter(|line| line.contains("panicked at") && !line.contains("/arrow-ipc-"));
        assert_eq!(panics.count(), 0, "{log}");
    }
}

fn resident(status: &Value) -> u64 {
    status["process"]["resident_bytes"].as_u64().filter(|bytes| *bytes > 0).expect("should tell its memory")
}
