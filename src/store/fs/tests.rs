//! The conformance suite, run over both file systems, the two against each other, and the parts they share.

use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::io::Errno;

use super::vectored::{BUFFERS_PER_CALL, write_all};
use super::*;

/// Runs each function of the suite over both, in an empty directory.
macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        mod real {
            $(#[test] fn $name() {
                let dir = tempfile::tempdir().unwrap();
                super::$name(&super::RealFileSystem, dir.path());
            })*
        }
        mod memory {
            $(#[test] fn $name() {
                let fs = super::MemoryFileSystem::new();
                super::FileSystem::create_dir_all(&fs, "/data/0".as_ref()).unwrap();
                super::$name(&fs, "/data/0".as_ref());
            })*
        }
    };
}

conformance!(
    lists_files_sorted_and_no_directories,
    lists_directories_sorted_and_no_files,
    creates_only_what_is_missing,
    opens_only_what_is_there,
    creates_directories_any_number_of_times,
    reads_what_was_written,
    reads_holes_as_zeros_and_nothing_behind_the_end,
    writes_vectors_of_any_shape,
    refuses_to_write_to_a_file_opened_to_read,
    allocates_zeros_and_never_shrinks,
    truncates_and_extends,
    renames_over_an_existing_file,
    keeps_handles_of_removed_files,
    removes_directories_with_all_in_them,
    syncs_files_and_directories,
    syncs_the_whole_file_system,
    locks_once_at_a_time,
    reports_available_space,
    names_call_path_and_cause,
);

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.map(drop).expect_err("should fail").kind()
}

fn contents(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn read(fs: &dyn FileSystem, path: &Path) -> Vec<u8> {
    contents(&*fs.open(path, OpenMode::Read).unwrap())
}

fn write(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> Arc<dyn File> {
    let file = fs.create(path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn lists_files_sorted_and_no_directories(fs: &dyn FileSystem, dir: &Path) {
    assert_eq!(fs.list(dir).unwrap(), [""; 0]);
    for name in ["b", "a", "B", "a.1", "10", "9", "ä"] {
        write(fs, &dir.join(name), b"");
    }
    fs.create_dir_all(&dir.join("a-dir/below")).unwrap();
    write(fs, &dir.join("a-dir/file"), b"");
    assert_eq!(fs.list(dir).unwrap(), ["10", "9", "B", "a", "a.1", "b", "ä"]);
    assert_eq!(fs.list(&dir.join("a-dir/")).unwrap(), ["file"]);
    assert_eq!(kind(fs.list(&dir.join("missing"))), ErrorKind::NotFound);
    assert_eq!(kind(fs.list(&dir.join("a"))), ErrorKind::NotADirectory);
}

fn lists_directories_sorted_and_no_files(fs: &dyn FileSystem, dir: &Path) {
    assert_eq!(fs.list_dirs(dir).unwrap(), [""; 0]);
    for name in ["b", "a/below", "B", "10", "9", "ä"] {
        fs.create_dir_all(&dir.join(name)).unwrap();
    }
    write(fs, &dir.join("file"), b"");
    assert_eq!(fs.list_dirs(dir).unwrap(), ["10", "9", "B", "a", "b", "ä"]);
    assert_eq!(fs.list_dirs(&dir.join("a/")).unwrap(), ["below"]);
    assert_eq!(kind(fs.list_dirs(&dir.join("missing"))), ErrorKind::NotFound);
    assert_eq!(kind(fs.list_dirs(&dir.join("file"))), ErrorKind::NotADirectory);
}

fn creates_only_what_is_missing(fs: &dyn FileSystem, dir: &Path) {
    let file = write(fs, &dir.join("a"), b"kept");
    assert_eq!(kind(fs.create(&dir.join("a"))), ErrorKind::AlreadyExists);
    assert_eq!(kind(fs.create(dir)), ErrorKind::AlreadyExists);
    assert_eq!(kind(fs.create(&dir.join("missing/a"))), ErrorKind::NotFound);
    assert_eq!(kind(fs.create(&dir.join("a/a"))), ErrorKind::NotADirectory);
    assert_eq!(contents(&*file), b"kept");
}

fn opens_only_what_is_there(fs: &dyn FileSystem, dir: &Path) {
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        assert_eq!(kind(fs.open(&dir.join("a"), mode)), ErrorKind::NotFound);
    }
    assert_eq!(kind(fs.open(dir, OpenMode::ReadWrite)), ErrorKind::IsADirectory);
    write(fs, &dir.join("a"), b"one");
    fs.open(&dir.join("a"), OpenMode::ReadWrite).unwrap().write_all_at(b"two", 0).unwrap();
    assert_eq!(read(fs, &dir.join("a")), b"two");
}

fn creates_directories_any_number_of_times(fs: &dyn FileSystem, dir: &Path) {
    fs.create_dir_all(&dir.join("x/y/z")).unwrap();
    fs.create_dir_all(&dir.join("x/y/z")).unwrap();
    fs.create_dir_all(dir).unwrap();
    write(fs, &dir.join("x/y/z/file"), b"");
    assert!(fs.create_dir_all(&dir.join("x/y/z/file")).is_err());
    assert!(fs.create_dir_all(&dir.join("x/y/z/file/below")).is_err());
}

fn reads_what_was_written(fs: &dyn FileSystem, dir: &Path) {
    let file = write(fs, &dir.join("a"), &[1; 10_000]);
    file.write_all_at(&[2; 5000], 4000).unwrap();
    file.write_all_at(&[3; 10], 9_995).unwrap();
    file.write_all_at(&[], 50_000).unwrap();
    let expected = [vec![1; 4000], vec![2; 5000], vec![1; 995], vec![3; 10]].concat();
    assert_eq!(contents(&*file), expected);
    let mut part = [0; 2000];
    file.read_exact_at(&mut part, 3000).unwrap();
    assert_eq!(part[..], expected[3000..5000]);
}

fn reads_holes_as_zeros_and_nothing_behind_the_end(fs: &dyn FileSystem, dir: &Path) {
    let file = fs.create(&dir.join("a")).unwrap();
    file.write_all_at(&[1; 3], 9000).unwrap();
    assert_eq!(contents(&*file), [vec![0; 9000], vec![1; 3]].concat());
    assert_eq!(kind(file.read_exact_at(&mut [0; 4], 9000)), ErrorKind::UnexpectedEof);
    assert_eq!(kind(file.read_exact_at(&mut [0; 1], 20_000)), ErrorKind::UnexpectedEof);
    file.read_exact_at(&mut [], 9003).unwrap();
}

fn writes_vectors_of_any_shape(fs: &dyn FileSystem, dir: &Path) {
    let file = fs.create(&dir.join("a")).unwrap();
    file.write_vectored_at(&[], 0).unwrap();
    file.write_vectored_at(&[IoSlice::new(b""), IoSlice::new(b"")], 100).unwrap();
    assert_eq!(file.len().unwrap(), 0);
    let bytes: Vec<u8> = (0..3 * BUFFERS_PER_CALL + 5).map(|i| i as u8).collect();
    let mut bufs: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
    bufs.insert(7, IoSlice::new(b""));
    file.write_vectored_at(&bufs, 3).unwrap();
    assert_eq!(contents(&*file), [&[0; 3], &bytes[..]].concat());
}

fn refuses_to_write_to_a_file_opened_to_read(fs: &dyn FileSystem, dir: &Path) {
    write(fs, &dir.join("a"), b"kept");
    let file = fs.open(&dir.join("a"), OpenMode::Read).unwrap();
    assert_eq!(raw_os_error(&file.write_all_at(b"x", 0).unwrap_err()), Some(Errno::BADF.raw_os_error()));
    assert!(file.truncate(0).is_err() && file.allocate(100).is_err());
    file.sync_data().unwrap();
    assert_eq!(contents(&*file), b"kept");
}

fn allocates_zeros_and_never_shrinks(fs: &dyn FileSystem, dir: &Path) {
    let file = write(fs, &dir.join("a"), b"abc");
    file.allocate(0).unwrap();
    file.allocate(2).unwrap();
    assert_eq!(file.len().unwrap(), 3);
    file.allocate(6000).unwrap();
    assert_eq!(contents(&*file), [&b"abc"[..], &[0; 5997]].concat());
}

fn truncates_and_extends(fs: &dyn FileSystem, dir: &Path) {
    let file = write(fs, &dir.join("a"), &[1; 9000]);
    file.truncate(5000).unwrap();
    file.truncate(9000).unwrap();
    assert_eq!(contents(&*file), [vec![1; 5000], vec![0; 4000]].concat());
    file.truncate(0).unwrap();
    assert_eq!(contents(&*file), b"");
    file.truncate(4096).unwrap();
    assert_eq!(contents(&*file), [0; 4096]);
    assert_eq!(kind(file.truncate(u64::MAX)), ErrorKind::InvalidInput);
}

fn renames_over_an_existing_file(fs: &dyn FileSystem, dir: &Path) {
    let (a, b) = (dir.join("a"), dir.join("b"));
    let (first, second) = (write(fs, &a, b"first"), write(fs, &b, b"second"));
    fs.rename(&a, &a).unwrap();
    fs.rename(&a, &b).unwrap();
    first.write_all_at(b"F", 0).unwrap();
    assert_eq!(fs.list(dir).unwrap(), ["b"]);
    assert_eq!(read(fs, &b), b"First");
    assert_eq!(contents(&*second), b"second");
    fs.create_dir_all(&dir.join("dir")).unwrap();
    fs.rename(&b, &dir.join("dir/c")).unwrap();
    assert_eq!(read(fs, &dir.join("dir/c")), b"First");
    assert_eq!(kind(fs.rename(&b, &a)), ErrorKind::NotFound);
    assert_eq!(kind(fs.rename(&dir.join("dir/c"), &dir.join("missing/c"))), ErrorKind::NotFound);
}

fn keeps_handles_of_removed_files(fs: &dyn FileSystem, dir: &Path) {
    let path = dir.join("a");
    let old = write(fs, &path, b"old");
    fs.remove(&path).unwrap();
    assert_eq!(kind(fs.remove(&path)), ErrorKind::NotFound);
    write(fs, &path, b"new");
    old.write_all_at(b"O", 0).unwrap();
    old.sync_data().unwrap();
    fs.sync_dir(dir).unwrap();
    assert_eq!(contents(&*old), b"Old");
    assert_eq!(read(fs, &path), b"new");
}

fn removes_directories_with_all_in_them(fs: &dyn FileSystem, dir: &Path) {
    fs.create_dir_all(&dir.join("x/y/z")).unwrap();
    fs.create_dir_all(&dir.join("x/empty")).unwrap();
    write(fs, &dir.join("x/y/b"), b"");
    write(fs, &dir.join("kept"), b"kept");
    let held = write(fs, &dir.join("x/a"), b"old");
    fs.remove_dir_all(&dir.join("x/")).unwrap();
    for missing in ["x", "x", "x/y", "missing/x"] {
        fs.remove_dir_all(&dir.join(missing)).unwrap();
    }
    assert_eq!(kind(fs.list(&dir.join("x"))), ErrorKind::NotFound);
    assert_eq!((fs.list(dir).unwrap(), fs.list_dirs(dir).unwrap()), (vec!["kept".to_owned()], Vec::new()));
    assert_eq!(kind(fs.remove_dir_all(&dir.join("kept"))), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.remove_dir_all(&dir.join("kept/x"))), ErrorKind::NotADirectory);
    assert_eq!(read(fs, &dir.join("kept")), b"kept");
    // Another directory under the old name knows nothing of the old one's file.
    fs.create_dir_all(&dir.join("x")).unwrap();
    assert_eq!(fs.list(&dir.join("x")).unwrap(), [""; 0]);
    write(fs, &dir.join("x/a"), b"new");
    held.write_all_at(b"O", 0).unwrap();
    held.sync_data().unwrap();
    fs.sync_dir(dir).unwrap();
    assert_eq!((contents(&*held), read(fs, &dir.join("x/a"))), (b"Old".to_vec(), b"new".to_vec()));
}

fn syncs_files_and_directories(fs: &dyn FileSystem, dir: &Path) {
    let file = write(fs, &dir.join("a"), b"x");
    file.sync_data().unwrap();
    fs.sync_dir(dir).unwrap();
    fs.sync_dir(dir).unwrap();
    assert_eq!(kind(fs.sync_dir(&dir.join("missing"))), ErrorKind::NotFound);
}

fn syncs_the_whole_file_system(fs: &dyn FileSystem, dir: &Path) {
    write(fs, &dir.join("a"), b"x");
    fs.sync_fs(dir).unwrap();
    fs.sync_fs(dir).unwrap();
    assert_eq!(read(fs, &dir.join("a")), b"x");
    assert_eq!(kind(fs.sync_fs(&dir.join("missing"))), ErrorKind::NotFound);
}

fn locks_once_at_a_time(fs: &dyn FileSystem, dir: &Path) {
    let path = dir.join("LOCK");
    assert_eq!(lock_holder(fs, &path), None);
    let held = fs.lock(&path).unwrap().expect("should be free");
    let holder = lock_holder(fs, &path);
    assert!(holder == Some(std::process::id()) || holder == Some(1), "{holder:?}");
    assert!(fs.lock(&path).unwrap().is_none());
    assert!(fs.lock(&dir.join("OTHER")).unwrap().is_some());
    drop(held);
    assert!(fs.lock(&path).unwrap().is_some());
    assert_eq!(fs.list(dir).unwrap(), ["LOCK", "OTHER"]);
    assert_eq!(lock_holder(fs, &path), holder);
    assert_eq!(kind(fs.lock(&dir.join("missing/LOCK"))), ErrorKind::NotFound);
}

fn reports_available_space(fs: &dyn FileSystem, dir: &Path) {
    assert!(fs.available_bytes(dir).unwrap() > 0);
    assert_eq!(kind(fs.available_bytes(&dir.join("missing"))), ErrorKind::NotFound);
}

fn names_call_path_and_cause(fs: &dyn FileSystem, dir: &Path) {
    let path = dir.join("a");
    let error = fs.open(&path, OpenMode::Read).unwrap_err();
    let expected = format!("open {}: No such file or directory (os error 2)", path.display());
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.raw_os_error(), None);
    assert_eq!(raw_os_error(&error), Some(2));
    let error = fs.rename(&path, &dir.join("b")).unwrap_err();
    assert!(error.to_string().starts_with(&format!("rename to {}: from ", dir.join("b").display())), "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert_eq!(raw_os_error(&error), Some(2));
}

/// Random calls, the same on both: the same answers, kinds of errors, names and bytes.
#[test]
fn both_answer_alike() {
    for seed in 0..40 {
        let temp = tempfile::tempdir().unwrap();
        let (real, memory) = (RealFileSystem, MemoryFileSystem::new());
        memory.create_dir_all("/d".as_ref()).unwrap();
        let mut beds: [Bed; 2] = [Bed::new(&real, temp.path().to_owned()), Bed::new(&memory, PathBuf::from("/d"))];
        for step in 0..150 {
            let [left, right] = beds.each_mut().map(|bed| bed.step(&mut StdRng::seed_from_u64(seed << 32 | step)));
            assert_eq!(left, right, "seed {seed} step {step}");
        }
    }
}

struct Bed<'a> {
    fs: &'a dyn FileSystem,
    dir: PathBuf,
    handles: Vec<Arc<dyn File>>,
}

impl<'a> Bed<'a> {
    fn new(fs: &'a dyn FileSystem, dir: PathBuf) -> Self {
        fs.create_dir_all(&dir.join("x")).unwrap();
        Self { fs, dir, handles: Vec::new() }
    }

    fn keep(&mut self, file: Arc<dyn File>) -> Vec<u8> {
        self.handles.push(file);
        Vec::new()
    }

    fn step(&mut self, rng: &mut StdRng) -> Result<Vec<u8>, ErrorKind> {
        let mut path = || self.dir.join(["a", "b", "x/a", "x/b", "y/a"][rng.random_range(0..5)]);
        let (path, other) = (path(), path());
        let (offset, len) = (rng.random_range(0..20_000), rng.random_range(0..10_000));
        let dir = self.dir.join(["x", "y", "x/z"][rng.random_range(0..3)]);
        let call = rng.random_range(0..13);
        let empty = |()| Vec::new();
        let result = match (call, self.handles.len()) {
            (0, _) => self.fs.create(&path).map(|file| self.keep(file)),
            (1, _) => self.fs.open(&path, OpenMode::ReadWrite).map(|file| self.keep(file)),
            (2, _) => self.fs.rename(&path, &other).map(empty),
            (3, _) => self.fs.remove(&path).map(empty),
            (10, _) => self.fs.create_dir_all(&dir).map(empty),
            (11, _) => self.fs.remove_dir_all(&dir).map(empty),
            (12, _) => self.fs.list_dirs(&self.dir).map(|names| names.concat().into_bytes()),
            (_, 0) => self.fs.list(&self.dir.join("x")).map(|names| names.concat().into_bytes()),
            (call, handles) => {
                let at = rng.random_range(0..handles);
                let file = self.handles[at].clone();
                match call {
                    4 | 5 => file.write_all_at(&vec![rng.random(); len], offset).map(|()| contents(&*file)),
                    6 => file.truncate(offset).map(|()| contents(&*file)),
                    7 => file.allocate(offset).and_then(|()| file.sync_data()).map(|()| contents(&*file)),
                    8 => file.read_exact_at(&mut vec![0; len], offset).map(empty),
                    _ => Ok(self.handles.swap_remove(at).len().unwrap().to_be_bytes().to_vec()),
                }
            }
        };
        result.map_err(|error| error.kind())
    }
}

/// A device that takes at most `most` bytes a call, and is interrupted before every third one.
fn written_by(bufs: &[&[u8]], most: usize) -> Vec<u8> {
    let bufs: Vec<_> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
    let (mut device, mut calls) = (vec![0; 100], 0);
    write_all(&bufs, 10, |bufs, offset| {
        calls += 1;
        assert!(bufs.len() <= BUFFERS_PER_CALL && !bufs[0].is_empty());
        if calls % 3 == 0 {
            return Err(ErrorKind::Interrupted.into());
        }
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).take(most).collect();
        let offset = offset as usize;
        device.resize(device.len().max(offset + bytes.len()), 0);
        device[offset..offset + bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    })
    .unwrap();
    device
}

#[test]
fn short_and_interrupted_writes_are_continued() {
    let bufs: [&[u8]; 6] = [b"", b"one", b"", b"two, longer", b"3", b""];
    for most in 1..20 {
        assert_eq!(&written_by(&bufs, most)[9..26], b"\0onetwo, longer3\0", "{most} bytes a call");
    }
}

#[test]
fn many_buffers_go_in_chunks() {
    let bytes: Vec<u8> = (0..2 * BUFFERS_PER_CALL + 1).map(|i| i as u8).collect();
    let bufs: Vec<_> = bytes.chunks(1).collect();
    for most in [700, BUFFERS_PER_CALL, usize::MAX] {
        assert_eq!(&written_by(&bufs, most)[10..], bytes);
    }
}

#[test]
fn a_write_that_stands_still_or_fails_ends() {
    let write = |answer: fn() -> io::Result<usize>| write_all(&[IoSlice::new(b"x")], 0, |_, _| answer());
    assert_eq!(kind(write(|| Ok(0))), ErrorKind::WriteZero);
    assert_eq!(kind(write(|| Err(ErrorKind::StorageFull.into()))), ErrorKind::StorageFull);
}

#[test]
fn allocation_without_reservation_sets_the_length() {
    let file = tempfile::tempfile().unwrap();
    let allocate = |len, answer| super::real::allocate(&file, len, || answer).map(|()| file.metadata().unwrap().len());
    assert_eq!(allocate(100, Err(Errno::OPNOTSUPP)).unwrap(), 100);
    assert_eq!(allocate(50, Err(Errno::OPNOTSUPP)).unwrap(), 100);
    assert_eq!(kind(allocate(200, Err(Errno::NOSPC))), ErrorKind::StorageFull);
    assert_eq!(allocate(0, Err(Errno::INVAL)).unwrap(), 100);
}
