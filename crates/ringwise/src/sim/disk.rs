//! The simulated disk: files, directories and links, and the parts that survive a power loss.
//!
//! It is one file system in memory, shared by the loops of a simulation. It answers as a local file
//! system on Linux answers root: it stores permissions but does not check them. `content` separates
//! a file's synced bytes from the unsynced ones; `journal` does the same for names. The world has
//! the faults, the clock and the open descriptors.

pub(crate) mod content;
mod files;
mod inspect;
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

/// The start of every simulation in seconds since 1970: 2020-09-13.
const EPOCH_S: u64 = 1_600_000_000;
/// The umask of the simulated process.
const UMASK: u32 = 0o022;

/// The content of an inode.
#[derive(Debug)]
enum Node {
    File(Content),
    Directory(Directory),
    Link(Vec<u8>),
}

/// A directory's names: the current ones, and those that are certainly on the disk.
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

/// The state of the disk after a crash, for the trace.
#[derive(Debug)]
pub(crate) struct Left {
    /// The number of changes of names that were not durable, and how many of them were kept.
    pub(crate) changes: usize,
    pub(crate) kept: usize,
    /// The unsynced files, each with a path from before the crash and its remains.
    pub(crate) files: Vec<(Vec<u8>, Remains)>,
}

/// The disk.
#[derive(Debug)]
pub(crate) struct Disk {
    inodes: BTreeMap<Inode, File>,
    journal: Journal,
    root: Inode,
    next: Inode,
    /// The time on the clock.
    now_ns: u64,
    /// The number of inodes above which the unreachable ones are collected.
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

    /// Loses everything that the disk did not keep, as if the power failed and came back.
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

    /// Returns a path to each inode that has one.
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

    /// Makes changes of names durable.
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

    /// Counts all links again and finds each directory's parent, after a crash.
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
                // A directory's `.` is a link to it. The root has one more link, in place of a name
                // in a parent.
                file.links = named + 1 + u32::from(*inode == self.root);
            }
        }
    }

    /// Returns whether it is time to collect unreachable inodes.
    pub(crate) fn is_crowded(&self) -> bool {
        self.inodes.len() > self.collect_at
    }

    /// Forgets inodes that are not open and that no name leads to, now or after a crash.
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
        self.inodes.get(&inode).expect("an inode that is named or open is never collected")
    }

    fn file_mut(&mut self, inode: Inode) -> &mut File {
        self.inodes.get_mut(&inode).expect("an inode that is named or open is never collected")
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
