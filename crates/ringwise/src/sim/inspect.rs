//! A simulated disk from outside: what a test prepares on it and looks at, in the manner of
//! [`std::fs`].
//!
//! None of this is an operation: no fault befalls it, it takes no time, works without power, and is
//! in no trace. What it makes is durable at once, as if it had been there before.

use std::{
    ffi::OsString,
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use crate::{
    descriptor::Descriptor,
    metadata::Metadata,
    op::OpenOptions,
    sim::{
        Simulation,
        disk::{Disk, Ending, Inode},
    },
    sys::statx::RawStatx,
};

impl Simulation {
    /// The bytes of a file.
    ///
    /// # Errors
    ///
    /// `ENOENT` and the other errors of open(2) and read(2).
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        self.on_disk(|disk| {
            let inode = disk.find(disk.root(), bytes_of(&path), Ending::Followed)?.existing()?;
            let len = disk.len(inode)?;
            disk.read(inode, 0, len)
        })
    }

    /// Makes a file of these bytes, or gives it these instead of its own, durably.
    ///
    /// # Errors
    ///
    /// `ENOENT` and the other errors of open(2).
    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.on_disk(|disk| {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
            let inode = disk.open(disk.root(), bytes_of(&path), flags, 0o666)?;
            disk.write(inode, 0, bytes.as_ref())?;
            disk.sync(inode);
            disk.settle(inode);
            Ok(())
        })
    }

    /// Makes a directory and those above it that are missing, durably.
    ///
    /// # Errors
    ///
    /// `ENOTDIR` and the other errors of mkdir(2), but for `EEXIST` of a directory.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.on_disk(|disk| {
            for above in ancestors(path.as_ref()) {
                match disk.create_directory(disk.root(), bytes_of(&above), 0o777) {
                    Err(libc::EEXIST) if is_directory(disk, &above) => {}
                    made => disk.settle(made?),
                }
            }
            Ok(())
        })
    }

    /// Makes a symbolic link at `path` that leads to `target`, durably.
    ///
    /// # Errors
    ///
    /// Those of symlink(2).
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> io::Result<()> {
        self.on_disk(|disk| {
            let link = disk.symlink(disk.root(), bytes_of(&path), bytes_of(&target))?;
            disk.settle(link);
            Ok(())
        })
    }

    /// Whether a path leads to something.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.on_disk(|disk| disk.find(disk.root(), bytes_of(&path), Ending::Followed)?.existing())
            .is_ok()
    }

    /// The names in a directory, sorted by their bytes.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR`.
    pub fn names(&self, path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
        let names = self.on_disk(|disk| {
            let inode = disk.find(disk.root(), bytes_of(&path), Ending::Followed)?.existing()?;
            disk.names(inode)
        })?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// The metadata of what a path leads to.
    ///
    /// # Errors
    ///
    /// Those of stat(2).
    pub fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.on_disk(|disk| {
            let inode = disk.find(disk.root(), bytes_of(&path), Ending::Followed)?.existing()?;
            Ok(Metadata(RawStatx(*disk.statx(inode))))
        })
    }

    /// Opens a file for use with the loops of this simulation.
    ///
    /// # Errors
    ///
    /// Those of open(2).
    pub fn open(&self, path: impl AsRef<Path>, options: OpenOptions) -> io::Result<Descriptor> {
        let is_new = !self.exists(&path);
        let (flags, mode) = (options.flags(), options.creation_mode());
        let inode = self.on_disk(|disk| {
            let inode = disk.open(disk.root(), bytes_of(&path), flags, mode)?;
            if is_new {
                disk.settle(inode);
            }
            Ok(inode)
        })?;
        let opened = self.lock().files.open(inode, flags);
        opened.map(Descriptor::from).map_err(io::Error::from_raw_os_error)
    }

    /// How often a file is open: descriptors that were opened and not closed, duplicates not
    /// counted.
    ///
    /// # Errors
    ///
    /// Those of stat(2).
    pub fn open_files(&self, path: impl AsRef<Path>) -> io::Result<usize> {
        let inode: Inode = self.on_disk(|disk| {
            disk.find(disk.root(), bytes_of(&path), Ending::Followed)?.existing()
        })?;
        Ok(self.lock().files.count(inode))
    }

    fn on_disk<T>(&self, look: impl FnOnce(&mut Disk) -> Result<T, i32>) -> io::Result<T> {
        look(&mut self.lock().disk).map_err(io::Error::from_raw_os_error)
    }
}

fn bytes_of(path: &impl AsRef<Path>) -> &[u8] {
    path.as_ref().as_os_str().as_bytes()
}

/// The directories on the way to a path, and the path itself, from above.
fn ancestors(path: &Path) -> Vec<PathBuf> {
    let mut ancestors: Vec<PathBuf> = path.ancestors().map(Path::to_path_buf).collect();
    ancestors.retain(|above| !above.as_os_str().is_empty());
    ancestors.reverse();
    ancestors
}

fn is_directory(disk: &Disk, path: &Path) -> bool {
    let found = disk.find(disk.root(), bytes_of(&path), Ending::Followed);
    found.and_then(|found| found.existing()).is_ok_and(|inode| disk.is_directory(inode))
}
