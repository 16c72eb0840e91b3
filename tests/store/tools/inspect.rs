//! What `inspect` and `records` say of a directory that is known.

use std::path::Path;

use penstock_store::fs::MemoryFileSystem;
use penstock_store::tools::{self, Inspection, RecordInfo};
use penstock_store::{OpenError, PostId, ProducerId, Stamp};

use super::{mixed, verify};
use crate::kit::{DIR, append, bucket, contents, define, open_memory, shared, slice, table};

fn inspect(fs: &MemoryFileSystem) -> Inspection {
    tools::inspect(&shared(fs), Path::new(DIR), &[]).expect("should be readable")
}

fn records(fs: &MemoryFileSystem) -> Vec<RecordInfo> {
    let mut records = Vec::new();
    tools::records(&shared(fs), Path::new(DIR), &[], |record| records.push(record)).expect("should be readable");
    records
}

#[test]
fn the_figures_are_those_of_what_was_written() {
    let fs = mixed();
    let before = contents(&fs);
    let found = inspect(&fs);
    assert!(contents(&fs) == before, "files were changed");
    assert_eq!((found.starts, found.format_version, found.lanes.len(), found.shards.len()), (1, 3, 1, 1));
    let shard = &found.shards[0];
    assert_eq!((shard.manifest_file, shard.torn, shard.damaged, shard.producers), (1, false, 0, 0));
    assert_eq!(shard.segments.len(), 1);
    let segment = &shard.segments[0];
    let counts = segment.records;
    assert_eq!((counts.slices, counts.seals, counts.commits, counts.defines), (9, 3, 1, 1));
    assert_eq!((segment.groups, segment.used), (14, 14 * 4096));
    assert_eq!((shard.checkpoint.0, shard.end.0), (9 * 4096, 14 * 4096));
    assert_eq!(shard.lane_files.len(), 1);
    let file = &shard.lane_files[0];
    assert_eq!((file.extents, file.live_extents, file.damaged), (3, 3, false));
    let generations: Vec<_> = shard
        .generations
        .iter()
        .map(|g| (g.bucket, g.seal.map(|s| s.1), g.slices, g.rows, g.bytes, g.extents, g.log_slices))
        .collect();
    assert_eq!(
        generations,
        [
            (bucket(0), Some(2), 2, 2, 4, 1, 0),
            (bucket(0), Some(3), 3, 3, 6, 1, 2),
            (bucket(0), None, 2, 2, 4, 0, 2),
            (bucket(1), None, 1, 1, 1, 1, 0),
        ]
    );
    let marks: Vec<_> = shard.watermarks.iter().map(|w| (w.table, w.sealed, w.committed)).collect();
    assert_eq!(marks, [(table(1), 3, 1)]);
    assert_eq!(shard.definitions.len(), 1);
    assert_eq!((shard.definitions[0].schema_version, shard.definitions[0].bytes), (1, 2));
}

#[test]
fn records_come_in_order_from_the_start_of_the_retained_log() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    define(&store, table(1));
    let stamp = Stamp { producer: ProducerId(7), epoch: 1, sequence: 0 };
    let mut two = slice(table(1), bucket(0), "stamped");
    two.rows = 2;
    store.append_stamped(stamp, vec![two]).expect("should queue").wait_blocking().expect("should be durable");
    append(&store, "x");
    store.checkpoint().expect("should checkpoint");
    append(&store, "y");
    let killed = fs.crash_process();
    drop(store);
    let found = records(&killed);
    let short: Vec<_> = found.iter().map(|r| (r.lsn.0, r.kind, r.rows, r.id, r.in_doubt)).collect();
    let at = |group: u64| group * 4096 + 64;
    assert_eq!(
        short,
        [
            (at(0), "define", 0, None, false),
            (at(1), "slices", 2, Some(PostId::Sequence(stamp)), false),
            (at(2), "slices", 1, None, false),
            (at(3), "slices", 1, None, false),
        ]
    );
    assert!(found.iter().all(|r| r.tables == [table(1)] && r.bytes > 32));
    assert_eq!(inspect(&killed).shards[0].producers, 1);
}

#[test]
fn a_directory_in_use_is_refused_and_one_that_is_none() {
    let fs = MemoryFileSystem::new();
    let store = open_memory(&fs);
    let dir = Path::new(DIR);
    for refused in [
        tools::inspect(&shared(&fs), dir, &[]).map(drop),
        tools::records(&shared(&fs), dir, &[], |_| ()),
        tools::verify(&shared(&fs), dir, &[]).map(drop),
    ] {
        assert!(matches!(refused, Err(OpenError::Locked { .. })), "{refused:?}");
    }
    let refused = tools::repair(&shared(&fs), dir, &[], true);
    assert!(matches!(refused, Err(tools::RepairError::Open(OpenError::Locked { .. }))), "{refused:?}");
    drop(store);
    assert_eq!(verify(&fs).errors().count(), 0);
    let empty = MemoryFileSystem::new();
    penstock_store::fs::FileSystem::create_dir_all(&empty, dir).expect("should be made");
    assert!(matches!(tools::inspect(&shared(&empty), dir, &[]), Err(OpenError::Layout { .. })));
    assert!(empty.files().is_empty(), "{:?}", empty.files());
    let lanes = [dir.join("lanes/0"), dir.join("lanes/1")];
    let refused = tools::verify(&shared(&fs), dir, &lanes);
    assert!(matches!(refused, Err(OpenError::CountChanged { .. })), "{refused:?}");
}
