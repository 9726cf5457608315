//! A directory that is open, or can be opened again: as the very one that it was.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    fs::{self, Mode, OFlags, Stat},
    io::Errno,
};

use crate::{
    attributes::To,
    names::{
        listing::Listing,
        place::{Identity, Place, retry},
    },
};

/// A directory, and which one it is while it is not open.
#[derive(Debug)]
pub(super) struct Held {
    file: Option<Arc<OwnedFd>>,
    identity: Option<Identity>,
    /// Not readable: open for nothing but what is in it.
    path_only: bool,
}

impl Held {
    /// Opens a directory, if need be only to go through it.
    pub(super) fn open(place: &Place, flags: OFlags) -> Result<Held, Errno> {
        Held::open_with_stat(place, flags).map(|(held, _)| held)
    }

    /// Opens a directory, and tells what it is.
    pub(super) fn open_with_stat(place: &Place, flags: OFlags) -> Result<(Held, Stat), Errno> {
        let flags = flags | OFlags::DIRECTORY;
        let (file, path_only) = match place.open(OFlags::RDONLY | flags, 0) {
            Err(Errno::ACCESS) => (place.open(OFlags::PATH | flags, 0)?, true),
            opened => (opened?, false),
        };
        let stat = fs::fstat(&file)?;
        let identity = Some(Identity::of(&stat));
        Ok((Held { file: Some(Arc::new(file)), identity, path_only }, stat))
    }

    pub(super) fn none() -> Held {
        Held { file: None, identity: None, path_only: false }
    }

    pub(super) fn file(&self) -> Option<Arc<OwnedFd>> {
        self.file.clone()
    }

    pub(super) fn close(&mut self) {
        self.file = None;
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        self.identity
    }

    pub(super) fn is(&self, directory: Identity) -> bool {
        self.identity == Some(directory)
    }

    /// By what its attributes are read and set, while it is open.
    pub(super) fn attributes(&self) -> Option<To<'_>> {
        let file = self.file.as_ref()?.as_fd();
        Some(if self.path_only { To::Through(file) } else { To::Open(file) })
    }

    /// Its device, and what that is synced by (not what is only gone through: syncfs(2)).
    pub(super) fn synced_by(&self) -> Option<(u64, Result<&OwnedFd, Errno>)> {
        let file = if self.path_only { Err(Errno::ACCESS) } else { Ok(self.file.as_deref()?) };
        Some((self.identity?.device, file))
    }

    /// The names in it; none where it is not open.
    pub(super) fn list(&self) -> Result<Listing, Errno> {
        match &self.file {
            Some(_) if self.path_only => Err(Errno::ACCESS),
            Some(file) => Listing::read(file.as_fd()),
            None => Ok(Listing::default()),
        }
    }

    /// Opens it again from a directory in it, or by its path.
    pub(super) fn reopen(&mut self, child: &Held, path: &[u8]) -> Result<(), Errno> {
        if self.file.is_some() || self.identity.is_none() {
            return Ok(());
        }
        let access = if self.path_only { OFlags::PATH } else { OFlags::RDONLY };
        let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = child
            .file
            .as_ref()
            .map(|child| retry(|| fs::openat(child.as_fd(), "..", flags, Mode::empty())));
        if let Some(Ok(above)) = above
            && self.adopt(above).is_ok()
        {
            return Ok(());
        }
        // It was entered through a link, or was moved.
        self.adopt(Place::typed(path.to_vec()).reached().open(flags, 0)?)
    }

    fn adopt(&mut self, file: OwnedFd) -> Result<(), Errno> {
        if !self.is(Identity::of(&fs::fstat(&file)?)) {
            return Err(Errno::STALE);
        }
        self.file = Some(Arc::new(file));
        Ok(())
    }
}
