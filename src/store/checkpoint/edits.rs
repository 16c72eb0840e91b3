//! One shard's manifest on disk: made whole, appended to edit by edit, replaced by one with a higher number when it is long.
//!
//! ```text
//!  create: edits.new, header and snapshot -> sync -> rename -> sync_dir -> remove_older
//!  append: room -> frame -> sync
//!  load:   highest number -> frames -> torn or corrupt? -> make_sure -> append
//! ```
//!
//! Each edit is synced before the next one is written, so only the last one can be in doubt. Bad bytes that an intact frame follows
//! had been durable, as had everything below the header's `snapshot_end`: that is corruption. Other bad bytes are what a crash left
//! of the last append, which nobody was told of.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::edit::{Edit, Part};
use super::edit_file::{self, Behind, Frames, HEADER_LEN, Header};
use crate::error::OpenError;
use crate::fs::{File, FileSystem, OpenMode, remove_if_there};
use crate::types::NodeId;

/// Bytes that are kept free behind the last edit, so that a full disk can still take edits: they are what empties it.
pub const ROOM: u64 = 1 << 20;

/// Where a file is written before it has its name.
const NEXT_FILE_NAME: &str = "edits.new";

/// The open manifest of a shard.
#[derive(Debug)]
pub struct EditLog {
    dir: PathBuf,
    path: PathBuf,
    file: Arc<dyn File>,
    header: Header,
    /// First byte behind the last edit.
    end: u64,
    /// Bytes of the file that the disk has room for; at least `end`.
    allocated: u64,
    /// Sequence of the last edit.
    sequence: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// All edits are durable.
    Sound,
    /// Read from disk, and not made sure yet.
    InDoubt(Tail),
    /// A write or a sync failed.
    Broken,
}

/// How a file that was read ended.
#[derive(Debug)]
struct Tail {
    /// The last frame, as it was read.
    frame: Vec<u8>,
    /// Bytes of another one follow.
    torn: bool,
    /// The file's length.
    len: u64,
}

/// Why an edit, or a new file, was not made durable.
#[derive(Debug, thiserror::Error)]
pub enum AppendFailed {
    /// There is no room for it. Nothing happened; come again.
    #[error("no space for the shard's manifest: {0}")]
    NoSpace(#[source] io::Error),
    /// It may be on disk all the same. Final until a restart.
    #[error("the shard's manifest cannot be written: {0}")]
    Broken(#[source] io::Error),
}

impl EditLog {
    /// Writes a new file with a snapshot, which takes the place of those with lower numbers; after a crash it is there whole or not
    /// at all. The edits are a snapshot, in one part or several.
    ///
    /// # Errors
    /// [`AppendFailed::NoSpace`] leaves the older file as the one that counts. After [`AppendFailed::Broken`] either may count, and
    /// nothing may be appended to the older one: it would be lost if the new one turned up.
    pub fn create(
        fs: &dyn FileSystem,
        dir: &Path,
        shard: u32,
        node: NodeId,
        number: u64,
        edits: &[Edit],
    ) -> Result<Self, AppendFailed> {
        let next = dir.join(NEXT_FILE_NAME);
        let mut header = Header { shard, number, node, salt: rand::random(), snapshot_end: 0 };
        let (file, allocated) = Self::write_new(fs, &next, &mut header, edits).map_err(|error| {
            // Best effort: its space is missed now, its name at the next time only.
            let _ = fs.remove(&next);
            if is_full(&error) { AppendFailed::NoSpace(error) } else { AppendFailed::Broken(error) }
        })?;
        let path = dir.join(edit_file::file_name(number));
        fs.rename(&next, &path).map_err(AppendFailed::Broken)?;
        // MUST BEFORE the older file goes and before anything is appended: without its directory entry the file is not found again.
        fs.sync_dir(dir).map_err(AppendFailed::Broken)?;
        let end = header.snapshot_end;
        let sequence = edits.last().map_or(0, |edit| edit.sequence);
        Ok(Self { dir: dir.to_owned(), path, file, header, end, allocated, sequence, state: State::Sound })
    }

    /// Writes and syncs header and edits; answers how many bytes the disk has room for.
    fn write_new(
        fs: &dyn FileSystem,
        next: &Path,
        header: &mut Header,
        edits: &[Edit],
    ) -> io::Result<(Arc<dyn File>, u64)> {
        remove_if_there(fs, next)?;
        let file = fs.create(next)?;
        let mut end = HEADER_LEN;
        let mut previous = None;
        for edit in edits {
            // MUST BEFORE it is written: a file that loading refuses keeps the node from ever starting again.
            follows(previous, edit).map_err(invalid)?;
            if edit.part == Part::Delta {
                return Err(invalid("a snapshot was to be written".to_owned()));
            }
            previous = Some((edit.sequence, edit.part));
            let frame = edit_file::encode_frame(edit, end, header.salt).map_err(|error| invalid(error.to_string()))?;
            file.write_all_at(&frame, end)?;
            end += frame.len() as u64;
        }
        if previous.is_none() {
            return Err(invalid("a snapshot of no edits".to_owned()));
        }
        header.snapshot_end = end;
        file.write_all_at(&header.encode(), 0)?;
        // Without room now, the next edit needs room then.
        let allocated = if file.allocate(end + ROOM).is_ok() { end + ROOM } else { end };
        // MUST BEFORE the rename: a name whose bytes are not on disk is a manifest that loading refuses.
        file.sync_data()?;
        Ok((file, allocated))
    }

    /// Reads the shard's manifest, the file with the highest number, calling `visit` for each edit in order; none if there is none.
    /// Nothing is changed on disk. [`Self::make_sure`] MUST BE called before anything is done on the word of what was read.
    ///
    /// # Errors
    /// Corruption, a file of another shard or node, an I/O error, or what `visit` reports (with its position).
    pub fn load(
        fs: &dyn FileSystem,
        dir: &Path,
        shard: u32,
        node: NodeId,
        mut visit: impl FnMut(Edit) -> Result<(), String>,
    ) -> Result<Option<Self>, OpenError> {
        let names = fs.list(dir).map_err(OpenError::io(format!("listing {}", dir.display())))?;
        let Some(number) = names.iter().filter_map(|name| edit_file::parse_file_name(name)).max() else {
            return Ok(None);
        };
        let path = dir.join(edit_file::file_name(number));
        let reading = || OpenError::io(format!("reading {}", path.display()));
        let corrupt = |offset, what| OpenError::Corrupt { path: path.clone(), offset, what };
        let file = fs.open(&path, OpenMode::ReadWrite).map_err(reading())?;
        let header = edit_file::read_header(&*file, &path)?;
        if (header.node, header.shard, header.number) != (node, shard, number) {
            let what = format!("written by node {} as number {} of shard {}", header.node, header.number, header.shard);
            return Err(OpenError::Layout { path, what });
        }
        let frames = Frames { file: &*file, salt: header.salt, len: file.len().map_err(reading())? };
        let mut end = HEADER_LEN;
        let mut previous = None;
        let (mut frame, mut last) = (Vec::new(), Vec::new());
        while frames.read(end, &mut frame).map_err(reading())? {
            let edit = edit_file::decode_frame(&frame).ok_or_else(|| corrupt(end, "not an edit".to_owned()))?;
            follows(previous, &edit).map_err(|what| corrupt(end, what))?;
            previous = Some((edit.sequence, edit.part));
            visit(edit).map_err(|what| corrupt(end, what))?;
            end += frame.len() as u64;
            std::mem::swap(&mut frame, &mut last);
        }
        let sequence = previous.map_or(0, |(sequence, _)| sequence);
        if end < header.snapshot_end {
            return Err(corrupt(end, "an edit that had been durable is unreadable".to_owned()));
        }
        let torn = match frames.search(end, sequence + 1).map_err(reading())? {
            Behind::Frame(at) => {
                let what = format!("an edit that had been durable is unreadable, and another one follows at byte {at}");
                return Err(corrupt(end, what));
            }
            Behind::Remains => true,
            Behind::Zeros => false,
        };
        let state = State::InDoubt(Tail { frame: last, torn, len: frames.len });
        Ok(Some(Self { dir: dir.to_owned(), path, file, header, end, allocated: end, sequence, state }))
    }

    /// Makes durable what [`Self::load`] read. MUST BEFORE anything is done on its word, be it an append, a segment that is recycled
    /// or a lane file that is removed: after a failed sync the last edit may be in the page cache only, where a start that follows
    /// reads it and where no later sync writes it, for its pages count as clean. So its bytes are written again. What is left behind
    /// it of a torn one is cut off, so that nothing is ever appended behind bad bytes, which would look like corruption. The name is
    /// made durable as well, in case the start before could not. Does nothing for a file that was created or made sure.
    ///
    /// # Errors
    /// The I/O error; final until a restart.
    pub fn make_sure(&mut self, fs: &dyn FileSystem) -> io::Result<()> {
        match std::mem::replace(&mut self.state, State::Broken) {
            State::Sound => {}
            State::InDoubt(tail) => self.rewrite(fs, &tail)?,
            State::Broken => return Err(io::Error::other("the shard's manifest failed before")),
        }
        self.state = State::Sound;
        Ok(())
    }

    fn rewrite(&mut self, fs: &dyn FileSystem, tail: &Tail) -> io::Result<()> {
        self.file.write_all_at(&tail.frame, self.end - tail.frame.len() as u64)?;
        // Zeros stay: they are the room that was kept, and a full disk would not give it again.
        let kept = if tail.torn { self.end } else { tail.len.max(self.end) };
        if tail.torn {
            self.file.truncate(self.end)?;
        }
        let roomy = kept.max(self.end + ROOM);
        self.allocated = [roomy, kept].into_iter().find(|len| self.file.allocate(*len).is_ok()).unwrap_or(self.end);
        self.file.sync_data()?;
        fs.sync_dir(&self.dir)
    }

    /// Makes an edit durable behind the others.
    ///
    /// # Errors
    /// Whether anything happened is in the error. An edit that is not the next one, or not a delta, or could not be read back, is
    /// [`AppendFailed::Broken`] without a byte written: it will not get better.
    pub fn append(&mut self, edit: &Edit) -> Result<(), AppendFailed> {
        if !matches!(self.state, State::Sound) {
            let what = "the shard's manifest failed before, or is not made sure";
            return Err(AppendFailed::Broken(io::Error::other(what)));
        }
        let frame = self.frame(edit).map_err(AppendFailed::Broken)?;
        let end = self.end + frame.len() as u64;
        self.make_room(end).map_err(AppendFailed::NoSpace)?;
        let written = self.file.write_all_at(&frame, self.end).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // MUST BEFORE the next append: it would go behind bad bytes, or over an edit that is durable after all.
            self.state = State::Broken;
            return Err(AppendFailed::Broken(error));
        }
        self.end = end;
        self.sequence = edit.sequence;
        Ok(())
    }

    fn frame(&self, edit: &Edit) -> io::Result<Vec<u8>> {
        if edit.part != Part::Delta {
            return Err(invalid("a snapshot is written into a new file".to_owned()));
        }
        follows(Some((self.sequence, Part::Delta)), edit).map_err(invalid)?;
        edit_file::encode_frame(edit, self.end, self.header.salt).map_err(|error| invalid(error.to_string()))
    }

    /// Makes room up to `end`, and beyond it for the edits to come. An error only if there is none up to `end`.
    fn make_room(&mut self, end: u64) -> io::Result<()> {
        if end + ROOM <= self.allocated {
            return Ok(());
        }
        // Twice the room, so that not every edit changes the file's length.
        let result = self.file.allocate(end + 2 * ROOM).map(|()| end + 2 * ROOM);
        let result = result.or_else(|_| self.file.allocate(end + ROOM).map(|()| end + ROOM));
        match result {
            Ok(allocated) => self.allocated = allocated,
            Err(_) if end <= self.allocated => {}
            Err(_) => {
                self.file.allocate(end)?;
                self.allocated = end;
            }
        }
        Ok(())
    }

    /// Removes the files that this one has taken the place of, and what an interrupted creation left.
    ///
    /// # Errors
    /// The I/O error; a next call goes on.
    pub fn remove_older(&self, fs: &dyn FileSystem) -> io::Result<()> {
        if !matches!(self.state, State::Sound) {
            return Err(io::Error::other("the file that takes the place of older ones is not made sure"));
        }
        let older = |name: &String| edit_file::parse_file_name(name).is_some_and(|n| n < self.header.number);
        let names = fs.list(&self.dir)?;
        let leftovers: Vec<_> = names.iter().filter(|name| older(name) || *name == NEXT_FILE_NAME).collect();
        for name in &leftovers {
            fs.remove(&self.dir.join(name))?;
        }
        if leftovers.is_empty() { Ok(()) } else { fs.sync_dir(&self.dir) }
    }

    /// Bytes up to the end of the last edit; the room behind it does not count.
    pub fn len_bytes(&self) -> u64 {
        self.end
    }

    /// Bytes when it was created.
    pub fn snapshot_bytes(&self) -> u64 {
        self.header.snapshot_end
    }

    /// The file's number; a next file needs a higher one.
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// Sequence of the last edit; the next one has the next, in this file or in a new one.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether bytes of another edit, not intact, were read behind the last one.
    pub fn is_torn(&self) -> bool {
        matches!(&self.state, State::InDoubt(tail) if tail.torn)
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether an edit may stand behind another one, of which sequence and part are given; or at a file's beginning.
fn follows(previous: Option<(u64, Part)>, edit: &Edit) -> Result<(), String> {
    let in_place = match (previous, edit.part) {
        (None, part) => part == Part::SnapshotBegin,
        (Some(_), Part::SnapshotBegin) => false,
        (Some((_, before)), Part::SnapshotMore) => before != Part::Delta,
        (Some(_), Part::Delta) => true,
    };
    if !in_place {
        return Err(format!("edit {} is not where a part of its kind may be", edit.sequence));
    }
    let expected = previous.map_or(edit.sequence.max(1), |(sequence, _)| sequence.saturating_add(1));
    if edit.sequence == expected { Ok(()) } else { Err(format!("edit {} where {expected} is due", edit.sequence)) }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests;
