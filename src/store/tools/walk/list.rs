//! A shard's log files, whose headers are made good where that leaves no doubt.

use std::path::Path;
use std::sync::Arc;

use super::{LostPart, Part};
use crate::error::OpenError;
use crate::fs::{FileSystem, OpenMode};
use crate::manifest::Manifest;
use crate::wal::header::HeaderError;
use crate::wal::segment::{self, Segment};

/// Lists a shard's segments in LSN order; headers with one changed byte, or changed padding, are made good.
///
/// # Errors
/// An I/O error.
pub fn list(
    fs: &Arc<dyn FileSystem>,
    manifest: &Manifest,
    shard_dir: &Path,
    shard: u32,
) -> Result<(Vec<Part>, Vec<LostPart>), OpenError> {
    let (mut parts, mut lost) = (Vec::new(), Vec::new());
    for name in fs.list(shard_dir).map_err(OpenError::io(format!("reading {}", shard_dir.display())))? {
        let Some(base) = segment::parse_file_name(&name) else { continue };
        let path = shard_dir.join(&name);
        let reading = || OpenError::io(format!("reading {}", path.display()));
        let file = fs.open(&path, OpenMode::Read).map_err(reading())?;
        let len = file.len().map_err(reading())?;
        let mut page = vec![0; segment::HEADER_LEN.min(len) as usize];
        file.read_exact_at(&mut page, 0).map_err(reading())?;
        let ours = |h: &segment::Header| h.base == base && h.node == manifest.node && h.shard == shard;
        let (header, damage) = match segment::Header::decode(&page) {
            Ok(header) if ours(&header) => (Some(header), None),
            Ok(h) => {
                (None, Some(format!("this is the segment from LSN {} of shard {} of node {}", h.base, h.shard, h.node)))
            }
            Err(error @ HeaderError::Damaged) => (made_good(&mut page).filter(ours), Some(error.to_string())),
            Err(error) => (None, Some(error.to_string())),
        };
        match header {
            Some(header) => {
                parts.push(Part { segment: Segment { header, path, file }, header_damage: damage });
            }
            None => lost.push(LostPart { path, base, what: damage.unwrap_or_default() }),
        }
    }
    parts.sort_by_key(|p| p.segment.header.base);
    lost.sort_by_key(|p| p.base);
    Ok((parts, lost))
}

/// The header in a page of which the padding, or one byte of the fields, was changed: its checksum tells whether a guess is right.
fn made_good(page: &mut [u8]) -> Option<segment::Header> {
    const FIELDS: usize = 76;
    page.get_mut(FIELDS..)?.fill(0);
    if let Ok(header) = segment::Header::decode(page) {
        return Some(header);
    }
    for at in 0..FIELDS {
        for change in 1..=u8::MAX {
            page[at] ^= change;
            if let Ok(header) = segment::Header::decode(page) {
                return Some(header);
            }
            page[at] ^= change;
        }
    }
    None
}
