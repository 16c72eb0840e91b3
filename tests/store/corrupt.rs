//! Damage below a point that is known to have been durable: the store does not start, says where, and touches nothing.

use std::path::{Path, PathBuf};

use penstock_store::fs::MemoryFileSystem;
use penstock_store::{OpenError, Options, Store};

use crate::kit::{self, append, commit, contents, define, open_memory, options, payloads, seal, table};

/// Long enough for an idle owner to leave its mark.
const IDLE: std::time::Duration = std::time::Duration::from_millis(30);

fn manifest() -> PathBuf {
    Path::new(kit::DIR).join("MANIFEST")
}

/// One segment with a definition and some rows, each in its own group, killed when idle.
fn idle_log() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    for n in 0..3_u8 {
        append(&store, vec![n; 50]);
    }
    std::thread::sleep(IDLE);
    let killed = fs.crash_process();
    drop(store);
    killed
}

fn flip(fs: &MemoryFileSystem, path: &Path, at: u64) {
    let byte = fs.dump(path).expect("should be there")[at as usize];
    fs.overwrite(path, at, &[byte ^ 0x10]).expect("should be there");
}

fn expect_corrupt(error: &OpenError, file: &Path, from: u64, to: u64) {
    let OpenError::Corrupt { path, offset, .. } = error else { panic!("not called damage: {error}") };
    assert!(path.ends_with(file.file_name().expect("should have a name")), "{error}: not {}", file.display());
    assert!((from..=to).contains(offset), "{error}: not within {from} to {to}");
    assert!(error.to_string().contains(&offset.to_string()), "{error}");
}

#[test]
fn a_flipped_byte_anywhere_below_the_durable_point_is_refused() {
    let log = idle_log();
    let segment = kit::segments(&log).pop().expect("should have a segment");
    // The header page, and four groups of one page each; the mark is behind them.
    for at in 0..5 * 4096 {
        let fs = log.snapshot();
        flip(&fs, &segment, at);
        let error =
            if at % 61 == 0 { kit::refusal(&fs) } else { kit::try_open_memory(&fs).expect_err("should refuse") };
        expect_corrupt(&error, &segment, at / 4096 * 4096, at);
    }
}

#[test]
fn damage_in_the_last_group_of_an_idle_log_is_refused() {
    let fs = idle_log();
    let segment = kit::segments(&fs).pop().expect("should have a segment");
    for len in [1, 100, 4096] {
        let fs = fs.snapshot();
        fs.overwrite(&segment, 4 * 4096, &vec![0; len]).expect("should be there");
        expect_corrupt(&kit::refusal(&fs), &segment, 4 * 4096, 5 * 4096);
    }
    // Once they are in a lane file, nobody needs them in the log.
    let store = open_memory(&fs);
    append(&store, "one more");
    store.close().expect("should close");
    drop(store);
    let newest = kit::segments(&fs).pop().expect("should have a segment");
    fs.set_len(&newest, 4096).expect("should be there");
    assert_eq!(payloads(&open_memory(&fs), table(1)).len(), 4);
}

#[test]
fn what_was_there_at_the_last_start_is_known_to_be_durable() {
    let fs = idle_log();
    drop(open_memory(&fs));
    let fs = fs.crash(1);
    drop(open_memory(&fs));
    // No mark and no later group: the manifest that the start wrote says it.
    let oldest = kit::segments(&fs).remove(0);
    let fs = fs.crash_process();
    fs.overwrite(&oldest, 4 * 4096, &[0; 4096]).expect("should be there");
    expect_corrupt(&kit::refusal(&fs), &oldest, 4 * 4096, 5 * 4096);
}

#[test]
fn damage_before_a_later_segment_is_refused() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    for n in 0..40_u8 {
        append(&store, vec![n; 3000]);
    }
    let killed = fs.crash_process();
    drop(store);
    let segments = kit::segments(&killed);
    assert!(segments.len() >= 3);
    for segment in &segments[..segments.len() - 1] {
        // Its last group: right before the page that is kept for the note.
        let end = killed.dump(segment).expect("should be there").len() as u64 - 4096;
        let fs = killed.snapshot();
        flip(&fs, segment, end - 4096 + 200);
        expect_corrupt(&kit::refusal(&fs), segment, end - 4096, end);
    }
}

#[test]
fn a_missing_segment_is_refused_whichever_it_is() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    for round in 0..3 {
        for n in 0..30_u8 {
            append(&store, vec![n; 3000]);
        }
        if round == 0 {
            // The first segments go, and the log says so.
            let sealed = seal(&store).expect("should seal");
            commit(&store, &sealed).expect("should commit");
            store.checkpoint().expect("should checkpoint");
        }
    }
    let killed = fs.crash_process();
    drop(store);
    let segments = kit::segments(&killed);
    assert!(segments.len() >= 4 && !segments[0].ends_with("00000000000000000000.seg"), "{segments:?}");
    for lost in &segments {
        let fs = killed.snapshot();
        penstock_store::fs::FileSystem::remove(&fs, lost).expect("should be there");
        let error = kit::refusal(&fs);
        assert!(matches!(error, OpenError::Layout { .. }), "{} is lost: {error}", lost.display());
    }
    // And none: it starts.
    assert_eq!(payloads(&open_memory(&killed), table(1)).len(), 60);
}

#[test]
fn the_segment_of_a_start_is_missed() {
    let fs = idle_log();
    let store = open_memory(&fs);
    append(&store, "in the segment of the second start");
    let killed = fs.crash_process();
    drop(store);
    let newest = kit::segments(&killed).pop().expect("should have a segment");
    penstock_store::fs::FileSystem::remove(&killed, &newest).expect("should be there");
    let error = kit::refusal(&killed).to_string();
    assert!(error.contains("is missing"), "{error}");
}

#[test]
fn an_empty_segment_file_is_refused() {
    let fs = idle_log();
    let segment = kit::segments(&fs).pop().expect("should have a segment");
    fs.set_len(&segment, 0).expect("should be there");
    expect_corrupt(&kit::refusal(&fs), &segment, 0, 0);
}

#[test]
fn a_segment_under_another_name_is_refused() {
    let fs = idle_log();
    let segment = kit::segments(&fs).pop().expect("should have a segment");
    let other = segment.with_file_name("00000000000000004096.seg");
    penstock_store::fs::FileSystem::rename(&fs, &segment, &other).expect("should rename");
    expect_corrupt(&kit::refusal(&fs), &other, 0, 0);
}

#[test]
fn a_segment_of_another_node_is_refused() {
    let (fs, stranger) = (idle_log(), idle_log());
    let segment = kit::segments(&fs).pop().expect("should have a segment");
    fs.overwrite(&segment, 0, &stranger.dump(&segment).expect("should be there")).expect("should be there");
    let error = kit::refusal(&fs).to_string();
    assert!(error.contains("written by node"), "{error}");
}

#[test]
fn a_damaged_manifest_is_refused_at_every_byte() {
    let log = idle_log();
    let bytes = log.dump(&manifest()).expect("should be there");
    // Head, body and checksum; zeros follow, which may be missing as a whole.
    let body = u32::from_le_bytes(bytes[12..16].try_into().expect("should be four"));
    let whole = 16 + u64::from(body) + 4;
    for at in 0..bytes.len() as u64 {
        let fs = log.snapshot();
        flip(&fs, &manifest(), at);
        expect_corrupt(&kit::refusal(&fs), &manifest(), 0, 0);
        let fs = log.snapshot();
        fs.set_len(&manifest(), at).expect("should be there");
        match at == whole {
            true => drop(kit::open_memory(&fs)),
            false => expect_corrupt(&kit::refusal(&fs), &manifest(), 0, 0),
        }
    }
}

#[test]
fn a_log_without_its_manifest_is_refused() {
    let options = Options { shards: 4, ..options() };
    let fs = MemoryFileSystem::new();
    let store = Store::open(kit::shared(&fs), Path::new(kit::DIR), &options).expect("should open");
    // The table's shard is the last one: fewer shards may be configured when the manifest is looked for.
    let last = table(3);
    assert_eq!(store.shard_of(last), 3);
    define(&store, last);
    let killed = fs.crash_process();
    drop(store);
    penstock_store::fs::FileSystem::remove(&killed, &manifest()).expect("should be there");
    let error = kit::refusal(&killed).to_string();
    assert!(error.contains("the manifest is missing"), "{error}");
}

#[test]
fn a_missing_shard_directory_is_refused() {
    let fs = idle_log();
    for path in fs.files().iter().filter(|path| path.starts_with("data/wal")) {
        penstock_store::fs::FileSystem::remove(&fs, path).expect("should be there");
    }
    let error = kit::refusal(&fs).to_string();
    assert!(error.contains("is every file system mounted?"), "{error}");
    // And if the directory itself is gone.
    let elsewhere = MemoryFileSystem::new();
    penstock_store::fs::FileSystem::create_dir_all(&elsewhere, Path::new(kit::DIR)).expect("should be made");
    let file = penstock_store::fs::FileSystem::create(&elsewhere, &manifest()).expect("should be made");
    file.write_all_at(&fs.dump(&manifest()).expect("should be there"), 0).expect("should be written");
    let error = kit::refusal(&elsewhere).to_string();
    assert!(error.contains("is the file system mounted?"), "{error}");
}

#[test]
fn groups_left_over_in_a_recycled_segment_never_verify() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    // Until every file in use has been used before.
    for _ in 0..12 {
        for _ in 0..14 {
            append(&store, vec![0xEE; 3000]);
        }
        let sealed = seal(&store).expect("should seal");
        commit(&store, &sealed).expect("should commit");
        store.checkpoint().expect("should checkpoint");
    }
    append(&store, "the only row");
    let killed = fs.crash_process();
    drop(store);
    let newest = kit::segments(&killed).pop().expect("should have a segment");
    let stale = killed.dump(&newest).expect("should be there").windows(4).filter(|w| w == b"PNSG").count();
    assert!(stale > 4, "the newest segment has {stale} groups in all: nothing was left over in it");
    let store = open_memory(&killed);
    assert_eq!(payloads(&store, table(1)), ["the only row"]);
}

#[test]
fn a_group_that_is_copied_elsewhere_does_not_verify() {
    let fs = idle_log();
    let segment = kit::segments(&fs).pop().expect("should have a segment");
    let bytes = fs.dump(&segment).expect("should be there");
    // The second row's group over the first one's, and the first one's where the next group would be.
    let again = fs.snapshot();
    again.overwrite(&segment, 2 * 4096, &bytes[3 * 4096..4 * 4096]).expect("should be there");
    expect_corrupt(&kit::refusal(&again), &segment, 2 * 4096, 3 * 4096);
    fs.overwrite(&segment, 5 * 4096, &bytes[2 * 4096..3 * 4096]).expect("should be there");
    assert_eq!(payloads(&open_memory(&fs), table(1)).len(), 3);
}

#[test]
fn a_refused_start_leaves_the_directory_usable_for_repair() {
    let fs = idle_log();
    let before = contents(&fs);
    let segment = kit::segments(&fs).pop().expect("should have a segment");
    flip(&fs, &segment, 2 * 4096 + 70);
    for _ in 0..3 {
        kit::refusal(&fs);
    }
    flip(&fs, &segment, 2 * 4096 + 70);
    assert!(contents(&fs) == before);
    assert_eq!(payloads(&open_memory(&fs), table(1)).len(), 3);
}
