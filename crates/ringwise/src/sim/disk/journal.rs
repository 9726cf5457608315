//! Changes of names that no directory sync has made durable, and which of them may be kept.
//!
//! POSIX promises nothing of a name until its directory was synced, and file systems differ. The
//! rules here are the weakest that real ones keep: each change happens as a whole or not at all; of
//! two changes to one name, or to names of one file, the later is never kept without the earlier;
//! what moves a file is not kept without the directories that were made or moved before it; and
//! the removal of a directory is not kept without what emptied it. So a file that had a name at any
//! time, and whose first name was durable, is never lost. Everything else may be kept in any combination.

use std::collections::BTreeSet;

/// The number of a file, directory or link.
pub(crate) type Inode = u64;

/// One name's new meaning.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) directory: Inode,
    pub(crate) name: Vec<u8>,
    pub(crate) to: Option<Inode>,
}

/// What one operation did to names.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) entries: Vec<Entry>,
    /// What bears or bore the names.
    pub(crate) inodes: Vec<Inode>,
    /// Whether it takes a name from what has another afterwards, which has to be kept.
    pub(crate) moves: bool,
    /// Whether it makes, moves or removes a directory.
    pub(crate) of_directory: bool,
    /// The directory that it removes.
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

/// What the changes looked at so far, from the last to the first, need of earlier ones.
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

    /// What names in the journal lead, or led, to.
    pub(crate) fn inodes(&self) -> impl Iterator<Item = Inode> {
        self.0.iter().flat_map(|change| change.inodes.iter().copied())
    }

    /// Takes out the changes in a directory, with all that they need.
    pub(crate) fn take_directory(&mut self, directory: Inode) -> Vec<Change> {
        let wanted = self.closure(|change| change.touches(directory));
        self.take(&wanted)
    }

    /// Takes out a choice of changes that `keep` makes, with all that they need.
    pub(crate) fn take_some(&mut self, keep: impl FnMut(&Change) -> bool) -> Vec<Change> {
        let wanted = self.closure(keep);
        self.take(&wanted)
    }

    /// Forgets the changes in a directory: they never become durable by themselves.
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
