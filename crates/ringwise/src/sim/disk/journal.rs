//! Changes of names that no directory sync has made durable, and the choice of those that a crash
//! keeps.
//!
//! POSIX promises nothing about a name until its directory is synced, and file systems differ. The
//! rules here are the weakest that real file systems keep:
//!
//! - A change is kept as a whole or not at all.
//! - Of two changes to one name, or to names of one file, the later is never kept without the
//!   earlier.
//! - A move is not kept without the directories that were made or moved before it.
//! - The removal of a directory is not kept without the changes that emptied it.
//!
//! So a file is never lost if its first name was durable and it had a name at all times. Everything
//! else may be kept in any combination.

use std::collections::BTreeSet;

/// The number of a file, directory or link.
pub(crate) type Inode = u64;

/// One name's new target.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) directory: Inode,
    pub(crate) name: Vec<u8>,
    pub(crate) to: Option<Inode>,
}

/// The changes that one operation made to names.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) entries: Vec<Entry>,
    /// The inodes that the names lead to, or led to before.
    pub(crate) inodes: Vec<Inode>,
    /// Whether it takes a name from an inode that has another name afterwards, which has to be
    /// kept.
    pub(crate) moves: bool,
    /// Whether it makes, moves or removes a directory.
    pub(crate) of_directory: bool,
    /// The directory that it removes, if any.
    pub(crate) removed: Option<Inode>,
}

impl Change {
    fn touches(&self, directory: Inode) -> bool {
        self.entries.iter().any(|entry| entry.directory == directory)
    }
}

/// All changes that are not durable, in order.
#[derive(Debug, Default)]
pub(crate) struct Journal(Vec<Change>);

/// The earlier changes that the changes seen so far need. The scan goes from the last change to the
/// first.
#[derive(Default)]
struct Needs<'a> {
    names: BTreeSet<(Inode, &'a [u8])>,
    inodes: BTreeSet<Inode>,
    emptied: BTreeSet<Inode>,
    directories: bool,
}

impl<'a> Needs<'a> {
    fn include(&self, change: &Change) -> bool {
        let by_name = change.entries.iter().any(|entry| {
            self.names.contains(&(entry.directory, entry.name.as_slice()))
                || self.emptied.contains(&entry.directory)
        });
        by_name
            || change.inodes.iter().any(|inode| self.inodes.contains(inode))
            || (self.directories && change.of_directory)
    }

    fn add(&mut self, change: &'a Change) {
        self.names.extend(change.entries.iter().map(|e| (e.directory, e.name.as_slice())));
        self.inodes.extend(&change.inodes);
        self.emptied.extend(change.removed);
        self.directories |= change.moves;
    }
}

impl Journal {
    pub(crate) fn note(&mut self, change: Change) {
        self.0.push(change);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the inodes that names in the journal lead to, or led to.
    pub(crate) fn inodes(&self) -> impl Iterator<Item = Inode> {
        self.0.iter().flat_map(|change| change.inodes.iter().copied())
    }

    /// Takes the changes in a directory, with all earlier changes that they need.
    pub(crate) fn take_directory(&mut self, directory: Inode) -> Vec<Change> {
        let wanted = self.closure(|change| change.touches(directory));
        self.take(&wanted)
    }

    /// Takes the changes that `keep` chooses, with all earlier changes that they need.
    pub(crate) fn take_some(&mut self, keep: impl FnMut(&Change) -> bool) -> Vec<Change> {
        let wanted = self.closure(keep);
        self.take(&wanted)
    }

    /// Forgets the changes in a directory, so that no later sync makes them durable.
    pub(crate) fn forget_directory(&mut self, directory: Inode) {
        self.0.retain(|change| !change.touches(directory));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn closure(&self, mut wanted: impl FnMut(&Change) -> bool) -> Vec<bool> {
        let mut taken = vec![false; self.0.len()];
        let mut needs = Needs::default();
        for (at, change) in self.0.iter().enumerate().rev() {
            if wanted(change) || needs.include(change) {
                taken[at] = true;
                needs.add(change);
            }
        }
        taken
    }

    fn take(&mut self, wanted: &[bool]) -> Vec<Change> {
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for (change, wanted) in self.0.drain(..).zip(wanted) {
            if *wanted { &mut taken } else { &mut left }.push(change);
        }
        self.0 = left;
        taken
    }
}
