//! `--durable`: which file systems are to be synced before the run ends.
//!
//! All that the run answers for is on one of them: what it wrote, links and directories that it
//! made, and what it found there already and kept, which an earlier run may have left in memory.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{FileType, OFlags, syncfs},
    io::{Errno, fcntl_dupfd_cloexec},
};

use super::{
    held::Held,
    regular::behind_links,
    state::{Copier, Written},
};
use crate::names::place::{Place, kind};

impl Copier {
    /// A file that is open was written to.
    pub(super) fn note_written(&mut self, device: u64, file: impl AsFd, path: &[u8]) {
        self.note(device, path, || fcntl_dupfd_cloexec(file, 0));
    }

    /// A directory was made or written to.
    pub(super) fn note_directory(&mut self, directory: &Held, path: &[u8]) {
        if let Some((device, file)) = directory.synced_by() {
            self.note(device, path, || file.and_then(|file| fcntl_dupfd_cloexec(file, 0)));
        }
    }

    /// A name was made on a device.
    pub(super) fn note_made(&mut self, device: u64, place: &Place) {
        self.note(device, &place.path, || directory_of(place));
    }

    /// A name stays what it was, and what it leads to.
    pub(super) fn note_kept(&mut self, place: &Place) {
        if !self.options.durable {
            return;
        }
        for follow in [false, true] {
            let Ok(stat) = place.stat(follow) else { continue };
            self.note(stat.st_dev, &place.path, || {
                let real = if follow { behind_links(place)? } else { place.clone() };
                match directory_of(&real) {
                    // Where only names may be made, and none be listed.
                    Err(Errno::ACCESS) if kind(&stat) == FileType::RegularFile => {
                        real.open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW, 0)
                    }
                    opened => opened,
                }
            });
        }
    }

    fn note(&mut self, device: u64, path: &[u8], file: impl FnOnce() -> Result<OwnedFd, Errno>) {
        let known = self.written.get(&device).is_some_and(|written| written.file.is_ok());
        if self.options.durable && !known {
            // Where this one cannot be held, the next may be.
            self.written.insert(device, Written { file: file(), path: path.to_vec() });
        }
    }

    /// Syncs everything of each file system at once: data, names, and the directories above them
    /// (syncfs(2); it reports failed write-back since Linux 5.8).
    pub(super) fn sync_written(&mut self) {
        for written in std::mem::take(&mut self.written).into_values() {
            if let Err(errno) = written.file.and_then(syncfs) {
                self.error("syncing the file system of %s", &[&written.path], Some(errno));
            }
        }
    }
}

/// The directory that a name is in.
fn directory_of(place: &Place) -> Result<OwnedFd, Errno> {
    place.sibling(b".").open(OFlags::RDONLY | OFlags::DIRECTORY, 0)
}
