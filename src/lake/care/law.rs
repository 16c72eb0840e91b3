//! When a checkpoint and a clean-up are due, and which files a clean-up may take: pure functions of what is known.

use std::collections::BTreeSet;

/// Files for which one more version may pass before the next checkpoint; see [`interval`].
const FILES_PER_VERSION: u64 = 100;

/// Most versions between two checkpoints: whoever opens the table reads the entries of all of them.
const MAX_INTERVAL: u64 = 5_000;

/// Of the files that the last listing of a log showed, the share that new ones may make up before the next listing.
const LISTING_SHARE: u64 = 10;

/// Most files that one clean-up removes; what is left is for the next.
const MAX_REMOVED: usize = 20_000;

/// Versions between two checkpoints of a table with so many data files.
pub(super) fn interval(every: u64, files: u64) -> u64 {
    every.max((files / FILES_PER_VERSION).min(MAX_INTERVAL))
}

/// What is known of a table between two checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// The newest version that is known.
    pub(super) version: u64,
    /// The version of the newest checkpoint that is known, verified or not.
    pub(super) checkpoint: Option<u64>,
    /// Data files at that checkpoint.
    pub(super) files: u64,
    /// The version at which writing the next one failed.
    pub(super) failed_at: Option<u64>,
}

/// Whether a checkpoint is due; `every` of 0 means never. After a failure `every` more versions pass before the next try.
pub(super) fn checkpoint_due(every: u64, standing: &Standing) -> bool {
    let Standing { version, checkpoint, files, failed_at } = *standing;
    let since = checkpoint.map_or(version.saturating_add(1), |checkpoint| version.saturating_sub(checkpoint));
    let rested = failed_at.is_none_or(|at| version.saturating_sub(at) >= every);
    every > 0 && rested && since >= interval(every, files)
}

/// The last listing of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    /// The newest version then.
    pub(super) at: u64,
    /// Files that it showed and that were left.
    pub(super) files: u64,
}

/// Whether the log is to be listed again. A listing costs in the files that it shows, so it waits for a share of them to
/// be new: the cost per commit is flat.
pub(super) fn clean_up_due(every: u64, version: u64, last: Option<Listed>) -> bool {
    last.is_none_or(|last| version.saturating_sub(last.at) >= every.max(last.files / LISTING_SHARE))
}

/// What a file of a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The entry of a version.
    Entry,
    /// A checkpoint that is one file under the classic name.
    Checkpoint,
    /// A part of a checkpoint, or one that refers to other files: never taken for complete here.
    PartOfCheckpoint,
    /// A checksum, or a compaction of entries: what readers may use and need not.
    Aside,
}

/// A file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogFile {
    pub(super) name: String,
    pub(super) role: Role,
    /// The version it is about; of a compaction the last one.
    pub(super) version: u64,
    /// Whether it is older than the table's log retention.
    pub(super) expired: bool,
}

/// What a file of this name is. None for what is not known here, which is left alone.
pub(super) fn role_of(name: &str) -> Option<(Role, u64)> {
    let mut parts = name.split('.');
    let version = digits(parts.next()?, 20)?;
    let rest: Vec<&str> = parts.collect();
    let role = match rest[..] {
        ["json"] => Role::Entry,
        ["checkpoint", "parquet"] => Role::Checkpoint,
        ["checkpoint", part, of, "parquet"] if digits(part, 10).and(digits(of, 10)).is_some() => Role::PartOfCheckpoint,
        ["checkpoint", id, "parquet" | "json"] if id.parse::<uuid::Uuid>().is_ok() => Role::PartOfCheckpoint,
        ["crc"] => Role::Aside,
        [last, "compacted", "json"] => return Some((Role::Aside, digits(last, 20)?)),
        _ => return None,
    };
    Some((role, version))
}

fn digits(text: &str, count: usize) -> Option<u64> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// What a reader needs besides the files: the checkpoint before which nothing is needed any more. It is at or before
/// `verified`, and at or before every version that may still be asked for: those inside the retention, and the one that
/// was the newest when the retention began. None if no such checkpoint is there.
pub(super) fn horizon(log: &[LogFile], verified: u64) -> Option<u64> {
    let kept = log.iter().filter(|file| file.role == Role::Entry && !file.expired).map(|file| file.version).min();
    let bound = kept.map_or(verified, |kept| kept.saturating_sub(1)).min(verified);
    log.iter().filter(|file| file.role == Role::Checkpoint && file.version <= bound).map(|file| file.version).max()
}

/// The files that may go, oldest version first: those of versions before the horizon that are expired themselves.
pub(super) fn removable(log: &[LogFile], horizon: u64) -> Vec<String> {
    let goes = |file: &&LogFile| file.version < horizon && file.expired;
    let sorted: BTreeSet<(u64, &str)> =
        log.iter().filter(goes).map(|file| (file.version, file.name.as_str())).collect();
    sorted.into_iter().take(MAX_REMOVED).map(|(_, name)| name.to_owned()).collect()
}
