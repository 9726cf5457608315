//! The simulation's open files, and the real descriptors that stand for them.
//!
//! A [`Descriptor`](crate::Descriptor) owns a descriptor number of this process, closes it and
//! hands it out. So each simulated open file has a real descriptor, its placeholder: a stream
//! socket that was never connected. Invented numbers would not be sound. A real descriptor belongs
//! to no other file, and it can be closed and duplicated like any other. `into_file` gives a file
//! whose calls all fail (`EINVAL`, `ENOTCONN`), and never a stranger's file.
//!
//! The socket's inode number identifies the simulated file, since dup(2) keeps it. The kernel
//! counts these numbers up, and a number comes again after 2^32 others (fs/inode.c, get_next_ino).
//!
//! A simulated socket has such a placeholder too. It stands for an endpoint of the network.
//!
//! An epoll set tells which files are still open, without a hook in any destructor and without a
//! second descriptor for each file. An unconnected unix(7) socket always reports an event, a
//! hang-up, and leaves the set when its last descriptor is closed.
//!
//! The child of a fork has all descriptors until its program begins, and what it alone has is closed
//! here. So after the library has closed a descriptor, sockets that the set reports are also looked
//! for among the descriptors of this process.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
};

use rustix::{
    event::epoll,
    fs::{fstat, stat},
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
};

use crate::{
    descriptor::closing,
    sim::{action::FileId, disk::Inode, network::EndpointId},
};

/// Distinguishes a socket or other file from all others.
pub(crate) type Identity = (u64, u64);

/// Returns the identity of an open descriptor, or nothing if fstat(2) fails.
pub(crate) fn identity(fd: impl AsFd) -> Option<Identity> {
    fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// The descriptor that stands for a file.
#[derive(Clone, Copy, Debug)]
struct Placeholder {
    identity: Identity,
    /// Its number, or that of a duplicate. It may be closed, and another file's by now.
    number: RawFd,
}

impl Placeholder {
    /// Returns whether this process has it open under its number.
    fn is_in_place(&self) -> bool {
        let found = stat(format!("/proc/thread-self/fd/{}", self.number)).ok();
        found.is_some_and(|found| (found.st_dev, found.st_ino) == self.identity)
    }

    /// Returns whether this process has it open, and learns under which number. Without /proc it
    /// counts as open.
    fn is_held(&mut self) -> bool {
        if self.is_in_place() {
            return true;
        }
        let Ok(names) = std::fs::read_dir("/proc/thread-self/fd") else { return true };
        let numbers = names.filter_map(|name| name.ok()?.file_name().to_str()?.parse().ok());
        let held = numbers.map(|number| Placeholder { number, ..*self }).find(Self::is_in_place);
        *self = held.unwrap_or(*self);
        held.is_some()
    }
}

/// An open file description.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) inode: Inode,
    pub(crate) flags: i32,
    /// Whether the power has failed since it was opened.
    pub(crate) dead: bool,
    /// The last name that was read from an open directory.
    pub(crate) last_name: Option<Vec<u8>>,
    placeholder: Placeholder,
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
    /// The open sockets and their endpoints.
    sockets: BTreeMap<FileId, (EndpointId, Placeholder)>,
    /// Endpoints whose last descriptor is closed.
    closed: Vec<EndpointId>,
    /// Sockets that are closed here, and that a child process still keeps in the set.
    strays: BTreeSet<FileId>,
    /// The files that hold a lock, by what they lock.
    locks: BTreeMap<Inode, FileId>,
    /// The count of closed descriptors when sockets were last looked for in this process.
    looked_at: u64,
    /// The count of closed descriptors at the last sweep of `take_closed`.
    swept_at: u64,
    /// The epoll set. Made with the first file.
    set: Option<OwnedFd>,
    opened: u64,
    sweep_at: usize,
}

impl Files {
    /// Opens the disk's `inode`, and returns the placeholder.
    pub(crate) fn open(&mut self, inode: Inode, flags: i32) -> Result<OwnedFd, i32> {
        let (id, placeholder, owned) = self.hold_a_place()?;
        self.open.insert(id, OpenFile { inode, flags, dead: false, last_name: None, placeholder });
        Ok(owned)
    }

    /// Opens an endpoint of the network, and returns the placeholder.
    pub(crate) fn open_socket(&mut self, endpoint: EndpointId) -> Result<OwnedFd, i32> {
        let (id, placeholder, owned) = self.hold_a_place()?;
        self.sockets.insert(id, (endpoint, placeholder));
        Ok(owned)
    }

    fn hold_a_place(&mut self) -> Result<(FileId, Placeholder, OwnedFd), i32> {
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
        // An older socket had this number, so that socket is closed.
        if let Some(closed) = self.ids.insert(identity, id) {
            self.open.remove(&closed);
            self.closed.extend(self.sockets.remove(&closed).map(|(endpoint, _)| endpoint));
        }
        Ok((id, Placeholder { identity, number: placeholder.as_raw_fd() }, placeholder))
    }

    /// Returns the number of the file that was opened last.
    pub(crate) fn last_opened(&self) -> FileId {
        self.opened.saturating_sub(1)
    }

    /// Returns the file that a descriptor stands for, if it is one of the simulation's.
    pub(crate) fn find(&self, identity: Identity) -> Option<FileId> {
        self.ids.get(&identity).copied()
    }

    /// Returns the endpoint of a file, if the file is a socket.
    pub(crate) fn endpoint(&self, id: FileId) -> Option<EndpointId> {
        self.sockets.get(&id).map(|(endpoint, _)| *endpoint)
    }

    /// Takes the endpoints whose last descriptor has closed since the last call. Without
    /// `thoroughly` this looks only if the library has closed a descriptor since then.
    pub(crate) fn take_closed(&mut self, thoroughly: bool) -> Vec<EndpointId> {
        let count = closing::count();
        if !self.sockets.is_empty() && (thoroughly || count != self.swept_at) {
            self.swept_at = count;
            self.sweep();
            if count != self.looked_at {
                self.looked_at = count;
                self.look_for_sockets();
            }
        }
        std::mem::take(&mut self.closed)
    }

    /// Notes that an operation has closed a descriptor.
    pub(crate) fn note_close(&mut self) {
        self.looked_at = u64::MAX;
    }

    /// Closes the sockets that only a child process has.
    fn look_for_sockets(&mut self) {
        let Files { sockets, closed, strays, ids, .. } = self;
        sockets.retain(|id, (endpoint, placeholder)| {
            let is_held = placeholder.is_held();
            if !is_held {
                strays.insert(*id);
                ids.remove(&placeholder.identity);
                closed.push(*endpoint);
            }
            is_held
        });
    }

    /// Locks what a file has open, until the file is closed or the power fails, as flock(2) does
    /// without waiting.
    pub(crate) fn lock(&mut self, id: FileId) -> Result<(), i32> {
        self.sweep();
        let inode = self.get(id)?.inode;
        let holder = self.locks.get(&inode).filter(|holder| **holder != id);
        if let Some(holder) = holder.and_then(|holder| self.open.get_mut(holder))
            && holder.placeholder.is_held()
        {
            return Err(libc::EWOULDBLOCK);
        }
        self.locks.insert(inode, id);
        Ok(())
    }

    pub(crate) fn unlock(&mut self, id: FileId) {
        self.locks.retain(|_, holder| *holder != id);
    }

    /// Returns the endpoints of all open sockets.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = EndpointId> + '_ {
        self.sockets.values().map(|(endpoint, _)| *endpoint)
    }

    /// Returns an open file, or `EIO` if the power has failed since it was opened.
    pub(crate) fn get(&self, id: FileId) -> Result<&OpenFile, i32> {
        if self.sockets.contains_key(&id) {
            // A socket answers operations for files with this error.
            return Err(libc::EINVAL);
        }
        let file = self.open.get(&id).ok_or(libc::EBADF)?;
        if file.dead { Err(libc::EIO) } else { Ok(file) }
    }

    /// Notes that names up to this one were read from an open directory.
    pub(crate) fn set_last_name(&mut self, id: FileId, name: Vec<u8>) {
        if let Some(file) = self.open.get_mut(&id) {
            file.last_name = Some(name);
        }
    }

    /// Returns how many times a file is open.
    pub(crate) fn count(&mut self, inode: Inode) -> usize {
        self.sweep();
        self.open.values().filter(|file| !file.dead && file.inode == inode).count()
    }

    /// Returns the inodes of the open files. Files that were open at a power loss do not count.
    pub(crate) fn inodes(&mut self) -> BTreeSet<Inode> {
        self.sweep();
        self.open.values().filter(|file| !file.dead).map(|file| file.inode).collect()
    }

    /// Makes all open files fail from now on, because the power fails.
    pub(crate) fn kill_all(&mut self) {
        for file in self.open.values_mut() {
            file.dead = true;
        }
        self.locks.clear();
    }

    /// Forgets files whose last descriptor was closed.
    fn sweep(&mut self) {
        if let Some(set) = &self.set
            && let Some(alive) =
                reported(set, self.open.len() + self.sockets.len() + self.strays.len() + 1)
        {
            self.strays.retain(|id| alive.contains(id));
            self.open.retain(|id, _| alive.contains(id));
            let closed = &mut self.closed;
            self.sockets.retain(|id, (endpoint, _)| {
                let is_open = alive.contains(id);
                closed.extend((!is_open).then_some(*endpoint));
                is_open
            });
            let (open, sockets) = (&self.open, &self.sockets);
            let holder = |id: &FileId| {
                let file = open.get(id).map(|file| file.placeholder);
                file.or_else(|| sockets.get(id).map(|(_, placeholder)| *placeholder))
            };
            self.ids.retain(|identity, id| holder(id).is_some_and(|it| it.identity == *identity));
        }
        self.sweep_at = 2 * (self.open.len() + self.sockets.len()) + 64;
    }
}

/// Returns the files in an epoll set, which reports all of them.
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
    fn reads_and_writes_of_a_placeholder_fail() {
        use std::io::{Read, Write};
        let placeholder = Files::default().open(7, libc::O_RDWR).unwrap();
        let mut file = std::fs::File::from(placeholder);
        assert!(file.read(&mut [0; 8]).is_err());
        assert!(file.write(b"lost").is_err());
    }
}
