//! Names: what processes see, what is on disk, and the changes in between, in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use super::power::PowerLoss;

/// A file's identity while names come and go.
pub(super) type InodeId = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Directory,
    File(InodeId),
}

type Entries = BTreeMap<PathBuf, Node>;

#[derive(Debug, Clone)]
enum Change {
    Link(PathBuf, Node),
    Unlink(PathBuf),
    /// Atomic, also across directories.
    Rename(PathBuf, PathBuf, Node),
}

/// Paths are kept relative to the root, whose own is empty. A `durable` entry may lie in a directory that is not
/// durable; it is found again only if that directory is.
#[derive(Clone)]
pub(super) struct Namespace {
    current: Entries,
    durable: Entries,
    pending: Vec<Change>,
}

impl Namespace {
    pub(super) fn new() -> Self {
        Self::settled(Entries::from([(PathBuf::new(), Node::Directory)]))
    }

    fn settled(entries: Entries) -> Self {
        Self { current: entries.clone(), durable: entries, pending: Vec::new() }
    }

    /// The file at `path`.
    pub(super) fn file(&self, path: &Path) -> io::Result<InodeId> {
        match self.node(path)? {
            Node::File(id) => Ok(id),
            Node::Directory => Err(ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn directory(&self, path: &Path) -> io::Result<()> {
        match self.node(path)? {
            Node::Directory => Ok(()),
            Node::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn node(&self, path: &Path) -> io::Result<Node> {
        if let Some(above) = path.parent() {
            self.directory(above)?;
        }
        self.current.get(path).copied().ok_or_else(|| Errno::NOENT.into())
    }

    /// Whether a file may be created at `path`: its directory exists and its name is free.
    pub(super) fn vacant(&self, path: &Path) -> io::Result<()> {
        match self.node(path) {
            Ok(_) => Err(Errno::EXIST.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => self.directory(parent(path)),
            Err(error) => Err(error),
        }
    }

    pub(super) fn link(&mut self, path: &Path, id: InodeId) {
        self.change(Change::Link(path.to_owned(), Node::File(id)));
    }

    pub(super) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        self.change(Change::Unlink(path.to_owned()));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let id = self.file(from)?;
        match self.file(to) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => self.directory(parent(to))?,
        }
        self.change(Change::Rename(from.to_owned(), to.to_owned(), Node::File(id)));
        Ok(())
    }

    pub(super) fn create_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        let mut above: Vec<_> = dir.ancestors().collect();
        above.reverse();
        for dir in above {
            match self.current.get(dir) {
                Some(Node::Directory) => {}
                Some(Node::File(_)) => return Err(Errno::EXIST.into()),
                None => self.change(Change::Link(dir.to_owned(), Node::Directory)),
            }
        }
        Ok(())
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.directory(dir)?;
        let inside = self.files().map(|(path, _)| path).filter(|path| parent(path) == dir);
        let names = inside.filter_map(|path| path.file_name());
        Ok(names.map(|name| name.to_str().expect("should be text: a path is checked on entry").to_owned()).collect())
    }

    /// All files, by path.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, InodeId)> {
        self.current.iter().filter_map(|(path, node)| node.file().map(|id| (path.as_path(), id)))
    }

    /// Files that may be found again after a power loss, whether or not they have a name now.
    pub(super) fn remembered(&self) -> BTreeSet<InodeId> {
        let durable = self.durable.values().filter_map(|node| node.file());
        durable.chain(self.pending.iter().filter_map(Change::file)).collect()
    }

    /// Makes the changes in `dir` durable, and what they stand on: a rename between two directories stands on the
    /// changes before it in both.
    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.directory(dir)?;
        let mut dirs = BTreeSet::from([dir.to_owned()]);
        let mut chosen = vec![false; self.pending.len()];
        for (change, chosen) in self.pending.iter().zip(&mut chosen).rev() {
            if change.parents().any(|parent| dirs.contains(parent)) {
                *chosen = true;
                dirs.extend(change.parents().map(Path::to_owned));
            }
        }
        let mut chosen = chosen.into_iter();
        let durable = &mut self.durable;
        self.pending.retain(|change| {
            let chosen = chosen.next().expect("should be one for each change");
            if chosen {
                change.apply(durable);
            }
            !chosen
        });
        Ok(())
    }

    /// The names after a power loss: of each directory, a prefix of its changes since it was synced.
    pub(super) fn after_power_loss(&self, power: &mut PowerLoss) -> Self {
        let mut entries = self.durable.clone();
        let mut cut = BTreeSet::new();
        for change in &self.pending {
            if change.parents().any(|parent| cut.contains(parent)) || !power.keep() {
                cut.extend(change.parents().map(Path::to_owned));
            } else {
                change.apply(&mut entries);
            }
        }
        let mut reachable = Entries::new();
        for (path, node) in entries {
            if path.parent().is_none_or(|above| reachable.get(above) == Some(&Node::Directory)) {
                reachable.insert(path, node);
            }
        }
        Self::settled(reachable)
    }
}

impl Node {
    fn file(self) -> Option<InodeId> {
        match self {
            Self::File(id) => Some(id),
            Self::Directory => None,
        }
    }
}

impl Change {
    fn apply(&self, entries: &mut Entries) {
        match self {
            Self::Link(path, node) => {
                entries.insert(path.clone(), *node);
            }
            Self::Unlink(path) => {
                entries.remove(path);
            }
            Self::Rename(from, to, node) => {
                entries.remove(from);
                entries.insert(to.clone(), *node);
            }
        }
    }

    fn file(&self) -> Option<InodeId> {
        match self {
            Self::Link(_, node) | Self::Rename(_, _, node) => node.file(),
            Self::Unlink(_) => None,
        }
    }

    /// The directories it changes: one, or the same one twice, or two.
    fn parents(&self) -> impl Iterator<Item = &Path> {
        let (first, second) = match self {
            Self::Link(path, _) | Self::Unlink(path) => (path, None),
            Self::Rename(from, to, _) => (from, Some(to)),
        };
        std::iter::once(first).chain(second).map(|path| parent(path))
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// The form in which paths are kept: relative to the root, text, and without `.`; one with `..` is refused.
pub(super) fn normal(path: &Path) -> io::Result<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) if name.to_str().is_some() => normal.push(name),
            _ => return Err(ErrorKind::InvalidInput.into()),
        }
    }
    Ok(normal)
}
