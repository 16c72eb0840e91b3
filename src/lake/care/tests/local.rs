//! On the local file system: the readers of others, and what is durable before anything goes.

use std::fs::File;
use std::io;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::rig::{at_rest, some_file};
use crate::lake::care::Care;
use crate::lake::durable::Barrier;
use crate::lake::patience::Patience;
use crate::lake::stores::Stores;
use crate::lake::tests::support::*;
use crate::lake::{Lake, LakeTable};

/// Makes all log files of lower versions a hundred days old.
fn age(log: &FilePath, below: u64) {
    let old = SystemTime::now() - Duration::from_secs(100 * 86_400);
    for entry in std::fs::read_dir(log).expect("should list") {
        let path = entry.expect("should list").path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if crate::lake::care::law::role_of(&name).is_some_and(|(_, version)| version < below) {
            let file = File::options().append(true).open(&path).expect("should open");
            file.set_modified(old).expect("should set the time");
        }
    }
}

fn entries(log: &FilePath) -> usize {
    let names = std::fs::read_dir(log).expect("should list").map(|entry| entry.expect("should list").file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".json")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_rs_reads_a_table_whose_log_was_cleaned() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let lake = local(dir.path()).with_care(Care::new(10, true));
    let table = lake.table(TABLE, &name());
    let log = dir.path().join("lake/metrics/cpu/_delta_log");
    for sequence in 1..=25 {
        ten_rows(&table, sequence).await.expect("should commit");
        at_rest(&table).await;
        // Not the newest: what was seen of it vouches for the log.
        age(&log, sequence.min(15));
    }
    let care = table.log_care();
    assert_eq!((care.checkpoint, care.last_error), (Some(19), None));
    assert_eq!(care.removed, 9, "entries 0 to 8");
    assert!(log.join("_last_checkpoint").exists());
    assert_eq!(rows_by_delta_rs(table.location()).await, 250);
    let next = local(dir.path()).table(TABLE, &name());
    assert_eq!(next.resolve(&[NOW], NODE).await.expect("should resolve"), [Some(25)]);
}

/// Syncs of checkpoint files that are in place fail while the switch is on; those of files that are being written do not.
#[derive(Debug, Clone)]
struct LosesCheckpoints(Arc<AtomicBool>);

impl Barrier for LosesCheckpoints {
    fn file(&self, _file: &File, path: &FilePath) -> io::Result<()> {
        let checkpoint = path.to_string_lossy().ends_with(".checkpoint.parquet") && path.exists();
        if checkpoint && self.0.load(Ordering::SeqCst) { Err(io::Error::other("i/o error")) } else { Ok(()) }
    }

    fn directory(&self, _directory: &File, _path: &FilePath) -> io::Result<()> {
        Ok(())
    }
}

async fn commit_file(table: &LakeTable, sequence: u64) {
    let add = some_file();
    let file = table.location().to_file_path().expect("should be a path").join(&add.path);
    std::fs::create_dir_all(file.parent().expect("should have a parent")).expect("should make the directory");
    std::fs::write(file, "not read").expect("should write");
    commit_as(table, NOW, sequence..=sequence, &[add]).await.expect("should commit");
    at_rest(table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_before_the_checkpoint_is_durable() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let switch = Arc::new(AtomicBool::new(false));
    let stores =
        Stores::local(dir.path(), LosesCheckpoints(Arc::clone(&switch)), CALL_TIMEOUT * 50).expect("should open");
    let patience = Patience { tries: 2, first_wait: Duration::from_millis(1), whole: Duration::from_secs(9) };
    let lake = Lake::over(stores, patience).with_care(Care::new(10, true));
    let table = lake.table(TABLE, &name());
    let log = dir.path().join("metrics/cpu/_delta_log");
    // The checkpoint at 9 is written before anything is old; it is the one that the clean-up behind 19 relies on.
    for sequence in 1..=18 {
        commit_file(&table, sequence).await;
    }
    assert_eq!(table.log_care().checkpoint, Some(9));
    age(&log, 15);
    switch.store(true, Ordering::SeqCst);
    for sequence in 19..=21 {
        commit_file(&table, sequence).await;
    }
    let care = table.log_care();
    assert!(care.last_error.as_deref().is_some_and(|error| error.contains("syncing")), "{care:?}");
    assert_eq!((care.checkpoint, care.removed, entries(&log)), (Some(19), 0, 22));

    switch.store(false, Ordering::SeqCst);
    for sequence in 22..=31 {
        commit_file(&table, sequence).await;
    }
    assert_eq!(table.log_care().last_error, None);
    assert!(table.log_care().removed >= 9 && entries(&log) <= 32 - 9);
}
