//! Directories: reading their names, making and removing whole trees.
//!
//! It knows no syscall: [`Operation::read_directory`] reads the records that are taken apart here.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use crate::{
    buf::OwnedBuffer,
    descriptor::Descriptor,
    error::{Errno, Error, ErrorKind},
    op::{
        Opcode, OpenOptions, Operation,
        metadata::{FileType, Metadata},
    },
    ring::Ring,
};

/// How many bytes of names one syscall reads.
const NAMES_BYTES: usize = 32 << 10;
/// How many names of a directory are removed together.
const REMOVED_TOGETHER: usize = 64;

/// The names of a directory, from [`read_dir`].
///
/// # Cancel safety
///
/// If a future of [`next_entry`](Self::next_entry) is dropped, names that were being read may be left
/// out. Drop the whole `ReadDir` then.
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, fs};
///
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// # let ring = Ring::new()?;
/// # fs::write(&ring, path.join("a"), "text").await.into_result()?;
/// # fs::create_dir(&ring, path.join("b")).await?;
/// let mut entries = fs::read_dir(&ring, path).await?;
/// let mut names = Vec::new();
/// while let Some(entry) = entries.next_entry().await? {
///     names.push(entry.file_name());
/// }
/// names.sort();
/// assert_eq!(names, ["a", "b"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct ReadDir {
    ring: Ring,
    descriptor: Descriptor,
    path: PathBuf,
    entries: VecDeque<(OsString, Option<FileType>, u64)>,
    buffer: Vec<u8>,
    is_end: bool,
}

/// A name in a directory.
///
/// # Cancel safety
///
/// If a future is dropped, its read of the metadata is cancelled.
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, fs};
///
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// # let ring = Ring::new()?;
/// # fs::write(&ring, path.join("a"), "text").await.into_result()?;
/// # fs::create_dir(&ring, path.join("b")).await?;
/// let mut entries = fs::read_dir(&ring, path).await?;
/// let mut bytes = 0;
/// while let Some(entry) = entries.next_entry().await? {
///     if entry.file_type().await?.is_file() {
///         bytes += entry.metadata().await?.len();
///     }
/// }
/// assert_eq!(bytes, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct DirEntry {
    ring: Ring,
    directory: Descriptor,
    path: PathBuf,
    kind: Option<FileType>,
    inode: u64,
}

/// Opens a directory, to read its names. The names `.` and `..` are left out, and the order is the file
/// system's. A thread reads the names, since a ring has no such operation.
///
/// # Errors
///
/// Why the directory could not be opened.
///
/// # Examples
///
/// ```
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// let ring = ringwise::Ring::new()?;
/// ringwise::fs::write(&ring, path.join("a"), "text").await.into_result()?;
/// let mut names = ringwise::fs::read_dir(&ring, path).await?;
/// while let Some(entry) = names.next_entry().await? {
///     assert!(entry.file_name() == "a" && entry.file_type().await?.is_file());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub async fn read_dir(ring: &Ring, path: impl AsRef<Path>) -> Result<ReadDir, Error> {
    let path = path.as_ref();
    let opened = ring.submit(Operation::open(path, directory_options())).await;
    Ok(ReadDir::of(ring, opened.into_descriptor()?, path))
}

fn directory_options() -> OpenOptions {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY)
}

impl ReadDir {
    fn of(ring: &Ring, descriptor: Descriptor, path: &Path) -> ReadDir {
        ReadDir {
            ring: ring.clone(),
            descriptor,
            path: path.to_owned(),
            entries: VecDeque::new(),
            buffer: vec![0; NAMES_BYTES],
            is_end: false,
        }
    }

    /// Gives the next name, or nothing at the end.
    ///
    /// # Errors
    ///
    /// Why the directory could not be read.
    pub async fn next_entry(&mut self) -> Result<Option<DirEntry>, Error> {
        while self.entries.is_empty() && !self.is_end {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(NAMES_BYTES, 0);
            let done = self.ring.submit(Operation::read_directory(&self.descriptor, buffer)).await;
            let count = done.result().map_err(|error| error.on_path(&self.path))?;
            let buffer = done.take_buffer().expect("a read of names gives its buffer back");
            self.buffer = Vec::from_buffer(buffer);
            self.is_end = count == 0;
            self.entries.extend(records(&self.buffer[..count]));
        }
        Ok(self.entries.pop_front().map(|(name, kind, inode)| DirEntry {
            ring: self.ring.clone(),
            directory: self.descriptor.clone(),
            path: self.path.join(name),
            kind,
            inode,
        }))
    }
}

/// Takes the records of `struct linux_dirent64` apart (getdents64(2)).
fn records(mut bytes: &[u8]) -> impl Iterator<Item = (OsString, Option<FileType>, u64)> + '_ {
    const NAME: usize = 19;
    std::iter::from_fn(move || {
        loop {
            let inode = u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?);
            let len = usize::from(u16::from_ne_bytes(bytes.get(16..18)?.try_into().ok()?));
            let record = bytes.get(..len.max(NAME))?;
            bytes = &bytes[record.len()..];
            let name = record[NAME..].split(|byte| *byte == 0).next()?;
            if name != b"." && name != b".." {
                let kind = FileType::of_record(record[18]);
                return Some((OsString::from_vec(name.to_vec()), kind, inode));
            }
        }
    })
}

impl DirEntry {
    /// The directory's path with this name.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The name.
    pub fn file_name(&self) -> OsString {
        self.name().to_owned()
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// The inode's number.
    pub fn ino(&self) -> u64 {
        self.inode
    }

    /// Gives the metadata. It does not follow a symbolic link.
    ///
    /// # Errors
    ///
    /// Why it could not be read.
    pub async fn metadata(&self) -> Result<Metadata, Error> {
        let about = Operation::statx_link_at(&self.directory, self.name());
        let done = self.ring.submit(about).await.metadata();
        done.map_err(|error| error.on_path(&self.path))
    }

    /// Gives the kind of the file, without a syscall if the file system told it with the name. It does
    /// not follow a symbolic link.
    ///
    /// # Errors
    ///
    /// Why the metadata could not be read.
    pub async fn file_type(&self) -> Result<FileType, Error> {
        match self.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.metadata().await?.file_type()),
        }
    }
}

/// Makes a directory and those above it that are missing, with permissions 0o777 less the umask. A
/// directory that exists is no error.
///
/// # Errors
///
/// Why one could not be made. Those above it stay.
pub async fn create_dir_all(ring: &Ring, path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    let mut missing = vec![path];
    while let Some(path) = missing.last().copied() {
        let made = ring.submit(Operation::create_dir(path, 0o777)).await.result();
        match made {
            Ok(_) => drop(missing.pop()),
            Err(error) if error.errno() == libc::ENOENT => match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => missing.push(parent),
                _ => return Err(error),
            },
            Err(error) => {
                let about = ring.submit(Operation::statx(path)).await.metadata();
                if !about.is_ok_and(|about| about.is_dir()) {
                    return Err(error);
                }
                missing.pop();
            }
        }
    }
    Ok(())
}

/// A directory that is being emptied.
struct Emptied {
    names: ReadDir,
    /// Names that are no directories, to be removed together.
    files: Vec<OsString>,
}

/// Removes a directory with everything in it. If the path is a symbolic link, it removes the link. It
/// follows no link within the tree, also not one that another process puts there meanwhile. Up to 64
/// files of a directory are removed at once, and one descriptor is open for each level.
///
/// # Errors
///
/// Why something could not be removed. What was removed before that is gone.
///
/// # Cancel safety
///
/// If the future is dropped, a part of the tree is left.
pub async fn remove_dir_all(ring: &Ring, path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    let about = ring.submit(Operation::statx_link(path)).await.metadata()?;
    if about.is_symlink() {
        return ring.submit(Operation::unlink(path)).await.result().map(drop);
    }
    let options = directory_options().custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
    let top = ring.submit(Operation::open(path, options)).await.into_descriptor()?;
    let mut levels = vec![Emptied { names: ReadDir::of(ring, top, path), files: Vec::new() }];
    while let Some(level) = levels.last_mut() {
        match level.names.next_entry().await? {
            Some(entry) if entry.file_type().await?.is_dir() => {
                let open = Operation::open_at(&entry.directory, entry.name(), options);
                let opened = ring.submit(open).await.into_descriptor();
                let opened = opened.map_err(|error| error.on_path(&entry.path))?;
                let names = ReadDir::of(ring, opened, &entry.path);
                levels.push(Emptied { names, files: Vec::new() });
            }
            Some(entry) => {
                level.files.push(entry.file_name());
                if level.files.len() == REMOVED_TOGETHER {
                    level.remove_files().await?;
                }
            }
            None => {
                level.remove_files().await?;
                let path = levels.pop().map(|level| level.names.path).unwrap_or_default();
                let remove = match levels.last() {
                    Some(above) => Operation::remove_dir_at(
                        &above.names.descriptor,
                        path.file_name().unwrap_or_default(),
                    ),
                    None => Operation::remove_dir(&path),
                };
                let removed = ring.submit(remove).await.result();
                removed.map_err(|error| error.on_path(&path))?;
            }
        }
    }
    Ok(())
}

impl Emptied {
    async fn remove_files(&mut self) -> Result<(), Error> {
        let ReadDir { ring, descriptor, path, .. } = &self.names;
        let files = std::mem::take(&mut self.files);
        let removals = files.iter().map(|name| Operation::unlink_at(descriptor, name));
        let removals = ring.submit_all(removals);
        for (removal, name) in removals.into_iter().zip(&files) {
            match removal.await.result() {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error.on_path(&path.join(name)));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Reads where a symbolic link leads. A thread makes the syscall.
///
/// # Errors
///
/// Why it could not be read; [`InvalidInput`](ErrorKind::InvalidInput) if the path is no link.
pub async fn read_link(ring: &Ring, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
    let done = ring.submit(Operation::read_link(path)).await;
    let count = done.result()?;
    let buffer = done.take_buffer().expect("a read of a link gives its buffer back");
    Ok(OsStr::from_bytes(&buffer.as_slice()[..count]).into())
}

/// Gives the absolute path without `.`, `..` and symbolic links, as realpath(3). It reads each part of
/// the path as a link, by a thread.
///
/// # Errors
///
/// Why a part could not be read; `ELOOP` after 40 links.
pub async fn canonicalize(ring: &Ring, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
    use std::path::Component;
    const LINKS_MAX: usize = 40;
    let path = path.as_ref();
    // Also tells of a file that is used as a directory.
    ring.submit(Operation::statx(path)).await.result()?;
    // A simulated machine's current directory is its root.
    let mut real = match ring.simulation() {
        None if path.is_relative() => std::env::current_dir().map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            Error::new(Opcode::ReadLink, Errno(errno)).on_path(path)
        })?,
        _ => PathBuf::from("/"),
    };
    let parts = |path: &Path| -> Vec<OsString> {
        path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut rest, mut links) = (parts(path), 0);
    while let Some(part) = rest.pop() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => real = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(real.pop()),
            Some(Component::Normal(name)) => {
                real.push(name);
                match read_link(ring, &real).await {
                    Ok(_) if links == LINKS_MAX => {
                        let errno = Errno(libc::ELOOP);
                        return Err(Error::new(Opcode::ReadLink, errno).on_path(path));
                    }
                    Ok(target) => {
                        links += 1;
                        real.pop();
                        rest.extend(parts(&target));
                    }
                    Err(error) if error.errno() == libc::EINVAL => {}
                    Err(error) => return Err(error),
                }
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    Ok(real)
}
