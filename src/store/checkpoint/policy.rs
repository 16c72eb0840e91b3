//! What a checkpoint decides by numbers alone.

/// A lane file is rewritten when at most this part of it, in percent, is live: one straggler would pin all of it.
const LIVE_PERCENT: u64 = 25;
/// Most bytes that one checkpoint copies out of older lane files.
const REWRITE_BYTES: u64 = 256 << 20;
/// A manifest file may grow by this much beyond its snapshot, and to twice its length.
const MANIFEST_SLACK: u64 = 4 << 20;

/// The lane files whose live rows the next one takes over: `files` has id, length and live bytes of each, in order of age. Those of
/// which little is live; and the smallest ones while there are more than `max_files`, so that neither descriptors nor a start's work
/// grow with the number of checkpoints.
pub fn rewrite(files: &[(u64, u64, u64)], max_files: usize) -> Vec<u64> {
    let mut budget = REWRITE_BYTES;
    let mut chosen = Vec::new();
    let mut choose = |id: u64, live: u64| {
        if live <= budget {
            budget -= live;
            chosen.push(id);
        }
    };
    let pinned = |bytes: u64, live: u64| live > 0 && live <= bytes / 100 * LIVE_PERCENT;
    for (id, _, live) in files.iter().filter(|(_, bytes, live)| pinned(*bytes, *live)) {
        choose(*id, *live);
    }
    let mut rest: Vec<_> = files.iter().filter(|(_, bytes, live)| *live > 0 && !pinned(*bytes, *live)).collect();
    // The next file comes on top. Half of them at once, or each checkpoint would copy one again.
    if rest.len() >= max_files {
        rest.sort_by_key(|(_, _, live)| *live);
        for (id, _, live) in &rest[..rest.len() - max_files / 2] {
            choose(*id, *live);
        }
    }
    chosen
}

/// Whether a manifest file of `len` bytes, which began with a snapshot of `snapshot` bytes, should be begun anew.
pub fn manifest_is_long(len: u64, snapshot: u64) -> bool {
    len > snapshot.saturating_mul(2).saturating_add(MANIFEST_SLACK)
}

#[cfg(test)]
mod tests {
    use super::{manifest_is_long, rewrite};

    #[test]
    fn a_file_of_which_little_is_live_is_rewritten() {
        let files = [(1, 1000, 1000), (2, 1000, 250), (3, 1000, 251), (4, 1000, 0)];
        assert_eq!(rewrite(&files, 8), [2]);
    }

    #[test]
    fn too_many_files_are_merged_the_smallest_first() {
        let files: Vec<_> = (0..8).map(|id| (id, 1000 + id, 1000 - id)).collect();
        assert!(rewrite(&files[..7], 8).is_empty());
        assert_eq!(rewrite(&files, 8), [7, 6, 5, 4]);
    }

    #[test]
    fn one_checkpoint_copies_no_more_than_its_budget() {
        let files: Vec<_> = (0..100).map(|id| (id, 1 << 30, 100 << 20)).collect();
        assert_eq!(rewrite(&files, 1000).len(), 2);
    }

    #[test]
    fn a_manifest_doubles_before_it_is_begun_anew() {
        assert!(!manifest_is_long(4 << 20, 1000));
        assert!(manifest_is_long(5 << 20, 1000));
        assert!(!manifest_is_long(100 << 20, 50 << 20));
    }
}
