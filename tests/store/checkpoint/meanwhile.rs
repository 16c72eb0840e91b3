//! The log goes on while a lane file is written: what is sealed, committed or appended then is right after a restart.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use penstock_store::fs::{FileSystem, MemoryFileSystem};
use penstock_store::{Options, Sealed, Store};

use super::{append_rows, expect_rows, lane_files, options, row, rows, try_open_with};
use crate::hook::{Gate, Hooked};
use crate::kit::{append, commit, define, payloads, seal, table};

/// Lane files are held up at this call while the gate is shut.
fn held_up(fs: &MemoryFileSystem, call: &'static str, name: &'static str) -> (Arc<dyn FileSystem>, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let door = Arc::clone(&gate);
    let hooked = Hooked::shared(fs, move |asked, path| {
        if asked == call && path.to_string_lossy().contains(name) {
            door.pass();
        }
        Ok(())
    });
    (hooked, gate)
}

/// Also after a panic: who waits at the door would be waited for.
struct OpensAtLast<'a>(&'a Gate);

impl Drop for OpensAtLast<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Where a checkpoint can be held up after its swap: before the file, in it, at the barrier, at the edit, at the recycling.
const PLACES: [(&str, &str); 6] = [
    ("create", ".lane"),
    ("write", ".lane"),
    ("sync_data", ".lane"),
    ("write", "edits-"),
    ("sync_data", "edits-"),
    ("rename", "spare-"),
];

/// Runs `meanwhile` in the middle of a checkpoint at each place, and expects what it answers, in the middle, after it, and after
/// restarts and power losses at both moments.
fn in_the_middle(before: impl Fn(&Store), meanwhile: impl Fn(&Store) -> Vec<Bytes>) {
    for (call, name) in PLACES {
        let what = format!("held up at {call} of {name}");
        let fs = MemoryFileSystem::new();
        let (hooked, gate) = held_up(&fs, call, name);
        // Kept segments become spare files by a rename.
        let options = Options { checkpoint_bytes: 1 << 20, ..options() };
        let store = try_open_with(&hooked, &options).expect("should open");
        define(&store, table(1));
        append_rows(&store, 0..25);
        before(&store);
        gate.shut();
        let expected = std::thread::scope(|scope| {
            let _opens = OpensAtLast(&gate);
            let checkpoint = scope.spawn(|| store.checkpoint());
            gate.await_visitor();
            let expected = meanwhile(&store);
            assert_eq!(payloads(&store, table(1)), expected, "{what}");
            expect_rows(&fs, &options, &expected, &format!("{what}, in the middle"));
            gate.open();
            checkpoint.join().expect("should not panic").expect("should checkpoint");
            expected
        });
        assert_eq!(payloads(&store, table(1)), expected, "{what}");
        expect_rows(&fs, &options, &expected, &what);
        // The next one takes what came meanwhile.
        store.checkpoint().expect("should checkpoint");
        assert_eq!(payloads(&store, table(1)), expected, "{what}");
        expect_rows(&fs, &options, &expected, &format!("{what}, and another one"));
        assert!(lane_files(&fs).len() <= 3);
    }
}

fn flushed(store: &Store) -> Sealed {
    let sealed = seal(store).expect("should seal");
    commit(store, &sealed).expect("should commit");
    sealed
}

#[test]
fn rows_that_arrive_meanwhile_are_there_once() {
    in_the_middle(
        |_| {},
        |store| {
            append_rows(store, 25..30);
            rows(0..30)
        },
    );
}

#[test]
fn a_seal_meanwhile_closes_what_it_closed() {
    in_the_middle(
        |_| {},
        |store| {
            append_rows(store, 25..26);
            let sealed = seal(store).expect("should seal");
            assert_eq!(sealed.generation.totals().slices, 26);
            append(store, row(26, 3000));
            rows(0..27)
        },
    );
}

#[test]
fn a_commit_meanwhile_takes_its_rows_away_for_good() {
    in_the_middle(
        |_| {},
        |store| {
            flushed(store);
            Vec::new()
        },
    );
    in_the_middle(
        |_| {},
        |store| {
            append_rows(store, 25..26);
            flushed(store);
            append_rows(store, 26..28);
            rows(26..28)
        },
    );
}

#[test]
fn a_commit_meanwhile_of_what_was_sealed_before_takes_its_rows_away() {
    let sealed = Cell::new(None);
    in_the_middle(
        |store| {
            sealed.set(Some(seal(store).expect("should seal")));
            append_rows(store, 25..27);
        },
        |store| {
            commit(store, &sealed.take().expect("should be sealed")).expect("should commit");
            append_rows(store, 27..28);
            rows(25..28)
        },
    );
}

#[test]
fn what_is_half_in_an_older_lane_file_may_be_committed_meanwhile() {
    in_the_middle(
        |store| {
            store.checkpoint().expect("should checkpoint");
            append_rows(store, 25..50);
        },
        |store| {
            flushed(store);
            append_rows(store, 50..52);
            rows(50..52)
        },
    );
}

#[test]
fn a_straggler_may_be_committed_while_it_is_copied() {
    in_the_middle(
        |store| {
            // A file of which little stays live.
            let sealed = seal(store).expect("should seal");
            append(store, row(900, 40));
            store.checkpoint().expect("should checkpoint");
            commit(store, &sealed).expect("should commit");
            append_rows(store, 25..50);
        },
        |store| {
            flushed(store);
            append_rows(store, 50..51);
            rows(50..51)
        },
    );
}
