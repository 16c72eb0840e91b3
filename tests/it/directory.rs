//! The data directory: one server at a time; damage to what was acknowledged is named and refused, and changes nothing; a tail that
//! a crash cut is let go, and nothing else with it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::kit::{self, Launch, NO_FLUSH, Server, delta};

/// Groups begin on pages of this size.
const PAGE: usize = 4096;
/// The first bytes of a group.
const GROUP: &[u8] = b"PNSG";

fn launch(dir: &Path) -> Launch {
    Launch::on(dir).set_all(&NO_FLUSH).set("store.shards", "1").set("store.segment", "1MiB")
}

/// Posts one after another, each a group of its own.
async fn posts(server: &Server, first: i64, posts: i64) {
    for id in first..first + posts {
        server.append("kept", [json!({ "ts": "2026-04-01T10:00:00Z", "id": id, "pad": "x".repeat(5_000) })]).await;
    }
}

/// The newest segment of the only shard.
fn segment(dir: &Path) -> PathBuf {
    let segments = kit::files(&dir.join("wal")).into_iter().map(|(path, _)| path);
    segments.filter(|path| path.extension().is_some_and(|e| e == "seg")).max().expect("should have a segment")
}

/// Where groups with rows begin in a segment, and where marks stand. Nothing in it was used before.
fn groups(segment: &Path) -> (Vec<usize>, Vec<usize>) {
    let bytes = std::fs::read(segment).expect("should read the segment");
    let starts = (PAGE..bytes.len()).step_by(PAGE).filter(|at| bytes[*at..].starts_with(GROUP));
    starts.partition(|at| bytes[at + 32] == 1)
}

/// Flips a bit.
fn damage(file: &Path, offset: usize) {
    let file = OpenOptions::new().read(true).write(true).open(file).expect("should open the file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset as u64).expect("should read the byte");
    file.write_all_at(&[byte[0] ^ 0x10], offset as u64).expect("should write the byte");
}

fn cut(file: &Path, len: usize) {
    File::options().write(true).open(file).and_then(|f| f.set_len(len as u64)).expect("should cut the file");
}

/// What must not change: the log, the lanes, and what belongs to them.
fn state(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let of_log = |path: &Path| {
        path.starts_with(dir.join("wal")) || path.starts_with(dir.join("lanes")) || path.ends_with("MANIFEST")
    };
    kit::files(dir).into_iter().filter(|(path, _)| of_log(path)).collect()
}

/// Starts on a directory that has to be refused as it is; gives what was said.
async fn refused(launch: &Launch, dir: &Path) -> String {
    let before = state(dir);
    let said = launch.refused().await;
    assert!(state(dir) == before, "a refused start changed the log");
    assert!(launch.refused().await.contains("damaged") || !said.contains("damaged"), "and it stays refused");
    assert!(state(dir) == before, "a refused start changed the log");
    assert!(said.contains("help: "), "should say what to do: {said}");
    said
}

/// The offset that a refusal names.
fn named_offset(said: &str) -> usize {
    let digits = said.split("at byte ").nth(1).unwrap_or_else(|| panic!("names no byte: {said}"));
    digits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("should be a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_a_directory_is_refused_and_the_first_one_unaffected() {
    let dir = kit::directory();
    let first = launch(dir.path()).start().await;
    posts(&first, 0, 3).await;
    let said = launch(dir.path()).refused().await;
    assert!(said.contains(&dir.path().display().to_string()) && said.contains("in use"), "{said}");
    assert!(said.contains(&first.process.id().to_string()), "should name the holder: {said}");
    assert!(said.contains("help: ") && said.contains("--data-dir"), "{said}");
    posts(&first, 3, 3).await;
    assert_eq!(first.count("kept").await, 6);
    first.stop().await;
    // The lock is not the file: what is left of it holds nobody up.
    let next = launch(dir.path()).start().await;
    assert_eq!(next.count("kept").await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_in_the_middle_of_the_log_is_named_and_refused() {
    let dir = kit::directory();
    let server = launch(dir.path()).start().await;
    posts(&server, 0, 8).await;
    server.kill();
    let segment = segment(dir.path());
    let whole = std::fs::read(&segment).expect("should read the segment");
    let (groups, _) = groups(&segment);
    assert!(groups.len() >= 8, "{groups:?}");
    let at = groups[groups.len() / 2];
    // In the group's header, in the frame's header, in the directory, in the rows.
    for offset in [at + 5, at + 20, at + 64 + 3, at + 64 + 60, at + 3_000] {
        damage(&segment, offset);
        let said = refused(&launch(dir.path()), dir.path()).await;
        assert!(said.contains(&segment.display().to_string()), "should name the file: {said}");
        let named = named_offset(&said);
        assert!((at..at + 2 * PAGE).contains(&named), "byte {offset} of the group at {at}, named is {named}: {said}");
        assert!(said.contains("acknowledged"), "{said}");
        std::fs::write(&segment, &whole).expect("should restore the segment");
    }
    let server = launch(dir.path()).start().await;
    assert_eq!(server.count("kept").await, 8, "restored, it starts with everything");
    posts(&server, 8, 1).await;
    server.flush().await;
    assert_eq!(server.count("kept").await, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_below_a_known_durable_point_is_refused_and_never_cut() {
    let dir = kit::directory();
    let server = launch(dir.path()).start().await;
    posts(&server, 0, 4).await;
    let log = segment(dir.path());
    let last = kit::until("the mark behind the last group", async || {
        let (groups, marks) = groups(&log);
        let last = *groups.last()?;
        marks.iter().any(|mark| *mark > last).then_some(last)
    })
    .await;
    server.kill();
    let whole = std::fs::read(&log).expect("should read the segment");
    for offset in [last + 20, last + 64 + 3, last + 3_000] {
        damage(&log, offset);
        let said = refused(&launch(dir.path()), dir.path()).await;
        assert!(said.contains(&log.display().to_string()) && said.contains("acknowledged"), "{said}");
        std::fs::write(&log, &whole).expect("should restore the segment");
    }

    let missing = log.with_extension("away");
    std::fs::rename(&log, &missing).expect("should hide the segment");
    let said = refused(&launch(dir.path()), dir.path()).await;
    assert!(said.contains("wal"), "{said}");
    std::fs::rename(&missing, &log).expect("should bring the segment back");
    let server = launch(dir.path()).start().await;
    assert_eq!(server.count("kept").await, 4);
}

/// After an orderly end without a flush the rows are in lane files alone.
#[tokio::test(flavor = "multi_thread")]
async fn lane_files_that_are_damaged_or_gone_are_named_and_refused() {
    let dir = kit::directory();
    let lanes = dir.path().join("lanes");
    let stone = kit::block_namespace(&dir.path().join("lake"), "default");
    let server = launch(dir.path()).set("flush.shutdown_timeout", "100ms").start().await;
    posts(&server, 0, 6).await;
    server.stop().await;
    std::fs::remove_file(stone).expect("should repair the lake");
    let files = || kit::files(&lanes).into_iter();
    let (guard, bytes) = files().find(|(path, _)| path.ends_with("LANE")).expect("should have a guard");
    let (file, whole) = files().find(|(path, _)| *path != guard).expect("should have a lane file");
    for len in [0, 100, whole.len() / 2, whole.len() - 1] {
        cut(&file, len);
        let said = refused(&launch(dir.path()), dir.path()).await;
        assert!(said.contains(&file.display().to_string()), "{len} bytes left: {said}");
        std::fs::write(&file, &whole).expect("should restore the lane file");
    }
    // In the header, and in the index at the end.
    for offset in [3, 40, whole.len() - 5] {
        damage(&file, offset);
        let said = refused(&launch(dir.path()), dir.path()).await;
        assert!(said.contains(&file.display().to_string()) && said.contains("damaged"), "byte {offset}: {said}");
        std::fs::write(&file, &whole).expect("should restore the lane file");
    }
    for (gone, bytes) in [(&file, &whole), (&guard, &bytes)] {
        std::fs::remove_file(gone).expect("should remove the file");
        let said = refused(&launch(dir.path()), dir.path()).await;
        assert!(said.contains(&lanes.display().to_string()), "{said}");
        std::fs::write(gone, bytes).expect("should restore the file");
    }
    let server = launch(dir.path()).start().await;
    assert_eq!(server.count("kept").await, 6);
    server.flush().await;
    assert_eq!(server.count("kept").await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_that_was_cut_is_let_go_and_everything_before_it_kept() {
    let dir = kit::directory();
    let server = launch(dir.path()).start().await;
    posts(&server, 0, 6).await;
    server.kill();
    let mut kept = 6;
    // Each start goes on in a fresh segment, so each cut is at another place.
    for into in [1, 63, 70, 2_000, 4_100] {
        let log = segment(dir.path());
        let (groups, _) = groups(&log);
        let last = *groups.last().expect("should have groups");
        cut(&log, last + into);
        kept -= 1;
        let server = launch(dir.path()).start().await;
        let found = server.sql("select id from kept order by id").await;
        let ids: Vec<i64> = found.iter().filter_map(|row| row["id"].as_i64()).collect();
        assert_eq!(ids.len(), kept, "cut {into} bytes into the last group: {ids:?}");
        assert_eq!(ids[..5], [0, 1, 2, 3, 4], "cut {into} bytes into the last group");
        // Nothing is written behind the torn tail: what follows is whole after the next crash too.
        posts(&server, 100 + into as i64, 2).await;
        kept += 2;
        server.kill();
    }
    let server = launch(dir.path()).start().await;
    assert_eq!(server.count("kept").await, kept as u64);
    server.flush().await;
    let location = server.table("kept").await["location"].as_str().expect("should be a URL").to_owned();
    server.stop().await;
    assert_eq!(delta::read(&location).await.expect("should be a Delta table").rows(), kept as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_is_wrong_leaves_the_log_as_it_is() {
    let dir = kit::directory();
    let server = launch(dir.path()).start().await;
    posts(&server, 0, 3).await;
    server.kill();
    let before = state(dir.path());
    let file = dir.path().join("penstock.toml");
    std::fs::write(&file, "[flush]\nparalelism = 3\n").expect("should write the file");
    let cases = [
        (launch(dir.path()).set("flush.paralelism", "3"), "paralelism"),
        (launch(dir.path()).set("store.segment", "many"), "segment"),
        (launch(dir.path()).set("flush.max_age", "soon"), "max_age"),
        (launch(dir.path()).set("store.shards", "7"), "shards"),
        (launch(dir.path()).set("lake.url", "ftp://somewhere/else"), "ftp://somewhere/else"),
        (launch(dir.path()).option("--listen", "nowhere"), "nowhere"),
        (launch(dir.path()).option("--config", "/nowhere/penstock.toml"), "/nowhere/penstock.toml"),
        (launch(dir.path()).option("--config", &file.display().to_string()), "paralelism"),
        (launch(dir.path()).env("PENSTOCK_FLUSH__PARALELISM", "3"), "paralelism"),
    ];
    for (launch, word) in cases {
        let said = launch.refused().await;
        assert!(said.contains(word), "should speak of {word}: {said}");
        let after: Vec<_> = state(dir.path()).into_iter().filter(|(path, _)| path.extension().is_some()).collect();
        let segments = before.iter().filter(|(path, _)| path.extension().is_some());
        assert!(segments.clone().all(|old| after.contains(old)), "{word}: the log's segments changed");
    }
    let server = launch(dir.path()).start().await;
    assert_eq!(server.count("kept").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_a_clear_error() {
    let dirs = [kit::directory(), kit::directory()];
    let first = launch(dirs[0].path()).start().await;
    let said = launch(dirs[1].path()).option("--listen", first.address()).refused().await;
    assert!(said.contains(first.address()) && said.contains("--listen"), "{said}");
    assert_eq!(first.get("/healthz").await.status, 200);
}
