use std::path::{Path, PathBuf};

use super::*;
use crate::bucket::generation::Slice;
use crate::checkpoint::edit::LaneFileRef;
use crate::checkpoint::lane_writer::LaneWriter;
use crate::fs::{FileSystem, MemoryFileSystem, OpenMode};
use crate::types::{Incarnation, NodeId};

fn slice(lsn: u64) -> Slice {
    let payload = vec![7; 30].into();
    Slice { lsn: Lsn(lsn), schema_version: 1, encoding: 1, rows: 1, min_time: 0, max_time: 0, payload }
}

fn bucket(n: i64) -> Bucket {
    Bucket { start: n, width: 1 }
}

/// A lane file with one extent for each (table, bucket), of a generation that is called like its bucket.
fn file(fs: &MemoryFileSystem, id: u64, extents: &[(u128, i64)]) -> Arc<LaneFile> {
    let path = PathBuf::from(format!("/{id}"));
    let file = fs.create(&path).expect("should be made");
    let header = lane_file::Header { shard: 0, id, node: NodeId(Uuid::nil()), incarnation: Incarnation(1) };
    let mut pace = |_| Ok(());
    let mut writer = LaneWriter::new(&*file, &header, 100, &mut pace).expect("should begin");
    for (table, n) in extents {
        let table = TableId(Uuid::from_u128(*table));
        writer.push(table, bucket(*n), Lsn(*n as u64), &[slice(1000 + id)]).expect("should be written");
    }
    let written = writer.finish().expect("should be finished");
    let reference = LaneFileRef {
        id,
        lane: 0,
        index_at: written.index_at,
        index_len: written.index_len,
        index_crc: written.index_crc,
        extents: written.entries.len() as u32,
        bytes: written.bytes,
    };
    Arc::new(LaneFile::new(reference, path.clone(), fs.open(&path, OpenMode::Read).expect("should be there")))
}

fn runs(files: &[Arc<LaneFile>]) -> Result<Vec<(u128, i64, Vec<u64>)>, Unreadable> {
    let mut runs = Vec::new();
    merge(files, |run| {
        let first = &run[0].1;
        let ids = run.iter().map(|(file, _)| file.reference.id).collect();
        runs.push((first.table.0.as_u128(), first.bucket.start, ids));
        Ok::<(), Unreadable>(())
    })?;
    Ok(runs)
}

#[test]
fn what_belongs_together_comes_together() {
    let fs = MemoryFileSystem::new();
    let files = [
        file(&fs, 1, &[(1, 5), (1, 7), (2, 1)]),
        file(&fs, 2, &[(1, 7), (3, 1)]),
        file(&fs, 3, &[(1, 5), (1, 5), (2, 1)]),
    ];
    let expected = vec![(1, 5, vec![1, 3, 3]), (1, 7, vec![1, 2]), (2, 1, vec![1, 3]), (3, 1, vec![2])];
    assert_eq!(runs(&files).expect("should be readable"), expected);
    assert!(runs(&[]).expect("should be readable").is_empty());
}

#[test]
fn an_index_that_is_not_in_order_is_read_all_the_same() {
    let fs = MemoryFileSystem::new();
    let files = [file(&fs, 1, &[(9, 1), (1, 5), (1, 2)]), file(&fs, 2, &[(1, 2), (1, 5)])];
    let mut found: Vec<_> = runs(&files)
        .expect("should be readable")
        .into_iter()
        .flat_map(|(t, b, ids)| ids.into_iter().map(move |i| (t, b, i)))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(1, 2, 1), (1, 2, 2), (1, 5, 1), (1, 5, 2), (9, 1, 1)]);
}

#[test]
fn an_index_longer_than_a_chunk_is_read_to_its_end() {
    let fs = MemoryFileSystem::new();
    let extents: Vec<(u128, i64)> = (0..20_000).map(|n| (n / 7, (n % 7) as i64)).collect();
    let file = file(&fs, 1, &extents);
    assert!(file.reference.index_len > 4 * CHUNK as u64);
    assert_eq!(runs(&[file]).expect("should be readable").len(), 20_000);
}

#[test]
fn any_changed_byte_shows() {
    let fs = MemoryFileSystem::new();
    let file = file(&fs, 1, &[(1, 5), (2, 1)]);
    let LaneFileRef { index_at, index_len, .. } = file.reference;
    let path = Path::new("/1");
    let bytes = fs.dump(path).expect("should be there");
    for at in index_at..index_at + index_len {
        let old = bytes[at as usize];
        fs.overwrite(path, at, &[old ^ 4]).expect("should be there");
        let error = runs(&[Arc::clone(&file)]).expect_err("is damaged").error;
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "byte {at}");
        fs.overwrite(path, at, &[old]).expect("should be there");
    }
    assert_eq!(runs(&[file]).expect("is whole").len(), 2);
}
