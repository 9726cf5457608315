//! A file that is written under a temporary name and becomes an object in one step.
//!
//! The temporary name is `#` and digits, in the directory of the object. No listing shows it, neither of
//! this store nor of `LocalFileSystem`. A file that does not become an object is removed when it is
//! dropped. After a crash it stays.

pub(crate) mod upload;

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use object_store::{Attributes, PutPayload, PutResult, Result, path::Path};
use ringwise::Descriptor;
use rustix::{
    fs::{
        AtFlags, Mode, OFlags, RenameFlags, fstat, linkat, openat, renameat, renameat_with,
        unlinkat,
    },
    io::Errno,
};

use crate::{
    attributes,
    failure::{failed, not_made},
    location::name,
    object,
    root::{Root, sync_directory},
    threads::{blocking, drop_blocking},
};

/// How often a directory that another task removes is made again.
const ATTEMPTS: usize = 16;

/// How a file gets the name of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Publication {
    /// An object that has the name is replaced. Otherwise it stays, and the publication fails.
    pub(crate) replaces: bool,
    /// The bytes and the name survive a crash.
    pub(crate) durable: bool,
}

#[derive(Debug)]
pub(crate) struct Staged {
    name: Temporary,
    pub(crate) file: Arc<File>,
}

/// The name of a staged file. A drop removes it.
#[derive(Debug)]
struct Temporary {
    /// Where the object will be.
    location: Path,
    directory: Descriptor,
    /// Nothing once it was renamed or removed.
    name: Option<String>,
}

impl Staged {
    /// Creates an empty file for an object, and the directories above it.
    pub(crate) async fn create(
        root: &Arc<Root>,
        location: &Path,
        attributes: Attributes,
        durable: bool,
    ) -> Result<Staged> {
        let (root, location) = (root.clone(), location.clone());
        blocking(move || {
            let (name, file) = Temporary::create(&root, location, &attributes, durable)?;
            Ok(Staged { name, file: Arc::new(file) })
        })
        .await
    }

    /// Makes the file the object.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the file becomes the object or is removed.
    pub(crate) async fn publish(self, how: Publication) -> Result<PutResult> {
        blocking(move || match Arc::try_unwrap(self.file) {
            Ok(file) => self.name.publish(file, how),
            Err(_) => Err(self.name.fail(Errno::BUSY)),
        })
        .await
    }

    /// Removes the file.
    pub(crate) async fn remove(self) {
        let mut name = self.name;
        // An error of the removal would hide the one that led here.
        let _ = blocking(move || {
            name.remove();
            Ok(())
        })
        .await;
    }
}

/// Writes a whole object. One thread makes all syscalls, because each needs the one before it.
///
/// # Cancel safety
///
/// If the future is dropped, the put goes on to its end once it has begun.
pub(crate) async fn put(
    root: &Arc<Root>,
    location: &Path,
    (payload, attributes): (PutPayload, Attributes),
    how: Publication,
) -> Result<PutResult> {
    let (root, location) = (root.clone(), location.clone());
    blocking(move || {
        let created = Temporary::create(&root, location, &attributes, how.durable);
        let (name, mut file) = created?;
        match payload.iter().try_for_each(|bytes| file.write_all(bytes)) {
            Ok(()) => name.publish(file, how),
            Err(error) => Err(name.fail(error)),
        }
    })
    .await
}

impl Temporary {
    fn create(
        root: &Root,
        location: Path,
        attributes: &Attributes,
        durable: bool,
    ) -> Result<(Temporary, File)> {
        let parent = name(&location)?.parent;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let (directory, (temporary, file)) = in_directory(root, parent, durable, |directory| {
            under_temporary_name(|temporary| {
                openat(directory, temporary, flags, Mode::from_raw_mode(0o666))
            })
        })
        .map_err(|error| not_made(&location, error))?;
        let name = Temporary { location, directory, name: Some(temporary) };
        match attributes::write(&file, attributes) {
            Ok(()) => Ok((name, file.into())),
            Err(error) => Err(name.fail(error)),
        }
    }

    fn publish(mut self, file: File, how: Publication) -> Result<PutResult> {
        let e_tag = match finish(file, how.durable) {
            Ok(e_tag) => Some(e_tag),
            Err(error) => return Err(self.fail(error)),
        };
        let directory = &self.directory;
        let target = (directory, name(&self.location)?.file);
        let temporary = (directory, self.name.as_deref().unwrap_or_default());
        if let Err(error) = rename(temporary, target, how.replaces) {
            return Err(self.fail(error));
        }
        self.name = None;
        if how.durable {
            sync_directory(&self.directory).map_err(|error| failed(&self.location, error))?;
        }
        Ok(PutResult {
            e_tag,
            version: None,
            #[cfg(not(feature = "object_store_0_13"))]
            extensions: Default::default(),
        })
    }

    /// Removes the file because of an error.
    fn fail(mut self, error: impl Into<io::Error>) -> object_store::Error {
        self.remove();
        failed(&self.location, error)
    }

    fn remove(&mut self) {
        if let Some(temporary) = self.name.take() {
            let _ = unlinkat(&self.directory, temporary, AtFlags::empty());
        }
    }
}

/// Closes a file, and gives the entity tag of the object that it will be.
fn finish(file: File, durable: bool) -> io::Result<String> {
    if durable {
        file.sync_all()?;
    }
    let e_tag = object::e_tag(&fstat(&file)?);
    // A close reports the errors of network file systems.
    nix::unistd::close(file)?;
    Ok(e_tag)
}

/// Removes a file when it is dropped, also if the thread that should do that has ended.
struct Removal {
    directory: Descriptor,
    temporary: String,
}

impl Drop for Removal {
    fn drop(&mut self) {
        let _ = unlinkat(&self.directory, &self.temporary, AtFlags::empty());
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(temporary) = self.name.take() {
            drop_blocking(Removal { directory: self.directory.clone(), temporary });
        }
    }
}

/// Runs `make` in a directory of the store, which is made if it is missing.
pub(crate) fn in_directory<T>(
    root: &Root,
    parent: &str,
    durable: bool,
    mut make: impl FnMut(&Descriptor) -> rustix::io::Result<T>,
) -> rustix::io::Result<(Descriptor, T)> {
    for _ in 1..ATTEMPTS {
        let directory = Descriptor::from(root.find_or_make(parent, durable)?);
        match make(&directory) {
            // Another task removed the directory, because it was empty.
            Err(Errno::NOENT) => {}
            made => return made.map(|made| (directory, made)),
        }
    }
    Err(Errno::NOENT)
}

/// Runs `make` with a name that no file has.
pub(crate) fn under_temporary_name<T>(
    mut make: impl FnMut(&str) -> rustix::io::Result<T>,
) -> rustix::io::Result<(String, T)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let number = (now as u64).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let temporary = format!("#{number}");
        match make(&temporary) {
            Err(Errno::EXIST) => {}
            made => return made.map(|made| (temporary, made)),
        }
    }
}

/// Renames a file, each name in a directory. Unless it `replaces`, another file of the new name is an error.
pub(crate) fn rename(
    (from_directory, from): (impl AsFd, &str),
    (to_directory, to): (impl AsFd, &str),
    replaces: bool,
) -> rustix::io::Result<()> {
    if replaces {
        return renameat(from_directory, from, to_directory, to);
    }
    match renameat_with(&from_directory, from, &to_directory, to, RenameFlags::NOREPLACE) {
        // A file system that knows no such rename.
        Err(Errno::INVAL | Errno::NOSYS) => {
            linkat(&from_directory, from, to_directory, to, AtFlags::empty())?;
            unlinkat(from_directory, from, AtFlags::empty())
        }
        renamed => renamed,
    }
}
