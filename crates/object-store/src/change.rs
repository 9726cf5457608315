//! Changes of names: delete, copy and rename. Each runs on a thread that may block.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
};

use object_store::{Result, path::Path};
use ringwise::Descriptor;
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, fsync, linkat, openat, statat, unlinkat,
    },
    io::Errno,
};

use crate::{
    attributes,
    failure::{failed, not_an_object, not_made},
    location::{Name, name},
    object,
    root::{DIRECTORY, Root, sync_directory},
    staged::{self, Publication, in_directory, under_temporary_name},
};

/// Removes an object, and with `cleans` the directories above it that are empty then.
pub(crate) fn delete(root: &Root, location: &Path, cleans: bool) -> Result<()> {
    let object = Source::find(root, location)?;
    match unlinkat(&object.parent, object.name, AtFlags::empty()) {
        Ok(()) => {}
        // It was replaced by a directory just now.
        Err(Errno::ISDIR) => return Err(not_an_object(location)),
        Err(error) => return Err(failed(location, error)),
    }
    if cleans {
        remove_empty(root, name(location)?.parent);
    }
    Ok(())
}

/// Removes a directory of the store and those above it, until one is not empty.
fn remove_empty(root: &Root, mut name: &str) {
    while !name.is_empty() {
        let (above, own) = name.rsplit_once('/').unwrap_or(("", name));
        let Ok(directory) = root.find(above, DIRECTORY) else { return };
        if unlinkat(directory, own, AtFlags::REMOVEDIR).is_err() {
            return;
        }
        name = above;
    }
}

/// Gives the file of an object a second name. Objects are never changed in place, so that is a copy.
pub(crate) fn copy(root: &Root, from: &Path, to: &Path, how: Publication) -> Result<()> {
    let source = Source::find(root, from)?;
    if how.durable {
        source.sync().map_err(|error| failed(from, error))?;
    }
    place(root, to, how.durable, |directory, name| source.copy_to(directory, name, how))
}

/// Renames an object.
pub(crate) fn rename(root: &Root, from: &Path, to: &Path, how: Publication) -> Result<()> {
    let source = Source::find(root, from)?;
    if how.durable {
        source.sync().map_err(|error| failed(from, error))?;
    }
    place(root, to, how.durable, |directory, name| source.rename_to(directory, name, how))?;
    if how.durable {
        sync_directory(&source.parent).map_err(|error| failed(to, error))?;
    }
    Ok(())
}

/// Runs `make` with the directory of a new object, which is made if it is missing, and the name in it.
fn place(
    root: &Root,
    to: &Path,
    durable: bool,
    mut make: impl FnMut(&Descriptor, &str) -> rustix::io::Result<()>,
) -> Result<()> {
    let name = name(to)?;
    let made = in_directory(root, name.parent, durable, |directory| make(directory, name.file));
    let (directory, ()) = made.map_err(|error| match error {
        Errno::NOTDIR => not_made(to, error),
        error => failed(to, error),
    })?;
    if durable {
        sync_directory(directory).map_err(|error| failed(to, error))?;
    }
    Ok(())
}

fn find_parent(root: &Root, name: Name<'_>, location: &Path) -> Result<OwnedFd> {
    root.find(name.parent, DIRECTORY).map_err(|error| failed(location, error))
}

/// An object that exists, by its name.
struct Source<'a> {
    parent: OwnedFd,
    name: &'a str,
    /// What the name stands for, opened as a path only.
    file: OwnedFd,
    stat: Stat,
}

impl<'a> Source<'a> {
    fn find(root: &Root, location: &'a Path) -> Result<Source<'a>> {
        let name = name(location)?;
        let parent = find_parent(root, name, location)?;
        let found = root.find(location.as_ref(), OFlags::PATH);
        let found = found.and_then(|file| Ok((fstat(&file)?, file)));
        let (stat, file) = found.map_err(|error| failed(location, error))?;
        if !object::is_object(&stat) {
            return Err(not_an_object(location));
        }
        Ok(Source { parent, name: name.file, file, stat })
    }

    /// Opens the file for reading, also if the name is a link.
    fn open(&self) -> rustix::io::Result<File> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(File::from(openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Makes the content durable. Who wrote the object may not have.
    fn sync(&self) -> rustix::io::Result<()> {
        fsync(self.open()?)
    }

    /// Makes a copy appear under a name, whole.
    fn copy_to(
        &self,
        directory: &Descriptor,
        name: &str,
        how: Publication,
    ) -> rustix::io::Result<()> {
        if !how.replaces && self.link_to(directory, name)? {
            return Ok(());
        }
        let (temporary, ()) =
            under_temporary_name(|temporary| match self.link_to(directory, temporary)? {
                true => Ok(()),
                false => self.copy_bytes(directory, temporary, how.durable),
            })?;
        let renamed = staged::rename((directory, &temporary), (directory, name), how.replaces);
        // Of two names of one file a rename keeps both (rename(2)).
        let _ = unlinkat(directory, &temporary, AtFlags::empty());
        renamed
    }

    /// Gives the file a second name. False if the file system gives it none.
    fn link_to(&self, directory: impl AsFd, name: &str) -> rustix::io::Result<bool> {
        // Of a link the file that it leads to, because elsewhere the link may lead to another.
        let linked = match self.is_link()? {
            false => linkat(&self.parent, self.name, &directory, name, AtFlags::empty()),
            true => {
                let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, path, &directory, name, AtFlags::SYMLINK_FOLLOW)
            }
        };
        match linked {
            Err(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP) => Ok(false),
            linked => linked.map(|()| true),
        }
    }

    fn copy_bytes(
        &self,
        directory: impl AsFd,
        name: &str,
        durable: bool,
    ) -> rustix::io::Result<()> {
        let mut from = self.open()?;
        let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let mut to = File::from(openat(&directory, name, write, mode)?);
        let copied = io::copy(&mut from, &mut to)
            .and_then(|_| Ok(attributes::write(&to, &attributes::read(&from)?)?))
            .and_then(|()| if durable { to.sync_all() } else { Ok(()) });
        copied.map_err(|error| {
            let _ = unlinkat(&directory, name, AtFlags::empty());
            Errno::from_io_error(&error).unwrap_or(Errno::IO)
        })
    }

    fn rename_to(
        &self,
        directory: &Descriptor,
        name: &str,
        how: Publication,
    ) -> rustix::io::Result<()> {
        let is_same_file = how.replaces && self.has_as_another_name(directory, name)?;
        match staged::rename((&self.parent, self.name), (directory, name), how.replaces) {
            Err(Errno::XDEV) => {
                self.copy_to(directory, name, how)?;
                self.remove_name()
            }
            Ok(()) if is_same_file => self.give_up_name(directory, name),
            renamed => renamed,
        }
    }

    /// Removes the name after a copy, unless it is that of another file now: the copy's own, behind another mount.
    fn remove_name(&self) -> rustix::io::Result<()> {
        let stat = statat(&self.parent, self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_own = object::kind(&stat) == FileType::Symlink
            || object::identity(&stat) == object::identity(&self.stat);
        if is_own { unlinkat(&self.parent, self.name, AtFlags::empty()) } else { Ok(()) }
    }

    /// Gives up the name after a rename to a name of the same file, which keeps both (rename(2)). It goes by a name that
    /// nobody else has. If the other name was replaced meanwhile, it is replaced again.
    fn give_up_name(&self, directory: &Descriptor, name: &str) -> rustix::io::Result<()> {
        let moved = under_temporary_name(|temporary| {
            staged::rename((&self.parent, self.name), (&self.parent, temporary), false)
        });
        let (temporary, ()) = match moved {
            // The other name was replaced before the rename, so that kept only one.
            Err(Errno::NOENT) => return Ok(()),
            moved => moved?,
        };
        let renamed = staged::rename((&self.parent, &temporary), (directory, name), true);
        let _ = unlinkat(&self.parent, &temporary, AtFlags::empty());
        renamed
    }

    fn is_link(&self) -> rustix::io::Result<bool> {
        let stat = statat(&self.parent, self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(object::kind(&stat) == FileType::Symlink)
    }

    /// Whether the file has this as another name. On a file system that ignores case, two names may be one.
    fn has_as_another_name(&self, directory: &Descriptor, name: &str) -> rustix::io::Result<bool> {
        let is_same_file = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
            stat.st_nlink > 1
                && object::kind(&stat) == FileType::RegularFile
                && object::identity(&stat) == object::identity(&self.stat)
        });
        Ok(is_same_file && !self.is_link()? && !self.is_at(directory, name)?)
    }

    /// Whether this is the same name.
    fn is_at(&self, directory: impl AsFd, name: &str) -> rustix::io::Result<bool> {
        let same = object::identity(&fstat(&self.parent)?) == object::identity(&fstat(directory)?);
        Ok(same && self.name == name)
    }
}
