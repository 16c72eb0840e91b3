//! The last group was never acknowledged, and of its bytes only some are there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use penstock_store::fs::{Fault, FaultKind, FileSystem, MemoryFileSystem, Operation};
use penstock_store::{AppendError, Define, Store};

use crate::hook::{Gate, Hooked};
use crate::kit::{self, append, bucket, define, open_memory, options, payloads, seal, slice, table};

const HEADER_PAGE: u64 = 4096;

/// A log whose last group was written, and whose sync failed.
struct Torn {
    fs: MemoryFileSystem,
    segment: PathBuf,
    /// Offset of the last group in the segment's file.
    from: u64,
    /// First byte behind its frames.
    to: u64,
    acknowledged: Vec<Bytes>,
    /// In the order in which they were handed over.
    in_doubt: Vec<Bytes>,
}

/// Acknowledged rows, then a group of rows of these lengths, a seal of the first ones, and a table with its first row.
fn torn(lens: &[usize]) -> Torn {
    let fs = MemoryFileSystem::new();
    let gate = Arc::new(Gate::default());
    let door = Arc::clone(&gate);
    let hooked: Arc<dyn FileSystem> = Hooked::shared(&fs, move |call, path| {
        if call == "sync_data" && path.to_string_lossy().contains("shard-000/") {
            door.pass();
        }
        Ok(())
    });
    let store = Store::open(Arc::clone(&hooked), Path::new(kit::DIR), &options()).expect("should open");
    define(&store, table(1));
    let acknowledged: Vec<Bytes> = (0..3_u8).map(|n| Bytes::from(vec![n; 20])).collect();
    for row in &acknowledged {
        append(&store, row.clone());
    }
    let open = store.view(table(1)).generations[0].generation().first_lsn;
    let from = HEADER_PAGE + store.status()[0].durable_lsn.0;
    // One more group, held at its sync; what queues meanwhile is the next group.
    gate.shut();
    let last = Bytes::from_static(b"the last acknowledged row");
    let held = store.append(vec![slice(table(1), bucket(0), last.clone())]).expect("should queue");
    gate.await_visitor();
    let in_doubt: Vec<Bytes> = lens.iter().map(|len| Bytes::from(vec![0xA5; *len])).collect();
    let appends: Vec<_> = in_doubt
        .iter()
        .map(|row| store.append(vec![slice(table(1), bucket(0), row.clone())]).expect("should queue"))
        .collect();
    let sealed = store.seal(table(1), bucket(0), open);
    let other = Define { table: table(2), schema_version: 1, body: Bytes::from_static(b"other") };
    let defined = store.define(other).expect("should queue");
    let other = store.append(vec![slice(table(2), bucket(0), "other")]).expect("should queue");
    fs.fail(Fault {
        operation: Operation::SyncData,
        nth: 2,
        path_contains: Some(".seg".to_owned()),
        error: FaultKind::Eio,
        sticky: false,
    });
    gate.open();
    held.wait_blocking().expect("should be durable");
    let refused = |error: AppendError| assert!(matches!(error, AppendError::Poisoned { .. }), "{error}");
    appends.into_iter().for_each(|a| refused(a.wait_blocking().expect_err("should be in doubt")));
    refused(sealed.wait_blocking().expect_err("should be in doubt"));
    refused(defined.wait_blocking().expect_err("should be in doubt"));
    refused(other.wait_blocking().expect_err("should be in doubt"));
    drop(store);
    let segment = kit::segments(&fs).pop().expect("should have a segment");
    let from = from + 4096;
    let bytes = fs.dump(&segment).expect("should be there");
    let len = u32::from_le_bytes(bytes[from as usize + 24..][..4].try_into().expect("should be four bytes"));
    let acknowledged = acknowledged.into_iter().chain([last]).collect();
    Torn { to: from + u64::from(len), fs: fs.snapshot(), segment, from, acknowledged, in_doubt }
}

impl Torn {
    /// Starts on the damaged log, goes on, and starts again.
    fn check(&self, fs: &MemoryFileSystem, cut: &str) {
        let before = fs.dump(&self.segment).expect("should be there");
        let store = open_memory(fs);
        let rows = payloads(&store, table(1));
        assert_eq!(rows[..self.acknowledged.len()], self.acknowledged, "{cut}: acknowledged rows");
        let mut rest = self.in_doubt.iter();
        for row in &rows[self.acknowledged.len()..] {
            assert!(rest.any(|r| r == row), "{cut}: a row that is not whole, or not in order");
        }
        if !payloads(&store, table(2)).is_empty() {
            assert_eq!(store.definitions().len(), 2, "{cut}: rows without their table");
        }
        append(&store, "afterwards");
        let after = fs.dump(&self.segment).expect("should be there");
        assert!(after == before, "{cut}: something was written into the torn segment");
        let rows: Vec<Vec<Bytes>> = [1, 2].iter().map(|n| payloads(&store, table(*n))).collect();
        drop(store);
        let store = open_memory(fs);
        let again: Vec<Vec<Bytes>> = [1, 2].iter().map(|n| payloads(&store, table(*n))).collect();
        assert_eq!(again, rows, "{cut}: the second start");
        assert!(rows[0].iter().any(|row| row == "afterwards"), "{cut}: the row that came afterwards");
    }
}

#[test]
fn a_file_cut_at_every_byte_of_the_last_group_starts() {
    let torn = torn(&[10, 30, 50]);
    for cut in torn.from..=torn.to {
        let fs = torn.fs.snapshot();
        fs.set_len(&torn.segment, cut).expect("should be there");
        torn.check(&fs, &format!("the file ends at {cut}"));
    }
}

#[test]
fn zeros_from_every_byte_of_the_last_group_on_start() {
    let torn = torn(&[10, 30, 50]);
    for cut in torn.from..=torn.to {
        let fs = torn.fs.snapshot();
        fs.overwrite(&torn.segment, cut, &vec![0; 8192]).expect("should be there");
        torn.check(&fs, &format!("zeros from {cut}"));
    }
}

#[test]
fn garbage_from_every_byte_of_the_last_group_on_starts() {
    let torn = torn(&[10, 30, 50]);
    for cut in torn.from..=torn.to {
        let fs = torn.fs.snapshot();
        let garbage: Vec<u8> = (0..8192_u64).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 11) as u8 | 1).collect();
        fs.overwrite(&torn.segment, cut, &garbage).expect("should be there");
        torn.check(&fs, &format!("garbage from {cut}"));
    }
}

#[test]
fn any_page_missing_from_a_large_group_starts() {
    let torn = torn(&[3000, 9000, 100, 5000]);
    let pages = (torn.to - torn.from).div_ceil(4096);
    for lost in 0..1_u32 << pages {
        let fs = torn.fs.snapshot();
        for page in (0..pages).filter(|page| lost & 1 << page != 0) {
            fs.overwrite(&torn.segment, torn.from + page * 4096, &[0; 4096]).expect("should be there");
        }
        torn.check(&fs, &format!("pages {lost:b} are lost"));
    }
}

#[test]
fn a_torn_group_gives_back_what_is_whole() {
    let torn = torn(&[10, 30, 50]);
    // The first row's payload is damaged; the others, the seal, and the other table are whole.
    let at = torn.from + 64 + 32 + 8 + 64;
    torn.fs.overwrite(&torn.segment, at, &[0]).expect("should be there");
    let store = open_memory(&torn.fs);
    let report = store.recovery();
    assert_eq!((report.torn, report.rewritten), (1, 5));
    assert_eq!(payloads(&store, table(1)).len(), torn.acknowledged.len() + 2);
    assert_eq!(payloads(&store, table(2)), ["other"]);
    let view = store.view(table(1));
    let seal = view.generations[0].current_seal().expect("should have been sealed by the torn group");
    assert_ne!(seal.incarnation, store.incarnation());
}

#[test]
fn rows_whose_definition_was_torn_with_them_do_not_stop_the_start() {
    let torn = torn(&[10]);
    let bytes = torn.fs.dump(&torn.segment).expect("should be there");
    let body = bytes.windows(5).position(|w| w == b"other").expect("should be the definition's body");
    torn.fs.overwrite(&torn.segment, body as u64, b"xxxxx").expect("should be there");
    let store = open_memory(&torn.fs);
    assert_eq!(payloads(&store, table(2)), Vec::<Bytes>::new());
    define(&store, table(2));
}

#[test]
fn a_torn_tail_is_never_read_again() {
    let torn = torn(&[10, 30, 50]);
    // All of it is lost, and the log goes on elsewhere.
    let whole = torn.fs.dump(&torn.segment).expect("should be there");
    torn.fs.overwrite(&torn.segment, torn.from, &[0; 4096]).expect("should be there");
    let store = open_memory(&torn.fs);
    append(&store, "afterwards");
    drop(store);
    // The same bytes come back: a disk that wrote them late.
    torn.fs.overwrite(&torn.segment, 0, &whole).expect("should be there");
    let store = open_memory(&torn.fs);
    let rows = payloads(&store, table(1));
    assert_eq!(rows.len(), torn.acknowledged.len() + 1);
    assert_eq!(seal(&store).expect("should seal").generation.totals().rows, rows.len() as u64);
}
