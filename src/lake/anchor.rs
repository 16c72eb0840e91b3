//! An entry of the log that was seen, as an object: so that a later look can tell whether it is still that object.
//!
//! A table that is dropped and made anew under the same name has entries of the same names. What tells them apart
//! without reading them is what the store says of an object: its tag, or its size and time.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use super::table::Parts;
use super::{Error, entry};

/// A tag without its spelling: weak and strong, quoted or not, one object's is spelled differently by different answers of one store.
pub(super) fn plain_tag(tag: &str) -> &str {
    tag.trim_start_matches("W/").trim_matches('"')
}

/// What a store says of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    tag: Option<String>,
    size: u64,
    /// Seconds: stores differ in whether a listing has more than that, and a single answer has not.
    modified: i64,
}

impl Mark {
    pub(super) fn of(meta: &ObjectMeta) -> Self {
        let tag = meta.e_tag.as_deref().map(|tag| plain_tag(tag).to_owned());
        Self { tag, size: meta.size, modified: meta.last_modified.timestamp() }
    }

    /// Whether both speak of the same object.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (&self.tag, &other.tag) {
            (Some(one), Some(other)) => one == other,
            _ => self.size == other.size && self.modified == other.modified,
        }
    }
}

/// An entry that was seen as a part of the log.
#[derive(Debug, Clone)]
pub(super) struct Anchor {
    pub(super) version: u64,
    /// None for an entry that we know to be there and have not looked at: it equals nothing.
    pub(super) mark: Option<Mark>,
}

impl Anchor {
    pub(super) fn is(&self, found: Option<&Mark>) -> bool {
        matches!((&self.mark, found), (Some(mine), Some(found)) if mine.is(found))
    }
}

/// The entries from `first` to `last`, as far as they are there.
///
/// One LIST that begins at `first` on an object store. A local directory is not sorted: there each entry is asked for by
/// name, the first one last, so that it vouches for those behind it.
pub(super) async fn look(parts: &Parts, first: u64, last: u64) -> Result<BTreeMap<u64, Mark>, Error> {
    let mut found = BTreeMap::new();
    if parts.durable.is_some() {
        for version in (first..=last).rev() {
            let path = entry::path(version);
            match parts.store.head(&path).await {
                Ok(meta) => drop(found.insert(version, Mark::of(&meta))),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(Error::store("looking at", &path, error)),
            }
        }
        return Ok(found);
    }
    let mut listed = list_from(parts, first);
    while let Some(meta) = listed.try_next().await.map_err(|error| Error::store("listing", LOG, error))? {
        if let Some(version) = version_of(&meta.location) {
            found.insert(version, Mark::of(&meta));
        }
    }
    Ok(found)
}

const LOG: &str = "_delta_log";

/// Lists the log from a version on, checkpoints and all.
pub(super) fn list_from(
    parts: &Parts,
    version: u64,
) -> futures::stream::BoxStream<'static, object_store::Result<ObjectMeta>> {
    // Without an ending it sorts before all names of the version.
    let offset = Path::from_iter([LOG.to_owned(), format!("{version:020}")]);
    let log = Path::from(LOG);
    if version == 0 { parts.store.list(Some(&log)) } else { parts.store.list_with_offset(Some(&log), &offset) }
}

/// The version of an entry's name.
pub(super) fn version_of(location: &Path) -> Option<u64> {
    match named(location)? {
        (version, ".json") => Some(version),
        _ => None,
    }
}

/// The version that a name in the log begins with, and the rest of it.
pub(super) fn named(location: &Path) -> Option<(u64, &str)> {
    let (digits, rest) = location.filename()?.split_at_checked(20)?;
    // Directories below the log have names of the same kind.
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && location.parts().count() == 2;
    // Versions are signed in most writers.
    let version = digits.parse().ok().filter(|version| *version < i64::MAX as u64)?;
    plain.then_some((version, rest))
}
