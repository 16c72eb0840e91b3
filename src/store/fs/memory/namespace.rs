//! Names: what processes see, what is on disk, and the changes in between, in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use super::power::PowerLoss;

/// A file's identity while names come and go.
pub(super) type InodeId = u64;

/// A directory's identity. A path that is removed and made again is another directory, and what was in the first one is
/// not in the second. One above another has the smaller number, for directories do not move.
type DirId = u64;

const ROOT: DirId = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Directory(DirId),
    File(InodeId),
}

/// The names in each directory that has some.
type Tree = BTreeMap<DirId, BTreeMap<String, Node>>;

/// A name in a directory.
type Place = (DirId, String);

#[derive(Debug, Clone)]
enum Change {
    Link(Place, Node),
    Unlink(Place),
    /// Atomic, also across directories.
    Rename(Place, Place, Node),
}

/// A `durable` name may lie in a directory that is not durable; it is found again only if that directory is.
#[derive(Clone)]
pub(super) struct Namespace {
    current: Tree,
    durable: Tree,
    pending: Vec<Change>,
    next_dir: DirId,
}

impl Namespace {
    pub(super) fn new() -> Self {
        Self::settled(Tree::new(), ROOT + 1)
    }

    fn settled(tree: Tree, next_dir: DirId) -> Self {
        Self { current: tree.clone(), durable: tree, pending: Vec::new(), next_dir }
    }

    /// The file at `path`.
    pub(super) fn file(&self, path: &Path) -> io::Result<InodeId> {
        match self.node(path)? {
            Node::File(id) => Ok(id),
            Node::Directory(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// Whether there is a directory at `path`.
    pub(super) fn directory(&self, path: &Path) -> io::Result<()> {
        self.dir(path).map(drop)
    }

    fn dir(&self, path: &Path) -> io::Result<DirId> {
        self.node(path)?.dir().ok_or_else(|| ErrorKind::NotADirectory.into())
    }

    fn node(&self, path: &Path) -> io::Result<Node> {
        path.iter().try_fold(Node::Directory(ROOT), |above, name| {
            let above = above.dir().ok_or(ErrorKind::NotADirectory)?;
            Ok(self.at(above, text(name)).ok_or(Errno::NOENT)?)
        })
    }

    fn at(&self, dir: DirId, name: &str) -> Option<Node> {
        self.current.get(&dir)?.get(name).copied()
    }

    /// The name that `path` is, taken or not; its directory must exist. The root has none.
    fn place(&self, path: &Path) -> io::Result<Place> {
        let name = path.file_name().ok_or(Errno::BUSY)?;
        Ok((self.dir(parent(path))?, text(name).to_owned()))
    }

    /// Whether a file may be created at `path`: its directory exists and its name is free.
    pub(super) fn vacant(&self, path: &Path) -> io::Result<()> {
        match self.node(path) {
            Ok(_) => Err(Errno::EXIST.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => self.directory(parent(path)),
            Err(error) => Err(error),
        }
    }

    pub(super) fn link(&mut self, path: &Path, id: InodeId) -> io::Result<()> {
        self.change(Change::Link(self.place(path)?, Node::File(id)));
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        self.change(Change::Unlink(self.place(path)?));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let id = self.file(from)?;
        match self.file(to) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => self.directory(parent(to))?,
        }
        self.change(Change::Rename(self.place(from)?, self.place(to)?, Node::File(id)));
        Ok(())
    }

    pub(super) fn create_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        let mut above = ROOT;
        for name in dir.iter().map(text) {
            above = match self.at(above, name) {
                Some(Node::Directory(id)) => id,
                Some(Node::File(_)) => return Err(Errno::EXIST.into()),
                None => {
                    let id = self.next_dir;
                    self.next_dir += 1;
                    self.change(Change::Link((above, name.to_owned()), Node::Directory(id)));
                    id
                }
            };
        }
        Ok(())
    }

    /// Removes the names below a directory, each a change of the directory it is in, and then its own.
    pub(super) fn remove_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        match self.dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            found => {
                let (found, place) = (found?, self.place(dir)?);
                self.empty(found);
                self.change(Change::Unlink(place));
                Ok(())
            }
        }
    }

    fn empty(&mut self, dir: DirId) {
        for (name, node) in self.current.get(&dir).cloned().unwrap_or_default() {
            if let Some(below) = node.dir() {
                self.empty(below);
            }
            self.change(Change::Unlink((dir, name)));
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.names(dir, |node| node.file().is_some())
    }

    pub(super) fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.names(dir, |node| node.dir().is_some())
    }

    fn names(&self, dir: &Path, wanted: impl Fn(Node) -> bool) -> io::Result<Vec<String>> {
        let names = self.current.get(&self.dir(dir)?).into_iter().flatten();
        Ok(names.filter(|(_, node)| wanted(**node)).map(|(name, _)| name.clone()).collect())
    }

    /// All files, by path.
    pub(super) fn files(&self) -> Vec<(PathBuf, InodeId)> {
        let mut files = Vec::new();
        self.collect_files(ROOT, Path::new(""), &mut files);
        files
    }

    fn collect_files(&self, dir: DirId, path: &Path, files: &mut Vec<(PathBuf, InodeId)>) {
        for (name, node) in self.current.get(&dir).into_iter().flatten() {
            match *node {
                Node::File(id) => files.push((path.join(name), id)),
                Node::Directory(id) => self.collect_files(id, &path.join(name), files),
            }
        }
    }

    /// All files that have a name.
    pub(super) fn named(&self) -> impl Iterator<Item = InodeId> {
        nodes(&self.current).filter_map(|(_, node)| node.file())
    }

    /// Files that may be found again after a power loss, whether or not they have a name now.
    pub(super) fn remembered(&self) -> BTreeSet<InodeId> {
        let durable = nodes(&self.durable).filter_map(|(_, node)| node.file());
        durable.chain(self.pending.iter().filter_map(Change::file)).collect()
    }

    /// Makes the changes in `dir` durable, and what they stand on: a rename between two directories stands on the
    /// changes before it in both.
    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        let mut dirs = BTreeSet::from([self.dir(dir)?]);
        let mut chosen = vec![false; self.pending.len()];
        for (change, chosen) in self.pending.iter().zip(&mut chosen).rev() {
            if change.parents().any(|parent| dirs.contains(&parent)) {
                *chosen = true;
                dirs.extend(change.parents());
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
        self.forget_removed();
        Ok(())
    }

    /// Makes all changes durable.
    pub(super) fn sync_all(&mut self) {
        self.durable = self.current.clone();
        self.pending.clear();
    }

    /// Forgets what is in directories that no power loss brings back.
    fn forget_removed(&mut self) {
        let durable = nodes(&self.durable).filter_map(|(above, node)| Some((node.dir()?, above)));
        let links: BTreeMap<_, _> = durable.chain(self.pending.iter().filter_map(Change::new_dir)).collect();
        let mut reachable = BTreeSet::from([ROOT]);
        // From the smallest number up, and so from the root down.
        for (dir, above) in links {
            if reachable.contains(&above) {
                reachable.insert(dir);
            }
        }
        self.durable.retain(|dir, _| reachable.contains(dir));
        self.pending.retain(|change| change.parents().any(|parent| reachable.contains(&parent)));
    }

    /// The names after a power loss: of each directory, a prefix of its changes since it was synced.
    pub(super) fn after_power_loss(&self, power: &mut PowerLoss) -> Self {
        let mut found = self.durable.clone();
        let mut cut = BTreeSet::new();
        for change in &self.pending {
            if change.parents().any(|parent| cut.contains(&parent)) || !power.keep() {
                cut.extend(change.parents());
            } else {
                change.apply(&mut found);
            }
        }
        let (mut tree, mut dirs) = (Tree::new(), vec![ROOT]);
        while let Some(dir) = dirs.pop() {
            if let Some(names) = found.remove(&dir) {
                dirs.extend(names.values().filter_map(|node| node.dir()));
                tree.insert(dir, names);
            }
        }
        Self::settled(tree, self.next_dir)
    }
}

/// Everything that has a name, and the directory that the name is in.
fn nodes(tree: &Tree) -> impl Iterator<Item = (DirId, Node)> {
    tree.iter().flat_map(|(dir, names)| names.values().map(|node| (*dir, *node)))
}

impl Node {
    fn file(self) -> Option<InodeId> {
        match self {
            Self::File(id) => Some(id),
            Self::Directory(_) => None,
        }
    }

    fn dir(self) -> Option<DirId> {
        match self {
            Self::Directory(id) => Some(id),
            Self::File(_) => None,
        }
    }
}

impl Change {
    fn apply(&self, tree: &mut Tree) {
        match self {
            Self::Link(place, node) => insert(tree, place, *node),
            Self::Unlink(place) => remove(tree, place),
            Self::Rename(from, to, node) => {
                remove(tree, from);
                insert(tree, to, *node);
            }
        }
    }

    fn file(&self) -> Option<InodeId> {
        match self {
            Self::Link(_, node) | Self::Rename(_, _, node) => node.file(),
            Self::Unlink(_) => None,
        }
    }

    /// The directory that it makes, and the one above.
    fn new_dir(&self) -> Option<(DirId, DirId)> {
        match self {
            Self::Link((above, _), node) => Some((node.dir()?, *above)),
            Self::Unlink(_) | Self::Rename(..) => None,
        }
    }

    /// The directories it changes: one, or the same one twice, or two.
    fn parents(&self) -> impl Iterator<Item = DirId> {
        let (first, second) = match self {
            Self::Link((dir, _), _) | Self::Unlink((dir, _)) => (*dir, None),
            Self::Rename((from, _), (to, _), _) => (*from, Some(*to)),
        };
        std::iter::once(first).chain(second)
    }
}

fn insert(tree: &mut Tree, (dir, name): &Place, node: Node) {
    tree.entry(*dir).or_default().insert(name.clone(), node);
}

fn remove(tree: &mut Tree, (dir, name): &Place) {
    if let Some(names) = tree.get_mut(dir) {
        names.remove(name);
        if names.is_empty() {
            tree.remove(dir);
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn text(name: &OsStr) -> &str {
    name.to_str().expect("should be text: a path is checked on entry")
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
