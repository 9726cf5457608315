//! Changes of names: delete, copy and rename. Each runs on a thread that may block.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use object_store::{Result, path::Path};
use ringwise::Descriptor;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, linkat, openat, statat, unlinkat},
    io::Errno,
};

use crate::{
    attributes,
    failure::{failed, not_an_object},
    location::{Name, name},
    object,
    root::{DIRECTORY, Root, sync_directory},
    staged::{self, Publication, in_directory, under_temporary_name},
};

/// Removes an object, and with `cleans` the directories above it that are empty then.
pub(crate) fn delete(root: &Root, location: &Path, cleans: bool) -> Result<()> {
    let name = name(location)?;
    let parent = find_parent(root, name, location)?;
    match unlinkat(&parent, name.file, AtFlags::empty()) {
        Ok(()) => {}
        Err(Errno::ISDIR) => return Err(not_an_object(location)),
        Err(error) => return Err(failed(location, error)),
    }
    if cleans {
        remove_empty(root, name.parent);
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
    place(root, to, how.durable, |directory, name| {
        if !how.replaces {
            return source.copy_to(directory, name);
        }
        let (temporary, ()) =
            under_temporary_name(|temporary| source.copy_to(directory, temporary))?;
        let renamed = staged::rename((directory, &temporary), (directory, name), true);
        // Of two names of one file a rename keeps both (rename(2)).
        let _ = unlinkat(directory, &temporary, AtFlags::empty());
        renamed
    })
}

/// Renames an object.
pub(crate) fn rename(root: &Root, from: &Path, to: &Path, how: Publication) -> Result<()> {
    let source = Source::find(root, from)?;
    place(root, to, how.durable, |directory, name| {
        source.rename_to(directory, name, how.replaces)
    })?;
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
    let (directory, ()) = made.map_err(|error| failed(to, error))?;
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
    file: &'a str,
    stat: Stat,
}

impl<'a> Source<'a> {
    fn find(root: &Root, location: &'a Path) -> Result<Source<'a>> {
        let name = name(location)?;
        let parent = find_parent(root, name, location)?;
        // What the name stands for, for a link too.
        let file = root.find(location.as_ref(), OFlags::PATH);
        let stat = file.and_then(fstat).map_err(|error| failed(location, error))?;
        if !object::is_object(&stat) {
            return Err(not_an_object(location));
        }
        Ok(Source { parent, file: name.file, stat })
    }

    /// Gives the file a second name, or copies its bytes if the file system gives it none.
    fn copy_to(&self, directory: impl AsFd, name: &str) -> rustix::io::Result<()> {
        match linkat(&self.parent, self.file, &directory, name, AtFlags::empty()) {
            Err(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP) => {}
            linked => return linked,
        }
        let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut from = std::fs::File::from(openat(&self.parent, self.file, read, Mode::empty())?);
        let mode = Mode::from_raw_mode(0o666);
        let mut to = std::fs::File::from(openat(&directory, name, write, mode)?);
        let copied = io::copy(&mut from, &mut to)
            .and_then(|_| Ok(attributes::write(&to, &attributes::read(&from)?)?));
        copied.map_err(|error| {
            let _ = unlinkat(&directory, name, AtFlags::empty());
            Errno::from_io_error(&error).unwrap_or(Errno::IO)
        })
    }

    fn rename_to(
        &self,
        directory: impl AsFd,
        name: &str,
        replaces: bool,
    ) -> rustix::io::Result<()> {
        staged::rename((&self.parent, self.file), (&directory, name), replaces)?;
        if replaces && self.is_still_there() && !self.is_at(&directory, name)? {
            // Both were names of one file, of which a rename keeps both (rename(2)).
            unlinkat(&self.parent, self.file, AtFlags::empty())?;
        }
        Ok(())
    }

    /// Whether the name stands for the same file as before.
    fn is_still_there(&self) -> bool {
        statat(&self.parent, self.file, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
            object::kind(&stat) == FileType::RegularFile
                && object::identity(&stat) == object::identity(&self.stat)
        })
    }

    /// Whether this is the same name.
    fn is_at(&self, directory: impl AsFd, name: &str) -> rustix::io::Result<bool> {
        let same = object::identity(&fstat(&self.parent)?) == object::identity(&fstat(directory)?);
        Ok(same && self.file == name)
    }
}
