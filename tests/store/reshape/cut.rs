//! A change that is cut short between any two calls, or one of whose calls fails.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_store::Options;
use penstock_store::fs::MemoryFileSystem;
use penstock_store::reshape::ReshapeError;
use penstock_store::{OpenError, Store};

use super::{change, check, open, options, try_open, used};
use crate::hook::{Countdown, Hooked};
use crate::kit;

/// Fails every call from the `limit`th on.
fn change_until(fs: &MemoryFileSystem, from: &Options, to: &Options, limit: u64) -> (bool, u64) {
    let countdown = Countdown::of(limit);
    let asked = Arc::clone(&countdown);
    let hooked = Hooked::shared(fs, move |_, _| asked.ask());
    (change(&hooked, from, to).is_ok(), countdown.seen())
}

/// Opens with either, and answers which one it is.
fn which<'a>(fs: &MemoryFileSystem, from: &'a Options, to: &'a Options, what: &str) -> &'a Options {
    let is_changed = |error: &OpenError| matches!(error, OpenError::CountChanged { .. });
    match (try_open(&fs.snapshot(), from), try_open(&fs.snapshot(), to)) {
        (Ok(_), Err(error)) if is_changed(&error) => from,
        (Err(error), Ok(_)) if is_changed(&error) => to,
        (old, new) => panic!("{what}: {:?}, {:?}", old.map(drop), new.map(drop)),
    }
}

fn cut_short_anywhere(from: &Options, to: &Options) {
    let used = used(from);
    let (done, calls) = change_until(&used.fs.snapshot(), from, to, u64::MAX);
    assert!(done && calls > 50);
    let mut seen = [0, 0];
    for limit in 0..calls {
        let fs = used.fs.snapshot();
        change_until(&fs, from, to, limit);
        // The next process; and what two power losses leave, of which one is followed by another attempt without a start in between.
        for (fs, again) in
            [(fs.snapshot(), true), (fs.snapshot().crash(2 * limit), false), (fs.crash(2 * limit + 1), true)]
        {
            let what = format!("after {limit} calls, again: {again}");
            let found = which(&fs, from, to, &what);
            seen[usize::from(found == to)] += 1;
            let (mut fs, mut now) = (fs, found);
            if again {
                now = if found == from { to } else { from };
                change(&kit::shared(&fs), found, now).unwrap_or_else(|e| panic!("{what}: {e}"));
                fs = fs.crash(limit);
            }
            check(&fs, now, &used, &what);
        }
    }
    assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
}

#[test]
fn more_shards_and_lanes_may_be_cut_short_anywhere() {
    cut_short_anywhere(&options(1, 1), &options(3, 2));
}

#[test]
fn fewer_shards_and_lanes_may_be_cut_short_anywhere() {
    cut_short_anywhere(&options(2, 3), &options(1, 1));
}

#[test]
fn one_failing_call_is_no_loss() {
    let (from, to) = (options(2, 1), options(3, 2));
    let used = used(&from);
    let (_, calls) = change_until(&used.fs.snapshot(), &from, &to, u64::MAX);
    for failing in 0..calls {
        let fs = used.fs.snapshot();
        let seen = Countdown::of(u64::MAX);
        let asked = Arc::clone(&seen);
        let hooked = Hooked::shared(&fs, move |_, _| {
            asked.ask()?;
            if asked.seen() == failing + 1 { Err(std::io::Error::from_raw_os_error(5)) } else { Ok(()) }
        });
        let outcome = change(&hooked, &from, &to);
        let what = format!("call {failing}");
        let found = which(&fs, &from, &to, &what);
        match outcome {
            Ok(_) => assert_eq!(found, &to, "{what}"),
            Err(ReshapeError::InDoubt(_)) => {}
            Err(_) => {
                assert_eq!(found, &from, "{what}");
                let left = |p: &&PathBuf| p.to_string_lossy().contains("wal-1") || p.starts_with("lanes/1");
                assert!(failing == 0 || fs.files().iter().filter(left).count() <= 1, "{what}: {:?}", fs.files());
            }
        }
        // A power loss right after the start that follows.
        drop(open(&fs, found));
        check(&fs.crash(failing), found, &used, &what);
    }
}

/// The switch, without the sync that would make it certain: a process sees the new layout, a power loss may bring back the old one.
fn undecided(fs: &MemoryFileSystem, from: &Options, to: &Options) {
    let switched = AtomicBool::new(false);
    let hooked = Hooked::shared(fs, move |call, path| match call {
        "rename" if path.ends_with("MANIFEST") => {
            switched.store(true, Ordering::SeqCst);
            Ok(())
        }
        "sync_dir" if switched.load(Ordering::SeqCst) => Err(std::io::Error::from_raw_os_error(5)),
        _ => Ok(()),
    });
    let error = change(&hooked, from, to).expect_err("should be in doubt");
    assert!(matches!(error, ReshapeError::InDoubt(_)), "{error}");
}

#[test]
fn what_follows_an_undecided_switch_may_be_cut_short_anywhere() {
    let (from, to) = (options(2, 3), options(1, 1));
    // The last lane becomes the second one.
    let next = Options { lanes: ["/lanes/0", "/lanes/2"].map(PathBuf::from).to_vec(), ..options(2, 0) };
    let used = used(&from);
    undecided(&used.fs, &from, &to);
    let start = |fs: &MemoryFileSystem, limit: u64| {
        let countdown = Countdown::of(limit);
        let asked = Arc::clone(&countdown);
        let hooked = Hooked::shared(fs, move |_, _| asked.ask());
        drop(Store::open(hooked, Path::new(kit::DIR), &to));
        countdown.seen()
    };
    let again = |fs: &MemoryFileSystem, limit: u64| change_until(fs, &to, &next, limit).1;
    for (name, run) in [("start", &start as &dyn Fn(&MemoryFileSystem, u64) -> u64), ("change", &again)] {
        let calls = run(&used.fs.snapshot(), u64::MAX);
        let mut came_back = 0;
        for limit in 0..calls {
            let fs = used.fs.snapshot();
            run(&fs, limit);
            for seed in [5 * limit, 5 * limit + 1] {
                let fs = fs.snapshot().crash(seed);
                let what = format!("{name}, after {limit} calls, power loss {seed}");
                let open: Vec<_> =
                    [&from, &to, &next].into_iter().filter(|o| try_open(&fs.snapshot(), o).is_ok()).collect();
                let [found] = open[..] else { panic!("{what}: {} layouts", open.len()) };
                came_back += u32::from(found == &from);
                check(&fs, found, &used, &what);
            }
        }
        assert!(came_back > 0, "{name}");
    }
}
