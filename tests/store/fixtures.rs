//! Golden data directories: what a format version wrote, healthy and damaged, has to be read the same for ever.
//!
//! `PENSTOCK_WRITE_FIXTURES=1 cargo test -p penstock-store --test store fixtures` writes those of the current version anew, which is
//! only right while that version has never been released. A new version gets a directory of its own, and the old ones stay; nothing
//! writes them any more.
//!
//! Logs and the shards' manifests are cut behind their last byte that is not zero, to whole pages; a reader takes what is missing
//! for zeros.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use penstock_store::Store;
use penstock_store::fs::{FileSystem, MemoryFileSystem};

use crate::kit::table;

mod v1;
mod v2;
mod v3;

const EXPECTED: &str = "EXPECTED";

fn root(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/store").join(version)
}

/// What is in a directory that starts.
fn expected(dir: &Path) -> String {
    fs::read_to_string(dir.join(EXPECTED)).expect("should have a description")
}

/// Everything that the store can say about a directory, but for what each start makes new.
fn describe(store: &Store) -> String {
    let mut text = format!("node {}\n", store.node());
    for shard in store.status() {
        writeln!(text, "durable {}", shard.durable_lsn).expect("should fit");
    }
    let report = store.recovery();
    let (records, rewritten, torn) = (report.records, report.rewritten, report.torn);
    writeln!(text, "records {records} rewritten {rewritten} torn {torn}").expect("should fit");
    text + &describe_rows(store)
}

/// What no start and no checkpoint changes.
fn describe_rows(store: &Store) -> String {
    let mut text = String::new();
    let mut line = |args: std::fmt::Arguments<'_>| writeln!(text, "{args}").expect("should fit");
    let mut definitions = store.definitions();
    definitions.sort_by_key(|d| d.table);
    for d in definitions {
        line(format_args!("define {} version {} {:?}", d.table, d.schema_version, d.body));
    }
    for n in 1..=3 {
        for view in store.view(table(n)).generations {
            let generation = view.generation();
            let (start, width, first) = (generation.bucket.start, generation.bucket.width, generation.first_lsn);
            line(format_args!("table {} bucket {start} width {width} generation {first}", generation.table));
            if let Some(seal) = view.current_seal() {
                line(format_args!("  sealed {} {} at {}", seal.incarnation, seal.sequence, seal.lsn));
            }
            let slices = match view.slices() {
                Ok(slices) => slices,
                Err(error) => {
                    line(format_args!("  {}", error.kind()));
                    continue;
                }
            };
            for s in slices {
                let (lsn, version, encoding, rows) = (s.lsn, s.schema_version, s.encoding, s.rows);
                let (from, to) = (s.min_time, s.max_time);
                line(format_args!(
                    "  {lsn} version {version} encoding {encoding} rows {rows} {from}..{to} {:?}",
                    s.payload
                ));
            }
        }
    }
    text
}

fn load(dir: &Path) -> MemoryFileSystem {
    let memory = MemoryFileSystem::new();
    let mut open = vec![PathBuf::new()];
    while let Some(inside) = open.pop() {
        memory.create_dir_all(&Path::new("/data").join(&inside)).expect("should be made");
        let entries = fs::read_dir(dir.join(&inside)).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        for entry in entries {
            let entry = entry.expect("should be readable");
            let path = inside.join(entry.file_name());
            if entry.file_type().expect("should have a type").is_dir() {
                open.push(path);
            } else if entry.file_name() != EXPECTED {
                let file = memory.create(&Path::new("/data").join(&path)).expect("should be made");
                let bytes = fs::read(entry.path()).expect("should be readable");
                file.write_all_at(&bytes, 0).expect("should be written");
            }
        }
    }
    memory.sync_fs(Path::new("/")).expect("should be durable");
    memory
}
