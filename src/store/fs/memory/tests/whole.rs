//! The calls that cover more than a file or a directory: `sync_fs` and `remove_dir_all`.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// The files after a power loss, over all seeds.
fn trees(fs: &MemoryFileSystem) -> BTreeSet<Vec<String>> {
    let tree = |fs: MemoryFileSystem| fs.files().iter().map(|path| path.to_str().unwrap().to_owned()).collect();
    SEEDS.map(|seed| tree(fs.snapshot().crash(seed))).collect()
}

fn trees_of<const N: usize>(trees: [&[&str]; N]) -> BTreeSet<Vec<String>> {
    trees.map(|names| names.iter().map(|name| name.to_string()).collect()).into()
}

/// A durable directory `d` with the durable files `a` and `b`.
fn with_directory() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    fs.create_dir_all(path("d")).unwrap();
    for name in ["d/a", "d/b"] {
        fs.create(path(name)).unwrap().write_all_at(b"old", 0).unwrap();
    }
    fs.sync_fs(path("/")).unwrap();
    fs
}

#[test]
fn a_synced_file_system_survives_every_power_loss() {
    let fs = MemoryFileSystem::new();
    fs.create_dir_all(path("x/y")).unwrap();
    fs.create_dir_all(path("z")).unwrap();
    let moved = synced(&fs, "moved", &[1; 9000]);
    moved.truncate(5000).unwrap();
    fs.rename(path("moved"), path("z/moved")).unwrap();
    fs.create(path("x/y/a")).unwrap().write_all_at(&[2; 10_000], 0).unwrap();
    synced(&fs, "gone", b"");
    fs.remove(path("gone")).unwrap();
    let nameless = durable(&fs, "nameless");
    fs.remove(path("nameless")).unwrap();
    nameless.write_all_at(b"x", 0).unwrap();
    // Any directory will do.
    fs.sync_fs(path("z")).unwrap();
    assert_eq!(trees(&fs), trees_of([&["x/y/a", "z/moved"]]));
    assert_eq!(outcomes(&fs, "x/y/a"), BTreeSet::from([Some(vec![2; 10_000])]));
    assert_eq!(outcomes(&fs, "z/moved"), BTreeSet::from([Some(vec![1; 5000])]));
    // What comes after is volatile again.
    moved.write_all_at(&[3], 0).unwrap();
    fs.create(path("b")).unwrap();
    assert_eq!(trees(&fs), trees_of([&["x/y/a", "z/moved"], &["b", "x/y/a", "z/moved"]]));
    assert_eq!(outcomes(&fs, "z/moved").len(), 2);
}

#[test]
fn a_failed_sync_of_the_file_system_is_final_for_all_pages() {
    for error in [FaultKind::Eio, FaultKind::ShortThenError { bytes: 1 << 20 }] {
        let fs = MemoryFileSystem::new();
        let files = [synced(&fs, "a", &[1; 4096]), synced(&fs, "b", &[1; 4096])];
        for file in &files {
            file.write_all_at(&[2; 4096], 0).unwrap();
        }
        fs.create(path("new")).unwrap();
        fs.fail(fault(Operation::SyncFs, 1, error));
        let failed = fs.sync_fs(path("/")).unwrap_err();
        assert_eq!(failed.to_string(), "syncfs /: Input/output error (os error 5)");
        assert!(names(&fs).contains(&vec!["a".to_owned(), "b".to_owned()]), "the new name is volatile");
        // Whoever syncs a file that lost something is told, once; neither kind of sync has anything left to write.
        let told = files[0].sync_data().unwrap_err();
        assert_eq!(told.to_string(), "fdatasync a: Input/output error (os error 5)");
        files[0].sync_data().unwrap();
        fs.sync_fs(path("/")).unwrap();
        for name in ["a", "b"] {
            assert_eq!(fs.dump(path(name)).unwrap(), [2; 4096], "the cache has it");
            let outcomes = outcomes(&fs, name);
            assert!(outcomes.contains(&Some(vec![1; 4096])) && outcomes.contains(&Some(vec![2; 4096])), "{name}");
        }
        files[1].write_all_at(&[2], 17).unwrap();
        fs.sync_fs(path("/")).unwrap();
        assert_eq!(outcomes(&fs, "b"), BTreeSet::from([Some(vec![2; 4096])]));
        assert!(outcomes(&fs, "a").contains(&Some(vec![1; 4096])), "a failed sync_data or sync_fs: no difference");
    }
}

#[test]
fn a_sync_of_the_file_system_that_finds_no_directory_does_nothing() {
    let fs = MemoryFileSystem::new();
    fs.create(path("a")).unwrap();
    assert_eq!(kind(fs.sync_fs(path("missing"))), ErrorKind::NotFound);
    assert!(outcomes(&fs, "a").contains(&None));
    assert_eq!(fs.counters().fs_syncs, 0);
    let after = fs.crash(0);
    assert!(fs.sync_fs(path("/")).is_err());
    after.sync_fs(path("/")).unwrap();
}

#[test]
fn a_removed_directory_may_come_back_whole_or_in_part() {
    let fs = with_directory();
    fs.remove_dir_all(path("d")).unwrap();
    assert_eq!(trees(&fs), trees_of([&[], &["d/a", "d/b"], &["d/b"]]));
    let empty = |fs: MemoryFileSystem| fs.list(path("d")).is_ok_and(|names| names.is_empty());
    assert!(SEEDS.into_iter().any(|seed| empty(fs.snapshot().crash(seed))), "or empty");
    fs.sync_dir(path("/")).unwrap();
    assert!(SEEDS.into_iter().all(|seed| fs.snapshot().crash(seed).list_dirs(path("/")).unwrap().is_empty()));
}

#[test]
fn a_directory_made_again_is_another_one() {
    let fs = with_directory();
    fs.create(path("d/c")).unwrap();
    fs.remove_dir_all(path("d")).unwrap();
    fs.create_dir_all(path("d")).unwrap();
    fs.create(path("d/new")).unwrap();
    let (gone, old) =
        (trees_of([&[], &["d/new"]]), trees_of([&["d/a", "d/b"], &["d/a", "d/b", "d/c"], &["d/b", "d/c"]]));
    assert!(trees(&fs).is_superset(&gone) && trees(&fs).is_superset(&old));
    let mixed = |tree: &Vec<String>| tree.len() > 1 && tree.contains(&"d/new".to_owned());
    assert!(!trees(&fs).iter().any(mixed), "{:?}", trees(&fs));
    // The new one's sync does not decide which of the two there is, and is no sync of the old one.
    fs.sync_dir(path("d")).unwrap();
    assert!(trees(&fs).is_superset(&old) && trees(&fs).contains(&vec!["d/new".to_owned()]));
    assert!(!trees(&fs).iter().any(mixed), "{:?}", trees(&fs));
    fs.sync_dir(path("/")).unwrap();
    assert_eq!(trees(&fs), trees_of([&["d/new"]]));
}

#[test]
fn a_file_that_moved_out_of_a_removed_directory_stays_if_synced() {
    let fs = with_directory();
    fs.rename(path("d/a"), path("a")).unwrap();
    fs.remove_dir_all(path("d")).unwrap();
    assert_eq!(trees(&fs), trees_of([&["a"], &["a", "d/b"], &["d/a", "d/b"]]));
    fs.sync_dir(path("/")).unwrap();
    assert_eq!(trees(&fs), trees_of([&["a"]]));
}

#[test]
fn the_root_stays() {
    let fs = with_directory();
    assert_eq!(code(fs.remove_dir_all(path("/"))), Some(16));
    assert_eq!(fs.files(), ["d/a", "d/b"].map(path));
}

#[test]
fn a_removed_directory_gives_its_space_back_and_is_forgotten() {
    let fs = MemoryFileSystem::new();
    fs.set_capacity(10_000);
    let mut held = None;
    for round in 0..100 {
        fs.create_dir_all(path("d/below")).unwrap();
        let file = fs.create(path("d/below/a")).unwrap();
        file.allocate(4000).unwrap();
        // In every other round the directory was durable, in every third what is in it as well.
        if round % 2 == 0 {
            fs.sync_dir(path("/")).unwrap();
        }
        if round % 3 == 0 {
            fs.sync_dir(path("d")).unwrap();
            fs.sync_dir(path("d/below")).unwrap();
        }
        held = Some(file);
        fs.remove_dir_all(path("d")).unwrap();
        assert_eq!(fs.available_bytes(path("/")).unwrap(), 6000, "a handle is open");
        fs.sync_dir(path("/")).unwrap();
    }
    assert_eq!(fs.state.lock().inodes.len(), 1);
    drop(held);
    assert_eq!(fs.available_bytes(path("/")).unwrap(), 10_000);
    assert_eq!(fs.state.lock().inodes.len(), 0);
}

/// Random calls: a power loss leaves no file that was never there under its name with its bytes, and none after a
/// `sync_fs` makes a difference.
#[test]
fn random_trees_are_found_as_they_were_synced() {
    for seed in 0..60 {
        let (fs, mut rng) = (MemoryFileSystem::new(), StdRng::seed_from_u64(seed));
        let mut seen = BTreeSet::new();
        for step in 0..60_u8 {
            let dir = path(["x", "y", "x/z"][rng.random_range(0..3)]);
            let (file, other) = (dir.join("a"), path(["x/b", "y/b"][rng.random_range(0..2)]));
            // Most fail now and then, for want of a directory or a file.
            let _ = match rng.random_range(0..8) {
                0 | 1 => fs.create_dir_all(dir),
                2 | 3 => {
                    fs.create(&file).and_then(|file| file.write_all_at(&[step], 0).and_then(|()| file.sync_data()))
                }
                4 => fs.rename(&file, other),
                5 => fs.remove_dir_all(dir),
                6 => fs.sync_dir(dir),
                _ => fs.sync_dir(path("/")),
            };
            seen.extend(files(&fs));
            assert!(
                files(&fs.snapshot().crash(seed << 8 | u64::from(step))).is_subset(&seen),
                "seed {seed} step {step}"
            );
        }
        fs.sync_fs(path("/")).unwrap();
        assert!((0..20).all(|power| files(&fs.snapshot().crash(power)) == files(&fs)), "seed {seed}");
    }
}

fn files(fs: &MemoryFileSystem) -> BTreeSet<(PathBuf, Vec<u8>)> {
    fs.files().into_iter().map(|path| (path.clone(), fs.dump(&path).unwrap())).collect()
}
