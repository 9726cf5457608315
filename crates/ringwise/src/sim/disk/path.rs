//! Follows paths, with the kernel's errors (path_resolution(7)).

use crate::sim::disk::{Disk, Node, journal::Inode};

/// The most bytes of one name (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// The most bytes of a path with its NUL (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;
/// The most symbolic links in one path (`MAXSYMLINKS`).
const LINKS_MAX: u32 = 40;

/// The place that a path leads to.
#[derive(Debug)]
pub(crate) struct Found {
    /// The directory of the last name.
    pub(crate) directory: Inode,
    pub(crate) last: Last,
    /// The inode there, if any.
    pub(crate) inode: Option<Inode>,
    /// Whether a slash follows, so that it has to be a directory.
    pub(crate) slash: bool,
}

/// The last part of a path.
#[derive(Debug)]
pub(crate) enum Last {
    Name(Vec<u8>),
    /// `.`. Like `..` and the root itself, it cannot be made or removed.
    Here,
    Parent,
    Root,
}

/// The treatment of a link in the last part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The link is followed.
    Followed,
    /// The path means the link itself, unless a slash follows.
    Kept,
    /// The path means its last name, which is to be made, moved or removed.
    Name,
}

impl Found {
    /// Returns the inode there, or `ENOENT`.
    pub(crate) fn existing(&self) -> Result<Inode, i32> {
        self.inode.ok_or(libc::ENOENT)
    }

    /// Returns the last name, or this error if there is no name that can be changed.
    pub(crate) fn name(&self, error: i32) -> Result<&[u8], i32> {
        match &self.last {
            Last::Name(name) => Ok(name),
            Last::Here | Last::Parent | Last::Root => Err(error),
        }
    }
}

impl Disk {
    /// Follows a path from `start`.
    pub(crate) fn find(&self, start: Inode, path: &[u8], ending: Ending) -> Result<Found, i32> {
        if path.is_empty() {
            return Err(libc::ENOENT);
        }
        if path.len() >= PATH_BYTES_MAX {
            return Err(libc::ENAMETOOLONG);
        }
        self.walk(start, path, ending, LINKS_MAX)
    }

    fn walk(&self, start: Inode, path: &[u8], ending: Ending, links: u32) -> Result<Found, i32> {
        let mut at = if path.starts_with(b"/") { self.root } else { start };
        let slash = path.ends_with(b"/");
        let follow = match ending {
            Ending::Followed => true,
            Ending::Kept => slash,
            Ending::Name => false,
        };
        let mut parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let entries = self.directory(at)?;
            let is_last = parts.peek().is_none();
            if let Some(last) = dots(part) {
                let next = if matches!(last, Last::Parent) { entries.parent } else { at };
                if is_last {
                    return Ok(Found { directory: at, last, inode: Some(next), slash });
                }
                at = next;
                continue;
            }
            if part.len() > NAME_BYTES_MAX {
                return Err(libc::ENAMETOOLONG);
            }
            let inode = entries.now.get(part).copied();
            let link = inode.and_then(|inode| self.link_target(inode));
            if let Some(target) = link.filter(|_| !is_last || follow) {
                let links = links.checked_sub(1).ok_or(libc::ELOOP)?;
                let found = self.walk(at, target, Ending::Followed, links)?;
                if is_last {
                    if let Some(inode) = found.inode.filter(|_| slash) {
                        self.directory(inode)?;
                    }
                    return Ok(Found { slash: slash || found.slash, ..found });
                }
                at = found.existing()?;
                continue;
            }
            if is_last {
                if let Some(inode) = inode.filter(|_| slash && ending != Ending::Name) {
                    self.directory(inode)?;
                }
                return Ok(Found { directory: at, last: Last::Name(part.into()), inode, slash });
            }
            at = inode.ok_or(libc::ENOENT)?;
        }
        Ok(Found { directory: at, last: Last::Root, inode: Some(at), slash })
    }

    fn link_target(&self, inode: Inode) -> Option<&[u8]> {
        match self.inodes.get(&inode).map(|file| &file.node) {
            Some(Node::Link(target)) => Some(target),
            _ => None,
        }
    }
}

fn dots(part: &[u8]) -> Option<Last> {
    match part {
        b"." => Some(Last::Here),
        b".." => Some(Last::Parent),
        _ => None,
    }
}
