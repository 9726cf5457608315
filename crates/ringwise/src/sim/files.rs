//! The simulation's open files, and the real descriptors that stand for them.
//!
//! A [`Descriptor`](crate::Descriptor) owns a number of this process, closes it and hands it out,
//! so each simulated open file has a real one: a stream socket that was never connected. That is
//! sound where numbers of the simulation's own making are not: it can be no other file's, it
//! closes and duplicates like any other, and `into_file` gives something that fails each call
//! (`EINVAL`, `ENOTCONN`) instead of reaching a stranger's file. The file behind a number is found by
//! the socket's own number, which it keeps through dup(2); the kernel counts these numbers up, and one
//! comes again after 2^32 others (fs/inode.c, get_next_ino).
//!
//! A simulated socket has such a placeholder too, which leads to an endpoint of the network.
//!
//! An unconnected socket always has something to report (unix(7) hangs up), and leaves an epoll
//! set when its last descriptor is closed: so the set tells which files are still open, without a
//! hook in any destructor and without a second descriptor for each.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    event::epoll,
    fs::fstat,
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
};

use crate::{
    descriptor::closing,
    sim::{action::FileId, disk::Inode, network::EndpointId},
};

/// Tells one socket, or any other kind of file, from all others.
pub(crate) type Identity = (u64, u64);

/// The identity of an open descriptor, or none where it cannot be looked at.
pub(crate) fn identity(fd: impl AsFd) -> Option<Identity> {
    fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// An open file description.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) inode: Inode,
    pub(crate) flags: i32,
    /// The power failed since it was opened.
    pub(crate) dead: bool,
    /// The name that was read last of an open directory.
    pub(crate) last_name: Option<Vec<u8>>,
    identity: Identity,
}

impl OpenFile {
    pub(crate) fn has(&self, flag: i32) -> bool {
        self.flags & flag == flag
    }

    pub(crate) fn reads(&self) -> bool {
        let mode = self.flags & libc::O_ACCMODE;
        !self.has(libc::O_PATH) && (mode == libc::O_RDONLY || mode == libc::O_RDWR)
    }

    pub(crate) fn writes(&self) -> bool {
        let mode = self.flags & libc::O_ACCMODE;
        !self.has(libc::O_PATH) && (mode == libc::O_WRONLY || mode == libc::O_RDWR)
    }
}

/// All open files.
#[derive(Debug, Default)]
pub(crate) struct Files {
    open: BTreeMap<FileId, OpenFile>,
    ids: BTreeMap<Identity, FileId>,
    /// Which of the open are sockets, and their end of the network.
    sockets: BTreeMap<FileId, (EndpointId, Identity)>,
    /// Endpoints that no descriptor leads to any more.
    closed: Vec<EndpointId>,
    /// How many descriptors this process had closed when the last look was taken.
    swept_at: u64,
    /// Made with the first file.
    set: Option<OwnedFd>,
    opened: u64,
    sweep_at: usize,
}

impl Files {
    /// Opens a file on the disk's `inode`, and gives the descriptor that stands for it.
    pub(crate) fn open(&mut self, inode: Inode, flags: i32) -> Result<OwnedFd, i32> {
        let (id, identity, placeholder) = self.hold_a_place()?;
        self.open.insert(id, OpenFile { inode, flags, dead: false, last_name: None, identity });
        Ok(placeholder)
    }

    /// Gives the descriptor that stands for an endpoint of the network.
    pub(crate) fn open_socket(&mut self, endpoint: EndpointId) -> Result<OwnedFd, i32> {
        let (id, identity, placeholder) = self.hold_a_place()?;
        self.sockets.insert(id, (endpoint, identity));
        Ok(placeholder)
    }

    fn hold_a_place(&mut self) -> Result<(FileId, Identity, OwnedFd), i32> {
        let raw = |errno: rustix::io::Errno| errno.raw_os_error();
        if self.open.len() + self.sockets.len() >= self.sweep_at {
            self.sweep();
        }
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let placeholder = socket_with(family, kind, SocketFlags::CLOEXEC, None).map_err(raw)?;
        let identity = identity(&placeholder).ok_or(libc::ENFILE)?;
        if self.set.is_none() {
            self.set = Some(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(raw)?);
        }
        let set = self.set.as_ref().expect("made just now");
        let id = self.opened;
        let data = epoll::EventData::new_u64(id);
        epoll::add(set, &placeholder, data, epoll::EventFlags::empty()).map_err(raw)?;
        self.opened += 1;
        // A socket of the same number was closed, or this one could not have it.
        if let Some(closed) = self.ids.insert(identity, id) {
            self.open.remove(&closed);
            self.closed.extend(self.sockets.remove(&closed).map(|(endpoint, _)| endpoint));
        }
        Ok((id, identity, placeholder))
    }

    /// The number of the file that was opened last.
    pub(crate) fn last_opened(&self) -> FileId {
        self.opened.saturating_sub(1)
    }

    /// The file that a descriptor stands for, if it is one of the simulation's.
    pub(crate) fn find(&self, identity: Identity) -> Option<FileId> {
        self.ids.get(&identity).copied()
    }

    /// The endpoint that a file is, if it is a socket.
    pub(crate) fn endpoint(&self, id: FileId) -> Option<EndpointId> {
        self.sockets.get(&id).map(|(endpoint, _)| *endpoint)
    }

    /// Endpoints whose last descriptor has closed since this was last asked. `thoroughly`: by
    /// whomever; else only where the library has closed one.
    pub(crate) fn take_closed(&mut self, thoroughly: bool) -> Vec<EndpointId> {
        let count = closing::count();
        if !self.sockets.is_empty() && (thoroughly || count != self.swept_at) {
            self.swept_at = count;
            self.sweep();
        }
        std::mem::take(&mut self.closed)
    }

    /// All sockets that a descriptor leads to.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = EndpointId> + '_ {
        self.sockets.values().map(|(endpoint, _)| *endpoint)
    }

    /// An open file; `EIO` where the power has failed since.
    pub(crate) fn get(&self, id: FileId) -> Result<&OpenFile, i32> {
        if self.sockets.contains_key(&id) {
            // What a socket answers to whoever takes it for a file.
            return Err(libc::EINVAL);
        }
        let file = self.open.get(&id).ok_or(libc::EBADF)?;
        if file.dead { Err(libc::EIO) } else { Ok(file) }
    }

    /// Names up to this one were read of an open directory.
    pub(crate) fn set_last_name(&mut self, id: FileId, name: Vec<u8>) {
        if let Some(file) = self.open.get_mut(&id) {
            file.last_name = Some(name);
        }
    }

    /// What is open: how often each file is.
    pub(crate) fn count(&mut self, inode: Inode) -> usize {
        self.sweep();
        self.open.values().filter(|file| !file.dead && file.inode == inode).count()
    }

    /// What descriptors lead to, after a crash nothing any more.
    pub(crate) fn inodes(&mut self) -> BTreeSet<Inode> {
        self.sweep();
        self.open.values().filter(|file| !file.dead).map(|file| file.inode).collect()
    }

    /// The power fails: no descriptor leads anywhere any more.
    pub(crate) fn kill_all(&mut self) {
        for file in self.open.values_mut() {
            file.dead = true;
        }
    }

    /// Forgets files whose last descriptor was closed.
    fn sweep(&mut self) {
        if let Some(set) = &self.set
            && let Some(alive) = reported(set, self.open.len() + self.sockets.len() + 1)
        {
            self.open.retain(|id, _| alive.contains(id));
            let closed = &mut self.closed;
            self.sockets.retain(|id, (endpoint, _)| {
                let is_open = alive.contains(id);
                closed.extend((!is_open).then_some(*endpoint));
                is_open
            });
            let (open, sockets) = (&self.open, &self.sockets);
            let holder = |id: &FileId| {
                let file = open.get(id).map(|file| file.identity);
                file.or_else(|| sockets.get(id).map(|(_, identity)| *identity))
            };
            self.ids.retain(|identity, id| holder(id) == Some(*identity));
        }
        self.sweep_at = 2 * (self.open.len() + self.sockets.len()) + 64;
    }
}

/// What an epoll set reports: everything in it.
fn reported(set: &OwnedFd, most: usize) -> Option<BTreeSet<FileId>> {
    let mut events = Vec::with_capacity(most);
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let buffer = rustix::buffer::spare_capacity(&mut events);
    epoll::wait(set, buffer, Some(&at_once)).ok()?;
    Some(events.iter().map(|event| event.data.u64()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_open_until_its_last_descriptor_is_closed() {
        let mut files = Files::default();
        let first = files.open(7, libc::O_RDONLY).unwrap();
        let second = files.open(7, libc::O_RDONLY).unwrap();
        assert_eq!(files.count(7), 2);
        let copy = first.try_clone().unwrap();
        assert_eq!(files.find(identity(&copy).unwrap()), files.find(identity(&first).unwrap()));
        drop(first);
        assert_eq!(files.count(7), 2, "a duplicate holds it open");
        drop(copy);
        assert_eq!(files.count(7), 1);
        drop(second);
        assert_eq!((files.count(7), files.ids.len()), (0, 0));
    }

    #[test]
    fn a_placeholder_gives_and_takes_nothing() {
        use std::io::{Read, Write};
        let placeholder = Files::default().open(7, libc::O_RDWR).unwrap();
        let mut file = std::fs::File::from(placeholder);
        assert!(file.read(&mut [0; 8]).is_err());
        assert!(file.write(b"lost").is_err());
    }
}
