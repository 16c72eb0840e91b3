//! Which of the names in a log make up its newest version.

use std::collections::{BTreeMap, BTreeSet};

use object_store::ObjectMeta;

use crate::lake::anchor::{Mark, named, version_of};

/// The newest version's files.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// None if there is no log.
    pub(super) version: Option<u64>,
    /// The newest checkpoint that is whole, with its files.
    pub(super) checkpoint: Option<(u64, Vec<ObjectMeta>)>,
    /// All entries.
    pub(super) entries: BTreeMap<u64, Mark>,
    /// Versions of entries behind the first missing one.
    pub(super) beyond: Vec<u64>,
}

impl Layout {
    /// Sorts what a listing found. Names that mean nothing here (checksums, compacted entries, sidecars) are passed over.
    pub(super) fn of(listed: Vec<ObjectMeta>) -> Self {
        let mut entries = BTreeMap::new();
        let mut checkpoints: BTreeMap<u64, Vec<(Shape, ObjectMeta)>> = BTreeMap::new();
        for meta in listed {
            if let Some(version) = version_of(&meta.location) {
                entries.insert(version, Mark::of(&meta));
            } else if let Some((version, shape)) = checkpoint_of(&meta) {
                checkpoints.entry(version).or_default().push((shape, meta));
            }
        }
        let mut whole = checkpoints.into_iter().rev();
        let checkpoint = whole.find_map(|(version, files)| Some((version, complete(files)?)));
        let first = checkpoint.as_ref().map_or(0, |(version, _)| version + 1);
        let end = (first..).take_while(|version| entries.contains_key(version)).last();
        let version = end.or(checkpoint.as_ref().map(|(version, _)| *version));
        let beyond = entries.keys().copied().filter(|found| *found > version.unwrap_or(0) || version.is_none());
        let beyond = beyond.collect();
        Self { version, checkpoint, entries, beyond }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    /// One file, its name by version or by a unique id.
    Single,
    /// One of several.
    Part { number: u32, of: u32 },
}

fn checkpoint_of(meta: &ObjectMeta) -> Option<(u64, Shape)> {
    let (version, rest) = named(&meta.location)?;
    let shape = match rest.strip_prefix(".checkpoint.")?.split('.').collect::<Vec<_>>()[..] {
        ["parquet"] | [_, "parquet" | "json"] => Shape::Single,
        [number, of, "parquet"] => Shape::Part { number: number.parse().ok()?, of: of.parse().ok()? },
        _ => return None,
    };
    Some((version, shape))
}

/// The files of one whole checkpoint of a version, if there is one.
fn complete(files: Vec<(Shape, ObjectMeta)>) -> Option<Vec<ObjectMeta>> {
    if let Some((_, single)) = files.iter().find(|(shape, _)| *shape == Shape::Single) {
        return Some(vec![single.clone()]);
    }
    let counts: BTreeSet<u32> = files
        .iter()
        .filter_map(|(shape, _)| if let Shape::Part { of, .. } = shape { Some(*of) } else { None })
        .collect();
    counts.into_iter().find_map(|count| {
        let part = |wanted: u32| {
            let shape = Shape::Part { number: wanted, of: count };
            files.iter().find(|(found, _)| *found == shape).map(|(_, meta)| meta.clone())
        };
        // A partial one counts for nothing: what its missing parts say would be taken for unsaid.
        (1..=count).map(part).collect::<Option<Vec<_>>>().filter(|parts| !parts.is_empty())
    })
}
