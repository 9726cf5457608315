//! A file by an open directory and a name in it, with the path that messages call it by.
//!
//! Every call on a file of a tree is relative to its open directory, so that no directory above
//! it can be exchanged under the copy, and no path is too long for the kernel.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat, StatxFlags},
    io::Errno,
};

/// Device and inode: which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Identity {
    pub(crate) fn of(stat: &Stat) -> Identity {
        Identity { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// What kind of file metadata is of.
pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The directory that the name is relative to; none is the current one.
    directory: Option<Arc<OwnedFd>>,
    /// As messages have it. What is after `start` is the name.
    pub(crate) path: Vec<u8>,
    start: usize,
}

impl Place {
    /// A path as it was typed.
    pub(crate) fn typed(path: Vec<u8>) -> Place {
        Place { directory: None, path, start: 0 }
    }

    /// A name in a directory whose path is `parent`.
    pub(crate) fn within(directory: Arc<OwnedFd>, parent: &[u8], name: &[u8]) -> Place {
        let path = join(parent, name);
        let start = path.len() - name.len();
        Place::part(directory, path, start)
    }

    /// The part of a path from `start` on, in the directory that the rest of it leads to.
    pub(crate) fn part(directory: Arc<OwnedFd>, path: Vec<u8>, start: usize) -> Place {
        Place { directory: Some(directory), path, start }
    }

    /// The same name in the directory above it as it is now: by a path each call may be led to
    /// another directory. As it was where that cannot be opened.
    pub(crate) fn pinned(self) -> Place {
        let (parent, last) = split(self.name());
        let end = self.path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let start = end - last.len();
        if start == self.start || last.is_empty() {
            return self;
        }
        match open_to_go_through(self.directory(), parent) {
            Ok(directory) => Place::part(Arc::new(directory), self.path, start),
            Err(_) => self,
        }
    }

    /// Another name in the same directory, for backups and temporary names. `tail` is what
    /// follows the path's last slash.
    pub(crate) fn sibling(&self, last: &[u8]) -> Place {
        let end = self.path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let path = [&self.path[..end.max(self.start)], last].concat();
        Place { directory: self.directory.clone(), path, start: self.start }
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.path[self.start..]
    }

    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_ref().map_or(CWD, |directory| directory.as_fd())
    }

    pub(crate) fn stat(&self, follow: bool) -> Result<Stat, Errno> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        fs::statat(self.directory(), self.name(), flags)
    }

    pub(crate) fn open(&self, flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
        let mode = Mode::from_raw_mode(mode);
        retry(|| fs::openat(self.directory(), self.name(), flags | OFlags::CLOEXEC, mode))
    }

    pub(crate) fn unlink(&self) -> Result<(), Errno> {
        fs::unlinkat(self.directory(), self.name(), AtFlags::empty())
    }

    pub(crate) fn rename(&self, to: &Place) -> Result<(), Errno> {
        fs::renameat(self.directory(), self.name(), to.directory(), to.name())
    }

    /// Renames, and replaces nothing.
    pub(crate) fn rename_to_free(&self, to: &Place) -> Result<(), Errno> {
        let (one, other) = ((self.directory(), self.name()), (to.directory(), to.name()));
        match fs::renameat_with(one.0, one.1, other.0, other.1, RenameFlags::NOREPLACE) {
            // Not every file system can (renameat2(2)).
            Err(Errno::INVAL | Errno::NOSYS) => {
                fs::linkat(one.0, one.1, other.0, other.1, AtFlags::empty())?;
                self.unlink()
            }
            renamed => renamed,
        }
    }

    pub(crate) fn read_link(&self) -> Result<Vec<u8>, Errno> {
        fs::readlinkat(self.directory(), self.name(), Vec::new()).map(|text| text.into_bytes())
    }

    /// A path for calls that take no directory. Through /proc where it is in an open one.
    pub(crate) fn reachable(&self) -> Vec<u8> {
        match &self.directory {
            None => self.path.clone(),
            Some(directory) => {
                let base = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
                [&base[..], self.name()].concat()
            }
        }
    }

    /// The same file by a path that the kernel takes, where this one is too long: directories on
    /// the way are opened, as many at a time as fit.
    pub(crate) fn reached(&self) -> Place {
        const FITS: usize = 4000;
        let mut place = self.clone();
        while place.name().len() > FITS {
            let name = place.name();
            let Some(end) = name[..FITS].iter().rposition(|byte| *byte == b'/') else { break };
            let opened = open_to_go_through(place.directory(), &name[..end.max(1)]);
            let Ok(directory) = opened else { break };
            place.directory = Some(Arc::new(directory));
            place.start += end + 1;
        }
        place
    }

    /// The same name and directory as `other`, whatever it is called by; as GNU's same_name.
    pub(crate) fn is_same_name(&self, other: &Place) -> bool {
        let (own_parent, own) = split(self.name());
        let (other_parent, name) = split(other.name());
        if own != name {
            return false;
        }
        let parent = |place: &Place, parent: &[u8]| {
            let stat = fs::statat(place.directory(), parent, AtFlags::empty());
            stat.map(|stat| Identity::of(&stat))
        };
        match (parent(self, own_parent), parent(other, other_parent)) {
            (Ok(own), Ok(other)) => own == other,
            _ => false,
        }
    }
}

/// Opens a directory for nothing but what is in it.
pub(crate) fn open_to_go_through(from: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry(|| fs::openat(from, path, flags, Mode::empty()))
}

/// The parent of a path (`.` where there is none) and its last part.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let path = &path[..end];
    match path.iter().rposition(|byte| *byte == b'/') {
        None => (b".", path),
        Some(at) => {
            let parent = path[..at].iter().rposition(|byte| *byte != b'/').map_or(1, |at| at + 1);
            (&path[..parent], &path[at + 1..])
        }
    }
}

/// A path and a name, with one slash between.
pub(crate) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let name_start = name.iter().position(|byte| *byte != b'/').unwrap_or(name.len());
    let mut path = Vec::with_capacity(parent.len() + 1 + name.len());
    path.extend_from_slice(parent);
    while path.len() > 1 && path.ends_with(b"//") {
        path.pop();
    }
    if !path.ends_with(b"/") && !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(&name[name_start..]);
    path
}

/// Makes a call again that a signal ended before it did anything.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// What a file is that was just opened to be written, but for its times, which are zero: once somebody asked
/// for those, the next write has to give it another one and marks its inode as changed again (multigrain
/// timestamps, Linux 6.13, fs/inode.c, inode_set_ctime_current). `like` is any file's.
pub(crate) fn stat_of_copy(file: impl AsFd, like: &Stat) -> Result<Stat, Errno> {
    let times = StatxFlags::ATIME | StatxFlags::MTIME | StatxFlags::CTIME;
    let wanted = StatxFlags::BASIC_STATS - times;
    let Ok(told) = fs::statx(&file, "", AtFlags::EMPTY_PATH, wanted) else {
        // Not before Linux 4.11, and not for everybody behind a filter.
        return fs::fstat(file);
    };
    let mut stat = *like;
    stat.st_dev = fs::makedev(told.stx_dev_major, told.stx_dev_minor);
    stat.st_rdev = fs::makedev(told.stx_rdev_major, told.stx_rdev_minor);
    stat.st_ino = told.stx_ino;
    stat.st_mode = told.stx_mode.into();
    stat.st_nlink = told.stx_nlink as _;
    (stat.st_uid, stat.st_gid) = (told.stx_uid, told.stx_gid);
    stat.st_size = told.stx_size as _;
    stat.st_blksize = told.stx_blksize as _;
    stat.st_blocks = told.stx_blocks as _;
    (stat.st_atime, stat.st_mtime, stat.st_ctime) = (0, 0, 0);
    (stat.st_atime_nsec, stat.st_mtime_nsec, stat.st_ctime_nsec) = (0, 0, 0);
    Ok(stat)
}

/// Has what is read and written from now on go past the page cache, or through it again.
pub(crate) fn set_direct(file: impl AsFd, on: bool) -> Result<(), Errno> {
    let mut flags = fs::fcntl_getfl(&file)?;
    flags.set(OFlags::DIRECT, on);
    fs::fcntl_setfl(&file, flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_told_as_fstat_tells_it_but_for_its_times() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(12_345).unwrap();
        let known = fs::fstat(&file).unwrap();
        let like = fs::stat("/dev/null").unwrap();
        let told = stat_of_copy(&file, &like).unwrap();
        assert_eq!(Identity::of(&told), Identity::of(&known));
        assert_eq!((told.st_mode, told.st_rdev), (known.st_mode, known.st_rdev));
        assert_eq!((told.st_uid, told.st_gid), (known.st_uid, known.st_gid));
        assert_eq!((told.st_size, told.st_nlink), (known.st_size, known.st_nlink));
        assert_eq!((told.st_blocks, told.st_blksize), (known.st_blocks, known.st_blksize));
        assert_eq!((told.st_mtime, told.st_ctime), (0, 0));
    }

    #[test]
    fn paths_come_apart_and_together() {
        assert_eq!(split(b"a/b"), (&b"a"[..], &b"b"[..]));
        assert_eq!(split(b"b"), (&b"."[..], &b"b"[..]));
        assert_eq!(split(b"/b/"), (&b"/"[..], &b"b"[..]));
        assert_eq!(split(b"a//b//"), (&b"a"[..], &b"b"[..]));
        assert_eq!(join(b"a/", b"b"), b"a/b");
        assert_eq!(join(b"/", b"b"), b"/b");
    }
}
