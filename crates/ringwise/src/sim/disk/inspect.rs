//! Prepares and inspects a simulated disk from outside, for tests, in the manner of [`std::fs`].
//!
//! These functions are not operations: they have no faults, take no time, work without power and
//! are not in the trace. Their changes are durable at once.

use std::{
    ffi::OsString,
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use crate::{
    descriptor::Descriptor,
    op::{OpenOptions, metadata::Metadata},
    sim::{
        Simulation,
        disk::{Disk, Ending, Inode},
    },
    sys::statx::RawStatx,
};

impl Simulation {
    /// Returns the bytes of a file.
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

    /// Writes these bytes as the whole content of a file, durably. Creates the file if it is
    /// missing.
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

    /// Makes a directory and its missing parents, durably.
    ///
    /// # Errors
    ///
    /// `ENOTDIR` and the other errors of mkdir(2). A directory that exists already is no error.
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
    /// The errors of symlink(2).
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> io::Result<()> {
        self.on_disk(|disk| {
            let link = disk.symlink(disk.root(), bytes_of(&path), bytes_of(&target))?;
            disk.settle(link);
            Ok(())
        })
    }

    /// Returns whether something exists at a path. Follows links.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.on_disk(|disk| disk.find(disk.root(), bytes_of(&path), Ending::Followed)?.existing())
            .is_ok()
    }

    /// Returns the names in a directory, sorted by their bytes.
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

    /// Returns the metadata of the file or directory at a path. Follows links.
    ///
    /// # Errors
    ///
    /// The errors of stat(2).
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
    /// The errors of open(2).
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

    /// Returns how many times a file is open. Duplicates of a descriptor do not count.
    ///
    /// # Errors
    ///
    /// The errors of stat(2).
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

/// Returns the directories above a path and the path itself, from the top.
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
