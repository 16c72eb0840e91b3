use std::time::Duration;

use penstock_store::fs::{Fault, FaultKind, MemoryFileSystem, Operation};

use super::*;

const DIR: &str = "/data";

fn some() -> Kept {
    let mut kept = Kept::default();
    for key in KEYS {
        let value = match key.get(&crate::config::Config::default()) {
            Setting::Count(_) => Setting::Count(7),
            Setting::Size(_) => Setting::Size((5 << 20) + 1),
            Setting::Time(_) => Setting::Time(Duration::from_millis(12_345)),
            Setting::Part(_) => Setting::Part(0.3),
        };
        kept.put(key.name, Some(value));
    }
    kept
}

fn fs() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    fs.create_dir_all(Path::new(DIR)).expect("should make it");
    fs.sync_dir(Path::new("/")).expect("should sync");
    fs
}

#[test]
fn the_file_is_text_for_people_and_reads_back_as_it_was() {
    assert_eq!(Kept::decode(&some().encode()), Ok(some()));
    let mut one = Kept::default();
    one.put("flush.parallelism", Some(Setting::Count(16)));
    one.put("admission.replay_budget", Some(Setting::Time(Duration::from_secs(20))));
    let text = one.encode();
    assert!(text.ends_with("version = 1\nflush.parallelism = 16\nadmission.replay_budget = \"20s\"\n"), "{text}");
    assert!(text.lines().take_while(|line| line.starts_with('#')).count() == 3, "{text}");
    // As somebody might write it.
    let sections = "version = 1\n[flush]\nparallelism = 16\n[admission]\nreplay_budget = '20s'\n";
    assert_eq!(Kept::decode(sections), Ok(one.clone()));
    one.put("flush.parallelism", None);
    assert!(!one.encode().contains("parallelism"));
}

#[test]
fn what_does_not_read_as_written_is_refused_by_its_key() {
    let said = |text: &str| Kept::decode(text).expect_err(text);
    assert!(said("version = 1\nflush.parallelism = 0").contains("from 1 to 1024"));
    assert!(said("version = 1\nflush.paralelism = 1").contains("there is no setting flush.paralelism"));
    assert!(said("version = 1\nflush.threads = 1").contains("flush.threads does not change"));
    assert!(said("version = 1\nparallelism = 1").contains("there is no setting parallelism"));
    assert!(said("version = 2\n").contains("version is 2"));
    assert!(said("").contains("version = 1"));
    said("version = 1\nflush.parallelism =");
    // Cut anywhere, it is never taken for another one.
    let text = some().encode();
    let start = text.find("version").expect("should be there");
    for cut in start..text.len() - 1 {
        if text.is_char_boundary(cut)
            && let Ok(read) = Kept::decode(&text[..cut])
        {
            assert!(text[..cut].ends_with(['\n', '"']) || text[..cut].ends_with(char::is_numeric), "{read:?}");
        }
    }
}

#[test]
fn after_a_crash_it_is_the_old_file_or_the_new_one() {
    let (fs, old, new) = (fs(), some(), Kept::default());
    assert_eq!(Kept::load(&fs, Path::new(DIR)).expect("should do without"), Kept::default());
    old.store(&fs, Path::new(DIR)).expect("should store");
    for seed in 0..50 {
        assert_eq!(Kept::load(&fs.snapshot().crash(seed), Path::new(DIR)).expect("should read"), old, "{seed}");
    }
    // What a crash left half-written does not stand in the way.
    let next = fs.create(&Path::new(DIR).join(NEXT_FILE_NAME)).expect("should make it");
    next.write_all_at(b"half", 0).expect("should write");
    new.store(&fs, Path::new(DIR)).expect("should store");
    assert_eq!(Kept::load(&fs, Path::new(DIR)).expect("should read"), new);
}

#[test]
fn a_failure_at_any_step_leaves_a_file_that_reads() {
    let (old, new) = (some(), {
        let mut new = some();
        new.put("flush.parallelism", Some(Setting::Count(99)));
        new
    });
    let steps = [Operation::Create, Operation::Write, Operation::SyncData, Operation::Rename, Operation::SyncDir];
    for operation in steps {
        for error in [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortThenError { bytes: 20 }] {
            let fs = fs();
            old.store(&fs, Path::new(DIR)).expect("should store");
            fs.fail(Fault { operation, nth: 1, path_contains: None, error, sticky: true });
            new.store(&fs, Path::new(DIR)).expect_err("should fail");
            for seed in 0..20 {
                let found = Kept::load(&fs.snapshot().crash(seed), Path::new(DIR)).expect("should read");
                assert!(found == old || found == new, "{operation:?} {error:?} {seed}");
                assert!(
                    found == old || operation == Operation::SyncDir,
                    "{operation:?} {error:?} {seed}: not renamed yet"
                );
            }
        }
    }
}

#[test]
fn a_file_that_is_no_text_or_too_long_is_refused_with_its_name() {
    let (fs, path) = (fs(), Path::new(DIR).join(FILE_NAME));
    let file = fs.create(&path).expect("should make it");
    file.write_all_at(&[0xff, 0xfe, 0xfd], 0).expect("should write");
    let error = Kept::load(&fs, Path::new(DIR)).expect_err("should be refused").to_string();
    assert!(error.contains("/data/tuning.toml") && error.contains("no text"), "{error}");
    file.write_all_at(&vec![b'#'; 70_000], 0).expect("should write");
    assert!(Kept::load(&fs, Path::new(DIR)).expect_err("should be refused").to_string().contains("70000 bytes"));
}
