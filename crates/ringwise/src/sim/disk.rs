//! The simulated disk: files, directories and links, and what of them survives a loss of power.
//!
//! One file system in memory, shared by the loops of a simulation. It answers as Linux does on a
//! local file system, for a user who may do everything: permissions are kept and not checked. What
//! was synced is told from what was not: a file's bytes in `content`, names in `journal`. Faults,
//! time and open descriptors are the world's.

pub(crate) mod content;
mod files;
mod journal;
mod names;
mod path;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use content::{Content, Remains, survival};
pub(crate) use journal::Inode;
use journal::{Change, Journal};
pub(crate) use path::Ending;

use crate::sim::random::Random;

/// 2020-09-13: when every simulation begins, in seconds since 1970.
const EPOCH_S: u64 = 1_600_000_000;
/// The umask of the simulated process.
const UMASK: u32 = 0o022;

/// What a number leads to.
#[derive(Debug)]
enum Node {
    File(Content),
    Directory(Directory),
    Link(Vec<u8>),
}

/// A directory's names: as they are now, and as they certainly are on the disk.
#[derive(Debug, Default)]
struct Directory {
    now: BTreeMap<Vec<u8>, Inode>,
    durable: BTreeMap<Vec<u8>, Inode>,
    parent: Inode,
}

/// A file, directory or link.
#[derive(Debug)]
struct File {
    node: Node,
    permissions: u32,
    links: u32,
    /// Nanoseconds since the simulation began.
    created_ns: u64,
    modified_ns: u64,
    changed_ns: u64,
}

/// What a crash left.
#[derive(Debug)]
pub(crate) struct Left {
    /// Changes of names that were not durable, and how many of them were kept.
    pub(crate) changes: usize,
    pub(crate) kept: usize,
    /// The files that were not synced, by a path from before, and what is left of each.
    pub(crate) files: Vec<(Vec<u8>, Remains)>,
}

/// The disk.
#[derive(Debug)]
pub(crate) struct Disk {
    inodes: BTreeMap<Inode, File>,
    journal: Journal,
    root: Inode,
    next: Inode,
    /// What the clock shows.
    now_ns: u64,
    /// How many numbers there may be before the unreachable are looked for.
    collect_at: usize,
}

impl Disk {
    pub(crate) fn new() -> Disk {
        const ROOT: Inode = 2;
        let mut disk = Disk {
            inodes: BTreeMap::new(),
            journal: Journal::default(),
            root: ROOT,
            next: ROOT,
            now_ns: 0,
            collect_at: 1024,
        };
        let root =
            disk.make(Node::Directory(Directory { parent: ROOT, ..Directory::default() }), 0o755);
        disk.inodes.get_mut(&root).expect("made just now").links = 2;
        disk
    }

    pub(crate) fn root(&self) -> Inode {
        self.root
    }

    pub(crate) fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Makes the names of one file durable, without a sync.
    pub(crate) fn settle(&mut self, inode: Inode) {
        let changes = self.journal.take_some(|change| change.inodes.contains(&inode));
        self.apply(&changes);
    }

    /// The power fails and comes back: what the disk kept is all there is.
    pub(crate) fn crash(&mut self, random: &mut Random) -> Left {
        let changes = self.journal.len();
        let paths = self.paths();
        let mut files = Vec::new();
        let likely = survival(random);
        let kept = self.journal.take_some(|_| random.chance(likely));
        self.journal.clear();
        self.apply(&kept);
        for (inode, file) in &mut self.inodes {
            match &mut file.node {
                Node::File(content) => {
                    let path = || paths.get(inode).cloned().unwrap_or_default();
                    files.extend(content.crash(random).map(|remains| (path(), remains)));
                }
                Node::Directory(directory) => directory.now = directory.durable.clone(),
                Node::Link(_) => {}
            }
        }
        self.recount();
        self.collect(&BTreeSet::new());
        Left { kept: kept.len(), changes, files }
    }

    /// A path to each thing that has one.
    fn paths(&self) -> BTreeMap<Inode, Vec<u8>> {
        let mut paths = BTreeMap::from([(self.root, Vec::new())]);
        let mut queue = vec![self.root];
        while let Some(at) = queue.pop() {
            let Ok(directory) = self.directory(at) else { continue };
            for (name, inode) in &directory.now {
                let path = [&paths[&at], b"/".as_slice(), name].concat();
                if !paths.contains_key(inode) {
                    paths.insert(*inode, path);
                    queue.push(*inode);
                }
            }
        }
        paths
    }

    /// Writes changes of names to the disk's directories.
    fn apply(&mut self, changes: &[Change]) {
        for entry in changes.iter().flat_map(|change| &change.entries) {
            let directory = self.inodes.get_mut(&entry.directory).map(|file| &mut file.node);
            let Some(Node::Directory(directory)) = directory else { continue };
            match entry.to {
                Some(inode) => directory.durable.insert(entry.name.clone(), inode),
                None => directory.durable.remove(&entry.name),
            };
        }
    }

    /// Counts the names of everything again, and finds each directory's parent, after a crash.
    fn recount(&mut self) {
        let mut names: BTreeMap<Inode, u32> = BTreeMap::new();
        let mut parents: BTreeMap<Inode, Inode> = BTreeMap::from([(self.root, self.root)]);
        let mut queue = vec![self.root];
        while let Some(at) = queue.pop() {
            let Some(Node::Directory(directory)) = self.inodes.get(&at).map(|file| &file.node)
            else {
                continue;
            };
            for inode in directory.now.values() {
                *names.entry(*inode).or_default() += 1;
                if self.is_directory(*inode) && parents.insert(*inode, at).is_none() {
                    *names.entry(at).or_default() += 1;
                    queue.push(*inode);
                }
            }
        }
        for (inode, file) in &mut self.inodes {
            let named = names.get(inode).copied().unwrap_or(0);
            file.links = named;
            if let Node::Directory(directory) = &mut file.node
                && let Some(parent) = parents.get(inode)
            {
                directory.parent = *parent;
                // A directory names itself; the root has no name beside that.
                file.links = named + 1 + u32::from(*inode == self.root);
            }
        }
    }

    /// Whether it is time to look for what nothing leads to.
    pub(crate) fn is_crowded(&self) -> bool {
        self.inodes.len() > self.collect_at
    }

    /// Forgets what no name leads to, now or after a crash, and nobody has open.
    pub(crate) fn collect(&mut self, open: &BTreeSet<Inode>) {
        let mut reached: BTreeSet<Inode> =
            open.iter().copied().chain(self.journal.inodes()).collect();
        reached.insert(self.root);
        let mut queue: Vec<Inode> = reached.iter().copied().collect();
        while let Some(at) = queue.pop() {
            let Some(Node::Directory(directory)) = self.inodes.get(&at).map(|file| &file.node)
            else {
                continue;
            };
            for inode in directory.now.values().chain(directory.durable.values()) {
                if reached.insert(*inode) {
                    queue.push(*inode);
                }
            }
        }
        self.inodes.retain(|inode, _| reached.contains(inode));
        self.collect_at = 2 * self.inodes.len() + 1024;
    }

    fn make(&mut self, node: Node, permissions: u32) -> Inode {
        let (inode, now) = (self.next, self.now_ns);
        self.next += 1;
        let file = File {
            node,
            permissions,
            links: 0,
            created_ns: now,
            modified_ns: now,
            changed_ns: now,
        };
        self.inodes.insert(inode, file);
        inode
    }

    fn file(&self, inode: Inode) -> &File {
        self.inodes.get(&inode).expect("what is named or open is not collected")
    }

    fn file_mut(&mut self, inode: Inode) -> &mut File {
        self.inodes.get_mut(&inode).expect("what is named or open is not collected")
    }

    fn directory(&self, inode: Inode) -> Result<&Directory, i32> {
        match &self.file(inode).node {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) | Node::Link(_) => Err(libc::ENOTDIR),
        }
    }

    pub(crate) fn is_directory(&self, inode: Inode) -> bool {
        self.directory(inode).is_ok()
    }

    /// The names in a directory.
    pub(crate) fn names(&self, inode: Inode) -> Result<Vec<Vec<u8>>, i32> {
        Ok(self.directory(inode)?.now.keys().cloned().collect())
    }
}
