use std::path::PathBuf;

use uuid::Uuid;

use super::*;
use crate::flush::kit::{Kit, on_demand};
use crate::flush::{Context, Options};
use crate::lake::Commit;

const LONG: Duration = Duration::from_secs(30);

/// Removes as soon as it may.
fn at_once() -> Options {
    Options { orphan_age: Duration::ZERO, ..on_demand() }
}

/// A sweep of a new process, with what earlier ones have left.
async fn taken_up(kit: &Kit) -> Arc<Context> {
    let context = kit.context(at_once());
    context.sweep.take_up().await.expect("should read the journal");
    context
}

async fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "it did not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Uploads a table's sealed generations as a process that is then killed: nobody commits them.
async fn upload(kit: &Kit, context: &Context, table: TableId) -> Vec<lake::DataFiles> {
    let mut uploaded = Vec::new();
    for sealed in kit.store.view(table).generations.iter().filter_map(|view| {
        let seal = view.current_seal()?;
        Some(Sealed { generation: Arc::clone(view.generation()), seal })
    }) {
        uploaded.push(kit.upload(context, &sealed).await.expect("should upload"));
    }
    uploaded
}

/// Commits files as the process did whose answer was lost.
async fn commit(kit: &Kit, sealed: &Sealed, files: &lake::DataFiles) {
    let (table, seal) = (sealed.generation.table, sealed.seal);
    let known = kit.registry.by_id(table).expect("should be known");
    let commit = Commit {
        node: kit.store.node(),
        incarnation: seal.incarnation,
        first_sequence: seal.sequence,
        sequence: seal.sequence,
        spec: &known.spec,
        adds: &files.adds,
    };
    kit.lake.table(table, &known.spec.name).commit(commit).await.expect("should commit");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_upload_and_commit_leaves_nothing_behind_once_the_rows_are_committed() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    for hour in 0..3 {
        kit.append(table, hour, hour * 10..hour * 10 + 10).await;
    }
    kit.seal(table).await;
    upload(&kit, &kit.context(on_demand()), table).await;
    assert_eq!((kit.data_files(table).len(), kit.journal.uploads.lock().len()), (3, 3));
    // A killed process also leaves files that never got their names.
    let staged = PathBuf::from(format!("{}#4711", kit.data_files(table)[0].display()));
    std::fs::write(&staged, "half").expect("should write");

    let kit = kit.restart();
    let (flusher, _heard) = kit.flusher(at_once());
    flusher.flush(&[table], LONG).await.expect("should flush");
    until(|| kit.journal.uploads.lock().is_empty()).await;
    assert_eq!(kit.numbers(table).await, (0..30).collect::<Vec<_>>());
    let left = kit.data_files(table);
    assert_eq!((left.len(), kit.live_files(table).await), (3, 3), "{left:?}");
    assert_eq!(flusher.orphans(), Figures { open: 0, removed: 3 });
}

/// DL-16, DU-2: what landed stays, whatever its writer was told.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_landed_keeps_its_files_whoever_did_not_hear_of_it() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    kit.append(table, 0, 0..10).await;
    let sealed = kit.seal(table).await;
    let context = kit.context(on_demand());
    // Two attempts, of which the second one lands.
    upload(&kit, &context, table).await;
    let files = upload(&kit, &context, table).await.remove(0);
    commit(&kit, &sealed[0], &files).await;

    let kit = kit.restart();
    let (flusher, _heard) = kit.flusher(at_once());
    flusher.flush(&[table], LONG).await.expect("should flush");
    until(|| kit.journal.uploads.lock().is_empty()).await;
    assert_eq!(kit.numbers(table).await, (0..10).collect::<Vec<_>>());
    assert_eq!(kit.data_files(table).len(), 1);
    assert!(kit.data_files(table)[0].ends_with(&files.adds[0].path));
}

/// DL-17: between upload and commit a file is nobody's orphan, however old it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_still_be_committed_stays() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    kit.append(table, 0, 0..10).await;
    kit.append(table, 1, 10..20).await;
    let sealed = kit.seal(table).await;
    let files = upload(&kit, &kit.context(on_demand()), table).await;
    let context = taken_up(&kit).await;
    // The table has no log yet; then it has one that does not reach the second generation.
    context.sweep.round(&kit.lake).await;
    commit(&kit, &sealed[0], &files[0]).await;
    context.sweep.state.lock().waits.clear();
    context.sweep.round(&kit.lake).await;
    assert_eq!(kit.data_files(table).len(), 2);
    let left: Vec<u64> = kit.journal.uploads.lock().iter().map(|u| u.sequence).collect();
    assert_eq!(left, [2], "the first one is in the table, and decided");
    commit(&kit, &sealed[1], &files[1]).await;
    assert_eq!(kit.numbers(table).await, (0..20).collect::<Vec<_>>());
}

/// Another writer's compaction has removed it from the newest version: older ones still refer to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_only_an_older_version_refers_to_stays() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    kit.append(table, 0, 0..10).await;
    let sealed = kit.seal(table).await;
    let files = upload(&kit, &kit.context(on_demand()), table).await.remove(0);
    commit(&kit, &sealed[0], &files).await;
    let removed = serde_json::json!({ "remove": {
        "path": files.adds[0].path, "dataChange": false, "deletionTimestamp": wall_clock() / 1_000,
        "extendedFileMetadata": true, "partitionValues": { "date": "1970-01-01" }, "size": files.adds[0].size,
    }});
    let entry = kit.log_dir(table).join("00000000000000000002.json");
    std::fs::write(entry, removed.to_string()).expect("should write");
    assert_eq!(kit.live_files(table).await, 0);

    let kit = kit.restart();
    let context = taken_up(&kit).await;
    context.sweep.round(&kit.lake).await;
    assert!(kit.journal.uploads.lock().is_empty(), "it is decided");
    assert_eq!(kit.data_files(table).len(), 1);
}

/// The files of an attempt that failed behind its upload go after the one that succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attempts_files_go_after_the_retry() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    kit.append(table, 0, 0..10).await;
    let sealed = kit.seal(table).await;
    let context = kit.context(at_once());
    upload(&kit, &context, table).await;
    let files = upload(&kit, &context, table).await.remove(0);
    context.sweep.round(&kit.lake).await;
    assert_eq!(kit.data_files(table).len(), 2);
    commit(&kit, &sealed[0], &files).await;
    context.sweep.landed(table, &files.adds);
    context.sweep.covered(table, sealed[0].seal.incarnation, 1);
    context.sweep.round(&kit.lake).await;
    assert_eq!(kit.data_files(table).len(), 1);
    assert_eq!(kit.numbers(table).await, (0..10).collect::<Vec<_>>());
    assert!(kit.journal.uploads.lock().is_empty());
    assert_eq!(context.sweep.figures(), Figures { open: 0, removed: 1 });
}

/// In the steady state nothing is read: an entry ends with its commit.
#[tokio::test(flavor = "multi_thread")]
async fn entries_end_with_their_commits_and_an_orderly_stop_leaves_none() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    let (flusher, _heard) = kit.flusher(on_demand());
    for round in 0..5_i64 {
        kit.append(table, round, round * 10..round * 10 + 10).await;
        flusher.flush(&[table], LONG).await.expect("should flush");
    }
    flusher.stop().await;
    assert!(kit.journal.uploads.lock().is_empty());
    assert_eq!(flusher.orphans(), Figures::default());
    assert_eq!(kit.data_files(table).len(), 5);
}

/// The journal's disk is full. To flush is what makes room.
#[tokio::test(flavor = "multi_thread")]
async fn uploads_go_on_where_they_cannot_be_written_down_and_are_swept_all_the_same() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    kit.append(table, 0, 0..10).await;
    let sealed = kit.seal(table).await;
    kit.journal.broken.store(true, Ordering::SeqCst);
    let context = kit.context(at_once());
    upload(&kit, &context, table).await;
    let files = upload(&kit, &context, table).await.remove(0);
    assert!(kit.journal.uploads.lock().is_empty());
    commit(&kit, &sealed[0], &files).await;
    context.sweep.landed(table, &files.adds);
    context.sweep.covered(table, sealed[0].seal.incarnation, 1);
    context.sweep.round(&kit.lake).await;
    assert_eq!((kit.data_files(table).len(), context.sweep.figures()), (1, Figures { open: 0, removed: 1 }));
    assert_eq!(kit.numbers(table).await, (0..10).collect::<Vec<_>>());
}

fn open(path: &str, began: i64, job: Weak<()>) -> Open {
    let upload = Upload {
        table: TableId(Uuid::nil()),
        name: "cpu".parse().expect("should be a name"),
        writer: NodeId(Uuid::nil()),
        incarnation: Incarnation(1),
        sequence: 1,
        path: path.to_owned(),
        began,
    };
    Open { upload, job, landed: false }
}

#[test]
fn only_what_is_old_and_held_by_no_job_is_looked_at() {
    let job = Arc::new(());
    let entries = vec![
        open("free", 0, Weak::new()),
        open("held", 0, Arc::downgrade(&job)),
        open("young", 60_000_001, Weak::new()),
    ];
    let mut state = State { open: HashMap::from([(TableId(Uuid::nil()), entries)]), ..State::default() };
    let (age, now) = (Duration::from_secs(60), Instant::now());
    let due = |state: &State, wall, now| -> Vec<String> {
        state.due(wall, age, now).into_iter().flat_map(|(_, uploads)| uploads).map(|u| u.path).collect()
    };
    assert_eq!(due(&state, 60_000_000, now), ["free"]);
    // A clock that was set back makes nothing old.
    assert!(due(&state, i64::MIN, now).is_empty());
    drop(job);
    assert_eq!(due(&state, i64::MAX, now), ["free", "held", "young"]);

    let long = Duration::from_secs(600);
    state.put_off(TableId(Uuid::nil()), long, now);
    assert!(due(&state, i64::MAX, now).is_empty());
    let mut lengths = Vec::new();
    for _ in 0..12 {
        let wait = state.waits[&TableId(Uuid::nil())];
        lengths.push(wait.length);
        assert_eq!(due(&state, i64::MAX, wait.until).len(), 3);
        state.put_off(TableId(Uuid::nil()), long, wait.until);
    }
    assert_eq!((lengths[0], lengths[1], lengths[11]), (FIRST_WAIT, FIRST_WAIT * 2, MAX_WAIT));

    state.begin_anew(TableId(Uuid::nil()), long, now);
    assert_eq!(state.waits[&TableId(Uuid::nil())].length, FIRST_WAIT);

    // Where files need not be old, nobody waits for long.
    let mut state = State::default();
    state.put_off(TableId(Uuid::nil()), Duration::ZERO, now);
    assert_eq!(state.waits[&TableId(Uuid::nil())].length, MIN_FIRST_WAIT);
}
