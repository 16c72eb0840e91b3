//! Golden data directories: what a format version wrote, healthy and damaged, has to be read the same for ever.
//!
//! `PENSTOCK_WRITE_FIXTURES=1 cargo test -p penstock-store --test store fixtures` writes those of the current version anew, which is
//! only right while that version has never been released. A new version gets a directory of its own, and the old ones stay.
//!
//! Files are cut behind their last byte that is not zero, to whole pages; a scan takes what is missing for zeros.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use bytes::Bytes;
use penstock_store::fs::{Fault, FaultKind, FileSystem, MemoryFileSystem, Operation};
use penstock_store::{Define, Store};

use crate::kit::{
    append, bucket, commit, define, open_memory, payloads, refusal, seal, segments, slice, table, try_append,
    try_open_memory,
};

const VERSION: &str = "v1";
const EXPECTED: &str = "EXPECTED";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/store").join(VERSION)
}

/// The directories that start, each with what is in them.
const READABLE: [&str; 2] = ["healthy", "torn-tail"];

/// Those that do not, and what the refusal has to say.
const REFUSED: [(&str, &[&str]); 5] = [
    ("damaged-record", &["wal/shard-000/00000000000000000000.seg: damaged at byte", "acknowledged"]),
    ("damaged-segment-header", &["wal/shard-000/00000000000000000000.seg: damaged at byte 0"]),
    ("damaged-manifest", &["MANIFEST: damaged at byte 0"]),
    ("missing-first-segment", &["wal/shard-000", "is missing"]),
    ("missing-last-segment", &["wal/shard-000", "is missing"]),
];

#[test]
fn golden_directories_are_read_as_they_were_written() {
    write_if_asked();
    for name in READABLE {
        let dir = root().join(name);
        let expected = fs::read_to_string(dir.join(EXPECTED)).expect("should have a description");
        let store = open_memory(&load(&dir));
        assert_eq!(describe(&store), expected, "{name}");
        // And the log goes on from there.
        append(&store, "a row of today");
    }
}

#[test]
fn damaged_golden_directories_are_refused() {
    write_if_asked();
    for (name, words) in REFUSED {
        let error = refusal(&load(&root().join(name))).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{name}: {error}");
    }
}

/// Everything that the store can say about a directory, but for what each start makes new.
fn describe(store: &Store) -> String {
    let mut text = String::new();
    let mut line = |args: std::fmt::Arguments<'_>| writeln!(text, "{args}").expect("should fit");
    line(format_args!("node {}", store.node()));
    line(format_args!("durable {}", store.status()[0].durable_lsn));
    let report = store.recovery();
    line(format_args!("records {} rewritten {} torn {}", report.records, report.rewritten, report.torn));
    let mut definitions = store.definitions();
    definitions.sort_by_key(|d| d.table);
    for d in definitions {
        line(format_args!("define {} version {} {:?}", d.table, d.schema_version, d.body));
    }
    for n in 1..=2 {
        for view in store.view(table(n)).generations {
            let generation = view.generation();
            let (start, width, first) = (generation.bucket.start, generation.bucket.width, generation.first_lsn);
            line(format_args!("table {} bucket {start} width {width} generation {first}", generation.table));
            if let Some(seal) = view.current_seal() {
                line(format_args!("  sealed {} {} at {}", seal.incarnation, seal.sequence, seal.lsn));
            }
            for s in view.slices() {
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
    memory
}

fn write_if_asked() {
    static ONCE: Once = Once::new();
    if std::env::var_os("PENSTOCK_WRITE_FIXTURES").is_some_and(|v| v == "1") {
        ONCE.call_once(write_all);
    }
}

fn write_all() {
    save("healthy", &build());
    save("torn-tail", &build_torn());
    let small = build_small();
    let first = segments(&small).remove(0);
    let last = segments(&small).pop().expect("should have segments");
    let damaged = |path: &Path, at: u64| {
        let fs = small.snapshot();
        let byte = fs.dump(path).expect("should be there")[at as usize];
        fs.overwrite(path, at, &[byte ^ 1]).expect("should be there");
        fs
    };
    // In the payload of the second group's record.
    save("damaged-record", &damaged(&first, 2 * 4096 + 64 + 32 + 72 + 3));
    save("damaged-segment-header", &damaged(&first, 17));
    save("damaged-manifest", &damaged(Path::new("/data/MANIFEST"), 40));
    for (name, lost) in [("missing-first-segment", &first), ("missing-last-segment", &last)] {
        let fs = small.snapshot();
        fs.remove(lost).expect("should be there");
        save(name, &fs);
    }
}

/// Two starts: generations that are committed, sealed and open, definitions of two versions, two tables, a mark at the end.
fn build() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    let define_version = |store: &Store, number: u128, schema_version: u32, body: &'static str| {
        let define = Define { table: table(number), schema_version, body: Bytes::from_static(body.as_bytes()) };
        store.define(define).expect("should queue").wait_blocking().expect("should be durable");
    };
    define_version(&store, 1, 1, r#"{"name":"requests"}"#);
    append(&store, "committed");
    let sealed = seal(&store).expect("should seal");
    append(&store, "sealed by the first start");
    commit(&store, &sealed).expect("should commit");
    seal(&store).expect("should seal");
    store.close().expect("should close");
    drop(store);
    let store = open_memory(&fs);
    define_version(&store, 2, 1, r#"{"name":"errors"}"#);
    define_version(&store, 1, 2, r#"{"name":"requests","columns":2}"#);
    let mut newer = slice(table(1), bucket(0), "of the second version");
    (newer.schema_version, newer.encoding, newer.rows) = (2, 7, 3);
    let record = vec![newer, slice(table(1), bucket(-1), "before 1970"), slice(table(2), bucket(1), "another table")];
    store.append(record).expect("should queue").wait_blocking().expect("should be durable");
    seal(&store).expect("should seal");
    append(&store, "open");
    assert_eq!(payloads(&store, table(1)).len(), 4);
    std::thread::sleep(Duration::from_millis(50));
    let killed = fs.crash_process();
    drop(store);
    killed
}

/// Two segments, and little in them.
fn build_small() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    for start in ["first", "second"] {
        let store = open_memory(&fs);
        define(&store, table(1));
        append(&store, start);
        store.close().expect("should close");
    }
    fs
}

/// Behind the last acknowledged group lies one whose sync failed and whose second page never got to the disk.
fn build_torn() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    append(&store, "the last acknowledged row");
    let (path_contains, error) = (Some(".seg".to_owned()), FaultKind::Eio);
    fs.fail(Fault { operation: Operation::SyncData, nth: 1, path_contains, error, sticky: false });
    try_append(&store, vec![b'x'; 6000]).expect_err("should fail");
    let end = 4096 + (store.status()[0].durable_lsn.0 - base_of(&segments(&fs).pop().expect("should have one")));
    drop(store);
    let fs = fs.snapshot();
    let last = segments(&fs).pop().expect("should have segments");
    fs.set_len(&last, end + 4096).expect("should be there");
    fs
}

fn base_of(segment: &Path) -> u64 {
    let name = segment.file_stem().and_then(|name| name.to_str()).expect("should have a name");
    name.parse().expect("should be a number")
}

fn save(name: &str, fs: &MemoryFileSystem) {
    let dir = root().join(name);
    if dir.exists() {
        fs::remove_dir_all(&dir).expect("should be removable");
    }
    for path in fs.files() {
        let inside = path.strip_prefix("data").expect("should lie in the data directory");
        let is_kept = inside.extension().is_some_and(|e| e == "seg") || inside.ends_with("MANIFEST");
        if !is_kept {
            continue;
        }
        let mut bytes = fs.dump(&path).expect("should be there");
        if !inside.ends_with("MANIFEST") {
            let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
            bytes.truncate(used.next_multiple_of(4096));
        }
        let file = dir.join(inside);
        fs::create_dir_all(file.parent().expect("should have a parent")).expect("should be made");
        fs::write(file, bytes).expect("should be written");
    }
    // Cut files first, or the description would be of another start.
    if let Ok(store) = try_open_memory(&load(&dir)) {
        fs::write(dir.join(EXPECTED), describe(&store)).expect("should be written");
    }
}
