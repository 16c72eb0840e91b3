//! The order of names and syncs, seen from inside each sync.

use std::fs::{self, File};
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use parking_lot::Mutex;
use tempfile::TempDir;

use super::{Barrier, Disk, Durable, create_directory};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Synced {
    /// A file, and whether its name was there when it was synced.
    File(PathBuf, bool),
    Directory(PathBuf),
}

#[derive(Debug, Clone, Default)]
struct Recorder {
    synced: Arc<Mutex<Vec<Synced>>>,
    fail_file: Arc<Mutex<bool>>,
    fail_directory: Arc<Mutex<bool>>,
}

impl Recorder {
    fn take(&self) -> Vec<Synced> {
        std::mem::take(&mut self.synced.lock())
    }
}

fn io_error(fail: bool) -> io::Result<()> {
    if fail { Err(io::Error::other("i/o error")) } else { Ok(()) }
}

impl Barrier for Recorder {
    fn file(&self, _file: &File, path: &FilePath) -> io::Result<()> {
        self.synced.lock().push(Synced::File(path.to_owned(), path.exists()));
        io_error(*self.fail_file.lock())
    }

    fn directory(&self, _directory: &File, path: &FilePath) -> io::Result<()> {
        self.synced.lock().push(Synced::Directory(path.to_owned()));
        io_error(*self.fail_directory.lock())
    }
}

struct Setup {
    _dir: TempDir,
    root: PathBuf,
    recorder: Recorder,
    store: Durable,
}

fn setup() -> Setup {
    let dir = tempfile::tempdir().expect("should have a directory");
    let root = dir.path().canonicalize().expect("should exist");
    let recorder = Recorder::default();
    let store = Durable::new(Arc::new(Disk::new(root.clone(), recorder.clone())));
    Setup { _dir: dir, root, recorder, store }
}

impl Setup {
    fn at(&self, path: &str) -> Path {
        Path::from_absolute_path(self.root.join(path)).expect("should be a path")
    }

    async fn create(&self, path: &str) -> object_store::Result<()> {
        let options = PutOptions::from(PutMode::Create);
        self.store.put_opts(&self.at(path), "text".into(), options).await.map(drop)
    }

    fn directory(&self, path: &str) -> Synced {
        Synced::Directory(if path.is_empty() { self.root.clone() } else { self.root.join(path) })
    }

    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).expect("should list");
        entries.map(|entry| entry.expect("should list").file_name().to_string_lossy().into_owned()).collect()
    }
}

#[tokio::test]
async fn bytes_are_synced_before_their_name_and_the_way_to_it_behind_that() {
    let s = setup();
    s.create("a/b/one").await.expect("should put");
    let file = |name: &str, named| Synced::File(s.root.join(name), named);
    assert_eq!(
        s.recorder.take(),
        [file("a/b/one", false), s.directory(""), s.directory("a"), s.directory("a/b")],
        "all directories are new"
    );
    s.create("a/b/two").await.expect("should put");
    assert_eq!(s.recorder.take(), [file("a/b/two", false), s.directory("a/b")]);
    s.create("a/c/one").await.expect("should put");
    assert_eq!(s.recorder.take(), [file("a/c/one", false), s.directory("a"), s.directory("a/c")]);
    assert_eq!(s.names("a/b").len(), 2, "nothing staged is left");

    s.store.put(&s.at("a/b/one"), "new".into()).await.expect("should replace");
    assert_eq!(s.recorder.take(), [file("a/b/one", true), s.directory("a/b")]);
    let read = s.store.get(&s.at("a/b/one")).await.expect("should get").bytes().await.expect("should read");
    assert_eq!(read.as_ref(), b"new");
}

#[tokio::test]
async fn a_directory_that_was_removed_and_made_again_is_new() {
    let s = setup();
    s.create("a/b/one").await.expect("should put");
    // Kept aside, so that the inode is not given out again.
    fs::rename(s.root.join("a"), s.root.join("old")).expect("should move");
    s.recorder.take();
    s.create("a/b/one").await.expect("should put");
    assert_eq!(s.recorder.take()[1..], [s.directory(""), s.directory("a"), s.directory("a/b")]);
}

#[tokio::test]
async fn create_refuses_a_taken_name() {
    let s = setup();
    s.create("a/one").await.expect("should put");
    let error = s.create("a/one").await.expect_err("should be taken");
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error}");
    assert_eq!(s.names("a"), ["one"]);
}

#[tokio::test]
async fn an_upload_in_parts_is_synced_before_it_returns() {
    let s = setup();
    let mut upload = s.store.put_multipart(&s.at("a/big")).await.expect("should begin");
    upload.put_part("one".into()).await.expect("should put");
    upload.put_part("two".into()).await.expect("should put");
    assert_eq!(s.recorder.take(), []);
    upload.complete().await.expect("should complete");
    let file = Synced::File(s.root.join("a/big"), true);
    assert_eq!(s.recorder.take(), [file, s.directory(""), s.directory("a")]);
}

#[tokio::test]
async fn copies_and_renames_are_synced() {
    let s = setup();
    s.create("a/one").await.expect("should put");
    s.recorder.take();
    s.store.copy(&s.at("a/one"), &s.at("b/two")).await.expect("should copy");
    let file = |name: &str| Synced::File(s.root.join(name), true);
    assert_eq!(s.recorder.take(), [file("b/two"), s.directory(""), s.directory("b")]);
    s.store.rename(&s.at("a/one"), &s.at("b/three")).await.expect("should rename");
    assert_eq!(s.recorder.take(), [file("b/three"), s.directory("b")]);
}

#[tokio::test]
async fn bytes_that_cannot_be_synced_get_no_name_and_may_be_tried_again() {
    let s = setup();
    *s.recorder.fail_file.lock() = true;
    s.create("a/one").await.expect_err("should fail");
    assert_eq!(s.names("a"), Vec::<String>::new());
    *s.recorder.fail_file.lock() = false;
    s.create("a/one").await.expect("should put");
}

#[tokio::test]
async fn a_directory_that_cannot_be_synced_ends_all_writes() {
    let s = setup();
    *s.recorder.fail_directory.lock() = true;
    s.create("a/one").await.expect_err("should fail");
    *s.recorder.fail_directory.lock() = false;
    for error in [
        s.create("b/two").await.expect_err("should stay broken"),
        s.store.settle(&s.at("a")).await.expect_err("should stay broken"),
        s.store.put_multipart(&s.at("c")).await.map(drop).expect_err("should stay broken"),
    ] {
        assert!(error.to_string().contains("i/o error"), "{error}");
    }
    s.store.get(&s.at("a/one")).await.expect("reads should go on");
}

#[tokio::test]
async fn settling_syncs_what_another_process_left_visible() {
    let s = setup();
    fs::create_dir_all(s.root.join("t/_delta_log")).expect("should make");
    s.store.settle(&s.at("t/_delta_log")).await.expect("should settle");
    assert_eq!(s.recorder.take(), [s.directory(""), s.directory("t"), s.directory("t/_delta_log")]);
}

#[tokio::test]
async fn nothing_is_written_outside_the_lake() {
    let s = setup();
    let outside = tempfile::tempdir().expect("should have a directory");
    let path = Path::from_absolute_path(outside.path().join("x")).expect("should be a path");
    s.store.put(&path, "text".into()).await.expect_err("should be refused");
    assert!(!outside.path().join("x").exists());
}

#[test]
fn a_new_lake_directory_is_synced_with_all_that_is_new_above_it() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let recorder = Recorder::default();
    let lake = dir.path().join("data/lake");
    create_directory(&lake, &recorder).expect("should make");
    let directory = |path: PathBuf| Synced::Directory(path);
    assert!(recorder.take().starts_with(&[directory(dir.path().to_owned()), directory(dir.path().join("data"))]));
    create_directory(&lake, &recorder).expect("should be there");
    assert_eq!(recorder.take(), [directory(dir.path().join("data"))], "its own name in any case");
}
