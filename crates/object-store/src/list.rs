//! Listings: a walk over directories, on a thread that may block.
//!
//! The walk follows symbolic links within the store. It leaves out links that are broken, that lead out
//! of the store or that lead to a directory above themselves.

use std::{collections::BTreeSet, os::fd::AsFd, sync::Arc};

use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use object_store::{
    Error, ListResult, ObjectMeta, Result,
    path::{self, Path},
};
use rustix::{
    fs::{AtFlags, Dir, DirEntry, FileType, OFlags, Stat, fstat, statat},
    io::Errno,
};

use crate::{failure::failed, location::is_staged, object, root::Root, threads::blocking};

/// How many objects a thread lists at a time.
const BATCH: usize = 1024;

const READ_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Lists the objects below a prefix, and those only that come after `offset`.
pub(crate) fn list(
    root: Arc<Root>,
    prefix: Option<&Path>,
    offset: Option<&Path>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let prefix = prefix.cloned().unwrap_or_default();
    let walk = Walk { root, levels: Vec::new(), start: Some(prefix), offset: offset.cloned() };
    stream::unfold(Some(walk), |walk| async {
        let mut walk = walk?;
        let batch = blocking(move || {
            let batch: Vec<_> = walk.by_ref().take(BATCH).collect();
            let rest = (batch.len() == BATCH).then_some(walk);
            Ok((batch, rest))
        });
        let (batch, rest) = batch.await.unwrap_or_else(|error| (vec![Err(error)], None));
        Some((stream::iter(batch), rest))
    })
    .flatten()
    .boxed()
}

/// Lists the objects and directories in one directory.
pub(crate) fn list_level(root: &Arc<Root>, prefix: &Path) -> Result<ListResult> {
    let mut walk = Walk { root: root.clone(), levels: Vec::new(), start: None, offset: None };
    let mut objects = Vec::new();
    let mut common_prefixes = BTreeSet::new();
    walk.enter(prefix.clone())?;
    while let Some(level) = walk.levels.last_mut() {
        let Some(entry) = level.next() else { break };
        match walk.classify(entry?)? {
            Found::Object(meta) => objects.push(meta),
            Found::Directory(location) => drop(common_prefixes.insert(location)),
            Found::Nothing => {}
        }
    }
    let common_prefixes = common_prefixes.into_iter().collect();
    Ok(ListResult {
        common_prefixes,
        objects,
        #[cfg(not(feature = "object_store_0_13"))]
        extensions: Default::default(),
    })
}

/// A walk over all objects below a prefix.
struct Walk {
    root: Arc<Root>,
    /// The open directories, each in the one before it.
    levels: Vec<Level>,
    /// The directory to begin with, until it is open.
    start: Option<Path>,
    offset: Option<Path>,
}

/// A directory that is read.
struct Level {
    location: Path,
    identity: (u64, u64),
    directory: Dir,
}

/// What an entry of a directory is.
enum Found {
    Object(ObjectMeta),
    Directory(Path),
    Nothing,
}

impl Iterator for Walk {
    type Item = Result<ObjectMeta>;

    fn next(&mut self) -> Option<Result<ObjectMeta>> {
        if let Some(start) = self.start.take()
            && let Err(error) = self.enter(start)
        {
            return Some(Err(error));
        }
        while let Some(level) = self.levels.last_mut() {
            let Some(entry) = level.next() else {
                self.levels.pop();
                continue;
            };
            match entry.and_then(|entry| self.classify(entry)) {
                Ok(Found::Object(meta)) => return Some(Ok(meta)),
                Ok(Found::Directory(location)) => {
                    if let Err(error) = self.enter(location) {
                        return Some(Err(error));
                    }
                }
                Ok(Found::Nothing) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}

impl Walk {
    /// Opens a directory, if it is there and is none that is open already.
    fn enter(&mut self, location: Path) -> Result<()> {
        let opened = self.root.find(location.as_ref(), READ_DIRECTORY).and_then(|directory| {
            let identity = object::identity(&fstat(&directory)?);
            Ok((identity, Dir::new(directory)?))
        });
        match opened {
            Ok((identity, directory)) => {
                if self.levels.iter().all(|level| level.identity != identity) {
                    self.levels.push(Level { location, identity, directory });
                }
                Ok(())
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(failed(&location, error)),
        }
    }

    /// Looks an entry of the last directory up.
    fn classify(&self, entry: DirEntry) -> Result<Found> {
        let Some(level) = self.levels.last() else { return Ok(Found::Nothing) };
        let location = level.location_of(&entry)?;
        let is_left_out = self.offset.as_ref().is_some_and(|offset| location <= *offset)
            || location.filename().is_none_or(is_staged);
        let stat = match entry.file_type() {
            FileType::Directory => return Ok(Found::Directory(location)),
            FileType::RegularFile if is_left_out => return Ok(Found::Nothing),
            FileType::RegularFile => level.look_up(&entry),
            FileType::Symlink => self.follow(&location),
            FileType::Unknown => match level.look_up(&entry) {
                Ok(stat) if object::kind(&stat) == FileType::Symlink => self.follow(&location),
                looked_up => looked_up,
            },
            _ => return Ok(Found::Nothing),
        };
        match stat {
            Ok(stat) if object::kind(&stat) == FileType::Directory => {
                Ok(Found::Directory(location))
            }
            Ok(stat) if object::is_object(&stat) && !is_left_out => {
                Ok(Found::Object(object::meta(&stat, location)))
            }
            // Broken links, circles of links and links that lead out; and what was just removed.
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                Ok(Found::Nothing)
            }
            Err(error) => Err(failed(&location, error)),
        }
    }

    fn follow(&self, location: &Path) -> rustix::io::Result<Stat> {
        fstat(self.root.find(location.as_ref(), OFlags::PATH)?)
    }
}

impl Level {
    fn location_of(&self, entry: &DirEntry) -> Result<Path> {
        let name = entry.file_name().to_str().map_err(|source| {
            let path = format!("{}/{}", self.location, entry.file_name().to_string_lossy());
            Error::from(path::Error::NonUnicode { path, source })
        })?;
        let whole = match self.location.as_ref() {
            "" => name.to_owned(),
            above => format!("{above}/{name}"),
        };
        Ok(Path::parse(whole)?)
    }

    fn look_up(&self, entry: &DirEntry) -> rustix::io::Result<Stat> {
        statat(self.directory.fd()?.as_fd(), entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
    }
}

impl Iterator for Level {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            let entry = match self.directory.read()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(failed(&self.location, error))),
            };
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                return Some(Ok(entry));
            }
        }
    }
}
