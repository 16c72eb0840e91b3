//! Which directories may be the lanes of the new layout.
//!
//! A lane is known by its number, which its guard has. The present lanes keep their numbers, so that their directories are the first
//! ones of the new list, in their order; lanes are added behind them, or removed from the end.

use std::io;
use std::path::PathBuf;

use super::ReshapeError;
use crate::checkpoint::lane_file;
use crate::checkpoint::lanes::{self, GUARD_NAME, MAX_LANES};
use crate::error::OpenError;
use crate::fs::FileSystem;
use crate::manifest::Manifest;

/// A directory that becomes a lane.
#[derive(Debug)]
pub(super) struct Added {
    /// Its number.
    pub number: u32,
    /// The directory; it may not be there yet.
    pub dir: PathBuf,
    /// Whether it has no guard, not even one that an earlier attempt left.
    pub is_new: bool,
}

/// Checks the new list, and answers what has to be made of it. Reads only.
///
/// # Errors
/// A list that is no continuation of the present one, a directory that is somebody else's, or an I/O error.
pub(super) fn plan(fs: &dyn FileSystem, dirs: &[PathBuf], present: &Manifest) -> Result<Vec<Added>, ReshapeError> {
    if dirs.len() > MAX_LANES {
        return Err(ReshapeError::Refused(format!("{} lanes; choose at most {MAX_LANES}", dirs.len())));
    }
    let mut added = Vec::new();
    for (number, dir) in (0..).zip(dirs) {
        let refused = |what: String| ReshapeError::Refused(format!("{}: {what}", dir.display()));
        let is_present = number < present.lanes;
        match lanes::read_guard(fs, dir)? {
            Some((node, lane)) if node != present.node => {
                return Err(refused(format!("this is lane {lane} of another data directory, of node {node}")));
            }
            Some((_, lane)) if is_present && lane == number => {}
            // Of a lane that was removed, or that an attempt which was cut short added: nothing that counts is in it.
            Some((_, lane)) if !is_present && lane >= present.lanes => {
                added.push(Added { number, dir: dir.clone(), is_new: false });
            }
            Some((_, lane)) => {
                return Err(refused(format!(
                    "this is lane {lane}, and cannot become lane {number}; name the present lanes first, in their order"
                )));
            }
            None if is_present => {
                return Err(refused(format!(
                    "this is not lane {number}; name the present lanes first, in their order (is the file system mounted?)"
                )));
            }
            None => {
                if has_rows(fs, dir)? {
                    return Err(refused(format!("there are rows here, but no {GUARD_NAME} that says whose")));
                }
                added.push(Added { number, dir: dir.clone(), is_new: true });
            }
        }
    }
    Ok(added)
}

fn has_rows(fs: &dyn FileSystem, dir: &std::path::Path) -> Result<bool, OpenError> {
    match fs.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        listed => {
            let names = listed.map_err(OpenError::io(format!("reading {}", dir.display())))?;
            Ok(names.iter().any(|name| lane_file::parse_file_name(name).is_some()))
        }
    }
}
