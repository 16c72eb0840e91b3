//! The real file system with a sync that takes longer.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use penstock_store::fs::{File, FileSystem, Lock, OpenMode, RealFileSystem};

/// Every `sync_data` takes this much longer.
#[derive(Debug)]
pub struct SlowSync(pub Duration);

#[derive(Debug)]
struct SlowFile(Arc<dyn File>, Duration);

impl SlowSync {
    fn slow(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(SlowFile(file, self.0))
    }
}

impl FileSystem for SlowSync {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        RealFileSystem.create_dir_all(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFileSystem.list(dir)
    }
    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFileSystem.list_dirs(dir)
    }
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        RealFileSystem.remove_dir_all(dir)
    }
    fn sync_fs(&self, dir: &Path) -> io::Result<()> {
        RealFileSystem.sync_fs(dir)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        RealFileSystem.create(path).map(|file| self.slow(file))
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        RealFileSystem.open(path, mode).map(|file| self.slow(file))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFileSystem.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealFileSystem.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        RealFileSystem.lock(path)
    }
    fn available_bytes(&self, dir: &Path) -> io::Result<u64> {
        RealFileSystem.available_bytes(dir)
    }
}

impl File for SlowFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.0.write_vectored_at(bufs, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        std::thread::sleep(self.1);
        self.0.sync_data()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }
}
